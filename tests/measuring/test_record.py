"""Rows whose power their board cannot draw."""

from dataclasses import replace

import pytest
from committed_tables import committed
from simulated_machine import SIMULATED_CONDITIONS, simulated_row

from opcost.measuring.flags import Flag, Flags
from opcost.measuring.record import (
    IMPOSSIBLE_POWER,
    LEAST_SETTLED_LOOP_S,
    MeasurementRow,
    has_impossible_power,
    is_doubtful,
    names_of,
)
from opcost.operators.tuples import OperatorTuple

LIMIT_W = 700.0
ROW = simulated_row(OperatorTuple("torch.nn.ReLU"))


def row_of(power_ratio: float, loop_s: float, flags: Flags = (), limit_w: float | None = LIMIT_W) -> MeasurementRow:
    measured = replace(ROW.measurement, power_w=power_ratio * LIMIT_W, loop_time_s=loop_s, flags=flags)
    return replace(ROW, measurement=measured, conditions=replace(SIMULATED_CONDITIONS, device_power_limit_w=limit_w))


@pytest.mark.parametrize(
    ("power_ratio", "loop_s", "flags", "is_impossible"),
    [
        # The most that committed rows of H100s and H200s have.
        (1.12, 0.21, (Flag.AT_POWER_LIMIT,), False),
        (1.49, 1.0, (Flag.DUTY_CYCLE,), False),
        (0.9993, 2.7, (Flag.POWER_CAPPED,), False),
        (1.2, 0.21, (Flag.AT_POWER_LIMIT,), True),
        (1.3, 0.21, (Flag.ABOVE_POWER_LIMIT,), False),
        (2.1, 1.0, (Flag.DUTY_CYCLE,), True),
        (1.05, 3.0, (), True),
    ],
)
def test_a_short_loop_and_one_with_pauses_may_draw_more_than_the_limit(
    power_ratio: float, loop_s: float, flags: Flags, is_impossible: bool
) -> None:
    row = row_of(power_ratio, loop_s, flags)
    assert (has_impossible_power(row), is_doubtful(row)) == (is_impossible, is_impossible)
    assert names_of(row, ()) == ((IMPOSSIBLE_POWER,) if is_impossible else ())


def test_without_a_limit_or_a_power_nothing_is_impossible() -> None:
    row = row_of(9.0, 3.0, limit_w=None)
    assert not has_impossible_power(row)
    without = replace(row_of(9.0, 3.0), measurement=replace(row.measurement, power_w=None))
    assert not has_impossible_power(without)


def test_no_committed_row_has_an_impossible_power() -> None:
    tables = committed().operator_measurements, committed().full_model_measurements
    rows = [row for table in tables for row in table.rows()]
    assert not [row.key for row in rows if has_impossible_power(row)]
    largest: dict[str, float] = {}
    for row in rows:
        measured, limit_w = row.measurement, row.conditions.device_power_limit_w
        if measured.power_w is not None and limit_w is not None:
            lasts = measured.loop_time_s >= LEAST_SETTLED_LOOP_S
            kind = "pauses" if Flag.DUTY_CYCLE in measured.flags else "lasting" if lasts else "short"
            largest[kind] = max(largest.get(kind, 0.0), measured.power_w / limit_w)
    # As docs/method.md says.
    assert largest == pytest.approx({"short": 1.12, "lasting": 0.9993, "pauses": 1.49}, abs=0.005)
