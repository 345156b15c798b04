"""The ranking of models, and a single model with its operators, on a terminal; below them, how to measure the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from opcost.columns import fields_of
from opcost.comparing.comparison import differing as differing_values
from opcost.comparing.operator_costs import KindCosts, OperatorCost, rank_of
from opcost.comparing.ranking import ENERGY, NAME, POWER, SAVING, SUM, TIME, RankingRow, ranked
from opcost.invocation import command, joined
from opcost.measuring.conditions import Conditions
from opcost.measuring.protocol import USUAL_OPTIONS
from opcost.operators.short_forms import short_form, short_inputs
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import OperatorTuple
from opcost.reporting.comparison_tables import all_in_words
from opcost.reporting.layout import Column, keeping
from opcost.reporting.show_notes import (
    ESTIMATED,
    KIND_TITLES,
    NAMES_SHOWN,
    arithmetic,
    condition_words,
    flag_lines,
    is_by_time,
    is_cost_doubtful,
    is_sum_doubtful,
    measured_share,
    model_notes,
    predicted_lines,
    ranking_notes,
)
from opcost.reporting.tables import doubt_mark, print_origin
from opcost.reporting.terminal import Cells, print_commands, print_line, print_table
from opcost.stages.compare import ComparingReport
from opcost.stages.show import DeviceRanking, ShownModel, ShowReport
from opcost.stages.wanted_model import Preparation, Proposals
from opcost.units import UNKNOWN, milli, percent, ratio, scaled, some_of, whole_watts

Costly = TypeVar("Costly", OperatorCost, KindCosts)

TITLES = {
    ENERGY: "Energy per sample",
    POWER: "Power",
    TIME: "Time per sample",
    SAVING: "Energy per sample, the largest saving first,",
}

IN_EVERY_TITLE = frozenset(
    "device_type device_product execution matmul_tf32 cudnn_tf32 torch_version driver_version cpu_threads".split()
)
"""Conditions that the title of a table names in any case."""

NAMED = (Column("model", "left"), Column("batch"), Column("size"))
COSTS: Cells[RankingRow] = (
    (Column("ms/run", drop=10), lambda row: milli(row.time_s)),
    (Column("mJ/run", drop=10), lambda row: milli(row.energy_j)),
    (Column("ms/sample", drop=1), lambda row: milli(row.time_per_sample_s)),
    (Column("mJ/sample"), lambda row: milli(row.energy_per_sample_j)),
    (Column("W", drop=4), lambda row: whole_watts(row.power_w)),
    (Column("samples/J", drop=11), lambda row: scaled(row.samples_per_joule, 1)),
    (Column("samples/s", drop=11), lambda row: scaled(row.samples_per_second, 1)),
)
KINDS = tuple(Column(title, "left", drop) for title, drop in zip(KIND_TITLES, (0, 5, 7), strict=True))
OF_SUM: Cells[RankingRow] = (
    (Column("time roof", drop=3), lambda row: percent(row.roof_time_ratio, 0)),
    (Column("energy roof", drop=2), lambda row: percent(row.roof_energy_ratio, 0)),
    (Column("saving mJ/sample", drop=6), lambda row: milli(row.saving_energy_per_sample_j)),
)
"""The columns that, as the kinds of operators, rest on the sum."""

SORTED_BY = {TIME: "ms/sample", POWER: "W", SAVING: "saving mJ/sample"}
"""The column of each order that could be left out."""


@dataclass(frozen=True)
class RankingTable:
    """The table of one device's ranking, its order, and the notes below it."""

    title: str
    by: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def table_of(ranking: DeviceRanking, by: str) -> RankingTable | None:
    """Return a ranking's table, None if no model has a cost. It is by time if no model has the figure of its order."""
    rows = [model.row for model in ranking.models]
    if not rows:
        return None
    by = _known_order(by, [(row.energy_per_sample_j, row.power_w, row.saving_energy_per_sample_j) for row in rows])
    cells = [_cells(label, model, by) for label, model in zip(_labels(rows), ranking.models, strict=True)]
    shared = _shared_size(rows)
    all_columns = [*NAMED, *(column for column, _ in COSTS), *KINDS, *(column for column, _ in OF_SUM)]
    kept = [index for index, column in enumerate(all_columns) if column.title not in shared]
    columns = keeping(all_columns, SORTED_BY.get(by))
    sizes = ", ".join(shared.values())
    title = f"{TITLES.get(by, TITLES[ENERGY])} on {_conditions_title(rows, ranking.differing)}"
    return RankingTable(
        title=f"{title}; {sizes}" if sizes else title,
        by=by,
        columns=tuple(columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in cells),
        notes=tuple(ranking_notes(ranking, by)),
    )


