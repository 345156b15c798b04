"""The power logger: writes the rows of a meter to a file as they arrive."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from opcost.errors import UserError
from opcost.meters import nvidia_smi
from opcost.meters.nvidia_smi import NvidiaSmiError
from opcost.power.log_rows import PowerRow, PowerSummary, csv_header, csv_line

Batches: TypeAlias = Generator[tuple[PowerRow, ...], None, None]


@dataclass(frozen=True)
class PowerLogReport:
    """A finished log; figures are None if no row has a power.

    ``gpu`` is nvidia-smi's index or UUID, None for the CPU. ``energy_j`` is mean power times duration.
    """

    file: str
    device: str
    gpu: str | None
    rows: int
    value_changes: int
    duration_s: float
    mean_power_w: float | None
    minimum_power_w: float | None
    maximum_power_w: float | None
    energy_j: float | None

    @staticmethod
    def of(summary: PowerSummary, file: Path, device: str, gpu: str | None) -> PowerLogReport:
        """Return the report of a summary."""
        return PowerLogReport(
            str(file),
            device,
            gpu,
            summary.rows,
            summary.value_changes,
            summary.duration_s,
            summary.mean_power_w,
            summary.minimum_power_w,
            summary.maximum_power_w,
            summary.energy_j,
        )


def gpu_of(device: str, environment: Mapping[str, str] | None = None) -> str:
    """Return nvidia-smi's index or UUID of the device ``cuda`` or ``cuda:N``, without torch.

    As in torch, N counts the GPUs of ``CUDA_VISIBLE_DEVICES`` if that is set.

    Raises:
        UserError: there are not so many visible GPUs.
    """
    number = int(device.partition(":")[2] or 0)
    visible = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return str(number)
    gpus = [gpu.strip() for gpu in visible.split(",") if gpu.strip()]
    if number >= len(gpus):
        raise UserError(f"--device {device}: CUDA_VISIBLE_DEVICES has {len(gpus)} GPUs; name one of these, or unset it")
    return gpus[number]


def gpu_batches(gpu: str, interval_s: float | None, folder: Path, stopping: threading.Event) -> Batches:
    """Yield the rows of a GPU until ``stopping`` is set.

    Raises:
        UserError: nvidia-smi does not start, or has ended before the stop.
    """
    try:
        yield from nvidia_smi.log_batches(gpu, folder, interval_s or nvidia_smi.INTERVAL_S, stopping)
    except NvidiaSmiError as error:
        raise UserError(f"{error}; or log the CPU with --device cpu") from error


def cpu_batches(interval_s: float | None, stopping: threading.Event) -> Batches:
    """Yield the rows of the CPU until ``stopping`` is set.

    Raises:
        UserError: its counters cannot be read.
    """
    # It imports numpy; a GPU can be logged before anything is installed.
    from opcost.meters import rapl

    if (reason := rapl.rapl_unavailable_reason()) is not None:
        raise UserError(reason)
    yield from rapl.sample_batches(interval_s or rapl.INTERVAL_S, stopping)


def stop_on_signals(stopping: threading.Event, after_s: float | None) -> None:
    """Set an event on Ctrl-C, on SIGTERM, or after a time in s."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, lambda *_: stopping.set())
    if after_s is not None:
        signal.setitimer(signal.ITIMER_REAL, min(after_s, threading.TIMEOUT_MAX))


def write_rows(batches: Iterable[tuple[PowerRow, ...]], path: Path, summary: PowerSummary) -> None:
    """Write rows to a new file as they arrive, and count them in a summary."""
    with path.open("x", encoding="utf-8", buffering=1) as file:
        file.write(csv_header() + "\n")
        for rows in batches:
            file.writelines(csv_line(row) + "\n" for row in rows)
            summary.add_all(rows)
