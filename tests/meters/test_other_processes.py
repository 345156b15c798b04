"""Other processes: on a GPU, as a simulated GPU reports them; on processors, as a made-up /proc/stat does."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from opcost.errors import UserError
from opcost.meters.gpus import POLL_INTERVAL_S, OtherProcesses
from opcost.meters.host import TICKS_PER_S, OtherLoad
from opcost.power.log_rows import PowerRow
from opcost.power.ports import GpuError

OWN = 100


@dataclass
class Gpu:
    """A GPU with some processes; ``busy`` are the percentages that it reports one after the other, None for unknown."""

    ids: list[int] | None = field(default_factory=list)
    busy: list[int | None] = field(default_factory=lambda: [0])

    def process_ids(self) -> set[int]:
        if self.ids is None:
            raise GpuError("Not Supported")
        return set(self.ids)

    def state(self) -> PowerRow:
        percent = self.busy.pop(0) if len(self.busy) > 1 else self.busy[0]
        return PowerRow(0.0, utilisation_ratio=None if percent is None else percent / 100)


def watch(gpu: Gpu) -> OtherProcesses:
    return OtherProcesses(gpu, OWN)  # type: ignore[arg-type]


def nothing(_: float) -> None:
    pass


@pytest.mark.parametrize(
    ("before", "later", "named"),
    [
        pytest.param([], [OWN], [], id="alone"),
        pytest.param([7], [7, OWN], [], id="one that was there and rested"),
        pytest.param([], [OWN, 8], [8], id="one that came"),
        pytest.param([7], [7, OWN, 9, 8], [8, 9], id="two that came"),
        pytest.param([], [31], [], id="alone in a container, by another number"),
        pytest.param([], [31, 32], [31, 32], id="one that came, in a container"),
        pytest.param([], [], [], id="processes are not reported"),
    ],
)
def test_those_that_come_are_noticed(before: list[int], later: list[int], named: list[int]) -> None:
    gpu = Gpu(before)
    others = watch(gpu)
    gpu.ids = later
    remark = others.disturbance()
    assert bool(remark) == bool(named)
    if named:
        assert remark.startswith("another process")
        assert remark.endswith(f": {' or '.join(map(str, named))}")


def test_one_that_stays_is_reported_every_time_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    gpu = Gpu([])
    others = watch(gpu)
    gpu.ids = [OWN, 8]
    assert [others.disturbance().startswith("another process") for _ in range(3)] == [True] * 3
    assert len(caplog.records) == 1
    gpu.ids = [OWN]
    assert others.disturbance() == ""


def test_in_a_container_only_the_first_newcomer_is_this_process() -> None:
    gpu = Gpu([])
    others = watch(gpu)
    reported = []
    for process_ids in ([31], [31, 32], [31, 32, 33], [31]):
        gpu.ids = process_ids
        reported.append(others.disturbance().rpartition(": ")[2])
    assert reported == ["", "32", "32 or 33", ""]


def test_a_gpu_in_use_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"in use 40% of the time \(processes: 7, 8\)"):
        watch(Gpu([8, 7], [40])).refuse_if_busy(nothing)


@pytest.mark.parametrize(("busy", "waits"), [([0], 0), ([5], 0), ([90, 40, 0], 2)])
def test_a_gpu_at_rest_or_soon_so_is_accepted(busy: list[int], waits: int) -> None:
    waited_s: list[float] = []
    watch(Gpu([7], busy)).refuse_if_busy(waited_s.append)
    assert waited_s == [POLL_INTERVAL_S] * waits


def test_what_a_driver_does_not_report_is_neither_refused_nor_noticed() -> None:
    others = watch(Gpu(None, [None]))
    others.refuse_if_busy(nothing)
    assert others.disturbance() == ""


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
    assert OtherLoad(tmp_path / "none").disturbance() == ""
    # Others may run on this machine meanwhile.
    assert isinstance(OtherLoad().disturbance(), str)
