"""Campaigns on several GPUs of a host: real processes, simulated devices."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import simulated_apparatus
from fatal_bench import BROKEN, OTHERS, SLOW_S, fatal_answering, operator
from simulated_apparatus import RecordedProgress, SimulatedCampaign, end_midway, endless_campaign_of

from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import Setting
from opcost.meters.gpus import see_only
from opcost.meters.nvml import Nvidia
from opcost.running import bench as bench_module
from opcost.running.several_gpus import open_several_gpus, shares_of_cores
from opcost.stages.measure_operators import OperatorsReport, measure_operators

SHORT = MeasurementProtocol(0.5, 1.0)
DEVICES = tuple(f"cuda:{number}" for number in range(3))
TUPLES = 60


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "answering", fatal_answering)


def run(campaign: SimulatedCampaign, progress: RecordedProgress | None = None) -> OperatorsReport:
    opened = partial(open_several_gpus, DEVICES)
    (report,) = measure_operators(campaign.request(), lambda _: SHORT, opened, progress or RecordedProgress())
    return report


def campaign_of(folder: Path, name: str = "Slow", tuples: int = TUPLES) -> SimulatedCampaign:
    return simulated_apparatus.campaign_of(folder, name, tuples)


def rows(campaign: SimulatedCampaign) -> list[MeasurementRow]:
    return campaign.database.operator_measurements.rows()


def boards(campaign: SimulatedCampaign) -> Counter[str | None]:
    return Counter(row.circumstances.device_uuid for row in rows(campaign))


def test_each_tuple_is_measured_once_and_no_worker_waits(tmp_path: Path) -> None:
    campaign, progress = campaign_of(tmp_path), RecordedProgress()
    report = run(campaign, progress)
    assert (report.measured, report.remaining) == (TUPLES, 0)
    assert len({row.key for row in rows(campaign)}) == len(rows(campaign)) == len(progress.results) == TUPLES
    shares = boards(campaign)
    assert set(shares) == {f"simulated-{number}" for number in range(3)}
    assert min(shares.values()) > TUPLES / 6
    # The workers measured side by side.
    assert sum(row.step_times.taken_s or 0.0 for row in rows(campaign)) > TUPLES * SLOW_S
    assert run(campaign).found == TUPLES


def test_a_device_that_ends_every_process_leaves_its_tuples_to_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    campaign = campaign_of(tmp_path, "OfOneBoard")
    report = run(campaign)
    assert report.measured + report.failed == TUPLES
    assert set(boards(campaign)) == {"simulated-0", "simulated-1"}
    assert f"{BROKEN}: executes no more: 3 operators in a row ended the measuring process" in caplog.text
    assert run(campaign).remaining == 0


def kill_some(table: Path, chance: random.Random, stopping: threading.Event, killed: list[int]) -> None:
    """Kill two measuring processes at random moments from the first row on."""
    while not stopping.is_set() and len(killed) < 2:
        time.sleep(chance.uniform(0.01, 0.2) if table.exists() else 0.01)
        if not table.exists():
            continue
        children = [child for child in multiprocessing.active_children() if child.pid]
        if children:
            victim = chance.choice(children).pid
            assert victim is not None
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)


@pytest.mark.parametrize("seed", range(2))
def test_killed_workers_cost_nothing_but_time(tmp_path: Path, seed: int) -> None:
    campaign, stopping, killed = campaign_of(tmp_path), threading.Event(), list[int]()
    table = campaign.database.operator_measurements.path
    killer = threading.Thread(target=kill_some, args=(table, random.Random(seed), stopping, killed))
    killer.start()
    try:
        report = run(campaign)
    finally:
        stopping.set()
        killer.join()
    keys = [row.key for row in rows(campaign)]
    assert len(keys) == len(set(keys))
    set_aside = {row.key for row in campaign.database.failures.rows()}
    assert len(killed) == 2
    assert report.measured + report.failed == TUPLES
    assert run(campaign).remaining == 0
    assert len(rows(campaign)) == TUPLES
    assert set_aside <= {row.key for row in rows(campaign)}


def test_processes_close_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ending, closing, closed = bench_module.ChildBench.__exit__, threading.Barrier(len(DEVICES)), list[str]()

    def end(bench: bench_module.ChildBench, *error: object) -> None:
        if bench.device not in closed:
            closed.append(bench.device)
            # It waits for the others to begin.
            closing.wait(20)
        ending(bench, *error)

    monkeypatch.setattr(bench_module.ChildBench, "__exit__", end)
    run(campaign_of(tmp_path, tuples=3))
    assert sorted(closed) == list(DEVICES)
    assert not closing.broken
    assert not multiprocessing.active_children()


def test_a_model_is_reported_while_others_are_measured(tmp_path: Path) -> None:
    campaign = SimulatedCampaign(tmp_path, {})
    for name, tuples in (("a", 3), ("b", 30)):
        campaign.add_model(name, {operator("Slow", width): 1 for width in range(1, tuples)}, precision="bf16")
    # No process was asked for the conditions of this setting in the precision torch-default.
    request = replace(campaign.request(), setting=Setting(execution="eager"))
    opened = partial(open_several_gpus, DEVICES[:2])
    reports = measure_operators(request, lambda _: SHORT, opened, RecordedProgress())
    assert [(report.name, report.remaining) for report in reports] == [("a", 0), ("b", 0)]


def test_the_times_of_two_kinds_are_parts_of_one_run(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, tuples=30)
    opened = partial(open_several_gpus, (DEVICES[0], OTHERS[0]))
    reports = measure_operators(campaign.request(), lambda _: SHORT, opened, RecordedProgress())
    busy_s = Counter[str | None]()
    for row in rows(campaign):
        busy_s[row.circumstances.device_uuid] += row.step_times.taken_s or 0.0
    assert [report.measured for report in reports] == [30, 30]
    assert sum(report.taken_s for report in reports) < 1.5 * max(busy_s.values())


@pytest.mark.parametrize("after_s", [0.02, 0.05, 0.3])
def test_an_interrupted_start_leaves_no_process(tmp_path: Path, after_s: float) -> None:
    opened = open_several_gpus(DEVICES, None, SimulatedCampaign(tmp_path, {}).database, True)
    threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), opened:
        time.sleep(60)
    assert not multiprocessing.active_children()


CLIENT = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
if __name__ == "__main__":
    from fatal_bench import fatal_answering
    from opcost.running import bench
    from test_several_gpus import campaign_again, run
    bench.answering = fatal_answering
    print("begins", flush=True)
    run(campaign_again(Path({folder!r})))
"""


