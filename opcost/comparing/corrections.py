"""Corrections of a sum of operators: by what calls find in caches, and by the power limit.

Cache corrections are by the kind of operators, the bytes that they move and the bytes of their weights.

In a loop of itself a Linear finds its weights in the cache. In a model they come from memory, because all other layers
ran in between. How much longer that takes depends on the kernel, from nothing to three quarters of the call for one
matrix (``docs/log/cache.md``). So each such operator is measured both ways, and corrected by its own difference.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import TypeAlias

from opcost.estimates import Estimate, combined, sum_of_independent, total_if_known
from opcost.measuring.conditions import COLD, GRAPH, STATE, WARM, Conditions, precision_dtype
from opcost.measuring.flags import Flag
from opcost.measuring.loop import HARDLY_THROTTLED_RATIO
from opcost.measuring.protocol import RETRIES
from opcost.measuring.record import (
    ChainRow,
    Excess,
    MeasurementRow,
    does_other_work,
    is_doubtful,
    may_be_throttled,
    ran_as_requested,
    time_of,
)
from opcost.operators.cache_chains import (
    ADDITION,
    CHANNELS,
    COARSE_SIDES,
    DEPTHWISE,
    ELEMENTWISE,
    FILTER,
    FORMS,
    KINDS,
    LARGE_WIDTH,
    LAYER_KINDS,
    LAYER_NORM,
    LINEAR,
    MATRIX,
    NORM,
    SHORTER_STREAMS,
    SIDES,
    SIXTEEN_BITS,
    SMALL_SIDES,
    STREAM_BYTES,
    WIDE_LINEAR,
    WIDTH,
    Chain,
    chains_of,
    layer_chains,
)
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import DTYPE, FLOAT32, OperatorTuple, TensorSpec, tensor_specs
from opcost.summing.summation import Measurements, ModelCost, common_basis, totals

WHOLE_RATIO = 0.75
"""Share of a kind's sizes that must be known for a curve, of those that were tried."""

ATTENTION = "scaleddotproductattention"
NORMS_OF_TOKENS = ("layernorm", "layernorm2d", "rmsnorm")
NORMS_WITHOUT_WEIGHTS = ("norm", "normalize")

WITH_WEIGHTS = ("linear", "conv", "addmm", "baddbmm")
"""Prefixes of the names of functions that take weights as inputs."""


MATRICES = {MATRIX: CHANNELS, LINEAR: WIDTH, WIDE_LINEAR: LARGE_WIDTH}
"""The kinds of chains of square matrices with their widths, the smallest first."""

ITEM_BYTES = {FLOAT32: 4, SIXTEEN_BITS: 2}

WEIGHT_PLACES = {"linear": 1, "addmm": 2}
"""Functions that multiply by one matrix, with the place of the matrix among their floating-point inputs."""


def kind_of(count: OperatorCount) -> str:
    """Return the kind of chain whose correction applies to an operator.

    An operator of unknown FLOPs has that of one without products; ``remarks`` remarks on it. Attention has no weights,
    so it has that of elementwise operators, too.
    """
    operator, name = count.operator, count.operator.short_name.lower()
    shapes = [tensor.shape for tensor in operator.floating_inputs]
    bare = name.replace("_", "")
    if bare == ATTENTION:
        return ELEMENTWISE
    if not count.flop:
        if "norm" in bare and bare not in NORMS_WITHOUT_WEIGHTS:
            return LAYER_NORM if bare in NORMS_OF_TOKENS else NORM
        return ADDITION if bare == "add" and len(shapes) == 2 and shapes[0] == shapes[1] else ELEMENTWISE
    if "conv" not in name:
        return MATRIX
    if not name.startswith("conv") or "transpose" in name:
        return FILTER
    channels, inputs, widths = _filters(operator)
    is_pointwise = inputs == channels and set(widths) == {1}
    return DEPTHWISE if inputs == 1 < channels else MATRIX if is_pointwise else FILTER


