"""Next steps below the tables of ``opcost show``: what is not measured, and the commands that measure it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from opcost.invocation import command
from opcost.measuring.protocol import USUAL_OPTIONS
from opcost.reporting.show_notes import NAMES_SHOWN, measured_share
from opcost.reporting.terminal import print_commands, print_line
from opcost.stages.preparation import Preparation
from opcost.stages.show import DeviceRanking, ShowReport
from opcost.units import some_of


def print_missing(ranking: DeviceRanking, report: ShowReport) -> None:
    """Print the models without a whole of which some operators have no row, and the commands that measure the rest."""
    shares = [f"{model.row.name} ({measured_share(model.row)})" for model in ranking.incomplete]
    if shares:
        print_line(f"No whole model and not all operators are measured: {some_of(shares, NAMES_SHOWN)}")
    models = [model for model in ranking.all_models if model.needs_rows]
    if report.preparation is None or not models:
        return
    names = [model.row.name for model in models[:NAMES_SHOWN]]
    options = report.choice.measuring_options(ranking.conditions.device_type)
    missing = {name for model in models[:NAMES_SHOWN] for name in model.missing}
    ways = _preparing(names, [name for name in report.preparation.dropped if name in missing], report.preparation)
    measuring = command("measure", *names, *options, *ranking.protocol_options)
    wholes = command("measure-models", *names, *options, *USUAL_OPTIONS)
    first = first_of(models)
    print_commands(
        [*ways, (measuring, f"measure the other operators{first}"), (wholes, f"measure whole models{first}")]
    )


def print_not_measured(report: ShowReport) -> None:
    """Print the models that have no row, and the command that measures them."""
    if report.not_measured:
        print_line(f"Not measured: {some_of(report.not_measured, NAMES_SHOWN)}")
        names = report.not_measured[:NAMES_SHOWN]
        measuring = command("measure-models", *names, *report.choice.measuring_options(), *USUAL_OPTIONS)
        print_commands([(measuring, f"measure them{first_of(report.not_measured)}")])


def first_of(models: Sequence[object]) -> str:
    """Return a note on a command that names some of these models only, else nothing."""
    return f" (of the first {NAMES_SHOWN} models)" if len(models) > NAMES_SHOWN else ""


def _preparing(names: Sequence[str], dropped: Sequence[str], preparation: Preparation) -> list[tuple[str, str]]:
    """Return the commands, with their purposes, before the operators of some models can be measured.

    If the whitelist drops any of them, print which ones.

    Args:
        names: of the models.
        dropped: the operators without a row that the whitelist drops.
        preparation: what is done already.
    """
    ways = []
    if dropped:
        them = "it" if len(dropped) == 1 else "them"
        where = f"add {them} to {preparation.whitelist} first, or measure whole models."
        print_line(f"The whitelist drops {', '.join(dropped)}: {where}")
        if preparation.shipped is not None:
            made = ["mkdir", "-p", str(preparation.whitelist.parent)]
            copied = ["cp", str(preparation.shipped), str(preparation.whitelist)]
            ways.append((f"{shlex.join(made)} && {shlex.join(copied)}", "your copy of the whitelist"))
    if uncounted := [name for name in names if name not in preparation.counted]:
        ways.append((command("count", *uncounted), "count operators"))
    if unfiltered := [name for name in names if dropped or name not in preparation.filtered]:
        ways.append((command("filter", *unfiltered), "keep the operators of the whitelist"))
    return ways
