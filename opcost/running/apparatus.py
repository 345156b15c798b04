"""A device with all that a measurement on it needs: workloads, a meter, a clock, and its conditions."""

from __future__ import annotations

import itertools
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import metadata
from types import MappingProxyType
from typing import Protocol, TypeAlias

from opcost import __version__
from opcost.errors import UserError
from opcost.measuring.builds import median_of_builds, settled
from opcost.measuring.conditions import (
    COLD,
    EAGER,
    GRAPH,
    WARM,
    Circumstances,
    Conditions,
    DeviceFacts,
    device_type_of,
    is_gpu,
    usual_execution,
)
from opcost.measuring.instruments import Instruments, Observer, ProcessWatch, WaitingPower
from opcost.measuring.known_device import KnownDevice, known_beforehand
from opcost.measuring.procedure import measure, undisturbed
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement, leaves_clocks_low
from opcost.measuring.setting import Setting
from opcost.measuring.workload import Calls, Workload
from opcost.meters.host import SystemClock, cpu_product
from opcost.meters.nvidia_smi import NvidiaSmiError
from opcost.meters.nvml import NvmlError, NvmlGpu
from opcost.meters.opening import Meters, no_energy_reason, no_meters, open_meters
from opcost.meters.other_work import OtherLoad, OtherProcesses
from opcost.operators.cases import Case
from opcost.operators.tuples import OperatorTuple
from opcost.power.ports import AUTO, Clock
from opcost.running.device_lock import device_lock
from opcost.running.devices import choose_device, facts_of
from opcost.short_uuids import short_uuid
from opcost.sources.models import resolve
from opcost.sources.python_file import register_operations
from opcost.storage.database import Database
from opcost.torch_backend.capture import check_steady
from opcost.torch_backend.differences import Difference, difference, replay_device
from opcost.torch_backend.interludes import BackgroundLoad, additions, with_pauses
from opcost.torch_backend.passes import INFERENCE
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.switches import autocast, check_overrides, precision, torch_state
from opcost.torch_backend.workload import EagerWorkload, as_graph, operator_workload

OPERATIONS = "torch.ops."
"""The beginning of the names of registered operations, a user's among them."""

SLOWED_FOR_S = 0.25
"""Shortest time from the measurement of a throttled load to the warm-up of the next one; reading the meters takes 0.05
s before. After it H100s report throttling for another 0.15 s, and so long the warm-up lasts."""


def execution_on(device: str, setting: Setting) -> str:
    """Return the execution on a device: the setting's, else ``graph`` on a GPU and ``eager`` on a CPU."""
    return setting.execution or usual_execution(device_type_of(device))


class MakeWorkload(Protocol):
    """Builds the workload of an operator or a model in a setting, for use within a context, with a duty cycle."""

    def __call__(self, case: Case, setting: Setting, duty_cycle: float = 1.0) -> AbstractContextManager[Workload]: ...


ReadyModels: TypeAlias = Mapping[OperatorTuple, ReadyModel]
"""Models that are objects of this process, by their tuples. Others are built from their source."""

NO_MODELS: ReadyModels = MappingProxyType({})


@dataclass(frozen=True)
class Workloads:
    """Builds workloads on a device; the background load, if there is one, pauses while one is in use."""

    device: str
    background: BackgroundLoad | None = None
    ready: ReadyModels = field(default_factory=dict)

    @contextmanager
    def __call__(self, case: Case, setting: Setting, duty_cycle: float = 1.0) -> Iterator[Workload]:
        """Build a workload while the background load runs; pause the load until the end of the context."""
        with precision(setting.precision):
            eager = self._eager(case, setting)
            if self.background is not None:
                self.background.pause()
            try:
                if duty_cycle < 1:
                    with eager.context():
                        eager = eager.of(with_pauses(eager.calls, self.device, duty_cycle))
                yield as_graph(eager) if execution_on(self.device, setting) == GRAPH else eager
            finally:
                if self.background is not None:
                    self.background.resume()

    def _eager(self, case: Case, setting: Setting) -> EagerWorkload:
        context = partial(autocast, setting.precision, self.device)
        if case.operator.is_model:
            ready = self.ready.get(case.operator)
            ready = ready or resolve(case.operator, setting.code).with_inputs(self.device, context)
            if ready.first is not None:
                check_steady(ready, context)
                # The state before takes memory that the loop does not need.
                ready = replace(ready, first=None)

            def run() -> object:
                with context():
                    return ready.run()

            return EagerWorkload(Calls(run), self.device)
        if setting.code is not None and case.operator.operator.startswith(OPERATIONS):
            register_operations(setting.code)
        # Before it is built, so that the memory never holds it twice.
        found = self._difference(case, setting)
        loop = partial(context, keeps_casts=False)
        workload = operator_workload(case.operator, self.device, case.input_data, setting.cache, loop)
        if found is None:
            return workload
        return workload.annotated(f"not as counted: {found.text}", (found.flag,))

    def _difference(self, case: Case, setting: Setting) -> Difference | None:
        """Return how an operator differs from its count; None if it does not, or if that is unknown."""
        counted = case.counted
        device = None if counted is None else replay_device(counted.device_type, self.device)
        if counted is None or device is None:
            return None
        return difference(counted.count, device, partial(autocast, setting.precision, device))


