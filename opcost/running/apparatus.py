"""A device with all that a measurement on it needs, and a workload on it that is held for several measurements."""

from __future__ import annotations

import itertools
import logging
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.conditions import (
    EAGER,
    GRAPH,
    Circumstances,
    Conditions,
    device_type_of,
    is_gpu,
    may_attend,
    usual_execution,
)
from opcost.measuring.instruments import NOTHING, Finding, Instruments, Observer, ProcessWatch, WaitingPower
from opcost.measuring.known_device import GPU_REPEATABILITY, KnownDevice, Repeatability
from opcost.measuring.procedure import measure, measure_beside, median_of_builds, settled, undisturbed
from opcost.measuring.protocol import STATE_RELATIVE_ERROR, MeasurementProtocol, iterations_after
from opcost.measuring.record import MeasuredCases, Measurement, leaves_clocks_low
from opcost.measuring.setting import Setting
from opcost.measuring.sweep_record import HostPower, KernelUse, MemoryUse, Repetition
from opcost.measuring.workload import Calls, Workload
from opcost.metering.window_energy import result_of
from opcost.meters.energy import CPU, MEMORY, RaplEnergy, open_rapl
from opcost.meters.gpus import OtherProcesses, open_gpu
from opcost.meters.host import OtherLoad, SystemClock, cpu_product
from opcost.meters.opening import Meters, no_energy_reason, no_meters, open_meters
from opcost.meters.rapl import POWERCAP_FOLDER
from opcost.operators.attention import ANY_BACKEND
from opcost.operators.counts import Case
from opcost.operators.reuse import parse_state
from opcost.operators.training import PARTS
from opcost.operators.tuples import OperatorTuple, Phase
from opcost.power.ports import AUTO, Clock, DeviceFacts, GpuError
from opcost.running.device_lock import device_lock
from opcost.running.devices import choose_device, facts_of
from opcost.sources.models import resolve
from opcost.sources.python_file import register_operations
from opcost.storage.database import Database
from opcost.torch_backend.alone import load_libraries, quick_difference
from opcost.torch_backend.capture import repeatable
from opcost.torch_backend.passes import in_phase, running_calls
from opcost.torch_backend.probes import Mark, MemoryWatch, profiled, single_iteration_times_s, with_memory_peak
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.switches import autocast, check_overrides, switched, torch_state
from opcost.torch_backend.training_step import calls_of
from opcost.torch_backend.workload import (
    BackgroundLoad,
    EagerWorkload,
    additions,
    as_graph,
    beside,
    operator_workload,
    refused_calls,
    with_pauses,
)
from opcost.units import short_uuid
from opcost.version import __version__, version_of

SLOWED_FOR_S = 0.25
"""Shortest time from the measurement of a throttled load to the warm-up of the next one; reading the meters takes 0.05
s before. After it H100s report throttling for another 0.15 s, and so long the warm-up lasts."""


def execution_on(device: str, setting: Setting) -> str:
    """Return the setting's execution, else ``graph`` on a GPU and ``eager`` on a CPU."""
    return setting.execution or usual_execution(device_type_of(device))


ReadyModels: TypeAlias = Mapping[OperatorTuple, ReadyModel]
"""Models that are objects of this process, by their tuples. Others are built from their source."""


