"""The database loses no row, shows no half row, and says where a file is damaged."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opcost.columns import columns_of
from opcost.errors import UserError
from opcost.measuring.record import ComparisonRow, MeasurementRow
from opcost.storage.database import Database
from opcost.storage.table import BLOCK_BYTES, LONGEST_CELL, CsvTable, ReadTable, encode
from opcost.units import printable

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Inner:
    energy_j: float | None
    is_capped: bool
    was_read: bool | None = None


@dataclass(frozen=True)
class Row:
    key: str
    time_s: float
    inner: Inner
    count: int
    note: str | None
    limit: int | None


ROW = Row("k1", 0.25, Inner(None, True), 3, None, 7)
OLD_HEADER = "key,time_s,energy_j,is_capped,was_read,count,note,limit\n"
OLD_LINE = "k1,0.25,,True,,3,,7\n"
HEADER = OLD_HEADER.replace("\n", ",checksum\n")
LINE = OLD_LINE.replace("\n", ",edabe5b6\n")


def names_of(row_type: type) -> list[str]:
    return [field.name for field in columns_of(row_type)]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOATS = st.floats(allow_nan=False)
ROWS = st.builds(
    Row,
    key=TEXTS,
    time_s=FLOATS,
    inner=st.builds(Inner, st.none() | FLOATS, st.booleans(), st.none() | st.booleans()),
    count=st.integers(),
    note=st.none() | TEXTS,
    limit=st.none() | st.integers(),
)


def as_stored(row: Row) -> Row:
    """A text as it is read back: what is not shown is replaced, and an empty optional text is none."""
    note = None if row.note is None else one_line(row.note) or None
    return replace(row, key=one_line(row.key), note=note)


def one_line(text: str) -> str:
    return printable(" ".join(text.splitlines()))


def table_in(folder: Path, content: str | bytes | None = None) -> CsvTable[Row]:
    path = folder / "rows.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return CsvTable(path, Row)


def error_in(folder: Path, content: str | bytes) -> str:
    table = table_in(folder, content)
    with pytest.raises(UserError) as caught:
        table.rows()
    (line,) = caught.value.lines
    assert len(line.splitlines()) == 1
    return line.removeprefix(f"{table.path}:")


# Rows come back as they were


def test_nested_rows_are_flattened_in_place(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.append(ROW)
    assert table.path.read_text() == HEADER + LINE
    assert table.rows() == [ROW]


def test_lines_are_counted_without_the_header(tmp_path: Path) -> None:
    assert table_in(tmp_path).lines() == 0
    assert table_in(tmp_path, HEADER).lines() == 0
    assert table_in(tmp_path, HEADER + LINE + "damaged\n").lines() == 2


@given(st.lists(ROWS, min_size=1, max_size=4))
@settings(max_examples=60)
def test_any_row_comes_back(rows: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = table_in(Path(folder))
        for row in rows:
            table.append(row)
        stored = [as_stored(row) for row in rows]
        assert table.rows() == stored
        assert table.path.read_bytes().count(b"\n") == len(rows) + 1
        assert table_in(Path(folder), table.text(rows)).rows() == stored


LONGEST = "x" * (LONGEST_CELL - 3) + "..."


@pytest.mark.parametrize(
    ("text", "read"),
    [
        *(
            (text, text)
            for text in ("a,b", 'say "yes"', "'", ",", '"', " padded ", "µΩ→中🙂", "=1+1", "a\\nb", "None", "nan")
        ),
        *((text, "a b") for text in ("a\nb", "a\r\nb", "a\rb", "a\u2028b", "a\tb")),
        pytest.param("x" * 200_000, LONGEST, id="longer than csv readers take"),
        # Half a character: the name of a file that is no UTF-8 holds some.
        ("a\udcffb", "a\\udcffb"),
        # These colour a terminal, or reverse what stands behind them.
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb", "a\\u202eb"),
        ("a\x9b2J", "a\\x9b2J"),
        ("a\0b", "a\\x00b"),
    ],
)
def test_a_text_comes_back_on_one_line_without_what_is_not_shown(tmp_path: Path, text: str, read: str) -> None:
    table = table_in(tmp_path)
    table.append(replace(ROW, key=text, note=text))
    assert table.path.read_text().replace("\n", "").isprintable()
    assert table.rows() == [replace(ROW, key=read, note=read)]


@pytest.mark.parametrize(
    ("text", "read"), [("\x1b[31mred", "\\x1b[31mred"), ("a\u202eb", "a\\u202eb"), ("a\tb", "a b")]
)
def test_what_is_not_shown_is_not_read_from_a_foreign_file(tmp_path: Path, text: str, read: str) -> None:
    foreign = table_in(tmp_path, OLD_HEADER + OLD_LINE.replace("3,,", f"3,{text},"))
    assert foreign.rows() == [replace(ROW, note=read)]


@pytest.mark.parametrize("number", [0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0, float("inf"), 1e22, 1 / 3])
def test_numbers_come_back_exactly(tmp_path: Path, number: float) -> None:
    table = table_in(tmp_path)
    table.append(replace(ROW, time_s=number))
    assert repr(table.rows()[0].time_s) == repr(number)


def test_a_number_of_numpy_is_a_number_and_an_unknown_value_is_not_zero(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    zero = replace(ROW, inner=Inner(0.0, False, False), limit=0)
    table.append(replace(ROW, time_s=np.float64(0.25)))
    assert table.path.read_text() == HEADER + LINE
    table.append(zero)
    assert table.rows() == [ROW, zero]
    assert table.rows()[0].inner.energy_j is None


@pytest.mark.parametrize("row_type", [MeasurementRow, ComparisonRow])
def test_every_row_begins_with_what_people_look_for(row_type: type) -> None:
    names = names_of(row_type)
    assert names[:4] == ["key", "operator", "time_s", "energy_j"]
    assert len(set(names)) == len(names)


def test_no_file_is_no_rows_and_reading_makes_none(tmp_path: Path) -> None:
    table = CsvTable(tmp_path / "new" / "rows.csv", Row)
    assert table.rows() == []
    assert not table.path.parent.exists()
    table.append(ROW)
    assert table.rows() == [ROW]


# What a killed writer leaves


@pytest.mark.parametrize("cut", range(len(HEADER) + len(LINE)))
def test_a_line_without_its_end_is_no_row_and_is_set_aside(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_in(tmp_path, (HEADER + LINE)[:cut])
    assert table.rows() == []
    table.append(ROW)
    assert table.path.read_text() == HEADER + LINE
    unfinished = (HEADER + LINE)[:cut].rpartition("\n")[2]
    torn = tmp_path / "rows.csv.torn"
    assert (torn.read_text() if torn.exists() else "") == (unfinished + "\n" if unfinished else "")
    assert ("an unfinished last line was moved to rows.csv.torn" in caplog.text) is bool(unfinished)


@pytest.mark.parametrize(
    "tail",
    [
        *(b"x" * length for length in (BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 300_000)),
        # It ends inside a character.
        "k2,µ".encode()[:-1],
    ],
    ids=len,
)
def test_a_tail_is_no_row_and_is_set_aside_behind_what_was_set_aside_before(tmp_path: Path, tail: bytes) -> None:
    table_in(tmp_path, HEADER + "one").append(ROW)
    table = table_in(tmp_path, (HEADER + LINE).encode() + tail)
    assert table.rows() == [ROW]
    table.append(ROW)
    assert table.rows() == [ROW, ROW]
    assert (tmp_path / "rows.csv.torn").read_bytes() == b"one\n" + tail + b"\n"


def test_a_pipe_in_the_place_of_what_was_set_aside_is_reported_and_nothing_waits(tmp_path: Path) -> None:
    table = table_in(tmp_path, HEADER + LINE + "k2,0.5")
    torn = table.path.with_name(f"{table.path.name}.torn")
    os.mkfifo(torn)
    with pytest.raises(UserError, match=f"{re.escape(str(torn))}: not a regular file; move the file away"):
        table.append(ROW)
    assert table.path.read_text() == HEADER + LINE + "k2,0.5"


# Damaged files


def test_columns_of_another_version_are_named(tmp_path: Path) -> None:
    line = error_in(tmp_path, HEADER.replace("note", "remark") + LINE)
    assert line == (
        "1: its columns are not those of this version of opcost (unknown: remark; missing: note); "
        "move the file away or use another --database"
    )
    with pytest.raises(UserError, match="unknown: remark; missing: note"):
        table_in(tmp_path).append(ROW)
    assert table_in(tmp_path).path.read_text() == HEADER.replace("note", "remark") + LINE


def test_a_line_that_was_changed_is_reported_by_its_checksum(tmp_path: Path) -> None:
    line = error_in(tmp_path, HEADER + LINE + LINE.replace("0.25", "0.26"))
    assert line == (
        "3: wrong checksum: the line was damaged or edited; "
        "delete the line, or empty its last cell if the values are right"
    )
    table = table_in(tmp_path, HEADER + LINE.replace("0.25", "0.26").replace("edabe5b6", ""))
    assert table.rows() == [replace(ROW, time_s=0.26)]
    for checksum in ("edabe5b", "edabe5b60", "0"):
        assert "wrong checksum" in error_in(tmp_path, HEADER + LINE.replace("edabe5b6", checksum))
    # A spreadsheet may quote all cells: what they hold is the same.
    quoted = LINE.strip().replace(",", '","')
    assert table_in(tmp_path, f'{HEADER}"{quoted}"\r\n').rows() == [ROW]


@given(st.integers(0, len(LINE) - 2), st.integers(1, 255))
@settings(max_examples=100)
def test_a_byte_that_was_changed_is_never_a_row_of_its_own(at: int, change: int) -> None:
    damaged = bytearray(LINE.encode())
    damaged[at] ^= change
    with tempfile.TemporaryDirectory() as folder:
        table = table_in(Path(folder), HEADER.encode() + bytes(damaged))
        with suppress(UserError):
            assert table.rows() in ([], [ROW])


SIGNED = {"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "'=1": "''=1", "''": "'''"}
SIGNED |= {
    text: f"'{text}"
    for text in (" =1", "' =1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20SUM(A1)", " \uff1d1", "'\uff1d1")
}
UNSIGNED = ["'", "'i j -> j i'", "a=1", "' a", "a\uff1d1"]


@pytest.mark.parametrize(("text", "cell"), [*SIGNED.items(), *zip(UNSIGNED, UNSIGNED, strict=True)])
def test_no_cell_of_text_is_a_formula(tmp_path: Path, text: str, cell: str) -> None:
    row = replace(ROW, key=text, time_s=-1.0, note=text)
    assert encode(row)[0] == encode(row)[6] == cell
    assert encode(row)[1] == "-1.0"
    table = table_in(tmp_path)
    table.append(row)
    assert table.rows() == [row]


@pytest.mark.parametrize("text", ["\t=1+1", "\r=1+1", "\n\t=1+1", "\xa0\uff1d1+1"])
def test_a_formula_behind_white_space_is_text(tmp_path: Path, text: str) -> None:
    table = table_in(tmp_path)
    table.append(replace(ROW, note=text))
    assert re.search(r",'[ ]+[=\uff1d]1\+1,", table.path.read_text())
    assert table.rows() == [replace(ROW, note=one_line(text))]


# Rows that replace others


def test_rows_are_replaced_by_what_an_update_makes_of_them(tmp_path: Path) -> None:
    table, other = CsvTable(tmp_path / "new" / "rows.csv", Row), replace(ROW, key="k2")
    table.replace_rows(lambda rows: [*rows, ROW, other])
    assert table.rows() == [ROW, other]
    table.replace_rows(lambda rows: [replace(row, time_s=0.5) for row in rows[1:]])
    assert table.rows() == [replace(other, time_s=0.5)]
    assert [path.name for path in table.path.parent.iterdir()] == ["rows.csv"]


def test_rows_that_stay_as_they_are_leave_the_file_alone(tmp_path: Path) -> None:
    table = table_in(tmp_path, HEADER + LINE)
    before = table.path.stat()
    table.replace_rows(list)
    assert os.path.samestat(table.path.stat(), before)


def test_an_unfinished_line_is_set_aside_before_rows_are_replaced(tmp_path: Path) -> None:
    table = table_in(tmp_path, HEADER + LINE + "k2,0.")
    table.replace_rows(lambda rows: [*rows, ROW])
    assert table.path.read_text() == HEADER + 2 * LINE
    assert (tmp_path / "rows.csv.torn").read_text() == "k2,0.\n"


@pytest.mark.parametrize("update", [list, lambda rows: [*rows, ROW]])
def test_an_older_file_whose_rows_are_replaced_is_kept(
    tmp_path: Path, update: Callable[[list[Row]], list[Row]]
) -> None:
    table = table_in(tmp_path, OLD_HEADER + OLD_LINE)
    table.replace_rows(update)
    assert table.path.read_text() == HEADER + len(update([ROW])) * LINE
    assert (tmp_path / "rows.csv.old").read_text() == OLD_HEADER + OLD_LINE


def test_a_damaged_line_is_reported_and_no_row_is_replaced(tmp_path: Path) -> None:
    table = table_in(tmp_path, HEADER + LINE + "k2\n")
    with pytest.raises(UserError, match=r"rows\.csv:3: 1 cells"):
        table.replace_rows(lambda rows: [])
    assert table.path.read_text() == HEADER + LINE + "k2\n"


# Older versions


def test_a_file_of_an_older_version_is_read_and_replaced_by_one_of_this_with_the_next_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    without_note = OLD_HEADER.replace(",note", ""), OLD_LINE.replace(",,7", ",7")
    for number, content in enumerate((OLD_HEADER + OLD_LINE, "".join(without_note)), start=1):
        table = table_in(tmp_path, content)
        assert table.rows() == [ROW]
        assert table.path.read_text() == content
        table.append(ROW)
        assert table.path.read_text() == HEADER + 2 * LINE
        old = tmp_path / ("rows.csv.old" if number == 1 else "rows.csv.old-2")
        assert old.read_text() == content
        assert f"rows.csv: converted to this version; the former table is {old.name}" in caplog.text


def test_a_file_may_be_made_ready_before_its_next_row_is_known(tmp_path: Path) -> None:
    table = CsvTable(tmp_path / "new" / "rows.csv", Row)
    for content in ("", OLD_HEADER + OLD_LINE, HEADER + LINE + "k2,0."):
        if content:
            table.path.write_text(content)
        table.prepare()
        assert table.path.read_text() == HEADER + (LINE if content else "")
    assert sorted(path.name for path in table.path.parent.iterdir()) == ["rows.csv", "rows.csv.old", "rows.csv.torn"]


def test_an_older_file_that_is_damaged_is_left_as_it_is(tmp_path: Path) -> None:
    content = OLD_HEADER + OLD_LINE + "k2\n"
    table = table_in(tmp_path, content)
    with pytest.raises(UserError, match="rows.csv:3: 1 cells, 8 expected"):
        table.append(ROW)
    assert table.path.read_text() == content
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


# Parts, merges, repairs


def test_only_rows_that_are_wanted_are_read(tmp_path: Path) -> None:
    other = replace(ROW, key="k2")
    table = table_in(tmp_path)
    for row in (ROW, other, ROW):
        table.append(row)
    assert table.rows(lambda key: key == "k2") == [other]
    with table.path.open("a") as file:
        file.write("k3,damaged\n")
    assert table.rows(lambda key: key != "k3") == [ROW, other, ROW]
    with pytest.raises(UserError, match="rows.csv:5"):
        table.rows()


def test_a_table_for_reading_parses_wanted_lines_only_and_each_once(tmp_path: Path) -> None:
    CsvTable(tmp_path / "shipped.csv", Row).append(ROW)
    other = replace(ROW, key="k2")
    CsvTable(tmp_path / "rows.csv", Row).append(other)
    with (tmp_path / "rows.csv").open("a") as file:
        file.write("k3,damaged\n")
    table = ReadTable(tmp_path / "rows.csv", Row, tmp_path / "shipped.csv")
    rows = table.rows(lambda key: key != "k3")
    assert rows == [ROW, other]
    assert all(one is again for one, again in zip(rows, table.rows(lambda key: key != "k3"), strict=True))
    assert table.rows(lambda key: key == "k2") == [other]
    with pytest.raises(UserError, match="rows.csv:3"):
        table.rows()


def test_rows_of_another_file_are_added_once(tmp_path: Path) -> None:
    table, other = table_in(tmp_path), CsvTable(tmp_path / "other.csv", Row)
    table.append(ROW)
    rows = [replace(ROW, key=key) for key in ("k2", "k3")]
    for row in (ROW, *rows):
        other.append(row)
    assert table.append_missing(other.rows()) == 2
    assert table.append_missing(other.rows()) == 0
    again = replace(ROW, key="k4")
    assert table.append_missing([again, again]) == 1
    assert table.rows() == [ROW, *rows, again]


def test_all_problems_are_reported_and_good_lines_are_kept(tmp_path: Path) -> None:
    content = HEADER + LINE + "k2\n" + LINE + LINE.replace("k1", "k9") + "torn"
    table = table_in(tmp_path, content)
    assert [problem.removeprefix(f"{table.path}:")[:20] for problem in table.problems()] == [
        "3: 1 cells, 9 expect",
        "5: wrong checksum: t",
    ]
    old = table.keep_good_lines()
    assert (old.name, old.read_text()) == ("rows.csv.old", content)
    assert table.path.read_text() == HEADER + 2 * LINE
    assert table.problems() == []


@pytest.mark.parametrize("content", ["\ufeff" + HEADER + LINE, (HEADER + LINE).replace("\n", "\r\n")])
def test_a_byte_order_mark_and_line_ends_of_another_system_are_read(tmp_path: Path, content: str) -> None:
    table = table_in(tmp_path, content)
    assert table.rows() == [ROW]
    table.append(ROW)
    assert table.rows() == [ROW, ROW]


def test_a_line_without_its_end_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = table_in(tmp_path, (HEADER + LINE + LINE)[:-1])
    assert table.rows() == [ROW]
    assert f"{table.path}:3: the last line has no newline and is skipped" in caplog.text
    caplog.clear()
    table_in(tmp_path, HEADER + LINE).rows()
    assert caplog.text == ""


@dataclass(frozen=True)
class Checked:
    """A row that refuses what cannot be."""

    time_s: float

    def __post_init__(self) -> None:
        if self.time_s < 0:
            raise ValueError(f"time_s: {self.time_s} is below 0")


def test_a_row_that_cannot_be_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("time_s,checksum\n1.0,\n-1.0,\n")
    with pytest.raises(UserError, match=r":3: time_s: -1\.0 is below 0; fix or delete the line"):
        CsvTable(path, Checked).rows()


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (b"k2,fast,,True,,3,,7,\n", "time_s: 'fast' is not valid"),
        (b"k2,,,True,,3,,7,\n", "time_s: '' is not valid"),
        (b"k2,0.1,,yes,,3,,7,\n", "is_capped: 'yes' is not valid"),
        (b"k2,0.1,,True,,3.5,,7,\n", "count: '3.5' is not valid"),
        (b"k2,0.1,,True,,3,,x,\n", "limit: 'x' is not valid"),
        (b"k2,0.1\n", "2 cells, 9 expected"),
        (b"\n", "0 cells, 9 expected"),
        (b"k2,0.1,,True,,3,,7,8,9\n", "10 cells, 9 expected"),
        (b"k\xff\n", "no UTF-8 text"),
        (b'"k2\n', "no valid CSV (unexpected end of data)"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, bad: bytes, problem: str) -> None:
    content = (HEADER + LINE).encode() + bad + LINE.encode()
    assert error_in(tmp_path, content) == f"3: {problem}; fix or delete the line"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ((HEADER + LINE).replace(",", ";"), "its cells are separated by semicolons; save it with commas and decimal"),
        ((HEADER + LINE).replace(",", "\t"), "its cells are separated by tabs; save it with commas and decimal points"),
        (LINE + LINE, "no header; begin the file with the line key,time_s,"),
        (
            HEADER.replace("note", "a,b,c,d,e") + LINE,
            "its columns are not those of this version of opcost (unknown: a, b, c and 2 more; missing: note)",
        ),
        # This version needs the column, and no older one was without it.
        (
            OLD_HEADER.replace(",count", "") + OLD_LINE,
            "its columns are not those of this version of opcost (unknown: none; missing: count)",
        ),
    ],
)
def test_a_header_that_is_none_is_reported(tmp_path: Path, content: str, problem: str) -> None:
    assert error_in(tmp_path, content).startswith(f"1: {problem}")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_what_is_no_plain_file_is_reported_and_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A pipe would be waited for, and a device never ends."""
    table = table_in(tmp_path)
    make(table.path)
    line = f"{table.path}:1: not a regular file; move the file away or use another --database"
    assert table.problems() == [line]
    for use in (table.rows, lambda: table.append(ROW), lambda: table.replace_rows(list)):
        with pytest.raises(UserError) as caught:
            use()
        assert caught.value.lines == (line,)


