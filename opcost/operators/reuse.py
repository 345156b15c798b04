"""Reuse distances: how much memory, and how many other kernels, a run uses between two uses of the same data or code.

A device's caches hold what was used last. So a call finds its inputs there if they were written or read shortly before,
and its kernel's code if few other kernels ran in between.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby

from opcost.operators.tuples import Count, OperatorTuple, distinct_specs

FAR_BYTES = 10**9
"""Longer distances are all alike: no cache is larger."""

SMALLEST_BYTES = 10**5
"""Distances are multiples of it."""

FAR_CODE = 99

_TEXT = re.compile(r"(\d{1,5}(,\d{1,5})*)?;(\d{1,5})?;\d{1,2}(;(\d{1,5})?(;\d{1,5})?)?", re.ASCII)


@dataclass(frozen=True)
class Reuse:
    """The reuse distances of one call, in a run that follows an equal one.

    ``inputs`` has the distance of each distinct tensor among the operator's arguments, in order, ``weights`` that of a
    module's own parameters and buffers, None without any: the bytes of distinct memory that the run used since, to two
    digits, at most ``FAR_BYTES``. Half of what a call uses beside a tensor counts as used after it, but beside one that
    it writes at most half of that: reading and writing go on side by side.
    ``code`` is the number of other kinds of calls since the last one of the same kind, at most ``FAR_CODE``.
    ``outputs`` is the longest distance between two uses of what the call writes, until its memory is written again; at
    least half of the bytes have no longer one. None without any, and in counts of former versions. ``code_bytes`` is
    the distinct memory that the run used since the last call of the same kind; None in counts of former versions.
    """

    inputs: tuple[Count, ...]
    weights: Count | None
    code: Count
    outputs: Count | None = None
    code_bytes: Count | None = None

    @property
    def text(self) -> str:
        """One word for tables: tenths of MB of inputs; of weights; number of kinds of calls; MB of outputs; of code."""
        inputs = ",".join(str(one // SMALLEST_BYTES) for one in self.inputs)
        weights, outputs, code = (_tenths(one) for one in (self.weights, self.outputs, self.code_bytes))
        others = f";{outputs};{code}".rstrip(";")
        return f"{inputs};{weights};{self.code}{others}"


def is_reuse(text: str) -> bool:
    """Return whether a text describes reuse distances."""
    return _TEXT.fullmatch(text) is not None


def parse_reuse(text: str) -> Reuse:
    """Return the reuse distances that a text describes; a ValueError if it describes none."""
    if not is_reuse(text):
        raise ValueError(f"{text!r} is no text of reuse distances")
    inputs, weights, code, *others = text.split(";")
    distances = tuple(int(one) * SMALLEST_BYTES for one in inputs.split(",") if one)
    far_weights, *far_others = (int(one) * SMALLEST_BYTES if one else None for one in (weights, *others))
    return Reuse(distances, far_weights, int(code), *far_others)


def _tenths(size: int | None) -> str:
    return "" if size is None else str(size // SMALLEST_BYTES)


# The state of a call on a card

SMALLEST_FAR_BYTES = 2**16
LARGEST_FAR_BYTES = 2**28
"""Smaller inputs take no time to speak of, and of larger ones a cache holds next to nothing: they count as near."""

LARGEST_OWN_SHARE = 0.75
"""The largest part of the near limit that an input's own size takes: some of it stays in the cache in any case."""

HALF_FROM, HALF_TO = 0.25, 0.75
"""Reuse distances over an input's size. One that was copied from another tensor has a distance of half of its size."""


class Place(Enum):
    """Where a call finds an input: in the cache, there as far as another one left it room, or in memory.

    Code is half near if it is in the cache that it shares with data, but no more in its own.
    """

    NEAR = "near"
    HALF = "half"
    FAR = "far"


_PLACES = "|".join(place.value for place in Place)
_STATE = re.compile(
    rf"inputs((?: (?:{_PLACES})(?:\*[1-9]\d{{0,4}})?)*)(, weights far)?(?:, code (half|far))?", re.ASCII
)