@dataclass(frozen=True)
class Workloads:
    """Builds workloads on a device; the background load, if there is one, pauses while one is in use."""

    device: str
    background: BackgroundLoad | None = None
    ready: ReadyModels = field(default_factory=dict)

    @contextmanager
    def __call__(self, case: Case, setting: Setting, duty_cycle: float = 1.0) -> Iterator[Workload]:
        with switched(setting.precision, setting.attention), in_phase(case.phase):
            try:
                eager = self._eager(case, setting)
            except CannotMeasureError as error:
                raise _of_attention(error, case.operator, setting) from error
            if self.background is not None:
                self.background.pause()
            try:
                if duty_cycle < 1:
                    with eager.context():
                        eager = eager.of(with_pauses(eager.calls, self.device, duty_cycle))
                if case.state:
                    yield beside(eager, is_traced=True)
                else:
                    yield as_graph(eager) if execution_on(self.device, setting) == GRAPH else eager
            except CannotMeasureError as error:
                raise _of_attention(error, case.operator, setting) from error
            finally:
                if self.background is not None:
                    self.background.resume()

    def _eager(self, case: Case, setting: Setting) -> EagerWorkload:
        context = partial(autocast, setting.precision, self.device)
        if case.operator.is_model:
            ready = self.ready.get(case.operator)
            ready = repeatable(ready or resolve(case.operator, setting.code).with_inputs(self.device, context), context)

            def run() -> object:
                with context():
                    return ready.run()

            with refused_calls(self.device):
                if ready.is_training:
                    with running_calls():
                        calls = calls_of(ready, case.phase)
                else:
                    carried = ready.carried
                    calls = Calls(run, overhead=carried.put_back if carried.needs_kernels else None)
                return EagerWorkload(with_memory_peak(calls, lambda: ready.held, self.device), self.device)
        # Names of registered operations, a user's among them, begin so.
        if setting.code is not None and case.operator.operator.startswith("torch.ops."):
            register_operations(setting.code)
        # Before it is built, so that the memory never holds it twice.
        counted, found = case.counted, None
        if counted is not None:
            found = quick_difference(counted, case.counted_on, self.device, setting.precision)
        loop = partial(context, keeps_casts=False)
        state = parse_state(case.state) if case.state else None
        workload = operator_workload(case.operator, self.device, case.input_data, state, loop)
        if found is None:
            return workload
        return workload.annotated(f"not as counted: {found.text}", (found.flag,))


def _of_attention(error: CannotMeasureError, operator: OperatorTuple, setting: Setting) -> CannotMeasureError:
    """Return an error with the remedy of a back end of attention that a user chose, if it may be the reason."""
    if setting.attention == ANY_BACKEND or not may_attend(operator) or type(error) is not CannotMeasureError:
        return error
    remedy = "choose another attention, or leave it out"
    return CannotMeasureError(f"{error} Attention may run in {setting.attention} alone, on this device, too; {remedy}")


class Rest:
    """A time without measurements, which ``pause`` waits for in s. Builds in that time are a part of it."""

    def __init__(self, clock: Clock, pause: Callable[[float], None]) -> None:
        self._clock = clock
        self._pause = pause
        self._end_s = 0.0

    def begin(self) -> None:
        self._end_s = self._clock.read().monotonic_s + SLOWED_FOR_S

    def end(self) -> None:
        left_s = self._end_s - self._clock.read().monotonic_s
        if left_s > 0:
            self._pause(left_s)


