"""Kinds of values of an operator's inputs, as far as they affect the cost (``docs/log/values.md``).

Energy falls with the share of zeros, by up to a third on an H200 (except for SiLU, which has a longer path for zeros).
Constants cost less than normal values and more than zeros. Exponentials of values beyond a dozen take a longer path.
Smaller spreads and the sign have no effect. A mean of up to 64 times the spread changes energy by a few percent.

On an H100 with repeated indices a gather takes down to half of its time, a sum over indices up to two hundred times.
With a mask that is the same over long runs ``where`` takes a fifth less. Unequal loads of experts cost 8 % more.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache
from typing import Annotated

from opcost.columns import SHARE, between

PATTERNS_PREFIX = "; patterns "
"""The beginning of the part of a text of input data that names patterns: ``; patterns zipf``."""


class Role(Enum):
    """The meaning of an integer or boolean input."""

    INDEX = "index"
    MASK = "mask"
    LOADS = "loads"


class Pattern(Enum):
    """A pattern of the values of one such input. Tables hold its value.

    ``ZIPF`` are indices of which the one of rank r is drawn with a probability in proportion to 1/r, as words of texts.
    ``IN_ORDER`` are indices that grow by one along the last dimension, the same in each row, as positions are. A mask
    with ``PADDING`` is true in the first half of the last dimension, one with ``NOT_PADDING`` in the second. Loads are
    the sizes of groups: equal, or in proportion to 1/r.
    """

    RANDOM = "random"
    SORTED = "sorted"
    IN_ORDER = "in order"
    ZIPF = "zipf"
    SORTED_ZIPF = "sorted zipf"
    ONE_ROW = "one row"
    ALL_TRUE = "all true"
    ALL_FALSE = "all false"
    CAUSAL = "causal"
    NOT_CAUSAL = "not causal"
    PADDING = "padding"
    NOT_PADDING = "not padding"
    EQUAL_LOADS = "equal loads"
    UNEQUAL_LOADS = "unequal loads"


USUAL = {Role.INDEX: Pattern.RANDOM, Role.MASK: Pattern.RANDOM, Role.LOADS: Pattern.EQUAL_LOADS}
"""The patterns that are drawn if nothing else is known. Input data of these alone does not name them."""

ZEROS_FROM = 0.995
"""Share of zeros from which a tensor counts as all zeros: a convolution of zeros takes a fifth less energy than one of
90 % zeros."""

CONSTANT_BELOW = 1e-3
"""Ratio of spread to mean below which a tensor counts as constant: at a ratio of 1/64 the cost is 2 % below that of
normal values, at 0 about 15 %."""

WIDE_FROM = 11.3
"""Spread from which values are drawn with ``WIDE_SPREAD``: softmax takes its fast path at 8, not at 16."""

VERY_WIDE_FROM = 32.0
"""Spread from which values are drawn with ``VERY_WIDE_SPREAD``: SiLU takes its fast path at 16, not at 64."""

WIDE_SPREAD = 16.0
VERY_WIDE_SPREAD = 64.0

CAPTURED_PREFIX = "captured: "
"""The prefix of texts of input data other than ``normal`` and ``zeros``."""

WEIGHTS_PREFIX = "; weights "
"""The beginning of the part of such a text that names the share of zeros in weights: ``; weights 0.9 zeros``."""

TEXTS_KEPT = 1024
"""The parsed texts and statistics that are kept: tables repeat few."""

_ZEROS = re.compile(r"(0\.[1-9]) zeros")
_SPREAD = re.compile(r"spread (16|64)")


@dataclass(frozen=True)
class InputStatistics:
    """Statistics of an input of one call; mean and spread are None if not finite, all three if they cannot be read."""

    zeros_ratio: Annotated[float | None, SHARE]
    mean: float | None
    spread: Annotated[float | None, between("number from 0", 0, sys.float_info.max)]


@dataclass(frozen=True)
class InputValues:
    """A kind of values: a share of zeros, the others normally distributed about ``mean`` with ``spread``."""

    zeros_ratio: float = 0.0
    mean: float = 0.0
    spread: float = 1.0

    def __str__(self) -> str:
        if self in _NAMES:
            return _NAMES[self]
        zeros = [f"{self.zeros_ratio:g} zeros"] if self.zeros_ratio else []
        spread = [f"spread {self.spread:g}"] if self.spread != 1.0 else []
        return " ".join([*zeros, *spread])

    def without_spread(self) -> InputValues:
        return replace(self, spread=1.0) if self.spread else self

    def statistics(self) -> InputStatistics:
        """Return the statistics of a tensor of this kind, from which ``kind_of`` returns the same kind.

        With the share q of values that are not zero, the variance of all values is q (spread^2 + (1 - q) mean^2).
        """
        nonzero_ratio = 1.0 - self.zeros_ratio
        variance = nonzero_ratio * (self.spread**2 + self.zeros_ratio * self.mean**2)
        return InputStatistics(self.zeros_ratio, nonzero_ratio * self.mean, math.sqrt(variance))

    def distance(self, other: InputValues) -> float:
        """Return the distance: 1 from no zeros to all, 0.1 for 16 times the spread; constants are like 90 % zeros."""
        ours, theirs = ((one.zeros_ratio, math.log2(one.spread)) if one.spread else (0.9, 0.0) for one in (self, other))
        return abs(ours[0] - theirs[0]) + abs(ours[1] - theirs[1]) / 40


NORMAL = InputValues()
ZEROS = InputValues(zeros_ratio=1.0)
CONSTANT = InputValues(mean=1.0, spread=0.0)
_NAMES = {NORMAL: "normal", ZEROS: "zeros", CONSTANT: "constant"}
_BY_NAME = {name: values for values, name in _NAMES.items()}


@dataclass(frozen=True)
class InputData:
    """The kinds of values of an operator's distinct floating-point inputs in order; the last is also the rest's.

    ``patterns`` are those of its indices, masks and loads in order, empty if all are usual.
    """

    kinds: tuple[InputValues, ...] = (NORMAL,)
    weight_zeros_ratio: float = 0.0
    patterns: tuple[Pattern, ...] = ()

    @staticmethod
    def of(
        kinds: Sequence[InputValues], weight_zeros_ratio: float = 0.0, patterns: tuple[Pattern, ...] = ()
    ) -> InputData:
        """Return the data of these kinds in its shortest form; without kinds the data is normal."""
        shortest = list(kinds) or [NORMAL]
        while len(shortest) > 1 and shortest[-1] == shortest[-2]:
            del shortest[-1]
        return InputData(tuple(shortest), weight_zeros_ratio, patterns)

    def __str__(self) -> str:
        """``normal``, ``zeros``, or such as ``captured: 0.5 zeros, normal; patterns zipf; weights 0.9 zeros``."""
        return self._text

    @cached_property
    def _text(self) -> str:
        text = ", ".join(map(str, self.kinds))
        weights = f"{WEIGHTS_PREFIX}{InputValues(self.weight_zeros_ratio)}" if self.weight_zeros_ratio else ""
        names = ", ".join(pattern.value for pattern in self.patterns)
        patterns = f"{PATTERNS_PREFIX}{names}" if names else ""
        return text if self in (NORMAL_DATA, ZEROS_DATA) else CAPTURED_PREFIX + text + patterns + weights

    def kind(self, index: int) -> InputValues:
        return self.kinds[min(index, len(self.kinds) - 1)]

    def distance(self, other: InputData, inputs: int) -> float:
        """Return the distance, summed over so many inputs; that of other patterns is greater than any other."""
        of_kinds = sum(self.kind(index).distance(other.kind(index)) for index in range(inputs))
        return of_kinds + (0.0 if self.patterns == other.patterns else 100.0)


NORMAL_DATA = InputData()
ZEROS_DATA = InputData((ZEROS,))


@lru_cache(TEXTS_KEPT)
def has_zeros_in_weights(input_data: str) -> bool:
    """Return whether a row's input data is that of a grid that sets weights to zero, as no model does."""
    return WEIGHTS_PREFIX in input_data


