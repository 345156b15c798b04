"""A device, and all that is needed to measure on it: workloads, a meter, a clock, and the conditions it offers."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
import torchvision
from torch import nn

from opcost import __version__
from opcost.conditions import COLD, EAGER, GRAPH, WARM, Circumstances, Conditions
from opcost.cpu_facts import cpu_product, host_memory_bytes
from opcost.cpu_rapl import RaplMeter, rapl_unavailable_reason
from opcost.device_lock import device_lock
from opcost.errors import CannotMeasureError, UserError
from opcost.joined_meter import JoinedMeter
from opcost.measurement import Measurement, joined_notes
from opcost.meter_names import COUNTER, RAPL, SAMPLES, short_name
from opcost.model_sources import build_model, input_values, is_data_dependent, is_model
from opcost.nvidia_nvml import NvmlError, NvmlGpu
from opcost.nvidia_nvml_counter import CAMPAIGN_SOURCE, EVERY_TICK_SOURCE, CounterMeter, CounterSampler
from opcost.nvidia_nvml_meter import NvmlMeter, PowerSampler
from opcost.nvidia_nvml_processes import OtherProcesses
from opcost.nvidia_smi import GpuFacts, NvidiaSmiError, gpu_facts
from opcost.nvidia_smi_logger import NvidiaSmiLogger
from opcost.nvidia_smi_meter import NvidiaSmiMeter, sources_of
from opcost.operators import META, OperatorTuple, seed_of
from opcost.ports import Clock, KnownDevice, MeasurementProtocol, Meter, Workload
from opcost.power import PowerSource, PowerTrace, no_trace
from opcost.procedure import measure, undisturbed
from opcost.statistics import Estimate
from opcost.subjects import Subject
from opcost.system_clock import SystemClock
from opcost.torch_conditions import check_overrides, precision, torch_state
from opcost.torch_filler import Filler, additions
from opcost.torch_inputs import DrawnInputs
from opcost.torch_workload import EagerWorkload, as_graph, one_line, operator_workload

POWER_LOGS = "power_logs"


NamedMeter: TypeAlias = Callable[[str], Meter]
"""Makes a meter for one measurement, whose log has this name."""

Sampler = TypeVar("Sampler")

TIMED_READS = 5

MIG_REASON = "MIG is on: the power of one instance cannot be told"


@dataclass(frozen=True)
class Meters:
    """What logs a device's power: all that there is, for little, and the same with every tick of the energy counter.

    ``names`` are the short names of what there is, the best first; ``read_times_s`` tells how long a read of each
    source takes, where that can be timed.
    """

    meter: NamedMeter
    all_meters: NamedMeter | None = None
    names: tuple[str, ...] = ()
    read_times_s: Callable[[], Mapping[str, float]] = dict


@dataclass(frozen=True)
class Apparatus:
    """What the measuring stages need of a device.

    ``meter`` takes the name that the measurement's log shall have; it logs all that there is, the best first, the
    others as its checks; ``meter_names`` are their short names. ``conditions`` takes a precision, and so does
    ``precision``, which sets it for a while. ``workload`` builds an operator or a model for a while. ``has_meter`` says
    whether energy can be measured at all. ``all_meters`` is as ``meter``, but logs what is too dear for a campaign;
    None where there is nothing to compare. ``read_times_s`` tells how long a read of each of its sources takes, where
    that can be timed. ``pause`` does nothing for some seconds.
    ``power_per_kelvin`` is the share by which power rises with each kelvin, None where the device is not qualified.
    ``sentinel`` is measured now and then in a campaign, to see whether the device drifts. ``disturbance`` says who else
    uses the device, if somebody does.
    """

    device: str
    clock: Clock
    meter: NamedMeter
    workload: Callable[[Subject], AbstractContextManager[Workload]]
    conditions: Callable[[str], Conditions]
    circumstances: Callable[[MeasurementProtocol], Circumstances]
    precision: Callable[[str], AbstractContextManager[None]]
    has_meter: bool = True
    meter_names: tuple[str, ...] = ()
    all_meters: NamedMeter | None = None
    read_times_s: Callable[[], Mapping[str, float]] = dict
    power_per_kelvin: Estimate | None = None
    sentinel: Subject | None = None
    pause: Callable[[float], None] = time.sleep
    disturbance: Callable[[], str] = str

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")

    def measure(self, subject: Subject, precision: str, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        """Measure an operator or a model; its raw power log gets a name.

        Raises:
            CannotMeasureError: it cannot be measured here.
        """
        known = KnownDevice(self.power_per_kelvin, self.conditions(precision).device_power_limit_w)

        def once(protocol: MeasurementProtocol) -> Measurement:
            self.pause(protocol.rest_s)
            with self.precision(precision), self.workload(subject) as workload:
                measurement = measure(workload, self.meter(log_name), self.clock, protocol, known)
            return replace(measurement, notes=joined_notes(measurement.notes, self.disturbance()))

        return undisturbed(once, protocol)


OpenApparatus: TypeAlias = Callable[[str | None, Path, bool], AbstractContextManager[Apparatus]]
"""As ``open_apparatus``: device, database, whether to log power. Tests open a simulated one."""


@dataclass(frozen=True)
class DeviceFacts:
    """What a device is, as the conditions record it; ``uuid`` tells boards of one product apart.

    ``is_mig`` says whether it is divided into instances, whose power it tells together only.
    """

    uuid: str | None
    product: str
    memory_bytes: int
    power_limit_w: float | None
    driver_version: str | None
    is_mig: bool = False


class NoMeter:
    """Stands in where no meter can be read, and says why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self) -> None:
        """There is nothing to start."""

    def log(self) -> PowerTrace:
        """Return a trace that holds the reason only."""
        return no_trace(self._reason)

    def stop(self) -> PowerTrace:
        """Return a trace that holds the reason only."""
        return no_trace(self._reason)


