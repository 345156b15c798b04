"""Models in the order of their cost per sample, each with the sum of its operators.

A model whose whole is not measured has the corrected sum of its operators as its cost, with predicted costs of those
that are not measured. The error of such a sum is expected from the sums of other models with a measured whole, and from
predictions of operators that were held out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from types import MappingProxyType

import numpy as np

from opcost.comparing.cache_chain_rows import Excess
from opcost.comparing.gap import Piece, predicted_piece, with_method_error
from opcost.comparing.remarks import NO_RESULT_RATIO, NOTICEABLE_RATIO, Remark, RemarkKind
from opcost.comparing.row import ComparisonRow
from opcost.comparing.tuple_costs import Works, works_of
from opcost.estimates import NORMAL_QUANTILE, Estimate, sum_of_independent
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow, is_doubtful, ran_as_requested, time_of
from opcost.measuring.throttling import is_above_limit
from opcost.operators.counts import OperatorCount
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO, PREDICTED_ERROR_RATIOS, CostModel, predictor_of
from opcost.summing.energy import EnergyBasis, common_basis
from opcost.summing.index import Measurements
from opcost.summing.summation import ModelCost

UNEXPLAINED_RATIO = 0.25
"""Magnitude of the unexplained share of a whole from which a sum is no result.

No known effect is as large: caches change a sum by up to 13 %, another board by up to 19 %, launches by up to 9 %.
"""


class Doubt(Enum):
    """A reason why a sum is no result yet."""

    FLAGGED = "flagged"
    MISSING = "missing"
    UNEXPLAINED = "unexplained"
    ABOVE_LIMIT = "above the power limit"


def doubts_of(
    flagged_ratio: float,
    missing_ratio: float | None,
    unexplained_ratio: float | None,
    is_whole_flagged: bool = False,
    is_above_limit: bool = False,
) -> tuple[Doubt, ...]:
    """Return the doubts of a sum. Unknown ratios are None.

    They are the shares of the summed time in flagged rows, of the model that is not in the sum (0 if no operator is
    missing), and of the whole that is unexplained. ``is_above_limit`` is of a sum that is the cost of a model.
    """
    found = {
        Doubt.FLAGGED: is_whole_flagged or flagged_ratio >= NO_RESULT_RATIO,
        Doubt.MISSING: missing_ratio is None or missing_ratio >= NOTICEABLE_RATIO,
        Doubt.UNEXPLAINED: unexplained_ratio is not None and abs(unexplained_ratio) >= UNEXPLAINED_RATIO,
        Doubt.ABOVE_LIMIT: is_above_limit,
    }
    return tuple(doubt for doubt, is_found in found.items() if is_found)


def doubts(row: ComparisonRow, remarks: Sequence[Remark], quantity: str) -> tuple[Doubt, ...]:
    """Return the doubts of a sum of ``time`` or ``energy``; none if there is no sum, or no whole."""
    costs = row.costs(quantity)
    if costs.summed is None or costs.whole is None:
        return ()
    shares = (one.figures["time_ratio"] for one in remarks if one.kind is RemarkKind.FLAGGED_OPERATORS)
    return doubts_of(
        flagged_ratio=max((share for share in shares if isinstance(share, float)), default=0.0),
        missing_ratio=costs.over_whole(costs.unmeasured) if row.missing_operators else 0.0,
        unexplained_ratio=costs.over_whole(costs.unexplained),
        is_whole_flagged=any(one.kind is RemarkKind.FLAGGED_WHOLE for one in remarks),
    )


TIME, ENERGY, POWER, SAVING, NAME = "time", "energy", "power", "saving", "name"
SORTS = (ENERGY, TIME, POWER, SAVING, NAME)
"""The orders of models: the smallest energy, time or power first, the largest saving first, or by name.

Energy, time and saving are those of a sample. The saving is the energy that the operators would save at their roof.
"""

FEWEST_WHOLES = 5
"""The fewest models from whose deviations the error of a sum is expected."""

EXPECTED_QUANTILE = 0.95
ENOUGH_WHOLES = 19
"""The fewest models of which one is expected beyond that quantile."""

REPRESENTATIVE_RATIO = 0.95
"""The share of a model's bytes from which the shares, the roof and the saving of a sum are those of the model."""


