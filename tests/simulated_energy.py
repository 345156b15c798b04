"""A GPU with power samples and an energy counter, whose true energy in any window is declared.

Its power is that of a ``SimulatedMachine``. Samples and counter have the faults that an H200's have: samples look 25
times in 20 ms, show a change late, carry times that scatter, and are wrong by a factor; a tick of the counter is known
to one read of 4.4 ms.
"""

from dataclasses import dataclass

import numpy as np
from simulated_machine import FIRST_EPOCH_S, Device, Load, SimulatedMachine

from opcost.estimates import FloatArray
from opcost.metering.window_energy import PLACEMENT_ERROR_S, EnergySource, Readings, pieces_of_samples
from opcost.power.trace import Window

READ_S = 0.0044
TICK_S = 0.1
LATEST_S = 0.010


@dataclass(frozen=True)
class SampleFaults:
    """The samples are late by ``delay_s``, each by up to ``lateness_s`` more, and wrong by a factor of ``scale``."""

    delay_s: float = 0.0
    lateness_s: float = LATEST_S
    scale: float = 1.0
    period_s: float = 0.02
    looks: int = 25


def some_faults(random: np.random.Generator) -> SampleFaults:
    """Return the faults of one board, as they are spread over boards."""
    return SampleFaults(float(random.normal(0.0, PLACEMENT_ERROR_S)), scale=float(random.uniform(0.92, 1.08)))


class SimulatedGpu:
    """The samples and ticks of a machine that has run, and the truth. Times are epoch seconds."""

    def __init__(self, machine: SimulatedMachine, faults: SampleFaults, seed: int) -> None:
        self._faults = faults
        self._random = np.random.default_rng(seed)
        self._edges_s, self._energy_j = machine.energy_curve()
        self._phase_s = float(self._random.uniform(0, TICK_S))
        self.begin_s, self.end_s = FIRST_EPOCH_S, machine.read().epoch_s

    def true_energy_j(self, window: Window) -> float:
        begin_j, end_j = self._at(np.array([window.begin_s, window.end_s]))
        return float(end_j - begin_j)

    def readings(self, window: Window) -> Readings:
        """Return what is known some time after a window: samples of all of the time, and a tick a second."""
        last_s = min(window.end_s + 0.3, self.end_s)
        ends_s = np.arange(self.begin_s, last_s, self._faults.period_s)
        late_s = self._random.uniform(0, self._faults.lateness_s, len(ends_s)) * (np.arange(len(ends_s)) % 3 == 0)
        samples = pieces_of_samples(ends_s + late_s, self._samples_w(ends_s), self._faults.period_s)
        ticks = self.ticks(np.arange(self.begin_s + self._phase_s, window.end_s, 1.0))
        after = self._phase_s + self.begin_s + TICK_S * np.arange(1 + int((last_s - self.begin_s) / TICK_S))
        ticks += self.ticks(after[after > window.end_s][:1])
        return Readings(samples, ticks, "samples", "counter", 2 * self._faults.period_s, READ_S / np.sqrt(12))

    def ticks(self, moments_s: FloatArray) -> list[tuple[float, float]]:
        """Return ticks as they are found: each up to half a read early or late."""
        found_s = moments_s + self._random.uniform(-READ_S / 2, READ_S / 2, len(moments_s))
        return list(zip(found_s.tolist(), self._at(moments_s).tolist(), strict=True))

    def _samples_w(self, ends_s: FloatArray) -> FloatArray:
        faults, seen_s = self._faults, 1e-4
        looks_s = ends_s[:, None] - faults.delay_s - np.arange(faults.looks) * (faults.period_s / faults.looks)
        powers_w: FloatArray = (self._at(looks_s) - self._at(looks_s - seen_s)).mean(axis=1) / seen_s
        return faults.scale * powers_w

    def _at(self, epoch_s: FloatArray) -> FloatArray:
        energy_j: FloatArray = np.interp(epoch_s - FIRST_EPOCH_S, self._edges_s, self._energy_j)
        return energy_j


def pulsed_gpu(seed: int, on_s: float, off_s: float, seconds: float = 6.0) -> SimulatedGpu:
    """Return a GPU that alternates between a load and rest, with the faults of one board."""
    random = np.random.default_rng(seed)
    load = Load(power_w=float(random.uniform(250, 650)))
    machine = SimulatedMachine(load, Device(white_noise_w=5.0), seed=seed)
    machine.has_pauses = True
    machine.idle(float(random.uniform(0, on_s + off_s)))
    while machine.read().epoch_s < FIRST_EPOCH_S + seconds:
        machine.run_load(load, max(1, round(on_s / load.time_s)))
        if off_s:
            machine.idle(off_s)
    return SimulatedGpu(machine, some_faults(random), seed)


class SimulatedSource(EnergySource):
    """A machine that goes on running as an ``EnergySource``; waiting for readings takes 0.3 s of rest."""

    device = "cuda:0"
    uuid = None
    idle_power_w: float | None = 80.0

    def __init__(self, machine: SimulatedMachine, faults: SampleFaults | None = None, seed: int = 0) -> None:
        self.machine = machine
        self.is_closed = False
        self.needed_from_s = 0.0
        self._faults, self._seed = faults or SampleFaults(), seed

    def edge(self) -> None:
        assert not self.is_closed

    def gpu(self) -> SimulatedGpu:
        return SimulatedGpu(self.machine, self._faults, self._seed)

    def readings(self, window: Window) -> Readings:
        assert window.begin_s >= self.needed_from_s, "these readings were dropped"
        if self.machine.read().epoch_s < window.end_s + 0.3:
            self.machine.idle(0.3)
        return self.gpu().readings(window)

    def forget_before(self, epoch_s: float) -> None:
        self.needed_from_s = epoch_s

    def close(self) -> None:
        self.is_closed = True
