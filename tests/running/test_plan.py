"""The cases to be measured, and why, given rows of a database."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_machine import SIMULATED_CIRCUMSTANCES, SIMULATED_CONDITIONS, simulated_row

from opcost.measuring.flags import Flag, Flags
from opcost.measuring.protocol import RETRIES, MeasurementProtocol
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import USUAL, Setting
from opcost.operators.counts import Case
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.running.plan import IN_A_BLOCK, KnownRows, Plan, Reason, Wanted, Work, make_plan, planned_blocks

SECOND = MeasurementProtocol(warm_up_s=0.5, loop_s=1.0)
FP32 = replace(SIMULATED_CONDITIONS, precision="fp32")
CONDITIONS = {USUAL: SIMULATED_CONDITIONS, Setting("fp32"): FP32}
RELU, GELU, SILU, LINEAR = (
    Case(OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((4,), "float32"),)))
    for name in ("ReLU", "GELU", "SiLU", "Linear")
)
MEASURED = simulated_row(RELU.operator, circumstances=replace(SIMULATED_CIRCUMSTANCES, loop_s=1.0))


def row(
    case: Case = RELU,
    flags: Flags = (),
    loop_s: float = 1.0,
    board: str | None = "simulated-0",
    has_energy: bool = True,
) -> MeasurementRow:
    measurement = replace(MEASURED.measurement, flags=flags)
    if not has_energy:
        measurement = replace(measurement, energy_j=None, energy_standard_error_j=None)
    circumstances = replace(MEASURED.circumstances, loop_s=loop_s, device_uuid=board)
    key = f"{case.key}-{SIMULATED_CONDITIONS.key}"
    return replace(MEASURED, key=key, measurement=measurement, circumstances=circumstances)


def work(*cases: Case, name: str = "a", setting: Setting = USUAL) -> Work:
    return Work(name, setting, cases)


def plan(
    works: Sequence[Work],
    rows: Sequence[MeasurementRow] = (),
    failed: Sequence[MeasurementRow] = (),
    protocol: MeasurementProtocol = SECOND,
    has_meter: bool = True,
    boards: tuple[str | None, ...] | None = None,
) -> Plan:
    known = KnownRows(protocol, has_meter, rows, boards)
    return make_plan(works, known, protocol, CONDITIONS, {row.key for row in failed})


def reasons(rows: Sequence[MeasurementRow], **demand: Any) -> list[Reason]:
    return [item.reason for item in plan([work(RELU)], rows, **demand).items]


def names(planned: Plan) -> list[list[str]]:
    return [[item.case.operator.short_name for item in part.items] for part in planned.works]


def order(planned: Plan) -> list[str]:
    """Return the names of a plan's operators as they are measured."""
    return [item.case.operator.short_name for item in planned.items]


UNEVEN = row(flags=(Flag.UNEVEN,))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], [Reason.MISSING]),
        ([row(GELU)], [Reason.MISSING]),
        ([row()], []),
        ([row(loop_s=2.0)], []),
        ([row(loop_s=0.5)], [Reason.SHORTER]),
        ([row(loop_s=0.5), row()], []),
        ([row(has_energy=False)], [Reason.NO_ENERGY]),
        ([row(has_energy=False), row()], []),
        ([UNEVEN], [Reason.FLAGGED]),
        ([UNEVEN, row()], []),
        # A flag that casts no doubt on a figure is no reason.
        ([row(flags=(Flag.AT_POWER_LIMIT, Flag.IMPRECISE, Flag.NO_KERNEL))], []),
        # A flag that all repetitions have is no reason.
        ((RETRIES.runs - 1) * [UNEVEN], [Reason.FLAGGED]),
        (RETRIES.runs * [UNEVEN], []),
        (RETRIES.runs * [row(has_energy=False)], []),
        ([*(RETRIES.runs - 1) * [UNEVEN], row(has_energy=False)], []),
        # Rows that do not count are no attempts.
        ([UNEVEN, *RETRIES.runs * [row(loop_s=0.5)]], [Reason.FLAGGED]),
    ],
)
def test_what_is_missing_has_a_reason(rows: list[MeasurementRow], expected: list[Reason]) -> None:
    assert reasons(rows) == expected


