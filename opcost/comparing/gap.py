"""The parts of a whole model's cost: the sum, corrections, the power limit, launches; and errors of kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType

from opcost.comparing.cache_corrections import Corrections, is_corrected, pooled
from opcost.estimates import Estimate, sum_of_independent, total_if_known, value_of
from opcost.measuring.conditions import EAGER, GRAPH, WARM, Conditions
from opcost.measuring.loop import HARDLY_THROTTLED_RATIO
from opcost.measuring.record import Excess, KernelTimeRow, MeasurementRow
from opcost.operators.counts import OperatorCount
from opcost.prediction.rates import CostModel
from opcost.summing.summation import Measurements, ModelCost, totals

METHOD_ERROR_RATIOS: Mapping[str, float] = MappingProxyType({"time": 0.006, "energy": 0.010})
"""The standard error of the method itself, as a share of a corrected sum of ``time`` or ``energy``.

It is what corrected sums are off from wholes beyond the errors of rows and corrections: the root of the mean of
(ratio - 1)^2 - (its standard error)^2 is 0.64 % and 1.03 % for the 87 models at their published size in
``sum_vs_full.csv`` (H200, CUDA graphs, all operators, captured values, torch's default precision). Other models may be
further off. These wholes gave the figures, so that they are no test of them; they hold until better ones exist.
"""


def with_method_error(corrected: Estimate, quantity: str) -> Estimate:
    """Return a corrected sum of ``time`` or ``energy``, or its ratio to the whole, with the error of the method too."""
    return corrected.with_error(METHOD_ERROR_RATIOS[quantity] * corrected.value)


@dataclass(frozen=True)
class Piece:
    """Time in s and energy in J of a part of the whole model, None if unknown."""

    time_s: float | None = 0.0
    energy_j: float | None = 0.0

    def plus(self, other: Piece) -> Piece:
        return Piece(total_if_known([self.time_s, other.time_s]), total_if_known([self.energy_j, other.energy_j]))


@dataclass(frozen=True)
class Gap:
    """The parts of a whole model's cost. ``modules`` and ``functions`` are the sum.

    ``correction`` is the cache correction of the summed calls, which may be negative; if it is None, its cost is a part
    of ``unexplained``. ``correction_dtype`` is the dtype of the chains that it was measured with; ``missing_kinds`` are
    those that have a stand-in's correction. ``power_limit`` is what the power limit adds to all these parts, None if
    unknown. ``dropped`` operators are not in the whitelist, measured or predicted; ``unmeasured`` ones are predicted.
    """

    modules: Piece
    functions: Piece
    correction: Excess | None
    power_limit: Excess | None
    dropped: Piece
    unmeasured: Piece
    unexplained: Piece
    correction_dtype: str | None = None
    missing_kinds: tuple[str, ...] = ()


def gap(
    cost: ModelCost,
    dropped: ModelCost,
    full: MeasurementRow,
    predictor: CostModel | None = None,
    corrections: Corrections | None = None,
) -> Gap:
    """Return the parts of a whole model's cost.

    The sum of dropped operators is on the same energy basis as the sum. Predictor and cache corrections are the
    device's, derived from operators alone, not from whole models; None if unknown.
    """

    def piece(added: Excess | None) -> Piece:
        return Piece() if added is None else Piece(added.time_s.value, value_of(added.energy_j) or 0.0)

    modules = Piece(*totals(part for part in cost.parts if not part.case.operator.is_function))
    functions = Piece(*totals(part for part in cost.parts if part.case.operator.is_function))
    left_out = Piece(*totals(dropped.parts)).plus(predicted_piece(dropped.missing, predictor))
    unmeasured, full_j = predicted_piece(cost.missing, predictor), value_of(cost.basis.energy_of(full))
    correction = None if corrections is None else corrections.of(cost.summed)
    besides = left_out.plus(unmeasured).plus(piece(correction))
    power_limit = added_by_limit(cost, besides, full.conditions)
    known = modules.plus(functions).plus(besides).plus(piece(power_limit))
    return Gap(
        modules=modules,
        functions=functions,
        correction=correction,
        power_limit=power_limit,
        dropped=left_out,
        unmeasured=unmeasured,
        unexplained=Piece(
            None if known.time_s is None else full.measurement.time_s - known.time_s,
            None if full_j is None or known.energy_j is None else full_j - known.energy_j,
        ),
        correction_dtype=None if corrections is None else corrections.dtype,
        missing_kinds=() if corrections is None else corrections.missing_kinds(cost.summed),
    )


def predicted_piece(counts: Sequence[OperatorCount], predictor: CostModel | None) -> Piece:
    """Return the predicted cost of operators that compute; unknown if the predictor is None or cannot predict one."""
    counts = [count for count in counts if count.computes]
    if not counts:
        return Piece()
    if predictor is None:
        return Piece(None, None)
    costs = [predictor.cost(count, count.occurrences) for count in counts]
    return Piece(total_if_known(time_s for time_s, _ in costs), total_if_known(energy_j for _, energy_j in costs))


# The power limit's part in the cost of a model whose operators together would draw more. Operators are measured at full
# clocks. A model of many such operators runs at lower clocks, at which it draws the limit on average, whatever its
# temperature. It takes longer than its operators, and less energy than they would at its temperature. Energies of
# operators are normalised to a lower one, so the part of the energy may be of either sign.

PRODUCTS, OTHERS = 0.36, 0.0
"""Exponents of an operator's time, to the base of its power at full clocks over that at lower clocks.

Products (matrix products, convolutions, attention) take longer at lower clocks; memory limits the others. 19 products
on an H200 and H100s, throttled alone, have 0.19 to 0.42, two others 0.01 and 0.02 (``docs/log/power_limit.md``)."""

EXPONENT_ERROR = 0.06
"""Standard deviation of the products' exponents."""

LARGEST_POWER_RATIO = 1.45
"""The largest power at full clocks, relative to that under the limit, at which exponents were measured."""

CARDS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
"""The cards whose operators have these exponents."""

THROTTLED_SHARE = 0.02
"""Share of a sum's time up to which throttled rows do not matter."""

POWER_RATIO_STEP = 1e-6
"""The width at which the bisection of a power ratio ends."""

UNCHANGED = Excess(Estimate(0.0, 0.0), Estimate(0.0, 0.0))


@dataclass(frozen=True)
class Load:
    """A part of a model's run at full clocks: its time in s, its energy in J, and the exponent of its time."""

    time_s: float
    energy_j: float
    exponent: float

    def at(self, power_ratio: float) -> tuple[float, float]:
        """Return time and energy at the clocks at which its power is lower by a ratio (from 1)."""
        longer = power_ratio**self.exponent
        return self.time_s * longer, self.energy_j * longer / power_ratio


def limit_of(conditions: Conditions) -> float | None:
    """Return the power limit in W; None if it is unknown how operators under these conditions respond to it.

    Nothing of a whole model is used, so that a sum is corrected in the same way with and without one.
    """
    is_known = is_corrected(conditions) and conditions.device_product in CARDS
    return conditions.device_power_limit_w if is_known else None


def added_by_limit(
    cost: ModelCost, besides: Piece, conditions: Conditions, predicted: Sequence[Load] = ()
) -> Excess | None:
    """Return what the power limit adds to a sum, predicted calls and what else is known; None if one is unknown."""
    limit_w = limit_of(conditions)
    if limit_w is None or besides.time_s is None or besides.energy_j is None:
        return None
    loads = loads_of(cost)
    others = Load(besides.time_s, besides.energy_j, OTHERS)
    return None if loads is None else at_limit([*loads, *predicted, others], limit_w)


def correction_of(cache: Excess, cost: ModelCost, conditions: Conditions) -> Excess:
    """Return all that corrects a sum: the cache correction, and what the power limit adds if that is known."""
    if cache.energy_j is None:
        return cache
    added = added_by_limit(cost, Piece(cache.time_s.value, cache.energy_j.value), conditions)
    return cache if added is None else pooled([cache, added], sum_of_independent)


def loads_of(cost: ModelCost) -> list[Load] | None:
    """Return the parts of a sum; None if an energy is unknown, or if its rows are throttled, as in loops of 30 s."""
    throttled_s = math.fsum(
        part.time_s for part in cost.parts if (part.row.measurement.power_capped_ratio or 0.0) >= HARDLY_THROTTLED_RATIO
    )
    if throttled_s > THROTTLED_SHARE * totals(cost.parts)[0]:
        return None
    loads = [
        Load(part.time_s, part.energy_j, PRODUCTS if part.count.flop else OTHERS)
        for part in cost.parts
        if part.energy_j is not None
    ]
    return loads if len(loads) == len(cost.parts) else None


def at_limit(loads: Sequence[Load], limit_w: float) -> Excess | None:
    """Return what the power limit adds to the time of some loads, and to their energy on the basis of the sum.

    The power of all falls by one ratio, so that they draw the limit on average. It is 0 if they draw less at full
    clocks, and None if the ratio is larger than any that was measured.
    """

    def cost(power_ratio: float) -> tuple[float, float]:
        costs = [load.at(power_ratio) for load in loads]
        return math.fsum(time_s for time_s, _ in costs), math.fsum(energy_j for _, energy_j in costs)

    def power_w(power_ratio: float) -> float:
        time_s, energy_j = cost(power_ratio)
        return energy_j / time_s if time_s else 0.0

    low, high = 1.0, LARGEST_POWER_RATIO
    if power_w(low) <= limit_w:
        return UNCHANGED
    if power_w(high) > limit_w:
        return None
    while high - low > POWER_RATIO_STEP:
        middle = (low + high) / 2
        low, high = (middle, high) if power_w(middle) > limit_w else (low, middle)
    (time_s, _), (full_time_s, full_energy_j) = cost(high), cost(1.0)
    products_s = math.fsum(load.at(high)[0] for load in loads if load.exponent)
    added_s = Estimate(time_s - full_time_s, EXPONENT_ERROR * math.log(high) * products_s)
    return Excess(added_s, Estimate(limit_w * time_s - full_energy_j, limit_w * added_s.standard_error))


# Expected time and energy of an eager run: that of the device or that of the launches, whichever is longer. In a loop
# of one operator, each call takes the longer of the two. A model launches kernels ahead while long ones run, so it
# takes the longer of the two sums. Both are derived from operators that were measured eagerly and in CUDA graphs, which
# need no launches.

LONG_RATIO = 1.1
"""Largest ratio of eager time to graph time of a loop that is bound by the device. The difference is the gap between
two eager kernels: 1 to 4 us for kernels of 40 us and more (H200)."""

LAUNCH_BOUND_RATIO = 1.25
"""Smallest ratio of a loop's eager time to graph time plus gap at which it is launch-bound. Its eager time is then the
time of a launch."""


@dataclass(frozen=True)
class EagerCost:
    """Expected times of the device and of the launches in an eager run of the summed operators.

    ``device_time_s`` includes gaps between kernels. ``energy_j`` is the operators' energy in graphs plus, for the rest
    of the time, the power of a device that waits for launches; None if unknown. ``assumed_ratio`` is the share of the
    launch time that is of kinds without a launch-bound loop.
    """

    device_time_s: float
    launch_time_s: float
    energy_j: float | None
    assumed_ratio: float

    @property
    def time_s(self) -> float:
        return max(self.device_time_s, self.launch_time_s)

    @property
    def is_launch_bound(self) -> bool:
        return self.launch_time_s > self.device_time_s


@dataclass(frozen=True)
class Twins:
    """Calls in an eager sum, and the same in a CUDA graph: the costs of one call, alike if on the same input data."""

    kind: str
    calls: int
    eager_s: float
    graph_s: float
    eager_j: float | None
    graph_j: float | None
    is_alike: bool


def eager_cost(cost: ModelCost, measurements: Measurements) -> EagerCost | None:
    """Return the expected cost of an eager run of summed operators.

    It is None if the sum is not of eager runs, an operator has no row in a graph, or no loop is launch-bound.

    The launch time of a kind of operator is the median of its launch-bound loops. A kind without any has the median
    over all kinds, but at most its shortest loop. The device time of a call is its eager time if that is well above the
    launch time, else its time in a graph plus one gap (an operator of several kernels has several gaps).
    """
    twins = _twins(cost, measurements)
    gaps_s = [one.eager_s - one.graph_s for one in twins if one.eager_s <= LONG_RATIO * one.graph_s]
    gap_s = max(median(gaps_s), 0.0) if gaps_s else 0.0
    waiting = [one for one in twins if one.eager_s > LAUNCH_BOUND_RATIO * (one.graph_s + gap_s)]
    if not waiting:
        return None
    known = {one.kind for one in waiting}
    launches_s: dict[str, float] = {}
    for kind in {one.kind for one in twins}:
        shortest_s = min(one.eager_s for one in twins if one.kind == kind)
        launch_s = median(one.eager_s for one in waiting if one.kind == kind or kind not in known)
        launches_s[kind] = launch_s if kind in known else min(launch_s, shortest_s)

    def on_device_s(one: Twins) -> float:
        is_longer = one.eager_s > LAUNCH_BOUND_RATIO * launches_s[one.kind]
        return one.eager_s if is_longer else min(one.eager_s, one.graph_s + gap_s)

    device_s = math.fsum(one.calls * on_device_s(one) for one in twins)
    all_launches_s = math.fsum(one.calls * launches_s[one.kind] for one in twins)
    assumed_s = math.fsum(one.calls * launches_s[one.kind] for one in twins if one.kind not in known)
    graphs_j = total_if_known(None if one.graph_j is None else one.calls * one.graph_j for one in twins)
    known_w = [
        (one.eager_j - one.graph_j) / (one.eager_s - one.graph_s)
        for one in waiting
        if one.eager_j is not None and one.graph_j is not None
    ]
    energy_j = None
    if graphs_j is not None and len(known_w) == len(waiting) and all(one.is_alike for one in twins):
        # The power of a waiting device is the additional energy of launch-bound loops over their additional time.
        rest_s = max(device_s, all_launches_s) - math.fsum(one.calls * one.graph_s for one in twins)
        energy_j = graphs_j + max(rest_s, 0.0) * max(median(known_w), 0.0)
    return EagerCost(device_s, all_launches_s, energy_j, assumed_s / all_launches_s)


def _twins(cost: ModelCost, measurements: Measurements) -> list[Twins]:
    """Return all parts with their rows in graphs; an empty list if one is missing."""
    found = []
    for part in cost.parts:
        conditions = part.row.conditions
        graph = measurements.nearest(part.case, replace(conditions, execution=GRAPH))
        if conditions.execution != EAGER or graph is None or graph.measurement.executed_as != GRAPH:
            return []
        eager, energy_of = part.row, part.basis.energy_of
        found.append(
            Twins(
                kind=part.case.operator.short_name,
                calls=part.occurrences,
                eager_s=eager.measurement.time_s,
                graph_s=graph.measurement.time_s,
                eager_j=value_of(energy_of(eager)),
                graph_j=value_of(energy_of(graph)),
                is_alike=graph.input_data == eager.input_data,
            )
        )
    return found


# Kernel times from a profiler, of each kind of operator in its model and of the same calls alone. A sum can be right
# because errors of different kinds cancel. Kernel times in the model show the error of each kind. They do not include
# gaps between kernels, so they are compared with kernel times of the operators alone.


@dataclass(frozen=True)
class KernelErrors:
    """Kernel times alone minus those in the model, as shares of all kernel time in the model.

    ``by_kind`` holds the signed share of each kind, the largest magnitude first. ``ratio`` is the sum of signed shares,
    in which errors cancel, ``absolute_ratio`` the sum of magnitudes.
    """

    by_kind: tuple[tuple[str, float], ...]

    @property
    def ratio(self) -> float:
        return math.fsum(error for _, error in self.by_kind)

    @property
    def absolute_ratio(self) -> float:
        return math.fsum(abs(error) for _, error in self.by_kind)


def kernel_key(model_key: str, conditions: Conditions) -> str:
    """Return the key of a model's rows. It does not depend on execution and cache, because kernel times do not."""
    return f"{model_key}-{replace(conditions, execution=EAGER, cache=WARM).key}"


def kernel_errors(rows: Iterable[KernelTimeRow], model_key: str, conditions: Conditions) -> KernelErrors | None:
    """Return the errors of a model's kinds by the newest rows; None if it was not profiled or one kind has no time."""
    key = kernel_key(model_key, conditions)
    newest = {row.operator: row for row in rows if row.key == key}
    whole_s = math.fsum(row.in_model_time_s for row in newest.values())
    if total_if_known(row.alone_time_s for row in newest.values()) is None or not whole_s:
        return None
    errors = [(row.operator, ((row.alone_time_s or 0.0) - row.in_model_time_s) / whole_s) for row in newest.values()]
    return KernelErrors(tuple(sorted(errors, key=lambda error: -abs(error[1]))))