@dataclass(frozen=True)
class ModelFigures:
    """The cost of one run of a model under one set of conditions: the measured whole, and the sum of its operators.

    ``input_size`` has the batch first, and is empty if unknown. ``whole`` is None if it is not measured, ``cost`` if
    the model is not counted, ``correction`` (all that corrects the sum) if it is unknown. The sum has all operators
    that compute something and have a row, whitelisted or not. ``predicted`` is the predicted cost of the others, if it
    is a part of the cost.
    """

    name: str
    input_size: tuple[int, ...]
    conditions: Conditions
    whole: MeasurementRow | None
    cost: ModelCost | None
    correction: Excess | None = None
    predicted: Piece | None = None

    @property
    def samples(self) -> int | None:
        """The samples of one run: images, texts, clips, or pairs of frames; None if unknown."""
        return self.input_size[0] if self.input_size else None

    @property
    def is_complete(self) -> bool:
        return self.cost is not None and self.cost.time_s is not None and not self.cost.missing

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(sorted({one.operator.short_name for one in self.cost.missing})) if self.cost is not None else ()

    @property
    def is_representative(self) -> bool:
        """Whether the sum has so many of the model's bytes that it shows what dominates the model."""
        if self.cost is None or self.is_complete:
            return self.is_complete
        return (self.cost.memory_bytes_ratio or 0.0) >= REPRESENTATIVE_RATIO

    @cached_property
    def works(self) -> Works:
        return [] if self.cost is None else works_of(self.cost)

    @property
    def basis(self) -> EnergyBasis:
        """The basis of the cost's energy: the whole's own, or the sum's that takes its place."""
        if self.whole is not None or self.cost is None:
            return common_basis([] if self.whole is None else [self.whole])
        return self.cost.basis

    @property
    def corrected_time_s(self) -> Estimate | None:
        """The time of the corrected sum, without correction if that is unknown."""
        correction = None if self.correction is None else self.correction.time_s
        return None if self.cost is None else _corrected(self.cost.time_s, correction, "time")

    @property
    def corrected_energy_j(self) -> Estimate | None:
        correction = None if self.correction is None else self.correction.energy_j
        return None if self.cost is None else _corrected(self.cost.energy_j, correction, "energy")

    @property
    def time_s(self) -> Estimate | None:
        """The time of one run: the whole's, or the corrected sum's if it is complete or completed by predictions."""
        if self.whole is not None:
            return time_of(self.whole)
        return self._completed(self.corrected_time_s, None if self.predicted is None else self.predicted.time_s)

    @property
    def energy_j(self) -> Estimate | None:
        if self.whole is not None:
            return self.basis.energy_of(self.whole)
        return self._completed(self.corrected_energy_j, None if self.predicted is None else self.predicted.energy_j)

    def _completed(self, summed: Estimate | None, predicted: float | None) -> Estimate | None:
        if self.is_complete:
            return summed
        if summed is None or predicted is None:
            return None
        error = PREDICTED_ERROR_RATIOS[self.conditions.execution] / NORMAL_QUANTILE * predicted
        return sum_of_independent([summed, Estimate(predicted, error)])

    @property
    def power_w(self) -> float | None:
        return None if self.time_s is None or self.energy_j is None else self.energy_j.value / self.time_s.value

    @property
    def corrected_time_ratio(self) -> float | None:
        """Corrected sum over whole in time; None if one is unknown or the sum is not complete."""
        return self._over_whole(self.corrected_time_s, self.time_s)

    @property
    def corrected_energy_ratio(self) -> float | None:
        """Corrected sum over whole in energy, both on the sum's basis; None as for the time."""
        if self.whole is None or self.cost is None:
            return None
        return self._over_whole(self.corrected_energy_j, self.cost.basis.energy_of(self.whole))

    def _over_whole(self, summed: Estimate | None, whole: Estimate | None) -> float | None:
        if self.whole is None or not self.is_complete or summed is None or whole is None:
            return None
        if not ran_as_requested(self.whole):
            # The sum is of the requested execution: launches are in one of both only.
            return None
        return summed.value / whole.value

    @property
    def is_whole_flagged(self) -> bool:
        return self.whole is not None and is_doubtful(self.whole)

    @property
    def is_sum_flagged(self) -> bool:
        """Whether flagged rows have so much of the summed time that the sum is no result yet."""
        return self.flagged_ratio >= NO_RESULT_RATIO

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """The reasons why the whole or the sum is no result yet, as in a comparison."""
        ratios = (self.corrected_time_ratio, self.corrected_energy_ratio)
        return doubts_of(
            self.flagged_ratio,
            self.missing_ratio,
            unexplained_ratio=max((abs(ratio - 1) for ratio in ratios if ratio is not None), default=None),
            is_whole_flagged=self.is_whole_flagged,
            is_above_limit=self.whole is None and is_above_limit(self.power_w, self.conditions.device_power_limit_w),
        )

    @property
    def missing_ratio(self) -> float | None:
        """The share of the model's bytes or FLOPs, of both the larger, that is not in the sum; None if unknown."""
        if self.cost is None or not self.cost.missing:
            return 0.0
        ratios = [ratio for ratio in (self.cost.memory_bytes_ratio, self.cost.flop_ratio) if ratio is not None]
        return 1 - min(ratios) if ratios else None

    @property
    def flagged_ratio(self) -> float:
        if self.cost is None or self.cost.time_s is None:
            return 0.0
        flagged_s = math.fsum(part.time_s for part in self.cost.parts if is_doubtful(part.row))
        return flagged_s / self.cost.time_s.value

    @property
    def measured_at(self) -> str:
        """The end of the newest measurement that the cost rests on (ISO 8601)."""
        rows = [self.whole] if self.whole is not None else [part.row for part in self.cost.parts] if self.cost else []
        return max((row.measurement.ended_at for row in rows), default="")


