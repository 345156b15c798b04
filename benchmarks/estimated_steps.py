"""Training steps by torch's own estimator, which times each operation alone, beside the sums and the measured steps

Example: PYTHONPATH=. python benchmarks/estimated_steps.py database --measurements docs/data/training/measurements
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pandas as pd
import torch
from tables import markdown
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.runtime_estimator import RuntimeEstimator

from opcost.comparing.model_result import ModelResult
from opcost.measuring.conditions import GRAPH
from opcost.operators.training import PARTS
from opcost.operators.tuples import META, Phase
from opcost.running.request import Request
from opcost.sources.models import resolve
from opcost.stages.ranking_data import read_ranking_data
from opcost.storage.configs import ModelConfig, ModelFolders, model_tuple
from opcost.storage.database import Database
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.switches import autocast, switched
from opcost.torch_backend.training_step import TrainingStep, training_step

DEVICE = "cuda:0"


def on_fake(ready: ReadyModel, device: str) -> ReadyModel:
    """Return a model on shapes with tensors of a device that have no memory; the mode of fake tensors is active."""

    def fake(tensor: Tensor) -> Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)

    known: dict[int, Tensor] = {}
    for module in ready.model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = known.setdefault(
                    id(weight), nn.Parameter(fake(weight), weight.requires_grad)
                )
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = known.setdefault(id(buffer), fake(buffer))
    return ready.with_tensors(fake)


def estimated_s(config: ModelConfig, device: str = DEVICE) -> Mapping[Phase, float]:
    """Return the estimator's time of each part of a config's step in s. It runs eagerly, on values that it draws."""
    assert config.training is not None
    plain = resolve(model_tuple(replace(config, training=None)), config.code).with_inputs(META)
    estimator, found = RuntimeEstimator(), {}
    # It prints its total.
    with switched(config.precision, config.attention), FakeTensorMode(), redirect_stdout(StringIO()):
        # The first step makes the gradients and the optimiser's state.
        context = partial(autocast, config.precision, device)
        ready = training_step(on_fake(plain, device), config.training, device, context)
        step = ready.model
        assert isinstance(step, TrainingStep)
        step.run_backward(*ready.inputs, **ready.keyword_inputs)
        step.run_optimizer()
        with estimator(estimate_mode_type="operator-level-benchmark"):
            loss = step.run_forward(*ready.inputs, **ready.keyword_inputs)
            found[Phase.FORWARD] = estimator.total_runtime
            with torch.enable_grad():
                loss.backward()
            found[Phase.BACKWARD] = estimator.total_runtime - sum(found.values())
            step.run_optimizer()
            found[Phase.OPTIMIZER] = estimator.total_runtime - sum(found.values())
    return {phase: 1e-3 * time_ms for phase, time_ms in found.items()}


def results(request: Request) -> list[ModelResult]:
    """Return the measured steps of the request's configs, each with its parts."""
    configs = [config for config in request.configs() if config.training is not None]
    data = read_ranking_data(request, configs, [config.name for config in configs])
    found = [one for conditions in data.newest if conditions.execution == GRAPH for one in data.results(conditions)]
    return [one for one in found if one.whole is not None and one.phases]


def table(found: Sequence[ModelResult], estimates: Mapping[str, Mapping[Phase, float]]) -> pd.DataFrame:
    """Return a line for each step and each part: times in ms, and their ratios to the measured one; NaN if unknown."""
    lines = []
    for step in found:
        own = dict(estimates.get(step.name, {}))
        own |= {Phase.STEP: sum(own.values())} if own else {}
        for phase, one in zip((Phase.STEP, *PARTS), (step, *step.phases), strict=True):
            whole_s = one.whole.measurement.time_s if one.whole else float("nan")
            sum_s = one.cost.time_s.value if one.cost.time_s and one.is_complete else float("nan")
            estimated = own.get(phase, float("nan"))
            lines.append(
                {
                    "model": step.name,
                    "part": str(phase),
                    "whole (ms)": 1e3 * whole_s,
                    "sum (ms)": 1e3 * sum_s,
                    "estimator (ms)": 1e3 * estimated,
                    "sum / whole": sum_s / whole_s,
                    "estimator / whole": estimated / whole_s,
                }
            )
    return pd.DataFrame(lines)


def in_words(lines: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the cells of a table; those of unknown figures are empty."""

    def cell(one: str | float) -> str:
        if isinstance(one, str):
            return one
        return "" if math.isnan(one) else f"{one:.4g}"

    return [str(name) for name in lines.columns], [list(map(cell, line)) for line in lines.to_numpy()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path, help="the folder of the rows")
    parser.add_argument("--measurements", type=Path, required=True, help="the folder of the configs")
    arguments = parser.parse_args()
    request = Request((), ModelFolders(arguments.measurements), Database(arguments.database))
    found = results(request)
    configs, estimates = {config.name: config for config in request.configs()}, {}
    if torch.cuda.is_available():
        estimates = {one.name: estimated_s(configs[one.name]) for one in found}
    else:
        print("The estimator times operations on a GPU, and none is here: its times are empty.")
    print(markdown(*in_words(table(found, estimates))))


if __name__ == "__main__":
    main()
