import csv
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from opcost.power.log_rows import COLUMNS, PowerRow, PowerSummary, csv_line

VALUES = st.none() | st.floats(0, 1e12, allow_subnormal=False)
ROWS = st.builds(
    PowerRow,
    epoch_s=st.integers(0, 4_000_000_000_000).map(lambda milliseconds: milliseconds / 1000),
    power_instant_w=VALUES,
    power_average_w=VALUES,
    utilisation_ratio=VALUES,
    sm_clock_hz=VALUES,
    temperature_c=VALUES,
    memory_temperature_c=VALUES,
    event_reasons=st.none() | st.integers(0, 2**64 - 1),
    memory_used_bytes=st.none() | st.integers(0, 2**50),
)


@given(ROWS)
def test_a_row_can_be_read_again_from_its_line(row: PowerRow) -> None:
    cells = next(csv.DictReader([",".join(COLUMNS), csv_line(row)]))
    assert tuple(cells) == COLUMNS
    assert abs(datetime.fromisoformat(cells["timestamp"]).timestamp() - row.epoch_s) < 1e-3
    for name in COLUMNS[1:7]:
        value = getattr(row, name)
        assert cells[name] == "" if value is None else abs(float(cells[name]) - value) <= 1e-11 * value
    assert (
        cells["event_reasons"] == ""
        if row.event_reasons is None
        else int(cells["event_reasons"], 16) == row.event_reasons
    )
    assert cells["memory_used_bytes"] == ("" if row.memory_used_bytes is None else str(row.memory_used_bytes))


def test_the_timestamp_carries_its_zone() -> None:
    assert csv_line(PowerRow(0.25)) == "1970-01-01T00:00:00.250+00:00,,,,,,,,"


def test_a_summary_averages_each_value_for_as_long_as_it_was_shown() -> None:
    summary = PowerSummary()
    summary.add_all(
        [PowerRow(float(index), power_instant_w=power) for index, power in enumerate([90, 90, 100, 100, 200])]
    )
    summary.add_all([PowerRow(9.0), PowerRow(10.0, power_instant_w=200)])
    assert (summary.rows, summary.value_changes, summary.mean_power_w) == (7, 2, 130)
    assert (summary.minimum_power_w, summary.maximum_power_w) == (90, 200)
    assert (summary.duration_s, summary.energy_j) == (10.0, 1300.0)
    assert str(summary) == "7 rows, 2 value changes, mean power 130.0 W"


def test_a_steady_load_has_its_mean_though_new_readings_equal_the_old_ones() -> None:
    summary = PowerSummary()
    summary.add_all([PowerRow(float(index), power_instant_w=700) for index in range(99)])
    assert str(summary) == "99 rows, 0 value changes, mean power 700.0 W"
    summary.add_all([PowerRow(99.0, power_instant_w=600)])
    assert (summary.value_changes, summary.mean_power_w) == (1, 699)


def test_the_instant_power_comes_first_and_the_average_stands_in() -> None:
    summary = PowerSummary()
    summary.add_all([PowerRow(0.0, 1.0, 5.0), PowerRow(1.0, 2.0, 5.0), PowerRow(2.0, None, 6.0)])
    assert summary.mean_power_w == 3.0


def test_without_readings_there_is_no_mean() -> None:
    zero = PowerSummary()
    zero.add_all([PowerRow(0.0, power_instant_w=0.0), PowerRow(1.0, power_instant_w=5.0)])
    assert (zero.minimum_power_w, zero.maximum_power_w) == (0.0, 5.0)
    empty = PowerSummary()
    assert (empty.minimum_power_w, empty.maximum_power_w, empty.energy_j) == (None, None, None)
    assert str(empty) == "0 rows, 0 value changes, mean power unknown"
