"""Cells behind a right checksum: what a column cannot hold is one line that names file, line, column and remedy."""

import csv
import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opcost.columns import ABOVE_0, ANY, MOMENT, Field, columns_of
from opcost.errors import UserError
from opcost.measuring.flags import CASTING_DOUBT, Flag
from opcost.reporting.pages import database_page
from opcost.storage.database import Database
from opcost.storage.table import CsvTable, encode

COMMITTED = Database(Path(__file__).parents[1] / "database")
TABLES = [table for table in COMMITTED.tables if table.path.exists()]
NO_NUMBERS = ("nan", "inf", "-inf", "1e308", "-1e308")
NO_MOMENTS = ("yesterday", "2026-11-22T08:00:00", "0001-01-01T00:00:00+23:59", "2026-13-01T00:00:00+00:00")


def first_of(table: CsvTable[Any]) -> Any:
    """Return a table's first row."""
    with table.path.open() as file:
        lines = [next(file), next(file)]
    with tempfile.TemporaryDirectory() as folder:
        alone = CsvTable(Path(folder) / table.path.name, table.row_type)
        alone.path.write_text("".join(lines))
        (row,) = alone.rows()
    return row


def line_of(cells: Sequence[str]) -> str:
    """Return a line with these cells and an empty checksum, which is read like a right one."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([*cells, ""])
    return line.getvalue()


def bad_cells(field: Field) -> Iterator[str]:
    """Yield cells that a column cannot hold."""
    if field.kind is float:
        yield from NO_NUMBERS
    if field.kind is int:
        yield from ("1.5", str(2**63), "9" * 5000)
    if field.column.values is ABOVE_0:
        yield from ("0.0", "-1.0", "5e-324")
    elif field.column.values not in (ANY, MOMENT):
        yield "-1e20" if field.kind is float else "-1" if field.kind is int else "another"
    if field.column.values is MOMENT:
        yield from NO_MOMENTS
    if not field.may_be_empty and field.kind is not str:
        yield ""


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.path.stem)
def test_a_cell_that_cannot_be_is_named_with_its_line_and_column(tmp_path: Path, table: CsvTable[Any]) -> None:
    row = first_of(table)
    found = CsvTable(tmp_path / table.path.name, table.row_type)
    good, cells = found.text([row]), encode(row)
    tried = 0
    for place, field in enumerate(columns_of(table.row_type)):
        for bad in bad_cells(field):
            found.path.write_text(good + line_of([*cells[:place], bad, *cells[place + 1 :]]))
            with pytest.raises(UserError) as caught:
                found.rows()
            (line,) = caught.value.lines
            assert line.startswith(f"{found.path}:3: {field.name}: "), line
            assert line.endswith("; fix or delete the line")
            assert len(line) < len(str(found.path)) + 200
            assert found.problems() == [line]
            tried += 1
    assert tried > 10


def test_a_protocol_without_a_length_and_without_a_precision_is_reported(tmp_path: Path) -> None:
    table = Database(tmp_path).operator_measurements
    cells = encode(first_of(COMMITTED.operator_measurements))
    names = [field.name for field in columns_of(table.row_type)]
    cells[names.index("loop_s")] = cells[names.index("relative_error")] = ""
    table.path.write_text(table.text([]) + line_of(cells))
    with pytest.raises(UserError, match=r":2: loop_s, relative_error: both are empty; fix or delete the line"):
        table.rows()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.path.stem)
def test_a_row_is_not_made_of_what_its_table_would_refuse(table: CsvTable[Any]) -> None:
    row = first_of(table)
    for field in columns_of(table.row_type):
        if field.kind is float and hasattr(row, field.name):
            with pytest.raises(ValueError, match=f"{field.name}: nan is not possible"):
                replace(row, **{field.name: float("nan")})


def test_the_page_of_columns_has_each_column_and_each_flag() -> None:
    lines = database_page().splitlines()
    for table in COMMITTED.tables:
        for field in columns_of(table.row_type):
            assert any(line.startswith(f"| `{field.name}` | {field.unit} |") for line in lines), field.name
    assert {line.split("`")[1] for line in lines[lines.index("## Flags") :] if "`" in line} == {
        flag.value for flag in Flag
    }


def test_the_page_of_the_database_names_the_flags_that_cast_doubt() -> None:
    page = (Path(__file__).parents[1] / "docs" / "database.md").read_text(encoding="utf-8")
    named = page.split("cast doubt on a row:")[1].partition(". ")[0]
    assert re.findall(r"`([\w-]+)`", named) == [flag.value for flag in Flag if flag in CASTING_DOUBT]


def test_every_column_says_what_it_means() -> None:
    for table in COMMITTED.tables:
        for field in columns_of(table.row_type):
            assert field.column.meaning, field.name
            assert field.kind is not float or field.unit, f"{field.name}: a number has a unit"