def _filters(operator: OperatorTuple) -> tuple[int, int, Sequence[int]]:
    """Return a convolution's input channels, the channels of each filter, and the filter's widths; 0 if unknown."""
    if operator.is_function:
        # The second input has the shape (filters, channels of each filter, *widths).
        shapes = [tensor.shape for tensor in tensor_specs(operator.inputs)]
        if len(shapes) < 2 or not 3 <= len(shapes[1]) <= len(shapes[0]) + 1:
            return 0, 0, ()
        images, (_, inputs, *sides) = shapes[0], shapes[1]
        return images[-1 - len(sides)], inputs, sides
    parameters = {"groups": 1, **dict(operator.parameters)}
    channels, groups, width = (parameters.get(name) for name in ("in_channels", "groups", "kernel_size"))
    widths = [side for side in (width if isinstance(width, tuple) else (width,)) if isinstance(side, int)]
    if not isinstance(channels, int) or not isinstance(groups, int):
        return 0, 0, widths
    return channels, channels // groups, widths


def moved_bytes(count: OperatorCount) -> int:
    """Return the position of a call on its curve in bytes: all that it moves, for known products without weights."""
    if not count.flop:
        return count.memory_bytes
    name, inputs = count.operator.short_name, count.operator.floating_inputs
    if count.operator.is_function and name.startswith(WITH_WEIGHTS):
        # The first input of addmm is the summand.
        inputs = inputs[1:2] if "add" in name else inputs[:1]
    tensors = [*inputs, *tensor_specs([count.outputs])]
    return sum(tensor.floating_bytes for tensor in tensors) or count.memory_bytes


@dataclass(frozen=True)
class Curve:
    """The correction of one call of a kind as a function of its bytes.

    ``points`` are ordered by bytes. The correction is linear in the logarithm of bytes between points, and constant
    beyond them.
    """

    points: tuple[tuple[int, Excess], ...]

    def shares(self, memory_bytes: int) -> Mapping[int, float]:
        return shares_between([size for size, _ in self.points], memory_bytes)

    def at(self, memory_bytes: int) -> Excess:
        shares = self.shares(memory_bytes)
        return _mean([(self.points[place][1], share) for place, share in shares.items()])


Curves: TypeAlias = Mapping[str, Curve]
"""A curve for each kind of operator."""


@dataclass(frozen=True)
class Corrections:
    """The cache corrections of a card.

    ``curves`` are those of models that move more than ``STREAM_BYTES``. ``shorter`` has those behind shorter streams,
    with the bytes of each stream, the shortest first; it is empty if they are unknown. ``dtype`` is that of the chains.
    Curves of ``LAYER_KINDS`` may be unknown; behind shorter streams they are those of their stand-ins.
    ``of_weights`` has what calls of some products take longer with weights from memory. These are corrected by it, and
    for their code as the smallest elementwise operator is; no curve applies.
    """

    curves: Curves
    shorter: tuple[tuple[int, Curves], ...] = ()
    dtype: str = FLOAT32
    of_weights: Mapping[OperatorTuple, Excess] = field(default_factory=dict)

    def in_model(self, moved_bytes: int) -> Corrections | None:
        """Return the corrections in a model that moves a number of bytes, None if unknown.

        A model that moves less than ``STREAM_BYTES`` leaves in caches as much as a stream of that length does. Between
        two streams the correction is linear in the logarithm of their length, and constant below the shortest one.
        """
        if moved_bytes > STREAM_BYTES:
            return self
        if not self.shorter:
            return None
        streams = (*self.shorter, (STREAM_BYTES, self.curves))
        shares = shares_between([stream_bytes for stream_bytes, _ in streams], moved_bytes)
        if len(shares) == 1:
            curves = streams[next(iter(shares))][1]
        else:
            curves = {}
            for kind in self.curves:
                parts = [(dict(streams[place][1][kind].points), share) for place, share in shares.items()]
                # At the sizes that all have; points that they share keep their error.
                sizes = sorted(set.intersection(*(set(points) for points, _ in parts)))
                points = [(size, _mean([(known[size], share) for known, share in parts])) for size in sizes]
                curves[kind] = Curve(tuple(points))
        # It is unknown how much of the weights a shorter stream leaves in caches.
        return replace(self, curves=curves, shorter=(), of_weights={})

    def of(self, counts: Iterable[OperatorCount]) -> Excess:
        """Return the correction of all calls of these operators. Calls share the errors of the chains' points."""
        weights: dict[tuple[str, int], float] = {}
        terms = []
        for count in counts:
            of_weights = self.of_weights.get(count.operator)
            if of_weights is None:
                shares = {
                    (kind, point): part * share
                    for kind, part in self._kinds_of(count).items()
                    for point, share in self.curves[kind].shares(moved_bytes(count)).items()
                }
            else:
                terms.append(of_weights.times(count.occurrences))
                shares = {(ELEMENTWISE, 0): 1.0}
            for place, share in shares.items():
                weights[place] = weights.get(place, 0.0) + share * count.occurrences
        terms += [self.curves[kind].points[point][1].times(weight) for (kind, point), weight in weights.items()]
        return pooled(terms, sum_of_independent)

    def missing_kinds(self, counts: Iterable[OperatorCount]) -> tuple[str, ...]:
        """Return the kinds on tokens of these calls whose stand-in corrects them, because they are not measured."""
        missing = {chain.kind for chain in layer_chains(self.dtype)} - self.curves.keys()
        others = (count for count in counts if count.computes and count.operator not in self.of_weights)
        wanted = {kind for count in others for kind in (MATRICES if _weight_bytes(count) else (kind_of(count),))}
        return tuple(kind for kind in LAYER_KINDS if kind in missing & wanted)

    def _kinds_of(self, count: OperatorCount) -> Mapping[str, float]:
        """Return the kinds of chains that a call is corrected by, with their weights; none if it computes nothing.

        A product with a matrix lies between chains of smaller and larger matrices, by the logarithm of their bytes.
        """
        if not count.computes:
            return {}
        weight_bytes = _weight_bytes(count)
        if weight_bytes:
            kinds = [one for one in MATRICES if one in self.curves]
            sizes = [MATRICES[one] ** 2 * ITEM_BYTES[self.dtype] for one in kinds]
            return {kinds[place]: share for place, share in shares_between(sizes, weight_bytes).items()}
        kind = kind_of(count)
        return {kind if kind in self.curves else FORMS[kind].stand_in or kind: 1.0}


