"""Differences between boards in the time and energy of whole models."""

from dataclasses import replace

import pytest
from simulated_machine import declared_row

from opcost.measuring.flags import Flag
from opcost.measuring.record import MeasurementRow
from opcost.operators.tuples import model_operator
from opcost.stages.ranking_data import board_differences

MODEL = model_operator("resnet18", None, (1, 3, 8, 8))


def whole(board: str, time_s: float, energy_j: float | None, at_reference_j: float | None = None) -> MeasurementRow:
    figures = {"time_s": time_s, "energy_j": energy_j, "energy_at_reference_j": at_reference_j, "flags": ()}
    return declared_row(MODEL, circumstances={"device_uuid": board}, **figures)


def test_a_difference_is_that_of_the_largest_to_the_smallest_figure_of_a_model() -> None:
    found = board_differences(
        [
            [whole("a", 1.0, 10.0), whole("b", 1.1, 10.5), whole("c", 1.05, 10.2)],
            [whole("a", 2.0, 20.0), whole("b", 2.06, 20.0)],
            [whole("d", 9.0, 90.0)],
        ]
    )
    assert found.boards == 4
    assert (found.time.models, found.energy.models) == (2, 2)
    assert (found.time.median_ratio, found.time.high_ratio) == pytest.approx((0.065, 0.1))
    assert (found.energy.median_ratio, found.energy.high_ratio) == pytest.approx((0.025, 0.05))


def test_energies_are_compared_on_the_same_basis() -> None:
    found = board_differences([[whole("a", 1.0, 10.0, 9.0), whole("b", 1.0, 20.0, 9.9)]])
    assert found.energy.high_ratio == pytest.approx(0.1)
    found = board_differences([[whole("a", 1.0, 10.0, 9.0), whole("b", 1.0, 20.0)]])
    assert found.energy.high_ratio == pytest.approx(1.0)


def test_without_two_boards_nothing_is_known_of_their_differences() -> None:
    flagged = whole("b", 5.0, 50.0)
    flagged = replace(flagged, measurement=replace(flagged.measurement, flags=(Flag.UNEVEN,)))
    found = board_differences([[whole("a", 1.0, None), flagged]])
    assert (found.boards, found.time, found.energy) == (1, None, None)
    assert board_differences([]).boards == 0