LONGEST_LIST = 64
"""The largest number of places that are written one by one; of more, equal ones in a row have their number."""


@dataclass(frozen=True)
class NearLimits:
    """The reuse distances up to which a card finds data (bytes) and code (kinds of calls) in its caches.

    Half of a tensor's own size counts, too: on average its bytes were followed by so many of its others. The tensor
    used last is near, as far as it fits, whatever its size. ``data_bytes`` and ``code`` divide calls into states. A
    byte that is used again after ``kept_bytes`` of others is still in the cache, one after ``lost_bytes`` no more.
    """

    data_bytes: int
    code: int
    kept_bytes: int
    lost_bytes: int

    def missed_ratio(self, distance: float) -> float:
        """Return the share of bytes at a distance in bytes that have left the cache."""
        return min(max((distance - self.kept_bytes) / (self.lost_bytes - self.kept_bytes), 0.0), 1.0)

    def missed_bytes(self, inputs: Iterable[tuple[int, int]], touched_bytes: int) -> float:
        """Return the bytes that a call reads from memory, of inputs by their reuse distances and their sizes.

        When a byte in the middle of an input is read, half of the input was used after it, and half of what the call
        touches.
        """
        return math.fsum(size * self.missed_ratio(far + (size + touched_bytes) / 2) for far, size in inputs)

    def place(self, distance: int, size_bytes: int) -> Place:
        """Return the place of an input of a size at a reuse distance.

        An input and what it was made from do not both fit if it has half of the near bytes or more.
        """
        if not SMALLEST_FAR_BYTES <= size_bytes <= LARGEST_FAR_BYTES:
            return Place.NEAR
        own_bytes = min(size_bytes / 2, LARGEST_OWN_SHARE * self.data_bytes)
        is_beyond = distance + own_bytes > self.data_bytes
        if 2 * size_bytes < self.data_bytes:
            return Place.FAR if is_beyond else Place.NEAR
        if distance < min(HALF_FROM * size_bytes, self.data_bytes):
            return Place.NEAR
        is_copied = distance <= min(HALF_TO * size_bytes, size_bytes / 2 + self.data_bytes)
        return Place.FAR if is_beyond and not is_copied else Place.HALF


@dataclass(frozen=True)
class CallState:
    """The place of each distinct tensor of a call's arguments; whether its weights are far; the place of its code."""

    inputs: tuple[Place, ...]
    far_weights: bool
    code: Place

    def __str__(self) -> str:
        texts = [place.value for place in self.inputs]
        if len(texts) > LONGEST_LIST:
            runs = [(text, len(list(equal))) for text, equal in groupby(texts)]
            texts = [text if number == 1 else f"{text}*{number}" for text, number in runs]
        inputs = "".join(f" {text}" for text in texts)
        code = "" if self.code is Place.NEAR else f", code {self.code.value}"
        return f"inputs{inputs}{', weights far' * self.far_weights}{code}"


def parse_state(text: str) -> CallState:
    """Return the state of a text; a ValueError if it is none."""
    found = _STATE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no state of a call")
    inputs, weights, code = found.groups()
    runs = (word.partition("*") for word in inputs.split())
    places = tuple(Place(text) for text, _, number in runs for _ in range(int(number or 1)))
    return CallState(places, weights is not None, Place(code or Place.NEAR.value))


def state_of(operator: OperatorTuple, reuse: Reuse, limits: NearLimits) -> CallState | None:
    """Return the state of a call on a card, None if its distances are not those of the operator's tensors."""
    specs = distinct_specs(operator.arguments)
    if len(specs) != len(reuse.inputs):
        return None
    places = (limits.place(distance, spec.memory_bytes) for spec, distance in zip(specs, reuse.inputs, strict=True))
    code = Place.NEAR if reuse.code <= limits.code else Place.FAR
    if code is Place.FAR and reuse.code_bytes is not None and reuse.code_bytes <= limits.data_bytes:
        code = Place.HALF
    return CallState(tuple(places), (reuse.weights or 0) > limits.data_bytes, code)


# Distances of a run


