"""Block 0: count every operator tuple of each model."""

from __future__ import annotations

from dataclasses import dataclass

from opcost.apparatus import check_models, choose_device, model_and_inputs
from opcost.config_files import ModelConfig
from opcost.operators import OperatorCounts
from opcost.pickle_files import write_counts
from opcost.progress import Progress
from opcost.request import Request, counts_file, model_tuple
from opcost.torch_capture import capture


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


def count_operators(request: Request, progress: Progress) -> list[CountReport]:
    """Run each model once and pickle its operator tuples with their occurrences."""
    configs = request.open_configs()
    check_models(configs)
    device = choose_device(request.device)
    reports = []
    progress.start(len(configs), None)
    for config in configs:
        progress.begin(config.name)
        counts = _count(config, device)
        if not request.dry_run:
            write_counts(counts_file(config), counts)
        reports.append(_count_report(config.name, counts))
        progress.finish(f"{counts.operator_calls} calls of {len(counts.counts)} operator tuples")
    progress.end()
    return reports


def _count(config: ModelConfig, device: str) -> OperatorCounts:
    operator = model_tuple(config)
    model, inputs = model_and_inputs(operator, device)
    return capture(model, inputs, operator)


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
