"""One simulated machine that plays the workload, the meter and the clock of ``opcost.measuring.record``.

The truth is declared (``Load``, ``Device``), and so is every fault of the meter and the clock (``MeterModel``,
``ClockStep``). Tests ask whether the procedure finds the declared truth again, and whether its interval contains it.

Time is virtual: running a workload advances the machine's clock and nothing sleeps. The same seed gives the same run.

    machine = SimulatedMachine(Load(time_s=0.002, power_w=400.0), meter=MeterModel(averaging_time_s=1.0), seed=7)
    measurement = measure(machine, machine.instruments(), MeasurementProtocol(warm_up_s=2.0, loop_s=3.0))

Several workloads on one machine: ``measure(machine.workload(other_load), machine.instruments(), protocol)``.

The faults of real meters, and the parameters that act them out:

===================================  =========================================================================
nvidia-smi ``power.draw``            ``MeterModel(averaging_time_s=1.0, update_period_s=0.1)``
nvidia-smi ``power.draw.instant``    ``MeterModel(averaging_time_s=0.025, update_period_s=0.1)``: part-time
NVML's ring of power samples         ``MeterModel(averaging_time_s=0.02, update_period_s=0.02, looks=25)``
===================================  =========================================================================
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from opcost.estimates import FloatArray
from opcost.measuring.conditions import EAGER, Circumstances, Conditions, measurement_key
from opcost.measuring.flags import Flag, Flags
from opcost.measuring.instruments import Instruments, Observer
from opcost.measuring.known_device import UNKNOWN_DEVICE, KnownDevice
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MeasurementProtocol, cycles_and_pause
from opcost.measuring.record import MeasurementRow
from opcost.measuring.workload import Workload
from opcost.operators.counts import Case, case_columns
from opcost.operators.tuples import OperatorTuple, Phase, TensorSpec
from opcost.operators.values import NORMAL_DATA, InputData
from opcost.power.ports import ClockReading, PowerSource
from opcost.power.trace import PowerTrace, no_trace

Times = TypeVar("Times", np.float64, FloatArray)
"""One time, which is what most calls ask for, or many; or what is so at them."""

POWER_STEP_S = 0.005
"""The device's power is constant within one step. One value of ``white_noise_w`` lasts as long."""

REPORT_STEP_S = 0.02
"""How finely a device remembers that it was throttled."""

PARTS_OF_A_STEP = 50
"""How finely pauses within a step are seen."""

LONGEST_PAUSE_S = 0.02
"""In longer ones a device forgets that it was near its power limit."""

LONGEST_MEMORY_S = 3.0
"""No meter's reading depends on what was longer ago."""

MEMORY_WARMER_K = 5.0

NEGLIGIBLE = 1e-17
"""Of a shock to the power: what it still adds then is lost in rounding."""

IDLE_AROUND_S = 0.3
"""How long the device idles while the meter starts and while it stops."""

SIMULATED_CONDITIONS = Conditions(
    device_type="simulated",
    device_product="simulated machine",
    device_memory_bytes=16 * 10**9,
    device_power_limit_w=700.0,
    driver_version="1.0",
    torch_version="2.11.0",
    cuda_version="13.0",
    cudnn_version="9.0",
    cpu_threads=None,
    precision="torch-default",
    matmul_tf32=False,
    cudnn_tf32=True,
    cudnn_benchmark=False,
    cudnn_deterministic=False,
    deterministic_algorithms=False,
    sdpa_flash=True,
    sdpa_memory_efficient=True,
    sdpa_cudnn=True,
    sdpa_math=True,
)
SIMULATED_CIRCUMSTANCES = Circumstances(
    device_uuid="simulated-0",
    host_cpu="simulated",
    python_version="3.11.0",
    opcost_version="0",
    torchvision_version="0.26.0",
    warm_up_s=2.0,
    loop_s=30.0,
)

FIRST_MONOTONIC_S = 5_000.0
FIRST_EPOCH_S = 1_790_000_000.0


