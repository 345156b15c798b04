"""Patterns of indices, masks and loads of experts, as far as they affect the cost.

Measured with operators alone on an H100 (``docs/log/values.md``): with repeated indices a gather takes down to half of
its time, a sum over indices up to two hundred times its time. With a mask that is the same over long runs ``where``
takes a fifth less. Unequal loads of experts cost 8 % more.
"""

from __future__ import annotations

from enum import Enum

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
