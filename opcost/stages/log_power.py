"""The power logger: writes the rows of a meter as they arrive. A GPU is logged before anything is installed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TypeAlias

from opcost.errors import UserError
from opcost.meters import nvidia_smi
from opcost.meters.nvidia_smi import NvidiaSmiError
from opcost.power.log_rows import PowerRow, PowerSummary, csv_header, csv_line

Batches: TypeAlias = Generator[tuple[PowerRow, ...], None, None]


def gpu_of(device: str) -> str:
    """Return nvidia-smi's index or UUID of the device ``cuda`` or ``cuda:N``, without torch.

    As in torch, N counts the GPUs of ``CUDA_VISIBLE_DEVICES`` if that is set.

    Raises:
        UserError: there are not so many visible GPUs.
    """
    number = int(device.partition(":")[2] or 0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return str(number)
    gpus = [gpu.strip() for gpu in visible.split(",") if gpu.strip()]
    if number >= len(gpus):
        raise UserError(f"--device {device}: CUDA_VISIBLE_DEVICES has {len(gpus)} GPUs; name one of these, or unset it")
    return gpus[number]


def batches_of(gpu: str | None, interval_s: float | None, folder: Path, stopping: threading.Event) -> Batches:
    """Yield the rows of a GPU, named as nvidia-smi does, or of the CPU (None), until ``stopping`` is set.

    Raises:
        UserError: nvidia-smi does not start or has ended before the stop, or the CPU's counters cannot be read.
    """
    if gpu is not None:
        try:
            yield from nvidia_smi.log_batches(gpu, folder, interval_s or nvidia_smi.INTERVAL_S, stopping)
        except NvidiaSmiError as error:
            raise UserError(f"{error}; or log the CPU with --device cpu") from error
        return
    # It imports numpy.
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
