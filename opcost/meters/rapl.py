"""The meter of the CPU's energy counters (RAPL), read through Linux's powercap folder.

The counters of packages and their memory (dram) are summed. ``core`` and ``uncore`` are parts of a package, ``psys``
includes packages, and ``intel-rapl-mmio`` is a second interface to the same counter: adding any of these would count
energy twice.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from opcost.meters.log_meters import INTERVAL_S, PolledMeter
from opcost.power.log_rows import PowerRow
from opcost.power.ports import PowerSource
from opcost.power.trace import PowerTrace, no_trace

POWERCAP_FOLDER = Path("/sys/class/powercap")

PACKAGE, PACKAGE_AND_MEMORY = "rapl package", "rapl package+dram"
"""Names of the meters in rows."""

MOST_POWER_W = 2000.0
"""Several times the power of any package. A counter that goes faster has begun again, or one of two reads is wrong."""

UPDATE_SLACK_S = 0.01
"""Counters move in steps of a millisecond, on some machines of several: two reads may have such a step between them."""

_DOMAIN_FOLDER = re.compile(r"([a-z-]+)(?::\d+)+")
_READ_ERRORS = (OSError, ValueError)


class RaplJumpError(ValueError):
    """A counter has moved further than any CPU's, or back. The message is one line."""


@dataclass(frozen=True)
class RaplDomain:
    """An energy counter, which counts µJ up to ``range_uj`` and then wraps."""

    name: str
    counter: Path
    range_uj: int

    @property
    def is_package(self) -> bool:
        return self.name.startswith("package")

    @property
    def driver(self) -> str:
        """``intel-rapl`` for the folder ``intel-rapl:0:1``, also for CPUs of AMD."""
        return self.counter.parent.name.partition(":")[0]

    def read_uj(self) -> int:
        """Return the counter's value. Raises OSError: it cannot be read; ValueError: it is not a number."""
        return int(self.counter.read_text(encoding="ascii"))

    def read_or_none_uj(self) -> int | None:
        try:
            return self.read_uj()
        except _READ_ERRORS:
            return None

    def difference_uj(self, earlier_uj: int, later_uj: int, elapsed_s: float) -> int:
        """Return the energy between two readings, one wrap at most. Raises RaplJumpError: no CPU draws so much."""
        energy_uj = later_uj - earlier_uj + (self.range_uj if later_uj < earlier_uj else 0)
        if not 0 <= energy_uj * 1e-6 <= MOST_POWER_W * (elapsed_s + UPDATE_SLACK_S):
            moved = f"{earlier_uj * 1e-6:.8g} J to {later_uj * 1e-6:.8g} J in {elapsed_s:.2g} s"
            raise RaplJumpError(
                f"the RAPL counter of {self.name} jumped from {moved}: it began again, or a read is wrong"
            )
        return energy_uj


class RaplTotal:
    """The energy of some counters together since the first reading; no counter may wrap twice between two readings."""

    def __init__(self, domains: Sequence[RaplDomain]) -> None:
        self.energy_uj = 0
        self._domains = domains
        self._previous: tuple[list[int], float] | None = None

    def read(self, now_s: float) -> None:
        """Add the energy since the last reading, if it did not fail. Raises OSError, ValueError, RaplJumpError."""
        previous, self._previous = self._previous, None
        present_uj = [domain.read_uj() for domain in self._domains]
        self._previous = present_uj, now_s
        if previous is not None:
            pairs = zip(self._domains, previous[0], present_uj, strict=True)
            elapsed_s = now_s - previous[1]
            self.energy_uj += sum(domain.difference_uj(earlier, later, elapsed_s) for domain, earlier, later in pairs)


