"""A sweep: a model measured at several input sizes, several times each, and what it costs there.

The prediction of a size is the corrected sum of its operators, predicted where they have no row.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from opcost.columns import grouped, present_moment
from opcost.comparing.model_result import Evidence
from opcost.comparing.predicted_run import run_under
from opcost.comparing.sweep_sizes import BreakLine, Curve, curves_of, figures_of, replaced
from opcost.errors import UserError
from opcost.measuring.conditions import Conditions, measurement_key, usual_execution
from opcost.measuring.protocol import MeasurementProtocol, iterations_after, protocol_for
from opcost.measuring.setting import Setting, is_meant
from opcost.measuring.sweep_record import (
    UNKNOWN_WORK,
    UNPREDICTED,
    IterationTimes,
    KernelUse,
    Repetition,
    SweepFailureRow,
    SweepKernelRow,
    SweepPlace,
    SweepPrediction,
    SweepRepetitionRow,
    SweepSizeRow,
    SweepWork,
)
from opcost.operators.counts import Case, OperatorCounts, case_key
from opcost.operators.generation import DECODE, generation_arguments
from opcost.operators.model_names import ModelName
from opcost.operators.sweep_axes import Axis, AxisKind
from opcost.operators.training import whole_case
from opcost.power.log_rows import new_log_name
from opcost.prediction.durations import (
    MODEL_BUILDING_S,
    SECONDS_PER_PARAMETER,
    SHORTEST_S,
    UNKNOWN_SIZE,
    default_rates,
    run_s,
)
from opcost.prediction.needed_memory import largest_activations_bytes
from opcost.progress import Progress
from opcost.running.bench import Bench, HoldingBench, open_child_bench
from opcost.running.campaign import costs_of, in_one_line
from opcost.running.engine import Job, OpenBench, Worker, carry_out, executor_of
from opcost.running.expected_times import BETWEEN_S, opening_parts_s, size_of
from opcost.running.plan import Block, Wanted, by_key, planned_blocks
from opcost.running.planned_bench import bench_opener
from opcost.running.request import RunRequest
from opcost.stages.make_configs import config_of, configs_of, scratch_folder
from opcost.stages.predict import Ground, computing_counts, measurements_of, trained
from opcost.stages.wanted_model import WantedModel, named_configs
from opcost.storage.code_files import lacks_parameter
from opcost.storage.configs import ModelConfig, model_tuple
from opcost.storage.database import Database
from opcost.storage.files import replace_file

AXES = "--size 8:4096:x2, --tokens 50:500:50, --batch 1:256:x2 or --context 512:8192:x2"

AGAIN_WARM_UP_S = 0.3
"""Warm-up of a repetition after another one of the same build: the device was at work a moment ago."""


@dataclass(frozen=True)
class SweepPoint:
    """A size of a sweep, the config of the model of this size, and the setting that it runs in."""

    size: int
    units: int | None
    config: ModelConfig
    setting: Setting

    @property
    def case(self) -> Case:
        return whole_case(model_tuple(self.config))

    def key(self, conditions: Conditions) -> str:
        return measurement_key(self.case, conditions)


@dataclass(frozen=True)
class Sweep:
    """A model whose input grows, under a name without the number that varies."""

    name: str
    kind: AxisKind
    points: tuple[SweepPoint, ...]

    def place(self, point: SweepPoint, conditions: Conditions) -> SweepPlace:
        return SweepPlace(point.key(conditions), self.name, self.kind.value, point.size, point.units)


def sweep_of(request: RunRequest, wanted: WantedModel, axis: Axis | None) -> Sweep:
    """Return the points of a sweep over an axis, None for a config's lists; a ``UserError`` if it has no such axis."""
    if axis is None:
        configs = named_configs(request.folders, wanted.model_name) if wanted == WantedModel(wanted.model_name) else []
        axis = Axis.among([config.input_size for config in configs])
        if axis is None:
            cases = "; its config's cases differ in no other way than one input size" if len(configs) > 1 else ""
            raise UserError(f"{wanted.model_name}: nothing to sweep over{cases}; add {AXES}, or lists in a summary.yml")
        by_shape = {config.input_size: config for config in configs}
        shape = configs[0].input_size
        same = WantedModel.of(configs[0])
        name = configs[0].config_name if same is None else _name(replace(same, input_size=shape), axis.kind)
        return _sweep(request, name, axis, shape, [by_shape[axis.kind.changed(shape, size)] for size in axis.sizes])
    if not wanted.input_size and not ModelName.of(wanted.model_name).is_file:
        # A config or the source of the model may give its input size.
        config = config_of(request.folders, wanted, request.allow_code)
        same = WantedModel.of(config)
        if same is None:
            remedy = "write the sizes as a list there (input_size or batch)"
            raise UserError(f"{config.path}: it has keys that no option of a sweep gives; {remedy}")
        wanted = same
    code = wanted.code()
    if code and not wanted.input_size and lacks_parameter(code, axis.kind.value):
        remedy = f"add it, such as def {code.function}({axis.kind.value})"
        raise UserError(f"{code.path}: {code.function} has no parameter {axis.kind.value!r}; {remedy}")
    wanted_sizes = [_of_size(wanted, axis.kind, size) for size in axis.sizes]
    with scratch_folder(request.folders, []) as folders:
        found = configs_of(folders, wanted_sizes, request.allow_code)
    return _sweep(request, _name(wanted, axis.kind), axis, wanted.input_size, found)