def _weight_bytes(count: OperatorCount) -> int | None:
    """Return the bytes of the matrix of a product that chains of matrices correct, None for other calls."""
    return matrix_bytes(count.operator) if kind_of(count) == MATRIX else None


def corrections_under(rows: Iterable[ChainRow], conditions: Conditions) -> Corrections | None:
    """Return the corrections for a card with its software; repeated measurements are averaged.

    They are None unless each of ``COARSE_SIDES`` was measured or finally refused, the smallest and the largest size of
    each kind were measured, and few were refused: half a curve makes sums worse. They are those of chains in the dtype
    of the precision, else those of chains in fp32. TF32 or fp32 does not matter, because the cost of fetching data does
    not depend on it.
    """
    if not is_corrected(conditions):
        return None
    rows = of_the_same_card(rows, conditions)
    found = (_corrections(rows, dtype) for dtype in dict.fromkeys((chain_dtype(conditions.precision), FLOAT32)))
    return next((one for one in found if one is not None), None)


def _corrections(rows: Sequence[ChainRow], dtype: str) -> Corrections | None:
    missing = missing_sides(rows, dtype)
    if not set(COARSE_SIDES).isdisjoint(missing):
        return None
    tried = [chain for side in SIDES if side not in missing for chain in chains_of(side, dtype=dtype)]
    curves = _whole_curves(rows, tried)
    if not curves.keys() >= set(KINDS):
        return None
    curves |= _whole_curves(rows, layer_chains(dtype))
    return Corrections(curves, _behind_shorter_streams(rows, curves, dtype), dtype)


def _whole_curves(rows: Iterable[ChainRow], chains: Sequence[Chain]) -> dict[str, Curve]:
    """Return the curves of kinds of which the smallest, the largest and most of all sizes are known."""
    curves = {}
    for kind, known in _excesses(rows, chains).items():
        sizes = [chain.memory_bytes for chain in chains if chain.kind == kind]
        if known.keys() >= {min(sizes), max(sizes)} and len(known) >= WHOLE_RATIO * len(sizes):
            curves[kind] = _curve(known)
    return curves


def _excesses(rows: Iterable[ChainRow], chains: Sequence[Chain]) -> dict[str, dict[int, list[Excess]]]:
    wanted = {(chain.kind, chain.design, chain.memory_bytes) for chain in chains}
    found: dict[str, dict[int, list[Excess]]] = {chain.kind: {} for chain in chains}
    for row in rows:
        if row.excess is not None and (row.kind, row.design, row.memory_bytes) in wanted:
            found[row.kind].setdefault(row.memory_bytes, []).append(row.excess)
    return found


