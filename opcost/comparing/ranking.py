"""Models in the order of their cost per sample, each with the sum of its operators.

A model whose whole is not measured has the sum of its operators with the cache correction as its cost, if all of its
operators are measured. The error of such a sum is expected from the sums of other models with a measured whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from opcost.comparing.cache_chains import Excess
from opcost.comparing.comparison import kinds_of
from opcost.comparing.doubts import FLAGGED_RATIO
from opcost.estimates import Estimate, sum_of_independent, total_if_known
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow, is_flagged, time_of
from opcost.summing.energy import EnergyBasis, common_basis
from opcost.summing.summation import ModelCost

TIME, ENERGY, POWER, NAME = "time", "energy", "power", "name"
SORTS = (ENERGY, TIME, POWER, NAME)
"""The orders of a ranking: by energy or time per sample, by power, or by name. The smallest comes first."""

FEWEST_WHOLES = 5
"""The fewest models from whose deviations the error of a sum is expected."""

EXPECTED_QUANTILE = 0.95


@dataclass(frozen=True)
class ModelFigures:
    """The cost of one run of a model under one set of conditions: the measured whole, and the sum of its operators.

    ``input_size`` has the batch first. ``whole`` is None if it is not measured, ``cost`` if the model is not counted,
    ``correction`` (the cache correction of the sum) if it is unknown. The sum has all operators that compute something
    and have a row, whitelisted or not.
    """

    name: str
    input_size: tuple[int, ...]
    conditions: Conditions
    whole: MeasurementRow | None
    cost: ModelCost | None
    correction: Excess | None = None

    @property
    def samples(self) -> int:
        """The samples of one run: images, clips, or pairs of frames."""
        return self.input_size[0]

    @property
    def is_complete(self) -> bool:
        """Whether every operator that computes something is in the sum."""
        return self.cost is not None and self.cost.time_s is not None and not self.cost.missing

    @property
    def is_known(self) -> bool:
        """Whether the model has a cost: a measured whole or a complete sum."""
        return self.whole is not None or self.is_complete

    @property
    def basis(self) -> EnergyBasis:
        """The basis of all energies of the model."""
        if self.cost is not None and self.cost.parts:
            return self.cost.basis
        return common_basis([] if self.whole is None else [self.whole])

    @property
    def corrected_time_s(self) -> Estimate | None:
        """The time of the sum with the cache correction, without it if that is unknown."""
        correction = None if self.correction is None else self.correction.time_s
        return None if self.cost is None else _plus(self.cost.time_s, correction)

    @property
    def corrected_energy_j(self) -> Estimate | None:
        """The energy of the sum with the cache correction, without it if that is unknown."""
        correction = None if self.correction is None else self.correction.energy_j
        return None if self.cost is None else _plus(self.cost.energy_j, correction)

    @property
    def time_s(self) -> Estimate | None:
        """The time of one run: the whole's, or the corrected sum's if it is complete."""
        if self.whole is not None:
            return time_of(self.whole)
        return self.corrected_time_s if self.is_complete else None

    @property
    def energy_j(self) -> Estimate | None:
        """The energy of one run: the whole's, or the corrected sum's if it is complete."""
        if self.whole is not None:
            return self.basis.energy_of(self.whole)
        return self.corrected_energy_j if self.is_complete else None

    @property
    def power_w(self) -> float | None:
        """The mean power of a run."""
        return None if self.time_s is None or self.energy_j is None else self.energy_j.value / self.time_s.value

    @property
    def corrected_time_ratio(self) -> float | None:
        """Corrected sum over whole in time; None if one is unknown or the sum is not complete."""
        return self._over_whole(self.corrected_time_s, self.time_s)

    @property
    def corrected_energy_ratio(self) -> float | None:
        """Corrected sum over whole in energy; None if one is unknown or the sum is not complete."""
        return self._over_whole(self.corrected_energy_j, self.energy_j)

    def _over_whole(self, summed: Estimate | None, whole: Estimate | None) -> float | None:
        if self.whole is None or not self.is_complete or summed is None or whole is None:
            return None
        return summed.value / whole.value

    @property
    def is_flagged(self) -> bool:
        """Whether the cost is no result yet, because the whole or a part of the sum that takes its place is flagged."""
        if self.whole is not None:
            return is_flagged(self.whole.measurement)
        return self.flagged_ratio >= FLAGGED_RATIO

    @property
    def flagged_ratio(self) -> float:
        """The share of the summed time in flagged rows."""
        if self.cost is None or self.cost.time_s is None:
            return 0.0
        flagged_s = math.fsum(part.time_s for part in self.cost.parts if is_flagged(part.row.measurement))
        return flagged_s / self.cost.time_s.value

    @property
    def measured_at(self) -> str:
        """The end of the newest measurement that the cost rests on (ISO 8601)."""
        rows = [self.whole] if self.whole is not None else [part.row for part in self.cost.parts] if self.cost else []
        return max((row.measurement.ended_at for row in rows), default="")


def _plus(summed: Estimate | None, correction: Estimate | None) -> Estimate | None:
    return summed if summed is None or correction is None else sum_of_independent([summed, correction])


@dataclass(frozen=True)
class KindShare:
    """The cost of all calls of one kind of operator in a sum, and its shares of the sum; None if unknown."""

    operator: str
    time_s: float
    energy_j: float | None
    time_ratio: float
    energy_ratio: float | None

    def ratio(self, by: str) -> float:
        """Return the share of the energy for ``energy`` and ``power``, if it is known, else of the time."""
        is_of_energy = by in (ENERGY, POWER) and self.energy_ratio is not None
        return self.energy_ratio or 0.0 if is_of_energy else self.time_ratio


def kind_shares(cost: ModelCost | None, by: str) -> tuple[KindShare, ...]:
    """Return the kinds of operators in a sum, the largest first.

    Args:
        cost: the sum, None if the model is not counted.
        by: one of ``SORTS``, see ``KindShare.ratio``.
    """
    kinds = () if cost is None else kinds_of(cost)
    time_s = math.fsum(kind.time_s for kind in kinds)
    energy_j = total_if_known(kind.energy_j for kind in kinds)
    shares = [
        KindShare(
            operator=kind.operator,
            time_s=kind.time_s,
            energy_j=kind.energy_j,
            time_ratio=kind.time_s / time_s,
            energy_ratio=None if not energy_j or kind.energy_j is None else kind.energy_j / energy_j,
        )
        for kind in kinds
    ]
    return tuple(sorted(shares, key=lambda share: -share.ratio(by)))


@dataclass(frozen=True)
class Deviations:
    """Magnitudes of the deviations of some models' sums from their wholes: median and 95th percentile, as ratios."""

    models: int
    median_ratio: float
    high_ratio: float


