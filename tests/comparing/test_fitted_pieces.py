"""Curves in pieces: declared pieces and breaks are found again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opcost.comparing.sweep_changes import MOST_PIECES, PieceKind, pieces_of

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
    assert [(piece.kind, piece.first, piece.last) for piece in pieces] == [
        (PieceKind.LINEAR, 0, 9),
        (PieceKind.LINEAR, 10, 19),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_builds_makes_no_breaks(seed: int) -> None:
    chance, x = random.Random(seed), list(range(50, 1001, 50))
    pieces = pieces_of(x, [(1 + 0.002 * one) * chance.gauss(1, 0.003) for one in x])
    assert [piece.kind for piece in pieces] == [PieceKind.LINEAR]


def test_few_points_have_no_pieces() -> None:
    assert pieces_of([1, 2], [1.0, 2.0]) == ()
    assert pieces_of([], []) == ()


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=14))
def test_pieces_cover_all_points_in_order(y: list[float]) -> None:
    pieces = pieces_of(range(1, len(y) + 1), y)
    covered = [place for piece in pieces for place in range(piece.first, piece.last + 1)]
    assert covered in ([], list(range(len(y))))
    assert len(pieces) <= MOST_PIECES
    assert all(piece.kind is not PieceKind.CONSTANT for piece in pieces[1:])