def _behind_shorter_streams(rows: Sequence[ChainRow], full: Curves, dtype: str) -> tuple[tuple[int, Curves], ...]:
    """Return the curves behind each shorter stream, the shortest first; none unless all of their chains were measured.

    Larger images evict from caches themselves what a shorter stream leaves: their points are those of the full stream.
    Kinds on tokens have their stand-in's values at their own small sizes.
    """
    behind = []
    for stream in SHORTER_STREAMS:
        chains = [chain for side in SMALL_SIDES for chain in chains_of(side, stream_elements=stream, dtype=dtype)]
        small = {kind: _curve(by_size) for kind, by_size in _excesses(rows, chains).items()}
        if sum(len(curve.points) for curve in small.values()) < len(chains):
            return ()
        largest = max(chain.memory_bytes for chain in chains)
        curves: dict[str, Curve] = {}
        for kind, curve in full.items():
            stand_in = FORMS[kind].stand_in
            points = small[kind].points if stand_in is None else ()
            if stand_in is not None:
                sizes = (size for size, _ in curve.points if size <= largest)
                points = tuple((size, small[stand_in].at(size)) for size in sizes)
            curves[kind] = Curve((*points, *(point for point in curve.points if point[0] > largest)))
        behind.append((chains[0].stream_bytes, curves))
    return tuple(behind)


def _curve(by_size: Mapping[int, Sequence[Excess]]) -> Curve:
    return Curve(tuple((size, pooled(excesses, combined)) for size, excesses in sorted(by_size.items())))


def _mean(parts: Sequence[tuple[Excess, float]]) -> Excess:
    """Return the weighted mean of corrections; the weights are a whole."""
    first = parts[0][0]
    if all(excess is first for excess, _ in parts):
        return first
    return pooled([excess.times(share) for excess, share in parts], sum_of_independent)


def shares_between(sizes: Sequence[int], size: int) -> Mapping[int, float]:
    """Return the indices of the sizes next to one, with their weights by the logarithm; the nearest beyond the ends.

    The sizes are ordered and above 0.
    """
    upper = bisect_right(sizes, size)
    if upper in (0, len(sizes)):
        return {max(upper - 1, 0): 1.0}
    share = math.log(size / sizes[upper - 1]) / math.log(sizes[upper] / sizes[upper - 1])
    return {upper - 1: 1 - share, upper: share}


# Products with a matrix, each measured with its weights in the cache and from memory


def matrix_bytes(operator: OperatorTuple) -> int | None:
    """Return the bytes of the weights of a product with one matrix, such as a Linear; None for other operators."""
    name, tensors = operator.short_name.lower(), operator.floating_inputs
    if operator.is_function:
        place = WEIGHT_PLACES.get(name, len(tensors))
        return tensors[place].floating_bytes if place < len(tensors) else None
    parameters = dict(operator.parameters)
    inputs, outputs = parameters.get("in_features"), parameters.get("out_features")
    if name != "linear" or not isinstance(inputs, int) or not isinstance(outputs, int):
        return None
    return TensorSpec((inputs, outputs), str(parameters.get(DTYPE, FLOAT32))).floating_bytes


def excesses_from_memory(
    counts: Iterable[OperatorCount], measurements: Measurements, conditions: Conditions
) -> Mapping[OperatorTuple, Excess]:
    """Return how much longer a call of each operator takes with weights from memory than in the cache.

    Operators that were not measured both ways on one board, on the same input data and at full clocks are left out.
    ``conditions`` are those of the rows with weights in the cache.
    """
    if not is_corrected(conditions):
        return {}
    cold = replace(conditions, cache=COLD)
    found = {}
    for count in counts:
        if matrix_bytes(count.operator) is None:
            continue
        pairs = [
            (warm, from_memory)
            for from_memory in filter(_is_full_speed, measurements.all_under(count, cold))
            for warm in filter(_is_full_speed, measurements.all_under(count, conditions))
            if warm.input_data == from_memory.input_data
            and warm.circumstances.device_uuid == from_memory.circumstances.device_uuid
            # Without its energy a pair would take that of the whole correction.
            and (warm.measurement.energy_j is None or from_memory.measurement.energy_j is not None)
        ]
        if pairs:
            calls = Counter({str(data): number for data, number in count.captured_data.items()})
            # Of equals the last: that of the preferred board.
            warm, from_memory = max(reversed(pairs), key=lambda pair: calls[pair[0].input_data])
            basis = common_basis([warm, from_memory])
            warm_j, cold_j = basis.energy_of(warm), basis.energy_of(from_memory)
            energy_j = None if warm_j is None or cold_j is None else cold_j.less(warm_j)
            found[count.operator] = Excess(time_of(from_memory).less(time_of(warm)), energy_j)
    return found