def _known_order(by: str, figures: Iterable[tuple[float | None, float | None, float | None]]) -> str:
    """Return the order that is asked for, or that by time if each energy, power or saving that it needs is None."""
    of_order = dict(zip((ENERGY, POWER, SAVING), zip(*figures, strict=True), strict=False))
    return TIME if by in of_order and all(figure is None for figure in of_order[by]) else by


def _cells(label: str, model: ShownModel, by: str) -> tuple[str, ...]:
    row = model.row
    estimated, doubt = ESTIMATED if row.source == SUM else "", doubt_mark(is_sum_doubtful(row))
    kinds = [f"{kind.operator} {percent(kind.costs.ratio(by), 0)}" for kind in model.kinds[: len(KINDS)]]
    kinds += [UNKNOWN] * (len(KINDS) - len(kinds))
    return (
        label + doubt_mark(is_cost_doubtful(row)),
        UNKNOWN if row.batch_size is None else str(row.batch_size),
        _sample_size(row) or UNKNOWN,
        *(_marked(text(row), before=estimated) for _, text in COSTS),
        *(_marked(text, after=doubt) for text in (*kinds, *(text(row) for _, text in OF_SUM))),
    )


def _marked(text: str, before: str = "", after: str = "") -> str:
    return text if text in ("", UNKNOWN) else f"{before}{text}{after}"


def print_rankings(report: ShowReport, by: str, top: int | None = None, with_incomplete: bool = True) -> None:
    """Print a table for each device, or for each model if the report has operators, and models without a figure.

    ``top`` is the most models, or operators of a model; None for all models, and the usual number of operators. With
    ``with_incomplete``, the models with an incomplete sum only are named.
    """
    sides = sides_of(report, by)
    if sides is not None:
        print_table(sides.title, sides.columns, sides.rows[:top])
        _print_lines(sides.notes)
    elif len(report.choice.devices) > 1:
        print_line("No model is completely measured on all of these devices under the same conditions.")
    for ranking in () if sides is not None else report.rankings:
        table = None
        if report.has_operators:
            _print_models(ranking, by, top)
        else:
            table = table_of(ranking, by)
        if table is None:
            _print_lines(predicted_lines(ranking))
        else:
            left_out = print_table(table.title, table.columns, table.rows[:top])
            _print_lines(ranking_notes(ranking, table.by, left_out))
        _print_measuring(ranking, report, with_incomplete)
        if ranking.others:
            print_line(f"Under other conditions: {some_of(list(ranking.others), NAMES_SHOWN)}")
            print_commands([(command("show", *ranking.others, *report.choice.options), "show them")])
    _print_not_measured(report)
    if report.also:
        print_line(f"Also measured: {'; '.join(report.also)}")
    if report.rankings:
        print_origin()


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_line(line)


