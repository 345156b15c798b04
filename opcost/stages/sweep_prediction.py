"""The predicted curve of a sweep: at each size the corrected sum of its operators, predicted where they have no row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from opcost.comparing.predicted_run import PredictedRun
from opcost.comparing.sweep_sizes import UNKNOWN_WORK, UNPREDICTED, SweepPrediction, SweepWork
from opcost.errors import UserError
from opcost.measuring.conditions import Conditions
from opcost.measuring.named_device import is_meant
from opcost.operators.counts import OperatorCounts
from opcost.prediction.needed_memory import largest_activations_bytes
from opcost.progress import Progress
from opcost.running.request import Request
from opcost.running.row_tally import numbers_of_rows
from opcost.stages.operator_rows import measurements_of
from opcost.stages.predict import RowsOfRun, computing_counts, conditions_for, run_under
from opcost.stages.sweep_points import Sweep, SweepPoint
from opcost.stages.trained import Trained, trained


@dataclass(frozen=True)
class CurveWish:
    """Where to predict: a part of a product's name, and the execution.

    ``is_here`` says that the device is the one that measures, not an option.
    """

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


@dataclass(frozen=True)
class _Learned:
    conditions: Conditions
    trained: Trained


def predict_sweep(
    request: Request, sweep: Sweep, wish: CurveWish, cache: Path, progress: Progress
) -> dict[SweepPoint, PredictedSize]:
    """Return the prediction and the work of each size; what cannot be predicted has a reason instead.

    Args:
        request: the database, and whether a user's code may run.
        sweep: the sizes.
        wish: the device.
        cache: the folder of what was learned.
        progress: reports counting and training.
    """
    counts: dict[SweepPoint, OperatorCounts | str] = {}
    for point in sweep.points:
        try:
            counts[point] = computing_counts(replace(request, device=None), point.config, progress)
        except UserError as error:
            counts[point] = "; ".join(error.lines)
    try:
        learned: _Learned | str = _learned(request, sweep.points[0], wish, cache, progress)
    except UserError as error:
        learned = "; ".join(error.lines)
    except ModuleNotFoundError as error:
        # Measured figures are shown without it.
        learned = str(error)
    chains = () if isinstance(learned, str) else tuple(request.database.calls_in_chains.rows())
    found: dict[SweepPoint, PredictedSize] = {}
    for point, counted in counts.items():
        if isinstance(counted, str):
            found[point] = PredictedSize(SweepPrediction(prediction_missing_reason=counted))
            continue
        work = _work(counted)
        if isinstance(learned, str):
            found[point] = PredictedSize(SweepPrediction(prediction_missing_reason=learned), work)
            continue
        rows = RowsOfRun(measurements_of(request.database, counted), chains)
        run = run_under(counted, rows, learned.conditions, learned.trained)
        found[point] = PredictedSize(_prediction(run), work, learned.conditions)
    return found


def _work(counts: OperatorCounts) -> SweepWork:
    return SweepWork(
        flop=None if counts.without_formula else counts.total_flop,
        memory_bytes=counts.total_memory_bytes,
        largest_call_bytes=largest_activations_bytes(counts),
    )


def _learned(request: Request, point: SweepPoint, wish: CurveWish, cache: Path, progress: Progress) -> _Learned:
    """Return what predicts operators under the conditions of a sweep.

    Raises:
        UserError: there are no or too few rows.
    """
    numbers = numbers_of_rows(request.database.operator_measurements)
    if wish.is_here and numbers and not any(is_meant(wish.device, one) for one in numbers):
        products = " or ".join(f"'{name}'" for name in sorted({one.device_product for one in numbers}))
        raise UserError(
            f"no operator was measured on {wish.device}; predict for another device with --no-measure --device: "
            f"{products}"
        )
    conditions = conditions_for(numbers, wish.device, wish.execution, point.config.precision)
    return _Learned(conditions, trained(request, conditions, cache, progress))


def _prediction(run: PredictedRun) -> SweepPrediction:
    energy = run.energy_j
    return SweepPrediction(
        predicted_time_s=run.time_s.value,
        predicted_time_lower_s=run.time_s.lower,
        predicted_time_upper_s=run.time_s.upper,
        predicted_energy_j=None if energy is None else energy.value,
        predicted_energy_lower_j=None if energy is None else energy.lower,
        predicted_energy_upper_j=None if energy is None else energy.upper,
        measured_operators_ratio=run.measured_time_ratio,
    )
