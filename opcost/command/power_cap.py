"""``opcost power-cap``: time and energy of a model or a command under power caps, and the cap to choose."""

from __future__ import annotations

import random
import sys
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

from opcost.errors import UserError
from opcost.metering.cap_rows import Objective, PowerCapRow, Wish
from opcost.meters.energy import gpu_named
from opcost.meters.gpus import open_limit
from opcost.power.ports import GpuError
from opcost.reporting import sweeps
from opcost.reporting.output import print_json
from opcost.reporting.power_traces import check_figure
from opcost.reporting.progress_lines import progress_on_stderr
from opcost.reporting.tables import print_files
from opcost.running.bench import open_child_bench
from opcost.running.device_lock import device_lock
from opcost.running.power_limit import check_consent
from opcost.running.request import RunRequest
from opcost.stages.cap_models import at_full_clocks, expected_s, open_model
from opcost.stages.power_cap import (
    CapBoard,
    CapSweep,
    CapSweepPlan,
    CapWork,
    CommandWork,
    OpenWork,
    caps_below,
    sweep_caps,
)
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import ModelConfig
from opcost.storage.table import CsvTable


def power_cap(arguments: Namespace) -> None:
    # argparse drops the dashes before a command.
    is_command = "--" in sys.argv
    if not arguments.work or (not is_command and len(arguments.work) > 1):
        raise UserError("power-cap: name one model, or a command after --, as in: power-cap -- python train.py")
    request = RunRequest.from_arguments(arguments)
    if request.is_product and (is_command or not arguments.dry_run):
        raise UserError(f"--device {request.device}: not a GPU here; use cuda or cuda:N, or --dry-run with a model")
    if arguments.dry_run:
        plan = _cap_plan(request, arguments, None if is_command else _config(request, arguments))
        print_json(sweeps.plan_object(plan)) if arguments.json else sweeps.print_cap_plan(plan)
        return
    # First, since a model's source may import torch.
    device, uuid = gpu_named(request.device)
    check_consent(arguments.allow_power_limit)
    board = CapBoard(device, uuid, partial(open_limit, uuid))
    # Refuse files that could not be written at the end, before anything runs.
    if arguments.figure is not None:
        check_figure(arguments.figure)
    if arguments.output is not None:
        if not arguments.output.parent.is_dir():
            raise UserError(f"--output {arguments.output}: there is no folder {arguments.output.parent}; make it")
        CsvTable(arguments.output, PowerCapRow).prepare()
    sweep = _swept(request, arguments, board, None if is_command else _config(request, arguments))
    print_json(sweeps.cap_sweep_object(sweep)) if arguments.json else sweeps.print_cap_sweep(sweep)
    if arguments.figure is not None:
        print_files("figure", [sweeps.draw_cap_sweep(sweep, arguments.figure)])


def _config(request: RunRequest, arguments: Namespace) -> ModelConfig:
    from opcost.stages.make_configs import config_of

    wanted = WantedModel.from_arguments(Namespace(**{**vars(arguments), "model": arguments.work[0]}))
    return config_of(request.folders, wanted, request.allow_code)


def _sweep_plan(arguments: Namespace, is_command: bool) -> CapSweepPlan:
    seed = random.SystemRandom().getrandbits(32)
    wish = Wish(Objective(arguments.objective), arguments.max_slowdown)
    return CapSweepPlan(wish, arguments.repetitions or (1 if is_command else 2), seed)


def _swept(request: RunRequest, arguments: Namespace, board: CapBoard, config: ModelConfig | None) -> CapSweep:
    """Set caps and measure. Raises UserError: there is no right to set caps, or the work fails."""
    open_work: OpenWork
    if config is None:
        # A campaign that measures on this board would be disturbed; the command itself may be one.
        with device_lock(board.uuid):
            pass
        open_work = partial(_opened, CommandWork(tuple(arguments.work), board.device))
    else:
        request = replace(request, device=board.device)
        open_work = partial(open_model, request, config, board.uuid, arguments.seconds, open_child_bench)
    tables = [request.database.power_caps]
    tables += [] if arguments.output is None else [CsvTable(arguments.output, PowerCapRow)]
    for table in tables:
        table.prepare()

    def keep(row: PowerCapRow) -> None:
        for table in tables:
            table.append(row)

    return sweep_caps(
        board, open_work, _sweep_plan(arguments, config is None), keep, progress_on_stderr(arguments.json_progress)
    )


def _opened(work: CapWork) -> AbstractContextManager[CapWork]:
    return nullcontext(work)


def _cap_plan(request: RunRequest, arguments: Namespace, config: ModelConfig | None) -> sweeps.CapPlan:
    plan = _sweep_plan(arguments, config is None)
    known = takes_s = None
    if config is not None:
        known = at_full_clocks(request.database, config, request.device)
        takes_s = expected_s(plan.most_measurements, arguments.seconds)
    found_w = caps = None
    device = str(request.device) if request.is_product else "cuda:0"
    if not request.is_product:
        try:
            device, uuid = gpu_named(request.device)
            limit = open_limit(uuid)
            found_w, lowest_w = limit.limit_w(), limit.limit_range_w().lowest_w
            caps = caps_below(lowest_w, found_w, None if known is None else known.measurement.power_w)
            limit.close()
        except GpuError as error:
            raise UserError(f"{device}: its power limits cannot be read: {error}") from error
        except UserError:
            # Without a GPU the rows of a model say what is known.
            if config is None:
                raise
    return sweeps.CapPlan(
        work=" ".join(arguments.work) if config is None else config.name,
        device=device if known is None or found_w is not None else known.conditions.device_product,
        found_limit_w=found_w,
        caps_w=caps,
        repetitions=plan.repetitions,
        measurements=plan.most_measurements,
        expected_s=takes_s,
        known=known,
    )
