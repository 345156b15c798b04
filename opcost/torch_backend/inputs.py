"""Random inputs for operator tuples, and statistics and patterns of a model's inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import torch

from opcost.operators.input_roles import (
    INDEX_FUNCTIONS,
    PatternedInput,
    box_sides,
    described_values,
    group_ends,
    group_starts,
    integer_bounds,
    patterned_inputs,
    stored_sizes,
)
from opcost.operators.model_inputs import (
    BOUNDARIES,
    CAUSAL,
    IN_WINDOWS,
    LENGTHS,
    POSITIVE_DEFINITE,
    UNIFORM,
    USUAL_BOUND,
    ZEROS,
    values_of,
)
from opcost.operators.model_inputs import NORMAL as NORMALLY_DISTRIBUTED
from opcost.operators.tuples import (
    DEFAULT_SEED,
    META,
    REQUIRES_GRAD,
    OperatorTuple,
    PlainValue,
    TensorSpec,
    distinct_specs,
    seed_of,
)
from opcost.operators.values import NORMAL, NORMAL_DATA, USUAL, InputData, InputStatistics, InputValues, Pattern, Role
from opcost.torch_backend.values import arguments_by_name, distinct_tensors, real_value, tensors_within

MOST_ELEMENTS = 2**22
"""Inputs with more elements or of larger tables are taken as usual: they would take seconds on a CPU."""


def patterns_of(operator: OperatorTuple, args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the patterns of a call's ``patterned_inputs`` by name; empty if all are usual."""
    patterned = patterned_inputs(operator)
    if not patterned:
        return ()
    identities = (spec.identity for spec in distinct_specs(operator.arguments))
    by_identity = dict(zip(identities, distinct_tensors(args, kwargs), strict=False))
    found = [_pattern(by_identity[one.spec.identity], one) for one in patterned]
    is_usual = all(pattern is USUAL[one.role] for pattern, one in zip(found, patterned, strict=True))
    return () if is_usual else tuple(pattern.value for pattern in found)


def _pattern(tensor: torch.Tensor, given: PatternedInput) -> Pattern:
    # Expanded dimensions are stored once.
    stored = tensor[tuple(slice(None if stride else 1) for stride in tensor.stride())]
    if not 0 < stored.numel() <= MOST_ELEMENTS or given.bound > MOST_ELEMENTS:
        return USUAL[given.role]
    if given.role is Role.MASK:
        return _of_mask(stored)
    if given.role is not Role.LOADS:
        return _of_indices(stored.long(), given.bound)
    ends = stored.long()
    largest, groups = int(ends.diff(prepend=ends.new_zeros(1)).max()), ends.numel()
    # Loads are unequal if the largest is nearer to the largest of those, in proportion, than to an equal one.
    limit = given.bound * math.sqrt(1.0 / groups * float(_zipf(groups)[0]))
    return Pattern.UNEQUAL_LOADS if largest > limit else Pattern.EQUAL_LOADS


def _of_indices(indices: torch.Tensor, rows: int) -> Pattern:
    """Return the pattern whose expected number of distinct rows is nearest, by its logarithm, to that of indices."""
    flat = indices.flatten()
    distinct = torch.unique(flat).numel()
    expected = _expected_distinct(rows, flat.numel())
    nearest = min(expected, key=lambda pattern: abs(math.log(distinct / expected[pattern])))
    if nearest is Pattern.ONE_ROW:
        return nearest
    if distinct == indices.shape[-1] and bool((indices.diff(dim=-1) == 1).all()):
        return Pattern.IN_ORDER
    if bool((flat.diff() >= 0).all()):
        return Pattern.SORTED if nearest is Pattern.RANDOM else Pattern.SORTED_ZIPF
    return nearest


# Calls of a model read few tables.
@lru_cache(64)
def _expected_distinct(rows: int, draws: int) -> Mapping[Pattern, float]:
    uniform = -rows * math.expm1(draws * math.log1p(-1.0 / rows))
    zipf = -torch.expm1(draws * torch.log1p(-_zipf(rows))).sum().item()
    return {Pattern.RANDOM: uniform, Pattern.ZIPF: zipf, Pattern.ONE_ROW: 1.0}