@dataclass(frozen=True)
class SumErrors:
    """Deviations of corrected sums from measured wholes; those of energy are None if too few energies are known."""

    time: Deviations
    energy: Deviations | None


def sum_errors(models: Iterable[ModelFigures], of: ModelFigures) -> SumErrors | None:
    """Return the deviations of complete sums from their wholes; None if fewer than ``FEWEST_WHOLES`` are known.

    Flagged wholes and sums with flagged parts are left out.

    Args:
        models: of one device, in one execution.
        of: a model. Like its sum, those of the others have a cache correction, or have none.
    """
    sound = [
        one
        for one in models
        if (one.correction is None) == (of.correction is None)
        and not one.is_flagged
        and one.flagged_ratio < FLAGGED_RATIO
    ]
    time = _deviations(one.corrected_time_ratio for one in sound)
    energy = _deviations(one.corrected_energy_ratio for one in sound)
    return None if time is None else SumErrors(time, energy)


def _deviations(ratios: Iterable[float | None]) -> Deviations | None:
    found = [abs(ratio - 1) for ratio in ratios if ratio is not None]
    if len(found) < FEWEST_WHOLES:
        return None
    # Of few values the next larger one, so that the error is not too small.
    median, high = np.quantile(found, [0.5, EXPECTED_QUANTILE], method="higher")
    return Deviations(len(found), float(median), float(high))


def ranked(models: Iterable[ModelFigures], by: str) -> list[ModelFigures]:
    """Return models in order, the smallest first; those without the figure last.

    Args:
        models: of one device.
        by: one of ``SORTS``.
    """
    return sorted(models, key=lambda one: (_unknown_last(_rank(one, by)), one.name))


def _unknown_last(value: float | None) -> tuple[bool, float]:
    return value is None, value or 0.0


def _rank(one: ModelFigures, by: str) -> float | None:
    if by == NAME:
        return 0.0
    if by == POWER:
        return one.power_w
    cost = one.energy_j if by == ENERGY else one.time_s
    return None if cost is None else cost.value / one.samples
