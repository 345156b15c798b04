"""The results of a sweep: a row for each size, from repetitions, failures, kernels and predictions.

The prediction of a size is the corrected sum of its operators, predicted where they have no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from opcost.comparing.comparison import Evidence
from opcost.comparing.sweep_sizes import (
    UNKNOWN_WORK,
    UNPREDICTED,
    BreakLine,
    Curve,
    SweepPrediction,
    SweepSizeRow,
    SweepWork,
    curves_of,
    figures_of,
    replaced,
)
from opcost.errors import UserError
from opcost.measuring.conditions import Conditions, usual_execution
from opcost.measuring.setting import is_meant
from opcost.measuring.sweep_record import SweepKernelRow, SweepRepetitionRow
from opcost.operators.cases import case_key
from opcost.operators.counts import OperatorCounts
from opcost.prediction.needed_memory import largest_activations_bytes
from opcost.progress import Progress
from opcost.running.expected_times import numbers_of_rows
from opcost.running.plan import Wanted, by_key
from opcost.running.request import Request
from opcost.stages.predict import computing_counts, conditions_for, measurements_of, run_under, trained
from opcost.stages.sweep import Measured, Sweep, SweepPoint
from opcost.storage.database import Database


@dataclass(frozen=True)
class CurveWish:
    """Where to predict: a part of a product's name, whether it is the device that measures, and the execution."""

    device: str | None
    execution: str | None
    is_here: bool = False


@dataclass(frozen=True)
class PredictedSize:
    """The predicted cost of a size, and its work; ``conditions`` are those of the prediction, None without one."""

    prediction: SweepPrediction = UNPREDICTED
    work: SweepWork = UNKNOWN_WORK
    conditions: Conditions | None = None


UNKNOWN_PREDICTION = PredictedSize()


def predict_sweep(
    request: Request, sweep: Sweep, wish: CurveWish, cache: Path, progress: Progress
) -> dict[SweepPoint, PredictedSize]:
    """Return the prediction and the work of each size; what cannot be predicted has a reason instead.

    ``cache`` is the folder of what was learned. Progress reports counting and training.
    """
    counted: dict[SweepPoint, OperatorCounts | str] = {}
    for point in sweep.points:
        try:
            counted[point] = computing_counts(replace(request, device=None), point.config, progress)
        except UserError as error:
            counted[point] = "; ".join(error.lines)
    learned, missing = None, ""
    try:
        numbers = numbers_of_rows(request.database.operator_measurements)
        if wish.is_here and numbers and not any(is_meant(wish.device, one) for one in numbers):
            products = " or ".join(f"'{name}'" for name in sorted({one.device_product for one in numbers}))
            remedy = f"predict for another device with --no-measure --device: {products}"
            raise UserError(f"no operator was measured on {wish.device}; {remedy}")
        conditions = conditions_for(numbers, wish.device, wish.execution, sweep.points[0].config.precision)
        learned = trained(request, conditions, cache, progress)
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
    """A sweep's rows in the order of sizes, its repetitions and its kernels; without repetitions it is predicted.

    ``planned`` and ``expected_s`` are of a dry run. ``new`` is the number of repetitions that were added, None if none
    was to be measured.
    """

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
    """Return the repetitions that the database has of a sweep on a device, None without any.

    Of several boards, conditions or loops, those of the own table are meant, then those with the most repetitions, then
    the newest.
    """
    points = {point.case.key: point for point in sweep.points}
    rows = [
        row
        for row in database.sweep_repetitions.rows()
        if case_key(row.place.key) in points
        and is_meant(device, row.conditions)
        and row.conditions.execution == (execution or usual_execution(row.conditions.device_type))
    ]
    groups: dict[tuple[Conditions, str | None, float | None], list[SweepRepetitionRow]] = {}
    for row in rows:
        group = row.conditions, row.circumstances.device_uuid, row.circumstances.loop_s
        groups.setdefault(group, []).append(row)
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
    """Return the rows of a sweep: its repetitions, None without any, with failures, kernels and known predictions.

    Raises UserError: nothing is measured or predicted.
    """
    known = _conditions(sweep, measured, predicted)
    kernels: dict[str, list[SweepKernelRow]] = {}
    for row in database.sweep_kernels.rows():
        kernels.setdefault(row.place.key, []).append(row)
    failures = {row.place.key: row.reason for row in database.sweep_failures.rows()}
    rows: list[SweepSizeRow] = []
    repetitions: list[SweepRepetitionRow] = []
    used: list[SweepKernelRow] = []
    for point in sweep.points:
        expected = predicted.get(point, UNKNOWN_PREDICTION)
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
    """Write the rows of a sweep; they replace those of the same sizes, boards and loops.

    A prediction that is known, perhaps from a shipped row, stays if there is no newer one.
    """
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
