"""The energy of the CPU packages, or of their memory, in any window: RAPL's counters, read at both ends of it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from opcost.metering.readings import Readings
from opcost.meters.nvml_rows import TimedRows
from opcost.meters.rapl import (
    POWERCAP_FOLDER,
    RaplDomain,
    RaplJumpError,
    RaplTotal,
    rapl_domains,
    rapl_unavailable_reason,
)
from opcost.power.trace import Window

CPU, MEMORY = "cpu", "dram"

UPDATE_S = 0.001
"""Time from one value of a counter to the next."""

RESOLUTION_S = 10 * UPDATE_S

INTERVAL_S = 1.0
"""Time between two reads in the background, so that no wrap is missed: a counter of 262 kJ wraps every 5 minutes at
870 W. The shorter it is, the fewer counters that begin again look like one that wraps."""

BEFORE_S = 2 * INTERVAL_S


class RaplEnergy:
    """Implements ``EnergySource`` for the packages or the memory of all CPUs."""

    uuid = None
    idle_power_w = None

    def __init__(self, device: str, domains: Sequence[RaplDomain]) -> None:
        self.device = device
        self._ticks = TimedRows()
        self._total = RaplTotal(domains)
        self._failure: str | None = None
        self._jumps: list[tuple[Window, str]] = []
        self._reading = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"RAPL {device}", daemon=True)
        self.edge()
        self._thread.start()

    def edge(self) -> None:
        """Read the counters now."""
        with self._reading:
            epoch_s = time.time()
            try:
                self._total.read(time.monotonic())
            except RaplJumpError as error:
                self._jumps.append((Window(self._ticks.newest_s, epoch_s), str(error)))
            except (OSError, ValueError) as error:
                self._failure = f"RAPL cannot be read: {error}"
                return
            if epoch_s > self._ticks.newest_s:
                self._ticks.extend([(epoch_s, self._total.energy_uj * 1e-6)])

    def readings(self, window: Window) -> Readings:
        """Return the counter's values around a window."""
        self.edge()
        inside = (reason for jump, reason in self._jumps if jump.begin_s < window.end_s and jump.end_s > window.begin_s)
        return Readings(
            ticks=self._ticks.since(window.begin_s - BEFORE_S),
            counter_meter=f"rapl {'package' if self.device == CPU else self.device}",
            resolution_s=RESOLUTION_S,
            tick_error_s=UPDATE_S / math.sqrt(12),
            missing_reason=self._failure or next(inside, None),
        )

    def forget_before(self, epoch_s: float) -> None:
        """Drop values that no window after a moment needs."""
        self._ticks.forget_before(epoch_s - BEFORE_S)
        self._jumps = [(jump, reason) for jump, reason in self._jumps if jump.end_s > epoch_s]

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            self.edge()


def open_rapl(root: Path = POWERCAP_FOLDER) -> tuple[list[RaplEnergy], str | None]:
    """Return the packages and their memory as devices, and why there are none."""
    reason = rapl_unavailable_reason(root)
    if reason is not None:
        return [], reason
    domains = rapl_domains(root)
    packages = [domain for domain in domains if domain.name.startswith("package")]
    memory = [domain for domain in domains if domain.name == "dram" and _is_readable(domain)]
    return [RaplEnergy(name, part) for name, part in ((CPU, packages), (MEMORY, memory)) if part], None


def _is_readable(domain: RaplDomain) -> bool:
    try:
        domain.read_uj()
    except (OSError, ValueError):
        return False
    return True
