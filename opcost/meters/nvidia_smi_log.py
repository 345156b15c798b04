"""A parser of nvidia-smi's CSV output to values in SI units. It never raises.

Drivers rename headers, have many words for "no value", print errors between rows and lose parts of lines. Columns are
therefore found by name, numbers must match one strict pattern, and all other lines are skipped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from opcost.power.log_rows import PowerRow

NO_VALUE_TOKENS = frozenset(
    (
        "|-|n/a|[n/a]|not supported|[not supported]|not available|[not available]|not active|[not found]|none|unknown|"
        "unknown error|[unknown error]|err!|[err!]|error|[gpu is lost]|gpu is lost|[gpu requires reset]|requires reset|"
        "[insufficient permissions]|insufficient permissions|[no data]|nan|inf"
    ).split("|")
)
"""Texts for a missing value of drivers from 361 to 580, in lower case."""

_NUMBER = re.compile(r"([+-]?[0-9]{1,15}(?:[.,][0-9]{1,15})?)(?:\s*(?:W|%|MHz|MiB|C))?")
_BITS = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_TIMESTAMP = re.compile(r"([0-9]{4})/([0-9]{1,2})/([0-9]{1,2}) ([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,6}))?")


@dataclass(frozen=True)
class LogRow:
    """A well-formed row: its values, and the line as printed."""

    values: PowerRow
    line: str


@dataclass(frozen=True)
class ParsedLog:
    """The content of a log in its order. ``skipped_lines`` counts lines that are neither row nor first header."""

    header: str | None
    rows: tuple[LogRow, ...]
    skipped_lines: int


@dataclass(frozen=True)
class Columns:
    """The columns of a log by name, without units, in the order of the header line."""

    names: tuple[str, ...]
    separator: str

    def cells(self, line: str) -> dict[str, str] | None:
        """Return a line's cells by column name; None if the numbers of cells and columns differ."""
        cells = [cell.strip() for cell in line.split(self.separator)]
        return dict(zip(self.names, cells, strict=True)) if len(cells) == len(self.names) else None


def parse_text(text: str) -> str | None:
    """Return a cell's text, None for a missing value."""
    return None if text.strip().casefold() in NO_VALUE_TOKENS else text.strip()


def parse_number(text: str) -> float | None:
    """Return a cell's finite number, None for everything else.

    Decimal commas and units after the number are accepted.
    """
    match = _NUMBER.fullmatch(text.strip())
    return None if match is None or parse_text(text) is None else float(match[1].replace(",", "."))


def parse_timestamp(text: str) -> float | None:
    """Return the epoch seconds of ``2026/11/04 10:23:45.123`` in UTC, None for everything else."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    microsecond = int((match[7] or "0").ljust(6, "0"))
    try:
        return datetime(year, month, day, hour, minute, second, microsecond, tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def parse_columns(line: str) -> Columns:
    """Return the columns that a header line names, without units (``[W]``)."""
    separator = ", " if ", " in line else ","
    return Columns(tuple(cell.partition("[")[0].strip().casefold() for cell in line.split(separator)), separator)


def is_header(line: str) -> bool:
    """Return whether a line is the header of a log."""
    return len(line.split(",")) > 1 and parse_columns(line).names[0] == "timestamp"


def parse_row(columns: Columns, line: str) -> LogRow | None:
    """Return the row of a line; None if it is cut, joined with another, or no row."""
    cells = columns.cells(line)
    epoch_s = None if cells is None else parse_timestamp(cells.get("timestamp", ""))
    if cells is None or epoch_s is None:
        return None

    def number(*names: str, unit: float = 1.0) -> float | None:
        numbers = (parse_number(cells.get(name, "")) for name in names)
        return next((found * unit for found in numbers if found is not None), None)

    utilisation_percent, memory_used_bytes = number("utilization.gpu"), number("memory.used", unit=2**20)
    reasons = (cells.get(f"clocks_{name}_reasons.active", "").strip() for name in ("event", "throttle"))
    values = PowerRow(
        epoch_s=epoch_s,
        power_instant_w=number("power.draw.instant"),
        power_average_w=number("power.draw.average", "power.draw"),
        utilisation_ratio=None if utilisation_percent is None else utilisation_percent / 100,
        sm_clock_hz=number("clocks.sm", "clocks.current.sm", unit=1e6),
        temperature_c=number("temperature.gpu"),
        memory_temperature_c=number("temperature.memory"),
        event_reasons=next((int(text, 16) for text in reasons if _BITS.fullmatch(text)), None),
        memory_used_bytes=None if memory_used_bytes is None else round(memory_used_bytes),
    )
    return LogRow(values, line)


def parse_log(lines: Iterable[str]) -> ParsedLog:
    """Return the rows of a log in its order; lines before the first header are skipped."""
    header: str | None = None
    columns: Columns | None = None
    rows: list[LogRow] = []
    skipped_lines = 0
    for raw_line in lines:
        line = raw_line.rstrip("\r\n")
        if header is None and is_header(line):
            header, columns = line, parse_columns(line)
            continue
        row = None if columns is None else parse_row(columns, line)
        if row is None:
            skipped_lines += 1
        else:
            rows.append(row)
    return ParsedLog(header, tuple(rows), skipped_lines)


def cut(rows: Sequence[LogRow], begin_s: float, end_s: float) -> tuple[LogRow, ...]:
    """Return the rows between two moments (epoch) and the rows right before and after, in order of time.

    The row before shows whether the first row repeats a value; the row after shows that the log did not end early. A
    row that is older than its predecessor is omitted.
    """
    inside: list[LogRow] = []
    for row in rows:
        newest_s = inside[-1].values.epoch_s if inside else begin_s
        if newest_s <= row.values.epoch_s <= end_s:
            inside.append(row)
    before = max(
        (row for row in rows if row.values.epoch_s < begin_s), key=lambda row: row.values.epoch_s, default=None
    )
    after = min((row for row in rows if row.values.epoch_s > end_s), key=lambda row: row.values.epoch_s, default=None)
    return tuple(row for row in (before, *inside, after) if row is not None)
