"""The meter that reads NVML's energy counter at its ticks: exact over seconds, whatever the load does in between.

The counter moves on every 0.1 s (H200: 100.0 ms, with a phase that stays within 1 ms for minutes), and each read takes
3.5 to 5 ms of a core. So a thread sleeps until shortly before a tick and then reads until the counter has moved. The
tick lies between the middles of two such reads, so its moment is known to the time of one: 0.35 to 0.5 % of a second.
(If a read shows the counter not as in its middle, it does so each time, and the shift cancels.) Since the end of one
reading is the begin of the next, the mean of n readings is good to a half percent / n.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import numpy as np

from opcost.meters.nvml import NvmlError, NvmlGpu, is_power
from opcost.meters.nvml_rows import TimedRows, keep_rows
from opcost.power.meter_names import COUNTER
from opcost.power.trace import PowerSource, PowerTrace, no_trace, trace_of_power

TICK_S = 0.1

CAMPAIGN_SOURCE = PowerSource(COUNTER, rise_time_s=1.2, averaging_time_s=1.0, update_period_s=1.0, repeats_values=False)
"""A tick in a second: two reads, 1.2 % of a core (H200). A reading reaches back over up to 1.1 s."""

EVERY_TICK_SOURCE = PowerSource(
    COUNTER, rise_time_s=0.2, averaging_time_s=0.1, update_period_s=0.1, repeats_values=False
)
"""For qualification: a tenth of a core."""

LEAD_S = 0.005
"""How long before a tick the reads begin: half a read, the error of the tick before, and some for the alarm clock."""

SEARCH_S = 0.2
"""How long is looked for a tick whose time is not known: two periods."""

PAUSE_AFTER_FAILURE_S = 10.0
"""Looking for ticks that do not come takes a whole core."""

SLACK_S = 0.01
"""A tick that is this much too early is on time: an interval is a number of ticks only roughly."""


class TickFinder:
    """Finds the moments at which a counter moves, with few reads once their phase is known.

    Args:
        read_j: returns what the counter shows; takes some milliseconds.
        now_s: a clock that is never stepped.
        wait: sleeps for some seconds; returns True if it was told to end meanwhile.
    """

    def __init__(self, read_j: Callable[[], float], now_s: Callable[[], float], wait: Callable[[float], bool]) -> None:
        self._read_j = read_j
        self._now_s = now_s
        self._wait = wait
        self._tick_s: float | None = None

    def next_tick(self, interval_s: float) -> tuple[float, float] | None:
        """Return when the counter moved, at least an interval after the last time, and what it showed then, in J.

        None if it stands still, or the wait was ended.
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
        """Return the middle of a read, and what it showed."""
        begin_s = self._now_s()
        energy_j = self._read_j()
        return (begin_s + self._now_s()) / 2, energy_j


class CounterSampler:
    """Collects ticks of a GPU's energy counter from ``__enter__`` to ``__exit__``, in a thread that mostly sleeps.

    ``interval_s`` is the time from one tick to the next, and may be changed at any time. ``ticks`` are the moments of
    those so far, and what the counter showed then, in J.
    """

    def __init__(self, gpu: NvmlGpu) -> None:
        self.interval_s = CAMPAIGN_SOURCE.update_period_s
        self.ticks = TimedRows()
        self._gpu = gpu
        self._stopping = threading.Event()
        self._finder = TickFinder(gpu.energy_j, time.monotonic, self._stopping.wait)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> CounterSampler:
        """Begin to collect.

        Raises:
            NvmlError: this GPU or driver has no counter.
        """
        self._gpu.energy_j()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._collect():
                self._stopping.wait(PAUSE_AFTER_FAILURE_S)

    def _collect(self) -> bool:
        """Wait for a tick and keep it; return whether there was one."""
        try:
            tick = self._finder.next_tick(self.interval_s)
        except NvmlError as error:
            self.ticks.fail(error)
            return False
        if tick is None:
            self.ticks.fail(NvmlError("NVML's energy counter stands still"))
            return False
        moment_s, energy_j = tick
        self.ticks.extend([(time.time() - (time.monotonic() - moment_s), energy_j)])
        return True


class CounterMeter:
    """One measurement with a running sampler.

    The ticks are kept as ``<log_name>-counter.csv``, if there are two.
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
        # The clock was set back where it is none.
        is_known = duration_s > 0
        power_w = np.full(len(duration_s), math.nan)
        np.divide(np.diff(energy_j), duration_s, out=power_w, where=is_known)
        # One that ran backwards or leapt once may have done so at other ticks, too.
        absurd_w = [power for power in power_w[is_known].tolist() if not is_power(power)]
        if absurd_w:
            return no_trace(f"NVML's energy counter tells of {absurd_w[0]:g} W, which no GPU draws", self._source)
        # A longer one, after lost ticks, may begin before the load.
        power_w[duration_s > self._source.rise_time_s] = math.nan
        return trace_of_power(self._source, epoch_s[1:], power_w)