def _zipf(ranks: int) -> torch.Tensor:
    """Return probabilities in proportion to 1/rank."""
    weights = 1.0 / torch.arange(1, ranks + 1, dtype=torch.float64)
    return weights / weights.sum()


def _of_mask(mask: torch.Tensor) -> Pattern:
    exact = [Pattern.ALL_TRUE, Pattern.ALL_FALSE]
    exact += [Pattern.CAUSAL, Pattern.NOT_CAUSAL] if mask.dim() > 1 and min(mask.shape[-2:]) > 1 else []
    for pattern in exact:
        if torch.equal(mask, _mask(mask.shape, pattern).to(mask)):
            return pattern
    before, after = mask[..., :-1], mask[..., 1:]
    if not bool((~before & after).any()):
        return Pattern.PADDING
    return Pattern.RANDOM if bool((before & ~after).any()) else Pattern.NOT_PADDING


def _mask(shape: tuple[int, ...], pattern: Pattern) -> torch.Tensor:
    if pattern in (Pattern.CAUSAL, Pattern.NOT_CAUSAL):
        causal = torch.ones(shape, dtype=torch.bool).tril()
        return causal if pattern is Pattern.CAUSAL else ~causal
    if pattern in (Pattern.PADDING, Pattern.NOT_PADDING):
        is_first_half = torch.arange(shape[-1]) < (shape[-1] + 1) // 2
        return (is_first_half if pattern is Pattern.PADDING else ~is_first_half).expand(shape)
    return torch.full(shape, pattern is Pattern.ALL_TRUE)


