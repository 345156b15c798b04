"""The machine as opcost finds it: versions, devices and meters, shipped rows, folders. Nothing is measured."""

from __future__ import annotations

import platform
import shutil
import sys
from contextlib import closing
from dataclasses import dataclass

from opcost.invocation import command, pip_install
from opcost.meters import gpus as all_gpus
from opcost.meters.gpu_meters import counter_name
from opcost.meters.host import cpu_product
from opcost.meters.rapl import RaplSampler, rapl_unavailable_reason
from opcost.meters.vendor import GpuVendor
from opcost.power.ports import GpuError, short_name
from opcost.shipped import shipped_database, shipped_measurements
from opcost.storage.database import Database
from opcost.storage.files import UserFolders
from opcost.version import __version__, version_of


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
    python = platform.python_version(), sys.executable
    versions = Versions(__version__, *python, version_of("torch"), version_of("torchvision"))
    no_meter_reason = rapl_unavailable_reason()
    cpu_meters = () if no_meter_reason else (short_name(RaplSampler().source.name),)
    gpus: list[DeviceInfo] = []
    failures = []
    for vendor in all_gpus.VENDORS:
        try:
            found = vendor.uuids()
            gpus += [_gpu(vendor, uuid) for uuid in found]
            failures += [] if found else [GpuError(f"{vendor.library} lists no GPU")]
        except GpuError as error:
            failures.append(error)
    shipped, own = Database(shipped_database()), Database(folders.database)
    wholes = shipped.full_model_measurements.rows()
    step = NextStep(command("measure-models", "resnet18_32x3x32x32", "--seconds", "1"), "measure a small model here")
    if versions.torch is None:
        step = NextStep(pip_install("opcost[torch]"), "install torch, to count and measure")
    return Info(
        versions,
        DeviceInfo(cpu_product(), cpu_meters, no_meter_reason),
        tuple(gpus),
        None if gpus else str(all_gpus.likeliest_failure(failures)),
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


def _gpu(vendor: GpuVendor, uuid: str) -> DeviceInfo:
    meters, reasons = [], []
    facts = vendor.facts(uuid)
    with closing(vendor.open(uuid)) as gpu:
        for name, read in ((gpu.sample_source.name, lambda: gpu.power_samples(0.0)), (counter_name(gpu), gpu.energy_j)):
            try:
                read()
                meters.append(short_name(name))
            except GpuError as error:
                reasons.append(str(error))
    meters += [vendor.log_program] if vendor.log_program is not None and shutil.which(vendor.log_program) else []
    reason = None if meters else "; ".join(reasons)
    return DeviceInfo(facts.product, tuple(meters), reason, uuid, facts.driver_version)