@pytest.mark.parametrize(("before", "number"), [("", 1), (HEADER, 2), (HEADER + LINE, 3)])
def test_a_line_longer_than_any_row_is_reported_in_little_memory(tmp_path: Path, before: str, number: int) -> None:
    table = table_in(tmp_path, before)
    with table.path.open("ab") as file:
        file.truncate(len(before) + 250_000_000)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + LINE.encode())
    with little_memory():
        (line,) = table.problems()
        assert table.lines() == number
    assert line.startswith(f"{table.path}:{number}: longer than any row; ")


def test_an_unfinished_line_longer_than_any_row_is_set_aside_in_little_memory(tmp_path: Path) -> None:
    table = table_in(tmp_path, HEADER + LINE)
    with table.path.open("ab") as file:
        file.truncate(len(HEADER + LINE) + 600_000_000)
    with little_memory():
        table.append(ROW)
    assert table.path.read_text() == HEADER + 2 * LINE
    assert table.path.with_name("rows.csv.torn").stat().st_size == 600_000_001


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=300))
@settings(max_examples=60)
def test_damage_of_any_kind_is_a_users_error_or_none(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = table_in(Path(folder), HEADER.encode() + content)
        with suppress(UserError):
            assert all(isinstance(row, Row) for row in table.rows())


# Other processes, a full disk, a kill

WRITER = """
import resource, signal, sys
from dataclasses import dataclass
from pathlib import Path
from opcost.storage.table import BLOCK_BYTES, CsvTable, ReadTable
from opcost.errors import UserError

@dataclass(frozen=True)
class Row:
    writer: str
    number: int
    text: str

table = CsvTable(Path(sys.argv[1]), Row)
"""


@dataclass(frozen=True)
class WriterRow:
    writer: str
    number: int
    text: str


def start_writer(path: Path, body: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER + body, str(path), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "write",
    [
        "table.append(Row(sys.argv[2], number, 'x' * (number * 50)))",
        "table.replace_rows(lambda rows: [*rows, Row(sys.argv[2], number, '')])",
    ],
)
def test_four_writers_at_once_lose_nothing(tmp_path: Path, write: str) -> None:
    path = tmp_path / "rows.csv"
    writers = [start_writer(path, f"for number in range(30): {write}", str(writer)) for writer in range(4)]
    assert [writer.communicate()[1] for writer in writers] == [""] * 4
    rows = CsvTable(path, WriterRow).rows()
    assert sorted((row.writer, row.number) for row in rows) == [(str(w), n) for w in range(4) for n in range(30)]
    assert [row.number for row in rows if row.writer == "0"] == list(range(30))


WRITES: list[Callable[[CsvTable[Row]], object]] = [
    lambda table: table.append(ROW),
    lambda table: table.append_missing([replace(ROW, key="k2")]),
    lambda table: table.replace_rows(lambda rows: [*rows, ROW]),
    lambda table: table.keep_good_lines(),
    lambda table: table.prepare(),
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("lock", [fcntl.LOCK_SH, fcntl.LOCK_EX])
def test_who_writes_waits_until_no_one_else_holds_the_file(
    tmp_path: Path, write: Callable[[CsvTable[Row]], object], lock: int
) -> None:
    table = table_in(tmp_path, HEADER + LINE)
    writer = threading.Thread(target=write, args=[table], daemon=True)
    with table.path.open("rb") as file:
        fcntl.flock(file, lock)
        before = table.path.stat()
        writer.start()
        writer.join(0.1)
        assert writer.is_alive()
        after = table.path.stat()
        assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    writer.join(10)
    assert not writer.is_alive()


@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_is_synced_to_disk_as_a_whole(
    tmp_path: Path, write: Callable[[CsvTable[Row]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash may come right after a write returns, and right after an unfinished line was cut off."""
    synced: dict[int, int] = {}

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced[status.st_ino] = status.st_size

    monkeypatch.setattr(os, "fsync", fsync)
    table = table_in(tmp_path, HEADER + LINE + "k2,0.")
    torn = table.path.with_name("rows.csv.torn")
    write(table)
    for path in (table.path, *([torn] if torn.exists() else [])):
        status = path.stat()
        assert synced.get(status.st_ino) == status.st_size


@pytest.mark.parametrize("size_limit", [0, 5, 500])
def test_a_full_disk_leaves_the_rows_before_it(tmp_path: Path, size_limit: int) -> None:
    path = tmp_path / "rows.csv"
    body = f"""
resource.setrlimit(resource.RLIMIT_FSIZE, ({size_limit}, {size_limit}))
number = 0
try:
    while True:
        table.append(Row("w", number, "x" * 30))
        number += 1
except UserError as error:
    print(number, error, sep="\\n", end="")
"""
    output, errors = start_writer(path, body).communicate()
    number, *message = output.splitlines()
    assert errors == ""
    assert len(message) == 1
    assert message[0].startswith(f"{path}: the row could not be written (")
    assert message[0].endswith("; make room and start again")
    table = CsvTable(path, WriterRow)
    assert path.read_bytes()[-1:] in (b"", b"\n"), "what was written of the row is taken back"
    assert [row.number for row in table.rows()] == list(range(int(number)))
    table.append(WriterRow("w", int(number), ""))
    assert len(table.rows()) == int(number) + 1


def test_a_killed_writer_loses_no_row_that_it_has_reported(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    body = "for number in range(10**6): table.append(Row('w', number, 'x' * 3000)); print(number, flush=True)"
    writer = start_writer(path, body)
    assert writer.stdout is not None
    for _ in range(20):
        writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    # Not communicate(): it does not see lines that readline() has buffered.
    reported = 20 + len(writer.stdout.readlines())
    writer.wait()
    rows = CsvTable(path, WriterRow).rows()
    assert reported <= len(rows) <= reported + 1
    assert [row.number for row in rows] == list(range(len(rows)))


def test_cells_are_in_the_order_of_the_columns() -> None:
    assert names_of(Row) == OLD_HEADER.strip().split(",")
    assert encode(ROW) == OLD_LINE.strip().split(",")


def test_unfinished_lines_are_listed_in_the_order_of_names(tmp_path: Path) -> None:
    names = [f"{letter}.csv.torn" for letter in "gcaebdfh"]
    for name in [*names, "a.csv", "a.torn"]:
        (tmp_path / name).touch()
    assert [path.name for path in Database(tmp_path).unfinished_lines()] == sorted(names)
