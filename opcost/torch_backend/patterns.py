"""Patterns of indices, masks and loads: of the inputs of a model's calls, and drawn for an operator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import torch

from opcost.operators.input_roles import PatternedInput, patterned_inputs, stored_sizes
from opcost.operators.patterns import USUAL, Pattern, Role
from opcost.operators.tuples import OperatorTuple, tensor_specs
from opcost.torch_backend.values import tensors_within

MOST_ELEMENTS = 2**22
"""Inputs with more elements or of larger tables are taken as usual: they would take seconds on a CPU."""


TABLES_KEPT = 64
"""The expectations that are kept: calls of a model read few tables."""


def patterns_of(operator: OperatorTuple, args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the patterns of a call's ``patterned_inputs`` by name; empty if all are usual."""
    patterned = patterned_inputs(operator)
    if not patterned:
        return ()
    values = [*args, *(value for _, value in sorted(kwargs.items()))]
    specs = tensor_specs([*operator.inputs, *(value for _, value in operator.keyword_inputs)])
    tensors = {id(tensor): tensor for tensor in tensors_within(values)}.values()
    by_identity = dict(zip(dict.fromkeys(spec.identity for spec in specs), tensors, strict=False))
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
    return (_of_loads if given.role is Role.LOADS else _of_indices)(stored.long(), given.bound)


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


@lru_cache(TABLES_KEPT)
def _expected_distinct(rows: int, draws: int) -> Mapping[Pattern, float]:
    uniform = -rows * math.expm1(draws * math.log1p(-1.0 / rows))
    zipf = -torch.expm1(draws * torch.log1p(-_zipf(rows))).sum().item()
    return {Pattern.RANDOM: uniform, Pattern.ZIPF: zipf, Pattern.ONE_ROW: 1.0}


def _zipf(ranks: int) -> torch.Tensor:
    """Return probabilities in proportion to 1/rank."""
    weights = 1.0 / torch.arange(1, ranks + 1, dtype=torch.float64)
    return weights / weights.sum()


def _of_mask(mask: torch.Tensor) -> Pattern:
    if bool(mask.all()):
        return Pattern.ALL_TRUE
    if not bool(mask.any()):
        return Pattern.ALL_FALSE
    if mask.dim() > 1 and min(mask.shape[-2:]) > 1:
        causal = mask.new_ones(mask.shape).tril()
        if torch.equal(mask, causal) or torch.equal(mask, ~causal):
            return Pattern.CAUSAL if bool(mask[(0,) * mask.dim()]) else Pattern.NOT_CAUSAL
    before, after = mask[..., :-1], mask[..., 1:]
    if not bool((~before & after).any()):
        return Pattern.PADDING
    return Pattern.RANDOM if bool((before & ~after).any()) else Pattern.NOT_PADDING


def _of_loads(ends: torch.Tensor, last: int) -> Pattern:
    """Return unequal loads if the largest is nearer to the largest of those, in proportion, than to an equal one."""
    largest = int(ends.diff(prepend=ends.new_zeros(1)).max())
    groups = ends.numel()
    limit = last * math.sqrt(1.0 / groups * float(_zipf(groups)[0]))
    return Pattern.UNEQUAL_LOADS if largest > limit else Pattern.EQUAL_LOADS


def drawn_pattern(given: PatternedInput, pattern: Pattern, generator: torch.Generator | None) -> torch.Tensor:
    """Draw an input with a pattern that is not usual, on the generator's device (shapes only without one)."""
    shape = stored_sizes(given.spec)
    if generator is None:
        return torch.empty(given.spec.shape, device="meta")
    with torch.device(generator.device):
        if given.role is Role.MASK:
            drawn = _mask(shape, pattern)
        elif given.role is Role.LOADS:
            last = given.bound
            ends = (_zipf(math.prod(shape)).cumsum(0) * last).long()
            ends[-1] = last
            drawn = ends.reshape(shape)
        else:
            drawn = _indices(shape, given.bound, pattern, generator)
    if pattern in (Pattern.SORTED, Pattern.SORTED_ZIPF):
        drawn = drawn.flatten().sort().values.reshape(shape)
    return drawn.expand(given.spec.shape)


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
