"""Commands that meter devices and programs. ``opcost power`` runs where nothing is installed."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path

from opcost.errors import UserError
from opcost.power.log_rows import COLUMNS, PowerRow, PowerSummary, csv_line
from opcost.reporting.output import print_json


def power(arguments: Namespace) -> int:
    """Log until Ctrl-C or for ``--seconds``, follow a program, or plot a log; return 0, or a command's exit status."""
    _check_gpu(arguments)
    if arguments.command or arguments.pid is not None:
        return _follow(arguments)
    if arguments.figure is not None:
        raise UserError("--figure draws a followed program: add -- COMMAND or --pid; --plot draws a log")
    if arguments.plot is None:
        return _log(arguments)
    if arguments.interval or arguments.seconds or arguments.gpu or arguments.json:
        raise UserError("--plot draws a log; leave --interval, --seconds, --gpu and --json out")

    from opcost.reporting.power_traces import plot_log

    _report(f"{plot_log(arguments.plot, arguments.output)}: the trace of {arguments.plot}")
    return 0


def _check_gpu(arguments: Namespace) -> None:
    if arguments.gpu is not None and arguments.device != "cuda":
        raise UserError(f"--gpu and --device {arguments.device} exclude each other; leave --gpu out")


def _log(arguments: Namespace) -> int:
    """Write rows as they arrive, until Ctrl-C, SIGTERM or the end of a time."""
    from opcost.reporting.power_traces import shown

    path = _new_file(arguments)
    stopping, summary = threading.Event(), PowerSummary()
    gpu = None if arguments.device == "cpu" else arguments.gpu or _gpu_of(arguments.device)
    with closing(_batches_of(gpu, arguments.interval, path.parent, stopping)) as batches:
        # The first batch comes when the meter runs: before that there is nothing to write, and Ctrl-C is an interrupt.
        first = next(batches, ())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, lambda *_: stopping.set())
        if arguments.seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, min(arguments.seconds, threading.TIMEOUT_MAX))
        _report(f"logging {'the CPU' if gpu is None else f'GPU {gpu}'} to {path}; Ctrl-C ends it")
        try:
            with path.open("x", encoding="utf-8", buffering=1) as file:
                file.write(",".join(COLUMNS) + "\n")
                for rows in itertools.chain([first], shown(batches)):
                    file.writelines(csv_line(row) + "\n" for row in rows)
                    summary.add_all(rows)
        finally:
            _report(f"{path}: {summary}")
            if arguments.json:
                print_json({"file": str(path), "device": arguments.device, "gpu": gpu, **summary.figures})
    return 0


def _gpu_of(device: str) -> str:
    """Return the driver's name of ``cuda`` or ``cuda:N``; N counts those of ``CUDA_VISIBLE_DEVICES``, as in torch."""
    number = int(device.partition(":")[2] or 0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return str(number)
    gpus = [gpu.strip() for gpu in visible.split(",") if gpu.strip()]
    if number >= len(gpus):
        raise UserError(f"--device {device}: CUDA_VISIBLE_DEVICES has {len(gpus)} GPUs; name one of these, or unset it")
    return gpus[number]


def _batches_of(
    gpu: str | None, interval_s: float | None, folder: Path, stopping: threading.Event
) -> Generator[tuple[PowerRow, ...], None, None]:
    """Yield the rows of a GPU, named as its driver does, or of the CPU (None), until ``stopping`` is set."""
    if gpu is not None:
        from opcost.meters.gpus import log_batches
        from opcost.power.ports import GpuError

        try:
            yield from log_batches(gpu, folder, interval_s, stopping)
        except GpuError as error:
            raise UserError(f"{error}; or log the CPU with --device cpu") from error
        return
    # It imports numpy; a GPU can be logged before anything is installed.
    from opcost.meters import rapl

    if (reason := rapl.rapl_unavailable_reason()) is not None:
        raise UserError(reason)
    yield from rapl.sample_batches(interval_s, stopping)


def _follow(arguments: Namespace) -> int:
    if arguments.seconds or arguments.gpu or arguments.plot:
        raise UserError("a followed program has its own length and devices; leave --seconds, --gpu and --plot out")
    if arguments.command and arguments.pid is not None:
        raise UserError(f"--pid {arguments.pid}: leave it out, or the command; one program is followed")

    from opcost.reporting.power_traces import check_figure, draw_followed, show_line, summary_lines
    from opcost.stages.follow_power import Target, follow

    path = _new_file(arguments)
    if arguments.figure is not None:
        check_figure(arguments.figure)
    devices = None if arguments.device == "cuda" else [arguments.device]
    target = Target(tuple(arguments.command), arguments.pid)
    report = follow(target, devices, path, arguments.interval, show_line)
    for line in summary_lines(report):
        _report(line)
    if arguments.figure is not None:
        try:
            _report(str(draw_followed(path, arguments.figure)))
        except Exception as error:
            # The status is that of the command, whatever the log holds.
            _report(f"no figure {arguments.figure}: {error}")
    if arguments.json:
        print_json(report)
    return report.exit_status or 0


def _new_file(arguments: Namespace) -> Path:
    path: Path = arguments.output or Path(time.strftime("power_log_%Y%m%dT%H%M%SZ.csv", time.gmtime()))
    if path.exists() or not path.parent.is_dir():
        raise UserError(f"--output {path}: must be a new file in a folder that exists")
    return path


def _report(line: str) -> None:
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def qualify(arguments: Namespace) -> None:
    if arguments.device == "cpu":
        raise UserError("--device cpu: a CPU has no second meter to compare with; name a GPU")
    _check_gpu(arguments)

    from opcost.reporting.measurement_tables import print_qualification
    from opcost.running.apparatus import open_apparatus
    from opcost.running.devices import device_of_gpu
    from opcost.running.qualification import qualify_meters
    from opcost.running.request import Request

    database = Request.from_arguments(arguments).database
    device = device_of_gpu(arguments.gpu) if arguments.gpu else arguments.device
    with open_apparatus(device, database) as apparatus:
        print("qualifying the meters: about 30 s", file=sys.stderr, flush=True)
        print_qualification(qualify_meters(apparatus, database.meter_qualifications))
