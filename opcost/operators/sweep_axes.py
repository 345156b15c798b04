"""The axis of a sweep: the number of a model's input that varies, and its values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod

from opcost.operators.model_inputs import Unit

MOST_SIZES = 200
"""The most sizes of a sweep: more are a mistake, such as a step of 1 over thousands of pixels."""

LARGEST_SIZE = 10**9

_RANGE = re.compile(r"([1-9][0-9]{0,9}):([1-9][0-9]{0,9}):(x?)([1-9][0-9]{0,9})")
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")


class AxisKind(Enum):
    """A number of the input that can vary. The value is the name of the option, and of a function's argument."""

    SIZE = "size"
    TOKENS = "tokens"
    BATCH = "batch"
    CONTEXT = "context"

    @property
    def unit(self) -> Unit:
        """The unit that costs are divided by."""
        others = {AxisKind.SIZE: Unit.PIXEL, AxisKind.BATCH: Unit.SAMPLE}
        return others.get(self, Unit.TOKEN)

    @property
    def numbers(self) -> int:
        """The fewest numbers of an input size, batch first, that this axis can vary."""
        return {AxisKind.SIZE: 3, AxisKind.TOKENS: 2, AxisKind.BATCH: 1, AxisKind.CONTEXT: 2}[self]

    def changed(self, input_size: Sequence[int], size: int) -> tuple[int, ...]:
        """Return an input size with its side, length or batch replaced; a ``ValueError`` if it has none of these.

        The context of a decode step is in no input.
        """
        if len(input_size) < self.numbers:
            raise ValueError(f"an input of {len(input_size)} numbers has no {self.value}; it takes {self.numbers}")
        if self is AxisKind.CONTEXT:
            if input_size[1] != 1:
                raise ValueError("a decode step reads one token of each text")
            return tuple(input_size)
        if self is AxisKind.BATCH:
            return (size, *input_size[1:])
        replaced = 2 if self is AxisKind.SIZE else 1
        return (*input_size[:-replaced], *[size] * replaced)

    def units(self, input_size: Sequence[int], size: int) -> int | None:
        """Return the pixels, tokens or samples of a run; None for an unknown input, unless they are samples."""
        if self is AxisKind.BATCH:
            return size
        if len(input_size) < self.numbers:
            return None
        if self is AxisKind.CONTEXT:
            return input_size[0]
        return input_size[0] * prod([size] * (2 if self is AxisKind.SIZE else 1))


@dataclass(frozen=True)
class Axis:
    """The number that varies, and its values in ascending order, each once."""

    kind: AxisKind
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.sizes) <= MOST_SIZES:
            raise ValueError(f"{len(self.sizes)} sizes; a sweep has 1 to {MOST_SIZES}")
        if not all(1 <= size <= LARGEST_SIZE for size in self.sizes):
            raise ValueError(f"sizes are whole numbers from 1 to {LARGEST_SIZE}")
        if list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError("sizes are in ascending order, each once")

    @staticmethod
    def parse(kind: AxisKind, text: str) -> Axis:
        """Return the axis of ``8:4096:x2``, ``50:500:50`` or ``224,256``; a ``ValueError`` for another text."""
        sizes: set[int] = set()
        for size in (size for part in text.split(",") for size in _sizes(part.strip())):
            sizes.add(size)
            if len(sizes) > MOST_SIZES:
                raise ValueError(f"{text!r} has more than {MOST_SIZES} sizes")
        return Axis(kind, tuple(sorted(sizes)))

    @staticmethod
    def among(input_sizes: Sequence[Sequence[int]]) -> Axis | None:
        """Return the axis along which input sizes differ; None if they do not, or in more than one way."""
        for kind in (AxisKind.BATCH, AxisKind.TOKENS, AxisKind.SIZE):
            sizes = [shape[0 if kind is AxisKind.BATCH else -1] for shape in input_sizes if len(shape) >= kind.numbers]
            if len(sizes) < len(input_sizes) or len(set(sizes)) < len(sizes) or len(sizes) < 2:
                continue
            same = [kind.changed(input_sizes[0], size) for size in sizes]
            if same == [tuple(shape) for shape in input_sizes]:
                return Axis(kind, tuple(sorted(sizes)))
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.sizes))


def _sizes(text: str) -> Iterator[int]:
    if _NUMBER.fullmatch(text):
        yield int(text)
        return
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no size; write 8:4096:x2, 50:500:50 or 224,256,288")
    first, last, step = int(found[1]), int(found[2]), int(found[4])
    if last < first:
        raise ValueError(f"{text!r} ends below its begin")
    if found[3] and step < 2:
        raise ValueError(f"{text!r} does not grow; write a factor from 2, such as x2")
    size = first
    while size <= last:
        yield size
        size = size * step if found[3] else size + step