def sides_of(report: ShowReport, by: str = ENERGY) -> RankingTable | None:
    """Return the table that sets models on several devices beside each other; None if none has a cost on all of them.

    A ratio is a cost over that on the first device. Models are in the order of the first device.
    """
    products = list(dict.fromkeys(ranking.product for ranking in report.rankings))
    if len(report.choice.devices) < 2 or len(products) < 2:
        return None
    found: dict[str, dict[str, RankingRow]] = {}
    for ranking in report.rankings:
        # An estimate is no difference between devices.
        for model in (one for one in ranking.models if not one.needs_rows):
            found.setdefault(model.row.name, {}).setdefault(ranking.product, model.row)
    shared = [[one[product] for product in products] for one in found.values() if len(one) == len(products)]
    alone = [name for name, one in found.items() if len(one) < len(products)]
    if not shared:
        return None
    order = {row.name: place for place, row in enumerate(ranked([rows[0] for rows in shared], by))}
    shared.sort(key=lambda rows: order[rows[0].name])
    names = [product.removeprefix("NVIDIA ") for product in products]
    columns = [Column("model", "left"), Column("batch", drop=2), Column("size", drop=1)]
    for unit in ("ms", "mJ"):
        columns += [Column(f"{unit}/sample {name}", wraps=True) for name in names]
        columns += [Column(f"{unit} ratio {name}", wraps=True) for name in names[1:]]
    notes = [f"Ratio: over {products[0]}."]
    for boards, product in dict.fromkeys((ranking.boards, ranking.product) for ranking in report.rankings):
        # A ratio between two single boards may be theirs.
        if boards.time is not None and boards.energy is not None:
            most = f"{percent(boards.time.largest_ratio)} in time and {percent(boards.energy.largest_ratio)} in energy"
            notes.append(f"{boards.boards} boards of {product} differ by up to {most} in whole models.")
    if any(row.source == SUM for rows in shared for row in rows):
        notes.append(f"{ESTIMATED} the corrected sum of its operators, because the whole model is not measured.")
    if alone:
        notes.append(f"On one of the devices only: {some_of(alone, NAMES_SHOWN)}")
    facts = ", ".join(_conditions_shown(row.conditions for rows in shared for row in rows))
    title = f"Time and energy per sample on devices beside each other: {facts}"
    return RankingTable(title, by, tuple(columns), tuple(map(_cells_of_sides, shared)), tuple(notes))


def _cells_of_sides(rows: Sequence[RankingRow]) -> tuple[str, ...]:
    (label,), first = _labels(rows[:1]), rows[0]
    cells = [label, UNKNOWN if first.batch_size is None else str(first.batch_size), _sample_size(first) or UNKNOWN]
    for costs in ([row.time_per_sample_s for row in rows], [row.energy_per_sample_j for row in rows]):
        for row, cost in zip(rows, costs, strict=True):
            mark = ESTIMATED if row.source == SUM and cost is not None else ""
            cells.append(mark + milli(cost) + doubt_mark(is_cost_doubtful(row)))
        cells += [UNKNOWN if one is None or not costs[0] else f"{one / costs[0]:.3f}" for one in costs[1:]]
    return tuple(cells)


def print_remarks(report: ShowReport, reports: Sequence[ComparingReport]) -> None:
    """Print all remarks on the comparisons under the conditions that are shown."""
    shown = {(model.row.name, model.row.conditions) for model in report.models}
    lines = [
        f"{label}: {line}"
        for one in reports
        for label, row, remarks in zip(one.labels, one.comparisons, one.remarks, strict=True)
        if (row.name, row.conditions) in shown
        for line in all_in_words(row, remarks) or ["none"]
    ]
    if lines:
        print_line("Remarks on the sums of the whitelisted operators and the whole models:")
    else:
        print_line("No remarks: no sum of these models can be compared with a whole model.")
    for line in lines:
        print_line(line, hanging=4)


def _labels(rows: Sequence[RankingRow]) -> list[str]:
    """Return the models' names, with the conditions that differ between the models.

    A size that is the row's own is left out of the name, unless two models would have the same name and size.
    """
    found = Counter((_name_without_size(row), row.input_size) for row in rows)
    names = [
        _name_without_size(row) if found[_name_without_size(row), row.input_size] == 1 else row.name for row in rows
    ]
    conditions = differing_values([row.conditions for row in rows])
    return [f"{name} ({', '.join(texts)})" if texts else name for name, texts in zip(names, conditions, strict=True)]


def _name_without_size(row: RankingRow) -> str:
    return row.name.removesuffix(f"_{row.input_size}") if row.input_size else row.name


def _sample_size(row: RankingRow) -> str:
    return row.input_size.partition("x")[2]