def test_where_there_is_no_meter_no_energy_is_missing() -> None:
    assert reasons([row(has_energy=False)], has_meter=False) == []


@pytest.mark.parametrize(
    ("boards", "expected"), [(None, []), (("here",), [Reason.OTHER_BOARD]), (("there", "here"), []), ((None,), [])]
)
def test_rows_of_other_boards_count_unless_boards_are_named(
    boards: tuple[str | None, ...] | None, expected: list[Reason]
) -> None:
    """A CPU's board has no name."""
    rows = [row(board=None if boards == (None,) else "there")]
    assert reasons(rows, boards=boards) == expected


def test_a_precision_is_settled_by_one_as_good() -> None:
    precise = MeasurementProtocol(0.1, 30.0, relative_error=0.01)
    found = [
        replace(row(), circumstances=replace(MEASURED.circumstances, loop_s=None, relative_error=relative_error))
        for relative_error in (0.02, 0.01)
    ]
    assert reasons([*found[:1], row()], protocol=precise) == [Reason.SHORTER]
    assert reasons(found, protocol=precise) == []
    assert reasons([row(loop_s=30.0)], protocol=precise) == []


def test_what_two_models_want_is_measured_for_the_first_one_in_each_precision() -> None:
    planned = plan([work(RELU, GELU), work(GELU, SILU, name="b")])
    assert names(planned) == [["ReLU", "GELU"], ["SiLU"]]
    assert [len(part.keys) for part in planned.works] == [2, 2]
    planned = plan([work(RELU), work(RELU, name="b", setting=Setting("fp32"))], [row()])
    assert names(planned) == [[], ["ReLU"]]
    (item,) = planned.items
    assert (item.setting, item.key) == (Setting("fp32"), f"{RELU.key}-{FP32.key}")


BF16_RELU = Case(OperatorTuple("torch.nn.ReLU", (), (TensorSpec((4,), "bfloat16"),)))


def test_a_row_that_stands_for_others_completes_a_case() -> None:
    of_other = replace(row(BF16_RELU), key=f"{BF16_RELU.key}-{FP32.key}", conditions=FP32)
    planned = plan([work(RELU, BF16_RELU)], [of_other, replace(row(), key=f"{RELU.key}-{FP32.key}", conditions=FP32)])
    assert names(planned) == [["ReLU"]]
    assert planned.items[0].case == RELU
    # The report of the model finds the row by this key.
    assert planned.works[0].keys == (f"{RELU.key}-{SIMULATED_CONDITIONS.key}", of_other.key)


def test_a_row_under_the_very_conditions_is_preferred_but_only_if_it_is_sound() -> None:
    own = row(BF16_RELU)
    other = replace(own, key=f"{BF16_RELU.key}-{FP32.key}", conditions=FP32)
    uneven = replace(own, measurement=UNEVEN.measurement)
    for rows, key in (([other, own], own.key), ([other, uneven], other.key)):
        planned = plan([work(BF16_RELU)], rows)
        assert (planned.items, planned.works[0].keys) == ((), (key,))
    (item,) = plan([work(BF16_RELU)], [uneven]).items
    assert (item.key, item.reason) == (own.key, Reason.FLAGGED)


def test_what_stands_for_each_other_is_measured_once() -> None:
    works = [work(BF16_RELU, RELU), work(BF16_RELU, RELU, name="b", setting=Setting("fp32"))]
    planned = plan(works)
    assert names(planned) == [["ReLU", "ReLU"], ["ReLU"]]
    assert [item.setting for item in planned.items] == [USUAL, USUAL, Setting("fp32")]
    key = f"{BF16_RELU.key}-{SIMULATED_CONDITIONS.key}"
    assert [part.keys[0] for part in planned.works] == [key, key]
    # With this one row, both are complete.
    rows = [row(BF16_RELU), row(), replace(row(), key=f"{RELU.key}-{FP32.key}", conditions=FP32)]
    assert plan(works, rows).items == ()


