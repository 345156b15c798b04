"""The machine as opcost finds it: versions, devices and meters, shipped rows, folders. Nothing is measured."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from opcost.invocation import command, pip_install
from opcost.meters.host import cpu_product
from opcost.meters.nvml import NvmlError, NvmlGpu, driver_version, gpu_products
from opcost.meters.rapl import RaplSampler, rapl_unavailable_reason
from opcost.power.ports import COUNTER, SAMPLES, short_name
from opcost.shipped import shipped_database, shipped_measurements
from opcost.storage.database import Database
from opcost.storage.files import UserFolders
from opcost.version import __version__

NVIDIA_SMI = "nvidia-smi"
SMALL_MODEL = "resnet18_32x3x32x32"


@dataclass(frozen=True)
class Versions:
    """Versions of opcost and of what it runs on; None if torch or torchvision is not installed."""

    opcost: str
    python: str
    executable: str
    torch: str | None
    torchvision: str | None


@dataclass(frozen=True)
class DeviceInfo:
    """A device with the short names of its meters, or the reason why it has none. A CPU has no UUID and no driver."""

    product: str
    meters: tuple[str, ...]
    no_meter_reason: str | None = None
    uuid: str | None = None
    driver_version: str | None = None


@dataclass(frozen=True)
class ShippedInfo:
    """The shipped rows: their folders, the number of rows of operators, of models, and the devices measured."""

    database: str
    measurements: str
    rows: int
    models: int
    devices: tuple[str, ...]


@dataclass(frozen=True)
class OwnInfo:
    """The folders that commands write, the number of rows of operators there, and whether shipped files are read."""

    database: str
    measurements: str
    rows: int
    shipped_models_are_read: bool
    shipped_rows_are_read: bool


@dataclass(frozen=True)
class NextStep:
    """A command, and its purpose."""

    command: str
    purpose: str


@dataclass(frozen=True)
class Info:
    """All findings. ``no_gpu_reason`` is None if there is a GPU."""

    versions: Versions
    cpu: DeviceInfo
    gpus: tuple[DeviceInfo, ...]
    no_gpu_reason: str | None
    shipped: ShippedInfo
    own: OwnInfo
    next_steps: tuple[NextStep, ...]


def find_info(folders: UserFolders) -> Info:
    """Return what is found, without torch and in less than a second."""
    versions = Versions(
        __version__, platform.python_version(), sys.executable, _version("torch"), _version("torchvision")
    )
    no_meter_reason = rapl_unavailable_reason()
    cpu_meters = () if no_meter_reason else (short_name(RaplSampler().source.name),)
    try:
        products, driver = gpu_products(), driver_version()
        gpus = tuple(_gpu(uuid, product, driver) for uuid, product in products.items())
        no_gpu_reason = None if gpus else "NVML lists no GPU"
    except NvmlError as error:
        gpus, no_gpu_reason = (), str(error)
    shipped, own = Database(shipped_database()), Database(folders.database)
    wholes = shipped.full_model_measurements.rows()
    step = NextStep(command("measure-models", SMALL_MODEL, "--seconds", "1"), "measure a small model here")
    if versions.torch is None:
        step = NextStep(pip_install("opcost[torch]"), "install torch, to count and measure")
    return Info(
        versions,
        DeviceInfo(cpu_product(), cpu_meters, no_meter_reason),
        gpus,
        no_gpu_reason,
        ShippedInfo(
            database=str(shipped.folder),
            measurements=str(shipped_measurements()),
            rows=shipped.operator_measurements.lines(),
            models=len({(row.operator, row.inputs) for row in wholes}),
            devices=tuple(sorted({row.conditions.device_product for row in wholes})),
        ),
        OwnInfo(
            database=str(folders.database.absolute()),
            measurements=str(folders.measurements.absolute()),
            rows=own.operator_measurements.lines(),
            shipped_models_are_read=folders.shipped_measurements is not None,
            shipped_rows_are_read=folders.shipped_database is not None,
        ),
        (step, NextStep(command("show"), "rank the shipped models by energy")),
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _gpu(uuid: str, product: str, driver: str) -> DeviceInfo:
    gpu = NvmlGpu.open(uuid)
    try:
        reads: dict[str, Callable[[], object]] = {SAMPLES: partial(gpu.power_samples, 0.0), COUNTER: gpu.energy_j}
        meters, reasons = [], []
        for source, read in reads.items():
            try:
                read()
                meters.append(short_name(source))
            except NvmlError as error:
                reasons.append(str(error))
    finally:
        gpu.close()
    meters += [NVIDIA_SMI] * bool(shutil.which(NVIDIA_SMI))
    return DeviceInfo(product, tuple(meters), None if meters else "; ".join(reasons), uuid, driver)
