"""The window of a loop whose layers are metered: an ``EnergyMeter`` of the model's device, or seconds alone."""

from __future__ import annotations

from contextlib import suppress

from opcost.errors import UserError
from opcost.metering.result import WindowResult
from opcost.meters.clock import SystemClock
from opcost.running.energy_meter import EnergyMeter
from opcost.running.energy_sources import NoEnergy, result_of, synchronise


class LayerWindow:
    """From its construction to ``close``.

    Args:
        device: the torch device whose energy is metered.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._result: WindowResult | None = None
        self._missing_reason: str | None = None
        self._meter = EnergyMeter([device])
        try:
            self._meter.start()
        except UserError as error:
            # Without a meter of the device, times are known all the same.
            self._missing_reason = str(error)
            synchronise([device])
        self._begin = SystemClock().read()

    def close(self, kind: type[BaseException] | None = None) -> None:
        """End the window; after an exception, too, of which a CUDA error may keep the GPU from being awaited."""
        errors = () if kind is None else (RuntimeError,)
        if self._missing_reason is None:
            with suppress(*errors):
                self._meter.stop()
            self._meter.close()
            self._result = self._meter.result
            return
        with suppress(*errors):
            synchronise([self._device])
        reason = NoEnergy(self._missing_reason)
        self._result = result_of([reason], "", self._begin, SystemClock().read())

    @property
    def result(self) -> WindowResult | None:
        """The cost of the window, None while it is open."""
        return self._result
