"""The meters of any GPU: its power samples and its energy counter, collected in threads that mostly sleep.

A **sample** of NVML is the mean power of the 20 ms before it. Samples are not repeated and cover almost all of the time
(the mean of pulses is 2 % too high), so a fraction of a second is enough for a mean.

The **counter** is exact over seconds for any load. It is updated every 0.1 s (H200: 100.0 ms, with a phase that is
stable within 1 ms for minutes), and each read takes 3.5 to 5 ms of a core. A thread therefore sleeps until shortly
before a tick and then reads until the counter changes. The tick is between the middles of two reads, so its time is
known to within one read: 0.35 to 0.5 % of a second. (If a read does not show the counter of its middle, the shift is
the same each time and cancels.) Since the end of one reading is the begin of the next, the error of the mean of n
readings is half a percent / n.
"""

from __future__ import annotations

import csv
import math
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from opcost.power.ports import Gpu, GpuError, PowerSource, is_gpu_power
from opcost.power.trace import PowerTrace, no_trace, trace_of_power

LAST_SAMPLE_DEADLINE_S = 0.2
"""The longest time until a driver has the last sample of a window."""

POLL_INTERVAL_S = 0.005

LONGEST_GAP_S = 0.1
"""The longest time between samples. They come every 20 ms, sometimes 44 ms; a longer gap means that some were lost."""

STEADY_RATIO = 0.1
"""The largest relative range of an idle device's samples. They differ by one or two percent (H200)."""

HISTORY_SAMPLES = 20

COUNTER = "energy counter"
"""The name of each vendor's in rows is this one, behind its library's."""

CAMPAIGN_SOURCE = PowerSource(COUNTER, rise_time_s=1.2, averaging_time_s=1.0, update_period_s=1.0, repeats_values=False)
"""One tick a second: two reads, 1.2 % of a core (H200). A reading covers up to 1.1 s."""

EVERY_TICK_SOURCE = PowerSource(
    COUNTER, rise_time_s=0.2, averaging_time_s=0.1, update_period_s=0.1, repeats_values=False
)
"""Every tick, for qualifications: 10 % of a core."""

TICK_S = 0.1

LEAD_S = 0.005
"""Time before a tick at which reads begin: half a read, the error of the previous tick, and the timer's inaccuracy."""

SEARCH_S = 0.2
"""Length of the search for a tick whose time is unknown: two periods."""

PAUSE_AFTER_FAILURE_S = 10.0
"""Pause after a search without a tick, because a search takes a whole core."""

SLACK_S = 0.01
"""Tolerance of the interval, which is a whole number of ticks only approximately."""

CLOCK_SLACK_S = 1.0
"""The largest time of a row after now. A later row means that the clock was set back."""


class TimedRows:
    """Rows of epoch seconds and a value, oldest first, or the reason why there are none. Thread-safe."""

    def __init__(self) -> None:
        # Arrays, because a meter of a user's code may run for days: 3 MB an hour, and not 20.
        self._epoch_s, self._values = array("d"), array("d")
        self._failure: GpuError | None = None
        self._lock = threading.Lock()

    def extend(self, rows: Iterable[tuple[float, float]]) -> None:
        """Add rows that are later than the present ones, and clear an earlier failure."""
        with self._lock:
            for epoch_s, value in rows:
                self._epoch_s.append(epoch_s)
                self._values.append(value)
            self._failure = None

    def fail(self, failure: GpuError) -> None:
        """Store a failure, which ``since`` raises until rows are added."""
        with self._lock:
            self._failure = failure

    @property
    def newest_s(self) -> float:
        with self._lock:
            return self._epoch_s[-1] if self._epoch_s else 0.0

    def since(self, begin_s: float) -> list[tuple[float, float]]:
        """Return the rows from a moment (epoch) until now. Raises GpuError: the last attempt to read failed."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            return list(zip(*self._between(begin_s, math.inf), strict=True))

    def forget_before(self, epoch_s: float) -> None:
        """Drop the rows before a moment, and rows after now, which come from a clock that was set back."""
        latest_s = time.time() + CLOCK_SLACK_S
        with self._lock:
            kept_s, values = self._between(epoch_s, latest_s)
            self._epoch_s, self._values = array("d", kept_s), array("d", values)

    def _between(self, begin_s: float, end_s: float) -> tuple[list[float], list[float]]:
        epoch_s, values = np.array(self._epoch_s), np.array(self._values)
        inside = (epoch_s >= begin_s) & (epoch_s <= end_s)
        return epoch_s[inside].tolist(), values[inside].tolist()


def keep_rows(path: Path, columns: tuple[str, str], rows: Iterable[tuple[float, float]]) -> None:
    """Write rows as CSV: epoch seconds, and a value in the unit of its column."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        table.writerows((f"{epoch_s:.6f}", f"{value:.3f}") for epoch_s, value in rows)


