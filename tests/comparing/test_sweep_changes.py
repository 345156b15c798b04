"""Breaks of a sweep's curves are named by the data of the sizes on both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_machine import SIMULATED_CIRCUMSTANCES, SIMULATED_CONDITIONS

from opcost.comparing.sweep_changes import Change, curves_of, lines_of
from opcost.comparing.sweep_sizes import SweepFigures, SweepPrediction, SweepSizeRow, SweepWork, replaced
from opcost.measuring.sweep_record import SweepKernelRow, SweepPlace

SIZES = [2**power for power in range(3, 13)]
BELOW = 128
"""The last size of the constant piece."""


def row(size: int, **changes: object) -> SweepSizeRow:
    time_s = 1e-3 if size <= BELOW else 1e-3 * (size / BELOW) ** 2
    figures = SweepFigures(10, 0, time_s=time_s, energy_j=200 * time_s, power_w=200.0, cache_bytes=50_000_000)
    work = SweepWork(flop=size, memory_bytes=size, largest_call_bytes=1000, kernels=100, kernels_time_s=0.95 * time_s)
    known = {name: value for name, value in changes.items() if hasattr(figures, name)}
    return SweepSizeRow(
        place=SweepPlace(f"key-{size}", "net", "size", size, size**2),
        figures=replace(figures, **known),
        prediction=SweepPrediction(),
        work=replace(work, **{name: value for name, value in changes.items() if name not in known}),
        failure=None,
        device_uuid=None,
        loop_s=1.0,
        conditions=SIMULATED_CONDITIONS,
    )


def kernel(size: int, name: str, time_s: float = 1e-3) -> SweepKernelRow:
    place = SweepPlace(f"key-{size}", "net", "size", size, size**2)
    moment = "2026-11-27T08:00:00+00:00"
    return SweepKernelRow(place, name, 1, time_s, moment, SIMULATED_CONDITIONS, SIMULATED_CIRCUMSTANCES)


def changes_at(rows: list[SweepSizeRow], kernels: list[SweepKernelRow]) -> set[Change]:
    curve = next(one for one in curves_of(rows, kernels) if one.quantity == "time")
    (found,) = curve.breaks
    assert (found.before, found.after) == (BELOW, 2 * BELOW)
    return {one.change for one in found.changes}


def test_without_data_no_change_is_named_and_what_is_unknown_is_said() -> None:
    rows = [row(size, cache_bytes=None) for size in SIZES]
    assert changes_at(rows, []) == set()
    (line,) = [one for one in lines_of(curves_of(rows, [])) if one.quantity == "time" and one.missing]
    assert line.missing == "kernels, cache"


def test_another_kernel_is_named_with_its_share() -> None:
    kernels = [kernel(size, "sgemm" if size <= BELOW else "winograd") for size in SIZES]
    rows = [row(size) for size in SIZES]
    assert changes_at(rows, kernels) == {Change.OTHER_KERNEL}
    text = next(one.changes for one in lines_of(curves_of(rows, kernels)) if one.changes)
    assert "winograd" in text
    assert "100 %" in text


def test_a_small_new_kernel_is_no_change() -> None:
    kernels = [kernel(size, "sgemm") for size in SIZES] + [kernel(2 * BELOW, "copy", 1e-5)]
    assert changes_at([row(size) for size in SIZES], kernels) == set()


@pytest.mark.parametrize("above", [{"power_w": 695.0}, {"power_w": 640.0, "power_capped_ratio": 0.5}])
def test_the_power_limit_is_named(above: dict[str, float]) -> None:
    rows = [row(size, **({} if size <= BELOW else above)) for size in SIZES]
    assert changes_at(rows, []) == {Change.POWER_LIMIT}


def test_the_size_of_the_cache_is_named() -> None:
    rows = [row(size, largest_call_bytes=1000 if size <= BELOW else 60_000_000) for size in SIZES]
    assert changes_at(rows, []) == {Change.CACHE_SIZE}


def test_launch_bound_is_named_if_kernels_take_less_than_the_time_below() -> None:
    rows = [row(size, kernels_time_s=(0.3 if size <= BELOW else 0.95) * row(size).figures.time_s) for size in SIZES]
    assert changes_at(rows, []) == {Change.LAUNCH_BOUND_BELOW}


def test_sizes_without_an_energy_have_no_curve_of_it() -> None:
    rows = [row(size, energy_j=None) for size in SIZES]
    assert [curve.quantity for curve in curves_of(rows, [])] == ["time"]


def test_a_new_row_replaces_that_of_its_size_board_and_loop() -> None:
    first, other = row(8), replace(row(8), device_uuid="GPU-1")
    newer = replace(first, failure="out of memory")
    assert replaced([first, other], [newer]) == [other, newer]