def _indices(shape: tuple[int, ...], rows: int, pattern: Pattern, generator: torch.Generator) -> torch.Tensor:
    if pattern is Pattern.ONE_ROW:
        return torch.full(shape, rows // 2)
    if pattern is Pattern.IN_ORDER:
        return (torch.arange(shape[-1]) % rows).expand(shape)
    if pattern is Pattern.SORTED:
        return torch.randint(rows, shape, generator=generator)
    chances = torch.rand(math.prod(shape), dtype=torch.float64, generator=generator)
    ranks = torch.searchsorted(_zipf(rows).cumsum(0), chances).clamp(max=rows - 1)
    return torch.randperm(rows, generator=generator)[ranks].reshape(shape)


SMALLEST_BOX = 16.0
"""The smallest side of a box in pixels. The smallest anchors of detectors are 32 pixels."""

BOX_COLUMNS = 4

SAMPLE_SIZE = 2**15
"""The number of sampled values of an input: it gives the share of zeros to within 0.003, in a millisecond."""

QUANTISED = (torch.qint8, torch.quint8, torch.qint32)
QUANTISED_STEP = 1 / 32
"""The step of quantised normal values, which are within 4 of 0 in 8 bits."""

UNKNOWN_STATISTICS = InputStatistics(None, None, None)


class DrawnInputs:
    """Draws seeded tensors of given shapes, dtypes and layouts; the same one for specs of equal identity.

    The same seed gives other values where they are ``drawn_on`` another device than their own, the default. ``roles``
    draw tensors whose values are not usual, by the tensors' identities.
    """

    def __init__(
        self,
        device: str,
        seed: int = DEFAULT_SEED,
        drawn_on: str | None = None,
        roles: Mapping[int, Draw] = MappingProxyType({}),
    ) -> None:
        self._device = device
        self._drawn_on = META if device == META else drawn_on or device
        self._generator = None if device == META else torch.Generator(device=self._drawn_on).manual_seed(seed)
        self._roles = roles
        self._drawn: dict[int, torch.Tensor] = {}

    def arguments(self, operator: OperatorTuple) -> tuple[tuple[object, ...], dict[str, object]]:
        keywords = operator.keyword_inputs
        return self.values(operator.inputs), {name: self.values([value])[0] for name, value in keywords}

    def values(self, values: Iterable[PlainValue]) -> tuple[object, ...]:

        def tensor(spec: TensorSpec) -> torch.Tensor:
            if spec.identity not in self._drawn:
                self._drawn[spec.identity] = self._roles.get(spec.identity, DrawnInputs.usual)(self, spec)
            return self._drawn[spec.identity]

        return tuple(real_value(value, self._device, tensor) for value in values)

    def usual(self, spec: TensorSpec, values: InputValues = NORMAL, bound: int = USUAL_BOUND) -> torch.Tensor:
        """Draw normal values of a kind, or integers below an upper bound."""
        elements, strides = spec.stored_elements, spec.all_strides
        dtype: torch.dtype = getattr(torch, spec.dtype)
        if dtype in QUANTISED:
            drawn = torch.randn(elements, device=self._drawn_on, generator=self._generator)
            buffer = torch.quantize_per_tensor(drawn, QUANTISED_STEP, 0, dtype)
        elif dtype.is_floating_point or dtype.is_complex:
            buffer = self._normal(elements, dtype, values)
        else:
            # An empty table has an empty index.
            buffer = torch.randint(max(1, bound), (elements,), device=self._drawn_on, generator=self._generator).to(
                dtype
            )
        return buffer.to(self._device).as_strided(spec.shape, strides)

    def _normal(self, elements: int, dtype: torch.dtype, values: InputValues) -> torch.Tensor:
        if self._drawn_on == META:
            # Without values nothing is drawn: on shapes a draw takes longer than most operators.
            return torch.empty(elements, dtype=dtype, device=META)
        # No numbers of 8 bits can be drawn.
        drawn = torch.float32 if dtype.itemsize == 1 else dtype
        buffer = torch.randn(elements, dtype=drawn, device=self._drawn_on, generator=self._generator)
        if values != NORMAL:
            buffer.mul_(values.spread).add_(values.mean)
        if values.zeros_ratio:
            chances = torch.rand(elements, device=self._drawn_on, generator=self._generator)
            buffer.masked_fill_(chances < values.zeros_ratio, 0.0)
        return buffer.to(dtype)

    def patterned(self, spec: TensorSpec, given: PatternedInput, pattern: Pattern) -> torch.Tensor:
        """Draw an input with a pattern that is not usual."""
        shape = stored_sizes(spec)
        if self._generator is None:
            return self._laid_out(spec, torch.empty(spec.shape, device=META))
        with torch.device(self._drawn_on):
            if given.role is Role.MASK:
                drawn = _mask(shape, pattern)
            elif given.role is Role.LOADS:
                drawn = (_zipf(math.prod(shape)).cumsum(0) * given.bound).long()
                drawn[-1] = given.bound
            else:
                drawn = _indices(shape, given.bound, pattern, self._generator)
        if pattern in (Pattern.SORTED, Pattern.SORTED_ZIPF):
            drawn = drawn.flatten().sort().values
        return self._laid_out(spec, drawn.reshape(shape).expand(spec.shape))

    def groups(self, spec: TensorSpec, first: int, end: int) -> torch.Tensor:
        """Return the ends of equal groups, or their starts if ``first`` is 0."""
        groups = torch.arange(first, first + spec.elements, device=self._device) * end // spec.elements
        return groups.to(getattr(torch, spec.dtype)).reshape(spec.shape)

    def described(self, spec: TensorSpec, values: Any) -> torch.Tensor:
        """Return values that a config or a function prescribes (``operators.model_inputs``)."""
        kind, first, end = values if isinstance(values, tuple) else (values, 0, 0)
        if kind == UNIFORM:
            drawn = torch.rand(spec.shape, device=self._drawn_on, generator=self._generator)
            drawn = drawn.mul(end - first).add(first)
        elif kind in (LENGTHS, BOUNDARIES):
            number = spec.shape[-1] - int(kind == BOUNDARIES)
            boundaries: torch.Tensor = torch.arange(number + 1) * end // max(number, 1)
            drawn = (boundaries.diff() if kind == LENGTHS else boundaries).expand(spec.shape)
        elif kind == IN_WINDOWS:
            drawn = torch.zeros((), dtype=torch.int64)
            for (step, parts, offset), size, pooled in zip(first, end, spec.shape[-len(end) :], strict=True):
                places = (torch.arange(pooled) * step // parts + offset).clamp(max=size - 1)
                drawn = drawn.unsqueeze(-1) * size + places
            drawn = drawn.expand(spec.shape)
        elif isinstance(values, tuple):
            drawn = torch.randint(first, end, spec.shape, device=self._drawn_on, generator=self._generator)
        elif values == ZEROS:
            drawn = torch.zeros(spec.shape, device=self._drawn_on)
        elif values == POSITIVE_DEFINITE:
            factor = torch.randn(spec.shape, device=self._drawn_on, generator=self._generator)
            drawn = factor @ factor.mT + torch.eye(spec.shape[-1], device=self._drawn_on)
        else:
            drawn = torch.ones(spec.shape, device=self._drawn_on)
            drawn = drawn.tril() if values == CAUSAL else drawn
            if values == CAUSAL and getattr(torch, spec.dtype).is_floating_point:
                drawn = torch.log(drawn)
        return self._laid_out(spec, drawn)

    def _laid_out(self, spec: TensorSpec, drawn: torch.Tensor) -> torch.Tensor:
        strides = spec.all_strides
        # Expanded dimensions are stored once.
        sizes = stored_sizes(spec)
        stored = torch.empty_strided(sizes, strides, dtype=getattr(torch, spec.dtype), device=self._device)
        return stored.copy_(drawn[tuple(map(slice, sizes))]).expand(spec.shape)

    def boxes(self, spec: TensorSpec, side: float) -> torch.Tensor:
        """Draw boxes in an image of a side in pixels: left, top, right, bottom; of five columns, the first is zero.

        Centres are uniformly distributed over the image, heights and widths over orders of magnitude, as in detectors.
        """
        rows = spec.shape[0]
        drawn = torch.rand((4, rows), device=self._drawn_on, generator=self._generator)
        sizes = SMALLEST_BOX * (side / SMALLEST_BOX) ** drawn[2:]
        begins = (drawn[:2] * side - sizes / 2).clamp(0, side)
        ends = (drawn[:2] * side + sizes / 2).clamp(0, side)
        numbers = torch.zeros((spec.shape[1] - BOX_COLUMNS, rows), device=self._drawn_on)
        boxes = torch.cat([numbers, begins, ends]).t().contiguous()
        return boxes.to(device=self._device, dtype=getattr(torch, spec.dtype))


Draw: TypeAlias = Callable[[DrawnInputs, TensorSpec], torch.Tensor]


def _described(values: Iterable[tuple[int, PlainValue]]) -> dict[int, Draw]:
    described = ((identity, value) for identity, value in values if value != NORMALLY_DISTRIBUTED)
    return {identity: partial(DrawnInputs.described, values=value) for identity, value in described}


def operator_inputs(
    operator: OperatorTuple, device: str, data: InputData = NORMAL_DATA
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return arguments for an operator tuple with valid indices; a CannotMeasureError if one cannot be made again."""
    patterned = zip(patterned_inputs(operator), data.patterns, strict=False)
    # Of several roles of one tensor, the last is drawn.
    roles: dict[int, Draw] = {}
    roles |= {identity: partial(DrawnInputs.usual, bound=bound) for identity, bound in integer_bounds(operator)}
    for index, spec in enumerate(operator.floating_inputs):
        roles[spec.identity] = partial(DrawnInputs.usual, values=data.kind(index))
    roles |= _described(described_values(operator))
    for first, ends in ((1, group_ends), (0, group_starts)):
        roles |= {identity: partial(DrawnInputs.groups, first=first, end=end) for identity, end in ends(operator)}
    roles |= {identity: partial(DrawnInputs.boxes, side=side) for identity, side in box_sides(operator)}
    for one, pattern in patterned:
        if pattern is not USUAL[one.role]:
            roles[one.spec.identity] = partial(DrawnInputs.patterned, given=one, pattern=pattern)
    args, keywords = DrawnInputs(device, roles=roles).arguments(operator)
    if operator.short_name in INDEX_FUNCTIONS and isinstance(args[1], list):
        args = (args[0], tuple(args[1]), *args[2:])
    place = dict(operator.parameters).get(REQUIRES_GRAD)
    if isinstance(place, int):
        cast(torch.Tensor, args[place]).requires_grad_()
    return args, keywords


SAVED_AS = MappingProxyType(
    {"output": "out", "log_sumexp": "logsumexp", "rng_state": "philox_seed", "unused": "philox_offset"}
)
"""Names of what an attention's forward returns, and those of its backward's arguments."""


@dataclass(frozen=True, eq=False)
class WithSeeds:
    """A function whose seeds, by their places, are on the host, or on the GPU while a CUDA graph is captured.

    A kernel of the attention reads them from where a run would have them; elsewhere the process ends.
    """

    function: Callable[..., object]
    captured: Mapping[int, torch.Tensor]

    def __call__(self, *args: object, **kwargs: object) -> object:
        # The function of torch.cuda says no during captures, so that models run as they were counted.
        if torch._C._cuda_isCurrentStreamCapturing():
            args = tuple(self.captured.get(place, value) for place, value in enumerate(args))
        return self.function(*args, **kwargs)


def after_forward(
    function: Any, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[Callable[..., object], tuple[object, ...]]:
    """Return an attention's backward with its arguments, among which are what its forward saves for it."""
    forward: Any = getattr(torch.ops.aten, function.__name__.removesuffix("_backward")).default
    given = {**arguments_by_name(function.default, args, dict(kwargs)), "compute_log_sumexp": True}
    taken = {one.name: given[one.name] for one in forward._schema.arguments if one.name in given}
    with torch.no_grad():
        results = forward(**taken)
    names = [SAVED_AS.get(one.name, one.name) for one in forward._schema.returns]
    saved = {name: result for name, result in zip(names, results, strict=True) if isinstance(result, torch.Tensor)}
    ready, captured = list(args), dict[int, torch.Tensor]()
    for place, (argument, drawn) in enumerate(zip(function.default._schema.arguments, args, strict=False)):
        result = saved.get(argument.name)
        if result is None or not isinstance(drawn, torch.Tensor):
            continue
        # The sums may be padded beyond their shape, so they are no copies.
        ready[place] = result
        if result.device != drawn.device:
            captured[place] = result.to(drawn.device)
    return WithSeeds(function, captured) if captured else function, tuple(ready)


def model_inputs(
    model: OperatorTuple, device: str, values: Mapping[int, PlainValue]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return arguments of a whole model, drawn on the CPU for equal work; ``values`` are more, by identities."""
    roles = _described({**values, **values_of(model)}.items())
    return DrawnInputs(device, seed_of(model), "cpu", roles).arguments(model)


def input_statistics(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[InputStatistics, ...]:
    """Return the statistics of each distinct floating-point tensor of a call, in the order of the call's specs."""
    values = [*args, *(value for _, value in sorted(kwargs.items()))]
    tensors = {id(tensor): tensor for tensor in tensors_within(values) if tensor.is_floating_point()}
    return tuple(map(_statistics, tensors.values()))


def _statistics(tensor: torch.Tensor) -> InputStatistics:
    """Return the statistics of all values of a tensor, or of a random sample at the same positions each time."""
    try:
        if tensor.numel() > SAMPLE_SIZE:
            generator = torch.Generator(tensor.device).manual_seed(DEFAULT_SEED)
            draw = partial(torch.randint, size=(SAMPLE_SIZE,), device=tensor.device, generator=generator)
            index = tuple(draw(high=size) for size in tensor.shape)
            # torch cannot index one-byte floats.
            is_small = tensor.itemsize == 1
            tensor = tensor.view(torch.uint8)[index].view(tensor.dtype) if is_small else tensor[index]
        values = tensor.to(torch.float64)
        if not values.numel():
            return UNKNOWN_STATISTICS
        found = [value.item() for value in torch.std_mean(values, correction=0)]
        spread, mean = (value if math.isfinite(value) else None for value in found)
        zeros = values.numel() - int(torch.count_nonzero(values))
        return InputStatistics(zeros / values.numel(), mean, spread)
    except (RuntimeError, ValueError):
        # torch cannot read values of some tensors, such as 4-bit floats.
        return UNKNOWN_STATISTICS
