"""A short version of ``benchmarks/kills.py``: whatever ends a campaign, no row is lost, none is there twice."""

from pathlib import Path

import pytest
from faulty_campaign import children, faulty_processes, run_faulty_campaign
from killed_campaigns import attack


@pytest.mark.parametrize(("name", "times"), [("kills", 8), ("interrupts", 4), ("among_four", 2), ("full_disks", 2)])
def test_what_is_ended_goes_on_where_it_was(tmp_path: Path, name: str, times: int) -> None:
    ended, complete = attack(name, tmp_path, times, seed=1)
    assert ended >= times
    assert complete >= 1


def test_each_fault_costs_only_its_operator_and_has_its_reason(tmp_path: Path) -> None:
    before = children()
    with faulty_processes():
        tally = run_faulty_campaign(tmp_path, operators=12, fault_ratio=0.25, seed=5)
    assert (tally.good, tally.faulty) == (9, 3)
    assert children() == before
