"""Commands that read what is known: rows of a database, and what follows from them."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from opcost.command.run import complain, without_garbage_collection
from opcost.comparing.model_result import OperatorRuns
from opcost.errors import UserError
from opcost.invocation import command
from opcost.operators.training import INFERENCE
from opcost.progress import warning_once
from opcost.reporting.output import print_json
from opcost.reporting.progress_lines import progress_on_stderr
from opcost.reporting.tables import print_commands, print_files, print_info, print_line
from opcost.running.request import Request, RunRequest
from opcost.stages.compare import compare_against, excesses, find_comparisons, keep_comparisons
from opcost.stages.predict import PredictionRequest
from opcost.stages.predict import predict as find_prediction
from opcost.stages.show import Choice, rankings_of
from opcost.stages.show import show as find_rankings
from opcost.stages.wanted_model import WantedModel
from opcost.storage.files import cache_folder, held_folder, user_folders
from opcost.units import number_of

EXPORT_FOLDER = Path("opcost-export")


def _runs(arguments: Namespace) -> OperatorRuns:
    return OperatorRuns(arguments.input_data, arguments.cache, arguments.counted)


@without_garbage_collection()
def show(arguments: Namespace) -> int:
    """Print the ranking; return 1 if a name or glob has no model with a cost, else 0."""
    from opcost.reporting.ranking_tables import largest, print_csv, print_rankings, print_remarks, ranking_objects

    # Remarks are of comparisons on all devices.
    request = replace(Request.from_arguments(arguments), device=None)
    if arguments.conditions:
        return _show_conditions(request, arguments)
    if arguments.why and (arguments.json or arguments.csv):
        raise UserError("--why: not with --json or --csv, which have no remarks; leave one of them out")
    # Programs get operators on request only; a person who names one model wants to see them.
    operators = arguments.operators if arguments.operators or arguments.json or arguments.csv else None
    choice = Choice(
        *(arguments.sort, arguments.device, arguments.execution, operators),
        *(arguments.precision, arguments.memory_format, arguments.batch, arguments.mode),
    )
    report = find_rankings(request, choice, cache_folder())
    if arguments.json:
        print_json(ranking_objects(largest(report, arguments.top)))
    elif arguments.csv:
        print_csv(largest(report, arguments.top), arguments.sort)
    else:
        print_rankings(report, arguments.sort, arguments.top, with_incomplete=bool(arguments.names))
        if arguments.why:
            print_remarks(report, find_comparisons(request))
    return int(bool(report.without_cost))


def _show_conditions(request: Request, arguments: Namespace) -> int:
    from opcost.reporting.count_tables import print_holdings
    from opcost.stages.holdings import holdings

    others = [name for name in ("operators", "why", "csv") if getattr(arguments, name)]
    others += ["mode"] if arguments.mode != INFERENCE else []
    if others:
        raise UserError(f"--conditions: not with --{others[0]}; leave one of them out")
    found = holdings(request, arguments.execution, arguments.device)
    print_json(found) if arguments.json else print_holdings(found, arguments.top)
    return 0


@warning_once()
def layers(arguments: Namespace) -> None:
    choice = Choice(device=arguments.device, execution=arguments.execution)
    wanted = WantedModel.from_arguments(arguments)

    from opcost.reporting.model_tables import layers_object, print_csv, print_layers
    from opcost.stages.model_layers import find_layers

    request, progress = RunRequest.from_arguments(arguments), progress_on_stderr(arguments.json_progress)
    found = find_layers(request, wanted, choice, progress)
    if arguments.json:
        print_json(layers_object(found, arguments.depth))
    elif arguments.csv:
        print_csv(found, arguments.depth)
    else:
        print_layers(found, arguments.depth)


@warning_once()
@without_garbage_collection()
def predict(arguments: Namespace) -> None:
    from opcost.reporting.model_tables import prediction_object, print_prediction

    wanted = WantedModel.from_arguments(arguments)
    wish = PredictionRequest(wanted, arguments.device, arguments.execution, arguments.batch, arguments.measure_next)
    request, progress = RunRequest.from_arguments(arguments), progress_on_stderr(arguments.json_progress)
    request = replace(request, folders=request.folders.read_once())
    found = find_prediction(request, wish, cache_folder(), progress)
    print_json(prediction_object(found)) if arguments.json else print_prediction(found)


@warning_once()
def demo(arguments: Namespace) -> None:
    import time

    from opcost.reporting.comparison_tables import print_comparisons
    from opcost.reporting.ranking_tables import print_rankings
    from opcost.stages.demo import MODEL, play

    print_line(
        "Nothing is measured: a recording of AlexNet on an NVIDIA H200 runs, operator by operator, then the whole.",
        "Times are recorded. Power and energy are evaluated now, from the raw logs of the power meter.",
        "",
    )
    with held_folder("opcost-demo-") as folder:
        request = play(folder, time.sleep, progress_on_stderr(arguments.json_progress))
        request = replace(request, device=None)
        print_comparisons(find_comparisons(request), dry_run=False)
        print_line("")
        print_rankings(find_rankings(request, Choice(operators=True)), "energy", top=5)
    name = MODEL.partition("_")[0]
    steps = [
        (command("profile", name, "--device", "cpu", "--seconds", "0.5"), "the same on this CPU, with short loops"),
        (command("profile", name), "the same on this GPU"),
        (command("show"), "all models that are shipped"),
    ]
    print_commands(steps, "Next steps")


def compare(arguments: Namespace) -> int:
    """Write and print comparisons; return 1 if one of a named model is incomplete or above a limit, else 0."""
    if arguments.against is not None:
        return _compare_against(arguments)
    if arguments.fail_if:
        raise UserError("--fail-if: it is a limit of the difference to other rows; add --against, or leave it out")

    from opcost.reporting.comparison_tables import print_comparisons

    request = Request.from_arguments(arguments)
    reports = find_comparisons(request, _runs(arguments))
    if not arguments.dry_run:
        keep_comparisons(request, reports)
    print_json(reports) if arguments.json else print_comparisons(reports, arguments.dry_run)
    status = int(bool(arguments.names) and any(report.is_incomplete for report in reports))
    if arguments.dry_run:
        wanted = [path for path in (arguments.figures, arguments.report) if path is not None]
        print_files("dry run: not written", wanted)
        return status
    print_files("rows in", [request.database.sum_vs_full.path])
    if arguments.figures is not None:
        from opcost.reporting.charts import draw_comparisons

        print_files("written", draw_comparisons(reports, arguments.figures))
    if arguments.report is not None:
        from opcost.reporting.report import write_report

        write_report(arguments.report, request, reports, rankings_of(request))
        print_files("written", [arguments.report])
    return status


@without_garbage_collection()
def _compare_against(arguments: Namespace) -> int:
    from opcost.reporting.comparison_tables import excess_in_words, print_against

    if arguments.figures is not None or arguments.report is not None:
        raise UserError("--against excludes --figures and --report, which show sums and wholes; leave them out")
    reports = compare_against(Request.from_arguments(arguments), arguments.against, _runs(arguments))
    above = excesses(reports, arguments.fail_if)
    print_json(reports) if arguments.json else print_against(reports)
    complain(*map(excess_in_words, above))
    return int(bool(above))


@without_garbage_collection()
@warning_once()
def report(arguments: Namespace) -> None:
    from opcost.reporting.report import write_report

    request = Request.from_arguments(arguments)
    # The ranking needs the same tables and configs as the comparison.
    request = replace(request, database=request.database.read_once(), folders=request.folders.read_once())
    reports = find_comparisons(request, _runs(arguments))
    write_report(arguments.output, request, reports, rankings_of(request))
    print_line(f"{arguments.output}: {number_of(len(reports), 'model')}; open it in a browser")


def advise(arguments: Namespace) -> int:
    """Print the coverage; return 1 if a model misses the target, else 0."""
    from opcost.reporting.count_tables import print_advice
    from opcost.stages.advise import advise as find_whitelist

    is_written = arguments.write_whitelist and not arguments.dry_run
    advice = find_whitelist(Request.from_arguments(arguments), arguments.coverage_target, is_written)
    print_json([advice]) if arguments.json else print_advice(advice, is_written)
    return int(not (is_written or advice.all_models.is_reached))


@without_garbage_collection()
def export(arguments: Namespace) -> None:
    from opcost.reporting.pages import data_card
    from opcost.stages.holdings import export as export_rows
    from opcost.storage.data_files import DataFolder

    target = DataFolder(arguments.to or EXPORT_FOLDER, arguments.format)
    found = export_rows(Request.from_arguments(arguments), arguments.kind, target, data_card)
    rows = f"{number_of(found.rows, 'measurement')} of {number_of(found.tables, 'kind')} of operators"
    rows += f", {found.wholes} of whole models" if found.wholes else ""
    print(f"{target.folder}: {rows}; README.md explains the columns")
    if found.uncounted:
        print(f"{number_of(found.uncounted, 'measurement')} without FLOPs and bytes: the operators are not counted")


def info(arguments: Namespace) -> None:
    from opcost.stages.info import find_info

    found = find_info(user_folders(arguments.home, arguments.measurements, arguments.database))
    print_json(found) if arguments.json else print_info(found)
