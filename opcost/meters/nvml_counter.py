"""The meter of NVML's energy counter, read at its ticks: exact over seconds for any load.

The counter is updated every 0.1 s (H200: 100.0 ms, with a phase that is stable within 1 ms for minutes), and each read
takes 3.5 to 5 ms of a core. A thread therefore sleeps until shortly before a tick and then reads until the counter
changes. The tick is between the middles of two reads, so its time is known to within one read: 0.35 to 0.5 % of a
second. (If a read does not show the counter of its middle, the shift is the same each time and cancels.) Since the end
of one reading is the begin of the next, the error of the mean of n readings is half a percent / n.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from opcost.meters.nvml import NvmlError, NvmlGpu, is_power
from opcost.meters.nvml_rows import TimedRows, keep_rows
from opcost.power.meter_names import COUNTER
from opcost.power.trace import PowerSource, PowerTrace, no_trace, trace_of_power

TICK_S = 0.1

CAMPAIGN_SOURCE = PowerSource(COUNTER, rise_time_s=1.2, averaging_time_s=1.0, update_period_s=1.0, repeats_values=False)
"""One tick a second: two reads, 1.2 % of a core (H200). A reading covers up to 1.1 s."""

EVERY_TICK_SOURCE = PowerSource(
    COUNTER, rise_time_s=0.2, averaging_time_s=0.1, update_period_s=0.1, repeats_values=False
)
"""Every tick, for qualifications: 10 % of a core."""

LEAD_S = 0.005
"""Time before a tick at which reads begin: half a read, the error of the previous tick, and the timer's inaccuracy."""

SEARCH_S = 0.2
"""Length of the search for a tick whose time is unknown: two periods."""

PAUSE_AFTER_FAILURE_S = 10.0
"""Pause after a search without a tick, because a search takes a whole core."""

SLACK_S = 0.01
"""Tolerance of the interval, which is a whole number of ticks only approximately."""


class TickFinder:
    """Finds the ticks of a counter, with few reads once their phase is known.

    Args:
        read_j: returns the value of the counter; takes some milliseconds.
        now_s: a clock that is never stepped.
        wait: sleeps for a number of seconds; returns True if it was interrupted.
    """

    def __init__(self, read_j: Callable[[], float], now_s: Callable[[], float], wait: Callable[[float], bool]) -> None:
        self._read_j = read_j
        self._now_s = now_s
        self._wait = wait
        self._tick_s: float | None = None

    def next_tick(self, interval_s: float) -> tuple[float, float] | None:
        """Return the time of the next tick, at least an interval after the last one, and the counter's value in J.

        It is None if the counter stands still or the wait was interrupted.
        """
        expected_s = None if self._tick_s is None else self._expected_s(self._tick_s, interval_s)
        if expected_s is not None and self._wait(max(0.0, expected_s - LEAD_S - self._now_s())):
            return None
        return self._search(expected_s)

    def _expected_s(self, last_s: float, interval_s: float) -> float:
        earliest_s = max(last_s + interval_s - SLACK_S, self._now_s() + LEAD_S)
        return last_s + TICK_S * math.ceil((earliest_s - last_s) / TICK_S)

    def _search(self, expected_s: float | None) -> tuple[float, float] | None:
        deadline_s = self._now_s() + SEARCH_S
        old_s, old_j = self._reading()
        while old_s < deadline_s:
            moment_s, energy_j = self._reading()
            if energy_j != old_j:
                guess_s = (old_s + moment_s) / 2 if expected_s is None else expected_s
                self._tick_s = min(max(guess_s, old_s), moment_s)
                return self._tick_s, energy_j
            old_s = moment_s
        self._tick_s = None
        return None

    def _reading(self) -> tuple[float, float]:
        begin_s = self._now_s()
        energy_j = self._read_j()
        return (begin_s + self._now_s()) / 2, energy_j


