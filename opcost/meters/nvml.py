"""NVIDIA's GPUs: NVML, with its buffer of power samples; nvidia-smi as a log beside it, or alone without NVML."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from opcost.meters import nvidia_smi
from opcost.meters.nvidia_smi import MIG_REASON, LogFollower, NvidiaSmiLogger
from opcost.meters.vendor import GpuVendor
from opcost.power.log_rows import PowerRow
from opcost.power.ports import DeviceFacts, GpuError, LimitRange, Meter, NoRightError, PowerSource, is_gpu_power

Answer = TypeVar("Answer")

SAMPLES, COUNTER = "NVML power samples", "NVML energy counter"
"""Names of the meters in rows."""

SAMPLES_SOURCE = PowerSource(
    SAMPLES, rise_time_s=0.15, averaging_time_s=0.02, update_period_s=0.02, repeats_values=False
)
"""Update and averaging time were measured on an H200 (``docs/log/meters.md``). After a step of the load, samples rise
within 60 ms and overshoot for about 100 ms."""

HISTORY_S = 2.0
"""The shortest time that the buffer of samples covers: 119 samples of 20 ms on an H200 (``docs/log/meters.md``)."""

NEEDED = (
    "NVMLError",
    "NVMLError_NotFound",
    "nvmlInit",
    "nvmlShutdown",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetSamples",
    "nvmlSystemGetDriverVersion",
)
"""Names that each nvidia-ml-py has. Other packages are named pynvml, too."""

REINSTALL = "`pip install --force-reinstall nvidia-ml-py` brings it, once that package is uninstalled"


class NvmlGpu:
    """Implements ``Gpu``."""

    library = "NVML"
    sample_source = SAMPLES_SOURCE
    sample_interval_s = HISTORY_S / 2

    def __init__(self, library: Any, handle: Any, name: str = "") -> None:
        self.name = name
        self._library = library
        self._handle = handle

    def close(self) -> None:
        _leave(self._library)

    def ask(self, function: str, *arguments: int) -> Any:
        return _asked(self._library, lambda: getattr(self._library, function)(self._handle, *arguments))

    def facts(self) -> DeviceFacts:
        return DeviceFacts(
            uuid=self.ask("nvmlDeviceGetUUID"),
            product=self.ask("nvmlDeviceGetName"),
            memory_bytes=self.ask("nvmlDeviceGetMemoryInfo").total // 2**20 * 2**20,
            power_limit_w=round(self.limit_w(), 2),
            driver_version=str(_asked(self._library, self._library.nvmlSystemGetDriverVersion)),
            no_energy_reason=self.no_energy_reason(),
        )

    def no_energy_reason(self) -> str | None:
        with suppress(GpuError):
            return MIG_REASON if self.ask("nvmlDeviceGetMigMode")[0] else None
        return None

    def energy_j(self) -> float:
        return float(self.ask("nvmlDeviceGetTotalEnergyConsumption")) * 1e-3

    def state(self) -> PowerRow:
        nvml = self._library

        def known(question: Callable[[], float]) -> float | None:
            with suppress(GpuError):
                # A library may lack the name of a constant, too.
                return _asked(nvml, question)
            return None

        busy_percent = known(lambda: self.ask("nvmlDeviceGetUtilizationRates").gpu)
        clock_mhz = known(lambda: self.ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM))
        reasons = known(lambda: self.ask("nvmlDeviceGetCurrentClocksEventReasons"))
        used_bytes = known(lambda: self.ask("nvmlDeviceGetMemoryInfo").used)
        return PowerRow(
            time.time(),
            utilisation_ratio=busy_percent / 100 if busy_percent is not None and busy_percent <= 100 else None,
            sm_clock_hz=None if clock_mhz is None else clock_mhz * 1e6,
            temperature_c=known(lambda: self.ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)),
            event_reasons=None if reasons is None else int(reasons),
            memory_used_bytes=None if used_bytes is None else int(used_bytes),
        )

    def power_samples(self, after_epoch_s: float) -> list[tuple[float, float]]:
        nvml = self._library
        after_us = max(round(after_epoch_s * 1e6), 0)
        try:
            kind, samples = nvml.nvmlDeviceGetSamples(self._handle, nvml.NVML_TOTAL_POWER_SAMPLES, after_us)
        except nvml.NVMLError_NotFound:
            return []
        except nvml.NVMLError as error:
            raise GpuError(f"NVML: {error}") from error
        if kind != nvml.NVML_VALUE_TYPE_UNSIGNED_INT:
            raise GpuError(f"NVML: power samples of an unknown type ({kind})")
        powers_w = {s.timeStamp * 1e-6: s.sampleValue.uiVal * 1e-3 for s in samples if s.timeStamp > after_us}
        known = [(epoch_s, power_w) for epoch_s, power_w in powers_w.items() if is_gpu_power(power_w)]
        if powers_w and not known:
            raise GpuError(f"NVML: impossible power samples of {max(powers_w.values()):g} W")
        return known

    def process_ids(self) -> set[int]:
        return {process.pid for process in self.ask("nvmlDeviceGetComputeRunningProcesses")}

    def limit_range_w(self) -> LimitRange:
        lowest_mw, highest_mw = self.ask("nvmlDeviceGetPowerManagementLimitConstraints")
        default_mw = self.ask("nvmlDeviceGetPowerManagementDefaultLimit")
        return LimitRange(lowest_mw * 1e-3, highest_mw * 1e-3, default_mw * 1e-3)

    def limit_w(self) -> float:
        return float(self.ask("nvmlDeviceGetPowerManagementLimit")) * 1e-3

    def set_limit_w(self, power_w: float) -> None:
        self.ask("nvmlDeviceSetPowerManagementLimit", round(power_w * 1e3))

    def limit_command(self, power_w: float) -> str:
        return f"nvidia-smi -i {self.name} -pl {power_w:g}"


class Nvidia(GpuVendor):
    """Implements ``GpuVendor``."""

    library, log_program = "NVML", "nvidia-smi"

    def uuids(self) -> list[str]:
        uuids, failures = [], {}
        library = _entered()
        try:
            for index in range(_asked(library, library.nvmlDeviceGetCount)):
                try:
                    gpu = NvmlGpu(library, _asked(library, partial(library.nvmlDeviceGetHandleByIndex, index)))
                    uuids.append(str(gpu.ask("nvmlDeviceGetUUID")))
                except GpuError as error:
                    failures[index] = error
        finally:
            _leave(library)
        if failures and not uuids:
            raise next(iter(failures.values()))
        for index, failure in failures.items():
            logging.getLogger(__name__).warning("GPU %d is left out: %s", index, failure)
        return uuids

    def open(self, uuid_or_index: str) -> NvmlGpu:
        library = _entered()
        try:
            if uuid_or_index.isdecimal():
                handle = _asked(library, lambda: library.nvmlDeviceGetHandleByIndex(int(uuid_or_index)))
            else:
                handle = _asked(library, lambda: library.nvmlDeviceGetHandleByUUID(uuid_or_index))
            return NvmlGpu(library, handle, uuid_or_index)
        except GpuError:
            _leave(library)
            raise

    def is_of(self, torch: Any) -> bool:
        return not getattr(torch.version, "hip", None)

    def uuid_of(self, properties: Any) -> str:
        return f"GPU-{properties.uuid}"

    def facts(self, uuid_or_index: str) -> DeviceFacts:
        """Return the properties of a GPU (an index is in the order of the PCI bus): by NVML, else by nvidia-smi.

        Both give the same figures, which are parts of the keys of rows: memory in whole MiB, and the power limit that
        was set. Raises GpuError: there is no NVML, and nvidia-smi is missing too, hangs, or knows no such GPU.
        """
        try:
            return super().facts(uuid_or_index)
        except GpuError:
            # Such as a board without a limit: nvidia-smi prints what there is.
            return nvidia_smi.gpu_facts(uuid_or_index)

    def uuid_named(self, uuid_or_index: str) -> str:
        # nvidia-smi has a deadline, so that a driver that hangs is named.
        return str(nvidia_smi.gpu_facts(uuid_or_index).uuid)

    def check_visible(self, environment: Mapping[str, str]) -> None:
        # CUDA shows no further device behind an instance, and NVML does not know the UUID that torch has of it.
        if environment.get("CUDA_VISIBLE_DEVICES", "").strip().startswith("MIG-"):
            raise GpuError(f"CUDA_VISIBLE_DEVICES names a MIG instance: {MIG_REASON}", hides_gpu=True)

    @contextmanager
    def log(self, uuid_or_index: str, folder: Path, interval_s: float | None = None) -> Iterator[NvidiaSmiLog]:
        log = NvidiaSmiLog(uuid_or_index, folder, interval_s or nvidia_smi.INTERVAL_S)
        with log:
            yield log


class NvidiaSmiLog(NvidiaSmiLogger):
    """Implements ``GpuLog``."""

    batch_interval_s = 0.2

    @cached_property
    def _rows(self) -> LogFollower:
        return self.follow(from_begin=True)

    def read(self) -> tuple[PowerRow, ...]:
        return tuple(row.values for row in self._rows.read())

    def finish(self) -> tuple[PowerRow, ...]:
        return tuple(row.values for row in self._rows.read_until(time.time(), nvidia_smi.LAST_ROW_DEADLINE_S))

    def failure(self) -> str | None:
        return None if self.is_running() else f"nvidia-smi has ended; its last line: {self.last_line()}"

    def sources(self) -> tuple[str, ...]:
        from opcost.meters.log_meters import power_trace

        trace = power_trace([row.values for row in self.follow(from_begin=True).read()], None)
        return tuple(logged.source.name for logged in (trace, *trace.checks) if logged.missing_reason is None)

    def meter(self, log_name: str) -> Meter:
        from opcost.meters.log_meters import NvidiaSmiMeter

        return NvidiaSmiMeter(self, log_name)


def _entered() -> Any:
    """Return the library, entered once more. Raises GpuError: there is no NVML, or another package has its name."""
    try:
        import pynvml
    except ImportError as error:
        raise GpuError("nvidia-ml-py is not installed") from error
    except Exception as error:
        text = f"the module pynvml cannot be imported ({type(error).__name__}); {REINSTALL}"
        raise GpuError(text, hides_gpu=True) from error
    missing = [name for name in NEEDED if not hasattr(pynvml, name)]
    if missing:
        place = getattr(pynvml, "__file__", "of no file")
        text = f"the module pynvml ({place}) has no {missing[0]}: it is not NVIDIA's; {REINSTALL}"
        raise GpuError(text, hides_gpu=True)
    _asked(pynvml, pynvml.nvmlInit)
    return pynvml


def _asked(library: Any, question: Callable[[], Answer]) -> Answer:
    # This error of newer versions of pynvml means that a function is newer than the installed NVML.
    mismatch = getattr(library, "NVMLLibraryMismatchError", library.NVMLError)
    try:
        return question()
    except AttributeError as error:
        raise GpuError(f"NVML: {error}") from error
    except (library.NVMLError, mismatch) as error:
        # pynvml makes the classes of its errors as it is imported; a stand-in for it may have none of this one.
        is_refused = isinstance(error, getattr(library, "NVMLError_NoPermission", ()))
        raise (NoRightError if is_refused else GpuError)(f"NVML: {error}") from error


def _leave(library: Any) -> None:
    # A failure here, as after the loss of a GPU, affects no measurement.
    with suppress(library.NVMLError):
        library.nvmlShutdown()
