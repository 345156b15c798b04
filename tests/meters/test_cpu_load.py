"""Other load on the processors, as /proc/stat reports it; the file is made up, this process's own time is real."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from opcost.meters.other_work import TICKS_PER_S, OtherLoad

PROCESSORS = sorted(os.sched_getaffinity(0))


def write(path: Path, busy_s: float, idle_s: float, others_elsewhere_s: float = 0.0) -> None:
    """Write what each processor of this process has done, and one that is not its own."""
    rows = {f"cpu{number}": (busy_s, idle_s) for number in PROCESSORS} | {"cpu9999": (others_elsewhere_s, 0.0)}
    lines = [
        f"{name} {round(busy * TICKS_PER_S)} 0 0 {round(idle * TICKS_PER_S)} 0 0 0 0 77 77"
        for name, (busy, idle) in rows.items()
    ]
    path.write_text("\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *lines, "intr 12 0"]) + "\n")


@pytest.mark.parametrize(
    ("busy_s", "idle_s", "elsewhere_s", "is_reported"),
    [
        pytest.param(10.0, 0.0, 0.0, True, id="full of others"),
        pytest.param(9.5, 0.5, 0.0, True, id="nearly full"),
        pytest.param(5.0, 5.0, 0.0, False, id="others, and room for all"),
        pytest.param(0.0, 10.0, 10.0, False, id="others on other processors"),
        pytest.param(0.0, 0.0, 0.0, False, id="no time has passed"),
    ],
)
def test_other_processes_are_reported_where_there_is_no_room(
    tmp_path: Path, busy_s: float, idle_s: float, elsewhere_s: float, is_reported: bool
) -> None:
    stat = tmp_path / "stat"
    write(stat, 100.0, 100.0)
    load = OtherLoad(stat)
    write(stat, 100.0 + busy_s, 100.0 + idle_s, elsewhere_s)
    assert load.disturbance().startswith("other processes") == is_reported
    assert load.disturbance() == ""


def test_what_this_process_does_is_no_disturbance(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    write(stat, 0.0, 0.0)
    load = OtherLoad(stat)
    begin_s = time.process_time()
    while time.process_time() - begin_s < 0.2:
        pass
    write(stat, 0.2 / len(PROCESSORS), 0.0)
    assert load.disturbance() == ""


def test_without_a_source_nothing_is_reported(tmp_path: Path) -> None:
    load = OtherLoad(tmp_path / "none")
    assert load.disturbance() == ""


def test_this_machine_is_read_without_an_error() -> None:
    # Others may run on it meanwhile.
    assert isinstance(OtherLoad().disturbance(), str)
