"""All GPUs: the vendors, the vendor that knows a GPU, and what is asked of any. Imports neither numpy nor torch."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from opcost.errors import UserError
from opcost.meters.amd_smi import AmdSmi
from opcost.meters.nvml import Nvidia
from opcost.meters.vendor import GpuVendor
from opcost.power.log_rows import PowerRow
from opcost.power.ports import DeviceFacts, Gpu, GpuError, GpuLog

Answer = TypeVar("Answer")

VENDORS: tuple[GpuVendor, ...] = (Nvidia(), AmdSmi())
"""The first one that knows a GPU is asked."""

BUSY_RATIO = 0.05
"""Utilisation from which a GPU is in use before this process starts. An idle GPU reports 0."""

CALM_DEADLINE_S = 2.0
"""The longest time that a process that has ended may show in the utilisation, which covers the last second at most
(NVML reference)."""

POLL_INTERVAL_S = 0.1

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
"""The environment variable that says which NVIDIA GPUs a process sees."""


def _first(question: Callable[[GpuVendor], Answer]) -> Answer:
    """Return the first answer. Raises GpuError: no vendor answers."""
    failures = []
    for vendor in VENDORS:
        try:
            return question(vendor)
        except GpuError as error:
            failures.append(error)
    raise likeliest_failure(failures)


def likeliest_failure(failures: Sequence[GpuError]) -> GpuError:
    """Return the failure of a vendor whose GPU may be there, else that of the first vendor."""
    return next((failure for failure in failures if failure.hides_gpu), failures[0])


def open_gpu(uuid_or_index: str) -> Gpu:
    """Return the GPU of this UUID, or of an index in its library's order. Raises GpuError: there is none."""
    return _first(lambda vendor: vendor.open(uuid_or_index))


def open_limit(uuid: str) -> Gpu:
    """Return the GPU whose power limit is set. Raises GpuError: as ``open_gpu``, or parts of it share the limit."""
    gpu = open_gpu(uuid)
    reason = gpu.no_energy_reason()
    if reason is not None:
        gpu.close()
        raise GpuError(f"its parts share one power limit ({reason})")
    return gpu


def gpu_facts(uuid_or_index: str) -> DeviceFacts:
    """Return the properties of a GPU. Raises GpuError: nothing answers, or knows it."""
    return _first(lambda vendor: vendor.facts(uuid_or_index))


def uuid_named(uuid_or_index: str) -> str:
    """Return the UUID of a GPU that a user names. Raises GpuError: there is none."""
    return _first(lambda vendor: vendor.uuid_named(uuid_or_index))


def open_log(uuid_or_index: str, folder: Path, interval_s: float | None, stack: ExitStack) -> GpuLog:
    """Log a GPU until the stack is closed, as often as usual for None. Raises GpuError: there is no log."""
    return _first(lambda vendor: stack.enter_context(vendor.log(uuid_or_index, folder, interval_s)))


def uuid_in_torch(torch: Any, index: int) -> str:
    """Return the UUID of a GPU that torch numbers. Raises GpuError: its vendor does not know it."""
    return _vendor_of(torch).uuid_of(torch.cuda.get_device_properties(index))


def gpus_in_torch(torch: Any) -> dict[str, str]:
    """Return the UUIDs of torch's GPUs by their names. Raises GpuError: as ``uuid_in_torch``, or one is a part."""
    _vendor_of(torch).check_visible(os.environ)
    return {f"cuda:{index}": uuid_in_torch(torch, index) for index in range(torch.cuda.device_count())}


def visible_gpus(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the UUID of each GPU that a program may use by its name ``cuda:N``. Raises GpuError: there are none."""
    uuids = _first(lambda vendor: vendor.visible(environment))
    return {f"cuda:{number}": uuid for number, uuid in enumerate(uuids)}


def see_only(device: str | None, environment: MutableMapping[str, str]) -> str | None:
    """Leave torch, which is not imported yet, only one of several NVIDIA GPUs to see, and return its name there.

    Some calls use CUDA's current device, which is the first one in each new thread. A process that works on another GPU
    came to the first one, too, and its rows were flagged (31 of 36 on two H200s). Other devices are returned as they
    are.
    """
    try:
        names = [f"cuda:{number}" for number, _ in enumerate(VENDORS[0].visible(environment))]
    except GpuError:
        return device
    if device not in names[1:]:
        return device
    number, seen = names.index(device), environment.get(VISIBLE_DEVICES)
    environment[VISIBLE_DEVICES] = seen.split(",")[number] if seen else str(number)
    return "cuda:0"


def _vendor_of(torch: Any) -> GpuVendor:
    return next((vendor for vendor in VENDORS if vendor.is_of(torch)), VENDORS[0])


def log_batches(
    gpu: str, folder: Path, interval_s: float | None, stopping: threading.Event
) -> Generator[tuple[PowerRow, ...], None, None]:
    """Yield a GPU's rows until ``stopping`` is set. Raises GpuError: its log does not start or ends before."""
    with ExitStack() as stack:
        log = open_log(gpu, folder, interval_s, stack)
        while not stopping.wait(min(log.batch_interval_s, threading.TIMEOUT_MAX)):
            failure = log.failure()
            yield log.read()
            if failure is not None:
                raise GpuError(failure)
        yield log.finish()


class OtherProcesses:
    """Watches processes that appear on a GPU after this object was created.

    In a container the driver may list processes by other ids than their own. The first new process is then taken to be
    this one.
    """

    def __init__(self, gpu: Gpu, own_id: int) -> None:
        self._gpu = gpu
        self._own_id = own_id
        self._known = self._ids() | {own_id}
        self._has_alias = self._has_warned = False

    def refuse_if_busy(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Raise UserError if another process is using the GPU now."""
        for _ in range(round(CALM_DEADLINE_S / POLL_INTERVAL_S)):
            busy_ratio = self._gpu.state().utilisation_ratio
            if busy_ratio is None or busy_ratio <= BUSY_RATIO:
                return
            pause(POLL_INTERVAL_S)
        ids = ", ".join(map(str, sorted(self._known - {self._own_id}))) or "unknown to the driver"
        raise UserError(
            f"the GPU is in use {busy_ratio:.0%} of the time (processes: {ids}); wait until they have ended, or name "
            "another --device"
        )

    def disturbance(self) -> str:
        """Return a note on new processes on the GPU, empty if there are none; log a warning the first time."""
        ids = self._ids()
        newcomers = sorted(ids - self._known)
        if len(newcomers) == 1 and self._own_id not in ids and not self._has_alias:
            self._has_alias = True
            self._known |= ids
            return ""
        if not newcomers:
            return ""
        note = f"another process used the GPU: {' or '.join(map(str, newcomers))}"
        if not self._has_warned:
            logging.getLogger(__name__).warning("%s; affected measurements are flagged and repeated", note)
            self._has_warned = True
        return note

    def _ids(self) -> set[int]:
        try:
            return self._gpu.process_ids()
        except GpuError:
            return set()
