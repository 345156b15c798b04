"""Campaigns on workers of a Dask scheduler: real processes, simulated devices."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import simulated_apparatus
from dask_cluster import ENVIRONMENT, Cluster, running_cluster
from fatal_bench import LETHAL, OTHER_CARD, fatal_answering, operator
from simulated_apparatus import RecordedProgress, SimulatedCampaign, end_midway, endless_campaign_of
from simulated_machine import SIMULATED_CONDITIONS

from opcost.command.program import subcommand
from opcost.errors import UserError
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import MeasurementRow
from opcost.running import bench as bench_module
from opcost.running import many_hosts
from opcost.running.bench import open_child_bench
from opcost.running.engine import OpenBench
from opcost.running.many_hosts import open_many_hosts
from opcost.stages.measure_operators import OperatorsReport, measure_operators
from opcost.storage.database import Database

SHORT = MeasurementProtocol(0.5, 1.0)
CARD = SIMULATED_CONDITIONS.device_product
DEVICES = ("cuda:0", "cuda:1", "cuda:8")
TUPLES = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), DEVICES) as started:
        yield started


@pytest.fixture(scope="module")
def whole_cluster(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The same once all workers are there."""
    end_s = time.monotonic() + 60
    kinds, folder = 0, tmp_path_factory.mktemp("empty")
    while kinds < 2 and time.monotonic() < end_s:
        with open_many_hosts(cluster.file, (), None, Database(folder), False) as executor:
            kinds = len(executor.kinds) if len(executor.workers) == len(DEVICES) else 0
    return cluster


def campaign_of(folder: Path, name: str = "Slow", tuples: int = TUPLES) -> SimulatedCampaign:
    return simulated_apparatus.campaign_of(folder, name, tuples)


def run_on(opened: OpenBench, campaign: SimulatedCampaign) -> list[OperatorsReport]:
    return measure_operators(campaign.request(), lambda _: SHORT, opened, RecordedProgress())


def run(cluster: Cluster, campaign: SimulatedCampaign, *products: str) -> list[OperatorsReport]:
    return run_on(partial(open_many_hosts, cluster.file, products or (CARD,)), campaign)


def rows(campaign: SimulatedCampaign) -> list[MeasurementRow]:
    return campaign.database.operator_measurements.rows()


def content(row: MeasurementRow) -> tuple[object, ...]:
    """Return what two measurements on simulated devices have in common."""
    measured = row.measurement
    return row.key, row.conditions, measured.time_s, measured.energy_j, measured.flags


