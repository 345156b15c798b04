"""The mean power of the host's packages and memory in a loop, by RAPL's energy counters."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from opcost.measuring.instruments import NOTHING, Finding, Observer
from opcost.measuring.sweep_record import HostPower
from opcost.meters.rapl import POWERCAP_FOLDER, RaplJumpError, RaplTotal, rapl_domains, rapl_unavailable_reason

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
        self._totals: dict[str, RaplTotal] = {}
        self._reason: str | None = "no loop was run"
        self._begin_s = self._end_s = 0.0

    def before_loop(self) -> None:
        """Begin a mean."""
        self._reason = rapl_unavailable_reason(self._root)
        domains = rapl_domains(self._root) if self._reason is None else ()
        names = (PACKAGE, DRAM) if domains else ()
        self._totals = {name: RaplTotal([one for one in domains if one.name.startswith(name)]) for name in names}
        self._begin_s = self._end_s = self._now()
        self._read()

    def during(self) -> None:
        """Add the energy of a part of the loop, at most once a second: reading costs 20 us."""
        if self._totals and self._now() - self._end_s >= 1.0:
            self._read()

    def after_finish(self) -> Finding:
        if self._totals:
            self._read()
        return NOTHING

    @property
    def power(self) -> HostPower:
        duration_s = self._end_s - self._begin_s
        if self._reason is not None or duration_s < SHORTEST_S:
            return HostPower(None, None, self._reason or "the loop was too short for the counters")
        package_w, dram_w = (self._power_w(name, duration_s) for name in (PACKAGE, DRAM))
        # Counters of some virtual machines stand still. No CPU draws 0 W.
        return HostPower(package_w, dram_w, None if package_w is not None else "the RAPL counters stand still")

    def _power_w(self, name: str, duration_s: float) -> float | None:
        energy_uj = self._totals[name].energy_uj
        return energy_uj * 1e-6 / duration_s if energy_uj else None

    def _read(self) -> None:
        try:
            for total in self._totals.values():
                total.read(self._now())
        except RaplJumpError as error:
            self._totals, self._reason = {}, str(error)
            return
        except (OSError, ValueError) as error:
            self._totals, self._reason = {}, f"a RAPL counter cannot be read: {error}"
            return
        self._end_s = self._now()