class CounterSampler:
    """Collects ticks of a GPU's energy counter from ``__enter__`` to ``__exit__``, in a thread that mostly sleeps.

    ``interval_s`` is the time from one collected tick to the next, and may be changed at any time. ``ticks`` holds the
    times of the ticks so far with the counter's values in J.
    """

    def __init__(self, gpu: NvmlGpu) -> None:
        self.interval_s = CAMPAIGN_SOURCE.update_period_s
        self.ticks = TimedRows()
        self._gpu = gpu
        self._stopping = threading.Event()
        self._finder = TickFinder(gpu.energy_j, time.monotonic, self._stopping.wait)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._adding, self._seeking = threading.Lock(), threading.Lock()
        self._seeker = TickFinder(gpu.energy_j, time.monotonic, self._stopping.wait)

    def __enter__(self) -> CounterSampler:
        """Begin to collect. Raises NvmlError: this GPU or driver has no counter."""
        self._gpu.energy_j()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def seek(self) -> None:
        """Collect the next tick in the calling thread, within ``SEARCH_S``, instead of waiting for the interval."""
        try:
            with self._seeking:
                tick = self._seeker.next_tick(0.0)
        except NvmlError as error:
            self.ticks.fail(error)
            return
        if tick is not None:
            self._add(*tick)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._collect():
                self._stopping.wait(PAUSE_AFTER_FAILURE_S)

    def _collect(self) -> bool:
        """Wait for a tick and store it; return whether there was one."""
        try:
            tick = self._finder.next_tick(self.interval_s)
        except NvmlError as error:
            self.ticks.fail(error)
            return False
        if tick is None:
            self.ticks.fail(NvmlError("NVML's energy counter stands still"))
            return False
        self._add(*tick)
        return True

    def _add(self, moment_s: float, energy_j: float) -> None:
        """Store a tick, given by monotonic time, unless the other thread has stored it."""
        with self._adding:
            epoch_s = time.time() - (time.monotonic() - moment_s)
            if abs(epoch_s - self.ticks.newest_s) > TICK_S / 2:
                self.ticks.extend([(epoch_s, energy_j)])


class CounterMeter:
    """One measurement with a running sampler.

    The ticks are saved as ``<log_name>-counter.csv`` if there are two or more.
    """

    def __init__(
        self, sampler: CounterSampler, folder: Path, log_name: str, source: PowerSource = CAMPAIGN_SOURCE
    ) -> None:
        self._sampler = sampler
        self._path = folder / f"{log_name}-counter.csv"
        self._source = source
        self._begin_s = 0.0

    def start(self) -> None:
        """Begin a measurement."""
        self._sampler.interval_s = self._source.update_period_s
        self._path.unlink(missing_ok=True)
        self._begin_s = time.time()
        self._sampler.ticks.forget_before(self._begin_s)

    def log(self) -> PowerTrace:
        """Return the power from tick to tick so far."""
        try:
            return self._trace(self._sampler.ticks.since(self._begin_s))
        except NvmlError as error:
            return no_trace(str(error), self._source)

    def stop(self) -> PowerTrace:
        """End the measurement without waiting for a further tick; return the power from tick to tick."""
        self._sampler.interval_s = CAMPAIGN_SOURCE.update_period_s
        try:
            ticks = self._sampler.ticks.since(self._begin_s)
        except NvmlError as error:
            return no_trace(str(error), self._source)
        if len(ticks) > 1:
            keep_rows(self._path, ("epoch_s", "energy_j"), ticks)
        return self._trace(ticks)

    def _trace(self, ticks: list[tuple[float, float]]) -> PowerTrace:
        epoch_s, energy_j = np.array(ticks, dtype=np.float64).reshape(-1, 2).T
        duration_s = np.diff(epoch_s)
        # A duration is not positive if the clock was set back.
        is_known = duration_s > 0
        power_w = np.full(len(duration_s), math.nan)
        np.divide(np.diff(energy_j), duration_s, out=power_w, where=is_known)
        # A counter with one wrong step is not trusted at other ticks.
        impossible_w = [power for power in power_w[is_known].tolist() if not is_power(power)]
        if impossible_w:
            return no_trace(f"NVML's energy counter gives an impossible power of {impossible_w[0]:g} W", self._source)
        # A longer reading, after lost ticks, may begin before the load.
        power_w[duration_s > self._source.rise_time_s] = math.nan
        return trace_of_power(self._source, epoch_s[1:], power_w)
