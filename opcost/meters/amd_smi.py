"""AMD's GPUs by AMD SMI, the module ``amdsmi`` of ROCm. Untried on a card: tests play the library.

Energy counters of these cards have stood still, run backwards and counted in another unit (ROCm/amdsmi, issues 22, 38
and 115). One was read as that of another GPU by several threads, so one thread at a time asks the library. Meters
refuse a counter that stands still or runs backwards, and a qualification refuses two meters that differ.

Units are those of the Python API of AMD SMI 7: µJ, µW, MHz, MiB, °C, percent. A value that is missing is the text
``N/A``, or has all bits set.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opcost.meters.vendor import GpuVendor
from opcost.power.log_rows import HARDWARE_THERMAL_SLOWDOWN, SOFTWARE_POWER_CAP, PowerRow
from opcost.power.ports import DeviceFacts, GpuError, LimitRange, NoRightError, PowerSource, is_gpu_power

LIBRARY = "AMD SMI"

DRIVER = Path("/dev/kfd")
"""The device file of AMD's driver for computing."""

NO_PERMISSION = 10
"""AMDSMI_STATUS_NO_PERM."""

ALL_BITS = frozenset(2**bits - 1 for bits in (16, 32, 64))

POWERS = ("current_socket_power", "average_socket_power")
"""Of MI300 and later cards, and of earlier ones."""

POWER_RESIDENCY = ("ppt_residency_acc",)
THERMAL_RESIDENCIES = (
    "prochot_residency_acc",
    "socket_thm_residency_acc",
    "vr_thm_residency_acc",
    "hbm_thm_residency_acc",
)
"""Counters of the time at a limit, of MI300 and later cards. ``amdsmi_get_violation_status`` has them, too, but waits
for 0.1 s, in which no other thread could read the energy."""

POWER_BITS, THERMAL_BITS = 0x00FF00FF, 0xFFFF << 32
"""Of ``indep_throttle_status`` of earlier cards: package power and currents, and temperatures (``amdgpu_smu.h``)."""


class AmdSmiGpu:
    """Implements ``Gpu``."""

    library = LIBRARY
    # How long a power is averaged is not documented. It is taken to be a second, so that errors are overestimated.
    sample_source = PowerSource(f"{LIBRARY} power samples", rise_time_s=1.2, averaging_time_s=1.0)
    sample_interval_s = 0.02

    def __init__(self, vendor: AmdSmi, handle: Any) -> None:
        self._vendor, self._handle = vendor, handle
        self._residencies: dict[str, float] = {}
        self.name = str(self.ask("amdsmi_get_gpu_device_uuid"))

    def ask(self, function: str, *arguments: object) -> Any:
        return self._vendor.ask(function, self._handle, *arguments)

    def close(self) -> None:
        """Do nothing: shutting the library down would end it for all other GPUs of this process."""

    def facts(self) -> DeviceFacts:
        return DeviceFacts(
            uuid=self.name,
            product=str(self.ask("amdsmi_get_gpu_asic_info").get("market_name", "AMD GPU")),
            memory_bytes=round(_known(self.ask("amdsmi_get_gpu_vram_usage"), "vram_total") * 2**20),
            power_limit_w=round(self.limit_w(), 2),
            driver_version=self.answer("amdsmi_get_gpu_driver_info").get("driver_version"),
            no_energy_reason=self.no_energy_reason(),
        )

    def no_energy_reason(self) -> str | None:
        try:
            mode = str(self.ask("amdsmi_get_gpu_compute_partition"))
        except GpuError:
            return None
        whole = mode in ("SPX", "N/A", "")
        return None if whole else f"the card is partitioned ({mode}): the power of one partition cannot be measured"

    def power_samples(self, after_epoch_s: float) -> list[tuple[float, float]]:
        power_w = _known(self.ask("amdsmi_get_power_info"), *POWERS)
        if not is_gpu_power(power_w):
            raise GpuError(f"{LIBRARY}: an impossible power of {power_w:g} W")
        return [(time.time(), power_w)]

    def energy_j(self) -> float:
        count = self.ask("amdsmi_get_energy_count")
        resolution_uj = _known(count, "counter_resolution")
        if not resolution_uj > 0:
            raise GpuError(f"{LIBRARY}: an energy counter in steps of {resolution_uj:g} µJ")
        # Before ROCm 6.2 the counter was called power.
        return _known(count, "energy_accumulator", "power") * resolution_uj * 1e-6

    def state(self) -> PowerRow:
        metrics, memory = self.answer("amdsmi_get_gpu_metrics_info"), self.answer("amdsmi_get_gpu_vram_usage")
        busy_percent, used_mib = _number(metrics, "average_gfx_activity"), _number(memory, "vram_used")
        clock_mhz = _number(metrics, "current_gfxclk", "current_gfxclks")
        return PowerRow(
            time.time(),
            power_instant_w=_number(metrics, POWERS[0]),
            power_average_w=_number(metrics, POWERS[1]),
            utilisation_ratio=None if busy_percent is None or busy_percent > 100 else busy_percent / 100,
            sm_clock_hz=None if clock_mhz is None else clock_mhz * 1e6,
            temperature_c=_number(metrics, "temperature_hotspot"),
            memory_temperature_c=_number(metrics, "temperature_mem"),
            event_reasons=self._reasons(metrics),
            memory_used_bytes=None if used_mib is None else round(used_mib * 2**20),
        )

    def process_ids(self) -> set[int]:
        return {round(_known(process, "pid")) for process in self.ask("amdsmi_get_gpu_process_list")}

    def limit_range_w(self) -> LimitRange:
        lowest, highest, default = map(self._limit_w, ("min_power_cap", "max_power_cap", "default_power_cap"))
        return LimitRange(lowest, highest, default)

    def limit_w(self) -> float:
        return self._limit_w("power_cap")

    def set_limit_w(self, power_w: float) -> None:
        self.ask("amdsmi_set_power_cap", 0, round(power_w * 1e6))

    def limit_command(self, power_w: float) -> str:
        return f"amd-smi set --gpu {self.name} --power-cap {power_w:g}"

    def _limit_w(self, name: str) -> float:
        return _known(self.ask("amdsmi_get_power_cap_info"), name) * 1e-6

    def answer(self, function: str) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = self.ask(function)
        except GpuError:
            return {}
        return answer

    def _reasons(self, metrics: Mapping[str, Any]) -> int | None:
        """Return why the clocks are low: now, or since the last call by counters of time; None if that is unknown."""
        bits = _number(metrics, "indep_throttle_status")
        if bits is not None:
            is_capped, is_hot = bool(int(bits) & POWER_BITS), bool(int(bits) & THERMAL_BITS)
        else:
            names = (*POWER_RESIDENCY, *THERMAL_RESIDENCIES)
            now = {name: number for name in names if (number := _number(metrics, name)) is not None}
            before, self._residencies = self._residencies, now
            grown = {name for name, number in now.items() if number > before.get(name, number)}
            if not before or POWER_RESIDENCY[0] not in now:
                return None
            is_capped, is_hot = not grown.isdisjoint(POWER_RESIDENCY), not grown.isdisjoint(THERMAL_RESIDENCIES)
        return SOFTWARE_POWER_CAP * is_capped | HARDWARE_THERMAL_SLOWDOWN * is_hot