NO_METERS = Meters(lambda _: NoMeter("no meter was asked for"))


def choose_device(name: str | None) -> str:
    """Return the torch device for what the user asked: ``cpu`` or ``cuda:N``; None takes a GPU if there is one.

    Raises:
        UserError: there is no such GPU.
    """
    gpus = torch.cuda.device_count()
    if name is None:
        return "cuda:0" if gpus else "cpu"
    if name == "cpu":
        return name
    index = int(name.partition(":")[2] or 0)
    if index >= gpus:
        there_are = f"torch sees {gpus} GPUs" if gpus else "torch sees no GPU"
        raise UserError(
            f"--device {name}: {there_are}; use --device cpu, or check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
        )
    return f"cuda:{index}"


def device_of_gpu(uuid_or_index: str) -> str:
    """Return the torch device of a GPU that goes by nvidia-smi's index or UUID.

    Raises:
        UserError: nvidia-smi or torch does not know it.
    """
    try:
        uuid = gpu_facts(uuid_or_index).uuid
    except NvidiaSmiError as error:
        raise UserError(str(error)) from error
    for index in range(torch.cuda.device_count()):
        if f"GPU-{torch.cuda.get_device_properties(index).uuid}" == uuid:
            return f"cuda:{index}"
    raise UserError(f"--gpu {uuid_or_index}: torch does not see it; check CUDA_VISIBLE_DEVICES")


def product_of(device: str) -> str:
    """Return what a device calls itself."""
    return str(torch.cuda.get_device_name(device)) if device.startswith("cuda") else cpu_product()


