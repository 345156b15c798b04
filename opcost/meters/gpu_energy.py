"""The energy of a GPU in any window: its power samples and energy counter, read by threads that mostly sleep."""

from __future__ import annotations

import math
from contextlib import ExitStack, suppress

import numpy as np

from opcost.metering.pieces import NO_PIECES, Pieces, pieces_of_samples
from opcost.metering.readings import Readings
from opcost.meters.nvml import NvmlError, NvmlGpu, is_power
from opcost.meters.nvml_counter import TICK_S, CounterSampler
from opcost.meters.nvml_samples import SAMPLES_SOURCE, PowerSampler
from opcost.meters.opening import MIG_REASON
from opcost.power.meter_names import COUNTER, SAMPLES
from opcost.power.trace import Window

BEFORE_S = 3.0
"""Readings from so long before a window on: the last tick of the counter, and a second more."""

RESOLUTION_S = 2 * SAMPLES_SOURCE.averaging_time_s

COUNTER_RESOLUTION_S = 1.0
"""Of the counter alone: ten of its ticks."""

TICK_ERROR_S = 0.005 / math.sqrt(12)
"""A tick is known to one read, which takes up to 5 ms (``meters.nvml_counter``)."""


class GpuEnergy:
    """Implements ``EnergySource`` for one GPU, from ``open`` to ``close``."""

    def __init__(self, device: str, uuid: str) -> None:
        self.device = device
        self.uuid = uuid
        self.idle_power_w: float | None = None
        self._samples: PowerSampler | None = None
        self._counter: CounterSampler | None = None
        self._missing_reason: str | None = None
        self._stack = ExitStack()

    @classmethod
    def open(cls, device: str, uuid: str) -> GpuEnergy:
        """Open the meters of a GPU. Where it has none, its readings have the reason.

        Args:
            device: its name in results.
            uuid: as NVML knows it.
        """
        opened = cls(device, uuid)
        try:
            gpu = NvmlGpu.open(uuid)
        except NvmlError as error:
            opened._missing_reason = str(error)
            return opened
        opened._stack.callback(gpu.close)
        if gpu.is_mig():
            opened._missing_reason = MIG_REASON
        else:
            opened._enter(gpu)
        return opened

    def _enter(self, gpu: NvmlGpu) -> None:
        reasons = []
        try:
            self._samples = self._stack.enter_context(PowerSampler(gpu))
            with suppress(NvmlError):
                # A GPU at work may be steady, too.
                self.idle_power_w = self._samples.power_before_w if gpu.busy_ratio() == 0 else None
        except NvmlError as error:
            reasons.append(str(error))
        try:
            self._counter = self._stack.enter_context(CounterSampler(gpu))
            self._counter.seek()
        except NvmlError as error:
            reasons.append(str(error))
        if self._samples is None and self._counter is None:
            self._missing_reason = "; ".join(dict.fromkeys(reasons))

    def edge(self) -> None:
        """Do nothing: samples and ticks come by themselves."""

    def readings(self, window: Window) -> Readings:
        """Return the readings around a window that has ended; wait for the last sample, and for a tick after it."""
        if self._missing_reason is not None:
            return Readings(missing_reason=self._missing_reason)
        ticks = self._ticks(window)
        last_s = max(window.end_s, ticks[-1][0] if ticks else 0.0)
        samples, reason = self._pieces(Window(window.begin_s, last_s))
        has_samples = bool(len(samples.power_w))
        return Readings(
            samples=samples,
            ticks=ticks,
            sample_meter=SAMPLES,
            counter_meter=COUNTER,
            resolution_s=RESOLUTION_S if has_samples else COUNTER_RESOLUTION_S,
            tick_error_s=TICK_ERROR_S,
            missing_reason=None if has_samples or len(ticks) > 1 else reason,
        )

    def forget_before(self, epoch_s: float) -> None:
        """Drop readings that no window after a moment needs."""
        if self._samples is not None:
            self._samples.forget_before(epoch_s - BEFORE_S)
        if self._counter is not None:
            self._counter.ticks.forget_before(epoch_s - BEFORE_S)

    def close(self) -> None:
        self._stack.close()

    def _ticks(self, window: Window) -> list[tuple[float, float]]:
        """Return the ticks around a window, empty if the counter failed or shows an impossible power."""
        if self._counter is None:
            return []
        if self._counter.ticks.newest_s <= window.end_s:
            self._counter.seek()
        try:
            ticks = self._counter.ticks.since(window.begin_s - BEFORE_S)
        except NvmlError:
            return []
        after = [index for index, (epoch_s, _) in enumerate(ticks) if epoch_s >= window.end_s]
        ticks = ticks[: after[0] + 1] if after else ticks
        return ticks if _is_possible(ticks) else []

    def _pieces(self, window: Window) -> tuple[Pieces, str | None]:
        """Return the samples around a window, or none and why."""
        if self._samples is None:
            return NO_PIECES, "this GPU keeps no power samples"
        try:
            samples = self._samples.through(window.begin_s - BEFORE_S, window.end_s)
        except NvmlError as error:
            return NO_PIECES, str(error)
        epoch_s, power_w = np.array(samples, dtype=np.float64).reshape(-1, 2).T
        return pieces_of_samples(epoch_s, power_w, SAMPLES_SOURCE.averaging_time_s), None


def _is_possible(ticks: list[tuple[float, float]]) -> bool:
    epoch_s, energy_j = np.array(ticks, dtype=np.float64).reshape(-1, 2).T
    duration_s = np.diff(epoch_s)
    return bool(np.all(duration_s > TICK_S / 2)) and all(map(is_power, (np.diff(energy_j) / duration_s).tolist()))
