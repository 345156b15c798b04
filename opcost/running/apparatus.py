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
from typing import TypeAlias

from opcost import __version__
from opcost.errors import UserError
from opcost.measuring.conditions import COLD, EAGER, GRAPH, WARM, Circumstances, Conditions, DeviceFacts
from opcost.measuring.instruments import Instruments
from opcost.measuring.known_device import KnownDevice, known_beforehand
from opcost.measuring.observers import Observer, ProcessWatch
from opcost.measuring.procedure import SLOWED_FOR_S, measure, undisturbed
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement, leaves_clocks_low
from opcost.meters.clock import SystemClock
from opcost.meters.cpu_facts import cpu_product
from opcost.meters.cpu_load import OtherLoad
from opcost.meters.gpu_processes import OtherProcesses
from opcost.meters.nvidia_smi import NvidiaSmiError
from opcost.meters.nvml import NvmlError, NvmlGpu
from opcost.meters.opening import NO_METERS, Meters, no_energy_reason, open_meters
from opcost.operators.subjects import Subject
from opcost.power.ports import Clock
from opcost.running.device_lock import device_lock
from opcost.running.devices import choose_device, facts_of, is_gpu
from opcost.running.workloads import MakeWorkload, Workloads
from opcost.storage.database import Database
from opcost.torch_backend.background_load import BackgroundLoad, additions
from opcost.torch_backend.passes import INFERENCE
from opcost.torch_backend.switches import check_overrides, precision, torch_state


@dataclass(frozen=True)
class Apparatus:
    """What the measuring stages need of a device.

    ``conditions`` takes a precision, and so does ``precision``, which sets it for a while. ``has_meter`` says whether
    energy can be measured at all, also where no meter was asked for. ``known`` is what is known of the device
    beforehand; ``observers`` accompany each measurement, in this order. ``pause`` does nothing for some seconds.
    ``sentinel`` is measured now and then in a campaign, to see whether the device drifts.
    """

    device: str
    clock: Clock
    meters: Meters
    workload: MakeWorkload
    conditions: Callable[[str], Conditions]
    circumstances: Callable[[MeasurementProtocol], Circumstances]
    precision: Callable[[str], AbstractContextManager[None]]
    known: KnownDevice
    observers: tuple[Observer, ...] = ()
    has_meter: bool = True
    sentinel: Subject | None = None
    pause: Callable[[float], None] = time.sleep

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return is_gpu(self.device)

    def instruments(self, log_name: str) -> Instruments:
        """Return what something is measured with, whose raw power log has a name."""
        return Instruments(self.meters.meter(log_name), self.clock, self.known, self.observers)

    def measure(self, subject: Subject, precision: str, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        """Measure an operator or a model; its raw power log gets a name.

        Raises:
            CannotMeasureError: it cannot be measured here.
        """
        names = (log_name if number == 1 else f"{log_name}-{number}" for number in itertools.count(1))

        def once(protocol: MeasurementProtocol) -> Measurement:
            for observer in self.observers:
                observer.before_build()
            with self.precision(precision), self.workload(subject, protocol.duty_cycle) as workload:
                measurement = measure(workload, self.instruments(next(names)), protocol)
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
            watch = _process_watch(facts, stack) if with_meter else None
            background = _background_load(device, stack) if with_meter else None
            yield Apparatus(
                device=device,
                clock=SystemClock(),
                meters=meters,
                workload=Workloads(device, execution, cache, background),
                conditions=lambda name: _conditions(device, facts, name, execution, cache),
                circumstances=lambda protocol: _circumstances(facts, protocol),
                precision=precision,
                has_meter=no_energy_reason(device, facts) is None,
                known=known_beforehand(is_gpu(device), facts.power_limit_w),
                # The device is at work again as soon as a loop ends, whatever others do then.
                observers=tuple(observer for observer in (background, watch) if observer is not None),
            )
    except NvidiaSmiError as error:
        raise UserError(str(error)) from error


def _choose_execution(execution: str | None, device: str) -> str:
    if execution == GRAPH and not is_gpu(device):
        raise UserError(f"--execution {GRAPH}: only GPUs have CUDA graphs; use --execution {EAGER} or --device cuda")
    return execution or (GRAPH if is_gpu(device) else EAGER)


def _check_cache(cache: str, device: str) -> None:
    if cache == COLD and not is_gpu(device):
        raise UserError(
            f"--cache {COLD}: a CPU does not tell the size of its cache; use --cache {WARM} or --device cuda"
        )


def _background_load(device: str, stack: ExitStack) -> BackgroundLoad | None:
    """Keep a GPU at work from now on."""
    if not is_gpu(device):
        return None
    background = BackgroundLoad(partial(additions, device))
    stack.callback(background.close)
    background.resume()
    return background


def _process_watch(facts: DeviceFacts, stack: ExitStack) -> ProcessWatch | None:
    """Watch for others on a device.

    Raises:
        UserError: somebody is using it.
    """
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
