"""Names under which other tools are known, with arguments and columns that their users know; thin over the meters.

Their files have no header, energies in kWh, and an empty cell where a value is unknown; opcost's own files are those of
``EnergyMeter``. They work where a device is missing: its cells are empty. Power limits need the consent of the board's
owner, ``OPCOST_ALLOW_POWER_LIMIT=1`` in the environment; without it the functions that set them raise ``UserError``.
"""

from __future__ import annotations

import atexit
import csv
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from opcost.errors import UserError
from opcost.metering.cap_rows import CapCost, PowerCapRow, Wish
from opcost.metering.layers import BETWEEN
from opcost.metering.window_energy import EnergySource, result_of
from opcost.meters.energy import CPU, gpu_named, open_sources
from opcost.meters.gpus import open_gpu, open_limit
from opcost.meters.host import HostState, SystemClock
from opcost.power.log_rows import HostRow, PowerRow
from opcost.power.ports import ClockReading, GpuError
from opcost.progress import Progress
from opcost.running.energy_meter import EnergyMeter
from opcost.running.power_limit import check_consent, set_for_good
from opcost.stages.power_cap import CapBoard, CapSweepPlan, sweep_caps
from opcost.units import KWH_J

if TYPE_CHECKING:
    # Only for types: the other tools need no torch.
    from torch import nn

    from opcost.running.layerwise import LayerwiseEnergy

__all__ = [
    "AsynchronousMeasurementTool",
    "EnergyMeasurementTool",
    "LayerwiseMeasurementTool",
    "power_cap_profiler",
    "reset_power_cap",
    "set_power_cap",
]

CAP_HEADER = ("power cap (W)", "time (s)", "energy (J)", "energy (kWh)", "EDP (J s)", "ED2P (J s^2)")

Model = TypeVar("Model", bound="nn.Module")


class _Tool:
    """A tool that replaces ``out_file`` by an empty file, and meters the GPU of a number, as CUDA counts it."""

    def __init__(self, out_file: str | Path, gpu_num: int = 0) -> None:
        self.out_file = Path(out_file)
        self.out_file.write_text("", encoding="utf-8")
        self._gpu = f"cuda:{gpu_num}"

    def _write(self, rows: Iterable[Sequence[float | str | None]]) -> None:
        with self.out_file.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


class EnergyMeasurementTool(_Tool):
    """Measures time and energy of snippets, each between ``start`` and ``stop``.

    At the end of the program ``out_file`` gets a row for each: elapsed time (s), CPU energy (kWh), GPU energy (kWh).
    """

    def __init__(self, out_file: str | Path, gpu_num: int = 0) -> None:
        super().__init__(out_file, gpu_num)
        self._meter = EnergyMeter()
        atexit.register(self.flush)

    def start(self) -> None:
        self._meter.start()

    def stop(self) -> None:
        """End a snippet; a ``UserError`` if none has begun."""
        self._meter.stop()

    def flush(self) -> None:
        self._meter.close()
        rows = []
        for result in self._meter.results:
            energies_j = {found.device: found.energy_j for found in result.devices}
            rows.append((result.duration_s, *(_kwh(energies_j.get(device)) for device in (CPU, self._gpu))))
        self.out_file.write_text("", encoding="utf-8")
        self._write(rows)


class AsynchronousMeasurementTool(_Tool):
    """Takes a reading of CPU and GPU every few seconds, in a thread, from ``start`` to ``stop``.

    At ``stop``, or at the end of the program, ``out_file`` gets a row for each reading: elapsed time (s), CPU energy
    (kWh), CPU utilisation (%), CPU temperature (°C), GPU energy (kWh), GPU utilisation (%), GPU temperature (°C), GPU
    power (W). Energies are those since ``start``, the power is the mean since the reading before.
    """

    def __init__(self, out_file: str | Path, gpu_num: int = 0) -> None:
        super().__init__(out_file, gpu_num)
        self._readings: list[tuple[ClockReading, HostRow, PowerRow]] = []
        self._sources: Sequence[EnergySource] = ()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, interval: float = 1) -> None:
        """Take a reading every ``interval`` s; a ``UserError`` if it has been started, or that is not positive."""
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
            self._write(self._rows())
        finally:
            for source in self._sources:
                source.close()

    def _run(self, interval_s: float) -> None:
        host, gpu = HostState(has_power=False), None
        for source in self._sources:
            if source.uuid is not None:
                with suppress(GpuError):
                    gpu = open_gpu(source.uuid)
        is_last = False
        while not is_last:
            is_last = bool(self._readings) and self._stopping.wait(interval_s)
            state = PowerRow(0.0) if gpu is None else gpu.state()
            for source in self._sources:
                source.edge()
            self._readings.append((SystemClock().read(), host.read(), state))
        if gpu is not None:
            gpu.close()

    def _rows(self) -> list[tuple[float | None, ...]]:
        """Return the rows. An interval that no meter resolves is a part of the next one's energy."""
        begin = self._readings[0][0]
        since = dict.fromkeys((source.device for source in self._sources), begin)
        energies_j = dict.fromkeys(since, 0.0)
        rows: list[tuple[float | None, ...]] = []
        for moment, host, state in self._readings:
            known: dict[str, float] = {}
            power_w = None
            for source in self._sources:
                result = result_of([source], "", since[source.device], moment)
                if result.energy_j is not None:
                    energies_j[source.device] += result.energy_j
                    known[source.device] = energies_j[source.device]
                    since[source.device] = moment
                    power_w = result.energy_j / result.duration_s if source.device == self._gpu else power_w
            of_cpu = _kwh(known.get(CPU)), _percent(host.cpu_load_ratio), host.cpu_temperature_c
            of_gpu = _kwh(known.get(self._gpu)), _percent(state.utilisation_ratio), state.temperature_c, power_w
            rows.append((moment.monotonic_s - begin.monotonic_s, *of_cpu, *of_gpu))
        return rows


