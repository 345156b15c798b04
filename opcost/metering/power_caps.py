"""Time and energy over the power limit of a GPU: a fit to measured caps, and the cap that an objective asks for.

The fit is of logarithms, because errors of meters are relative. Each of time and mean power has one level for all caps
above a knee, where the limit costs nothing, and a monotone parabola in the logarithm of the cap below it:

    log time(cap) = level + slope * d + curvature * d**2,  d = max(0, log(knee / cap))

The knees of time and power differ where a load waits for memory: there a lower clock saves power before it costs time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from opcost.metering.cap_rows import CapPoint, Wish

Array: TypeAlias = npt.NDArray[np.float64]

CAPS = 8
"""Caps of a sweep besides the limit that was found."""

FURTHER_CAPS = 3
"""Caps that are measured near the predicted optimum."""

ABOVE_POWER_RATIO = 1.05
"""A steady load is not slowed by a limit this much above its mean power: boards act on averages over some 10 ms."""

KNEES = 100
"""Tried positions of a knee. Over a range of 200 W to 700 W they are 1.3 % apart."""

NEARBY = 0.3
"""Width, in the logarithm of the cap, within which points near the optimum count fully."""

LEAST_WEIGHT = 0.003
"""Weight of points far from the optimum: they still fix levels, and keep the fit from turning."""

SAME_CAP_RATIO = 0.02
"""Caps closer than this show the same clocks within the meters' errors, so that a further one is of no use."""

ASIDE_RATIO = 0.045
"""Distance of a further cap from an optimum that is measured: costs on both sides show how sharp it is."""

LEAST_SAVING_RATIO = 0.005
"""Smallest gain that is called one: below it single measurements do not show it."""


@dataclass(frozen=True)
class Curve:
    """A level above a knee, and a parabola below it, of logarithms. Without a knee it is the level alone."""

    level: float
    knee: float | None = None
    slope: float = 0.0
    curvature: float = 0.0

    def at(self, log_cap: Array) -> Array:
        below = np.zeros_like(log_cap) if self.knee is None else np.maximum(0.0, self.knee - log_cap)
        if self.slope * self.curvature < 0:
            # Beyond the lowest measured cap the parabola would turn back.
            below = np.minimum(below, -self.slope / (2 * self.curvature))
        return self.level + self.slope * below + self.curvature * below**2


@dataclass(frozen=True)
class CapFit:
    """The fitted time and power of caps from the lowest to the highest measured one."""

    time: Curve
    power: Curve
    lowest_w: float
    highest_w: float

    @property
    def binds(self) -> bool:
        """Whether any cap of the range holds power down."""
        return self.power.knee is not None

    def time_s(self, cap_w: float) -> float:
        return math.exp(float(self.time.at(np.array([math.log(cap_w)]))[0]))

    def power_w(self, cap_w: float) -> float:
        return math.exp(float(self.power.at(np.array([math.log(cap_w)]))[0]))

    def energy_j(self, cap_w: float) -> float:
        return self.time_s(cap_w) * self.power_w(cap_w)


@dataclass(frozen=True)
class Proposal:
    """A cap with what the fit expects of it, as ratios to the highest cap: 0.9 of the energy, 1.02 of the time."""

    cap_w: float
    time_ratio: float
    energy_ratio: float
    value_ratio: float
    never_binds: bool

    @property
    def gains(self) -> bool:
        """Whether it is better than the limit that was found by more than noise."""
        return self.value_ratio < 1 - LEAST_SAVING_RATIO


def spread_caps(lowest_w: float, highest_w: float) -> tuple[float, ...]:
    """Return whole watts from the lowest to the highest cap, whose ratios are equal; fewer if the range is narrow."""
    lowest, highest = math.ceil(lowest_w), math.floor(highest_w)
    if highest <= lowest:
        return (float(lowest),) if lowest <= highest_w else (highest_w,)
    return tuple(sorted({float(round(cap)) for cap in np.geomspace(lowest, highest, CAPS)}))


def fit_caps(points: Sequence[CapPoint], around_w: float | None = None) -> CapFit:
    """Fit time and power over the cap; of several points at one cap the medians count, those near ``around_w`` most."""
    merged = medians_of(points)
    logarithms = [(math.log(one.cap_w), math.log(one.time_s), math.log(one.power_w)) for one in merged]
    caps, times, powers = np.array(logarithms, dtype=np.float64).T
    weights = np.array([float(sum(point.cap_w == one.cap_w for point in points)) for one in merged])
    if around_w is not None:
        weights *= np.maximum(LEAST_WEIGHT, np.exp(-(((caps - math.log(around_w)) / NEARBY) ** 2)))
    power = _fitted(caps, powers, weights, -1.0)
    # A limit that holds no power down cannot cost time.
    time = (
        Curve(float(np.average(times, weights=weights))) if power.knee is None else _fitted(caps, times, weights, 1.0)
    )
    measured = [point.cap_w for point in points]
    return CapFit(time, power, min(measured), max(measured))