@pytest.mark.parametrize("repeated", [UNEVEN, row(has_energy=False)], ids=["flagged", "without energy"])
def test_what_has_no_row_comes_first_and_what_has_failed_last_among_all_models(repeated: MeasurementRow) -> None:
    works = [work(RELU, SILU, GELU), work(LINEAR, name="b")]
    planned = plan(works, [repeated], failed=[row(SILU)])
    assert order(planned) == ["GELU", "Linear", "ReLU", "SiLU"]
    assert [item.has_failed for item in planned.items] == [False, False, False, True]
    # Nor is a row that does not count a repetition.
    assert order(plan(works, [row(loop_s=0.5), row(GELU, flags=(Flag.UNEVEN,))])) == ["ReLU", "SiLU", "Linear", "GELU"]
    # A case that failed and was measured since counts as measured.
    assert order(plan(works, [row(SILU)], failed=[row(SILU)])) == ["ReLU", "GELU", "Linear"]


def test_a_plan_is_data_that_says_how_many_are_to_be_measured_for_which_reason() -> None:
    planned = plan([work(RELU, GELU, SILU, LINEAR)], [UNEVEN, row(LINEAR)])
    assert planned.works[0].reasons == {"missing": 2, "flagged": 1}
    assert pickle.loads(pickle.dumps(planned)) == planned
    assert hash(planned)


def test_rows_that_are_added_settle_what_they_should_and_replace_no_better_ones() -> None:
    known = KnownRows(SECOND, True, [row(loop_s=0.5), row(GELU)])
    key = row().key
    found = []
    for _ in range(RETRIES.runs):
        known.add([UNEVEN])
        found.append(known.reason(key))
    assert found == [*(RETRIES.runs - 1) * [Reason.FLAGGED], None]
    known.add([row()])
    known.add([UNEVEN, row(SILU), row(GELU, flags=(Flag.UNEVEN,))])
    assert known.best == {one.key: one for one in (row(), row(GELU), row(SILU))}
    assert [known.reason(one.key) for one in (row(), row(GELU), row(SILU))] == [None, None, None]


@pytest.mark.parametrize("notes", ["", "out of memory: shared with another process; uneven; not within 1 %"])
def test_notes_change_nothing(notes: str) -> None:
    rows = [UNEVEN, row(GELU), row(SILU, has_energy=False), row(LINEAR, loop_s=0.5)]
    works = [work(RELU, GELU), work(SILU, LINEAR, name="b")]
    noted = [replace(one, measurement=replace(one.measurement, notes=notes)) for one in rows]
    assert plan(works, noted) == plan(works, rows)


@given(
    st.lists(st.text("abc", min_size=1, max_size=3), unique=True, max_size=8), st.integers(1, 23), st.integers(0, 2**32)
)
def test_without_rows_each_repetition_of_each_size_is_planned_once(keys: list[str], number: int, seed: int) -> None:
    blocks = planned_blocks(keys, (), Wanted(number, 1.0, None), (), seed)
    planned = [(block.key, repetition) for block in blocks for repetition in block.repetitions]
    assert sorted(planned) == sorted((key, repetition) for key in keys for repetition in range(1, number + 1))
    assert all(1 <= len(block.repetitions) <= IN_A_BLOCK for block in blocks)
    numbers = [block.number for block in blocks]
    assert numbers == sorted(numbers)


@given(st.sets(st.sampled_from("abcdef"), min_size=1), st.integers(0, 2**32))
def test_sizes_that_failed_come_last(failed: set[str], seed: int) -> None:
    blocks = planned_blocks("abcdef", (), Wanted(10, 1.0, None), failed, seed)
    are_last = [block.key in failed for block in blocks]
    assert are_last == sorted(are_last)
