"""A device, and all that is needed to measure on it: workloads, a meter, a clock, and the conditions it offers."""

from __future__ import annotations

import itertools
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from typing import Protocol, TypeAlias

from opcost import __version__
from opcost.errors import UserError
from opcost.estimates import Estimate
from opcost.measuring.calls import Calls
from opcost.measuring.conditions import COLD, EAGER, GRAPH, WARM, Circumstances, Conditions, DeviceFacts
from opcost.measuring.flags import Flag, flags_of, joined_notes
from opcost.measuring.known_device import GPU_REPEATABILITY, KnownDevice, Repeatability
from opcost.measuring.ports import Workload
from opcost.measuring.procedure import SLOWED_FOR_S, measure, undisturbed
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement, leaves_clocks_low
from opcost.meters.clock import SystemClock
from opcost.meters.cpu_facts import cpu_product
from opcost.meters.cpu_load import OtherLoad
from opcost.meters.gpu_processes import OtherProcesses
from opcost.meters.nvidia_smi import NvidiaSmiError
from opcost.meters.nvml import NvmlError, NvmlGpu
from opcost.meters.opening import NO_METERS, Meters, NamedMeter, no_energy_reason, open_meters
from opcost.operators.subjects import Subject
from opcost.power.ports import Clock, Meter
from opcost.power.trace import PowerTrace
from opcost.running.device_lock import device_lock
from opcost.running.devices import choose_device, facts_of
from opcost.sources.models import resolve
from opcost.storage.database import Database
from opcost.torch_backend.background_load import Filler, additions
from opcost.torch_backend.passes import INFERENCE
from opcost.torch_backend.pauses import with_pauses
from opcost.torch_backend.switches import check_overrides, precision, torch_state
from opcost.torch_backend.workload import EagerWorkload, as_graph, operator_workload


class MakeWorkload(Protocol):
    """Builds an operator or a model for a while, to run for a share of the time."""

    def __call__(self, subject: Subject, duty_cycle: float = 1.0) -> AbstractContextManager[Workload]: ...