class PowerSampler:
    """Collects power samples of a GPU. ``power_before_w`` is the mean of a second or two before, None if unsteady."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.source = gpu.sample_source
        self.power_before_w: float | None = None
        self.rows = TimedRows()
        self._draining = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> PowerSampler:
        """Begin to collect. Raises GpuError: this GPU or driver keeps no samples."""
        history = self.since(0.0)
        powers_w = [power_w for _, power_w in history[: len(history) // 2]]
        if len(powers_w) >= HISTORY_SAMPLES:
            mean_w = sum(powers_w) / len(powers_w)
            self.power_before_w = mean_w if max(powers_w) - min(powers_w) <= STEADY_RATIO * mean_w else None
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def between(self, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        """Return the samples of a time (epoch) and the first one after. Raises GpuError: as ``through``, or a gap."""
        samples = self.through(begin_s, end_s)
        moments = [begin_s, *(epoch_s for epoch_s, _ in samples)]
        if any(later_s - earlier_s > LONGEST_GAP_S for earlier_s, later_s in pairwise(moments)):
            raise GpuError(f"{self._gpu.library}'s power samples have a gap: they were not collected in time")
        return [sample for sample in samples if sample[0] <= end_s + self.source.averaging_time_s]

    def through(self, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        """Return the samples up to the first one after an end. Raises GpuError: it fails, or that does not come."""
        after = f"in the {LAST_SAMPLE_DEADLINE_S:g} s after the measurement"
        failure = GpuError(f"{self._gpu.library} kept no power sample {after}")
        for _ in range(round(LAST_SAMPLE_DEADLINE_S / POLL_INTERVAL_S)):
            try:
                samples = self.since(begin_s)
            except GpuError as error:
                failure = error
            else:
                later = [index for index, (epoch_s, _) in enumerate(samples) if epoch_s > end_s]
                if later:
                    return samples[: later[0] + 1]
            time.sleep(POLL_INTERVAL_S)
        raise failure

    def since(self, begin_s: float) -> list[tuple[float, float]]:
        """Return the samples from a moment (epoch) until now. Raises GpuError: a query fails."""
        self._drain()
        return self.rows.since(begin_s)

    def _run(self) -> None:
        while not self._stopping.wait(self._gpu.sample_interval_s):
            self._drain()

    def _drain(self) -> None:
        # Two threads at once would both add the same new samples.
        with self._draining:
            try:
                samples = sorted(self._gpu.power_samples(self.rows.newest_s))
                # A sample from the future would hide all samples until then.
                latest_s = time.time() + CLOCK_SLACK_S
                self.rows.extend(sample for sample in samples if sample[0] <= latest_s)
            except GpuError as error:
                self.rows.fail(error)


class SampleMeter:
    """One measurement with a running sampler; the samples are saved as ``<log_name>-samples.csv``."""

    def __init__(self, sampler: PowerSampler, folder: Path, log_name: str) -> None:
        self._sampler = sampler
        self._path = folder / f"{log_name}-samples.csv"
        self._begin_s = 0.0

    def start(self) -> None:
        self._path.unlink(missing_ok=True)
        self._begin_s = time.time()
        self._sampler.rows.forget_before(self._begin_s)

    def log(self) -> PowerTrace:
        return self._trace(lambda: self._sampler.since(self._begin_s))

    def stop(self) -> PowerTrace:
        return self._trace(lambda: self._sampler.between(self._begin_s, time.time()), keeps=True)

    def _trace(self, read: Callable[[], list[tuple[float, float]]], keeps: bool = False) -> PowerTrace:
        try:
            samples = read()
        except GpuError as error:
            return no_trace(str(error), self._sampler.source)
        if keeps:
            keep_rows(self._path, ("epoch_s", "power_w"), samples)
        epoch_s, power_w = np.array(samples, dtype=np.float64).reshape(-1, 2).T
        return trace_of_power(self._sampler.source, epoch_s, power_w)


class TickFinder:
    """Finds the ticks of a counter, with few reads once their phase is known.

    ``read_j`` returns the value of the counter and takes some milliseconds, ``now_s`` is a clock that is never stepped.
    ``wait`` sleeps for a number of seconds, and returns True if it was interrupted.
    """

    def __init__(self, read_j: Callable[[], float], now_s: Callable[[], float], wait: Callable[[float], bool]) -> None:
        self._read_j = read_j
        self._now_s = now_s
        self._wait = wait
        self._tick_s: float | None = None

    def next_tick(self, interval_s: float) -> tuple[float, float] | None:
        """Return the next tick after the interval: its time and the counter in J; None: interrupted, or none comes."""
        expected_s = None
        if self._tick_s is not None:
            earliest_s = max(self._tick_s + interval_s - SLACK_S, self._now_s() + LEAD_S)
            expected_s = self._tick_s + TICK_S * math.ceil((earliest_s - self._tick_s) / TICK_S)
            if self._wait(max(0.0, expected_s - LEAD_S - self._now_s())):
                return None
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


def counter_name(gpu: Gpu) -> str:
    """Return the name of a GPU's energy counter in rows."""
    return f"{gpu.library} {COUNTER}"


