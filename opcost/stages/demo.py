"""A recorded campaign of a small model, played through the engine: its raw power logs are evaluated again.

The recording is an archive of a database's files, with rows that are shipped and their logs. Chunks of loops are in no
log, so that times are the recorded ones. The product's name says that it is recorded.
"""

from __future__ import annotations

import csv
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.evaluation import evaluate, with_repeatability
from opcost.measuring.known_device import (
    GPU_REPEATABILITY,
    KnownDevice,
    KnownMeters,
    known_trace,
    power_temperature_coefficient,
)
from opcost.measuring.loop import Loop
from opcost.measuring.protocol import MeasurementProtocol, protocol_for
from opcost.measuring.record import MeasuredCases, Measurement, MeasurementRow
from opcost.measuring.setting import Setting
from opcost.meters.log_meters import power_trace
from opcost.meters.nvidia_smi import parse_log
from opcost.meters.nvml import SAMPLES_SOURCE
from opcost.operators.counts import Case, case_key
from opcost.power.ports import ClockReading
from opcost.power.trace import joined, trace_of_power
from opcost.progress import Progress
from opcost.running.request import RunRequest
from opcost.shipped import shipped_database, shipped_measurements
from opcost.stages.measure_operators import Protocols, measure_units
from opcost.storage.configs import WHITELIST, ModelFolders
from opcost.storage.database import Database

MODEL = "alexnet_32x3x224x224"
ARCHIVE = f"recorded_{MODEL}.tar.xz"
CHUNKS = 4
"""The chunks of a loop of which only the whole time is known."""


@dataclass(frozen=True)
class RecordedBench:
    """Implements ``Bench`` by ``rows`` and logs of a ``database``; ``pause`` is called with each loop's time in s."""

    database: Database
    rows: Mapping[str, MeasurementRow]
    known: KnownDevice
    pause: Callable[[float], None]
    device: str = "a recording"
    is_gpu: bool = True
    has_meter: bool = True
    drift_case: Case | None = None
    step_times_s: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(database: Database, pause: Callable[[float], None]) -> RecordedBench:
        rows = [*database.operator_measurements.rows(), *database.full_model_measurements.rows()]
        qualified, limit_w = database.meter_qualifications.rows(), rows[0].conditions.device_power_limit_w
        meters = KnownMeters({one.quality.meter: one.quality for one in qualified})
        known = KnownDevice(power_temperature_coefficient(qualified), limit_w, GPU_REPEATABILITY, meters)
        return RecordedBench(database, {case_key(row.key): row for row in rows}, known, pause)

    def conditions(self, setting: Setting) -> Conditions:
        row = next(iter(self.rows.values()))
        recorded = f"{row.conditions.device_product}, recorded {row.measurement.started_at[:10]}"
        return replace(row.conditions, device_product=recorded)

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances:
        return next(iter(self.rows.values())).circumstances

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> MeasuredCases:
        row = self.rows.get(case.key)
        if row is None:
            raise CannotMeasureError("it is not in the recording")
        self.pause(row.measurement.loop_time_s)
        return ((case, self.evaluated(row.measurement)),)

    def evaluated(self, recorded: Measurement) -> Measurement:
        """Return a measurement with the power, energy and state that its logs have; all else is recorded."""
        path = self.database.power_logs / str(recorded.power_log)
        with path.with_name(f"{path.stem}-samples.csv").open(encoding="utf-8") as file:
            epoch_s, power_w = np.array(list(csv.reader(file))[1:], dtype=np.float64).T
        log = power_trace([row.values for row in parse_log(path.read_text().splitlines())], path.name)
        trace = known_trace(joined((trace_of_power(SAMPLES_SOURCE, epoch_s, power_w), log)), self.known.meters)
        found = evaluate(_loop_of(recorded, float(epoch_s[0])), trace, self.known)
        # The loop's chunks are equal, so that the time's error is not in the energy's yet.
        time_ratio = recorded.time_standard_error_s / recorded.time_s
        energies = (one and one.with_error(time_ratio * one.value) for one in (found.energy, found.energy_at_reference))
        found = with_repeatability(found.with_figures(found.time, *energies), self.known.repeatability)
        of_row = (
            "time_s time_standard_error_s time_median_s time_without_outliers_s iterations executed_as flags".split()
        )
        kept = {name: getattr(recorded, name) for name in (*of_row, "builds", "waits", "started_at", "ended_at")}
        return replace(found, **kept, notes="recorded, its logs evaluated again")


def _loop_of(recorded: Measurement, load_begin_s: float) -> Loop:
    begin_s, length_s = datetime.fromisoformat(recorded.started_at).timestamp(), recorded.loop_time_s
    load_begin, begin, end = (ClockReading(at_s, at_s) for at_s in (load_begin_s, begin_s, begin_s + length_s))
    iterations = (max(1, recorded.iterations // CHUNKS),) * CHUNKS
    return Loop(load_begin, begin, end, tuple(recorded.time_s * one for one in iterations), iterations)


def play(folder: Path, pause: Callable[[float], None], progress: Progress) -> RunRequest:
    """Play the recording into a database below an empty folder; return the request that was carried out."""
    with tarfile.open(shipped_database() / ARCHIVE) as archive:
        for member in archive:
            file, path = archive.extractfile(member), folder / "recording" / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"" if file is None else file.read())
    bench = RecordedBench.of(Database(folder / "recording" / "database"), pause)
    config, database = folder / "measurements" / MODEL / "summary.yml", Database(folder / "database")
    config.parent.mkdir(parents=True)
    config.write_bytes((shipped_measurements() / MODEL / "summary.yml").read_bytes())
    kinds = sorted({row.operator.rpartition(".")[2] for row in bench.database.operator_measurements.rows()})
    (folder / "measurements" / WHITELIST).write_text(f"operators: [{', '.join(kinds)}]\n", encoding="utf-8")
    database.model_operators.append_missing(bench.database.model_operators.rows())
    product = next(iter(bench.rows.values())).conditions.device_product
    request = RunRequest((MODEL,), ModelFolders(folder / "measurements"), database, product)
    protocol = partial(protocol_for, loop_s=1.0, relative_error=0.01)

    @contextmanager
    def opened(*_: object) -> Iterator[RecordedBench]:
        yield bench

    measure_units(request, Protocols(protocol, protocol), opened, progress, lambda _: None)
    return request
