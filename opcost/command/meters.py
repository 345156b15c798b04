"""Commands that meter devices and programs, and set power caps."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.errors import UserError
from opcost.measuring.setting import Setting
from opcost.metering.cap_objectives import Objective, Wish
from opcost.metering.cap_rows import PowerCapRow
from opcost.meters.power_limit_setting import NvmlPowerLimit
from opcost.power.log_rows import PowerSummary
from opcost.power.ports import PowerLimitError
from opcost.reporting.json_object import print_json_object, print_object
from opcost.reporting.power_cap_tables import CapPlan, cap_sweep_object, plan_object, print_cap_plan, print_cap_sweep
from opcost.reporting.tables import print_files
from opcost.reporting.terminal import progress_on_stderr
from opcost.running.energy_sources import gpu_named
from opcost.running.guarded_limit import check_consent
from opcost.running.request import Request
from opcost.stages.power_cap import CapBoard, CapSweep, CapSweepPlan, CapWork, caps_below, sweep_caps
from opcost.stages.wanted_model import WantedModel
from opcost.storage.table import CsvTable

if TYPE_CHECKING:
    from opcost.storage.configs import ModelConfig


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
    from opcost.reporting.follow_summary import shown
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
    from opcost.stages.follow_power import Target, follow

    path = _new_file(arguments)
    if arguments.figure is not None:
        from opcost.reporting.power_traces import check_figure, draw_followed

        check_figure(arguments.figure)
    devices = None if arguments.device == "cuda" else [arguments.device]
    target = Target(tuple(arguments.command), arguments.pid)
    report = follow(target, devices, path, arguments.interval, LiveLine().show)
    for line in summary_lines(report):
        _report(line)
    if arguments.figure is not None:
        try:
            _report(str(draw_followed(path, arguments.figure)))
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


def qualify(arguments: Namespace) -> int:
    """Measure and print the qualities of a GPU's meters; return 0."""
    if arguments.device == "cpu":
        raise UserError("--device cpu: a CPU has no second meter to compare with; name a GPU")
    _check_gpu(arguments)

    from opcost.reporting.measurement_tables import print_qualification
    from opcost.running.apparatus import open_apparatus
    from opcost.running.devices import device_of_gpu
    from opcost.running.qualification import qualify_meters

    database = Request.from_arguments(arguments).database
    device = device_of_gpu(arguments.gpu) if arguments.gpu else arguments.device
    with open_apparatus(device, database) as apparatus:
        print("qualifying the meters: about 30 s", file=sys.stderr, flush=True)
        print_qualification(qualify_meters(apparatus, database.meter_qualifications))
    return 0


def power_cap(arguments: Namespace) -> int:
    """Sweep the caps and print the proposal; return 0."""
    # argparse drops the dashes before a command.
    is_command = "--" in sys.argv
    if not arguments.work or (not is_command and len(arguments.work) > 1):
        raise UserError("power-cap: name one model, or a command after --, as in: power-cap -- python train.py")
    request = Request.from_arguments(arguments, Setting(execution=arguments.execution, meter=arguments.meter))
    if request.is_product and (is_command or not arguments.dry_run):
        raise UserError(f"--device {request.device}: not a GPU here; use cuda or cuda:N, or --dry-run with a model")
    if arguments.dry_run:
        plan = _cap_plan(request, arguments, None if is_command else _config(request, arguments))
        print_object(plan_object(plan)) if arguments.json else print_cap_plan(plan)
        return 0
    # First, since a model's source may import torch.
    device, uuid = gpu_named(request.device)
    check_consent(arguments.allow_power_limit)
    board = CapBoard(device, uuid, partial(NvmlPowerLimit.open, uuid))
    _check_cap_files(arguments)
    sweep = _swept(request, arguments, board, None if is_command else _config(request, arguments))
    print_object(cap_sweep_object(sweep)) if arguments.json else print_cap_sweep(sweep)
    if arguments.figure is not None:
        from opcost.reporting.figures import draw_cap_sweep

        print_files("figure", [draw_cap_sweep(sweep, arguments.figure)])
    return 0