def propose(fit: CapFit, wish: Wish) -> Proposal:
    """Return whole watts in the measured range that a wish asks for; of equal ones, or if none binds, the lowest."""
    highest_w = fit.highest_w
    caps = np.arange(math.ceil(fit.lowest_w), math.floor(highest_w) + 1, dtype=np.float64)
    caps = caps if len(caps) else np.array([highest_w])
    values = fit.time.at(np.log(caps)) * (1 + wish.objective.delays) + fit.power.at(np.log(caps))
    if wish.max_slowdown_ratio is not None:
        slowdowns = fit.time.at(np.log(caps)) - fit.time.level
        values = np.where(slowdowns <= math.log1p(wish.max_slowdown_ratio), values, np.inf)
    # A limit that never binds has nothing to gain: the lowest cap costs no time either.
    best = float(caps[np.argmin(values)]) if fit.binds else float(caps[0])
    objective = wish.objective
    best_value, highest_value = (objective.of(fit.time_s(cap), fit.energy_j(cap)) for cap in (best, highest_w))
    return Proposal(
        cap_w=best,
        time_ratio=fit.time_s(best) / fit.time_s(highest_w),
        energy_ratio=fit.energy_j(best) / fit.energy_j(highest_w),
        value_ratio=best_value / highest_value,
        never_binds=not fit.binds,
    )


def free_cap_w(fit: CapFit) -> float:
    """Return the lowest cap that costs no time."""
    knee = fit.time.knee
    return fit.lowest_w if knee is None else max(fit.lowest_w, math.exp(knee))


def best_cap(points: Sequence[CapPoint], wish: Wish) -> tuple[CapFit, Proposal]:
    """Fit all points, then those near the optimum once more; return the fit and the proposal."""
    fit = fit_caps(points)
    if not fit.binds:
        return fit, propose(fit, wish)
    near = fit_caps(points, propose(fit, wish).cap_w)
    fit = near if near.binds else fit
    return fit, propose(fit, wish)


def further_cap(points: Sequence[CapPoint], wish: Wish) -> float | None:
    """Return a cap whose measurement would help most: the optimum, or one beside it; None if none would help."""
    fit, proposal = best_cap(points, wish)
    if proposal.never_binds:
        return None
    measured = [point.cap_w for point in points]
    best = proposal.cap_w
    candidates = (best, best * (1 - ASIDE_RATIO), best * (1 + ASIDE_RATIO))
    inside = [float(round(cap)) for cap in candidates if fit.lowest_w <= cap <= fit.highest_w]
    return next((cap for cap in inside if all(abs(cap / other - 1) > SAME_CAP_RATIO for other in measured)), None)


def is_efficient(point: CapPoint, others: Iterable[CapPoint]) -> bool:
    """Return whether no other point is better in time or energy without being worse in the other (Pareto)."""
    return not any(
        other.time_s <= point.time_s
        and other.energy_j <= point.energy_j
        and (other.time_s, other.energy_j) != (point.time_s, point.energy_j)
        for other in others
    )


def medians_of(points: Iterable[CapPoint]) -> list[CapPoint]:
    """Return a point for each cap, in ascending order: the medians of time and energy."""
    by_cap: defaultdict[float, list[CapPoint]] = defaultdict(list)
    for point in points:
        by_cap[point.cap_w].append(point)
    found = []
    for cap_w, same in sorted(by_cap.items()):
        time_s, energy_j = np.median([(point.time_s, point.energy_j) for point in same], axis=0).tolist()
        found.append(CapPoint(cap_w, time_s, energy_j))
    return found


def _fitted(caps: Array, values: Array, weights: Array, sign: float) -> Curve:
    """Return the curve with the least squares, which rises (sign 1) or falls (sign -1) below its knee.

    A level alone is taken if a knee does not lower the Bayesian information criterion: the noise would make one.
    """
    level = float(np.average(values, weights=weights))
    flat_squares = float(np.sum(weights * (values - level) ** 2))
    if len(caps) < 3:
        return Curve(level)
    knees = np.linspace(caps[0], caps[-1], KNEES)[1:]
    below = np.maximum(0.0, knees[:, None] - caps)
    found = [_least(below, values, weights, sign, powers) for powers in ((1, 2), (1,), (2,))]
    squares, solution, place = min(found, key=lambda one: one[0])
    number = len(caps)
    # Errors are at least of this size, so that exact values have no perfect fit.
    least = 1e-8 * float(np.sum(weights))
    if math.isinf(squares) or number * math.log((flat_squares + least) / (squares + least)) <= 3 * math.log(number):
        return Curve(level)
    return Curve(float(solution[0]), float(knees[place]), float(solution[1]), float(solution[2]))


def _least(
    below: Array, values: Array, weights: Array, sign: float, powers: tuple[int, ...]
) -> tuple[float, Array, int]:
    """Return the weighted squares of the best monotone curve, its level, slope and curvature, and its knee's place.

    ``below`` has how far each point is below each knee, shape (knees, points); values and weights are those of the
    points. The curve rises below its knee for sign 1 and falls for -1, by these powers of the distance below it.
    """
    matrix = np.stack([np.ones_like(below), *(below**power for power in powers)], axis=2)
    weighted = matrix * weights[:, None]
    products = weighted.transpose(0, 2, 1) @ matrix
    # A knee with too few points below it has no single solution; the smallest one is taken.
    products += 1e-10 * np.eye(matrix.shape[2])
    solved = np.linalg.solve(products, (weighted.transpose(0, 2, 1) @ values)[..., None])[..., 0]
    squares = np.sum(weights * (values - (matrix @ solved[..., None])[..., 0]) ** 2, axis=1)
    solutions = np.zeros((len(below), 3))
    solutions[:, [0, *powers]] = solved
    ends = solutions[:, 1] + 2 * solutions[:, 2] * below.max(axis=1)
    # A parabola needs three points.
    enough = np.sum(below > 0, axis=1) >= len(powers) + (2 in powers)
    possible = (sign * solutions[:, 1] >= 0) & (sign * ends >= 0) & enough
    squares = np.where(possible, squares, np.inf)
    place = int(np.argmin(squares))
    return float(squares[place]), solutions[place], place