@dataclass(frozen=True)
class Load:
    """The truth about one workload, and how it deviates from a steady one.

    ``time_s`` and ``power_w`` are the true means of one iteration on a device in thermal equilibrium. ``jitter_ratio``
    is the standard deviation of one iteration's time over its mean. The first call takes ``first_call_s`` longer, and
    the device idles meanwhile. Power swings by ``swing_w`` above and below its mean, half a ``swing_period_s`` each.
    Runs alternate between ``placements`` in memory, whose times differ by ``placement_spread_ratio`` (standard
    deviation). Times stray from their mean by ``stray_ratio`` in a second, and by twice as much in four.
    """

    time_s: float = 0.002
    power_w: float = 400.0
    jitter_ratio: float = 0.0
    first_call_s: float = 0.0
    swing_w: float = 0.0
    swing_period_s: float = 0.1
    placements: int = 1
    waits: int | None = None
    placement_spread_ratio: float = 0.0
    stray_ratio: float = 0.0

    @property
    def energy_j(self) -> float:
        """The true energy of one iteration on a device in thermal equilibrium."""
        return self.time_s * self.power_w


@dataclass(frozen=True)
class Device:
    """The truth about the device.

    It approaches ``busy_temperature_c`` under load and ``idle_temperature_c`` without, exponentially with
    ``warming_time_s``. A load's power is ``cold_power_ratio`` of its declared one at the idle temperature.
    ``white_noise_w`` is the standard deviation of power from one step to the next; ``correlated_noise_w`` of a noise
    that forgets itself with ``correlation_time_s``. ``power_capped`` is 1 where power reaches ``power_limit_w``. A load
    that would draw more, on average over its pauses, draws that much on average from ``capping_delay_s`` after its
    begin on, if that is declared, and takes so much longer that its energy stays. ``power_capped`` stays 1 for
    ``capping_reported_s`` after that. Clocks swing by ``clock_swing_ratio`` to either side: where they are low, power
    is and time is not.
    """

    idle_power_w: float = 80.0
    idle_temperature_c: float = 34.0
    busy_temperature_c: float = 54.0
    warming_time_s: float = 10.0
    cold_power_ratio: float = 1.0
    white_noise_w: float = 10.0
    correlated_noise_w: float = 0.0
    correlation_time_s: float = 0.05
    power_limit_w: float = 700.0
    capping_delay_s: float = math.inf
    capping_reported_s: float = 0.0
    clock_swing_ratio: float = 0.0
    clock_swing_period_s: float = 0.9
    sm_clock_hz: float = 1.98e9


@dataclass(frozen=True)
class MeterModel:
    """A meter and its faults.

    A fresh value comes every ``update_period_s``. It is the mean power of the ``averaging_time_s`` that ended
    ``lag_s`` ago: longer than the period it smooths, shorter it misses part of the time. The log has a row every
    ``row_period_s``; rows between two fresh values repeat. Values are multiples of ``tick_w`` if that is not 0.
    With ``looks`` it is not the mean of all that time but of so many moments in it, evenly apart, as an H200's samples.
    With ``missing_reason`` there is no meter at all. ``source`` is what the meter says of itself, right or wrong;
    None for the truth. All values are wrong by a factor of ``scale``.
    """

    update_period_s: float = 0.1
    averaging_time_s: float = 0.1
    lag_s: float = 0.0
    row_period_s: float = 0.02
    tick_w: float = 0.01
    missing_reason: str | None = None
    source: PowerSource | None = None
    scale: float = 1.0
    looks: int = 0

    @property
    def power_source(self) -> PowerSource:
        if self.source is not None:
            return self.source
        rise_time_s = self.lag_s + self.averaging_time_s + self.update_period_s
        return PowerSource("simulated", rise_time_s, self.averaging_time_s, self.update_period_s)