@dataclass(frozen=True)
class Apparatus:
    """What the measuring stages need of a device.

    ``conditions`` takes a precision, and so does ``precision``, which sets it for a while. ``has_meter`` says whether
    energy can be measured at all, also where no meter was asked for. ``pause`` does nothing for some seconds.
    ``power_per_kelvin`` is the share by which power rises with each kelvin, None where the device is not qualified.
    ``sentinel`` is measured now and then in a campaign, to see whether the device drifts. ``disturbance`` says who else
    has used the device since the last call, if somebody did.
    """

    device: str
    clock: Clock
    meters: Meters
    workload: MakeWorkload
    conditions: Callable[[str], Conditions]
    circumstances: Callable[[MeasurementProtocol], Circumstances]
    precision: Callable[[str], AbstractContextManager[None]]
    has_meter: bool = True
    power_per_kelvin: Estimate | None = None
    sentinel: Subject | None = None
    pause: Callable[[float], None] = time.sleep
    disturbance: Callable[[], str] = str

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")

    def known(self, precision: str) -> KnownDevice:
        """Return what is known of the device beforehand."""
        repeatability = GPU_REPEATABILITY if self.is_gpu else Repeatability()
        return KnownDevice(self.power_per_kelvin, self.conditions(precision).device_power_limit_w, repeatability)

    def measure(self, subject: Subject, precision: str, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        """Measure an operator or a model; its raw power log gets a name.

        Raises:
            CannotMeasureError: it cannot be measured here.
        """
        known = self.known(precision)
        names = (log_name if number == 1 else f"{log_name}-{number}" for number in itertools.count(1))

        def once(protocol: MeasurementProtocol) -> Measurement:
            self.disturbance()
            with self.precision(precision), self.workload(subject, protocol.duty_cycle) as workload:
                measurement = measure(workload, self.meters.meter(next(names)), self.clock, protocol, known)
            if disturbance := self.disturbance():
                flags = flags_of([*measurement.flags, Flag.OTHER_PROCESS])
                measurement = replace(measurement, flags=flags, notes=joined_notes(measurement.notes, disturbance))
            if leaves_clocks_low(measurement):
                self.pause(SLOWED_FOR_S)
            return measurement

        # A model that reaches the power limit does so in use, too.
        at_full_clocks = protocol.relative_error is not None and not subject.operator.is_model
        return undisturbed(once, replace(protocol, at_full_clocks=at_full_clocks))


OpenApparatus: TypeAlias = Callable[[str | None, Database, bool], AbstractContextManager[Apparatus]]
"""As ``open_apparatus``: device, database, whether to log power. Tests open a simulated one."""


@contextmanager
def open_apparatus(
    device_name: str | None,
    database: Database,
    with_meter: bool = True,
    execution: str | None = None,
    cache: str = WARM,
) -> Iterator[Apparatus]:
    """Make a device ready to measure on; its power is logged from here to the end.

    Args:
        device_name: as the user named it, None for a GPU if there is one.
        database: where raw power logs are kept.
        with_meter: False to look at conditions only.
        execution: one of ``EXECUTIONS``; None for graphs on a GPU.
        cache: one of ``CACHES``, for operators; whole models run as they are.

    Raises:
        UserError: the device is not there, has no CUDA graphs or no cache of known size, or nvidia-smi does not answer.
    """
    device = choose_device(device_name)
    execution = _choose_execution(execution, device)
    _check_cache(cache, device)
    check_overrides()
    try:
        facts = facts_of(device)
        with ExitStack() as stack:
            if with_meter:
                # Two campaigns on one device would measure each other.
                stack.enter_context(device_lock(facts.uuid or "cpu"))
            meters = open_meters(device, facts, database.power_logs, stack) if with_meter else NO_METERS
            disturbance = _disturbance(facts, stack) if with_meter else str
            filler = _filler(device, stack) if with_meter else None
            yield Apparatus(
                device=device,
                clock=SystemClock(),
                meters=meters if filler is None else replace(meters, meter=partial(_filled, meters.meter, filler)),
                workload=Workloads(device, execution, cache, filler),
                conditions=lambda name: _conditions(device, facts, name, execution, cache),
                circumstances=lambda protocol: _circumstances(facts, protocol),
                precision=precision,
                has_meter=no_energy_reason(device, facts) is None,
                disturbance=disturbance,
            )
    except NvidiaSmiError as error:
        raise UserError(str(error)) from error


class FilledMeter:
    """A meter between whose measurements the device goes on working, also while their logs are cut."""

    def __init__(self, meter: Meter, filler: Filler) -> None:
        self._meter = meter
        self._filler = filler

    def start(self) -> None:
        """Begin a measurement."""
        self._filler.pause()
        self._meter.start()

    def log(self) -> PowerTrace:
        """Return the rows so far."""
        return self._meter.log()

    def stop(self) -> PowerTrace:
        """End the measurement and return its rows."""
        self._filler.resume()
        return self._meter.stop()


def _filled(meter: NamedMeter, filler: Filler, log_name: str) -> Meter:
    return FilledMeter(meter(log_name), filler)


@dataclass(frozen=True)
class Workloads:
    """Builds what runs on a device, as it is to be executed; the filler, if there is one, rests meanwhile."""

    device: str
    execution: str
    cache: str
    filler: Filler | None

    @contextmanager
    def __call__(self, subject: Subject, duty_cycle: float = 1.0) -> Iterator[Workload]:
        """Build an operator or a model while the device is kept at work, and let that go on afterwards."""
        eager = self._eager(subject)
        self.rest()
        try:
            if duty_cycle < 1:
                eager = EagerWorkload(with_pauses(eager.calls, self.device, duty_cycle), self.device)
            yield as_graph(eager) if self.execution == GRAPH else eager
        finally:
            if self.filler is not None:
                self.filler.resume()

    def rest(self) -> None:
        """Stop what keeps the device at work until the next measurement ends: no graph runs while one is captured."""
        if self.filler is not None:
            self.filler.pause()

    def _eager(self, subject: Subject) -> EagerWorkload:
        if subject.operator.is_model:
            model, inputs = resolve(subject.operator).with_inputs(self.device)
            return EagerWorkload(Calls(lambda: model(*inputs)), self.device)
        return operator_workload(subject.operator, self.device, subject.input_data, self.cache)


def _choose_execution(execution: str | None, device: str) -> str:
    is_gpu = device.startswith("cuda")
    if execution == GRAPH and not is_gpu:
        raise UserError(f"--execution {GRAPH}: only GPUs have CUDA graphs; use --execution {EAGER} or --device cuda")
    return execution or (GRAPH if is_gpu else EAGER)


def _check_cache(cache: str, device: str) -> None:
    if cache == COLD and not device.startswith("cuda"):
        raise UserError(
            f"--cache {COLD}: a CPU does not tell the size of its cache; use --cache {WARM} or --device cuda"
        )


def _filler(device: str, stack: ExitStack) -> Filler | None:
    """Keep a GPU at work from now on."""
    if not device.startswith("cuda"):
        return None
    filler = Filler(partial(additions, device))
    stack.callback(filler.close)
    filler.resume()
    return filler


def _disturbance(facts: DeviceFacts, stack: ExitStack) -> Callable[[], str]:
    """Watch for others on a device; return what tells of them.

    Raises:
        UserError: somebody is using it.
    """
    if facts.uuid is None:
        return OtherLoad().disturbance
    try:
        gpu = NvmlGpu.open(facts.uuid)
    except NvmlError:
        return str
    stack.callback(gpu.close)
    others = OtherProcesses(gpu, os.getpid())
    others.refuse_if_busy()
    return others.disturbance


def _conditions(device: str, facts: DeviceFacts, precision_name: str, execution: str, cache: str) -> Conditions:
    with precision(precision_name):
        state = torch_state(device)
    return Conditions(
        device_type=device.partition(":")[0],
        device_product=facts.product,
        device_memory_bytes=facts.memory_bytes,
        device_power_limit_w=facts.power_limit_w,
        driver_version=facts.driver_version,
        precision=precision_name,
        mode=INFERENCE.name,
        execution=execution,
        cache=cache,
        **asdict(state),
    )


def _circumstances(facts: DeviceFacts, protocol: MeasurementProtocol) -> Circumstances:
    return Circumstances(
        device_uuid=facts.uuid,
        host_cpu=cpu_product(),
        python_version=platform.python_version(),
        opcost_version=__version__,
        torchvision_version=metadata.version("torchvision"),
        warm_up_s=protocol.warm_up_s,
        loop_s=protocol.loop_s if protocol.relative_error is None else None,
        relative_error=protocol.relative_error,
    )
