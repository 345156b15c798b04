"""Strides of dense tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides in elements of a contiguous tensor of this shape."""
    return _dense_strides(shape, order=range(len(shape) - 1, -1, -1))


def channels_last_strides(shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides in elements of a channels-last tensor, None for a shape without spatial dimensions."""
    if len(shape) not in (4, 5):
        return None
    return _dense_strides(shape, order=[1, *range(len(shape) - 1, 1, -1), 0])


def _dense_strides(shape: Sequence[int], order: Iterable[int]) -> tuple[int, ...]:
    """Return strides for dimensions laid out densely, ``order`` naming them from the innermost to the outermost."""
    strides = [0] * len(shape)
    step = 1
    for dimension in order:
        strides[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(strides)