class Rest:
    """A time in which nothing is measured, which ``pause`` waits for in s. Builds in that time are a part of it."""

    def __init__(self, clock: Clock, pause: Callable[[float], None]) -> None:
        self._clock = clock
        self._pause = pause
        self._end_s = 0.0

    def begin(self) -> None:
        """Begin a rest of ``SLOWED_FOR_S``."""
        self._end_s = self._clock.read().monotonic_s + SLOWED_FOR_S

    def end(self) -> None:
        """Wait until the rest is over, if there is one."""
        left_s = self._end_s - self._clock.read().monotonic_s
        if left_s > 0:
            self._pause(left_s)


@dataclass(frozen=True)
class Apparatus:
    """A device that is ready to measure: implements ``Bench`` in this process.

    ``has_meter`` says whether the device has a meter of energy, even if none was asked for. ``known`` is known of the
    device beforehand; ``observers`` accompany each measurement, in this order. ``pause`` does nothing for some seconds;
    ``rest`` follows a throttled load. ``duty_cycles`` has that of each measured operator tuple (its key) in each
    setting, since it holds for other input data, too. A campaign measures ``drift_case`` repeatedly. ``background``
    keeps a GPU at work between measurements.
    """

    device: str
    clock: Clock
    meters: Meters
    workload: MakeWorkload
    conditions_of: Callable[[Setting], Conditions]
    circumstances: Callable[[MeasurementProtocol], Circumstances]
    known: KnownDevice
    rest: Rest
    observers: tuple[Observer, ...] = ()
    has_meter: bool = True
    drift_case: Case | None = None
    pause: Callable[[float], None] = time.sleep
    duty_cycles: dict[tuple[str, Setting], float] = field(default_factory=dict)
    waiting_power: WaitingPower = field(default_factory=WaitingPower)
    background: BackgroundLoad | None = None

    @property
    def is_gpu(self) -> bool:
        return is_gpu(self.device)

    @property
    def step_times_s(self) -> dict[str, float]:
        """Empty: only a parent process knows them."""
        return {}

    def background_paused(self) -> AbstractContextManager[None]:
        """Return a context in which the background load, if there is one, does not run: for timing beside loops."""
        return nullcontext() if self.background is None else self.background.paused()

    def conditions(self, setting: Setting) -> Conditions:
        if setting.meter not in (AUTO, *self.meters.names):
            names = ", ".join(self.meters.names) or f"none: {self.meters.meter('none').stop().missing_reason}"
            raise UserError(f"--meter {setting.meter}: {self.device} has no such meter; available: {names}")
        return self.conditions_of(setting)

    def instruments(self, log_name: str, meter_name: str = AUTO) -> Instruments:
        """Return the instruments of one measurement: a named raw power log, and the meter that its energy is from."""
        known = replace(self.known, meters=replace(self.known.meters, chosen=meter_name))
        return Instruments(self.meters.meter(log_name), self.clock, known, self.observers, self.waiting_power)

    def measure_build(
        self, workload: Workload, setting: Setting, log_names: Iterator[str], protocol: MeasurementProtocol
    ) -> Measurement:
        """Measure a workload that is built; the raw power log gets the next name."""
        return measure(workload, self.instruments(next(log_names), setting.meter), protocol)

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        """Measure an operator, or a model in several builds; further builds number the name of the raw power log."""
        names = numbered(log_name)

        def once(protocol: MeasurementProtocol) -> Measurement:
            for observer in self.observers:
                observer.before_build()
            with self.workload(case, setting, protocol.duty_cycle) as workload:
                self.rest.end()
                measure_build = partial(self.measure_build, workload, setting, names)
                # A model that reaches the power limit does so in use, too.
                measurement = settled(measure_build, protocol) if case.operator.is_model else measure_build(protocol)
            if leaves_clocks_low(measurement):
                self.rest.begin()
            return measurement

        if case.operator.is_model:
            return median_of_builds(partial(once, replace(protocol, at_full_clocks=False)), protocol.builds)
        at_full_clocks = replace(protocol, at_full_clocks=protocol.relative_error is not None)
        key = case.operator.key, setting
        measurement = undisturbed(once, at_full_clocks, self.duty_cycles.get(key, 1.0))
        self.duty_cycles[key] = measurement.duty_cycle or 1.0
        return measurement


