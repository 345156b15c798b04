"""Commands that count, filter, draw and measure operators and models."""

from __future__ import annotations

import logging
import os
import random
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.command.options import USUAL_RELATIVE_ERROR
from opcost.command.run import without_garbage_collection
from opcost.errors import UserError
from opcost.measuring.protocol import FULL_LOOP_S, protocol_for
from opcost.meters.gpus import visible_gpus
from opcost.operators.counts import CAPTURED
from opcost.operators.training import TRAINING
from opcost.power.ports import GpuError
from opcost.prediction.sampling import Wish
from opcost.progress import warning_once
from opcost.reporting.count_tables import print_census, print_count_plans, print_counts, print_sample, print_selections
from opcost.reporting.measurement_tables import announced, print_full_models, print_operator_measurements, print_units
from opcost.reporting.output import print_json
from opcost.reporting.progress_lines import progress_on_stderr
from opcost.reporting.tables import is_quiet, print_configs, print_files
from opcost.running.planned_bench import bench_opener
from opcost.running.request import Request, RunRequest
from opcost.running.several_gpus import shares_of_cores
from opcost.stages.check_files import REPORT
from opcost.stages.make_configs import make_configs as write_configs
from opcost.stages.make_configs import scratch_folder
from opcost.stages.measure_operators import Protocols, UnitReport, measure_full_models, measure_operators, measure_units
from opcost.stages.show import rankings_of
from opcost.stages.wanted_model import WantedModel, arguments_of
from opcost.storage.files import cache_folder, check_writable, held_folder
from opcost.storage.language_models import language_model

if TYPE_CHECKING:
    # Only for types: these stages import torch.
    from opcost.stages.profile import Measuring, Profile
    from opcost.stages.sweep import SweepResult


def make_configs(arguments: Namespace) -> None:
    reports = write_configs(Request.from_arguments(arguments).folders, arguments.names, arguments.dry_run)
    print_json(reports) if arguments.json else print_configs(reports, arguments.dry_run)


def sample_operators(arguments: Namespace) -> None:
    from opcost.stages.sample_operators import sample_operators as draw

    wish = Wish(arguments.number, tuple(arguments.kind), arguments.seed, arguments.beyond)
    report = draw(Request.from_arguments(arguments), arguments.name, wish, arguments.gpu_seconds, arguments.dry_run)
    print_json(report) if arguments.json else print_sample(report, arguments.dry_run)


def count(arguments: Namespace) -> int:
    """Count and print the tuples; return 2 if a model could not be counted, else 0."""
    request = RunRequest.from_arguments(arguments)
    request.find_typos()

    from opcost.stages.count import CountReport, census, count_operators, plan_counting

    if arguments.dry_run:
        plans = plan_counting(request, arguments.meta)
        print_json(plans) if arguments.json else print_count_plans(plans)
        return 0
    reports = count_operators(request, progress_on_stderr(arguments.json_progress), arguments.meta, arguments.strict)
    counted = [report for report in reports if isinstance(report, CountReport)]
    if arguments.json:
        print_json(census(request) if arguments.census else reports)
    elif counted or not reports:
        print_census(census(request)) if arguments.census else print_counts(counted)
    print_files("counts in", [request.folders.own])
    return 0 if len(counted) == len(reports) else 2


def filter_operators(arguments: Namespace) -> None:
    from opcost.stages.filter import filter_operators as keep_operators

    reports = keep_operators(Request.from_arguments(arguments), arguments.dry_run)
    print_json(reports) if arguments.json else print_selections(reports, arguments.dry_run)


def measure(arguments: Namespace) -> int:
    """Measure what the database does not have, and print it; return 1 if a measurement failed, else 0."""
    request = RunRequest.from_arguments(arguments)
    opener, table = bench_opener(request), request.database.operator_measurements
    progress = progress_on_stderr(arguments.json_progress)
    protocols = _protocols(arguments.seconds, arguments.relative_error, arguments.input_data)
    if arguments.whole:
        units = measure_units(request, protocols, opener, progress, _announce)
        print_json(units) if arguments.json else print_units(units, arguments.dry_run)
        _print_tables(request, table.path, request.database.full_model_measurements.path)
        return int(any(unit.failed for unit in units))
    reports = measure_operators(request, protocols.operators, opener, progress, arguments.input_data)
    print_json(reports) if arguments.json else print_operator_measurements(reports, arguments.dry_run)
    _print_tables(request, table.path)
    return int(any(report.failed for report in reports))