@dataclass(frozen=True)
class Use:
    """The memory that one call uses, each block by an identifier with the bytes that are used of it.

    ``inputs`` are those of its arguments, ``weights`` those of its module, ``written`` those of its results. ``freed``
    blocks were released since the call before. ``code`` is equal for calls of the same kernels, None for those of none.
    """

    inputs: tuple[tuple[int, int], ...]
    weights: tuple[tuple[int, int], ...]
    written: tuple[tuple[int, int], ...]
    freed: tuple[int, ...]
    code: Hashable

    def of(self, memory_bytes: int, code: Hashable) -> Use:
        """Return the use of a call that moves so many bytes, perhaps those of a few rows of a table."""
        inputs, weights, written = (
            tuple((block, min(size, memory_bytes)) for block, size in blocks)
            for blocks in (self.inputs, self.weights, self.written)
        )
        return Use(inputs, weights, written, self.freed, code)


def reuses(uses: Sequence[Use]) -> list[Reuse]:
    """Return the reuse distances of each call of a run that is repeated.

    A block that a call writes first takes the smallest free memory that is large enough. At the end of a run all that
    it created is freed.
    """
    memory, codes = _Memory(), dict[Hashable, int]()
    found: list[Reuse] = []
    for first in (0, len(uses)):
        # The second run finds what the first one left, and writes over it.
        found = list(_one_run(uses, memory, codes, first))
        memory.free(*memory.created)
    return [
        replace(one, outputs=memory.kept_for_bytes(call, sum(dict(use.written).values())) if use.written else None)
        for call, (use, one) in enumerate(zip(uses, found, strict=True))
    ]


def _one_run(uses: Iterable[Use], memory: _Memory, codes: dict[Hashable, int], first: int) -> Iterator[Reuse]:
    """Yield the distances; ``codes`` has the kinds of calls in the order of their last ones, and when that began."""
    for call, use in enumerate(uses, first):
        memory.free(*use.freed)
        inputs = tuple(memory.distance_bytes(block) for block, _ in use.inputs)
        weights = [memory.distance_bytes(block) for block, _ in use.weights]
        kinds = len(codes) - 1 - list(codes).index(use.code) if use.code in codes else FAR_CODE
        code_bytes = _rounded(memory.used_bytes(codes[use.code])) if use.code in codes else FAR_BYTES
        yield Reuse(inputs, max(weights, default=None), min(kinds, FAR_CODE), code_bytes=code_bytes)
        if use.code is not None:
            codes.pop(use.code, None)
            codes[use.code] = memory.uses
        written = dict(use.written)
        read = {block: size for block, size in (*use.inputs, *use.weights) if block not in written}
        for block, size in read.items():
            memory.use_block(block, size)
        for block, size in written.items():
            memory.use_block(block, size, call)
        memory.used_together([*read, *written], written)


@dataclass(frozen=True)
class _Fragment:
    """A part of a run's memory that was used at once: its bytes and the number of its last use.

    ``call`` has written it, if one did; ``apart`` is the longest distance in bytes between two uses since.
    """

    size: int
    used: int
    call: int | None = None
    apart: int = 0


@dataclass(frozen=True)
class _Beside:
    """The addresses that the last call used that used a block, the number of uses at its end, and whether it wrote."""

    addresses: tuple[int, ...]
    end: int
    is_written: bool


