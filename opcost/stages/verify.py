"""Checks of opcost itself: the share of models in their tuples, kernels of tuples run alone, tuples rebuilt."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from opcost.columns import grouped, present_moment
from opcost.comparing.model_result import kernel_key
from opcost.errors import CannotMeasureError, UserError
from opcost.estimates import total_if_known
from opcost.measuring.conditions import EAGER, WARM, device_type_of
from opcost.measuring.flags import Flag
from opcost.measuring.precisions import AUTOCAST_DTYPES
from opcost.measuring.record import KernelTimeRow
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.model_names import UserCode
from opcost.operators.tuples import META, OperatorTuple, model_operator, tensor_specs
from opcost.progress import Progress, reported
from opcost.running.apparatus import OpenApparatus, open_apparatus
from opcost.running.devices import choose_device, product_of
from opcost.running.expected_times import published_size
from opcost.running.request import Request, RunRequest, counted
from opcost.sources.models import ResolvedModel, resolve
from opcost.sources.port import PublishedFacts
from opcost.sources.registry import models_matching, with_usual_size
from opcost.stages.count import RUNS, counting_s
from opcost.storage.configs import ModelConfig, model_tuple
from opcost.storage.model_counts import COUNTS
from opcost.torch_backend.alone import difference, replay_device
from opcost.torch_backend.capture import capture, watch
from opcost.torch_backend.cost_counter import CostCounter, OperationCost, total, unfused
from opcost.torch_backend.meta_device import like_a_device
from opcost.torch_backend.passes import Context, running_calls
from opcost.torch_backend.probes import Kernel, Mark, profiled
from opcost.torch_backend.ready_model import REFUSALS, ReadyModel
from opcost.torch_backend.switches import autocast, switched
from opcost.torch_backend.workload import one_line, operator_workload
from opcost.units import milliseconds, percent

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

        All operators after the first pooling of regions are heads; those with as many regions as linear layers the box
        head.
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
    device, tasks, expected_s = choose_device(device_name), [], []
    for listed in with_usual_size(models_matching(patterns)):
        size = (BATCH_SIZE, *listed.input_size[1:])
        model = replace(resolve(model_operator(listed.name, None, size)), listed=listed)
        tasks.append((model, model.counting_device(device, on_meta)))
        # Each runs once more, unobserved.
        expected_s.append(counting_s(published_size(listed, size), tasks[-1][1]) * (RUNS + 1) / RUNS)
    rows, failures = [], []
    with reported(progress, len(tasks), expected_s):
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
    libraries = sorted({model.operator.operator.partition(".")[0] for model, _ in tasks})
    versions = tuple(f"{name} {sys.modules[name].__version__}" for name in ("torch", *libraries))
    return CoverageReport(tuple(rows), tuple(failures), product_of(device), versions)


def _check(resolved: ResolvedModel, device: str) -> CoverageRow:
    operator, listed = resolved.operator, resolved.listed
    ready = resolved.ready_to_count(device)
    unobserved: list[OperationCost] = []
    with like_a_device(ready.device_type), unfused(), CostCounter(unobserved.append), running_calls():
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


REPETITIONS = 3
"""Runs of each tuple alone under the profiler; its time is their mean."""


@dataclass(frozen=True)
class KindOfOperator:
    """Kernel time of an operator's calls in the model and alone (None if not possible), and in the same kernels."""

    operator: str
    calls: int
    in_model_s: float
    alone_s: float | None
    same_kernels_s: float


@dataclass(frozen=True)
class KernelsReport:
    """The kernels of one model, inside counted calls, and the same alone; ``differences`` are lines of tuples."""

    name: str
    kernels: int
    kernel_time_s: float
    counted_ratio: float
    same_kernels_ratio: float
    kinds: tuple[KindOfOperator, ...]
    tuples: tuple[KindOfOperator, ...]
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Launched:
    """The kernels that one call of an operator launches, by name, and their total time."""

    names: Counter[str]
    time_s: float

    @staticmethod
    def of(kernels: Iterable[Kernel]) -> Launched:
        kernels = list(kernels)
        return Launched(Counter(kernel.name for kernel in kernels), sum(kernel.time_s for kernel in kernels))


