"""A short version of ``benchmarks/kills.py``: whatever ends a campaign, no row is lost, none is there twice."""

from __future__ import annotations

from pathlib import Path

from faulty_campaign import children, faulty_processes, run_faulty_campaign
from killed_campaigns import fill_the_disk, interrupt_one_by_one, kill_among_four, kill_one_by_one


def test_what_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    assert kill_one_by_one(tmp_path, 8, seed=1).killed >= 8


def test_what_is_interrupted_ends_at_once_and_goes_on(tmp_path: Path) -> None:
    assert interrupt_one_by_one(tmp_path, 4, seed=2).interrupted >= 4


def test_four_processes_that_write_into_one_file_may_be_killed(tmp_path: Path) -> None:
    assert kill_among_four(tmp_path, 2, seed=3).killed >= 2


def test_a_disk_that_fills_at_any_byte_costs_the_row_that_it_refused(tmp_path: Path) -> None:
    assert fill_the_disk(tmp_path, 2, seed=4).without_room >= 2


def test_each_fault_costs_only_its_operator_and_has_its_reason(tmp_path: Path) -> None:
    before = children()
    with faulty_processes():
        tally = run_faulty_campaign(tmp_path, operators=12, fault_ratio=0.25, seed=5)
    assert (tally.good, tally.faulty) == (9, 3)
    assert children() == before
