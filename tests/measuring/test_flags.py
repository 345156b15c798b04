from dataclasses import replace

import pytest
from simulated_machine import simulated_row

from opcost.measuring.flags import (
    CASTING_DOUBT,
    OF_AN_OVERHEAD,
    OTHER_WORK,
    POSSIBLY_THROTTLED,
    Flag,
    flags_of,
    joined_notes,
    meanings,
)
from opcost.measuring.record import quality_flags
from opcost.operators.tuples import OperatorTuple


def test_flags_come_once_and_in_one_order():
    assert flags_of([Flag.IMPRECISE, Flag.UNEVEN, Flag.IMPRECISE]) == (Flag.UNEVEN, Flag.IMPRECISE)


@pytest.mark.parametrize("flag", Flag)
def test_each_flag_has_a_meaning_of_its_own_and_a_name_that_a_cell_can_hold(flag):
    assert sum(flag.meaning == other.meaning for other in Flag) == 1
    assert set(flag.value) <= set("abcdefghijklmnopqrstuvwxyz-")


def test_what_is_measured_again_is_what_casts_doubt():
    assert {flag.value for flag in CASTING_DOUBT} == {
        "uneven",
        "meters-disagree",
        "meters-disagreed-before",
        "thermal-slowdown",
        "other-process",
        "no-temperature",
        "clocks-still-low",
        "out-of-memory-in-capture",
    }


def test_a_flag_of_other_work_is_one_of_quality_and_casts_no_doubt() -> None:
    """Another measurement would do the same work."""
    flags = (Flag.UNEVEN, Flag.IMPRECISE, Flag.NO_KERNEL, *OTHER_WORK)
    measurement = replace(simulated_row(OperatorTuple("torch.nn.ReLU")).measurement, flags=flags_of(flags))
    shown = (Flag.UNEVEN, Flag.IMPRECISE, Flag.NOT_AS_COUNTED, Flag.VALUE_DEPENDENT)
    assert quality_flags(measurement) == shown
    assert [flag in CASTING_DOUBT for flag in shown] == [True, False, False, False]


def test_an_overhead_passes_on_what_disturbed_it_and_not_what_it_is():
    assert {*CASTING_DOUBT, *POSSIBLY_THROTTLED, Flag.IMPRECISE, Flag.AT_POWER_LIMIT} == OF_AN_OVERHEAD


def test_people_read_meanings_and_notes_on_one_line():
    assert meanings([Flag.UNEVEN, Flag.THERMAL_SLOWDOWN]).endswith("the shortest; thermal slowdown")
    assert joined_notes("a", "", "b") == "a; b"
