"""NVML: queries to the driver's library about one GPU, its buffer of power samples among them; its other processes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from opcost.errors import UserError

Answer = TypeVar("Answer")

HISTORY_S = 2.0
"""The shortest time that the buffer of samples covers: 119 samples of 20 ms on an H200 (``docs/log/meters.md``)."""

MOST_POWER_W = 10_000.0
"""Several times the power of any board. A driver without a value may report one with all bits set, or 0."""

MIG_REASON = "MIG is on: the power of one instance cannot be measured"

BUSY_RATIO = 0.05
"""Utilisation from which a GPU is in use before this process starts. An idle GPU reports 0."""

CALM_DEADLINE_S = 2.0
"""The longest time that a process that has ended may show in the utilisation, which covers the last second at most
(NVML reference)."""

POLL_INTERVAL_S = 0.1

NEEDED = (
    "NVMLError",
    "NVMLError_NotFound",
    "nvmlInit",
    "nvmlShutdown",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetSamples",
    "nvmlSystemGetDriverVersion",
)
"""Names that each nvidia-ml-py has. Other packages are named pynvml, too."""

REINSTALL = "`pip install --force-reinstall nvidia-ml-py` brings it, once that package is uninstalled"


class NvmlError(Exception):
    """NVML is missing or lacks a query; in one line. ``hides_gpu``: there may be a GPU, which a user would miss."""

    def __init__(self, message: str, hides_gpu: bool = False) -> None:
        super().__init__(message)
        self.hides_gpu = hides_gpu


class NvmlPermissionError(NvmlError):
    """This user has no right to do what was asked."""


class NvmlGpu:
    """One GPU, from ``NvmlGpu.open`` to ``close``. Each query raises NvmlError if the GPU or its driver lacks it."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def open(cls, uuid_or_index: str) -> NvmlGpu:
        """Return the GPU of this UUID, or of an index in NVML's order. Raises NvmlError: there is none."""
        library = _entered()
        try:
            if uuid_or_index.isdecimal():
                return cls(library, _asked(library, lambda: library.nvmlDeviceGetHandleByIndex(int(uuid_or_index))))
            return cls(library, _asked(library, lambda: library.nvmlDeviceGetHandleByUUID(uuid_or_index)))
        except NvmlError:
            _leave(library)
            raise

    def close(self) -> None:
        _leave(self._library)

    def ask(self, function: str, *arguments: int) -> Any:
        return _asked(self._library, lambda: getattr(self._library, function)(self._handle, *arguments))

    def energy_j(self) -> float:
        """Return the value of the energy counter, which is updated every 0.1 s on an H200."""
        return float(self.ask("nvmlDeviceGetTotalEnergyConsumption")) * 1e-3

    def is_mig(self) -> bool:
        """Return whether the GPU is divided into MIG instances; False if it does not report that."""
        try:
            return bool(self.ask("nvmlDeviceGetMigMode")[0])
        except NvmlError:
            return False

    def busy_ratio(self) -> float:
        """Return the share of the last moments in which a kernel ran."""
        percent = self.ask("nvmlDeviceGetUtilizationRates").gpu
        if percent > 100:
            raise NvmlError(f"NVML: a GPU in use {percent} % of the time")
        return float(percent) / 100

    def temperature_c(self) -> float:
        nvml = self._library
        return float(_asked(nvml, lambda: nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU)))

    def power_samples(self, after_epoch_s: float) -> list[tuple[float, float]]:
        """Return possible samples after a moment (epoch s, W), in any order. Raises NvmlError: none is possible."""
        nvml = self._library
        after_us = max(round(after_epoch_s * 1e6), 0)
        try:
            kind, samples = nvml.nvmlDeviceGetSamples(self._handle, nvml.NVML_TOTAL_POWER_SAMPLES, after_us)
        except nvml.NVMLError_NotFound:
            return []
        except nvml.NVMLError as error:
            raise NvmlError(f"NVML: {error}") from error
        if kind != nvml.NVML_VALUE_TYPE_UNSIGNED_INT:
            raise NvmlError(f"NVML: power samples of an unknown type ({kind})")
        powers_w = {s.timeStamp * 1e-6: s.sampleValue.uiVal * 1e-3 for s in samples if s.timeStamp > after_us}
        known = [(epoch_s, power_w) for epoch_s, power_w in powers_w.items() if is_power(power_w)]
        if powers_w and not known:
            raise NvmlError(f"NVML: impossible power samples of {max(powers_w.values()):g} W")
        return known