class CounterSampler:
    """Collects ticks of a GPU's energy counter (epoch s, J), one each ``interval_s``, which may change meanwhile."""

    def __init__(self, gpu: Gpu) -> None:
        self.interval_s = CAMPAIGN_SOURCE.update_period_s
        self.name = counter_name(gpu)
        self.ticks = TimedRows()
        self._gpu = gpu
        self._stopping = threading.Event()
        self._finder = TickFinder(gpu.energy_j, time.monotonic, self._stopping.wait)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._adding, self._seeking = threading.Lock(), threading.Lock()
        self._seeker = TickFinder(gpu.energy_j, time.monotonic, self._stopping.wait)

    def __enter__(self) -> CounterSampler:
        """Begin to collect. Raises GpuError: this GPU or driver has no counter."""
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
        except GpuError as error:
            self.ticks.fail(error)
            return
        if tick is not None:
            self._add(*tick)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                tick = self._finder.next_tick(self.interval_s)
                if tick is None:
                    raise GpuError(f"{self._gpu.library}'s energy counter stands still")
                self._add(*tick)
            except GpuError as error:
                self.ticks.fail(error)
                self._stopping.wait(PAUSE_AFTER_FAILURE_S)

    def _add(self, moment_s: float, energy_j: float) -> None:
        """Store a tick, given by monotonic time, unless the other thread has stored it."""
        with self._adding:
            epoch_s = time.time() - (time.monotonic() - moment_s)
            if abs(epoch_s - self.ticks.newest_s) > TICK_S / 2:
                self.ticks.extend([(epoch_s, energy_j)])


class CounterMeter:
    """One measurement with a running sampler; two or more ticks are saved as ``<log_name>-counter.csv``."""

    def __init__(
        self, sampler: CounterSampler, folder: Path, log_name: str, source: PowerSource = CAMPAIGN_SOURCE
    ) -> None:
        self._sampler = sampler
        self._path = folder / f"{log_name}-counter.csv"
        self._source = replace(source, name=sampler.name)
        self._begin_s = 0.0

    def start(self) -> None:
        self._sampler.interval_s = self._source.update_period_s
        self._path.unlink(missing_ok=True)
        self._begin_s = time.time()
        self._sampler.ticks.forget_before(self._begin_s)

    def log(self) -> PowerTrace:
        return self._trace()

    def stop(self) -> PowerTrace:
        """End the measurement without waiting for a further tick; return the power from tick to tick."""
        self._sampler.interval_s = CAMPAIGN_SOURCE.update_period_s
        return self._trace(keeps=True)

    def _trace(self, keeps: bool = False) -> PowerTrace:
        try:
            ticks = self._sampler.ticks.since(self._begin_s)
        except GpuError as error:
            return no_trace(str(error), self._source)
        if keeps and len(ticks) > 1:
            keep_rows(self._path, ("epoch_s", "energy_j"), ticks)
        epoch_s, energy_j = np.array(ticks, dtype=np.float64).reshape(-1, 2).T
        duration_s = np.diff(epoch_s)
        # A duration is not positive if the clock was set back.
        is_known = duration_s > 0
        power_w = np.full(len(duration_s), math.nan)
        np.divide(np.diff(energy_j), duration_s, out=power_w, where=is_known)
        # A counter with one wrong step is not trusted at other ticks.
        impossible_w = [power for power in power_w[is_known].tolist() if not is_gpu_power(power)]
        if impossible_w:
            library = self._sampler.name.removesuffix(f" {COUNTER}")
            reason = f"{library}'s energy counter gives an impossible power of {impossible_w[0]:g} W"
            return no_trace(reason, self._source)
        # A longer reading, after lost ticks, may begin before the load.
        power_w[duration_s > self._source.rise_time_s] = math.nan
        return trace_of_power(self._source, epoch_s[1:], power_w)
