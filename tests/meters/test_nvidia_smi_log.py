import math
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.meters.nvidia_smi import (
    Columns,
    LogRow,
    cut,
    is_header,
    parse_log,
    parse_number,
    parse_row,
    parse_timestamp,
)
from opcost.power.log_rows import PowerRow

HEADER = "timestamp, power.draw.instant [W], power.draw [W], clocks.sm [MHz], temperature.gpu"
BEGIN_S = 1_790_000_000


def line_at(offset_ms: int, power: str = "684.69") -> str:
    moment = datetime.fromtimestamp(BEGIN_S + offset_ms / 1e3, tz=timezone.utc)
    return f"{moment:%Y/%m/%d %H:%M:%S}.{offset_ms % 1000:03d}, {power}, 680.10, 1980, 45"


def rows_at(*epochs_s: float) -> list[LogRow]:
    return [LogRow(PowerRow(epoch_s), str(epoch_s)) for epoch_s in epochs_s]


def epochs_s(rows: tuple[LogRow, ...]) -> list[float]:
    return [row.values.epoch_s for row in rows]


@pytest.mark.parametrize(
    "token", ["", "-", "[N/A]", "ERR!", "[Not Supported]", "[GPU requires reset]", "NaN", "inf", "-inf", "1e5x"]
)
def test_words_for_no_value_are_no_numbers(token: str) -> None:
    assert parse_number(token) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("684.69", 684.69), (" 45 ", 45.0), ("684,69", 684.69), ("-3", -3.0), ("684.69 W", 684.69), ("97 %", 97.0)],
)
def test_numbers_are_read_with_point_comma_or_unit(text: str, number: float) -> None:
    assert parse_number(text) == number


@given(st.text())
def test_any_text_is_a_finite_number_or_none(text: str) -> None:
    number = parse_number(text)
    assert number is None or math.isfinite(number)


@given(st.text())
def test_any_text_is_a_bit_field_or_none(text: str) -> None:
    columns = Columns(("timestamp", "clocks_event_reasons.active"), "\0\0")
    row = parse_row(columns, f"2026/11/04 10:23:45\0\0{text}")
    assert row is None or row.values.event_reasons is None or 0 <= row.values.event_reasons < 2**64


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(9999, 1, 1), timezones=st.just(timezone.utc)))
def test_timestamps_are_read_as_utc(moment: datetime) -> None:
    text = f"{moment:%Y/%m/%d %H:%M:%S}.{moment.microsecond // 1000:03d}".rjust(23, "0")
    assert parse_timestamp(text) == pytest.approx(moment.timestamp(), abs=1.1e-3)


@pytest.mark.parametrize("text", ["2026/13/01 00:00:00.000", "2026/02/30 00:00:00.000", "2026/11/04", "", "N/A"])
def test_impossible_timestamps_are_none(text: str) -> None:
    assert parse_timestamp(text) is None


def test_a_row_is_read_in_si_units_by_the_names_of_the_columns() -> None:
    header = "pstate, memory.used [MiB], clocks.current.sm [MHz], utilization.gpu [%], timestamp, power.draw [W]"
    swapped = "timestamp" + header.removeprefix("pstate").replace("timestamp", "pstate")
    parsed = parse_log([swapped, "2026/11/04 10:23:45.250, 1024, 1980, 97, P0, 684.69"])
    assert parsed[0].values == PowerRow(
        epoch_s=datetime(2026, 11, 4, 10, 23, 45, 250_000, tzinfo=timezone.utc).timestamp(),
        power_average_w=684.69,
        utilisation_ratio=0.97,
        sm_clock_hz=1.98e9,
        memory_used_bytes=2**30,
    )


@pytest.mark.parametrize(
    ("columns", "cells", "expected"),
    [
        ("temperature.gpu, temperature.memory", "45, 39", {"temperature_c": 45.0, "memory_temperature_c": 39.0}),
        ("temperature.gpu, temperature.memory", "45, N/A", {"temperature_c": 45.0, "memory_temperature_c": None}),
        ("power.draw.instant [W], clocks.sm [MHz]", "684,69, 1980", {"power_instant_w": 684.69, "sm_clock_hz": 1.98e9}),
        ("power.draw.average [W], power.draw [W]", "[N/A], 250.00", {"power_average_w": 250.0}),
        ("power.draw.average [W], power.draw [W]", "240.00, 250.00", {"power_average_w": 240.0}),
        ("power.draw, power.draw.average", "250.0, 240.0", {"power_average_w": 240.0}),
    ],
)
def test_cells_are_read_by_the_names_of_their_columns(columns: str, cells: str, expected: dict[str, float]) -> None:
    (row,) = parse_log([f"timestamp, {columns}", f"2026/11/04 10:23:45.250, {cells}"])
    assert {name: getattr(row.values, name) for name in expected} == expected


@pytest.mark.parametrize("before", [[], [HEADER]])
@given(st.lists(st.text()))
def test_no_text_makes_the_parser_raise(before: list[str], lines: list[str]) -> None:
    assert len(parse_log([*before, *lines])) <= len(lines)


@st.composite
def broken_lines(draw: st.DrawFn) -> str:
    """A cut row, two rows in one line, the header again, a message, or any text."""
    row = line_at(draw(st.integers(0, 10_000)))
    return draw(
        st.one_of(
            st.integers(0, row.rindex(",")).map(lambda length: row[:length]),
            st.integers(1, len(row)).map(lambda length: row[:length] + row),
            st.just(HEADER),
            st.just("Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost."),
            st.text(),
        )
    )


@given(st.lists(st.one_of(st.none(), broken_lines()), max_size=30))
def test_well_formed_rows_survive_among_garbage(garbage: list[str | None]) -> None:
    """Each None stands for a good row."""
    good = [line_at(20 * index) for index in range(garbage.count(None))]
    supply = iter(good)
    parsed = parse_log([HEADER, *(next(supply) if line is None else line for line in garbage)])
    assert [row.line for row in parsed] == good


@pytest.mark.parametrize(
    ("rows", "begin_s", "end_s", "expected"),
    [
        pytest.param((1, 2, 3, 4, 5, 6), 2.5, 4.5, [2, 3, 4, 5], id="the rows inside and their neighbours"),
        pytest.param((1, 3, 4, 3.5, 5, 9), 2, 6, [1, 3, 4, 5, 9], id="none that goes back in time"),
        pytest.param((1, 99, 2, 3), 1.5, 4, [1, 2, 3, 99], id="one from the future hides no others"),
    ],
)
def test_a_cut_has_rows(rows: tuple[float, ...], begin_s: float, end_s: float, expected: list[float]) -> None:
    assert epochs_s(cut(rows_at(*rows), begin_s, end_s)) == expected


@given(st.lists(st.floats(0, 100)), st.floats(0, 100), st.floats(0, 100))
def test_a_cut_is_in_order_of_time(epochs: list[float], begin_s: float, end_s: float) -> None:
    kept = epochs_s(cut(rows_at(*epochs), begin_s, max(begin_s, end_s)))
    assert kept == sorted(kept)
    assert set(kept) <= set(epochs)


def test_only_a_line_of_columns_is_a_header() -> None:
    assert is_header(HEADER)
    assert not is_header(line_at(0))
    assert not is_header("timestamp of the failure")