def _sweep(request: RunRequest, name: str, axis: Axis, shape: tuple[int, ...], configs: Sequence[ModelConfig]) -> Sweep:
    points = [
        SweepPoint(size, axis.kind.units(shape, size), one, request.setting_of(one))
        for size, one in zip(axis.sizes, configs, strict=True)
    ]
    return Sweep(name, axis.kind, tuple(points))


def _of_size(wanted: WantedModel, kind: AxisKind, size: int) -> WantedModel:
    if not wanted.input_size:
        return wanted.with_arguments({kind.value: size})
    try:
        changed = replace(wanted, input_size=kind.changed(wanted.input_size, size))
        return changed.with_arguments(generation_arguments(DECODE, size)) if kind is AxisKind.CONTEXT else changed
    except ValueError as error:
        example = "8x1" if kind is AxisKind.CONTEXT else "8x3x224x224"
        raise UserError(f"--{kind.value}: {error}; add --input-size, such as {example}") from None


def _name(wanted: WantedModel, kind: AxisKind) -> str:
    """Return the name of a sweep: ``resnet50 32x3xNxN``, with what is not usual: ``bf16``."""
    parts = [wanted.base_name if ModelName.of(wanted.model_name).is_file else wanted.model_name]
    if wanted.input_size:
        texts = list(map(str, wanted.input_size))
        with suppress(ValueError):
            one, other = kind.changed(wanted.input_size, 1), kind.changed(wanted.input_size, 2)
            texts = ["N" if first != second else text for first, second, text in zip(one, other, texts, strict=True)]
        parts.append("x".join(texts))
    parts += replace(wanted, training=None).given_keys.values()
    parts += [f"{name}={value}" for name, value in wanted.arguments]
    parts += [f"{kind.value} N"] if kind is AxisKind.CONTEXT else []
    return " ".join(parts)


@dataclass(frozen=True)
class SweepProtocol:
    """How a sweep is measured: repetitions of each size, loops in s, and whether kernels are profiled at the end."""

    repetitions: int = 10
    loop_s: float = 1.0
    order_seed: int = 0
    with_kernels: bool = False

    def of(self, is_gpu: bool, is_first: bool) -> MeasurementProtocol:
        protocol = protocol_for(is_gpu, self.loop_s, order_seed=self.order_seed)
        return protocol if is_first else replace(protocol, warm_up_s=min(protocol.warm_up_s, AGAIN_WARM_UP_S))


@dataclass(frozen=True)
class Measured:
    """The measurements of a sweep: the repetitions of each key that count, and the reasons of failures.

    ``wanted`` says which repetitions count; ``planned`` is the number that a dry run plans, ``expected_s`` their time.
    ``new`` is the number of repetitions that were added, None if none was to be measured.
    """

    conditions: Mapping[SweepPoint, Conditions]
    wanted: Wanted
    repetitions: Mapping[str, Sequence[SweepRepetitionRow]]
    failures: Mapping[str, str] = field(default_factory=dict)
    planned: int = 0
    expected_s: float = 0.0
    new: int | None = None


