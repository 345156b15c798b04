"""Next steps below the tables of ``opcost show``: what is not measured, and the commands that measure it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opcost.comparing.ranking_row import SUM
from opcost.invocation import command, joined
from opcost.measuring.protocol import USUAL_OPTIONS
from opcost.reporting.show_notes import NAMES_SHOWN, measured_share
from opcost.reporting.terminal import print_commands, print_line
from opcost.stages.proposals import Preparation, Proposals
from opcost.stages.show import DeviceRanking, ShownModel, ShowReport
from opcost.units import some_of


def print_measuring(ranking: DeviceRanking, report: ShowReport, is_named: bool) -> None:
    """Print the commands that measure what is missing from a ranking.

    Args:
        ranking: of the device.
        report: with the state before a measurement of operators.
        is_named: whether models are named. Else models without a cost, and operators without a row, are left out.
    """
    shares = [f"{model.row.name} ({measured_share(model.row)})" for model in ranking.incomplete]
    if shares and is_named:
        print_line(f"No whole model and not all operators are measured: {some_of(shares, NAMES_SHOWN)}")
    sums = [model for model in (ranking.all_models if is_named else ranking.models) if model.row.source == SUM]
    if not sums:
        return
    options = report.choice.measuring_options(ranking.conditions.device_type)
    ways, needing = [], [model for model in sums if model.missing]
    if report.preparation is not None and needing and is_named:
        proposals, names = report.proposals, [model.row.name for model in needing[:NAMES_SHOWN]]
        of_blocks = [model for model in needing[:NAMES_SHOWN] if model.row.name not in proposals.profiled]
        how = (*options, *ranking.protocol_options)
        ways = _preparing(of_blocks, report.preparation, proposals) if of_blocks else []
        measuring = [proposals.command("measure", [model.row.name for model in of_blocks], *how)] if of_blocks else []
        purpose = f"measure the other operators{_of_first(needing)}"
        ways += [(one, purpose) for one in (*measuring, *proposals.profiling(names, *how))]
    print_commands([*ways, _whole_models([model.row.name for model in sums], options, report.proposals)])


def print_not_measured(report: ShowReport) -> None:
    """Print the models that have no row, those with a whole in another execution, and the commands for both."""
    if report.not_measured:
        print_line(f"Not measured under these conditions: {some_of(report.not_measured, NAMES_SHOWN)}")
        options, shown = report.choice.measuring_options(), report.not_measured[:NAMES_SHOWN]
        of_folders = [name for name in report.not_measured if name not in report.proposals.profiled]
        ways = [_whole_models(of_folders, options, report.proposals)] if of_folders else []
        words = [report.proposals.profiled[name] for name in shown if name in report.proposals.profiled]
        ways += [(command("predict", *one), "predict it") for one in words]
        profiles = report.proposals.profiling(shown, *options, *USUAL_OPTIONS)
        print_commands([*ways, *((profile, "count and measure it") for profile in profiles)])
    for execution, names in report.other_executions.items():
        print_line(f"Measured in {execution} execution: {some_of(names, NAMES_SHOWN)}")
        options = replace(report.choice, execution=execution).options
        print_commands([(command("show", *names[:NAMES_SHOWN], *options), f"show them{_of_first(names)}")])


def _whole_models(names: Sequence[str], options: Sequence[str], proposals: Proposals) -> tuple[str, str]:
    """Return the command that measures whole models, with its purpose."""
    measuring = proposals.command("measure-models", names[:NAMES_SHOWN], *options, *USUAL_OPTIONS)
    return measuring, f"measure whole models{_of_first(names)}"


def _of_first(models: Sequence[object]) -> str:
    """Return a note on a command that names the first of these models only, else nothing."""
    return f" (the first {NAMES_SHOWN})" if len(models) > NAMES_SHOWN else ""


def _preparing(models: Sequence[ShownModel], preparation: Preparation, proposals: Proposals) -> list[tuple[str, str]]:
    """Return the commands, with their purposes, before the missing operators of some models can be measured.

    If the whitelist drops any of them, print which ones.
    """
    names = [model.row.name for model in models]
    missing = {name for model in models for name in model.missing}
    dropped = [name for name in preparation.dropped if name in missing]
    ways = []
    if dropped:
        them = "it" if len(dropped) == 1 else "them"
        where = f"add {them} to {preparation.whitelist} first, or measure whole models."
        print_line(f"The whitelist drops {', '.join(dropped)}: {where}")
        if preparation.shipped is not None:
            made = ["mkdir", "-p", str(preparation.whitelist.parent)]
            copied = ["cp", str(preparation.shipped), str(preparation.whitelist)]
            ways.append((f"{joined(made)} && {joined(copied)}", "your copy of the whitelist"))
    if uncounted := [name for name in names if name not in preparation.counted]:
        ways.append((proposals.command("count", uncounted), "count operators"))
    if unfiltered := [name for name in names if dropped or name not in preparation.filtered]:
        ways.append((command("filter", *unfiltered), "keep the operators of the whitelist"))
    return ways