def parse_input_data(text: str) -> InputData:
    """Return the data that a text describes (see ``InputData.__str__``); a ``ValueError`` if it describes none."""
    rest, has_weights, of_weights = text.partition(WEIGHTS_PREFIX)
    of_inputs, has_patterns, of_patterns = rest.partition(PATTERNS_PREFIX)
    kinds = tuple(map(_parse_kind, of_inputs.removeprefix(CAPTURED_PREFIX).split(", ")))
    patterns = tuple(map(Pattern, of_patterns.split(", "))) if has_patterns else ()
    weights = _parse_kind(of_weights) if has_weights else NORMAL
    if has_weights and (weights == NORMAL or weights != InputValues(weights.zeros_ratio)):
        raise ValueError(f"{of_weights!r} is no share of zeros in weights")
    data = InputData(kinds, weights.zeros_ratio, patterns)
    if (has_weights or has_patterns) and str(data) != text:
        raise ValueError(f"{text!r} is no input data")
    return data


def _parse_kind(text: str) -> InputValues:
    if text in _BY_NAME:
        return _BY_NAME[text]
    zeros, spread = _ZEROS.match(text), _SPREAD.search(text)
    kind = InputValues(
        zeros_ratio=float(zeros[1]) if zeros else 0.0, spread=float(spread[1]) if spread else NORMAL.spread
    )
    if kind == NORMAL or str(kind) != text:
        raise ValueError(f"{text!r} is no kind of values")
    return kind


@lru_cache(TEXTS_KEPT)
def kind_of(seen: InputStatistics) -> InputValues:
    """Return the kind of values to draw for these statistics; normal if they are unknown."""
    if seen.zeros_ratio is None:
        return NORMAL
    if seen.zeros_ratio >= ZEROS_FROM:
        return ZEROS
    zeros_ratio = min(round(seen.zeros_ratio, 1), 0.9)
    if seen.mean is None or seen.spread is None:
        return InputValues(zeros_ratio=zeros_ratio)
    # The formula in ``InputValues.statistics`` is solved for the spread of the values that are not zero.
    nonzero_ratio = 1.0 - seen.zeros_ratio
    all_values = seen.spread / math.sqrt(nonzero_ratio)
    from_zeros = abs(seen.mean) * math.sqrt(seen.zeros_ratio) / nonzero_ratio
    # A product of roots, since squares overflow.
    spread = math.sqrt(max(all_values - from_zeros, 0.0)) * math.sqrt(all_values + from_zeros)
    if spread <= CONSTANT_BELOW * abs(seen.mean):
        return CONSTANT
    wide = WIDE_SPREAD if spread < VERY_WIDE_FROM else VERY_WIDE_SPREAD
    return InputValues(zeros_ratio=zeros_ratio, spread=NORMAL.spread if spread < WIDE_FROM else wide)