def measure_sweep(
    request: RunRequest, sweep: Sweep, protocol: SweepProtocol, open_bench: OpenBench, progress: Progress
) -> Measured:
    """Measure the repetitions that the database lacks, each on disk before the next; in a dry run only plan them."""
    with open_bench(request.device, request.database, not request.dry_run) as opened:
        executor = executor_of(opened)
        kind, bench = next(iter(executor.kinds.items()))
        job = SweepJob(request.database, sweep, protocol, bench)
        if not request.dry_run:
            if job.number:
                request.database.sweep_repetitions.prepare()
            deque(carry_out(executor, {kind: job}, progress), maxlen=0)
        return job.measured


@dataclass(frozen=True)
class SizeItem:
    """A block of repetitions of a size, by the protocols of the first one and of the others; without a block kernels.

    ``log_name`` begins the names of raw power logs.
    """

    place: SweepPlace
    case: Case
    setting: Setting
    conditions: Conditions
    protocols: tuple[MeasurementProtocol, MeasurementProtocol]
    log_name: str
    block: Block | None = None
    board: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        parts = ["kernels"] if self.block is None else [f"repetition {one}" for one in self.block.repetitions]
        return tuple(f"{self.place.axis} {self.place.size}, {part}" for part in parts)

    def protocol(self, number: int) -> MeasurementProtocol:
        return self.protocols[self.block is not None and number != self.block.repetitions[0]]

    def run(self, bench: HoldingBench) -> Iterator[tuple[int, Repetition] | tuple[KernelUse, ...]]:
        if self.block is None:
            yield bench.kernels(self.case, self.setting)
            return
        bench.hold(self.case, self.setting)
        for number in self.block.repetitions:
            yield number, bench.repeat(self.protocol(number), f"{self.log_name}-{number}")