@dataclass(frozen=True)
class Apparatus:
    """A device that is ready to measure: implements ``Bench`` in this process.

    ``workload`` builds that of a case in a setting, for use within a context, with a duty cycle if not 1.
    ``has_meter`` says whether the device has a meter of energy, even if none was asked for. ``known`` is known of the
    device beforehand; ``observers`` accompany each measurement, in this order. ``pause`` does nothing for some seconds;
    ``rest`` follows a throttled load. ``duty_cycles`` has that of each measured operator tuple (its key) in each
    setting, since it holds for other input data, too. A campaign measures ``drift_case`` repeatedly. ``background``
    keeps a GPU at work between measurements.
    """

    device: str
    clock: Clock
    meters: Meters
    workload: Callable[..., AbstractContextManager[Workload]]
    conditions_of: Callable[[Setting], Conditions]
    circumstances: Callable[[MeasurementProtocol], Circumstances]
    known: KnownDevice
    rest: Rest
    observers: tuple[Observer, ...] = ()
    has_meter: bool = True
    drift_case: Case | None = None
    pause: Callable[[float], None] = time.sleep
    duty_cycles: dict[tuple[str, Phase, Setting], float] = field(default_factory=dict)
    waiting_power: WaitingPower = field(default_factory=WaitingPower)
    background: BackgroundLoad | None = None

    @property
    def is_gpu(self) -> bool:
        return is_gpu(self.device)

    @property
    def step_times_s(self) -> dict[str, float]:
        """Empty: only a parent process knows them."""
        return {}

    def conditions(self, setting: Setting) -> Conditions:
        if setting.meter not in (AUTO, *self.meters.names):
            names = ", ".join(self.meters.names) or f"none: {self.meters.meter('none').stop().missing_reason}"
            raise UserError(f"--meter {setting.meter}: {self.device} has no such meter; available: {names}")
        return self.conditions_of(setting)

    def instruments(self, log_name: str, meter_name: str = AUTO) -> Instruments:
        known = replace(self.known, meters=replace(self.known.meters, chosen=meter_name))
        return Instruments(self.meters.meter(log_name), self.clock, known, self.observers, self.waiting_power)

    def measure_build(
        self, workload: Workload, setting: Setting, log_names: Iterator[str], protocol: MeasurementProtocol
    ) -> Measurement:
        return measure(workload, self.instruments(next(log_names), setting.meter), protocol)

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> MeasuredCases:
        """Measure an operator, or a model in several builds; further builds number the name of the raw power log."""
        names = numbered(log_name)

        def once(protocol: MeasurementProtocol, case: Case = case) -> Measurement:
            for observer in self.observers:
                observer.before_build()
            with self.workload(case, setting, protocol.duty_cycle) as workload:
                self.rest.end()
                measure_build = partial(self.measure_build, workload, setting, names)
                if case.state:
                    instruments = self.instruments(log_name, setting.meter)
                    measurement = measure_beside(workload, instruments, protocol.relative_error or STATE_RELATIVE_ERROR)
                else:
                    # A model that reaches the power limit does so in use, too.
                    is_model = case.operator.is_model
                    measurement = settled(measure_build, protocol) if is_model else measure_build(protocol)
            if leaves_clocks_low(measurement):
                self.rest.begin()
            return measurement

        if case.operator.is_model:
            at_any_clocks = replace(protocol, at_full_clocks=False)
            found = [(case, median_of_builds(partial(once, at_any_clocks), protocol.builds))]
            for part in PARTS if case.phase is Phase.STEP else ():
                of_part = replace(case, phase=part)
                try:
                    found.append((of_part, median_of_builds(partial(once, at_any_clocks, of_part), protocol.builds)))
                except CannotMeasureError as error:
                    # Such as a backward that is shorter than the noise of the forward before it.
                    text = "%s: its %s cannot be measured: %s"
                    logging.getLogger(__name__).warning(text, case.operator.short_name, part, error)
            return tuple(found)
        # Between evictions no load is heavy.
        is_hot = protocol.relative_error is not None and not case.state
        at_full_clocks = replace(protocol, at_full_clocks=is_hot)
        key = case.operator.key, case.phase, setting
        measurement = undisturbed(once, at_full_clocks, self.duty_cycles.get(key, 1.0))
        self.duty_cycles[key] = measurement.duty_cycle or 1.0
        return ((case, measurement),)


def numbered(log_name: str) -> Iterator[str]:
    """Yield the names of the raw power logs of one measurement: its own, then the same with numbers from 2 on."""
    yield log_name
    yield from (f"{log_name}-{number}" for number in itertools.count(2))


class HostPowerWatch(Observer):
    """Meters the host's processors and their memory while a loop runs: ``power``."""

    def __init__(self, root: Path = POWERCAP_FOLDER) -> None:
        self.power = HostPower(None, None, "no loop was run")
        self._root = root
        self._sources: list[RaplEnergy] = []
        self._begin = SystemClock().read()

    def before_loop(self) -> None:
        self._sources, reason = open_rapl(self._root)
        self.power = HostPower(None, None, reason)
        self._begin = SystemClock().read()

    def after_finish(self) -> Finding:
        sources, self._sources = self._sources, []
        if sources:
            result = result_of(sources, "", self._begin, SystemClock().read())
            for source in sources:
                source.close()
            powers_w = {one.device: one.energy_j and one.energy_j / result.duration_s for one in result.devices}
            self.power = HostPower(powers_w[CPU], powers_w.get(MEMORY), result.devices[0].missing_reason)
        return NOTHING


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

    def __init__(self, apparatus: Apparatus) -> None:
        self._host = HostPowerWatch()
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
        """Measure the model that is held, then time single iterations. Raises CannotMeasureError: it cannot be."""
        held = self._held
        if held is None:
            raise RuntimeError("no workload is held")
        measure_build = partial(self.apparatus.measure_build, held.workload, held.setting, numbered(log_name))
        measurement = settled(measure_build, protocol)
        host = self._host.power
        # Before single iterations, which may be captured in a graph of their own.
        memory_use = held.memory_use or held.memory.use
        number = iterations_after(measurement.loop_time_s, measurement.time_s)
        background = self.apparatus.background
        with nullcontext() if background is None else background.paused():
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
        # Both may not fit.
        self.release()
        if not self.apparatus.is_gpu:
            return ()
        # While it is built and profiled, the background load pauses.
        with self.apparatus.workload(case, replace(setting, execution=EAGER)) as workload:

            def run(_: Mark) -> None:
                workload.run(1)

            # The first run loads libraries and chooses algorithms.
            workload.run(2)
            workload.finish()
            # The profiler reported kernels of a process's first model under other operators (``docs/log/cache.md``).
            profiled(lambda _: None)
            times_s: defaultdict[str, list[float]] = defaultdict(list)
            for kernel in profiled(run):
                times_s[kernel.name].append(kernel.time_s)
        uses = (KernelUse(name, len(all_s), sum(all_s)) for name, all_s in times_s.items())
        return tuple(sorted(uses, key=lambda use: -use.time_s))