def _corrected(summed: Estimate | None, correction: Estimate | None, quantity: str) -> Estimate | None:
    if summed is None or correction is None:
        return summed
    return with_method_error(sum_of_independent([summed, correction]), quantity)


@dataclass(frozen=True)
class SumDeviations:
    """Magnitudes of the deviations of some models' sums from their wholes: median and 95th percentile, as ratios."""

    models: int
    median_ratio: float
    high_ratio: float


@dataclass(frozen=True)
class SumErrors:
    """Deviations of sums of operators from measured wholes; ``is_assumed`` says that they are those of other ones."""

    time: SumDeviations
    energy: SumDeviations
    is_assumed: bool = False


ASSUMED_SUM_ERRORS: Mapping[bool, SumErrors] = MappingProxyType(
    {
        True: SumErrors(SumDeviations(13, 0.023, 0.052), SumDeviations(13, 0.025, 0.063), is_assumed=True),
        False: SumErrors(SumDeviations(88, 0.008, 0.092), SumDeviations(88, 0.022, 0.049), is_assumed=True),
    }
)
"""The deviations where fewer than ``FEWEST_WHOLES`` are known, by whether sums have a cache correction: the largest of
any device and precision in the shipped database (2026-11-28: bf16), without correction the larger ones of 88 models of
an H200 in graphs and of six run eagerly."""


def sum_errors(models: Iterable[ModelFigures], is_corrected: bool) -> SumErrors:
    """Return the deviations of complete sums from their wholes; assumed ones if fewer than ``FEWEST_WHOLES`` are known.

    Flagged wholes and sums with flagged parts are left out, and either sums with a cache correction or those without.
    The models are of one device, in one execution.
    """
    sound = [one for one in models if (one.correction is not None) == is_corrected and Doubt.FLAGGED not in one.doubts]
    assumed = ASSUMED_SUM_ERRORS[is_corrected]
    time, has_time = _deviations((one.corrected_time_ratio for one in sound), assumed.time)
    energy, has_energy = _deviations((one.corrected_energy_ratio for one in sound), assumed.energy)
    return SumErrors(time, energy, is_assumed=not (has_time and has_energy))


def _deviations(ratios: Iterable[float | None], assumed: SumDeviations) -> tuple[SumDeviations, bool]:
    """Return deviations of ratios from 1, and whether they are their own: assumed ones, if too few are known.

    The high one is at least the assumed one if they are too few for a high quantile.
    """
    found = [abs(ratio - 1) for ratio in ratios if ratio is not None]
    if len(found) < FEWEST_WHOLES:
        return assumed, False
    # Of few values the next larger one, so that the error is not too small.
    median, high = map(float, np.quantile(found, [0.5, EXPECTED_QUANTILE], method="higher"))
    return SumDeviations(
        len(found), median, high if len(found) >= ENOUGH_WHOLES else max(high, assumed.high_ratio)
    ), True


def sum_errors_by_correction(models: Sequence[ModelFigures]) -> Mapping[bool, SumErrors]:
    """Return ``sum_errors`` of models by whether sums have a cache correction."""
    return {is_corrected: sum_errors(models, is_corrected) for is_corrected in (True, False)}


def completed(
    models: Iterable[ModelFigures], counts: Collection[OperatorCount], measurements: Measurements
) -> Iterator[ModelFigures]:
    """Yield the figures with the predicted cost of missing operators, unchanged if it is not needed or unknown.

    It is unknown if less than ``MOSTLY_KNOWN_RATIO`` of the model's bytes or FLOPs is measured. ``counts`` are those of
    the operators that have rows, ``measurements``.
    """
    predictors: dict[tuple[str, EnergyBasis], CostModel | None] = {}
    for model in models:
        missing_ratio = model.missing_ratio
        is_mostly_known = missing_ratio is not None and missing_ratio <= 1 - MOSTLY_KNOWN_RATIO
        if model.whole is not None or model.cost is None or model.is_complete or not is_mostly_known:
            yield model
            continue
        place = model.conditions.key, model.cost.basis
        if place not in predictors:
            predictors[place] = predictor_of(counts, measurements, model.conditions, model.cost.basis)
        predictor = predictors[place]
        yield replace(model, predicted=None if predictor is None else predicted_piece(model.cost.missing, predictor))
