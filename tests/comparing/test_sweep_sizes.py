"""Sizes of a sweep: declared pieces and breaks of curves are found again, and newer rows replace older ones."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_machine import SIMULATED_CONDITIONS

from opcost.comparing.sweep_sizes import MOST_PIECES, PieceKind, curves_of, pieces_of, replaced
from opcost.measuring.sweep_record import SweepFigures, SweepPlace, SweepPrediction, SweepSizeRow, SweepWork

DOUBLING = [2**power for power in range(3, 13)]


def test_a_constant_beginning_and_a_quadratic_rest_are_found() -> None:
    y = [max(1.0, 3e-5 * size**2) for size in DOUBLING]
    first, second = pieces_of(DOUBLING, y)
    assert (first.kind, second.kind) == (PieceKind.CONSTANT, PieceKind.QUADRATIC)
    assert (first.last, second.first) == (4, 5)
    assert second.at(1000) == pytest.approx(30.0)


def test_a_line_is_one_piece() -> None:
    x = list(range(50, 501, 50))
    (piece,) = pieces_of(x, [2.0 + 0.01 * one for one in x])
    assert piece.kind is PieceKind.LINEAR
    assert piece.coefficients == pytest.approx((2.0, 0.01))


def test_a_jump_is_a_break() -> None:
    x = list(range(1, 21))
    pieces = pieces_of(x, [one * (1.0 if one <= 10 else 1.4) for one in x])
    found = [(piece.kind, piece.first, piece.last) for piece in pieces]
    assert found == [(PieceKind.LINEAR, 0, 9), (PieceKind.LINEAR, 10, 19)]


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_builds_makes_no_breaks(seed: int) -> None:
    chance, x = random.Random(seed), list(range(50, 1001, 50))
    pieces = pieces_of(x, [(1 + 0.002 * one) * chance.gauss(1, 0.003) for one in x])
    assert [piece.kind for piece in pieces] == [PieceKind.LINEAR]


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=14))
def test_pieces_cover_all_points_in_order(y: list[float]) -> None:
    pieces = pieces_of(range(1, len(y) + 1), y)
    covered = [place for piece in pieces for place in range(piece.first, piece.last + 1)]
    assert covered in ([], list(range(len(y))))
    assert len(pieces) <= MOST_PIECES
    assert all(piece.kind is not PieceKind.CONSTANT for piece in pieces[1:])


# Rows

BELOW = 128
"""The last size of the constant piece."""


def row(size: int, *, has_energy: bool = True) -> SweepSizeRow:
    time_s = 1e-3 if size <= BELOW else 1e-3 * (size / BELOW) ** 2
    return SweepSizeRow(
        place=SweepPlace(f"key-{size}", "net", "size", size, size**2),
        figures=SweepFigures(10, 0, time_s=time_s, energy_j=200 * time_s if has_energy else None),
        prediction=SweepPrediction(),
        work=SweepWork(),
        failure=None,
        device_uuid=None,
        loop_s=1.0,
        conditions=SIMULATED_CONDITIONS,
    )


def test_curves_have_their_breaks_and_a_line_for_each_piece() -> None:
    time, energy = curves_of(list(map(row, DOUBLING)))
    assert (time.quantity, energy.quantity) == ("time", "energy")
    assert time.breaks == ((BELOW, 2 * BELOW),)
    lines = [(one.kind, one.first_size, one.last_size, one.jump_ratio) for one in time.lines]
    assert lines == [("constant", 8, 64, None), ("quadratic", 128, 4096, pytest.approx(4.0))]
    assert [curve.quantity for curve in curves_of([row(size, has_energy=False) for size in DOUBLING])] == ["time"]
    assert curves_of([row(8), row(16)]) == curves_of([]) == ()


def test_a_new_row_replaces_that_of_its_size_board_and_loop() -> None:
    first, other = row(8), replace(row(8), device_uuid="GPU-1")
    newer = replace(first, failure="out of memory")
    assert replaced([first, other], [newer]) == [other, newer]