RING = MeterModel(
    update_period_s=0.02, averaging_time_s=0.02, source=PowerSource("ring", 0.06, 0.02, 0.02, repeats_values=False)
)
"""As NVML's samples, each row a reading of its own."""

LOOKING_RING = replace(RING, looks=25)
"""As they are on an H200, which sees pauses only where it looks."""


@dataclass(frozen=True)
class ClockStep:
    """The wall clock jumps by ``step_s`` once the machine has run for ``after_s``."""

    after_s: float
    step_s: float


@dataclass(frozen=True)
class _Phase:
    """A time in which the device does one thing, until the next phase begins. ``warmth`` is 0 cold, 1 in balance.

    It belongs to a burst: the same load, but for short pauses, from ``burst_begin_s`` on. ``burst_power_w`` is the mean
    power since then, pauses included: that of the load where it begins.
    """

    begin_s: float
    load: Load | None
    warmth_at_begin: float
    burst_begin_s: float = -math.inf
    burst_power_w: float = 0.0


class _Course(NamedTuple):
    """The state of the device at some times, by its phases: arrays of one value for each time."""

    begin_s: FloatArray
    burst_begin_s: FloatArray
    burst_power_w: FloatArray
    warmth_at_begin: FloatArray
    busy: FloatArray
    power_w: FloatArray
    swing_w: FloatArray
    swing_period_s: FloatArray


class SimulatedWorkload:
    """One load on a machine: plays ``opcost.measuring.record.Workload``."""

    flags: Flags = ()
    notes = ""
    execution = EAGER
    iterations_per_round = 1
    overhead: Workload | None = None
    call_memory_peak_bytes: int | None = None
    far_launches_s: float | None = None
    only_waits = False
    ended_s: float | None = None
    _pause_s = 0.0

    def __init__(self, machine: SimulatedMachine, load: Load, duty_cycle: float = 1.0) -> None:
        self.load = load
        self.placements = load.placements
        self.waits = load.waits
        if duty_cycle < 1:
            self.iterations_per_round, self._pause_s = cycles_and_pause(load.time_s, duty_cycle)
            self.flags = (Flag.DUTY_CYCLE,)
            self.overhead = SimulatedPause(machine, self._pause_s, self.iterations_per_round)
        self.iterations = 0
        self._machine = machine
        self._placement = itertools.count()
        self._placement_ratios = machine.place_ratios(load)

    def run(self, rounds: int) -> int:
        ratio = float(self._placement_ratios[next(self._placement) % self.placements])
        stretches = [self.iterations_per_round] * rounds if self._pause_s else [rounds * self.iterations_per_round]
        for iterations in stretches:
            self._machine.run_load(self.load, iterations, is_first=self.iterations == 0, place_ratio=ratio)
            self.iterations += iterations
            if self._pause_s:
                self._machine.idle(self._pause_s)
        return rounds

    def finish(self) -> None:
        """The device is idle whenever a run has returned."""


class SimulatedPause(SimulatedWorkload):
    """Behaviour of a machine while a load with a duty cycle pauses."""

    only_waits = True

    def __init__(self, machine: SimulatedMachine, pause_s: float, iterations_per_round: int) -> None:
        super().__init__(machine, Load())
        self.iterations_per_round, self._pause_s = iterations_per_round, pause_s

    def run(self, rounds: int) -> int:
        self._machine.idle(rounds * self._pause_s)
        return rounds


class SimulatedPair(SimulatedWorkload):
    """A load behind an eviction, in turn with the eviction alone; a round lasts as long as the load alone."""

    iterations_per_round = 16

    def __init__(self, machine: SimulatedMachine, load: Load, eviction: Load) -> None:
        super().__init__(machine, load)
        self._eviction = eviction

    def run(self, rounds: int) -> int:
        calls = rounds * self.iterations_per_round
        both = replace(self._eviction, time_s=self._eviction.time_s + self.load.time_s)
        moments_s = [self._machine.read().monotonic_s]
        for load in (self._eviction, both):
            self._machine.run_load(load, calls)
            moments_s.append(self._machine.read().monotonic_s)
        self.ended_s = moments_s[2] - 2 * moments_s[1] + moments_s[0]
        return rounds


