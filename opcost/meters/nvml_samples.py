"""The meter of NVML's buffered power samples.

A sample is the mean power of the 20 ms before it. Samples are not repeated and cover almost all of the time (the mean
of pulses is 2 % too high), so a fraction of a second is enough for a mean.
"""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from opcost.meters.nvml import HISTORY_S, NvmlError, NvmlGpu
from opcost.meters.nvml_rows import CLOCK_SLACK_S, TimedRows, keep_rows
from opcost.power.meter_names import SAMPLES
from opcost.power.trace import PowerSource, PowerTrace, no_trace, trace_of_power

SAMPLES_SOURCE = PowerSource(
    SAMPLES, rise_time_s=0.15, averaging_time_s=0.02, update_period_s=0.02, repeats_values=False
)
"""Update and averaging time were measured on an H200 (``docs/log/meters.md``). After a step of the load, samples rise
within 60 ms and overshoot for about 100 ms."""

DRAIN_INTERVAL_S = HISTORY_S / 2

LAST_SAMPLE_DEADLINE_S = 0.2
"""The longest time until the buffer holds the last sample of a window."""

POLL_INTERVAL_S = 0.005

LONGEST_GAP_S = 0.1
"""The longest time between samples. They come every 20 ms, sometimes 44 ms; a longer gap means that some were lost."""

STEADY_RATIO = 0.1
"""The largest relative range of an idle device's samples. They differ by one or two percent (H200)."""

HISTORY_SAMPLES = 20


class PowerSampler:
    """Collects all power samples of a GPU from ``__enter__`` to ``__exit__``, in a thread that mostly sleeps.

    ``power_before_w`` is the mean power in one or two seconds before, None if it was not steady.
    """

    def __init__(self, gpu: NvmlGpu) -> None:
        self._gpu = gpu
        self.power_before_w: float | None = None
        self._rows = TimedRows()
        self._draining = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> PowerSampler:
        """Begin to collect. Raises NvmlError: this GPU or driver keeps no samples."""
        history = self.since(0.0)
        self.power_before_w = _steady_mean_w([power_w for _, power_w in history[: len(history) // 2]])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def between(self, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        """Return the samples between two moments (epoch) and the first one after; wait for it.

        Raises NvmlError: NVML reports an error, no sample came after the end, or some are missing in between.
        """
        samples = self.through(begin_s, end_s)
        moments = [begin_s, *(epoch_s for epoch_s, _ in samples)]
        if any(later_s - earlier_s > LONGEST_GAP_S for earlier_s, later_s in pairwise(moments)):
            raise NvmlError("NVML's power samples have a gap: they were not collected in time")
        return [sample for sample in samples if sample[0] <= end_s + SAMPLES_SOURCE.averaging_time_s]

    def through(self, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        """Return the samples up to the first one after an end; wait for it and retry after errors.

        Raises NvmlError: NVML reports an error, or no sample came after the end.
        """
        failure = NvmlError(f"NVML kept no power sample in the {LAST_SAMPLE_DEADLINE_S:g} s after the measurement")
        for _ in range(round(LAST_SAMPLE_DEADLINE_S / POLL_INTERVAL_S)):
            try:
                samples = self.since(begin_s)
            except NvmlError as error:
                failure = error
            else:
                later = [index for index, (epoch_s, _) in enumerate(samples) if epoch_s > end_s]
                if later:
                    return samples[: later[0] + 1]
            time.sleep(POLL_INTERVAL_S)
        raise failure

    def since(self, begin_s: float) -> list[tuple[float, float]]:
        """Return the samples from a moment (epoch) until now. Raises NvmlError: NVML reports an error."""
        self._drain()
        return self._rows.since(begin_s)

    def forget_before(self, epoch_s: float) -> None:
        self._rows.forget_before(epoch_s)

    def _run(self) -> None:
        while not self._stopping.wait(DRAIN_INTERVAL_S):
            self._drain()

    def _drain(self) -> None:
        # Two threads at once would both add the same new samples.
        with self._draining:
            try:
                samples = sorted(self._gpu.power_samples(self._rows.newest_s))
                # A sample from the future would hide all samples until then.
                latest_s = time.time() + CLOCK_SLACK_S
                self._rows.extend(sample for sample in samples if sample[0] <= latest_s)
            except NvmlError as error:
                self._rows.fail(error)


class NvmlMeter:
    """One measurement with a running sampler; the samples are saved as ``<log_name>-samples.csv``."""

    def __init__(self, sampler: PowerSampler, folder: Path, log_name: str) -> None:
        self._sampler = sampler
        self._path = folder / f"{log_name}-samples.csv"
        self._begin_s = 0.0

    def start(self) -> None:
        """Begin a measurement; samples of the one before are dropped."""
        self._path.unlink(missing_ok=True)
        self._begin_s = time.time()
        self._sampler.forget_before(self._begin_s)

    def log(self) -> PowerTrace:
        """Return the samples so far."""
        try:
            return _trace(self._sampler.since(self._begin_s))
        except NvmlError as error:
            return no_trace(str(error), SAMPLES_SOURCE)

    def stop(self) -> PowerTrace:
        """End the measurement and return its samples."""
        try:
            samples = self._sampler.between(self._begin_s, time.time())
        except NvmlError as error:
            return no_trace(str(error), SAMPLES_SOURCE)
        keep_rows(self._path, ("epoch_s", "power_w"), samples)
        return _trace(samples)


def _steady_mean_w(powers_w: list[float]) -> float | None:
    if len(powers_w) < HISTORY_SAMPLES:
        return None
    mean_w = sum(powers_w) / len(powers_w)
    return mean_w if max(powers_w) - min(powers_w) <= STEADY_RATIO * mean_w else None


def _trace(samples: list[tuple[float, float]]) -> PowerTrace:
    epoch_s, power_w = np.array(samples, dtype=np.float64).reshape(-1, 2).T
    return trace_of_power(SAMPLES_SOURCE, epoch_s, power_w)