def measure_models(arguments: Namespace) -> int:
    """Measure what the database does not have, and print it; return 1 if a measurement failed, else 0."""
    request = RunRequest.from_arguments(arguments)
    request.find_typos()
    protocol = _protocols(arguments.seconds, arguments.relative_error).wholes
    reports = measure_full_models(request, protocol, bench_opener(request), progress_on_stderr(arguments.json_progress))
    print_json(reports) if arguments.json else print_full_models(reports, arguments.dry_run)
    _print_tables(request, request.database.full_model_measurements.path)
    return int(any(report.failed for report in reports))


def _protocols(loop_s: float, relative_error: float | None, input_data: str = CAPTURED) -> Protocols:
    """Return the protocols of operators, which are measured in a random order, and of wholes."""
    whole = partial(protocol_for, loop_s=loop_s, relative_error=relative_error)
    return Protocols(partial(whole, order_seed=random.SystemRandom().getrandbits(32)), whole, input_data)


def _print_tables(request: RunRequest, *paths: Path) -> None:
    if not request.dry_run:
        print_files("rows in", paths)


def _announce(plan: Sequence[UnitReport]) -> None:
    if not is_quiet():
        logging.getLogger(__name__).warning("%s", announced(plan))


@warning_once()
def profile(arguments: Namespace) -> int:
    """Print the profile, and write the report; return 1 if a measurement failed or a sum has no whole, else 0."""
    request = RunRequest.from_arguments(arguments)
    model = WantedModel.from_arguments(arguments)
    if model.training is not None and (arguments.scheduler or arguments.scheduler_file):
        remedy = "leave the scheduler out, and profile it on a host that has the device"
        raise UserError(f"--mode {TRAINING}: a step is counted on the kind of device that measures it; {remedy}")

    # Mistakes in the arguments and in the text of the user's code are found before torch is imported.
    from opcost.reporting.model_tables import print_profile, profile_object
    from opcost.stages.profile import profile as profile_models

    measuring = None if arguments.no_measure else _measuring(request, arguments)
    sizes = [*arguments.sizes, *([arguments.input_size] if arguments.input_size else [])]
    wanted = [replace(model, input_size=size) for size in sizes or [()]]
    folders = request.folders
    is_written = measuring is not None and not arguments.dry_run
    with nullcontext(folders) if is_written else scratch_folder(folders, wanted) as folders:
        request = replace(request, folders=folders)
        found = profile_models(request, wanted, progress_on_stderr(arguments.json_progress), measuring)
        is_reported = is_written or (arguments.report is not None and not arguments.dry_run)
        path = _write_report(found, arguments.report) if is_reported else None
        if arguments.json:
            print_json(profile_object(found, path))
        else:
            print_profile(found, wanted[0].words, arguments.top, arguments.mode)
        print_files("report in", [] if path is None else [path])
        if arguments.dry_run and arguments.report is not None:
            print_files("dry run: not written", [arguments.report])
    return int(found.failed)


def worker(arguments: Namespace) -> None:
    scheduler = arguments.scheduler or arguments.scheduler_file
    if scheduler is None:
        raise UserError("no scheduler is named; use --scheduler ADDRESS or --scheduler-file FILE")

    from opcost.running.dask_workers import scheduler_at, serve

    try:
        devices = [arguments.device] if arguments.device else list(visible_gpus(os.environ))
    except GpuError as error:
        raise UserError(f"{error}; name the --device that is to measure") from error
    cores = shares_of_cores(sorted(os.sched_getaffinity(0)), len(devices))
    with held_folder("opcost-worker-") if arguments.logs is None else nullcontext(arguments.logs) as logs:
        serve(scheduler_at(scheduler), dict(zip(devices, cores, strict=True)), logs.absolute())


def _measuring(request: RunRequest, arguments: Namespace) -> Measuring | None:
    """Return how a model is measured, None on a host without a GPU whose CPU is not asked for."""
    from opcost.running.devices import choose_device
    from opcost.stages.profile import Measuring

    if request.is_here and request.device is None and choose_device(None) == "cpu":
        return None
    if arguments.seconds is not None:
        protocols = _protocols(arguments.seconds, None)
    else:
        protocols = _protocols(FULL_LOOP_S, arguments.relative_error or USUAL_RELATIVE_ERROR)
    return Measuring(protocols, bench_opener(request), _announce)