@contextmanager
def open_apparatus(
    device_name: str | None,
    database: Path,
    with_meter: bool = True,
    execution: str | None = None,
    cache: str = WARM,
) -> Iterator[Apparatus]:
    """Make a device ready to measure on; its power is logged from here to the end.

    Args:
        device_name: as the user named it, None for a GPU if there is one.
        database: the folder in which raw power logs are kept.
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
        facts = _gpu_facts(device) if device.startswith("cuda") else _cpu_facts()
        with ExitStack() as stack:
            if with_meter:
                # Two campaigns on one device would measure each other.
                stack.enter_context(device_lock(facts.uuid or "cpu"))
            logs = database / POWER_LOGS
            meters = open_meters(device, facts, logs, stack) if with_meter else NO_METERS
            others = _other_processes(facts, stack) if with_meter else None
            filler = _filler(device, stack) if with_meter else None
            if filler is not None:
                filler.resume()
            yield Apparatus(
                device=device,
                clock=SystemClock(),
                meter=partial(_filled, meters.meter, filler),
                workload=lambda subject: _workload(subject, device, execution, cache, filler),
                conditions=lambda name: _conditions(device, facts, name, execution, cache),
                circumstances=lambda protocol: _circumstances(facts, protocol),
                precision=precision,
                has_meter=_unavailable_reason(device, facts) is None,
                meter_names=meters.names,
                all_meters=meters.all_meters,
                read_times_s=meters.read_times_s,
                disturbance=others.disturbance if others else str,
            )
    except NvidiaSmiError as error:
        raise UserError(str(error)) from error


def model_and_inputs(operator: OperatorTuple, device: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return the model that a tuple describes, in eval mode, and its seeded normal inputs, on a device.

    The input is drawn on the CPU, so that models whose work depends on it do the same on every device.

    Raises:
        CannotMeasureError: it does not fit onto the device.
    """
    try:
        inputs = DrawnInputs(device, seed_of(operator), drawn_on="cpu")
        return build_model(operator, device), inputs.values(input_values(operator))
    except RuntimeError as error:
        raise CannotMeasureError(one_line(error)) from error


