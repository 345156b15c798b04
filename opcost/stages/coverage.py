"""The shares of a model's FLOPs and bytes, counted in an unobserved run, that its operator tuples have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import device_type_of
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import META, model_operator, tensor_specs
from opcost.progress import Progress
from opcost.running.devices import choose_device, product_of
from opcost.sources.models import ResolvedModel, resolve
from opcost.sources.registry import PublishedFacts, models_matching, with_usual_size
from opcost.stages.count import RUNS, counting_s
from opcost.stages.model_sizes import published_size
from opcost.torch_backend.capture import capture
from opcost.torch_backend.cost_counter import CostCounter, OperationCost, total, unfused
from opcost.torch_backend.meta_device import like_a_device
from opcost.torch_backend.passes import inference
from opcost.torch_backend.workload import REFUSALS, one_line

BATCH_SIZE = 1
"""Multiply-adds are published for one sample; shares hardly depend on the batch size."""

FLOP_TOLERANCE_RATIO = 1e-6
LEAST_MEMORY_BYTES_RATIO = 0.999
"""Required shares in tuples: all FLOPs, up to the rounding of means over calls, and nearly all bytes."""

REGION_POOLING = "MultiScaleRoIAlign"


@dataclass(frozen=True)
class Proposals:
    """The number of image regions in a two-stage detector's heads, and the number that fits its published figure."""

    number: int
    published: float

    @staticmethod
    def of(counts: OperatorCounts, published: PublishedFacts) -> Proposals | None:
        """Return the proposals of a model's run, None if it has no such heads, no published figure or unknown FLOPs.

        All operators after the first pooling of regions belong to the heads. Those of the box head have as many
        regions as its linear layers.
        """
        names = [count.operator.short_name for count in counts.counts]
        if REGION_POOLING not in names or published.multiply_adds is None or counts.without_formula:
            return None

        def flop(of: Iterable[OperatorCount]) -> int:
            return sum(count.occurrences * count.flop for count in of if count.flop is not None)

        heads = counts.counts[names.index(REGION_POOLING) :]
        linear = next(count.operator for count in heads if count.operator.short_name == "Linear")
        number = tensor_specs(linear.inputs)[0].shape[0]
        head_flop = flop(heads)
        sizes = [(count, tensor_specs(count.operator.inputs)[:1]) for count in heads]
        box_head = [count for count, specs in sizes if specs and specs[0].shape[:1] == (number,)]
        per_proposal = flop(box_head) / number
        published_head_flop = 2 * published.multiply_adds - (counts.total_flop - head_flop)
        return Proposals(number, published_head_flop / per_proposal)


@dataclass(frozen=True)
class CoverageRow:
    """The shares of an unobserved run of one model, counted operation by operation, that its tuples have.

    ``operations`` ran unobserved, ``captured_operations`` during the capture; with ``is_undisturbed`` they are equal
    one by one. ``outside`` names the operations in no tuple. ``meta_other_tuples`` is the number of tuples that a
    capture on the meta device has additionally or in another number, and ``meta_memory_bytes_ratio`` its bytes over
    the device's; both are None if the model ran there itself or cannot. ``proposals`` are those of a two-stage
    detector. ``flop_ratio`` and ``multiply_adds`` are None if operations without a formula ran, for
    ``flop_missing_reason``; ``flop_ratio`` also without FLOPs.
    """

    model_name: str
    task: str
    input_size: tuple[int, ...]
    device: str
    module_calls: int
    function_calls: int
    tuples: int
    operations: int
    captured_operations: int
    is_undisturbed: bool
    outside: tuple[str, ...]
    flop_ratio: float | None
    memory_bytes_ratio: float | None
    multiply_adds: float | None
    published: PublishedFacts
    parameters: int
    meta_other_tuples: int | None
    meta_memory_bytes_ratio: float | None
    proposals: Proposals | None
    flop_missing_reason: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether tuples have all FLOPs, which are known, and nearly all bytes, and the capture changed nothing."""
        has_flop = self.flop_ratio is None or abs(self.flop_ratio - 1) < FLOP_TOLERANCE_RATIO
        has_bytes = self.memory_bytes_ratio is None or self.memory_bytes_ratio >= LEAST_MEMORY_BYTES_RATIO
        is_known = self.flop_missing_reason is None
        return is_known and has_flop and has_bytes and self.is_undisturbed and not self.outside


@dataclass(frozen=True)
class CoverageFailure:
    """A model that could not be checked, and the reason."""

    model_name: str
    reason: str


@dataclass(frozen=True)
class CoverageReport:
    """The checked models, the product name of the device, and the versions of torch and of the models' libraries."""

    rows: tuple[CoverageRow, ...]
    failures: tuple[CoverageFailure, ...]
    device_product: str
    libraries: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        return not self.failures and all(row.is_complete for row in self.rows)