def _shared_size(rows: Sequence[RankingRow]) -> dict[str, str]:
    """Return words for the batch and for the size of a sample by column, each only if all rows share it."""
    words = {
        "batch": {"" if row.batch_size is None else f"batch {row.batch_size}" for row in rows},
        "size": {_sample_size(row) for row in rows},
    }
    return {title: one for title, (one, *others) in words.items() if one and not others}


def _conditions_title(rows: Sequence[RankingRow], differing: Sequence[str]) -> str:
    """Return the device, the conditions and the dates of rows, also conditions in which another table differs."""
    days = sorted({row.measured_at[:10] for row in rows})
    measured = f"measured {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")
    conditions = rows[0].conditions
    names = set(differing) - IN_EVERY_TITLE
    others = [condition_words(field, conditions) for field in fields_of(Conditions) if field.name in names]
    facts = [*_conditions_shown([row.conditions for row in rows]), *others, measured]
    return f"{conditions.device_product}: {', '.join(facts)}"


def _conditions_shown(conditions: Iterable[Conditions]) -> list[str]:
    found = list(conditions)
    values = (
        [one.execution for one in found],
        [arithmetic(one) for one in found],
        [f"torch {one.torch_version}" for one in found],
        [f"driver {one.driver_version}" for one in found if one.driver_version],
        [f"{one.cpu_threads} threads" for one in found if one.cpu_threads],
    )
    return [" or ".join(sorted(set(texts))) for texts in values if texts]


# A model with its operators

LINES_SHOWN = 15
"""The operators, and the kinds, that are shown unless another number is asked for."""

ORDERS = {ENERGY: "by energy", TIME: "by time", POWER: "by power", SAVING: "by saving", NAME: "by name"}

SHARES: Cells[OperatorCost | KindCosts] = (
    (Column("ms/run", drop=6), lambda one: milli(one.costs.time_s)),
    (Column("mJ/run"), lambda one: milli(one.costs.energy_j)),
    (Column("W", drop=8), lambda one: whole_watts(one.costs.power_w)),
    (Column("time share", drop=1), lambda one: percent(one.costs.time_ratio)),
    (Column("energy share", drop=1), lambda one: percent(one.costs.energy_ratio)),
    (Column("time roof", drop=5), lambda one: percent(one.costs.roof_time_ratio, 0)),
    (Column("energy roof", drop=1), lambda one: percent(one.costs.roof_energy_ratio, 0)),
    (Column("saving ms/run", drop=7), lambda one: milli(one.costs.saving_time_s, 3)),
    (Column("saving mJ/run", drop=4), lambda one: milli(one.costs.saving_energy_j, 3)),
)
"""The columns of costs of all calls of an operator or a kind."""

SHARES_SORTED_BY = {TIME: "ms/run", POWER: "W", SAVING: "saving mJ/run"}
"""The column of each order that could be left out."""

OPERATOR_CELLS: Cells[OperatorCost] = (
    (Column("operator", "left", wraps=20), lambda one: short_form(_parsed(one))),
    (Column("on", "left", wraps=14), lambda one: short_inputs(_parsed(one))),
    (Column("calls", drop=2), lambda one: str(one.costs.calls)),
    (Column("ms/call", drop=10), lambda one: milli(one.call_time_s)),
    (Column("mJ/call", drop=10), lambda one: milli(one.call_energy_j)),
    *SHARES,
    (Column("bound", "left", drop=9), lambda one: one.bound or UNKNOWN),
)
FLAGS: Cells[OperatorCost] = ((Column("flags", "left", drop=3), lambda one: one.flags.replace("|", ", ")),)
KIND_CELLS: Cells[KindCosts] = (
    (Column("kind of operator", "left"), lambda kind: kind.operator),
    (Column("calls", drop=2), lambda kind: str(kind.costs.calls)),
    *SHARES,
)


def _parsed(one: OperatorCost) -> OperatorTuple:
    return parse_operator(one.operator, one.parameters, one.inputs, one.training_mode)