def rapl_domains(root: Path = POWERCAP_FOLDER) -> tuple[RaplDomain, ...]:
    """Return the counters of packages and their memory whose range is readable, of one driver."""
    domains = []
    for folder in sorted(root.glob("*:*")) if root.is_dir() else []:
        try:
            name = (folder / "name").read_text(encoding="ascii").strip()
            domain = RaplDomain(
                name, folder / "energy_uj", int((folder / "max_energy_range_uj").read_text(encoding="ascii"))
            )
        except _READ_ERRORS:
            continue
        if _DOMAIN_FOLDER.fullmatch(folder.name) and (domain.is_package or name == "dram"):
            domains.append(domain)
    drivers = [domain.driver for domain in domains if domain.is_package]
    driver = "intel-rapl" if "intel-rapl" in drivers else next(iter(drivers), "")
    return tuple(domain for domain in domains if domain.driver == driver)


def rapl_unavailable_reason(root: Path = POWERCAP_FOLDER) -> str | None:
    """Return the reason why the CPU's energy cannot be read, with a remedy if there is one; None if it can."""
    packages = [domain for domain in rapl_domains(root) if domain.is_package]
    if not packages:
        return f"no RAPL energy counter under {root}: this CPU, kernel or virtual machine has none"
    for domain in packages:
        try:
            domain.read_uj()
        except PermissionError:
            return (
                f"{domain.counter} is readable by root only (since CVE-2020-8694): "
                f"`sudo chmod a+r {root}/*/energy_uj` makes it readable until the next boot"
            )
        except _READ_ERRORS as error:
            return f"{domain.counter} cannot be read: {error}"
    return None


class RaplSampler:
    """Samples power from the counters: the energy since the last sample over the time since then."""

    def __init__(self, root: Path = POWERCAP_FOLDER) -> None:
        self.domains = tuple(domain for domain in rapl_domains(root) if domain.read_or_none_uj() is not None)
        self.missing_reason = "the RAPL counters stand still"
        self._total = RaplTotal(self.domains)
        self._previous_s = 0.0

    @property
    def source(self) -> PowerSource:
        """The properties of samples that are taken every ``INTERVAL_S``."""
        name = PACKAGE_AND_MEMORY if any(domain.name == "dram" for domain in self.domains) else PACKAGE
        return PowerSource(name, rise_time_s=INTERVAL_S, averaging_time_s=INTERVAL_S)

    def sample(self) -> PowerRow:
        """Return the mean power since the last sample; a first row, and one after a failed read or a jump, has none."""
        epoch_s, now_s = time.time(), time.perf_counter()
        elapsed_s, self._previous_s = now_s - self._previous_s, now_s
        before_uj = self._total.energy_uj
        try:
            self._total.read(now_s)
        except RaplJumpError as error:
            self.missing_reason = str(error)
        except _READ_ERRORS:
            pass
        energy_uj = self._total.energy_uj - before_uj
        # Counters of some virtual machines stand still. No CPU draws 0 W.
        return PowerRow(epoch_s, power_average_w=energy_uj * 1e-6 / elapsed_s if energy_uj > 0 else None)


class RaplMeter(PolledMeter):
    """Samples the CPU's power for one measurement."""

    def __init__(self, root: Path = POWERCAP_FOLDER, log_path: Path | None = None) -> None:
        super().__init__(log_path)
        self._root = root
        self._sampler: RaplSampler | None = None
        self._missing_reason: str | None = None

    def start(self) -> None:
        self._missing_reason = rapl_unavailable_reason(self._root)
        if self._missing_reason is None:
            self._sampler = RaplSampler(self._root)
            self._start(self._sampler.sample, "RAPL")

    def log(self) -> PowerTrace:
        if self._sampler is None:
            return no_trace(self._missing_reason or "the meter was not started")
        trace = self._trace(self._sampler.source, None)
        return replace(trace, missing_reason=self._sampler.missing_reason if np.isnan(trace.power_w).all() else None)

    def stop(self) -> PowerTrace:
        self._end()
        return self.log()


def sample_batches(
    interval_s: float | None, stopping: threading.Event, root: Path = POWERCAP_FOLDER
) -> Generator[tuple[PowerRow, ...], None, None]:
    """Sample the CPU's power until ``stopping`` is set; yield one row at a time."""
    sampler = RaplSampler(root)
    yield (sampler.sample(),)
    while not stopping.wait(min(interval_s or INTERVAL_S, threading.TIMEOUT_MAX)):
        yield (sampler.sample(),)
