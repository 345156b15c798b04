"""Tables of a profile on a terminal: what a model's operators cost, or what they do and what the database knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from opcost.estimates import total_if_known
from opcost.invocation import command
from opcost.operators.short_forms import short_form, short_inputs
from opcost.operators.texts import parse_operator
from opcost.reporting.comparison_tables import print_comparisons
from opcost.reporting.layout import Column
from opcost.reporting.measurement_tables import print_units
from opcost.reporting.tables import print_origin, work_in_words
from opcost.reporting.terminal import Cells, print_commands, print_line, print_records, print_table
from opcost.stages.profile import KnownCost, ModelProfile, OperatorLine, Profile
from opcost.units import milli, number_of, percent, scaled, significant, some_of

LINES_SHOWN = 15
"""The operators that are shown unless another number is asked for."""

OPERATOR = (Column("operator", "left", wraps=20), Column("on", "left", wraps=14), Column("calls", drop=2))
COSTS = (Column("ms/run"), Column("mJ/run"), Column("time share", drop=1), Column("energy share", drop=1))
WORK = (Column("GFLOP", drop=3), Column("MB", drop=3))
SHARES_OF_WORK = (Column("share of FLOPs", drop=1), Column("share of bytes", drop=1))


def print_profile(profile: Profile, words: Sequence[str], top: int | None = None) -> None:
    """Print a profile: the plan in a dry run, else the comparison and the operators, or counts and what is known.

    ``words`` are the arguments that name the model in a further command; of ``top`` None is the usual number.
    """
    if profile.units and profile.request.dry_run:
        print_units(profile.units, dry_run=True)
        return
    if profile.units:
        if profile.failed:
            print_units(profile.units, dry_run=False)
        print_comparisons([model.comparison for model in profile.models if model.comparison is not None], dry_run=False)
        for model in profile.models:
            _print_costs(model, top)
        return
    for model in profile.models:
        _print_kinds(model)
        lines, shown = _largest(model, top)
        rows = [(*_named(line), *_work_cells(line.flop, line.memory_bytes, model)) for line in lines]
        print_table(f"Operators by FLOPs or bytes ({shown})", (*OPERATOR, *WORK, *SHARES_OF_WORK), rows)
        _print_known(model)
    _print_steps(profile, words)
    print_origin()


def profile_object(profile: Profile, report: Path | None) -> dict[str, Any]:
    """Return a profile as one object for JSON; figures are in SI units."""
    return {
        "models": [asdict(model) for model in profile.models],
        "measurements": [asdict(unit) for unit in profile.units],
        "report": None if report is None else str(report),
    }


def _print_costs(model: ModelProfile, top: int | None) -> None:
    lines, shown = _largest(model, top)
    product = "" if model.conditions is None else f" on {model.conditions.device_product}"
    print_line("")
    rows = [
        (
            *(*_named(line), milli(line.time_s), milli(line.energy_j)),
            *(percent(line.time_ratio), percent(line.energy_ratio)),
            *(scaled(line.flop, 1e9), scaled(line.memory_bytes, 1e6)),
        )
        for line in lines
    ]
    print_table(f"{model.name}{product}: operators by time ({shown})", (*OPERATOR, *COSTS, *WORK), rows)
    unmeasured = sum(line.time_s is None for line in model.operators)
    if unmeasured:
        print_line(f"{number_of(unmeasured, 'operator tuple')} without a row: the shares are those of the others.")


def _largest(model: ModelProfile, top: int | None) -> tuple[Sequence[OperatorLine], str]:
    """Return the operators that are shown, and how many of them that is in words."""
    lines, number = model.operators[: LINES_SHOWN if top is None else top], len(model.operators)
    return lines, f"{len(lines)} of {number}" + (f"; --top {number} shows all" if len(lines) < number else "")


def _named(line: OperatorLine) -> tuple[str, str, str]:
    operator = parse_operator(line.operator, line.parameters, line.inputs, line.training_mode)
    return short_form(operator), short_inputs(operator), str(line.calls)


def _work_cells(flop: float | None, memory_bytes: int, model: ModelProfile) -> tuple[str, ...]:
    is_known = flop is not None and model.flop and model.flop_missing_reason is None
    share = flop / model.flop if is_known else None  # type: ignore[operator]
    return (
        *(scaled(flop, 1e9), scaled(memory_bytes, 1e6)),
        *(percent(share), percent(memory_bytes / model.memory_bytes)),
    )


def _print_kinds(model: ModelProfile) -> None:
    kinds: dict[str, list[OperatorLine]] = {}
    for line in model.operators:
        kinds.setdefault(line.operator.rpartition(".")[2], []).append(line)
    # The order of the operators: the kind of the largest comes first.
    rows = [
        (
            *(kind, str(len(lines)), str(sum(line.calls for line in lines))),
            *_work_cells(total_if_known(line.flop for line in lines), sum(line.memory_bytes for line in lines), model),
        )
        for kind, lines in kinds.items()
    ]
    columns = (Column("kind of operator", "left"), Column("tuples", drop=1), Column("calls", drop=1))
    title = (
        f"{model.name}: {work_in_words(model)} and {significant(model.parameters / 1e6)} million parameters in one run"
    )
    print_table(title, (*columns, *WORK, *SHARES_OF_WORK), rows)
    if model.flop_missing_reason is not None:
        print_line(f"FLOPs incomplete: {model.flop_missing_reason}.")
    if model.missing_ratio is not None:
        names = some_of(model.missing_operations)
        print_line(f"{percent(model.missing_ratio)} of FLOPs or bytes are in no tuple: {names}.")


def _print_known(model: ModelProfile) -> None:
    if not model.known:
        print_line(f"{model.name}: the database has no row of it, of any device.")
        print_line("")
        return

    def rest(one: KnownCost, value: float | None) -> str:
        return "0" if one.calls_ratio == 1 else milli(value)

    columns: Cells[KnownCost] = (
        (Column("device", "left"), lambda one: one.conditions.device_product),
        (Column("conditions", "left", drop=3), lambda one: f"{one.conditions.execution}, {one.conditions.precision}"),
        (Column("calls with rows"), lambda one: percent(one.calls_ratio, 0)),
        (Column("sum ms"), lambda one: milli(one.sum_time_s)),
        (Column("sum mJ"), lambda one: milli(one.sum_energy_j)),
        (Column("estimated rest ms", drop=1), lambda one: rest(one, one.predicted_time_s)),
        (Column("estimated rest mJ", drop=1), lambda one: rest(one, one.predicted_energy_j)),
        (Column("whole ms", drop=2), lambda one: milli(one.whole_time_s)),
        (Column("whole mJ", drop=2), lambda one: milli(one.whole_energy_j)),
    )
    print_records(f"{model.name}: costs in the database, of one run", model.known, columns)
    if any(one.predicted_time_s is not None for one in model.known):
        print_line("Estimated rest: calls without a row, predicted from FLOPs and bytes.")
        print_line("")


def _print_steps(profile: Profile, words: Sequence[str]) -> None:
    print_line("Nothing was measured.")
    steps = [
        (command("profile", *words, "--device", "cpu", "--seconds", "0.5"), "measure on this CPU, with short loops"),
        (command("profile", *words, "--device", "H200", "--dry-run"), "the time that it takes on an H200"),
    ]
    names = [model.name for model in profile.models if model.known]
    if names:
        steps.append((command("show", *names, "--operators"), "the operators on the devices above"))
    print_commands(steps)