class OtherProcesses:
    """Watches processes that appear on a GPU after this object was created.

    In a container the driver may list processes by other ids than their own. The first new process is then taken to be
    this one.
    """

    def __init__(self, gpu: NvmlGpu, own_id: int) -> None:
        self._gpu = gpu
        self._own_id = own_id
        self._known = self._ids() | {own_id}
        self._has_alias = self._has_warned = False

    def refuse_if_busy(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Raise UserError if another process is using the GPU now."""
        for _ in range(round(CALM_DEADLINE_S / POLL_INTERVAL_S)):
            try:
                busy_ratio = self._gpu.busy_ratio()
            except NvmlError:
                return
            if busy_ratio <= BUSY_RATIO:
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
            return {process.pid for process in self._gpu.ask("nvmlDeviceGetComputeRunningProcesses")}
        except NvmlError:
            return set()


def gpu_products() -> dict[str, str]:
    """Return the product of each GPU that answers by UUID, in NVML's order. Raises NvmlError: none answers."""
    products, failures = {}, {}
    with _used() as library:
        for index in range(_asked(library, library.nvmlDeviceGetCount)):
            try:
                gpu = NvmlGpu(library, _asked(library, partial(library.nvmlDeviceGetHandleByIndex, index)))
                products[gpu.ask("nvmlDeviceGetUUID")] = gpu.ask("nvmlDeviceGetName")
            except NvmlError as error:
                failures[index] = error
    if failures and not products:
        raise next(iter(failures.values()))
    for index, failure in failures.items():
        logging.getLogger(__name__).warning("GPU %d is left out: %s", index, failure)
    return products


def names_mig(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether the first device that CUDA shows is a MIG instance; CUDA shows no further one then."""
    return (_shown_by_cuda(environment) or "").strip().startswith("MIG-")


def visible_gpus(environment: Mapping[str, str] | None = None) -> tuple[dict[str, str], NvmlError | None]:
    """Return the UUID of each GPU that a program may use by its name ``cuda:N``, and why there are none.

    Without ``CUDA_VISIBLE_DEVICES`` N is NVML's order, that of the PCI bus. CUDA's own order differs from it where
    GPUs of several kinds are in one machine and ``CUDA_DEVICE_ORDER`` is not ``PCI_BUS_ID``.
    """
    try:
        uuids = list(gpu_products())
    except NvmlError as error:
        return {}, error
    if names_mig(environment):
        return {}, NvmlError(f"CUDA_VISIBLE_DEVICES names a MIG instance: {MIG_REASON}", hides_gpu=True)
    names = _shown_by_cuda(environment)
    chosen = uuids if names is None else []
    # A GPU is named by index or the begin of its UUID; CUDA shows those before the first unknown name.
    for name in () if names is None else (name.strip() for name in names.split(",")):
        known = [uuid for index, uuid in enumerate(uuids) if name and (name == str(index) or uuid.startswith(name))]
        if not known:
            break
        chosen.append(known[0])
    if not chosen:
        return {}, NvmlError("no GPU is visible" if uuids else "NVML knows no GPU")
    return {f"cuda:{number}": uuid for number, uuid in enumerate(chosen)}, None


def driver_version() -> str:
    """Return the version of the NVIDIA driver. Raises NvmlError: there is no NVML."""
    with _used() as library:
        return str(_asked(library, library.nvmlSystemGetDriverVersion))


def is_power(power_w: float) -> bool:
    """Return whether a GPU can draw this power."""
    return 0 < power_w < MOST_POWER_W


def _entered() -> Any:
    """Return the library, entered once more. Raises NvmlError: there is no NVML, or another package has its name."""
    try:
        import pynvml
    except ImportError as error:
        raise NvmlError("nvidia-ml-py is not installed") from error
    except Exception as error:
        text = f"the module pynvml cannot be imported ({type(error).__name__}); {REINSTALL}"
        raise NvmlError(text, hides_gpu=True) from error
    missing = [name for name in NEEDED if not hasattr(pynvml, name)]
    if missing:
        place = getattr(pynvml, "__file__", "of no file")
        text = f"the module pynvml ({place}) has no {missing[0]}: it is not NVIDIA's; {REINSTALL}"
        raise NvmlError(text, hides_gpu=True)
    _asked(pynvml, pynvml.nvmlInit)
    return pynvml


def _shown_by_cuda(environment: Mapping[str, str] | None) -> str | None:
    return (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")


@contextmanager
def _used() -> Iterator[Any]:
    library = _entered()
    try:
        yield library
    finally:
        _leave(library)


def _asked(library: Any, question: Callable[[], Answer]) -> Answer:
    # This error of newer versions of pynvml means that a function is newer than the installed NVML.
    mismatch = getattr(library, "NVMLLibraryMismatchError", library.NVMLError)
    try:
        return question()
    except AttributeError as error:
        raise NvmlError(f"NVML: {error}") from error
    except (library.NVMLError, mismatch) as error:
        # pynvml makes the classes of its errors as it is imported; a stand-in for it may have none of this one.
        is_refused = isinstance(error, getattr(library, "NVMLError_NoPermission", ()))
        raise (NvmlPermissionError if is_refused else NvmlError)(f"NVML: {error}") from error


def _leave(library: Any) -> None:
    # A failure here, as after the loss of a GPU, affects no measurement.
    with suppress(library.NVMLError):
        library.nvmlShutdown()
