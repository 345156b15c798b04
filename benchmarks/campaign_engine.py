"""Campaigns on several workers with simulated benches that sleep: scaling, kills of workers, clients and schedulers

Processes and files are real. Each part runs alone by its option; without one, all run. Half an hour on 2 cores.
Example: PYTHONPATH=.:tests python benchmarks/campaign_engine.py --scaling
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from dask_cluster import ENVIRONMENT, Cluster, running_cluster
from fatal_bench import fatal_answering
from simulated_apparatus import RecordedProgress, SimulatedCampaign, campaign_of

from opcost.errors import UserError
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import MeasurementRow
from opcost.running import bench
from opcost.running.engine import OpenBench
from opcost.running.several_gpus import open_several_gpus
from opcost.stages.measure_operators import OperatorsReport, measure_operators
from opcost.storage.database import Database

SHORT = MeasurementProtocol(0.5, 1.0)
CLIENT = """
import sys
from pathlib import Path
from campaign_engine import run, on_hosts
from dask_cluster import Cluster
from simulated_apparatus import SimulatedCampaign
if __name__ == "__main__":
    run(on_hosts(Cluster(Path(sys.argv[1]))), SimulatedCampaign(Path(sys.argv[2]), {}))
"""


class Moments(RecordedProgress):
    """The moments of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.moments_s: list[float] = []

    def finish(self, result: str, worker: str = "") -> None:
        self.moments_s.append(time.monotonic())

    @property
    def between_s(self) -> float:
        return self.moments_s[-1] - self.moments_s[0]


def run(opened: OpenBench, campaign: SimulatedCampaign, progress: RecordedProgress | None = None) -> OperatorsReport:
    protocol = SHORT
    (report,) = measure_operators(campaign.request(), lambda _: protocol, opened, progress or RecordedProgress())
    return report


def on_hosts(cluster: Cluster) -> OpenBench:
    from opcost.running.many_hosts import open_many_hosts

    return partial(open_many_hosts, cluster.file, ())


def devices_of(number: int) -> tuple[str, ...]:
    # Those of one kind, on which nothing fails.
    return tuple(f"cuda:{one}" for one in (0, 1, 3, 4, *range(11, 100)))[:number]


def ready(cluster: Cluster, workers: int) -> None:
    """Wait until all workers of a cluster are there."""
    from distributed import Client

    from opcost.running.dask_workers import scheduler_at, seen

    client = Client(**scheduler_at(cluster.file), set_as_default=False)
    while len(client.run_on_scheduler(seen)[0]) < workers:
        time.sleep(0.1)
    client.close()


def contents(campaign: SimulatedCampaign) -> set[tuple[object, ...]]:
    rows = campaign.database.operator_measurements.rows()
    assert len({row.key for row in rows}) == len(rows), "a row is there twice"
    return {(row.key, row.measurement.time_s, row.measurement.energy_j, row.measurement.flags) for row in rows}


def scaling(folder: Path, tuples: int) -> None:
    bench.answering = fatal_answering
    found = []
    for name in ("several_gpus", "dask"):
        times_s = []
        for workers in (1, 4):
            place, progress, devices = folder / f"{name}-{workers}", Moments(), devices_of(workers)
            campaign = campaign_of(place / "campaign", "HalfASecond", tuples)
            if name == "dask":
                with running_cluster(place, devices) as cluster:
                    ready(cluster, workers)
                    run(on_hosts(cluster), campaign, progress)
            else:
                run(partial(open_several_gpus, devices), campaign, progress)
            times_s.append(progress.between_s)
            found.append(contents(campaign))
        one_s, four_s = times_s
        figures = f"one worker {one_s:.1f} s, four {four_s:.1f} s, ratio {one_s / four_s:.2f}"
        print(f"scaling, {tuples} tuples of 0.5 s, {name}: {figures}", flush=True)
    print("scaling: same rows" if all(one == found[0] for one in found) else "scaling: rows DIFFER", flush=True)


