"""The mean power of the host's packages and memory in a loop, by RAPL's energy counters."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from opcost.measuring.observers import NOTHING, Finding, Observer
from opcost.measuring.sweep_record import HostPower
from opcost.meters.rapl import POWERCAP_FOLDER, RaplDomain, rapl_domains, rapl_unavailable_reason

PACKAGE, DRAM = "package", "dram"

SHORTEST_S = 0.02
"""The shortest time over which a mean is taken: counters are updated every millisecond."""


class HostPowerWatch(Observer):
    """Reads the counters when a loop begins and ends.

    Counters wrap after a minute or more at full power (``max_energy_range_uj``), so the mean of a longer loop is that
    of its parts: readings during the loop are added up.
    """

    def __init__(self, root: Path = POWERCAP_FOLDER, now: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._now = now
        self._domains: tuple[RaplDomain, ...] = ()
        self._reason: str | None = "no loop was run"
        self._counts_uj: dict[RaplDomain, int] = {}
        self._energy_uj: dict[RaplDomain, int] = {}
        self._begin_s = self._end_s = 0.0

    def before_loop(self) -> None:
        """Begin a mean."""
        self._reason = rapl_unavailable_reason(self._root)
        self._domains = rapl_domains(self._root) if self._reason is None else ()
        self._counts_uj, self._energy_uj = {}, dict.fromkeys(self._domains, 0)
        self._begin_s = self._end_s = self._now()
        self._read()

    def during(self) -> None:
        """Add the energy of a part of the loop, at most once a second: reading costs 20 us."""
        if self._domains and self._now() - self._end_s >= 1.0:
            self._read()

    def after_finish(self) -> Finding:
        """End the mean."""
        if self._domains:
            self._read()
        return NOTHING

    @property
    def power(self) -> HostPower:
        """The mean power of the last loop."""
        duration_s = self._end_s - self._begin_s
        if self._reason is not None or duration_s < SHORTEST_S:
            return HostPower(None, None, self._reason or "the loop was too short for the counters")
        package_w, dram_w = (self._power_w(name, duration_s) for name in (PACKAGE, DRAM))
        # Counters of some virtual machines stand still. No CPU draws 0 W.
        return HostPower(package_w, dram_w, None if package_w is not None else "the RAPL counters stand still")

    def _power_w(self, name: str, duration_s: float) -> float | None:
        energy_uj = sum(energy for domain, energy in self._energy_uj.items() if domain.name.startswith(name))
        return energy_uj * 1e-6 / duration_s if energy_uj else None

    def _read(self) -> None:
        try:
            counts_uj = {domain: domain.read_uj() for domain in self._domains}
        except (OSError, ValueError) as error:
            self._domains, self._reason = (), f"a RAPL counter cannot be read: {error}"
            return
        self._end_s = self._now()
        for domain, count_uj in counts_uj.items():
            if domain in self._counts_uj:
                self._energy_uj[domain] += domain.difference_uj(self._counts_uj[domain], count_uj)
        self._counts_uj = counts_uj
