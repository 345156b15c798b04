"""The meter that reads NVML's energy counter at its ticks: exact over seconds, and dear, since each read takes 3.5 ms.

The counter moves on once in 0.1 s (H200), so a read at any moment is of up to 0.1 s ago. Here a thread looks for the
moment at which it moves. That takes a tenth of a core: this meter is for qualifying others, not for campaigns.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np

from opcost.nvidia_nvml import NvmlError, NvmlGpu
from opcost.ports import Meter
from opcost.power import PowerSource, PowerTrace, no_trace, trace_of_power

COUNTER_SOURCE = PowerSource(
    "NVML energy counter", rise_time_s=0.2, averaging_time_s=0.1, update_period_s=0.1, repeats_values=False
)
QUIET_S = 0.09
"""How long after a tick no other is looked for."""


class WithCounter:
    """Another meter, and the energy counter as one more of its checks."""

    def __init__(self, gpu: NvmlGpu, other: Meter) -> None:
        self._gpu = gpu
        self._other = other
        self._ticks: list[tuple[float, float]] = []
        self._failure: NvmlError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin a measurement."""
        self._other.start()
        self._thread.start()

    def log(self) -> PowerTrace:
        """Return what the other meter has so far."""
        return self._other.log()

    def stop(self) -> PowerTrace:
        """End the measurement; return the other meter's trace with the counter among its checks."""
        trace = self._other.stop()
        self._stopping.set()
        self._thread.join()
        return replace(trace, checks=(*trace.checks, self._trace()))

    def _run(self) -> None:
        try:
            energy_j = self._gpu.energy_j()
            while not self._stopping.is_set():
                now_j, now_s = self._gpu.energy_j(), time.time()
                if now_j != energy_j:
                    self._ticks.append((now_s, now_j))
                    energy_j = now_j
                    self._stopping.wait(QUIET_S)
        except NvmlError as error:
            self._failure = error

    def _trace(self) -> PowerTrace:
        if self._failure is not None:
            return no_trace(str(self._failure))
        if len(self._ticks) < 2:
            return no_trace("NVML's energy counter stands still")
        epoch_s, energy_j = np.array(self._ticks, dtype=np.float64).T
        return trace_of_power(COUNTER_SOURCE, epoch_s[1:], np.diff(energy_j) / np.diff(epoch_s))