def _print_models(ranking: DeviceRanking, by: str, top: int | None) -> None:
    """Print each model with its operators, and notes that hold for several models below the first of them."""
    printed: set[str] = set()
    for model in ranking.models:
        row, size = model.row, ", ".join(_shared_size([model.row]).values())
        name = _name_without_size(row) + doubt_mark(is_cost_doubtful(row)) + (f" ({size})" if size else "")
        _print_cost(f"{name} on {_conditions_title([row], ranking.differing)}", model)
        names = _print_operators(model, by, LINES_SHOWN if top is None else top)
        for line in model_notes(model, ranking.boards, names):
            if line not in printed:
                print_line(line)
            printed.add(line)


def _print_operators(model: ShownModel, by: str, most: int) -> set[str]:
    """Print a model's largest operators, with the meanings of their flags, and its kinds; return the names of both."""
    costs = [one.costs for one in model.operators]
    by = _known_order(by, [(cost.energy_j, cost.power_w, cost.saving_energy_j) for cost in costs])
    operators = sorted(model.operators, key=lambda one: rank_of(one, by))[:most]
    if not operators:
        print_line("No operator of the model is measured under these conditions.")
        return set()
    order = ORDERS[TIME] if is_by_time(model.row) and by not in (NAME, SAVING) else ORDERS[by]
    shown = f"{len(operators)} of {len(model.operators)}"
    more = f"; --top {len(model.operators)} shows all" if len(operators) < len(model.operators) else ""
    flags = FLAGS if any(one.flags for one in operators) else ()
    title = f"Operators {order} ({shown} measured operator tuples{more})"
    left_out = _print_sorted(title, operators, (*OPERATOR_CELLS, *flags), by)
    meanings = [] if any(column.title in left_out for column, _ in flags) else flag_lines(operators)
    _print_lines(meanings)
    if left_out or meanings:
        print_line("")
    kinds = sorted(model.kinds, key=lambda kind: rank_of(kind, by))[:most]
    if kinds:
        _print_sorted(f"Kinds of operators {order} ({len(kinds)} of {len(model.kinds)})", kinds, KIND_CELLS, by)
    return {kind.operator for kind in kinds} | {one.operator.rpartition(".")[2] for one in operators}


def _print_sorted(title: str, records: Sequence[Costly], cells: Cells[Costly], by: str) -> set[str]:
    columns = keeping([column for column, _ in cells], SHARES_SORTED_BY.get(by))
    return print_table(title, columns, [[text(one) for _, text in cells] for one in records])


def _print_cost(label: str, model: ShownModel) -> None:
    """Print a line for time and one for energy: the cost, the sum, and the roof; and one for the power.

    Columns that would repeat another, or that the cost cannot have, are left out.
    """
    row = model.row
    is_whole, is_predicted = row.source != SUM, row.predicted_time_s is not None
    added = [word for word, is_in in (("corrected", model.is_corrected), ("with predictions", is_predicted)) if is_in]
    cost = "whole model" if is_whole else ", ".join(["sum" if added else "sum of operators", *added])
    saving_s, saving_j = (
        None if saving is None or row.batch_size is None else saving * row.batch_size
        for saving in (row.saving_time_per_sample_s, row.saving_energy_per_sample_j)
    )
    costs = [
        (Column("", "left"), "time", "energy", "power"),
        (
            Column(f"{cost} (one run)"),
            _cost(row.time_s, row.time_standard_error_s if is_whole else None, "ms"),
            _cost(row.energy_j, row.energy_standard_error_j if is_whole else None, "mJ"),
            UNKNOWN if row.power_w is None else f"{row.power_w:.0f} W",
        ),
        (
            Column("per sample"),
            _cost(row.time_per_sample_s, None, "ms"),
            _cost(row.energy_per_sample_j, None, "mJ"),
            "",
        ),
    ]
    of_sum = [
        (Column("roof"), percent(row.roof_time_ratio, 0), percent(row.roof_energy_ratio, 0), ""),
        (Column("saving per run", drop=3), _cost(saving_s, None, "ms"), _cost(saving_j, None, "mJ"), ""),
    ]
    if is_whole:
        of_sum.insert(
            0, (Column("corrected", drop=2), ratio(row.corrected_time_ratio), ratio(row.corrected_energy_ratio), "")
        )
    if is_whole or added:
        summed = _cost(row.sum_time_s, None, "ms"), _cost(row.sum_energy_j, None, "mJ")
        of_sum.insert(0, (Column("sum of operators", drop=1), *summed, ""))
    doubt = doubt_mark(is_sum_doubtful(row))
    marked = [(column, *(_marked(text, after=doubt) for text in texts)) for column, *texts in of_sum]
    columns, *rows = zip(*costs, *marked, strict=True)
    print_table(label, columns, rows)