def worker_kills(folder: Path, runs: int, chance: random.Random) -> None:
    devices, killed, set_aside, resumed = devices_of(4), 0, 0, 0
    begin_s = time.monotonic()
    with running_cluster(folder, devices) as cluster:
        ready(cluster, len(devices))
        for number in range(runs):
            campaign, stopping = campaign_of(folder / f"run-{number}", "Slow", 60), threading.Event()
            table, victims = campaign.database.operator_measurements.path, list[str]()
            planned = chance.sample(devices, 2)

            def kill(table: Path, planned: list[str], stopping: threading.Event, victims: list[str]) -> None:
                while not table.exists() and not stopping.is_set():
                    time.sleep(0.005)
                for device in planned:
                    time.sleep(chance.uniform(0.0, 0.3))
                    if cluster.kill_worker(device):
                        victims.append(device)

            killer = threading.Thread(target=kill, args=(table, planned, stopping, victims))
            killer.start()
            report = run(on_hosts(cluster), campaign)
            stopping.set()
            killer.join()
            killed += len(victims)
            set_aside += report.failed
            assert report.measured + report.failed == 60, report
            if report.remaining:
                resumed += run(on_hosts(cluster), campaign).measured
            assert len(contents(campaign)) == 60
            ready(cluster, len(devices))
    figures = f"{runs} runs of 60 tuples, {killed} kills: {runs * 60} rows once each, {set_aside} set aside"
    print(f"worker kills: {figures}, {resumed} measured by a resume ({time.monotonic() - begin_s:.0f} s)", flush=True)


def client_kills(folder: Path, kills: int, chance: random.Random) -> None:
    script, devices = folder / "client.py", devices_of(2)
    script.write_text(CLIENT)
    path = os.pathsep.join([ENVIRONMENT["PYTHONPATH"], str(Path(__file__).parent)])
    begin_s, killed, campaigns, kept = time.monotonic(), 0, 0, 0
    with running_cluster(folder, devices) as cluster:
        ready(cluster, len(devices))
        while killed < kills:
            place = folder / f"run-{campaigns}"
            campaign, is_complete, before = campaign_of(place, "Slow", 60), False, set[tuple[object, ...]]()
            campaigns += 1
            while not is_complete:
                client = subprocess.Popen(
                    [sys.executable, str(script), str(cluster.folder), str(place)],
                    env={**os.environ, "PYTHONPATH": path},
                )
                table, size = campaign.database.operator_measurements.path, 0
                size = table.stat().st_size if table.exists() else 0
                while client.poll() is None and not (table.exists() and table.stat().st_size > size):
                    time.sleep(0.005)
                try:
                    client.wait(chance.uniform(0.0, 0.5) if killed < kills else 60)
                except subprocess.TimeoutExpired:
                    client.kill()
                    killed += 1
                is_complete = client.wait() == 0
                rows = contents(campaign)
                assert before <= rows, "a row is lost"
                before = rows
            assert len(before) == 60
            kept += 60
    figures = f"{killed} kills in {campaigns} campaigns: {kept} rows once each"
    print(f"client kills: {figures} ({time.monotonic() - begin_s:.0f} s)", flush=True)


def scheduler_kills(folder: Path, kills: int, chance: random.Random) -> None:
    begin_s, devices = time.monotonic(), devices_of(2)
    campaign = campaign_of(folder / "campaign", "Slow", 60 * (kills + 1))
    table = campaign.database.operator_measurements.path
    lines = set[str]()
    for number in range(kills + 1):
        place = folder / f"cluster-{number}"
        place.mkdir()
        with running_cluster(place, devices) as cluster:
            size = table.stat().st_size if table.exists() else 0

            def kill(cluster: Cluster, size: int) -> None:
                while not table.exists() or table.stat().st_size <= size:
                    time.sleep(0.005)
                time.sleep(chance.uniform(0.0, 0.5))
                cluster.processes["scheduler"].send_signal(signal.SIGKILL)

            if number < kills:
                threading.Thread(target=kill, args=(cluster, size), daemon=True).start()
            before = contents(campaign)
            try:
                run(on_hosts(cluster), campaign)
            except UserError as error:
                lines.add(str(error))
            assert before <= contents(campaign), "a row is lost"
    assert len(contents(campaign)) == 60 * (kills + 1)
    assert len(lines) == 1, lines
    figures = f"{kills} kills: {60 * (kills + 1)} rows once each, each time the line {lines.pop()!r}"
    print(f"scheduler kills: {figures} ({time.monotonic() - begin_s:.0f} s)", flush=True)


