"""Plays the module ``amdsmi``: the calls that opcost makes, with answers in the forms that its documentation shows.

Answers of ``MI300X`` and ``MI200`` differ as those of these cards do: current or average power, the name of the energy
counter, accumulated times at a limit or bits. A card's counter has one of the faults that users have reported.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

POWER_W = 600.0
RESOLUTION_UJ = 15.259
BEGIN_S = time.time()


class AmdSmiException(Exception):  # noqa: N818 (the module's name)
    def __init__(self, err_code: int) -> None:
        super().__init__(f"An error occurred with code: {err_code}")
        self.err_code = err_code


def ticks(now_s: float, power_w: float = POWER_W) -> int:
    """Return the counter of a steady load."""
    return 10**9 + int((now_s - BEGIN_S + 1000) * power_w * 1e6 / RESOLUTION_UJ)


COUNTERS: dict[str, Callable[[float], Any]] = {
    "sound": ticks,
    "still": lambda _: 8152136,
    "backwards": lambda now_s: 10**12 - ticks(now_s),
    "of another card now and then": lambda now_s: ticks(now_s) - 10**9 * (int(now_s * 3) % 2),
    "wraps": lambda now_s: ticks(now_s) % 2**26,
    "in another unit": lambda now_s: ticks(now_s, POWER_W / RESOLUTION_UJ),
    "no number": lambda _: "N/A",
    "all bits": lambda _: 2**64 - 1,
}


@dataclass
class Card:
    """A card with a steady load; ``answers`` replace those of a function, an exception is raised."""

    uuid: str
    bdf: str
    counter: str = "sound"
    hip_id: int | str = "N/A"
    is_mi300: bool = True
    limit_uw: int = 750_000_000
    residency: int = 100
    process_ids: list[int] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)


class FakeAmdSmi:
    """The module. Its functions take a card as a handle."""

    AmdSmiException = AmdSmiException

    def __init__(self, cards: list[Card]) -> None:
        self.cards, self.begun = cards, 0

    def amdsmi_init(self) -> None:
        self.begun += 1

    def amdsmi_get_processor_handles(self) -> list[Card]:
        return self.cards

    def amdsmi_get_processor_handle_from_bdf(self, bdf: str) -> Card:
        for card in self.cards:
            if card.bdf == bdf:
                return card
        raise AmdSmiException(31)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("amdsmi_") or f"_{name}" not in type(self).__dict__:
            raise AttributeError(f"module 'amdsmi' has no attribute '{name}'")

        def asked(card: Card, *arguments: Any) -> Any:
            answer = card.answers.get(name)
            if isinstance(answer, Exception):
                raise answer
            return getattr(self, f"_{name}")(card, *arguments) if answer is None else answer

        return asked

    def _amdsmi_get_gpu_device_uuid(self, card: Card) -> str:
        return card.uuid

    def _amdsmi_get_gpu_asic_info(self, card: Card) -> dict[str, Any]:
        name = "AMD Instinct MI300X" if card.is_mi300 else "AMD INSTINCT MI250X (MCM) OAM AC MBA"
        return {"market_name": name, "vendor_id": "0x1002", "num_compute_units": 304}

    def _amdsmi_get_gpu_vram_usage(self, card: Card) -> dict[str, int]:
        return {"vram_total": 196592, "vram_used": 283}

    def _amdsmi_get_gpu_driver_info(self, card: Card) -> dict[str, str]:
        return {"driver_name": "amdgpu", "driver_version": "6.12.12", "driver_date": "N/A"}

    def _amdsmi_get_gpu_compute_partition(self, card: Card) -> str:
        return "SPX" if card.is_mi300 else "N/A"

    def _amdsmi_get_gpu_enumeration_info(self, card: Card) -> dict[str, Any]:
        return {"hip_id": card.hip_id, "hip_uuid": "N/A"}

    def _amdsmi_get_power_info(self, card: Card) -> dict[str, Any]:
        powers = (round(POWER_W), "N/A") if card.is_mi300 else ("N/A", round(POWER_W))
        return dict(zip(("current_socket_power", "average_socket_power"), powers, strict=True)) | {"gfx_voltage": "N/A"}

    def _amdsmi_get_energy_count(self, card: Card) -> dict[str, Any]:
        name = "energy_accumulator" if card.is_mi300 else "power"
        now_s = time.time()
        return {name: COUNTERS[card.counter](now_s), "counter_resolution": RESOLUTION_UJ, "timestamp": int(now_s * 1e9)}

    def _amdsmi_get_gpu_metrics_info(self, card: Card) -> dict[str, Any]:
        common = {
            "temperature_hotspot": 61,
            "temperature_mem": 45,
            "average_gfx_activity": 100,
            "temperature_edge": "N/A",
        }
        if not card.is_mi300:
            bits = {"indep_throttle_status": 0x1, "current_socket_power": "N/A", "average_socket_power": 600}
            return {**common, **bits, "current_gfxclk": 1700, "current_gfxclks": ["N/A"] * 8}
        residencies = {"ppt_residency_acc": card.residency, "socket_thm_residency_acc": 5, "prochot_residency_acc": 0}
        clocks = {"current_gfxclk": 65535, "current_gfxclks": [2100, 2100, 2000, 2000, "N/A", 65535]}
        powers = {"current_socket_power": 600, "average_socket_power": "N/A", "indep_throttle_status": "N/A"}
        return {**common, **residencies, **clocks, **powers}

    def _amdsmi_get_gpu_process_list(self, card: Card) -> list[dict[str, Any]]:
        return [{"name": "N/A", "pid": process_id, "mem": 4096} for process_id in card.process_ids]

    def _amdsmi_get_power_cap_info(self, card: Card) -> dict[str, int]:
        limits = {"min_power_cap": 0, "max_power_cap": 750_000_000, "default_power_cap": 750_000_000}
        return {"power_cap": card.limit_uw, "dpm_cap": 0, **limits}

    def _amdsmi_set_power_cap(self, card: Card, sensor: int, limit_uw: int) -> None:
        assert sensor == 0
        card.limit_uw = limit_uw
