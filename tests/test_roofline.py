"""The roofline: the best of all rows is the roof, and each call has its side of it."""

from __future__ import annotations

import pytest

from opcost.calls_in_chains import STREAM_BYTES
from opcost.roofline import COMPUTE, MEMORY, Roof, Work, roofline_of

BIG = 2 * STREAM_BYTES
COPY = Work(flop=0, memory_bytes=BIG, time_s=0.1, energy_j=50.0)
PRODUCT = Work(flop=10**12, memory_bytes=10**6, time_s=0.01, energy_j=5.0)


def test_the_best_rates_are_the_roof() -> None:
    roofline = roofline_of([COPY, PRODUCT])
    assert roofline is not None
    assert roofline.time == Roof(1e14, BIG / 0.1)
    assert roofline.energy == Roof(2e11, BIG / 50)


def test_what_lies_in_a_cache_is_no_roof_of_the_memory() -> None:
    cached = Work(flop=0, memory_bytes=10**6, time_s=1e-9, energy_j=1e-9)
    roofline = roofline_of([COPY, PRODUCT, cached])
    assert roofline is not None
    assert roofline.time.byte_rate == pytest.approx(BIG / 0.1)
    assert roofline.time.reached(0, cached.memory_bytes, cached.time_s) > 1


def test_small_operators_are_the_roof_where_there_are_no_others() -> None:
    small = Work(flop=0, memory_bytes=10**6, time_s=1e-6, energy_j=None)
    roofline = roofline_of([small, PRODUCT])
    assert roofline is not None
    assert roofline.time.byte_rate == pytest.approx(1e12)


def test_sides_meet_at_the_ridge() -> None:
    roof = Roof(flop_rate=100.0, byte_rate=10.0)
    assert roof.ridge_flop_per_byte == 10
    assert roof.side(Work(99, 10, 1.0, None)) == MEMORY
    assert roof.side(Work(100, 10, 1.0, None)) == COMPUTE
    assert roof.side(Work(100, 0, 1.0, None)) is None
    assert (roof.at(5.0), roof.at(20.0)) == (50.0, 100.0)


def test_without_energies_there_is_a_roof_of_time_only() -> None:
    roofline = roofline_of([Work(10**9, BIG, 1.0, None)])
    assert roofline is not None
    assert roofline.energy is None


@pytest.mark.parametrize("works", [[], [COPY], [Work(10, 0, 1.0, 1.0)]])
def test_without_computing_or_moving_there_is_no_roofline(works: list[Work]) -> None:
    assert roofline_of(works) is None
