"""The power limit of an NVIDIA board by NVML: the only module that sets a limit of a real device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opcost.meters.nvml import NvmlError, NvmlGpu, NvmlPermissionError
from opcost.power.ports import LimitRange, NoRightError, PowerLimitError


class NvmlPowerLimit:
    """Implements ``PowerLimit`` for the board of a GPU."""

    def __init__(self, name: str, gpu: NvmlGpu) -> None:
        self.name = name
        self._gpu = gpu

    @classmethod
    def open(cls, uuid: str) -> NvmlPowerLimit:
        """Return the limit of the board with this UUID.

        Raises PowerLimitError: there is no NVML or no such GPU, or it is divided into MIG instances that share the
        limit.
        """
        with _translated():
            gpu = NvmlGpu.open(uuid)
        if gpu.is_mig():
            gpu.close()
            raise PowerLimitError("it is divided into MIG instances, which share one power limit")
        return cls(uuid, gpu)

    def range_w(self) -> LimitRange:
        """Return the limits that can be set."""
        with _translated():
            lowest_mw, highest_mw = self._gpu.ask("nvmlDeviceGetPowerManagementLimitConstraints")
            default_mw = self._gpu.ask("nvmlDeviceGetPowerManagementDefaultLimit")
        return LimitRange(lowest_mw * 1e-3, highest_mw * 1e-3, default_mw * 1e-3)

    def read_w(self) -> float:
        """Return the present limit in W."""
        with _translated():
            return float(self._gpu.ask("nvmlDeviceGetPowerManagementLimit")) * 1e-3

    def set_w(self, power_w: float) -> None:
        """Set the limit in W."""
        with _translated():
            self._gpu.ask("nvmlDeviceSetPowerManagementLimit", round(power_w * 1e3))

    def close(self) -> None:
        self._gpu.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except NvmlPermissionError as error:
        raise NoRightError(str(error)) from error
    except NvmlError as error:
        raise PowerLimitError(str(error)) from error
