"""Block 0: count every operator tuple of each model."""

from __future__ import annotations

from dataclasses import dataclass

from opcost.apparatus import choose_device, model_and_inputs
from opcost.config_files import ModelConfig
from opcost.errors import CannotMeasureError, UserError
from opcost.model_sources import check_model
from opcost.operators import OperatorCounts
from opcost.pickle_files import write_counts
from opcost.progress import Progress
from opcost.request import COUNTS, Request, model_tuple
from opcost.torch_capture import capture
from opcost.torch_workload import REFUSALS, one_line

EXPECTED_S = {"cuda": 1.0, "cpu": 6.0}
"""What a model takes as a rule: the mean over the configs that come with the project, on an H200 and on two cores."""


@dataclass(frozen=True)
class CountReport:
    """What block 0 counted in one model. FLOPs, bytes and parameters are those of the whole model run."""

    name: str
    operator_calls: int
    unique_tuples: int
    flops: int
    bytes: int
    parameters: int
    counted_flops: int
    counted_bytes: int


@dataclass(frozen=True)
class CountFailure:
    """A model that does not run on its input, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class CountPlan:
    """What block 0 would do for one model, and roughly how long it takes."""

    name: str
    model: str
    counted_before: bool
    expected_s: float


def plan_counting(request: Request) -> list[CountPlan]:
    """Return the models that block 0 would run, without running any."""
    configs = request.open_configs(check_model)
    expected_s = EXPECTED_S[choose_device(request.device).partition(":")[0]]
    return [
        CountPlan(config.name, str(model_tuple(config)), COUNTS.path(config).exists(), expected_s) for config in configs
    ]


def count_operators(request: Request, progress: Progress) -> list[CountReport | CountFailure]:
    """Run each model once and pickle its operator tuples with their occurrences."""
    configs = request.open_configs(check_model)
    device = choose_device(request.device)
    progress.start(len(configs), EXPECTED_S[device.partition(":")[0]])
    try:
        return [_count_and_tell(config, device, progress) for config in configs]
    finally:
        progress.end()


def _count_and_tell(config: ModelConfig, device: str, progress: Progress) -> CountReport | CountFailure:
    progress.begin(config.name)
    try:
        report = _count_model(config, device)
    except UserError as error:
        progress.fail(str(error))
        return CountFailure(config.name, str(error))
    progress.finish(f"{report.operator_calls} calls of {report.unique_tuples} operator tuples")
    return report


def _count_model(config: ModelConfig, device: str) -> CountReport:
    counts = _count(config, device)
    write_counts(COUNTS.path(config), counts)
    return _count_report(config.name, counts)


def _count(config: ModelConfig, device: str) -> OperatorCounts:
    operator = model_tuple(config)
    try:
        return capture(*model_and_inputs(operator, device), operator)
    except CannotMeasureError as error:
        raise UserError(_does_not_run(config, device, str(error))) from error
    except REFUSALS as error:
        raise UserError(_does_not_run(config, device, one_line(error))) from error


def _does_not_run(config: ModelConfig, device: str, reason: str) -> str:
    size = list(config.input_size)
    return (
        f"{config.where('input_size')}: input_size: {config.model_name} does not run on {size} on {device} ({reason}); "
        "take a size that it accepts and that fits into memory"
    )


def _count_report(name: str, counts: OperatorCounts) -> CountReport:
    return CountReport(
        name=name,
        operator_calls=counts.operator_calls,
        unique_tuples=len(counts.counts),
        flops=counts.total_flop,
        bytes=counts.total_memory_bytes,
        parameters=counts.parameters,
        counted_flops=counts.flop,
        counted_bytes=counts.memory_bytes,
    )