def check_coverage(
    patterns: Sequence[str], device_name: str | None, on_meta: bool, progress: Progress
) -> CoverageReport:
    """Run each model unobserved and captured, and compare.

    ``patterns`` are names of models or globs; if there are none, all but the quantized ones are run. The device is a
    GPU if there is one and none is named. With ``on_meta``, models run on shapes only, unless their work depends on
    values. Raises UserError: a pattern matches no model, or there is no such device.
    """
    device = choose_device(device_name)
    listed = with_usual_size(models_matching(patterns))
    sizes = [(BATCH_SIZE, *model.input_size[1:]) for model in listed]
    models = [
        replace(resolve(model_operator(model.name, None, size)), listed=model)
        for model, size in zip(listed, sizes, strict=True)
    ]
    tasks = [(model, model.counting_device(device, on_meta)) for model in models]
    # Each runs once more, unobserved.
    counted_s = [
        counting_s(published_size(model.listed, size), on_device)
        for (model, on_device), size in zip(tasks, sizes, strict=True)
    ]
    progress.start(len(tasks), [time_s * (RUNS + 1) / RUNS for time_s in counted_s])
    rows, failures = [], []
    try:
        for model, on_device in tasks:
            progress.begin(model.listed.name)
            try:
                row = _check(model, on_device)
            except (CannotMeasureError, *REFUSALS) as error:
                failures.append(CoverageFailure(model.listed.name, one_line(error)))
                progress.fail(failures[-1].reason)
            else:
                rows.append(row)
                progress.finish(f"{row.tuples} tuples")
    finally:
        progress.end()
    libraries = {model.source.library() for model in models}
    versions = (f"torch {torch.__version__}", *sorted(libraries))
    return CoverageReport(tuple(rows), tuple(failures), product_of(device), versions)


def _check(resolved: ResolvedModel, device: str) -> CoverageRow:
    operator, listed = resolved.operator, resolved.listed
    ready = resolved.ready_to_count(device)
    unobserved: list[OperationCost] = []
    with like_a_device(ready.device_type), unfused(), CostCounter(unobserved.append), inference():
        ready.run()
    captured: list[OperationCost] = []
    counts = capture(ready, operator, record=captured.append)
    whole = total(unobserved)
    has_meta = device != META and not listed.is_data_dependent
    on_meta = capture(resolved.ready_to_count(META), operator) if has_meta else None
    calls = [{(one.operator, one.occurrences) for one in run.counts} for run in (counts, on_meta) if run is not None]
    return CoverageRow(
        model_name=listed.name,
        task=listed.task,
        input_size=tensor_specs(operator.inputs)[0].shape,
        device=device_type_of(device),
        module_calls=counts.operator_calls - counts.function_calls,
        function_calls=counts.function_calls,
        tuples=len(counts.counts),
        operations=len(unobserved),
        captured_operations=len(captured),
        is_undisturbed=unobserved == captured,
        outside=counts.outside,
        flop_ratio=counts.flop / whole.flop if whole.flop and counts.flop is not None else None,
        memory_bytes_ratio=counts.memory_bytes / whole.memory_bytes if whole.memory_bytes else None,
        multiply_adds=None if whole.flop is None else whole.flop / 2 / BATCH_SIZE,
        published=listed.published,
        parameters=counts.parameters,
        meta_other_tuples=None if on_meta is None else len(calls[0] ^ calls[1]),
        meta_memory_bytes_ratio=None if on_meta is None else on_meta.total_memory_bytes / counts.total_memory_bytes,
        proposals=Proposals.of(counts, listed.published),
        flop_missing_reason=counts.flop_missing_reason,
    )
