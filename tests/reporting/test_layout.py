"""Tables fit any width: no line is longer, no word is broken, columns go in the declared order."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from opcost.reporting.tables import GAP, MINIMUM_WIDTH, Column, drawn, shortened, words, wrapped
from opcost.units import UNKNOWN

COLUMNS = [
    Column("model", str, "left"),
    Column("time", str),
    Column("sum of operators", str, drop=1),
    Column("size of all inputs", str, drop=2),
]
ROW = ["resnet50", "1.5 ms", "1.042 ± 0.002", "350 MB"]


def filled(columns: list[Column[str]], rows: list[list[str]]) -> list[tuple[Column[str], list[str]]]:
    """Each column with its cells."""
    return [(column, [row[place] for row in rows]) for place, column in enumerate(columns)]


def lines_of(
    columns: list[Column[str]], rows: list[list[str]], width: int, block: int = 1
) -> tuple[list[str], tuple[str, ...]]:
    table = drawn(filled(columns, rows), width, block)
    return [line for line, _ in table.lines], table.left_out


def test_a_table_that_fits_is_whole_and_headings_break_before_a_column_is_left_out() -> None:
    lines, left_out = lines_of(COLUMNS, [ROW], 80)
    assert lines[0] == "model       time  sum of operators  size of all inputs"
    assert lines[2] == "resnet50  1.5 ms     1.042 ± 0.002              350 MB"
    assert left_out == ()
    lines, left_out = lines_of(COLUMNS, [ROW], 46)
    assert lines[:2] == [f"{'':39}size of", "model       time  sum of operators  all inputs"]
    assert left_out == ()


@pytest.mark.parametrize("width", [40, 160])
def test_a_column_without_a_known_value_goes_before_all_others(width: int) -> None:
    columns = [
        Column("model", str, "left"),
        Column("energy per sample", str),
        Column("calls", str, drop=1),
        Column("ms", str, drop=2),
    ]
    rows = [["resnet50_with_a_long_name", "-", "161", "5"], ["-", "-", "-", "6"]]
    table = drawn(filled(columns, rows), width, 1)
    assert (table.left_out, table.unknown) == ((), ("energy per sample",))


@pytest.mark.parametrize(
    ("name", "left_out"),
    [("a_model", ()), ("a_name_of_9", ("inputs",)), ("a_name_of_18_signs", ("sum of operators", "inputs"))],
)
def test_columns_go_in_the_declared_order(name: str, left_out: tuple[str, ...]) -> None:
    columns = [*COLUMNS[:3], Column("inputs", str, drop=2)]
    assert lines_of(columns, [[name, *ROW[1:]]], 40)[1] == left_out


def test_a_row_that_does_not_fit_is_a_block() -> None:
    columns = [Column("model", str, "left"), Column("time needed", str), Column("why", str, "left")]
    name = "an_operator_of_a_model_with_a_long_name"
    lines, _ = lines_of(columns, [[name, "1.5 ms", "it is not measured yet"], ["b", "2 h 5 min", "-"]], 42)
    assert lines == [
        name,
        "  time needed  1.5 ms",
        "  why          it is not measured yet",
        "b",
        "  time needed  2 h 5 min",
        "  why          -",
    ]


def test_rows_that_belong_together_are_one_block() -> None:
    columns = [Column("model", str, "left"), Column("", str), Column("sum", str), Column("missing", str)]
    rows = [["a_model_with_a_long_name_and_a_size_224", "time", "1.5 ms", "2"], ["on a card", "energy", "3 mJ", ""]]
    assert lines_of(columns, rows, 45, block=2)[0] == [
        rows[0][0],
        "on a card",
        "           time    energy",
        "  sum      1.5 ms  3 mJ",
        "  missing  2",
    ]


def test_texts_take_several_lines_before_a_column_is_left_out() -> None:
    columns = [
        Column("model", str, "left"),
        Column("operators to add", str, "left", wraps=24),
        Column("time", str, drop=1),
    ]
    lines, left_out = lines_of(columns, [["a", "LayerNorm, Linear, MultiheadAttention", "1.5 ms"]], 45)
    assert left_out == ()
    assert [line.split() for line in lines[2:]] == [["a", "LayerNorm,", "Linear,", "1.5", "ms"], ["MultiheadAttention"]]


TEXTS = st.lists(st.text("abcé_-. 0123456789±%", max_size=14).map(str.strip), max_size=4).map(" ".join)
TABLES = st.integers(1, 7).flatmap(
    lambda number: st.tuples(
        st.lists(
            st.builds(
                Column, TEXTS, st.just(str), st.sampled_from(["left", "right"]), st.integers(0, 3), st.integers(0, 30)
            ),
            min_size=number,
            max_size=number,
        ),
        st.lists(st.lists(TEXTS, min_size=number, max_size=number), max_size=4),
    )
)


@given(TABLES, st.integers(MINIMUM_WIDTH, 170), st.integers(1, 2))
@example(([Column("a" * 34, str, "left"), Column("", str, "left", wraps=1)], [["", " _ 001 00"]]), 41, 1)
def test_no_line_is_longer_than_the_width_and_no_word_is_broken(
    table: tuple[list[Column[str]], list[list[str]]], width: int, block: int
) -> None:
    columns, rows = table
    lines, left_out = lines_of(columns, rows, width, block)
    assert max(map(cell_len, lines), default=0) <= width
    shown = "\n".join(re.sub(" +", " ", line) for line in lines)
    kept = [index for index, column in enumerate(columns) if column.title not in left_out]
    # A column without any known value is left out, too.
    for word in {word for row in rows for index in kept for word in words(row[index])} - {UNKNOWN}:
        assert word in shown or cell_len(word) > width - 2 * GAP


# Texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a sum of 1.042 ± 0.002 (!) here", ["a", "sum", "of", "1.042 ± 0.002 (!)", "here"]),
        ("3 min 20 s left", ["3 min", "20 s", "left"]),
        ("at most 98.1 %; (12 calls)", ["at", "most", "98.1 %;", "(12 calls)"]),
        ("Conv2d(64, 64) on", ["Conv2d(64,", "64)", "on"]),
    ],
)
def test_a_number_stays_with_its_unit(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_a_word_longer_than_a_line_is_broken_at_separators() -> None:
    assert wrapped("efficientnet_b0_32x3x224x224", 20) == ["efficientnet_b0_", "32x3x224x224"]
    assert wrapped("  torch.nn.Conv2d(64, 64)", 16, hanging=4) == ["  torch.nn.", "    Conv2d(64,", "    64)"]


@given(st.text(max_size=60), st.integers(1, 50))
def test_a_name_is_shortened_in_its_middle_and_fits(text: str, width: int) -> None:
    assert shortened("torch.nn.Conv2d on float32[2, 3]", 16) == "torch.nn…2[2, 3]"
    assert shortened("short", 16) == "short"
    assert cell_len(shortened(text, width)) <= width