class SimulatedMachine(SimulatedWorkload):
    """A device with its meter and its clock; as a workload it runs its own load."""

    def __init__(
        self,
        load: Load | None = None,
        device: Device | None = None,
        meter: MeterModel | None = None,
        clock_step: ClockStep | None = None,
        seed: int = 0,
        checks: tuple[MeterModel, ...] = (),
    ) -> None:
        self._random = np.random.default_rng(seed)
        super().__init__(self, load or Load())
        self.device = device or Device()
        self.meter = meter or MeterModel()
        self.checks = checks
        self.is_logging = self.has_pauses = False
        self._clock_step = clock_step
        self._now_s = self._burst_energy_j = self._strayed_ratio = 0.0
        self._log_begin_s = 0.0
        self._white_noise_w = self._correlated_noise = np.empty(0)
        self._phases = [_Phase(-FIRST_EPOCH_S, None, 0.0)]
        self._columns = np.empty((0, 0))

    def workload(self, load: Load, duty_cycle: float = 1.0) -> SimulatedWorkload:
        """Return another workload on this machine, one that pauses where it has a duty cycle."""
        self.has_pauses |= duty_cycle < 1
        return SimulatedWorkload(self, load, duty_cycle)

    def instruments(self, device: KnownDevice = UNKNOWN_DEVICE, *observers: Observer) -> Instruments:
        """Return what its workloads are measured with: its own meter and clock."""
        return Instruments(self, self, device, observers)

    def place_ratios(self, load: Load) -> FloatArray:
        """Return what iterations of a load take in each of its placements, over its declared time."""
        if not load.placement_spread_ratio:
            return np.ones(load.placements)
        return 1 + load.placement_spread_ratio * self._random.standard_normal(load.placements)

    def run_load(self, load: Load, iterations: int, is_first: bool = False, place_ratio: float = 1.0) -> None:
        """Advance time by that many iterations of a load."""
        if is_first:
            self.idle(load.first_call_s)
        jitter = load.jitter_ratio * self._random.standard_normal() * math.sqrt(iterations)
        duration_s = place_ratio * load.time_s * self._slowness(load) * max(iterations + jitter, 0.01 * iterations)
        if load.stray_ratio:
            duration_s *= max(1 + self._strayed_ratio, 0.01)
            self._strayed_ratio += load.stray_ratio * np.sqrt(duration_s) * self._random.standard_normal()
        self._advance(load, duration_s)

    def idle(self, duration_s: float) -> None:
        """Advance time while the device does nothing."""
        self._advance(None, duration_s)

    def read(self) -> ClockReading:
        """Play ``opcost.measuring.record.Clock``."""
        return ClockReading(FIRST_MONOTONIC_S + self._now_s, float(self._epoch_s(np.float64(self._now_s))))

    def start(self) -> None:
        """Play ``opcost.measuring.record.Meter``: begin to log."""
        self.is_logging = True
        self._log_begin_s = self._now_s
        self._white_noise_w = self._correlated_noise = np.empty(0)
        self.idle(IDLE_AROUND_S)

    def stop(self) -> PowerTrace:
        """Play ``opcost.measuring.record.Meter``: end the log and return its rows."""
        self.is_logging = False
        self.idle(IDLE_AROUND_S)
        return self.log()

    def log(self) -> PowerTrace:
        """Play ``opcost.measuring.record.Meter``: return the rows so far."""
        return replace(self._log_of(self.meter), checks=tuple(map(self._log_of, self.checks)))

    def _log_of(self, meter: MeterModel) -> PowerTrace:
        if meter.missing_reason is not None:
            return no_trace(meter.missing_reason)
        row_s = np.arange(self._log_begin_s, self._now_s, meter.row_period_s)
        warmth = self._warmth(row_s, self._course(row_s))
        temperature_c = self._temperature_c(warmth)
        return PowerTrace(
            source=meter.power_source,
            epoch_s=self._epoch_s(row_s),
            power_w=meter.scale * self._readings_w(row_s, meter),
            temperature_c=temperature_c,
            memory_temperature_c=temperature_c + MEMORY_WARMER_K,
            sm_clock_hz=np.full(len(row_s), self.device.sm_clock_hz),
            power_capped=self._reports_capping(row_s).astype(float),
            thermal_slowdown=np.zeros(len(row_s)),
            busy_ratio=(warmth > 0).astype(float),
            log_name="simulated.csv",
        )

    def true_power_w(self, begin_epoch_s: float, end_epoch_s: float) -> float:
        """Return the true mean power between two times of an unstepped clock, noise left out."""
        begin_s, end_s = begin_epoch_s - FIRST_EPOCH_S, end_epoch_s - FIRST_EPOCH_S
        at_s = np.linspace(begin_s, end_s, 10_001)
        return float(self._steady_power_w(at_s, self._course(at_s)).mean())

    def _slowness(self, load: Load) -> float:
        """Return how much longer an iteration takes now than declared."""
        is_same = load is self._phases[-1].load or load == self._phases[-1].load
        phase = self._phases[-1] if is_same else self._next_phase(load)
        is_capped = self._now_s - phase.burst_begin_s >= self.device.capping_delay_s
        is_capped &= phase.burst_power_w >= self.device.power_limit_w
        capped = phase.burst_power_w / self.device.power_limit_w if is_capped else 1.0
        return capped * (1 + float(self._swing(np.float64(self._now_s))))

    def _swing(self, at_s: Times) -> Times:
        device = self.device
        return device.clock_swing_ratio * np.sin(2 * np.pi * at_s / device.clock_swing_period_s)

    def _advance(self, load: Load | None, duration_s: float) -> None:
        if load is not self._phases[-1].load and load != self._phases[-1].load:
            self._phases.append(self._next_phase(load))
        if self._phases[-1].burst_begin_s == self._now_s:
            self._burst_energy_j = 0.0
        self._burst_energy_j += duration_s * (self.device.idle_power_w if load is None else load.power_w)
        self._now_s += duration_s

    def _next_phase(self, load: Load | None) -> _Phase:
        """Return the phase that begins now if the device does something else."""
        last = self._phases[-1]
        # Of the last phase alone: there are thousands where pauses are.
        passed_s = np.float64(self._now_s - last.begin_s)
        warmth = float(self._approached(float(last.load is not None), last.warmth_at_begin, passed_s))
        before = self._phases[-2].load if len(self._phases) > 1 else None
        is_pause = last.load is None and self._now_s - last.begin_s < LONGEST_PAUSE_S and before == load
        if load is not None and not is_pause:
            return _Phase(self._now_s, load, warmth, self._now_s, load.power_w)
        span_s = self._now_s - last.burst_begin_s
        mean_w = self._burst_energy_j / span_s if 0 < span_s < math.inf else 0.0
        return _Phase(self._now_s, load, warmth, last.burst_begin_s, mean_w)

    def _epoch_s(self, at_s: Times) -> Times:
        step = self._clock_step
        return FIRST_EPOCH_S + at_s + (0.0 if step is None else step.step_s * (at_s >= step.after_s))

    def _course(self, at_s: FloatArray) -> _Course:
        new = self._phases[self._columns.shape[1] :]
        if new:
            # Phases stay as they are: simulations ask for thousands of courses.
            columns = np.array([self._column_of(phase) for phase in new]).T
            self._columns = np.hstack([self._columns, columns]) if self._columns.size else columns
        index = np.searchsorted(self._columns[0], at_s, side="right") - 1
        return _Course(*self._columns[:, index])

    def _column_of(self, phase: _Phase) -> tuple[float, ...]:
        """Return what a course has of a phase."""
        load = phase.load or Load(power_w=self.device.idle_power_w)
        of_burst = phase.burst_begin_s, phase.burst_power_w
        of_load = float(phase.load is not None), load.power_w, load.swing_w, load.swing_period_s
        return phase.begin_s, *of_burst, phase.warmth_at_begin, *of_load

    def _is_throttled(self, at_s: FloatArray, course: _Course) -> npt.NDArray[np.bool_]:
        """Return where a burst has drawn more than the device may for long enough."""
        lasts = at_s - course.burst_begin_s >= self.device.capping_delay_s
        return lasts & (course.burst_power_w >= self.device.power_limit_w)

    def _warmth(self, at_s: FloatArray, course: _Course) -> FloatArray:
        """Return how warm the device is: 0 cold, 1 in equilibrium under load."""
        return self._approached(course.busy, course.warmth_at_begin, at_s - course.begin_s)

    def _approached(self, target: FloatArray | float, at_begin: FloatArray | float, passed_s: Times) -> Times:
        """Return the warmth some time after a phase began."""
        return target + (at_begin - target) * np.exp(-passed_s / self.device.warming_time_s)

    def _temperature_c(self, warmth: FloatArray) -> FloatArray:
        device = self.device
        return device.idle_temperature_c + warmth * (device.busy_temperature_c - device.idle_temperature_c)

    def _steady_power_w(self, at_s: FloatArray, course: _Course) -> FloatArray:
        """Return the power without noise."""
        device = self.device
        swing_w = course.swing_w * np.where(at_s / course.swing_period_s % 1 < 0.5, 1, -1)
        missing_ratio = course.busy * (1 - device.cold_power_ratio) * (1 - self._warmth(at_s, course))
        is_capped = (course.busy > 0) & self._is_throttled(at_s, course)
        capped_ratio = device.power_limit_w / np.where(is_capped, course.burst_power_w, 1.0)
        drawn_w = course.power_w * np.where(is_capped, capped_ratio, 1.0)
        return (drawn_w + swing_w) * (1 - missing_ratio) * (1 - course.busy * self._swing(at_s))

    def _is_capped(self, at_s: FloatArray) -> npt.NDArray[np.bool_]:
        """Return where the power limit holds clocks down; where no delay is declared, wherever power is as large."""
        course = self._course(at_s)
        is_large = self._steady_power_w(at_s, course) >= self.device.power_limit_w
        return is_large if math.isinf(self.device.capping_delay_s) else is_large & self._is_throttled(at_s, course)

    def _reports_capping(self, at_s: FloatArray) -> npt.NDArray[np.bool_]:
        """Return where the device is throttled, or was until a while ago."""
        earlier_s = np.arange(0.0, self.device.capping_reported_s + REPORT_STEP_S, REPORT_STEP_S)
        return np.any([self._is_capped(np.maximum(at_s - s, 0.0)) for s in earlier_s], axis=0)

    def _readings_w(self, row_s: FloatArray, meter: MeterModel) -> FloatArray:
        """Return what a meter shows at each row."""
        fresh_s = np.floor(row_s / meter.update_period_s) * meter.update_period_s - meter.lag_s
        edges_s, energy_j = self.energy_curve()
        # What a meter looks at is smooth for 0.1 ms.
        seen_s = POWER_STEP_S / PARTS_OF_A_STEP if meter.looks else meter.averaging_time_s
        looks = max(meter.looks, 1)
        looked_s = fresh_s[:, None] - np.arange(looks) * (meter.averaging_time_s / looks)
        last_j, first_j = (np.interp(at_s, edges_s, energy_j) for at_s in (looked_s, looked_s - seen_s))
        readings_w = (last_j - first_j).mean(axis=1) / seen_s
        return np.round(readings_w / meter.tick_w) * meter.tick_w if meter.tick_w else readings_w

    def energy_curve(self) -> tuple[FloatArray, FloatArray]:
        """Return the true energy since before the log began, noise included, at moments of the machine's time."""
        # All meters see the same noise, from a second before the log on.
        begin_s = self._log_begin_s - LONGEST_MEMORY_S
        steps = math.ceil((self._now_s - begin_s) / POWER_STEP_S) + 1
        parts = PARTS_OF_A_STEP if self.has_pauses else 1
        part_s = POWER_STEP_S / parts
        edges_s = begin_s + part_s * np.arange(steps * parts + 1)
        power_w = self._steady_power_w(edges_s[:-1], self._course(edges_s[:-1])) + np.repeat(
            self._noise_w(steps), parts
        )
        return edges_s, np.concatenate([[0.0], np.cumsum(power_w) * part_s])

    def _noise_w(self, steps: int) -> FloatArray:
        """Return the noise of the first steps of the log; what was drawn for it before stays."""
        new = steps - len(self._white_noise_w)
        if new > 0:
            memory = float(np.exp(-POWER_STEP_S / self.device.correlation_time_s))
            shocks = np.sqrt(1 - memory**2) * self._random.standard_normal(new)
            if len(self._correlated_noise):
                shocks[0] += memory * self._correlated_noise[-1]
            else:
                shocks[0] = self._random.standard_normal()
            self._correlated_noise = np.concatenate([self._correlated_noise, _remembered(shocks, memory)])
            self._white_noise_w = np.concatenate([self._white_noise_w, self._random.standard_normal(new)])
        white_w = self.device.white_noise_w * self._white_noise_w[:steps]
        return white_w + self.device.correlated_noise_w * self._correlated_noise[:steps]