class SweepJob(Job):
    """Measures the missing repetitions of a sweep, block by block, then the kernels of each measured size."""

    unit_items = 1
    is_bound = True

    def __init__(self, database: Database, sweep: Sweep, protocol: SweepProtocol, bench: Bench) -> None:
        self._database, self._sweep, self._seed = database, sweep, protocol.order_seed
        self._protocols = protocol.of(bench.is_gpu, is_first=True), protocol.of(bench.is_gpu, is_first=False)
        self._conditions = {point: bench.conditions(point.setting) for point in sweep.points}
        self._points = {point.key(conditions): point for point, conditions in self._conditions.items()}
        # Those of the first repetition stand for all: only the warm-up differs.
        self._circumstances = bench.circumstances(self._protocols[0])
        uuid = self._circumstances.device_uuid
        self._wanted = Wanted(protocol.repetitions, protocol.loop_s, uuid)
        self._rows = [row for row in database.sweep_repetitions.rows() if row.place.key in self._points]
        failed_before = {row.place.key for row in database.sweep_failures.rows()}
        self._blocks = list(planned_blocks(list(self._points), self._rows, self._wanted, failed_before, self._seed))
        self._unprofiled: set[str] = set()
        if protocol.with_kernels and bench.is_gpu:
            self._unprofiled = self._points.keys() - {row.place.key for row in database.sweep_kernels.rows()}
        self.expected_s = [time_s for block in self._blocks for time_s in self._expected_s(block)]
        self.number = len(self.expected_s) + len(self._unprofiled)
        opening = opening_parts_s(database, bench.is_gpu, [uuid]) if self._blocks else {}
        self._besides_s = sum(opening.values())
        self._failed: dict[str, str] = {}
        self._new = 0

    @property
    def measured(self) -> Measured:
        expected_s, found = sum(self.expected_s) + self._besides_s, by_key(self._rows, self._wanted)
        planned = len(self.expected_s)
        return Measured(self._conditions, self._wanted, found, self._failed, planned, expected_s, self._new)

    def groups(self) -> Iterator[tuple[SizeItem]]:
        for block in tuple(self._blocks):
            if block.key not in self._failed:
                yield (self._item(block.key, block),)
        measured = {row.place.key for row in self._rows}
        yield from ((self._item(key),) for key in self._points if key in measured & self._unprofiled)

    def _item(self, key: str, block: Block | None = None) -> SizeItem:
        point = self._points[key]
        conditions = self._conditions[point]
        place, log_name = self._sweep.place(point, conditions), new_log_name(key)
        return SizeItem(place, point.case, point.setting, conditions, self._protocols, log_name, block)

    def rest(self, item: SizeItem) -> SizeItem:
        """Return the repetitions that are left of a block, which have a build of their own."""
        assert item.block is not None
        key, known = item.block.key, {row.repetition for row in by_key(self._rows, self._wanted)[item.block.key]}
        number = 1 + max(block.number for block in self._blocks if block.key == key)
        self._blocks.append(Block(key, number, tuple(one for one in item.block.repetitions if one not in known)))
        return self._item(key, self._blocks[-1])

    def keep(self, worker: Worker, item: SizeItem, content: Any) -> str:
        if item.block is None:
            of_run = present_moment(), item.conditions, self._circumstances
            rows = [SweepKernelRow(item.place, one.kernel, one.calls, one.time_s, *of_run) for one in content]
            self._database.sweep_kernels.append_missing(rows)
            return f"{len(rows)} kernels"
        number, found = content
        # The times of single iterations are beside the power logs.
        iterations_log = f"{item.log_name}-{number}-iterations.csv" if found.times_s else None
        if iterations_log is not None:
            lines = [f"{count},{time_s!r}\n" for count, time_s in enumerate(found.times_s, start=1)]
            replace_file(self._database.power_logs / iterations_log, "".join(["iteration,time_s\n", *lines]).encode())
        row = SweepRepetitionRow(
            place=item.place,
            repetition=number,
            block=item.block.number,
            order_seed=self._seed,
            iteration_times=IterationTimes.of(found.times_s),
            iterations_log=iterations_log,
            host=found.host,
            memory=found.memory,
            measurement=found.measurement,
            conditions=item.conditions,
            circumstances=replace(self._circumstances, warm_up_s=item.protocol(number).warm_up_s),
        )
        self._database.sweep_repetitions.append(row)
        self._rows.append(row)
        self._new += 1
        return costs_of(found.measurement)

    def fail(self, item: SizeItem, reason: str) -> None:
        if item.block is None:
            return
        self._failed[item.place.key] = reason = in_one_line(reason)
        row = SweepFailureRow(item.place, reason, present_moment(), item.conditions, self._circumstances)
        self._database.sweep_failures.append(row)

    def _expected_s(self, block: Block) -> list[float]:
        point = self._points[block.key]
        size = size_of(point.config, {}) or UNKNOWN_SIZE
        building_s = MODEL_BUILDING_S + SECONDS_PER_PARAMETER * size.parameters
        known = [row.measurement.time_s for row in self._rows if row.place.key == block.key]
        conditions = self._conditions[point]
        rates = default_rates(conditions.device_type, conditions.cpu_threads)
        time_s = statistics.median(known) if known else rates.cost(size.flop or 0, size.memory_bytes)
        times_s = []
        for number in block.repetitions:
            is_first = number == block.repetitions[0]
            protocol = self._protocols[not is_first]
            loop_s = run_s(time_s, conditions.execution, protocol, conditions.device_type)
            single_s = time_s * iterations_after(protocol.loop_s, max(time_s, SHORTEST_S))
            times_s.append(loop_s + single_s + BETWEEN_S + (building_s if is_first else 0.0))
        return times_s


@dataclass(frozen=True)
class CurveWish:
    """Where to predict: a part of a product's name, and the execution."""

    device: str | None
    execution: str | None


@dataclass(frozen=True)
class PredictedSize:
    """The predicted cost of a size, and its work; ``conditions`` are those of the prediction, None without one."""

    prediction: SweepPrediction = UNPREDICTED
    work: SweepWork = UNKNOWN_WORK
    conditions: Conditions | None = None