def _is_full_speed(row: MeasurementRow) -> bool:
    """Return whether a row ran as requested, at full clocks, as counted, and without a flag that casts doubt on it."""
    measured = row.measurement
    is_refused = is_doubtful(row) or may_be_throttled(measured) or Flag.RAN_WARM in measured.flags
    return ran_as_requested(row) and not is_refused and not does_other_work(measured)


def pooled(excesses: Sequence[Excess], pool: Callable[[Sequence[Estimate]], Estimate]) -> Excess:
    """Pool times and energies; the energy is None if any is."""
    energies_j = [excess.energy_j for excess in excesses if excess.energy_j is not None]
    is_known = len(energies_j) == len(excesses)
    return Excess(pool([excess.time_s for excess in excesses]), pool(energies_j) if is_known else None)


def is_corrected(conditions: Conditions) -> bool:
    """Return whether sums under these conditions need a cache correction: in graphs, with warm caches.

    Eager runs are launch-bound so often that cache effects are negligible.
    """
    return conditions.execution == GRAPH and conditions.cache == WARM


def is_in_state(conditions: Conditions) -> bool:
    """Return whether operators under these conditions are summed in the state of their model."""
    return conditions.execution == GRAPH and conditions.cache == STATE


def missing_sides(rows: Iterable[ChainRow], dtype: str = FLOAT32) -> list[int]:
    """Return the sides of chains on images in a dtype that were neither measured nor refused ``RETRIES.runs`` times."""
    attempts = Counter(((row.kind, row.memory_bytes, row.design), row.time_s is None) for row in rows)
    done = {key for (key, was_refused), times in attempts.items() if times >= RETRIES.runs or not was_refused}
    wanted = {
        side: {(one.kind, one.memory_bytes, one.design) for one in chains_of(side, dtype=dtype)} for side in SIDES
    }
    return [side for side, chains in wanted.items() if not chains <= done]


def of_the_same_card(rows: Iterable[ChainRow], conditions: Conditions) -> list[ChainRow]:
    """Return the rows of the same card with the same software."""
    versions = ("driver_version", "torch_version", "cuda_version", "cudnn_version")
    card = attrgetter("device_product", *versions, "execution")
    return [row for row in rows if card(row.conditions) == card(conditions)]


def chain_dtype(precision: str) -> str:
    """Return the dtype of the chains by which sums in a precision are corrected.

    Chains in bfloat16 stand for all 16-bit dtypes: what a call finds in caches depends on its bytes.
    """
    return FLOAT32 if precision_dtype(precision) == FLOAT32 else SIXTEEN_BITS


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
    is_known = (is_corrected(conditions) or is_in_state(conditions)) and conditions.device_product in CARDS
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
    return loads_with((part.time_s, part.energy_j, part.count) for part in cost.parts)


def loads_with(costs: Iterable[tuple[float, float | None, OperatorCount]]) -> list[Load] | None:
    """Return calls by their time in s and energy in J; None if an energy is unknown."""
    found = []
    for time_s, energy_j, count in costs:
        if energy_j is None:
            return None
        found.append(Load(time_s, energy_j, PRODUCTS if count.flop else OTHERS))
    return found


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


# Errors of corrected sums

METHOD_ERROR_RATIOS: Mapping[str, float] = MappingProxyType({"time": 0.015, "energy": 0.026})
"""The standard error of the method itself, as a share of a corrected sum of ``time`` or ``energy``.

It is what sums in state are off from wholes beyond the errors of rows: the root of the mean of (ratio - 1)^2 - (its
standard error)^2 for fourteen held-back models on two H200s (``docs/log/states.md``), of which nine take less than 3
ms. Sums of larger models that chains correct are closer: 0.64 % and 1.03 % for the 87 in ``sum_vs_full.csv``.
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