class AmdSmi(GpuVendor):
    """Implements ``GpuVendor``."""

    library = LIBRARY
    selections = (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._library: Any = None

    def ask(self, function: str, *arguments: object) -> Any:
        """Return an answer of the library. Raises GpuError: it is missing, or refuses to answer."""
        with self._asking:
            library = self._library = self._library or _begun()
            try:
                return getattr(library, function)(*arguments)
            except AttributeError as error:
                raise GpuError(f"{LIBRARY}: {error}") from error
            except library.AmdSmiException as error:
                is_refused = getattr(error, "err_code", None) == NO_PERMISSION
                raise (NoRightError if is_refused else GpuError)(f"{LIBRARY}: {_one_line(error)}") from error

    def uuids(self) -> list[str]:
        return [gpu.name for gpu in self._gpus()]

    def open(self, uuid_or_index: str) -> AmdSmiGpu:
        for index, gpu in enumerate(self._gpus()):
            if uuid_or_index in (gpu.name, str(index)):
                return gpu
        raise GpuError(f"{LIBRARY} knows no GPU {uuid_or_index}")

    def is_of(self, torch: Any) -> bool:
        return bool(getattr(torch.version, "hip", None))

    def uuid_of(self, properties: Any) -> str:
        """Return the UUID in AMD SMI by the place on the PCI bus, because torch's is that of HIP."""
        try:
            place = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
        except AttributeError as error:
            raise GpuError(f"{LIBRARY}: this version of torch does not say where a GPU is on the PCI bus") from error
        handle = self.ask("amdsmi_get_processor_handle_from_bdf", "{:04x}:{:02x}:{:02x}.0".format(*place))
        return AmdSmiGpu(self, handle).name

    def _gpus(self) -> list[AmdSmiGpu]:
        """Return all GPUs as HIP numbers them, if the library knows that."""
        gpus = [AmdSmiGpu(self, handle) for handle in self.ask("amdsmi_get_processor_handles")]
        return sorted(gpus, key=lambda gpu: _number(gpu.answer("amdsmi_get_gpu_enumeration_info"), "hip_id") or 0.0)


def _begun() -> Any:
    """Return the library, begun once in a process. Raises GpuError: it is missing, or finds no driver."""
    try:
        import amdsmi
    except ImportError as error:
        raise GpuError("amdsmi is not installed: ROCm brings it", hides_gpu=DRIVER.exists()) from error
    except Exception as error:
        text = f"the module amdsmi cannot be imported ({_one_line(error)})"
        raise GpuError(text, hides_gpu=DRIVER.exists()) from error
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiException as error:
        raise GpuError(f"{LIBRARY}: {_one_line(error)}", hides_gpu=DRIVER.exists()) from error
    return amdsmi


def _number(answer: Mapping[str, Any], *names: str) -> float | None:
    """Return the first known number of an answer; of a list, as the parts of a chip have, the mean."""
    for name in names:
        found = answer.get(name)
        parts = found if isinstance(found, list) else [found]
        values = [part for part in parts if isinstance(part, int | float) and part not in ALL_BITS]
        if values:
            return sum(values) / len(values)
    return None


def _known(answer: Mapping[str, Any], *names: str) -> float:
    """Return the first known number of an answer. Raises GpuError: there is none."""
    number = _number(answer, *names) if isinstance(answer, Mapping) else None
    if number is None:
        raise GpuError(f"{LIBRARY}: no {names[0]}")
    return number


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