def _cost(value: float | None, error: float | None, unit: str) -> str:
    """Return a cost: a whole's with its standard error. A sum's says less than its expected error, which a note has."""
    if value is None:
        return UNKNOWN
    return f"{milli(value)} {unit}" if error is None else f"{milli(value)} ± {milli(error, 2)} {unit}"


# Operators and models that are not measured, and the commands that measure them


def _print_measuring(ranking: DeviceRanking, report: ShowReport, is_named: bool) -> None:
    """Print the commands that measure what is missing from a ranking.

    Unless models are named, those without a cost, and operators without a row, are left out.
    """
    shares = [f"{model.row.name} ({measured_share(model.row)})" for model in ranking.incomplete]
    if shares and is_named:
        print_line(f"No whole model and not all operators are measured: {some_of(shares, NAMES_SHOWN)}")
    sums = [model for model in (ranking.all_models if is_named else ranking.models) if model.row.source == SUM]
    if not sums:
        return
    options, proposals = report.choice.measuring_options(ranking.conditions.device_type), report.proposals
    ways, needing = [], [model for model in sums if model.missing]
    if report.preparation is not None and needing and is_named:
        names, how = [model.row.name for model in needing[:NAMES_SHOWN]], (*options, *ranking.protocol_options)
        of_blocks = [model for model in needing[:NAMES_SHOWN] if model.row.name not in proposals.profiled]
        measuring = []
        if of_blocks:
            ways = _preparing(of_blocks, report.preparation, proposals)
            measuring = [proposals.command("measure", [model.row.name for model in of_blocks], *how)]
        purpose = f"measure the other operators{_of_first(needing)}"
        ways += [(one, purpose) for one in (*measuring, *proposals.profiling(names, *how))]
    print_commands([*ways, _whole_models([model.row.name for model in sums], options, proposals)])


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


def _print_not_measured(report: ShowReport) -> None:
    """Print the models that have no row, those with a whole in another execution, and the commands for both."""
    if report.not_measured:
        print_line(f"Not measured under these conditions: {some_of(report.not_measured, NAMES_SHOWN)}")
        options, shown = report.choice.measuring_options(), report.not_measured[:NAMES_SHOWN]
        proposals, profiled = report.proposals, report.proposals.profiled
        of_folders = [name for name in report.not_measured if name not in profiled]
        ways = [_whole_models(of_folders, options, proposals)] if of_folders else []
        ways += [(command("predict", *profiled[name]), "predict it") for name in shown if name in profiled]
        profiles = proposals.profiling(shown, *options, *USUAL_OPTIONS)
        print_commands([*ways, *((profile, "count and measure it") for profile in profiles)])
    for execution, names in report.other_executions.items():
        print_line(f"Measured in {execution} execution: {some_of(names, NAMES_SHOWN)}")
        choice = replace(report.choice, execution=execution)
        print_commands([(command("show", *names[:NAMES_SHOWN], *choice.options), f"show them{_of_first(names)}")])


def _whole_models(names: Sequence[str], options: Sequence[str], proposals: Proposals) -> tuple[str, str]:
    """Return the command that measures whole models, with its purpose."""
    measuring = proposals.command("measure-models", names[:NAMES_SHOWN], *options, *USUAL_OPTIONS)
    return measuring, f"measure whole models{_of_first(names)}"


def _of_first(models: Sequence[object]) -> str:
    """Return a note on a command that names the first of these models only, else nothing."""
    return f" (the first {NAMES_SHOWN})" if len(models) > NAMES_SHOWN else ""
