"""Flags: named properties of a measurement that programs act on. Notes are for people."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TypeAlias


class WithMeaning(Enum):
    """Members that are declared as a value and its meaning."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> WithMeaning:
        one = object.__new__(cls)
        one._value_, one.meaning = value, meaning
        return one


class Flag(WithMeaning):
    """A named property of a measurement, with its meaning. Tables hold its value."""

    UNEVEN = "uneven", "uneven: some chunks of the loop took much longer than the shortest"
    METERS_DISAGREE = "meters-disagree", "meters disagree"
    METERS_DISAGREED_BEFORE = "meters-disagreed-before", "meters disagreed in the drift check before"
    THERMAL_SLOWDOWN = "thermal-slowdown", "thermal slowdown"
    OTHER_PROCESS = "other-process", "another process used the device"
    NO_TEMPERATURE = "no-temperature", "no temperature: the device's log has no row in the loop"
    CLOCKS_STILL_LOW = "clocks-still-low", "clocks still low from the load before"
    OUT_OF_MEMORY_IN_CAPTURE = (
        "out-of-memory-in-capture",
        "out of memory during graph capture: libraries may choose other algorithms",
    )
    IMPRECISE = "imprecise", "target precision not reached"
    POWER_CAPPED = "power-capped", "throttled by the power limit"
    POWER_CAP_UNKNOWN = "power-cap-unknown", "at the power limit, clocks unknown"
    ABOVE_POWER_LIMIT = "above-power-limit", "far above the power limit: ended before it was throttled"
    AT_POWER_LIMIT = "at-power-limit", "at the power limit: throttled if the load lasts"
    DUTY_CYCLE = "duty-cycle", "measured with pauses, below the power limit"
    NO_KERNEL = "no-kernel", "launches no kernel"
    MODIFIES_INPUT = "modifies-input", "modifies its input, so it ran differently than in its model"
    RAN_WARM = "ran-warm", "the requested cache mode is not possible, so it ran warm"
    NOT_FINITE = "not-finite", "its output contains NaN or infinity"
    NOT_AS_COUNTED = "not-as-counted", "alone it has other outputs, operations, FLOPs or bytes than in its model"
    VALUE_DEPENDENT = (
        "value-dependent",
        "its work depends on values or on the device of its input, which no tuple has, and differs "
        "from that in its model",
    )


Flags: TypeAlias = tuple[Flag, ...]
"""Flags without repetition, in the order of ``Flag``."""

CASTING_DOUBT = frozenset(
    {
        Flag.UNEVEN,
        Flag.METERS_DISAGREE,
        Flag.METERS_DISAGREED_BEFORE,
        Flag.THERMAL_SLOWDOWN,
        Flag.OTHER_PROCESS,
        Flag.NO_TEMPERATURE,
        # An overhead that is measured at low clocks takes too long, so too much is subtracted.
        Flag.CLOCKS_STILL_LOW,
        Flag.OUT_OF_MEMORY_IN_CAPTURE,
    }
)
"""Flags of figures that may be wrong, so that the measurement is repeated."""

OF_OTHER_PROGRAMS = frozenset({Flag.UNEVEN, Flag.OTHER_PROCESS})
"""Flags of figures that other programs on the device have disturbed."""

POSSIBLY_THROTTLED = frozenset({Flag.POWER_CAPPED, Flag.POWER_CAP_UNKNOWN, Flag.ABOVE_POWER_LIMIT})
"""Flags of a load that was throttled by the power limit, may have been, or would have been."""

AT_LIMIT = frozenset({Flag.POWER_CAPPED, Flag.POWER_CAP_UNKNOWN, Flag.AT_POWER_LIMIT})
"""Flags of a load that draws the power limit."""

OTHER_WORK = frozenset({Flag.NOT_AS_COUNTED, Flag.VALUE_DEPENDENT})
"""Flags of figures that are sound, but of other work than was counted, so that FLOPs and bytes are not theirs."""

LEAVING_CLOCKS_LOW = frozenset({Flag.POWER_CAPPED, Flag.AT_POWER_LIMIT, Flag.CLOCKS_STILL_LOW})
"""Flags after which clocks may still be low, so that the next measurement should wait. A loop at the power limit may be
one that was cut where throttling began."""

OF_AN_OVERHEAD = CASTING_DOUBT | POSSIBLY_THROTTLED | {Flag.IMPRECISE, Flag.AT_POWER_LIMIT}
"""Flags of an overhead that also hold for the difference after its subtraction."""


def flags_of(flags: Iterable[Flag]) -> Flags:
    """Return flags without repetition, in the order of ``Flag``."""
    found = frozenset(flags)
    return tuple(flag for flag in Flag if flag in found)


def meanings(flags: Iterable[Flag]) -> str:
    """Return flags in words, on one line."""
    return "; ".join(flag.meaning for flag in flags)


def joined_notes(*notes: str) -> str:
    """Return the notes that are not empty, on one line."""
    return "; ".join(filter(None, notes))
