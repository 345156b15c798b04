"""A campaign in which operators fail in all ways that a measuring process knows, among many that are good.

The bench is simulated (``fatal_bench.py``), processes and files are real.
"""

import logging
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fatal_bench import LIMIT_S, REASONS, fatal_answering, operator
from simulated_apparatus import RecordedProgress, SimulatedCampaign

from opcost.errors import UserError
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import tuple_key
from opcost.running import bench
from opcost.running.bench import Limits, open_child_bench
from opcost.stages.measure_operators import measure_operators

SHORT = MeasurementProtocol(0.1, 0.3)
MOST_RUNS = 40


@dataclass(frozen=True)
class FaultyTally:
    """Outcome of a campaign; ``runs`` are how often it was started, since three faults in a row end it."""

    good: int
    faulty: int
    runs: int


def run_faulty_campaign(folder: Path, operators: int, fault_ratio: float, seed: int) -> FaultyTally:
    """Measure some operators, of which a share is faulty, and start again until all good ones are measured.

    Raises:
        AssertionError: a good one is not measured, or twice; a faulty one has no reason; a process is left.
    """
    chance, kinds = random.Random(seed), sorted(REASONS)
    faults = round(operators * fault_ratio)
    wanted = [operator(kinds[number % len(kinds)], number + 1) for number in range(faults)]
    wanted += [operator("Good", number + 1) for number in range(operators - faults)]
    chance.shuffle(wanted)
    campaign = SimulatedCampaign(folder, {})
    campaign.add_model("a", dict.fromkeys(wanted, 1))
    good = {one.key for one in wanted if one.short_name == "Good"}
    # Tests before may have started a Python of their own that goes on.
    before, runs = children(), 0
    while {tuple_key(row.key) for row in _rows(campaign)} != good and runs < MOST_RUNS:
        runs += 1
        _run(campaign)
    assert sorted(tuple_key(row.key) for row in _rows(campaign)) == sorted(good)
    reasons = {tuple_key(row.key): row.reason for row in campaign.database.failures.rows()}
    assert reasons == {one.key: REASONS[one.short_name] for one in wanted if one.key not in good and one.key in reasons}
    assert not good & reasons.keys()
    assert set(children()) <= set(before)
    return FaultyTally(len(good), faults, runs)


def _run(campaign: SimulatedCampaign) -> None:
    logging.disable()
    try:
        bench = partial(open_child_bench, limits=Limits(building_s=LIMIT_S))
        measure_operators(campaign.request(), lambda _: SHORT, bench, RecordedProgress())
    except UserError as error:
        if "operators in a row have ended the measuring process" not in str(error):
            raise
    finally:
        logging.disable(logging.NOTSET)


def _rows(campaign: SimulatedCampaign) -> list[MeasurementRow]:
    return campaign.database.operator_measurements.rows()


def children() -> list[int]:
    """Return the processes that this one has started and that are still there, but for one of Python's own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            command = path.with_name("cmdline").read_text()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z" and "resource_tracker" not in command:
            found.append(int(path.parent.name))
    return found


@contextmanager
def faulty_processes() -> Iterator[None]:
    """Let measuring processes be faulty."""
    before = bench.answering
    bench.answering = fatal_answering
    try:
        yield
    finally:
        bench.answering = before