def compare_kernels(
    request: RunRequest, progress: Progress, open_device: OpenApparatus = open_apparatus
) -> list[KernelsReport]:
    """Profile each chosen model, then its tuples alone, and keep the rows. Raises UserError: there is no GPU."""
    configs = request.models(request.check)
    table = request.database.kernel_times
    reports = []
    with reported(progress, len(configs)), open_device(request.device, request.database, False) as apparatus:
        if not apparatus.is_gpu:
            raise UserError("--device cpu: kernels are compared on a GPU; name one with --device cuda")
        # The profiler reported kernels of a process's first model under other operators (``docs/log/cache.md``).
        profiled(lambda mark: None)
        for config in configs:
            progress.begin(config.name)
            with switched(config.precision, config.attention):
                report = _compare(config, apparatus.device, request.code_of(config))
            conditions = apparatus.conditions(request.setting_of(config))
            key, moment = kernel_key(model_tuple(config).key, conditions), present_moment()
            conditions = replace(conditions, execution=EAGER, cache=WARM)
            for kind in report.kinds:
                figures = kind.calls, kind.in_model_s, kind.alone_s, kind.same_kernels_s
                table.append(KernelTimeRow(key, config.name, kind.operator, *figures, moment, conditions))
            reports.append(report)
            progress.finish(f"{percent(report.same_kernels_ratio)} of the time in the same kernels alone")
    return reports


def _compare(config: ModelConfig, device: str, code: UserCode | None) -> KernelsReport:
    # The model is released before its tuples are built: both may not fit.
    whole, calls = _in_model(config, device, code)
    alone = _alone(list(calls), device, partial(autocast, config.precision, device, keeps_casts=False))
    kinds = tuple(_kinds(calls, alone, lambda operator: operator.short_name))
    return KernelsReport(
        name=config.name,
        kernels=whole.names.total(),
        kernel_time_s=whole.time_s,
        counted_ratio=sum(kind.in_model_s for kind in kinds) / whole.time_s,
        same_kernels_ratio=sum(kind.same_kernels_s for kind in kinds) / whole.time_s,
        kinds=kinds,
        tuples=tuple(_kinds(calls, alone, str)),
        differences=tuple(_differences(calls, alone)),
    )


def _by_mark(kernels: Iterable[Kernel]) -> dict[int, list[Kernel]]:
    return grouped((one for one in kernels if one.mark is not None), lambda kernel: int(kernel.mark or 0))


def profiled_calls(ready: ReadyModel, composites: Collection[str]) -> tuple[list[OperatorTuple], list[Kernel]]:
    """Return the operators that a run of a model calls, and its kernels, whose mark is the number of the call."""
    operators: list[OperatorTuple] = []

    def run(mark: Mark) -> None:
        def mark_call(operator: OperatorTuple) -> AbstractContextManager[Any]:
            operators.append(operator)
            return mark(str(len(operators) - 1))

        watch(ready, mark_call, composites)

    return operators, profiled(run)


def profiled_model(config: ModelConfig, device: str, code: UserCode | None) -> tuple[list[OperatorTuple], list[Kernel]]:
    """Return the same of a model that has run before."""
    context = partial(autocast, config.precision, device)
    ready = resolve(model_tuple(config), code).with_inputs(device, context)
    for _ in range(2):
        with context(), running_calls():
            ready.run()
    with context():
        return profiled_calls(ready, config.composites)


def _in_model(
    config: ModelConfig, device: str, code: UserCode | None
) -> tuple[Launched, dict[OperatorTuple, list[Launched]]]:
    operators, kernels = profiled_model(config, device, code)
    calls: dict[OperatorTuple, list[Launched]] = {}
    for mark, launched in _by_mark(kernels).items():
        calls.setdefault(operators[mark], []).append(Launched.of(launched))
    return Launched.of(kernels), calls


