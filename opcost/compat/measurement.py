"""``EnergyMeasurementTool`` and ``AsynchronousMeasurementTool``, with the arguments and columns that users know.

Their files have no header, energies in kWh, and an empty cell where a value is unknown; opcost's own files are those of
``EnergyMeter``. Both work where a device is missing: its cells are empty.
"""

from __future__ import annotations

import atexit
import csv
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opcost.errors import UserError
from opcost.metering.readings import EnergySource
from opcost.metering.result import WindowResult
from opcost.meters.clock import SystemClock
from opcost.meters.host_state import HostState
from opcost.meters.nvml import NvmlError, NvmlGpu
from opcost.power.log_rows import HostRow
from opcost.power.ports import ClockReading
from opcost.running.energy_meter import EnergyMeter
from opcost.running.energy_sources import CPU, open_sources, result_of

JOULES_PER_KWH = 3.6e6


class EnergyMeasurementTool:
    """Measures time and energy of snippets, each between ``start`` and ``stop``.

    At the end of the program ``out_file`` gets a row for each: elapsed time (s), CPU energy (kWh), GPU energy (kWh).

    Args:
        out_file: replaced by an empty file now.
        gpu_num: number of the GPU, as CUDA counts it.
    """

    def __init__(self, out_file: str | Path, gpu_num: int = 0) -> None:
        self.out_file = Path(out_file)
        self.out_file.write_text("", encoding="utf-8")
        self._gpu = f"cuda:{gpu_num}"
        self._meter = EnergyMeter()
        atexit.register(self.flush)

    def start(self) -> None:
        """Begin a snippet."""
        self._meter.start()

    def stop(self) -> None:
        """End a snippet.

        Raises:
            UserError: none has begun.
        """
        self._meter.stop()

    def flush(self) -> None:
        """Write all rows; also called at the end of the program."""
        self._meter.close()
        rows = [
            (result.duration_s, _kwh(_energy_j(result, CPU)), _kwh(_energy_j(result, self._gpu)))
            for result in self._meter.results
        ]
        write_rows(self.out_file, rows)


@dataclass(frozen=True)
class _Reading:
    """The state of host and GPU at a moment."""

    moment: ClockReading
    host: HostRow
    busy_ratio: float | None
    temperature_c: float | None


class AsynchronousMeasurementTool:
    """Takes a reading of CPU and GPU every few seconds, in a thread, from ``start`` to ``stop``.

    At ``stop``, or at the end of the program, ``out_file`` gets a row for each reading: elapsed time (s), CPU energy
    (kWh), CPU utilisation (%), CPU temperature (°C), GPU energy (kWh), GPU utilisation (%), GPU temperature (°C), GPU
    power (W). Energies are those since ``start``, the power is the mean since the reading before.

    Args:
        out_file: replaced by an empty file now.
        gpu_num: number of the GPU, as CUDA counts it.
    """

    def __init__(self, out_file: str | Path, gpu_num: int = 0) -> None:
        self.out_file = Path(out_file)
        self.out_file.write_text("", encoding="utf-8")
        self._gpu = f"cuda:{gpu_num}"
        self._readings: list[_Reading] = []
        self._sources: Sequence[EnergySource] = ()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, interval: float = 1) -> None:
        """Begin to take readings.

        Args:
            interval: time between two readings in s.

        Raises:
            UserError: it has been started already, or the interval is not positive.
        """
        if self._thread is not None:
            raise UserError("AsynchronousMeasurementTool: start() without stop() after the last start()")
        if interval <= 0:
            raise UserError(f"AsynchronousMeasurementTool: an interval of {interval} s; use a positive one")
        self._stopping.clear()
        self._readings = []
        self._sources = [source for source in open_sources(None) if source.device in (CPU, self._gpu)]
        self._thread = threading.Thread(target=self._run, args=(interval,), daemon=True)
        atexit.register(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Take the last reading, and append all of them to the file."""
        if self._thread is None:
            return
        self._stopping.set()
        self._thread.join()
        self._thread = None
        atexit.unregister(self.stop)
        try:
            write_rows(self.out_file, self._rows(), "a")
        finally:
            for source in self._sources:
                source.close()

    def _run(self, interval_s: float) -> None:
        host = HostState(has_power=False)
        gpu = self._open_gpu()
        while True:
            self._readings.append(self._reading(host, gpu))
            if self._stopping.is_set():
                break
            self._stopping.wait(interval_s)
        if gpu is not None:
            gpu.close()

    def _reading(self, host: HostState, gpu: NvmlGpu | None) -> _Reading:
        busy_ratio = temperature_c = None
        if gpu is not None:
            with suppress(NvmlError):
                busy_ratio = gpu.busy_ratio()
            with suppress(NvmlError):
                temperature_c = gpu.temperature_c()
        for source in self._sources:
            source.edge()
        return _Reading(SystemClock().read(), host.read(), busy_ratio, temperature_c)

    def _open_gpu(self) -> NvmlGpu | None:
        for source in self._sources:
            if source.uuid is not None:
                with suppress(NvmlError):
                    return NvmlGpu.open(source.uuid)
        return None

    def _rows(self) -> list[tuple[float | None, ...]]:
        """Return the rows. An interval that no meter resolves is a part of the next one's energy."""
        since = {source.device: self._readings[0].moment for source in self._sources}
        energies_j = dict.fromkeys(since, 0.0)
        rows: list[tuple[float | None, ...]] = []
        for reading in self._readings:
            known: dict[str, float] = {}
            power_w = None
            for source in self._sources:
                result = result_of([source], "", since[source.device], reading.moment)
                if result.energy_j is not None:
                    energies_j[source.device] += result.energy_j
                    known[source.device] = energies_j[source.device]
                    since[source.device] = reading.moment
                    power_w = result.energy_j / result.duration_s if source.device == self._gpu else power_w
            rows.append(
                (
                    reading.moment.monotonic_s - self._readings[0].moment.monotonic_s,
                    *(_kwh(known.get(CPU)), _percent(reading.host.cpu_load_ratio), reading.host.cpu_temperature_c),
                    *(_kwh(known.get(self._gpu)), _percent(reading.busy_ratio), reading.temperature_c, power_w),
                )
            )
        return rows


def _energy_j(result: WindowResult, device: str) -> float | None:
    return next((each.energy_j for each in result.devices if each.device == device), None)


def _kwh(energy_j: float | None) -> float | None:
    return None if energy_j is None else energy_j / JOULES_PER_KWH


def _percent(share_ratio: float | None) -> float | None:
    return None if share_ratio is None else 100 * share_ratio


def write_rows(path: Path, rows: Sequence[Sequence[float | str | None]], mode: str = "w") -> None:
    """Write rows without a header; unknown cells are empty."""
    with path.open(mode, encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
