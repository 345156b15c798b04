"""The predicted cost of one run of a model: measured operators, predicted ones, and what corrects their sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opcost.comparing.cache_chain_rows import Excess
from opcost.comparing.cache_corrections import Corrections
from opcost.comparing.power_limit import OTHERS, PRODUCTS, Load, at_limit, loads_of
from opcost.estimates import Estimate, FloatArray, value_of
from opcost.measuring.throttling import is_above_limit
from opcost.operators.cases import CAPTURED, Case, cases_of_count
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.prediction.intervals import FEWEST_SCORES
from opcost.prediction.learned import TIME
from opcost.prediction.learned_costs import ENERGY, LearnedCosts
from opcost.prediction.sum_errors import sum_deviation
from opcost.summing.summation import ModelCost
from opcost.units import some_of

KINDS_NAMED = 3
"""The most kinds that a reason names."""

NORMAL_FACTOR = 1.645
"""The standard errors within which nine tenths of normally distributed errors are."""


@dataclass(frozen=True)
class Range:
    """A value, and the ends of its interval of 90 % (``intervals.COVERAGE``), None if they are unknown."""

    value: float
    lower: float | None
    upper: float | None

    @staticmethod
    def around(value: float, half_width: float | None) -> Range:
        """Return the range of a value whose logarithm is within a half width, None if that is unknown."""
        if half_width is None:
            return Range(value, None, None)
        return Range(value, value * math.exp(-half_width), value * math.exp(half_width))

    def times(self, factor: float) -> Range:
        """Return the range of a multiple."""
        ends = (None if end is None else end * factor for end in (self.lower, self.upper))
        return Range(self.value * factor, *ends)


@dataclass(frozen=True)
class PredictedCalls:
    """All calls of one case that has no row: time in s and energy in J of all together, None if unknown.

    Deviations are of the logarithm, None if unknown. ``is_outside`` says whether no sample is like the call.
    """

    case: Case
    count: OperatorCount
    kind: str
    occurrences: int
    time_s: float
    energy_j: float | None
    time_deviation: float | None
    energy_deviation: float | None
    is_outside: bool

    @property
    def error_s(self) -> float | None:
        """The deviation of the time of all calls in s, None if it is unknown."""
        return None if self.time_deviation is None else self.time_s * self.time_deviation


@dataclass(frozen=True)
class PredictedRun:
    """The predicted cost of one run; the energy is None if it is unknown.

    ``calls`` are those without a row, the most uncertain first. The ratios are shares of the time of all operators:
    of those that were measured, and of predicted ones that no sample is like. ``is_corrected`` says whether cache
    correction and power limit are known. ``interval_missing_reason`` is why the intervals are unknown, None if they are
    known: as they are of a run that would draw more than the power limit (``is_above_limit``), since it takes longer.
    """

    time_s: Range
    energy_j: Range | None
    measured_time_ratio: float
    outside_time_ratio: float
    calls: tuple[PredictedCalls, ...]
    is_corrected: bool
    interval_missing_reason: str | None = None
    is_above_limit: bool = False

    @property
    def power_w(self) -> float | None:
        """The mean power, None if the energy is unknown."""
        return None if self.energy_j is None else self.energy_j.value / self.time_s.value


@dataclass(frozen=True)
class SumErrors:
    """The half widths of 90 % of corrected sums of measured operators around wholes, of the logarithm."""

    time: float
    energy: float


@dataclass(frozen=True)
class Knowledge:
    """Learned costs, cache corrections and the power limit in W (None if unknown), and the errors of corrected sums.

    ``limit_w`` is None where the response to it is unknown, ``board_limit_w`` where its watts are.
    """

    learned: LearnedCosts
    corrections: Corrections | None
    limit_w: float | None
    sum_errors: SumErrors
    board_limit_w: float | None = None


def predicted_run(counts: OperatorCounts, cost: ModelCost, known: Knowledge) -> PredictedRun:
    """Return the predicted cost of a model.

    Errors of measured operators, of predicted ones, of the corrections, of sums against wholes, and the differences
    between boards (in energy) are independent, so their squares add.

    Args:
        counts: of all operators that compute something.
        cost: the sum of those that have rows.
        known: what predicts the others.
    """
    calls = _predicted_calls(cost.missing, known.learned)
    cache = None if known.corrections is None else known.corrections.of(counts.counts)
    limited = _added_by_limit(cost, calls, cache, known.limit_w)
    added = [one for one in (cache, limited) if one is not None]
    measured_s, predicted_s = value_of(cost.time_s) or 0.0, math.fsum(one.time_s for one in calls)
    time = _Sum(
        [one for one in (cost.time_s, *(one.time_s for one in added)) if one is not None],
        predicted_s,
        _half_width(calls, TIME, known.learned),
    )
    run_s = measured_s + predicted_s
    time_s, energy_j = time.range(known.sum_errors.time), _energy(cost, calls, added, known)
    is_above = energy_j is not None and is_above_limit(energy_j.value / time_s.value, known.board_limit_w)
    return PredictedRun(
        time_s=Range.around(time_s.value, None) if is_above else time_s,
        energy_j=Range.around(energy_j.value, None) if is_above and energy_j is not None else energy_j,
        measured_time_ratio=measured_s / run_s if run_s else 0.0,
        outside_time_ratio=math.fsum(one.time_s for one in calls if one.is_outside) / run_s if run_s else 0.0,
        calls=tuple(sorted(calls, key=_certainty)),
        is_corrected=cache is not None,
        interval_missing_reason=(
            f"its operators draw more than the power limit of {known.board_limit_w:.0f} W, so that a run takes longer"
            if is_above
            else _interval_missing_reason(calls, known.learned)
        ),
        is_above_limit=is_above,
    )


@dataclass(frozen=True)
class _Sum:
    """Estimates that add up to a cost, and a predicted cost with the half width of its interval, all in one unit.

    The half width is None if it is unknown.
    """

    estimates: Sequence[Estimate]
    predicted: float
    half_width: float | None

    def range(self, *relative_errors: float) -> Range:
        """Return the sum with its interval; relative errors are half widths that all of the sum shares."""
        value = math.fsum([*(one.value for one in self.estimates), self.predicted])
        if self.half_width is None:
            return Range.around(value, None)
        own = [NORMAL_FACTOR * one.standard_error for one in self.estimates]
        return Range.around(value, math.hypot(self.half_width / value, *(one / value for one in own), *relative_errors))


def _energy(
    cost: ModelCost, calls: Sequence[PredictedCalls], added: Sequence[Excess], known: Knowledge
) -> Range | None:
    """Return the energy, None if a part of it is unknown."""
    energies = [one.energy_j for one in added] + ([cost.energy_j] if cost.parts else [])
    predicted = [one.energy_j for one in calls]
    estimates = [one for one in energies if one is not None]
    known_j = [one for one in predicted if one is not None]
    if len(estimates) < len(energies) or len(known_j) < len(predicted):
        return None
    half_width = _half_width(calls, ENERGY, known.learned)
    boards = NORMAL_FACTOR * known.learned.boards.deviation
    return _Sum(estimates, math.fsum(known_j), half_width).range(known.sum_errors.energy, boards)


def _half_width(calls: Sequence[PredictedCalls], cost: str, learned: LearnedCosts) -> float | None:
    """Return the half width of the interval of a sum of predicted costs in their unit, None if it is unknown."""
    if not calls:
        return 0.0
    factor, deviation = learned.sum_factors.get(cost), sum_deviation(*_columns(calls, cost))
    return factor * deviation if factor is not None and math.isfinite(deviation) else None


def _interval_missing_reason(calls: Sequence[PredictedCalls], learned: LearnedCosts) -> str | None:
    """Return why the interval of a sum with these calls is unknown, None if it is known."""
    unknown = list(dict.fromkeys(one.kind for one in calls if one.time_deviation is None))
    if unknown:
        names = some_of(unknown, KINDS_NAMED)
        return f"the errors of operations without enough samples are unknown ({names})"
    if calls and set(learned.sum_factors) != set(learned.deviations):
        return f"whole models of fewer than {FEWEST_SCORES} families are measured"
    return None


def _certainty(one: PredictedCalls) -> float:
    """Return a number by which calls are sorted, those of unknown errors first, then by their errors."""
    return -math.inf if one.error_s is None else -one.error_s


def _predicted_calls(missing: Sequence[OperatorCount], learned: LearnedCosts) -> list[PredictedCalls]:
    cases = [
        (count, case, calls) for count in missing if count.computes for case, calls in cases_of_count(count, CAPTURED)
    ]
    if not cases:
        return []
    costs = learned.costs([(count, case.input_data) for count, case, _ in cases])
    return [
        PredictedCalls(
            case=case,
            count=count,
            kind=costs.kinds[place],
            occurrences=calls,
            time_s=calls * float(costs.times_s[place]),
            energy_j=_known(calls * float(costs.energies_j[place])),
            time_deviation=_known(float(costs.time_deviations[place])),
            energy_deviation=_known(float(costs.energy_deviations[place])),
            is_outside=bool(costs.is_outside[place]) or count.flop is None,
        )
        for place, (count, case, calls) in enumerate(cases)
    ]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _columns(calls: Sequence[PredictedCalls], cost: str) -> tuple[list[str], FloatArray, FloatArray]:
    """Return kinds, costs and deviations of calls in time or energy."""
    values = [
        (one.time_s, one.time_deviation) if cost == TIME else (one.energy_j or 0.0, one.energy_deviation)
        for one in calls
    ]
    costs, deviations = np.array([(value, math.nan if one is None else one) for value, one in values]).T
    return [one.kind for one in calls], costs, deviations


def _added_by_limit(
    cost: ModelCost, calls: Sequence[PredictedCalls], cache: Excess | None, limit_w: float | None
) -> Excess | None:
    """Return what the power limit adds, None if it is unknown."""
    measured = loads_of(cost)
    if limit_w is None or measured is None or cache is None or cache.energy_j is None:
        return None
    loads = [
        Load(one.time_s, one.energy_j, PRODUCTS if one.count.flop else OTHERS)
        for one in calls
        if one.energy_j is not None
    ]
    besides = Load(cache.time_s.value, cache.energy_j.value, OTHERS)
    return at_limit([*measured, *loads, besides], limit_w) if len(loads) == len(calls) else None