OpenApparatus: TypeAlias = Callable[[str | None, Database, bool], AbstractContextManager[Apparatus]]
"""Opens a device, as ``open_apparatus`` does: its name, the database, whether to log power."""


@contextmanager
def open_apparatus(
    device_name: str | None, database: Database, with_meter: bool = True, ready: ReadyModels = MappingProxyType({})
) -> Iterator[Apparatus]:
    """Open a device, whose power is logged in the database until the end of the context.

    The name is the user's, None for a GPU if there is one. ``with_meter`` is False if only conditions are needed.
    ``ready`` are models that are objects of this process. Raises UserError: the device is not there or in use, or
    its driver does not answer.
    """
    device = choose_device(device_name)
    check_overrides()
    try:
        facts = facts_of(device)
        with ExitStack() as stack:
            if with_meter:
                # Two campaigns on one device would disturb each other.
                stack.enter_context(device_lock(facts.uuid or "cpu"))
            meters = open_meters(device, facts, database.power_logs, stack) if with_meter else no_meters(device)
            watch = _process_watch(facts, stack) if with_meter else None
            background = None
            if with_meter and is_gpu(device):
                # Keeps the GPU at work from now on.
                background = BackgroundLoad(partial(additions, device))
                stack.callback(background.close)
                background.resume()
                load_libraries(device)
            clock = SystemClock()
            yield Apparatus(
                device=device,
                clock=clock,
                rest=Rest(clock, time.sleep),
                meters=meters,
                workload=Workloads(device, background, ready),
                conditions_of=partial(_conditions, device, facts),
                circumstances=partial(_circumstances, facts),
                has_meter=no_energy_reason(device, facts) is None,
                known=KnownDevice(None, facts.power_limit_w, GPU_REPEATABILITY if is_gpu(device) else Repeatability()),
                # The background load first: the device is to be at work again as soon as a loop ends.
                observers=tuple(observer for observer in (background, watch) if observer is not None),
                background=background,
            )
    except GpuError as error:
        raise UserError(str(error)) from error


def _process_watch(facts: DeviceFacts, stack: ExitStack) -> ProcessWatch | None:
    """Raise UserError: another process is using the device."""
    if facts.uuid is None:
        return ProcessWatch(OtherLoad().disturbance)
    try:
        gpu = open_gpu(facts.uuid)
    except GpuError:
        return None
    stack.callback(gpu.close)
    others = OtherProcesses(gpu, os.getpid())
    others.refuse_if_busy()
    return ProcessWatch(others.disturbance)


def _conditions(device: str, facts: DeviceFacts, setting: Setting) -> Conditions:
    if not is_gpu(device) and setting.execution == GRAPH:
        raise UserError(f"--execution {GRAPH}: only GPUs have CUDA graphs; use --execution {EAGER} or --device cuda")
    with switched(setting.precision, setting.attention):
        switches = torch_state(device)
    return Conditions(
        device_type=device_type_of(device),
        device_product=facts.product,
        device_memory_bytes=facts.memory_bytes,
        device_power_limit_w=facts.power_limit_w,
        driver_version=facts.driver_version,
        precision=setting.precision,
        execution=execution_on(device, setting),
        cache=setting.cache,
        **switches,
    )


def _circumstances(facts: DeviceFacts, protocol: MeasurementProtocol) -> Circumstances:
    return Circumstances(
        device_uuid=None if facts.uuid is None else short_uuid(facts.uuid),
        host_cpu=cpu_product(),
        python_version=platform.python_version(),
        opcost_version=__version__,
        torchvision_version=version_of("torchvision"),
        timm_version=version_of("timm"),
        transformers_version=version_of("transformers"),
        warm_up_s=protocol.warm_up_s,
        loop_s=protocol.loop_s if protocol.relative_error is None else None,
        relative_error=protocol.relative_error,
    )
