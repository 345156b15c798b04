"""Texts of SI values for screens and reports: ms, mJ, %, GFLOP, MB.

Files and calculations keep SI units. An unknown value (``None``) is shown as a dash, never as zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from opcost.errors import shortened

UNKNOWN = "-"

MILLI = 1e-3
KWH_J = 3.6e6


def scaled(value: float | None, unit: float, digits: int = 4) -> str:
    """Return a figure as text in a unit, such as 1e9, without the unit."""
    return UNKNOWN if value is None else significant(value / unit, digits)


def milli(value: float | None, digits: int = 4) -> str:
    """Return a number in thousandths as text: a time in s in ms, an energy in J in mJ."""
    return scaled(value, MILLI, digits)


def milliseconds(time_s: float | None) -> str:
    """Return a time in s as text in ms, four significant digits."""
    return UNKNOWN if time_s is None else f"{milli(time_s)} ms"


def millijoules(energy_j: float | None) -> str:
    """Return an energy in J as text in mJ, four significant digits."""
    return UNKNOWN if energy_j is None else f"{milli(energy_j)} mJ"


def watts(power_w: float | None) -> str:
    """Return a power in W as text."""
    return UNKNOWN if power_w is None else f"{power_w:.1f} W"


def whole_watts(power_w: float | None) -> str:
    """Return a power as text in whole W, without the unit."""
    return UNKNOWN if power_w is None else f"{power_w:,.0f}"


def percent(share_ratio: float | None, digits: int = 1) -> str:
    """Return a share (0 to 1) as text in %."""
    if share_ratio is None:
        return UNKNOWN
    # Rounding first and adding 0 avoids a zero with a minus sign.
    return f"{round(share_ratio, digits + 2) + 0.0:.{digits}%}".replace("%", " %")


def ratio(value_ratio: float | None) -> str:
    """Return a ratio near one as text, three decimals."""
    return UNKNOWN if value_ratio is None else f"{value_ratio:.3f}"


def duration(time_s: float) -> str:
    """Return a duration as text: ``45 s``, ``3 min 20 s``, ``2 h 5 min``."""
    seconds = round(time_s)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def gigaflop(flop: float | None) -> str:
    """Return a number of floating-point operations as text in GFLOP."""
    return UNKNOWN if flop is None else f"{significant(flop / 1e9)} GFLOP"


def megabytes(size_bytes: float | None) -> str:
    """Return a number of bytes as text in MB (10^6 bytes)."""
    return UNKNOWN if size_bytes is None else f"{significant(size_bytes / 1e6)} MB"


def gigabytes(size_bytes: float | None) -> str:
    """Return a number of bytes as text in GB (10^9 bytes), three significant digits."""
    return UNKNOWN if size_bytes is None else f"{significant(size_bytes / 1e9, 3)} GB"


def significant(value: float, digits: int = 4) -> str:
    """Return ``value`` with some significant digits and no exponent; trailing zeros stay."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - int(f"{value:.3e}".partition("e")[2]))
    return f"{value:.{min(decimals, 9)}f}"


def number_of(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is one: ``1 model``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def some_of(names: Sequence[str], most: int = 3) -> str:
    """Return the first names of several, and the number of the others: ``a, b, c and 4 more``."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


# Texts on one line, without characters that change the text around them, with short UUIDs


LONGEST_BEGINNING = 600
LONGEST_END = 500
"""The most characters of a mistake that are printed: a user's text may have millions."""

_UUID = re.compile(r"\b(GPU|MIG)-([0-9a-f]{4})([0-9a-f]{4})(?:-[0-9a-f]{4,12})*", re.IGNORECASE)


def printable(text: str, kept: str = "") -> str:
    """Return a text with plain spaces for white space, and Python's escapes for others that are not ``kept``."""

    def shown(character: str) -> str:
        if character.isprintable() or character in kept:
            return character
        return " " if character.isspace() else repr(character)[1:-1]

    if text.isprintable():
        return text
    return "".join(map(shown, text))


def quotable(mistake: str) -> str:
    """Return a mistake as printed: of a very long one begin and end. Indented frames of a user's code stay below it."""
    first, *frames = re.sub(r"\n(?!  )", " ", mistake).split("\n")
    return "\n".join(map(printable, [shortened(first, LONGEST_BEGINNING, LONGEST_END), *frames]))


def is_one_line(path: str) -> bool:
    """Return whether a path has no characters but those that are shown, and tabs."""
    return path.replace("\t", " ").isprintable()


def short_uuid(text: str) -> str:
    """Return a text in which UUIDs end after eight digits: enough to distinguish boards, and no identity elsewhere."""
    return _UUID.sub(r"\1-\2\3", text)


def with_named_boards(text: str) -> str:
    """Return a text in which boards have the name that a report gives them: ``GPU 1234`` for a UUID."""
    return _UUID.sub(r"\1 \2", text)
