"""The columns of all tables as a page of ``docs/``, from their declarations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from inspect import getdoc
from pathlib import Path
from typing import Any

from opcost.columns import COLUMN_HEAD, Field, columns_of, described, fields_of
from opcost.comparing.conditions_side_by_side import KindSides, OperatorSides
from opcost.comparing.data_set import DataSetRow, data_columns
from opcost.measuring.flags import Flag
from opcost.metering.layer_rows import MeteredKindRow, MeteredLayerRow
from opcost.metering.rows import MeteredWindowRow
from opcost.reporting.layer_lines import LayerLine
from opcost.reporting.show_lines import ModelLine, OperatorLine
from opcost.storage.database import Database
from opcost.storage.rows import CHECKSUM

BEGINNING = f"""\
# The columns of the database

Made by `opcost verify columns`. Units are SI; 1 is the unit of ratios and shares. An empty cell is unknown, never
zero. A cell with an impossible value is refused. Each table's last column is `{CHECKSUM}`, the CRC-32 of the line's
other cells. A line with a wrong checksum was damaged or changed, and is refused. Delete it, or empty its checksum if
you changed the line on purpose.
"""

DATA_SET_BEGINNING = """\
# The columns of the data set

Made by `opcost export`. Units are SI; 1 is the unit of ratios and shares. An empty cell is unknown, never zero. In CSV
a text that a spreadsheet would run as a formula begins with an apostrophe. Capital letters in a name stand for a name
or a number: `input_N_size_M` for `input_0_size_1`.
"""

HEAD = f"| {' | '.join(COLUMN_HEAD)} |\n|---|---|---|---|---|"
SHOWN: Mapping[Any, list[str]] = {
    ModelLine: ["Models of `opcost show --csv`, and of `opcost.show`"],
    OperatorLine: ["Operators of `opcost show --operators --csv`"],
    DataSetRow: ["Tables of `opcost export`"],
    LayerLine: ["Layers of `opcost layers --csv`, and of `opcost.layers`"],
    KindSides: ["Kinds of operators of `opcost compare --against --json`"],
    MeteredLayerRow: ["Layers of `opcost.LayerwiseEnergy`"],
    MeteredKindRow: ["Classes of layers of `opcost.LayerwiseEnergy`"],
    MeteredWindowRow: ["Windows of `opcost.EnergyMeter`"],
    OperatorSides: ["Operators of `opcost compare --against --json`"],
}
"""The rows that are printed, not stored, with their titles."""

FLAGS_HEAD = "| flag | casts doubt | meaning |\n|---|---|---|"


def database_page() -> str:
    """Return the page: a section for each kind of row, for each group of columns that several have, and for flags."""
    files: dict[Any, list[str]] = {}
    for table in Database(Path()).tables:
        files.setdefault(table.row_type, []).append(f"`{table.path.name}`")
    files |= SHOWN
    shared = _shared_groups(files)
    rows = [_section(", ".join(names), row_type, shared) for row_type, names in files.items()]
    groups = [_section(kind.__name__, kind, ()) for kind in shared]
    return "\n".join([BEGINNING, *rows, *groups, *_flags(), ""])


def _flags() -> Iterable[str]:
    flags = [f"| `{flag.value}` | {'yes' if flag.casts_doubt else ''} | {flag.meaning} |" for flag in Flag]
    return ("## Flags", "", FLAGS_HEAD, *flags)


def _shared_groups(row_types: Iterable[Any]) -> list[Any]:
    """Return the groups of columns that rows of several kinds have."""
    counts = Counter(field.kind for row_type in row_types for field in fields_of(row_type) if field.is_group)
    return [kind for kind, number in counts.items() if number > 1]


def _section(title: str, kind: Any, shared: Iterable[Any]) -> str:
    kinds = [kind, *(field.kind for field in fields_of(kind) if field.is_group and field.kind not in shared)]
    texts = "\n\n".join(str(getdoc(each)).replace("``", "`") for each in kinds)
    return "\n".join([f"## {title}", "", texts, "", HEAD, *_lines(kind, shared), ""])


def _lines(kind: Any, shared: Iterable[Any]) -> Iterator[str]:
    for field in fields_of(kind):
        if not field.is_group:
            yield _line(field)
        elif field.kind not in shared:
            yield from _lines(field.kind, shared)
        else:
            first, *_, last = columns_of(field.kind)
            name = field.kind.__name__
            yield f"| `{first.name}` to `{last.name}` | | | | [{name}](#{name.lower()}) |"


def _line(field: Field) -> str:
    name, *others = described(field)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in (f'`{name}`', *others))} |"


def data_set_page() -> str:
    """Return the page of a data set's columns."""
    return "\n".join([DATA_SET_BEGINNING, HEAD, *map(_line, data_columns()), "", *_flags(), ""])
