"""A workload that is built once and measured several times: the repetitions of a block share one build."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from opcost.measuring.builds import settled
from opcost.measuring.conditions import EAGER
from opcost.measuring.instruments import NOTHING, Finding, Observer
from opcost.measuring.protocol import MeasurementProtocol, iterations_after
from opcost.measuring.record import leaves_clocks_low
from opcost.measuring.setting import Setting
from opcost.measuring.sweep_record import HostPower, KernelUse, MemoryUse, Repetition
from opcost.measuring.workload import Workload
from opcost.meters.rapl import POWERCAP_FOLDER, RaplJumpError, RaplTotal, rapl_domains, rapl_unavailable_reason
from opcost.operators.cases import Case
from opcost.running.apparatus import Apparatus, numbered
from opcost.torch_backend.probes import Mark, MemoryWatch, profiled, single_iteration_times_s

PROFILED_RUNS = 2
"""Runs before the profiled one: the first loads libraries and chooses algorithms."""

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
        # Counters of some virtual machines stand still. No CPU draws 0 W.
        package_w, dram_w = (self._totals[name].energy_uj * 1e-6 / duration_s or None for name in (PACKAGE, DRAM))
        return HostPower(package_w, dram_w, None if package_w is not None else "the RAPL counters stand still")

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


@dataclass(frozen=True)
class Held:
    """A workload in a setting, and its memory, which is read once: after its first loop."""

    workload: Workload
    setting: Setting
    memory: MemoryWatch
    memory_use: MemoryUse | None = None
    leaves_clocks_low: bool = False


class HeldWorkload:
    """Builds a model, repeats its measurement and releases it, in the process that measures; observes the host, too."""

    def __init__(self, apparatus: Apparatus, host: HostPowerWatch | None = None) -> None:
        self._host = host or HostPowerWatch()
        self.apparatus = replace(apparatus, observers=(*apparatus.observers, self._host))
        self._stack = ExitStack()
        self._held: Held | None = None

    def hold(self, case: Case, setting: Setting) -> None:
        self.release()
        memory = MemoryWatch(self.apparatus.device)
        memory.begin()
        for observer in self.apparatus.observers:
            observer.before_build()
        self._held = Held(self._stack.enter_context(self.apparatus.workload(case, setting)), setting, memory)
        self.apparatus.rest.end()

    def repeat(self, protocol: MeasurementProtocol, log_name: str) -> Repetition:
        """Measure the model that is held, then time single iterations.

        Raises CannotMeasureError: it cannot be measured here.
        """
        held = self._held
        if held is None:
            raise RuntimeError("no workload is held")
        measure_build = partial(self.apparatus.measure_build, held.workload, held.setting, numbered(log_name))
        measurement = settled(measure_build, protocol)
        host = self._host.power
        # Before single iterations, which may be captured in a graph of their own.
        memory_use = held.memory_use or held.memory.use
        number = iterations_after(measurement.loop_time_s, measurement.time_s)
        with self.apparatus.background_paused():
            times_s = single_iteration_times_s(held.workload, self.apparatus.device, number)
        self._held = replace(held, memory_use=memory_use, leaves_clocks_low=leaves_clocks_low(measurement))
        return Repetition(measurement, tuple(times_s), host, memory_use)

    def release(self) -> None:
        """Release the model that is held, if there is one; rest after it if it was throttled."""
        held, self._held = self._held, None
        self._stack.close()
        if held is not None and held.leaves_clocks_low:
            self.apparatus.rest.begin()

    def kernels(self, case: Case, setting: Setting) -> tuple[KernelUse, ...]:
        """Return the kernels of one eager run of a model, in descending order of their time; none on a CPU.

        A model that is held is released before: both may not fit.

        Raises CannotMeasureError: it cannot be built here.
        """
        self.release()
        if not self.apparatus.is_gpu:
            return ()
        # While it is built and profiled, the background load pauses.
        with self.apparatus.workload(case, replace(setting, execution=EAGER)) as workload:

            def run(_: Mark) -> None:
                workload.run(1)

            workload.run(PROFILED_RUNS)
            workload.finish()
            # The profiler reported kernels of a process's first model under other operators (``docs/log/cache.md``).
            profiled(lambda _: None)
            times_s: defaultdict[str, list[float]] = defaultdict(list)
            for kernel in profiled(run):
                times_s[kernel.name].append(kernel.time_s)
        uses = (KernelUse(name, len(all_s), sum(all_s)) for name, all_s in times_s.items())
        return tuple(sorted(uses, key=lambda use: -use.time_s))