def test_two_kinds_of_cards_each_have_the_rows_of_one_bench(
    whole_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = campaign_of(tmp_path / "many")
    ours, theirs = run(whole_cluster, campaign, CARD, OTHER_CARD)
    assert {one.device_product: one.measured for one in (ours, theirs)} == {CARD: TUPLES, OTHER_CARD: TUPLES}
    monkeypatch.setattr(bench_module, "answering", fatal_answering)
    alone = campaign_of(tmp_path / "one")
    run_on(open_child_bench, alone)
    found = [row for row in rows(campaign) if row.conditions.device_product == CARD]
    assert sorted(map(content, found)) == sorted(map(content, rows(alone)))
    boards = {row.circumstances.device_uuid for row in rows(campaign)}
    assert boards == {"simulated-0", "simulated-1", "simulated-8"}
    qualified = [row.device_uuid for row in campaign.database.meter_qualifications.rows()]
    assert sorted(map(str, qualified)) == sorted(map(str, boards))
    # On a common disk the logs are there already, and nothing else is.
    assert len(list(campaign.database.power_logs.iterdir())) == 2 * TUPLES


def test_logs_of_workers_without_the_folder_are_collected(
    whole_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "touch", lambda _: None)
    monkeypatch.setattr("opcost.running.dask_workers.PIECE_BYTES", 4)
    campaign = campaign_of(tmp_path, tuples=6)
    run(whole_cluster, campaign)
    logs = {path.name: path.read_text() for path in campaign.database.power_logs.iterdir()}
    assert len(logs) == 6
    assert set(logs.values()) == {"cuda:0", "cuda:1"}


def test_a_tuple_that_kills_two_workers_is_set_aside_by_name_and_taken_again(
    whole_cluster: Cluster, tmp_path: Path
) -> None:
    campaign = campaign_of(tmp_path)
    campaign.add_model("b", {operator("Lethal"): 1})
    mark = campaign.database.folder / LETHAL
    mark.parent.mkdir()
    mark.touch()
    reports = {one.name: one for one in run(whole_cluster, campaign)}
    assert (reports["a"].measured, reports["b"].failed, reports["b"].remaining) == (TUPLES, 1, 1)
    (failed,) = campaign.database.failures.rows()
    assert (failed.operator, failed.reason) == ("torch.nn.Lethal", many_hosts.ENDED)
    mark.unlink()
    reports = {one.name: one for one in run(whole_cluster, campaign)}
    assert (reports["a"].found, reports["b"].measured) == (TUPLES, 1)


def kill_some(cluster: Cluster, table: Path, stopping: threading.Event, killed: list[str]) -> None:
    chance = random.Random(1)
    while not stopping.is_set() and len(killed) < 2:
        time.sleep(chance.uniform(0.01, 0.5))
        device = chance.choice(DEVICES[:2])
        if table.exists() and cluster.kill_worker(device):
            killed.append(device)


def test_killed_workers_cost_nothing_but_time(whole_cluster: Cluster, tmp_path: Path) -> None:
    campaign, stopping, killed = campaign_of(tmp_path, tuples=2 * TUPLES), threading.Event(), list[str]()
    table = campaign.database.operator_measurements.path
    killer = threading.Thread(target=kill_some, args=(whole_cluster, table, stopping, killed))
    killer.start()
    try:
        (report,) = run(whole_cluster, campaign)
    finally:
        stopping.set()
        killer.join()
    assert len(killed) == 2
    assert report.measured + report.failed == 2 * TUPLES
    (report,) = run(whole_cluster, campaign)
    assert report.remaining == 0
    assert len(rows(campaign)) == len({row.key for row in rows(campaign)}) == 2 * TUPLES


CLIENT = """
from pathlib import Path
import dask_cluster, test_dask_workers
if __name__ == "__main__":
    cluster = dask_cluster.Cluster(Path({cluster!r}))
    test_dask_workers.run(cluster, test_dask_workers.SimulatedCampaign(Path({folder!r}), {{}}))
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_after_a_client_that_ends_the_next_one_goes_on(
    whole_cluster: Cluster, tmp_path: Path, sent: signal.Signals
) -> None:
    campaign, script = endless_campaign_of(tmp_path, TUPLES), tmp_path / "client.py"
    script.write_text(CLIENT.format(cluster=str(whole_cluster.folder), folder=str(tmp_path)))
    path = os.pathsep.join([ENVIRONMENT["PYTHONPATH"], str(Path(__file__).parent)])
    environment = {**os.environ, "PYTHONPATH": path}
    client = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL, env=environment)
    measured = end_midway(campaign, client, sent)
    assert 0 < measured < TUPLES
    (report,) = run(whole_cluster, campaign)
    assert (report.found, report.remaining) == (measured, 0)
    assert len(rows(campaign)) == len({row.key for row in rows(campaign)}) == TUPLES


def test_a_scheduler_that_ends_is_one_line_and_the_next_one_goes_on(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path / "campaign", tuples=4 * TUPLES)
    table = campaign.database.operator_measurements.path
    with running_cluster(tmp_path, DEVICES[:1]) as cluster:

        def kill() -> None:
            while not table.exists():
                time.sleep(0.01)
            cluster.processes["scheduler"].kill()

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(
            UserError, match="^the scheduler does not answer any more; start it and its workers, and run"
        ):
            run(cluster, campaign)
        killer.join()
        # Its workers end with it.
        assert cluster.processes["cuda:0"].wait(60) == 0
        measured = len(rows(campaign))
        cluster.file.unlink()
        cluster.start("scheduler")
        cluster.start("cuda:0")
        (report,) = run(cluster, campaign)
    assert (report.found, report.remaining) == (measured, 0)
    assert len(rows(campaign)) == len({row.key for row in rows(campaign)}) == 4 * TUPLES


def test_a_command_measures_on_the_products_that_it_names(
    whole_cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = campaign_of(tmp_path, tuples=3)
    folders = ["--measurements", str(campaign.measurements), "--database", str(campaign.database.folder)]
    arguments = ["a", "--seconds", "1", "--scheduler-file", str(whole_cluster.file), *folders, "--device"]
    monkeypatch.setattr(sys, "argv", ["opcost", *arguments, "simulated b"])
    assert subcommand("measure").main() == 0
    assert {row.conditions.device_product for row in rows(campaign)} == {OTHER_CARD}
    monkeypatch.setattr(sys, "argv", ["opcost", *arguments, "H100,H200"])
    with pytest.raises(UserError, match="--device H100,H200: .* has ") as refused:
        subcommand("measure").main()
    assert len(refused.value.lines) == len(DEVICES)


def test_mistakes_have_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_hosts, "CONNECT_S", 0.5)
    monkeypatch.setattr("opcost.running.dask_workers.WAIT_S", 0.0)
    campaign = campaign_of(tmp_path)
    missing = tmp_path / "none.json"
    for scheduler, message in (
        ("tcp://127.0.0.1:9", "no scheduler answers at tcp://127.0.0.1:9; start one: dask scheduler"),
        (missing, f"--scheduler-file {missing}: no such file; start a scheduler: dask scheduler"),
    ):
        with pytest.raises(UserError, match=message):
            run_on(partial(open_many_hosts, scheduler, ()), campaign)
