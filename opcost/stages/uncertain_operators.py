"""How uncertain predicted costs of operators are, by what is learned from the rows of a database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opcost.measuring.conditions import TORCH_DEFAULT
from opcost.operators.counts import OperatorCount
from opcost.operators.values import NORMAL_DATA
from opcost.prediction.sampling import Uncertainty
from opcost.progress import Progress
from opcost.running.request import Request
from opcost.running.row_tally import numbers_of_rows
from opcost.stages.predict import conditions_for
from opcost.stages.trained import trained


def uncertainty_on(request: Request, device: str | None, cache: Path, progress: Progress) -> Uncertainty:
    """Return how uncertain the time of a call is in s: its predicted time times the deviation of its logarithm.

    Args:
        request: the folders.
        device: a part of a product's name, None for the one with the most rows.
        cache: the folder of what was learned.
        progress: reports the training.

    Raises:
        UserError: too few rows are of the device.
    """
    numbers = numbers_of_rows(request.database.operator_measurements)
    conditions = conditions_for(numbers, device, None, TORCH_DEFAULT)
    learned = trained(request, conditions, cache, progress).learned

    def uncertainties(counts: Sequence[OperatorCount]) -> list[float]:
        if not counts:
            return []
        costs = learned.costs([(count, NORMAL_DATA) for count in counts])
        return list(map(float, costs.times_s * costs.time_deviations))

    return uncertainties