def _write_report(found: Profile, named: Path | None) -> Path | None:
    """Write the report of all comparisons, by default to the first model's folder; None if it would show nothing."""
    from opcost.reporting.report import write_report

    if named is None and not any(model.comparisons for model in found.comparisons):
        return None
    path = found.folder / REPORT if named is None else named
    request = replace(found.request, device=None)
    write_report(path, request, found.comparisons, rankings_of(request))
    return path


@warning_once()
@without_garbage_collection()
def tokens(arguments: Namespace) -> int:
    """Print the costs of tokens; return 1 if a measurement failed, else 0."""
    from opcost.reporting.token_tables import print_tokens, tokens_object
    from opcost.stages.profile import profile as profile_models
    from opcost.stages.tokens import RequestSize, TokenRequest, without_refused
    from opcost.stages.tokens import tokens as find

    model = language_model(arguments.model, arguments_of(arguments.argument))
    request, progress = RunRequest.from_arguments(arguments), progress_on_stderr(arguments.json_progress)
    names = "model", "batch", "context", "precision", "device", "execution"
    name, *grid = (getattr(arguments, key) for key in names)
    sizes = tuple(RequestSize(*one) for one in arguments.request)
    wish, failed = TokenRequest(name, model, *grid), False
    wish = without_refused(request, replace(wish, requests=sizes, attentions=arguments.attention))
    if arguments.measure:
        measuring = _measuring(request, arguments)
        if measuring is None:
            raise UserError("--measure: this host has no GPU; add --device cpu, or leave --measure out")
        for execution in wish.executions:
            own = replace(request, setting=replace(request.setting, execution=execution))
            wanted = [point.wanted(wish) for point in wish.points if point.execution == execution]
            profiled = profile_models(own, wanted, progress, measuring)
            measured = [one.conditions for one in profiled.models if one.conditions is not None]
            if not measured:
                text = "nothing could be measured, see above; run opcost profile for one of the points"
                raise UserError(f"--measure: {text}")
            failed, wish = failed or profiled.failed, replace(wish, device=measured[0].device_product)
    found = find(request, wish, cache_folder(), progress)
    print_json(tokens_object(found)) if arguments.json else print_tokens(found)
    return int(failed)


@warning_once()
def sweep(arguments: Namespace) -> int:
    """Measure and predict a sweep, and print it; return 1 if a size failed, else 0."""
    from opcost.reporting.sweeps import print_plan, print_sweep, sweep_object
    from opcost.stages.sweep import SweepProtocol, SweepWish, run_sweep, sweep_of

    if not arguments.dry_run:
        # Before anything is measured.
        for folder in filter(None, (arguments.output, arguments.figures, arguments.export_tree)):
            check_writable(folder)
    request = RunRequest.from_arguments(arguments)
    axis = arguments.size or arguments.tokens or arguments.batch or arguments.context
    seed = random.SystemRandom().getrandbits(32)
    protocol = SweepProtocol(arguments.repetitions, arguments.seconds, seed, arguments.kernels)
    wish = SweepWish(None if arguments.no_measure else protocol, not arguments.no_predict)
    swept = sweep_of(request, WantedModel.from_arguments(arguments), axis)
    result = run_sweep(request, swept, wish, cache_folder(), progress_on_stderr(arguments.json_progress))
    show = print_plan if arguments.dry_run else print_sweep
    print_json(sweep_object(result)) if arguments.json else show(result)
    if arguments.dry_run:
        return 0
    _write_sweep(request, result, arguments)
    return int(bool(result.failed))


def _write_sweep(request: RunRequest, result: SweepResult, arguments: Namespace) -> None:
    from opcost.reporting.sweeps import export_tree, write_sweep_figures, write_tables

    if arguments.output is not None:
        print_files("tables in", write_tables(result, arguments.output))
    if arguments.figures is not None:
        print_files("figures in", write_sweep_figures(result, arguments.figures))
    if arguments.export_tree is not None:
        print_files("folders", export_tree(result, request.database.power_logs, arguments.export_tree))