def _config(request: Request, arguments: Namespace) -> ModelConfig:
    from opcost.stages.model_layers import config_of

    wanted = WantedModel.from_arguments(Namespace(**{**vars(arguments), "model": arguments.work[0]}))
    return config_of(request, wanted)


def _check_cap_files(arguments: Namespace) -> None:
    """Refuse files that could not be written at the end, before anything runs."""
    if arguments.figure is not None:
        from opcost.reporting.power_traces import check_figure

        check_figure(arguments.figure)
    if arguments.output is not None:
        if not arguments.output.parent.is_dir():
            raise UserError(f"--output {arguments.output}: there is no folder {arguments.output.parent}; make it")
        CsvTable(arguments.output, PowerCapRow).prepare()


def _sweep_plan(arguments: Namespace, is_command: bool) -> CapSweepPlan:
    seed = random.SystemRandom().getrandbits(32)
    wish = Wish(Objective(arguments.objective), arguments.max_slowdown)
    return CapSweepPlan(wish, arguments.repetitions or (1 if is_command else 2), seed)


def _swept(request: Request, arguments: Namespace, board: CapBoard, config: ModelConfig | None) -> CapSweep:
    """Set caps and measure.

    Raises:
        UserError: there is no right to set caps, or the work fails.
    """
    from opcost.running.device_lock import device_lock
    from opcost.stages.cap_models import CommandWork

    open_work: Callable[[], AbstractContextManager[CapWork]]
    if config is None:
        # A campaign that measures on this board would be disturbed; the command itself may be one.
        with device_lock(board.uuid):
            pass
        open_work = partial(_opened, CommandWork(tuple(arguments.work), board.device))
    else:
        from opcost.running.sweep_bench import open_sweep_bench
        from opcost.stages.cap_models import open_model

        request = replace(request, device=board.device)
        open_work = partial(open_model, request, config, board.uuid, arguments.seconds, open_sweep_bench)
    tables = [request.database.power_caps]
    tables += [] if arguments.output is None else [CsvTable(arguments.output, PowerCapRow)]
    for table in tables:
        table.prepare()

    def keep(row: PowerCapRow) -> None:
        for table in tables:
            table.append(row)

    return sweep_caps(board, open_work, _sweep_plan(arguments, config is None), keep, progress_on_stderr())


def _opened(work: CapWork) -> AbstractContextManager[CapWork]:
    """Return a work that needs no opening."""
    return nullcontext(work)


def _cap_plan(request: Request, arguments: Namespace, config: ModelConfig | None) -> CapPlan:
    plan = _sweep_plan(arguments, config is None)
    known = takes_s = None
    if config is not None:
        from opcost.stages.cap_models import at_full_clocks, expected_s

        known = at_full_clocks(request.database, config, request.device)
        takes_s = expected_s(plan.most_measurements, arguments.seconds)
    found_w = caps = None
    device = str(request.device) if request.is_product else "cuda:0"
    if not request.is_product:
        try:
            device, uuid = gpu_named(request.device)
            limit = NvmlPowerLimit.open(uuid)
            found_w, lowest_w = limit.read_w(), limit.range_w().lowest_w
            caps = caps_below(lowest_w, found_w, None if known is None else known.power_w)
            limit.close()
        except PowerLimitError as error:
            raise UserError(f"{device}: its power limits cannot be read: {error}") from error
        except UserError:
            # Without a GPU the rows of a model say what is known.
            if config is None:
                raise
    return CapPlan(
        work=" ".join(arguments.work) if config is None else config.name,
        device=device if known is None or found_w is not None else known.conditions.device_product,
        found_limit_w=found_w,
        caps_w=caps,
        repetitions=plan.repetitions,
        measurements=plan.most_measurements,
        expected_s=takes_s,
        known=known,
    )