def campaign_again(folder: Path) -> SimulatedCampaign:
    return SimulatedCampaign(folder, {})


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_ends_leaves_no_process_and_the_next_one_goes_on(tmp_path: Path, sent: signal.Signals) -> None:
    campaign = endless_campaign_of(tmp_path, TUPLES)
    script = tmp_path / "client.py"
    here = Path(__file__).parent
    path = [str(here), str(here.parent), str(here.parents[1])]
    script.write_text(CLIENT.format(path=path, folder=str(tmp_path)))
    client = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    measured = end_midway(campaign, client, sent)
    assert 0 < measured < TUPLES
    report = run(campaign)
    assert (report.found, report.remaining) == (measured, 0)
    assert len(rows(campaign)) == len({row.key for row in rows(campaign)}) == TUPLES


@pytest.mark.parametrize(
    ("cores", "workers", "expected"), [(range(8), 4, [[0, 1], [2, 3], [4, 5], [6, 7]]), (range(2), 3, [None] * 3)]
)
def test_workers_have_cores_of_their_own(cores: range, workers: int, expected: list[list[int] | None]) -> None:
    assert [None if own is None else list(own) for own in shares_of_cores(list(cores), workers)] == expected


@pytest.mark.parametrize(
    ("device", "seen", "name", "left"),
    [
        ("cuda:1", None, "cuda:0", "1"),
        ("cuda:1", "2,0", "cuda:0", "0"),
        ("cuda:0", None, "cuda:0", None),
        ("cuda:3", None, "cuda:3", None),
        (None, None, None, None),
        ("cpu", None, "cpu", None),
    ],
)
def test_a_process_sees_its_gpu_alone(
    monkeypatch: pytest.MonkeyPatch, device: str | None, seen: str | None, name: str | None, left: str | None
) -> None:
    monkeypatch.setattr(Nvidia, "uuids", lambda _: ["GPU-a", "GPU-b", "GPU-c"])
    environment = {} if seen is None else {"CUDA_VISIBLE_DEVICES": seen}
    assert see_only(device, environment) == name
    assert environment.get("CUDA_VISIBLE_DEVICES") == (left if left is not None else seen)