def predict_sweep(
    request: RunRequest, sweep: Sweep, wish: CurveWish, cache: Path, progress: Progress
) -> dict[SweepPoint, PredictedSize]:
    """Return the prediction and the work of each size, or a reason; ``cache`` is the folder of what was learned."""
    counted: dict[SweepPoint, OperatorCounts | str] = {}
    for point in sweep.points:
        try:
            counted[point] = computing_counts(request, point.config, progress)
        except UserError as error:
            counted[point] = "; ".join(error.lines)
    learned, missing = None, ""
    try:
        ground = Ground.of(request)
        conditions = ground.conditions_for(wish.device, wish.execution, sweep.points[0].config.precision)
        learned = trained(request, ground, conditions, cache, progress)
    except UserError as error:
        missing = "; ".join(error.lines)
    except ModuleNotFoundError as error:
        # Measured figures are shown without it.
        missing = str(error)
    chains = () if learned is None else tuple(request.database.calls_in_chains.rows())
    found: dict[SweepPoint, PredictedSize] = {}
    for point, counts in counted.items():
        if isinstance(counts, str):
            found[point] = PredictedSize(SweepPrediction(prediction_missing_reason=counts))
            continue
        work = SweepWork(
            flop=None if counts.without_formula else counts.total_flop,
            memory_bytes=counts.total_memory_bytes,
            largest_call_bytes=largest_activations_bytes(counts),
        )
        if learned is None:
            found[point] = PredictedSize(SweepPrediction(prediction_missing_reason=missing), work)
        else:
            rows = Evidence(measurements_of(request.database, counts), chains)
            run = run_under(counts, rows, conditions, learned)
            energy = run.energy_j
            prediction = SweepPrediction(
                predicted_time_s=run.time_s.value,
                predicted_time_lower_s=run.time_s.lower,
                predicted_time_upper_s=run.time_s.upper,
                predicted_energy_j=None if energy is None else energy.value,
                predicted_energy_lower_j=None if energy is None else energy.lower,
                predicted_energy_upper_j=None if energy is None else energy.upper,
                measured_operators_ratio=run.measured_time_ratio,
            )
            found[point] = PredictedSize(prediction, work, conditions)
    return found


REASONS_SHOWN = 3
"""The most reasons that an error lists: sizes may each have their own."""


@dataclass(frozen=True)
class SweepResult:
    """A sweep's rows in the order of sizes, its repetitions and kernels; the others are as in ``Measured``."""

    name: str
    axis: str
    unit: str
    sizes: tuple[SweepSizeRow, ...]
    repetitions: tuple[SweepRepetitionRow, ...] = ()
    kernels: tuple[SweepKernelRow, ...] = ()
    planned: int = 0
    expected_s: float = 0.0
    new: int | None = None

    @property
    def failed(self) -> tuple[SweepSizeRow, ...]:
        return tuple(row for row in self.sizes if row.failure is not None)

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """The measured curves of time and energy in pieces. The fit to 200 sizes takes seconds."""
        return curves_of(self.sizes)

    @property
    def pieces(self) -> list[BreakLine]:
        return [line for curve in self.curves for line in curve.lines]

    @property
    def conditions(self) -> Conditions | None:
        return self.sizes[0].conditions if self.sizes else None


def nothing_of(sweep: Sweep) -> SweepResult:
    """Return a sweep without rows."""
    return SweepResult(sweep.name, sweep.kind.value, sweep.kind.unit, ())


def recorded(database: Database, sweep: Sweep, device: str | None, execution: str | None) -> Measured | None:
    """Return a sweep's repetitions in the database, None without any; own ones, then the most, then the newest."""
    points = {point.case.key: point for point in sweep.points}
    rows = [
        row
        for row in database.sweep_repetitions.rows()
        if case_key(row.place.key) in points
        and is_meant(device, row.conditions)
        and row.conditions.execution == (execution or usual_execution(row.conditions.device_type))
    ]
    groups = grouped(rows, lambda row: (row.conditions, row.circumstances.device_uuid, row.circumstances.loop_s))
    if not groups:
        return None
    own = set(Database(database.folder).sweep_repetitions.rows())

    def rank(group: Sequence[SweepRepetitionRow]) -> tuple[bool, int, str]:
        return not own.isdisjoint(group), len(group), max(row.measurement.started_at for row in group)

    conditions, uuid, loop_s = max(groups, key=lambda group: rank(groups[group]))
    wanted = Wanted(0, loop_s or 0.0, uuid)
    of_group = by_key([row for row in rows if row.conditions == conditions], wanted)
    return Measured(dict.fromkeys(sweep.points, conditions), wanted, of_group)