class _Memory:
    """The memory of a run by addresses, as an allocator that keeps what is freed assigns it to blocks."""

    def __init__(self) -> None:
        self._fragments: dict[int, _Fragment] = {}
        self._addresses: dict[int, int] = {}
        self._persistent: set[int] = set()
        self._free: set[int] = set()
        self._beside: dict[int, _Beside] = {}
        self._written_over: dict[int, list[_Fragment]] = {}
        self._end = self.uses = 0

    @property
    def created(self) -> tuple[int, ...]:
        return tuple(self._addresses.keys() - self._persistent)

    def distance_bytes(self, block: int) -> int:
        """Return the distance of a block that is read; one that the run did not write stays."""
        if block not in self._addresses:
            self._persistent.add(block)
            return FAR_BYTES
        own = self._fragments[self._addresses[block]]
        beside = self._beside[block]
        found = [self._fragments[address] for address in beside.addresses if address in self._fragments]
        before = sum(one.size for one in found if one.used < own.used)
        after = sum(one.size for one in found if own.used < one.used < beside.end)
        before = min(before, own.size) if beside.is_written else before
        return _rounded(self.used_bytes(own.used + 1) + (before - after) // 2)

    def used_bytes(self, since: int) -> int:
        """Return the bytes that were used since so many uses."""
        return sum(one.size for one in self._fragments.values() if one.used >= since)

    def kept_for_bytes(self, call: int, written_bytes: int) -> int:
        """Return the longest distance between two uses of what a call wrote; at least half of it has no longer one."""
        parts = sorted(self._written_over.get(call, ()), key=lambda one: one.apart)
        left = written_bytes / 2
        for one in parts:
            left -= one.size
            if left <= 0:
                return _rounded(one.apart)
        return FAR_BYTES

    def used_together(self, blocks: Sequence[int], written: Collection[int]) -> None:
        """Note that a call has used these blocks, of which some are written: the last uses until now."""
        addresses = tuple(self._addresses[block] for block in blocks)
        self._beside |= {block: _Beside(addresses, self.uses, block in written) for block in blocks}

    def use_block(self, block: int, size: int, call: int | None = None) -> None:
        """Use a block, which ``call`` writes, if it does; its last use is that of no others beside it."""
        self._beside[block] = _Beside((), self.uses, call is not None)
        if block in self._addresses and self._fragments[self._addresses[block]].size < size:
            # It was used in part until now.
            self._free.add(self._addresses.pop(block))
        if block not in self._addresses:
            self._addresses[block] = self._assigned(max(size, 1), block in self._persistent)
        address = self._addresses[block]
        own = self._used_again(self._fragments[address])
        if call is not None:
            self._write_over(own)
            own = _Fragment(own.size, own.used, call)
        self._fragments[address] = replace(own, used=self.uses)
        self.uses += 1

    def _used_again(self, own: _Fragment) -> _Fragment:
        return own if own.call is None else replace(own, apart=max(own.apart, self.used_bytes(own.used + 1)))

    def _write_over(self, own: _Fragment) -> None:
        if own.call is not None:
            self._written_over.setdefault(own.call, []).append(own)

    def free(self, *blocks: int) -> None:
        for block in blocks:
            self._persistent.discard(block)
            if block in self._addresses:
                self._free.add(self._addresses.pop(block))

    def _assigned(self, size: int, is_new: bool) -> int:
        """Return the address of a fragment of a size, in the smallest free space that is large enough."""
        fitting = [] if is_new else [(free, address) for address, free in self._spaces() if free >= size]
        address = min(fitting)[1] if fitting else self._end
        if not fitting:
            self._end += size
        part, end, parts = address, address + size, list[int]()
        while fitting and part < end:
            parts.append(part)
            part += self._fragments[part].size
        # All of them before any is gone.
        for one, old in [(one, self._used_again(self._fragments[one])) for one in parts]:
            rest = max(one + old.size - end, 0)
            self._write_over(replace(old, size=old.size - rest))
            self._free.remove(one)
            del self._fragments[one]
            if rest:
                self._fragments[end] = replace(old, size=rest)
                self._free.add(end)
        self._fragments[address] = _Fragment(size, self.uses)
        return address

    def _spaces(self) -> Iterator[tuple[int, int]]:
        """Yield the address and the bytes of each space of free fragments."""
        begin = end = -1
        for address in sorted(self._free):
            if address != end:
                if end > begin:
                    yield begin, end - begin
                begin = address
            end = address + self._fragments[address].size
        if end > begin:
            yield begin, end - begin


def _rounded(size: int) -> int:
    """Return bytes to two digits and to ``SMALLEST_BYTES``, at most ``FAR_BYTES``."""
    return int(float(f"{min(size, FAR_BYTES):.1e}")) // SMALLEST_BYTES * SMALLEST_BYTES