class LayerwiseMeasurementTool(_Tool):
    """Measures the energy of each layer of a model in a loop of training or inference.

    At ``stop``, ``out_file`` gets a row for each layer: class, mean energy of an iteration (J), forward and backward.
    The energy is empty where it is unknown. The file has no row for the time between layers, so that its sum is less
    than that of the meter; ``opcost.LayerwiseEnergy`` has all. A model on the CPU is metered there.
    """

    def __init__(self, out_file: str | Path, gpu_num: int = 0) -> None:
        super().__init__(out_file, gpu_num)
        self._layers: LayerwiseEnergy | None = None

    def start(self, model: Model) -> Model:
        """Begin to measure, and return the same model.

        Raises ``UserError`` if it has been started already, or the model is compiled, or on another GPU.
        """
        from opcost.running.layerwise import LayerwiseEnergy

        if self._layers is not None:
            raise UserError("LayerwiseMeasurementTool: start() without stop() after the last start()")
        for weight in model.parameters():
            if weight.device.type == "cuda" and str(weight.device) != self._gpu:
                raise UserError(f"LayerwiseMeasurementTool: gpu_num is of {self._gpu}, the model is on {weight.device}")
        layers = LayerwiseEnergy(model)
        layers.__enter__()
        self._layers = layers
        return model

    def stop(self) -> None:
        """End the measurement and write the file; a ``UserError`` if it has not begun, or the model was not called."""
        if self._layers is None:
            raise UserError("LayerwiseMeasurementTool: stop() without start()")
        layers, self._layers = self._layers, None
        layers.__exit__(None, None, None)
        rows = [(row.layer_class or "", row.energy_j) for row in layers.result.rows if row.layer != BETWEEN]
        self._write(rows)


class _Training:
    """Implements ``CapWork``: one call of a user's function, metered on one GPU; one more, as it begins, warms up."""

    name, is_steady = "train", False

    def __init__(self, train: Callable[[], object], device: str) -> None:
        self._train, self._meter = train, EnergyMeter([device])

    def __enter__(self) -> _Training:
        self._train()
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.close()

    def measure(self) -> CapCost:
        with self._meter.window() as window:
            self._train()
        (found,) = window.result.devices
        return CapCost(window.duration_s, found.energy_j, found.energy_standard_error_j, found.missing_reason)


def power_cap_profiler(  # noqa: PLR0913, PLR0917 (the arguments are those that users know)
    gpu_num: int,
    model: Any,
    dataloader: Any,
    train: Callable[[Any, Any, Any, Any], object],
    loss_fn: Any,
    optimizer: Any,
    out_file: str | Path,
) -> float:
    """Train once at each of some power caps, write a row for each, and return the cap with the least energy in W.

    ``train(dataloader, model, loss_fn, optimizer)`` is called for each cap, in the order of PyTorch's tutorials; each
    call has to do the same work. The model goes on learning from cap to cap. The first call is a warm-up: it is not
    measured. ``out_file`` is replaced: a header, then power cap in W, time in s, energy in J and in kWh, EDP in J s and
    ED²P in J s². The old limit comes back afterwards, also after an exception. Raises UserError: there is no such GPU,
    no consent, no right to set limits, or no energy.
    """
    check_consent(is_given=False)
    board = _board(gpu_num)
    with Path(out_file).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CAP_HEADER)

        def keep(row: PowerCapRow) -> None:
            products = row.energy_delay_product, row.energy_delay_squared_product
            writer.writerow((row.cap_w, row.time_s, row.energy_j, _kwh(row.energy_j), *products))
            file.flush()

        open_work = partial(_Training, partial(train, dataloader, model, loss_fn, optimizer), board.device)
        return sweep_caps(board, open_work, CapSweepPlan(Wish()), keep, Progress()).proposal.cap_w


def set_power_cap(gpu_num: int, power_cap: float) -> None:
    """Set the power limit of a GPU in W. It stays after the program: ``reset_power_cap`` sets the default again.

    Raises ``UserError`` if there is no such GPU, no consent, no right to set limits, or the board refuses it.
    """
    check_consent(is_given=False)
    set_for_good(_board(gpu_num).open_limit, power_cap)


def reset_power_cap(gpu_num: int) -> None:
    """Set the power limit of a GPU to the board's default; errors as of ``set_power_cap``."""
    check_consent(is_given=False)
    set_for_good(_board(gpu_num).open_limit, None)


def _board(gpu_num: int) -> CapBoard:
    device, uuid = gpu_named(f"cuda:{gpu_num}")
    return CapBoard(device, uuid, partial(open_limit, uuid))


def _kwh(energy_j: float | None) -> float | None:
    return None if energy_j is None else energy_j / KWH_J


def _percent(share_ratio: float | None) -> float | None:
    return None if share_ratio is None else 100 * share_ratio