def result_of(
    database: Database, sweep: Sweep, measured: Measured | None, predicted: Mapping[SweepPoint, PredictedSize]
) -> SweepResult:
    """Return the rows of a sweep, with failures, kernels and predictions. Raises UserError: nothing is known."""
    known = _conditions(sweep, measured, predicted)
    kernels = grouped(database.sweep_kernels.rows(), lambda row: row.place.key)
    failures = {row.place.key: row.reason for row in database.sweep_failures.rows()}
    rows: list[SweepSizeRow] = []
    repetitions: list[SweepRepetitionRow] = []
    used: list[SweepKernelRow] = []
    for point in sweep.points:
        expected = predicted.get(point, PredictedSize())
        conditions = known[point]
        key = point.key(conditions)
        launched = kernels.get(key, ())
        work = expected.work
        if launched:
            time_s = sum(one.kernel_time_s for one in launched)
            work = replace(work, kernels=sum(one.calls for one in launched), kernels_time_s=time_s)
        own = sorted(measured.repetitions.get(key, ()) if measured else (), key=lambda row: row.repetition)
        failure = None if own or measured is None else measured.failures.get(key) or failures.get(key)
        rows.append(
            SweepSizeRow(
                place=sweep.place(point, conditions),
                figures=figures_of(own),
                prediction=expected.prediction,
                work=work,
                failure=failure,
                device_uuid=None if measured is None else measured.wanted.device_uuid,
                loop_s=None if measured is None else measured.wanted.loop_s,
                conditions=conditions,
            )
        )
        repetitions += own
        used += launched
    found = replace(nothing_of(sweep), sizes=tuple(rows), repetitions=tuple(repetitions), kernels=tuple(used))
    if measured is None:
        return found
    return replace(found, planned=measured.planned, expected_s=measured.expected_s, new=measured.new)


def _conditions(
    sweep: Sweep, measured: Measured | None, predicted: Mapping[SweepPoint, PredictedSize]
) -> Mapping[SweepPoint, Conditions]:
    if measured is not None:
        return measured.conditions
    known = (one for one in predicted.values() if one.prediction.predicted_time_s is not None)
    usual = next((one.conditions for one in known), None)
    if usual is None:
        reasons = dict.fromkeys(str(one.prediction.prediction_missing_reason) for one in predicted.values())
        lines = [f"{sweep.name}: not measured, and not predicted: {reason}" for reason in reasons]
        raise UserError(*lines[:REASONS_SHOWN])
    return dict.fromkeys(sweep.points, usual)


def keep_sizes(database: Database, result: SweepResult) -> None:
    """Write the rows of a sweep in the place of former ones, whose predictions stay if there is no newer one."""
    shipped = {row.identity: row for row in database.sweep_sizes.rows()}

    def update(known: list[SweepSizeRow]) -> list[SweepSizeRow]:
        former = shipped | {row.identity: row for row in known}
        found = list(result.sizes)
        for place, row in enumerate(result.sizes):
            before = former.get(row.identity)
            if before is not None and row.prediction == UNPREDICTED:
                work = before.work if row.work == UNKNOWN_WORK else row.work
                found[place] = replace(row, prediction=before.prediction, work=work)
        return replaced(known, found)

    if result.sizes:
        database.sweep_sizes.replace_rows(update)


@dataclass(frozen=True)
class SweepWish:
    """The wanted figures of a sweep: measurements by a protocol, None for those that are there, and predictions."""

    protocol: SweepProtocol | None
    is_predicted: bool = True


def run_sweep(request: RunRequest, sweep: Sweep, wish: SweepWish, cache: Path, progress: Progress) -> SweepResult:
    """Measure and predict a sweep, and return its rows; those of a sweep that measured are kept.

    A dry run has what is planned, and nothing predicted. Raises UserError: nothing is known of any size.
    """
    database, device, execution = request.database, request.device, request.setting.execution
    if wish.protocol is None:
        measured = recorded(database, sweep, device, execution)
    else:
        opener = bench_opener(request) if request.dry_run else open_child_bench
        measured = measure_sweep(request, sweep, wish.protocol, opener, progress)
    if request.dry_run:
        return nothing_of(sweep) if measured is None else result_of(database, sweep, measured, {})
    if measured is not None:
        conditions = next(iter(measured.conditions.values()))
        device, execution = conditions.device_product, conditions.execution
    curve = CurveWish(device, execution)
    predicted = predict_sweep(request, sweep, curve, cache, progress) if wish.is_predicted else {}
    result = result_of(database, sweep, measured, predicted)
    if wish.protocol is not None:
        keep_sizes(database, result)
    return result