def numbered(log_name: str) -> Iterator[str]:
    """Yield the names of the raw power logs of one measurement: its own, then the same with numbers from 2 on."""
    yield log_name
    yield from (f"{log_name}-{number}" for number in itertools.count(2))


OpenApparatus: TypeAlias = Callable[[str | None, Database, bool], AbstractContextManager[Apparatus]]
"""Opens a device, as ``open_apparatus`` does: its name, the database, whether to log power."""


@contextmanager
def open_apparatus(
    device_name: str | None, database: Database, with_meter: bool = True, ready: ReadyModels = NO_MODELS
) -> Iterator[Apparatus]:
    """Make a device ready to measure on; its power is logged in the database until the end of the context.

    The name is the user's, None for a GPU if there is one. ``with_meter`` is False if only conditions are needed.
    ``ready`` are models that are objects of this process.

    Raises UserError: the device is not there or in use, or nvidia-smi does not answer.
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
                known=known_beforehand(is_gpu(device), facts.power_limit_w),
                # The background load first: the device is to be at work again as soon as a loop ends.
                observers=tuple(observer for observer in (background, watch) if observer is not None),
                background=background,
            )
    except NvidiaSmiError as error:
        raise UserError(str(error)) from error


def _process_watch(facts: DeviceFacts, stack: ExitStack) -> ProcessWatch | None:
    """Watch for other processes on a device. Raises UserError: another process is using it."""
    if facts.uuid is None:
        return ProcessWatch(OtherLoad().disturbance)
    try:
        gpu = NvmlGpu.open(facts.uuid)
    except NvmlError:
        return None
    stack.callback(gpu.close)
    others = OtherProcesses(gpu, os.getpid())
    others.refuse_if_busy()
    return ProcessWatch(others.disturbance)


def _conditions(device: str, facts: DeviceFacts, setting: Setting) -> Conditions:
    if not is_gpu(device) and setting.execution == GRAPH:
        raise UserError(f"--execution {GRAPH}: only GPUs have CUDA graphs; use --execution {EAGER} or --device cuda")
    if not is_gpu(device) and setting.cache == COLD:
        raise UserError(f"--cache {COLD}: the cache size of a CPU is unknown; use --cache {WARM} or --device cuda")
    with precision(setting.precision):
        state = torch_state(device)
    return Conditions(
        device_type=device_type_of(device),
        device_product=facts.product,
        device_memory_bytes=facts.memory_bytes,
        device_power_limit_w=facts.power_limit_w,
        driver_version=facts.driver_version,
        precision=setting.precision,
        mode=INFERENCE.name,
        execution=execution_on(device, setting),
        cache=setting.cache,
        **asdict(state),
    )


def _circumstances(facts: DeviceFacts, protocol: MeasurementProtocol) -> Circumstances:
    return Circumstances(
        device_uuid=None if facts.uuid is None else short_uuid(facts.uuid),
        host_cpu=cpu_product(),
        python_version=platform.python_version(),
        opcost_version=__version__,
        torchvision_version=metadata.version("torchvision"),
        warm_up_s=protocol.warm_up_s,
        loop_s=protocol.loop_s if protocol.relative_error is None else None,
        relative_error=protocol.relative_error,
    )