def overhead(folder: Path, tuples: int, workers: int) -> None:
    import psutil

    devices, progress = devices_of(workers), Moments()
    campaign = campaign_of(folder / "campaign", "Instant", tuples)
    with running_cluster(folder, devices[:8]) as cluster:
        # All at once they would not come within a minute on a few cores.
        for begin in range(8, workers + 8, 8):
            ready(cluster, min(begin, workers))
            for device in devices[begin : begin + 8]:
                cluster.start(device)
        scheduler = psutil.Process(cluster.processes["scheduler"].pid)
        before_mb, client_s, scheduler_s = (
            getrusage(RUSAGE_SELF).ru_maxrss / 1e3,
            cpu_s(),
            sum(scheduler.cpu_times()[:2]),
        )
        run(on_hosts(cluster), campaign, progress)
        client_s, scheduler_s = cpu_s() - client_s, sum(scheduler.cpu_times()[:2]) - scheduler_s
    rows = campaign.database.operator_measurements.rows()
    assert len({row.key for row in rows}) == len(rows) == tuples
    peak_mb = getrusage(RUSAGE_SELF).ru_maxrss / 1e3
    between_ms, scheduler_ms, client_ms = (1e3 * one / tuples for one in (progress.between_s, scheduler_s, client_s))
    print(
        f"overhead, {tuples} tuples of 0 s on {workers} workers: {between_ms:.2f} ms per tuple from first to last row; "
        f"CPU time per tuple: scheduler {scheduler_ms:.2f} ms, client {client_ms:.2f} ms with its plan; client's peak "
        f"{peak_mb:.0f} MB, {peak_mb - before_mb:.0f} MB more than before",
        flush=True,
    )
    print(f"appending alone: {appended_per_s(folder, rows):.0f} rows/s", flush=True)


def cpu_s() -> float:
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def appended_per_s(folder: Path, rows: list[MeasurementRow]) -> float:
    table, begin_s = Database(folder / "appended").operator_measurements, time.monotonic()
    for row in rows[:1000]:
        table.append(row)
    return min(1000, len(rows)) / (time.monotonic() - begin_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scaling", type=int, nargs="?", const=300, metavar="TUPLES", help="of 0.5 s (300)")
    parser.add_argument("--worker-kills", type=int, nargs="?", const=50, metavar="RUNS", help="of 60 tuples (50)")
    parser.add_argument("--client-kills", type=int, nargs="?", const=50, metavar="KILLS", help="(50)")
    parser.add_argument("--scheduler-kills", type=int, nargs="?", const=3, metavar="KILLS", help="(3)")
    parser.add_argument("--overhead", type=int, nargs="?", const=10_000, metavar="TUPLES", help="of 0 s (10000)")
    parser.add_argument("--workers", type=int, default=32, help="of the part --overhead")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    parts = {
        "scaling": scaling,
        "worker_kills": partial(worker_kills, chance=random.Random(arguments.seed)),
        "client_kills": partial(client_kills, chance=random.Random(arguments.seed)),
        "scheduler_kills": partial(scheduler_kills, chance=random.Random(arguments.seed)),
        "overhead": partial(overhead, workers=arguments.workers),
    }
    usual = {"scaling": 300, "worker_kills": 50, "client_kills": 50, "scheduler_kills": 3, "overhead": 10_000}
    chosen = {name: getattr(arguments, name) for name in parts if getattr(arguments, name) is not None}
    for name, number in (chosen or usual).items():
        with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
            parts[name](Path(folder), number)
    return 0


if __name__ == "__main__":
    sys.exit(main())
