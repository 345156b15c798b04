"""Log power to a file, or plot such a log."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from argparse import Namespace
from contextlib import closing, suppress
from pathlib import Path

from opcost.command.log import log_run
from opcost.command.options import (
    FOLLOWED_COMMAND,
    FOLLOWED_FIGURE,
    FOLLOWED_PID,
    GPU_NUMBER,
    INTERVAL,
    JSON_OBJECT,
    LENGTH,
    LOG_FILE,
    METERED_DEVICE,
    PLOT,
    VERBOSE,
)
from opcost.command.subcommand import Subcommand
from opcost.errors import UserError
from opcost.power.log_rows import PowerSummary


def power(arguments: Namespace) -> int:
    """Log until Ctrl-C or for ``--seconds``, follow a program, or plot a log; return 0, or a command's exit status."""
    check_gpu(arguments)
    log_run(arguments.verbose)
    if arguments.command or arguments.pid is not None:
        return _follow(arguments)
    if arguments.figure is not None:
        raise UserError("--figure draws a followed program: add -- COMMAND or --pid; --plot draws a log")
    if arguments.plot is None:
        return _log(arguments)
    if arguments.interval or arguments.seconds or arguments.gpu or arguments.json:
        raise UserError("--plot draws a log; leave --interval, --seconds, --gpu and --json out")

    from opcost.reporting.power_plot import plot_log

    _report(f"{plot_log(arguments.plot, arguments.output)}: the trace of {arguments.plot}")
    return 0


def check_gpu(arguments: Namespace) -> None:
    """Refuse two names of a device."""
    if arguments.gpu is not None and arguments.device != "cuda":
        raise UserError(f"--gpu and --device {arguments.device} exclude each other; leave --gpu out")


def _log(arguments: Namespace) -> int:
    from opcost.reporting.json_object import print_json_object
    from opcost.reporting.live_power import shown
    from opcost.stages.log_power import PowerLogReport, cpu_batches, gpu_batches, gpu_of, stop_on_signals, write_rows

    path = _new_file(arguments)
    stopping, summary = threading.Event(), PowerSummary()
    gpu = None if arguments.device == "cpu" else arguments.gpu or gpu_of(arguments.device)
    meter = (arguments.interval, stopping) if gpu is None else (gpu, arguments.interval, path.parent, stopping)
    with closing(cpu_batches(*meter) if gpu is None else gpu_batches(*meter)) as batches:
        # The first batch comes when the meter runs: before that there is nothing to write, and Ctrl-C is an interrupt.
        first = next(batches, ())
        stop_on_signals(stopping, arguments.seconds)
        _report(f"logging {'the CPU' if gpu is None else f'GPU {gpu}'} to {path}; Ctrl-C ends it")
        try:
            write_rows(itertools.chain([first], shown(batches)), path, summary)
        finally:
            _report(f"{path}: {summary}")
            if arguments.json:
                print_json_object(PowerLogReport.of(summary, path, arguments.device, gpu))
    return 0


def _follow(arguments: Namespace) -> int:
    """Follow a command or a process; return the command's exit status, 0 for a process."""
    if arguments.seconds or arguments.gpu or arguments.plot:
        raise UserError("a followed program has its own length and devices; leave --seconds, --gpu and --plot out")
    if arguments.command and arguments.pid is not None:
        raise UserError(f"--pid {arguments.pid}: leave it out, or the command; one program is followed")
    from opcost.reporting.follow_summary import LiveLine, summary_lines
    from opcost.reporting.json_object import print_json_object
    from opcost.stages.follow_power import Target, follow

    path = _new_file(arguments)
    if arguments.figure is not None:
        # Before the program runs: matplotlib may be missing.
        from opcost.reporting.power_figure import check_figure

        check_figure(arguments.figure)
    devices = None if arguments.device == "cuda" else [arguments.device]
    target = Target(tuple(arguments.command), arguments.pid)
    report = follow(target, devices, path, arguments.interval, LiveLine().show)
    for line in summary_lines(report):
        _report(line)
    if arguments.figure is not None:
        from opcost.reporting.power_figure import draw

        try:
            _report(str(draw(path, arguments.figure)))
        except Exception as error:
            # The status is that of the command, whatever the log holds.
            _report(f"no figure {arguments.figure}: {error}")
    if arguments.json:
        print_json_object(report)
    return report.exit_status or 0


def _new_file(arguments: Namespace) -> Path:
    path: Path = arguments.output or Path(time.strftime("power_log_%Y%m%dT%H%M%SZ.csv", time.gmtime()))
    if path.exists() or not path.parent.is_dir():
        raise UserError(f"--output {path}: must be a new file in a folder that exists")
    return path


def _report(line: str) -> None:
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


POWER = Subcommand(
    name="power",
    does="log the power of a GPU (with nvidia-smi) or of the CPU (with RAPL) to a CSV file until Ctrl-C, or of all of "
    "them while a program runs",
    example="--output power.csv -- python train.py",
    options=(
        *(FOLLOWED_COMMAND, FOLLOWED_PID, FOLLOWED_FIGURE),
        *(METERED_DEVICE, GPU_NUMBER, INTERVAL, LOG_FILE, LENGTH, PLOT, JSON_OBJECT, VERBOSE),
    ),
    run=power,
    before=(("power", "--device cuda:0 --output power.csv --seconds 60"),),
)