def _alone(operators: list[OperatorTuple], device: str, context: Context) -> dict[OperatorTuple, Launched | str]:
    alone: dict[OperatorTuple, Launched | str] = {}
    calls: dict[OperatorTuple, int] = {}

    def run(mark: Mark) -> None:
        for index, operator in enumerate(operators):
            try:
                workload = operator_workload(operator, device, context=context)
                workload.run(1)
                with mark(str(index)):
                    workload.run(REPETITIONS)
                calls[operator] = REPETITIONS * workload.iterations_per_round
            except CannotMeasureError as error:
                alone[operator] = str(error)

    launched = {operators[index]: Launched.of(kernels) for index, kernels in _by_mark(profiled(run)).items()}
    for operator, number in calls.items():
        own = launched.get(operator, Launched(Counter(), 0.0))
        names = Counter({name: round(found / number) for name, found in own.names.items()})
        alone[operator] = Launched(names, own.time_s / number)
    return alone


def _kinds(
    calls: dict[OperatorTuple, list[Launched]],
    alone: dict[OperatorTuple, Launched | str],
    name_of: Callable[[OperatorTuple], str],
) -> list[KindOfOperator]:
    pairs = [(operator, call, alone[operator]) for operator, launched in calls.items() for call in launched]
    kinds = [
        KindOfOperator(
            operator=name,
            calls=len(group),
            in_model_s=sum(call.time_s for _, call, _ in group),
            alone_s=total_if_known(None if isinstance(own, str) else own.time_s for _, _, own in group),
            same_kernels_s=sum(
                call.time_s for _, call, own in group if not isinstance(own, str) and call.names == own.names
            ),
        )
        for name, group in grouped(pairs, lambda pair: name_of(pair[0])).items()
    ]
    return sorted(kinds, key=lambda kind: -kind.in_model_s)


def _differences(calls: dict[OperatorTuple, list[Launched]], alone: dict[OperatorTuple, Launched | str]) -> list[str]:
    def names(launched: Launched) -> str:
        return " + ".join(f"{number} x {name}" for name, number in sorted(launched.names.items())) or "no kernel"

    lines = []
    for operator, launched in calls.items():
        own = alone[operator]
        other = [call for call in launched if isinstance(own, str) or call.names != own.names]
        if other:
            time_s = sum(call.time_s for call in other)
            text = own if isinstance(own, str) else f"alone {names(own)}; in the model {names(other[0])}"
            lines.append((time_s, f"{milliseconds(time_s)}: {operator}: {text}"))
    return [line for _, line in sorted(lines, reverse=True)]


@dataclass(frozen=True)
class RebuildReport:
    """The tuples that no earlier model has, ``rebuilt`` as counted; ``value_dependent`` ones may differ, others not."""

    name: str
    operators: int
    rebuilt: int
    value_dependent: tuple[str, ...]
    failures: tuple[str, ...]


def rebuild_operators(request: Request, progress: Progress) -> list[RebuildReport]:
    """Rebuild and run each distinct operator tuple on the kind of device that counted it, else on the request's."""
    models = counted(request, request.configs(), COUNTS)
    device = choose_device(request.device)
    seen: set[tuple[str | None, OperatorTuple]] = set()
    reports = []
    with reported(progress, len(models)):
        for config, counts in models:
            progress.begin(config.name)
            dtype = AUTOCAST_DTYPES.get(config.precision)
            new = [count for count in counts.counts if (dtype, count.operator) not in seen]
            seen.update((dtype, count.operator) for count in new)
            kind = replay_device(counts.device_type, device) or device
            context = partial(autocast, config.precision, kind)
            lines: dict[Flag, list[str]] = {Flag.VALUE_DEPENDENT: [], Flag.NOT_AS_COUNTED: []}
            for count in new:
                if (found := difference(count, kind, context)) is not None:
                    lines[found.flag].append(f"{count.operator}: {found.text}")
            different, failures = map(tuple, lines.values())
            rebuilt = len(new) - len(different) - len(failures)
            reports.append(RebuildReport(config.name, len(new), rebuilt, different, failures))
            progress.finish(f"{rebuilt} of {len(new)} new tuples rebuilt")
    return reports
