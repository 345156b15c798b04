"""NVML: what the driver's library tells of one GPU, and the ring of power samples that it keeps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

Answer = TypeVar("Answer")

HISTORY_S = 2.0
"""How far back the ring of samples reaches at least: 119 samples of 20 ms on an H200 (``docs/log/meters.md``)."""

MOST_POWER_W = 10_000.0
"""Several times what any board draws. A driver that has no value may tell all bits of one instead, or 0."""


class NvmlError(Exception):
    """NVML is missing, or does not tell what was asked for; one line that says so."""


class NvmlGpu:
    """One GPU, from ``NvmlGpu.open`` to ``close``."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def open(cls, uuid: str) -> NvmlGpu:
        """Return the GPU of this UUID.

        Raises:
            NvmlError: there is no NVML, or it knows no such GPU.
        """
        try:
            import pynvml
        except ImportError as error:
            raise NvmlError("nvidia-ml-py is not installed") from error
        _asked(pynvml, pynvml.nvmlInit)
        try:
            return cls(pynvml, _asked(pynvml, lambda: pynvml.nvmlDeviceGetHandleByUUID(uuid)))
        except NvmlError:
            _leave(pynvml)
            raise

    def close(self) -> None:
        """Leave NVML."""
        _leave(self._library)

    def energy_j(self) -> float:
        """Return what the energy counter shows; it moves on once in 0.1 s on an H200.

        Raises:
            NvmlError: this GPU or driver has none.
        """
        counted_mj = _asked(self._library, lambda: self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        return float(counted_mj) * 1e-3

    def process_ids(self) -> list[int]:
        """Return the numbers of the processes that compute on it.

        Raises:
            NvmlError: it does not tell.
        """
        library = self._library
        return [
            process.pid
            for process in _asked(library, lambda: library.nvmlDeviceGetComputeRunningProcesses(self._handle))
        ]

    def busy_ratio(self) -> float:
        """Return for what share of the last moments a kernel was running.

        Raises:
            NvmlError: it does not tell.
        """
        rates = _asked(self._library, lambda: self._library.nvmlDeviceGetUtilizationRates(self._handle))
        if rates.gpu > 100:
            raise NvmlError(f"NVML: a GPU in use {rates.gpu} % of the time")
        return float(rates.gpu) / 100

    def power_samples(self, after_epoch_s: float) -> list[tuple[float, float]]:
        """Return the samples in the ring that are later than a moment: when each was taken (epoch, s), and W.

        Each comes once, in any order. Those of a power that no GPU draws are left out.

        Raises:
            NvmlError: this GPU or driver keeps none, or none of a power that a GPU draws.
        """
        nvml = self._library
        after_us = max(round(after_epoch_s * 1e6), 0)
        try:
            kind, samples = nvml.nvmlDeviceGetSamples(self._handle, nvml.NVML_TOTAL_POWER_SAMPLES, after_us)
        except nvml.NVMLError_NotFound:
            return []
        except nvml.NVMLError as error:
            raise NvmlError(f"NVML: {error}") from error
        if kind != nvml.NVML_VALUE_TYPE_UNSIGNED_INT:
            raise NvmlError(f"NVML: power samples of an unknown type ({kind})")
        powers_w = {s.timeStamp * 1e-6: s.sampleValue.uiVal * 1e-3 for s in samples if s.timeStamp > after_us}
        known = [(epoch_s, power_w) for epoch_s, power_w in powers_w.items() if is_power(power_w)]
        if powers_w and not known:
            raise NvmlError(f"NVML: power samples of {max(powers_w.values()):g} W, which no GPU draws")
        return known


def is_power(power_w: float) -> bool:
    """Return whether a GPU that is on can draw this."""
    return 0 < power_w < MOST_POWER_W


def _asked(library: Any, question: Callable[[], Answer]) -> Answer:
    # By another error, which not every pynvml has, it tells that a function is newer than NVML.
    mismatch = getattr(library, "NVMLLibraryMismatchError", library.NVMLError)
    try:
        return question()
    except (library.NVMLError, mismatch) as error:
        raise NvmlError(f"NVML: {error}") from error


def _leave(library: Any) -> None:
    # What it refuses then, as after the loss of a GPU, ends with this process: nothing that was measured is lost.
    with suppress(library.NVMLError):
        library.nvmlShutdown()