def run_once(model: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Run a model once in inference mode."""
    with torch.inference_mode():
        model(*inputs)


def counting_device(model_name: str, device: str, on_meta: bool) -> str:
    """Return where a model is counted: on the meta device if that is asked for and no data decide what it runs."""
    return META if on_meta and not is_data_dependent(model_name) else device


def model_to_count(operator: OperatorTuple, device: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a model and its inputs as ``model_and_inputs`` does, ready to be counted.

    Detectors have run once: they set things up in their first run that later ones find.

    Raises:
        CannotMeasureError: it does not fit onto the device.
    """
    model, inputs = model_and_inputs(operator, device)
    if is_data_dependent(operator.short_name):
        run_once(model, inputs)
    return model, inputs


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


@contextmanager
def _workload(subject: Subject, device: str, execution: str, cache: str, filler: Filler | None) -> Iterator[Workload]:
    """Build a workload while the device is kept at work, and let that go on afterwards."""
    eager = _eager_workload(subject, device, cache)
    if filler is not None:
        filler.pause()
    try:
        yield as_graph(eager) if execution == GRAPH else eager
    finally:
        if filler is not None:
            filler.resume()


def _eager_workload(subject: Subject, device: str, cache: str) -> EagerWorkload:
    if is_model(subject.operator):
        model, inputs = model_and_inputs(subject.operator, device)
        return EagerWorkload(lambda: model(*inputs), device)
    return operator_workload(subject.operator, device, subject.input_data, cache)


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


def _unavailable_reason(device: str, facts: DeviceFacts) -> str | None:
    """Return why no energy can be measured on a device, None if it can."""
    if device.startswith("cuda"):
        return MIG_REASON if facts.is_mig else None
    return rapl_unavailable_reason()


def open_meters(device: str, facts: DeviceFacts, logs: Path, stack: ExitStack) -> Meters:
    """Return the meters of a device, which log from here until the stack is closed.

    Raises:
        NvidiaSmiError: nvidia-smi does not log.
    """
    logs.mkdir(parents=True, exist_ok=True)
    reason = _unavailable_reason(device, facts)
    if reason is not None:
        return Meters(lambda _: NoMeter(reason))
    if not device.startswith("cuda"):
        return Meters(lambda log_name: RaplMeter(log_path=logs / f"{log_name}.csv"), names=(short_name(RAPL),))
    logger = stack.enter_context(NvidiaSmiLogger(str(facts.uuid), logs))
    gpu = _if_there(lambda: NvmlGpu.open(str(facts.uuid)))
    samples = counter = None
    if gpu is not None:
        stack.callback(gpu.close)
        samples = _if_there(partial(stack.enter_context, PowerSampler(gpu)))
        counter = _if_there(partial(stack.enter_context, CounterSampler(gpu)))

    def joined_meter(log_name: str, counter_source: PowerSource) -> Meter:
        meters: list[Meter] = [NvidiaSmiMeter(logger, log_name)]
        if counter is not None:
            meters.insert(0, CounterMeter(counter, logs, log_name, counter_source))
        if samples is not None:
            meters.insert(0, NvmlMeter(samples, logs, log_name))
        return JoinedMeter(meters)

    reads: dict[str, Callable[[], object]] = {}
    if gpu is not None and samples is not None:
        reads[SAMPLES] = partial(gpu.power_samples, 0.0)
    if gpu is not None and counter is not None:
        reads[COUNTER] = gpu.energy_j
    sources = [*reads, *sources_of(logger)]
    return Meters(
        meter=partial(joined_meter, counter_source=CAMPAIGN_SOURCE),
        all_meters=partial(joined_meter, counter_source=EVERY_TICK_SOURCE),
        names=tuple(map(short_name, sources)),
        read_times_s=lambda: {name: _mean_time_s(read) for name, read in reads.items()},
    )


def _mean_time_s(read: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    for _ in range(TIMED_READS):
        read()
    return (time.perf_counter() - begin_s) / TIMED_READS


def _if_there(opened: Callable[[], Sampler]) -> Sampler | None:
    """Return what NVML offers, None where it does not."""
    try:
        return opened()
    except NvmlError as error:
        logging.getLogger(__name__).info("one meter less: %s", error)
        return None


def _filled(meter: NamedMeter, filler: Filler | None, log_name: str) -> Meter:
    return meter(log_name) if filler is None else FilledMeter(meter(log_name), filler)


def _filler(device: str, stack: ExitStack) -> Filler | None:
    if not device.startswith("cuda"):
        return None
    filler = Filler(partial(additions, device))
    stack.callback(filler.close)
    return filler


def _other_processes(facts: DeviceFacts, stack: ExitStack) -> OtherProcesses | None:
    """Watch for others on a GPU, None where nothing tells of them.

    Raises:
        UserError: somebody is using it.
    """
    if facts.uuid is None:
        return None
    try:
        gpu = NvmlGpu.open(facts.uuid)
    except NvmlError:
        return None
    stack.callback(gpu.close)
    others = OtherProcesses(gpu, os.getpid())
    others.refuse_if_busy()
    return others


def _gpu_facts(device: str) -> DeviceFacts:
    properties = torch.cuda.get_device_properties(device)
    facts: GpuFacts = gpu_facts(f"GPU-{properties.uuid}")
    return DeviceFacts(
        uuid=facts.uuid,
        product=facts.product,
        memory_bytes=facts.memory_bytes or properties.total_memory,
        power_limit_w=facts.power_limit_w,
        driver_version=facts.driver_version,
        is_mig=facts.is_mig,
    )


def _cpu_facts() -> DeviceFacts:
    return DeviceFacts(None, cpu_product(), host_memory_bytes(), None, None)


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
        torchvision_version=torchvision.__version__,
        warm_up_s=protocol.warm_up_s,
        loop_s=protocol.loop_s if protocol.relative_error is None else None,
        relative_error=protocol.relative_error,
    )