def simulated_row(
    operator: OperatorTuple,
    load: Load | None = None,
    machine: SimulatedMachine | None = None,
    conditions: Conditions = SIMULATED_CONDITIONS,
    circumstances: Circumstances = SIMULATED_CIRCUMSTANCES,
    input_data: InputData = NORMAL_DATA,
) -> MeasurementRow:
    """Measure a load on a machine (a fresh one, if none is named) and return the figures as an operator's row."""
    machine = machine or SimulatedMachine()
    protocol = MeasurementProtocol(circumstances.warm_up_s, circumstances.loop_s)
    return MeasurementRow(
        key=measurement_key(Case(operator, input_data), conditions),
        **case_columns(Case(operator, input_data)),
        measurement=measure(machine.workload(load or Load()), machine.instruments(), protocol),
        order_seed=None,
        conditions=conditions,
        circumstances=circumstances,
    )


def declared_row(
    operator: OperatorTuple,
    conditions: Conditions = SIMULATED_CONDITIONS,
    input_data: InputData = NORMAL_DATA,
    circumstances: Mapping[str, Any] = MappingProxyType({}),
    phase: Phase = Phase.INFERENCE,
    **figures: Any,
) -> MeasurementRow:
    """Return a row with the circumstances and figures that a test declares; others are those of a simulated row."""
    row = _simulated_once()
    if "energy_j" in figures:
        figures = {"energy_missing_reason": "no meter" if figures["energy_j"] is None else None, **figures}
    return replace(
        row,
        key=measurement_key(Case(operator, input_data, phase), conditions),
        operator=operator.operator,
        measurement=replace(row.measurement, **figures),
        input_data=str(input_data),
        phase=phase,
        conditions=conditions,
        circumstances=replace(row.circumstances, **circumstances),
    )


@cache
def _simulated_once() -> MeasurementRow:
    return simulated_row(OperatorTuple("torch.nn.ReLU", inputs=(TensorSpec((4,), "float32"),)))


def _remembered(shocks: FloatArray, memory: float) -> FloatArray:
    """Return shocks of which each adds to all later ones: ``memory`` of it to the next, and so on."""
    sums, span = shocks.copy(), 1
    while span < len(sums) and memory**span > NEGLIGIBLE:
        sums[span:] += memory**span * sums[:-span]
        span *= 2
    return sums
