"""The ranking of models, and a single model with its operators, on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opcost.columns import fields_of
from opcost.comparing.comparison import differing as differing_values
from opcost.comparing.operator_costs import CostShare, OperatorCost, rank_of
from opcost.comparing.ranking import ENERGY, NAME, POWER, SAVING, TIME
from opcost.comparing.ranking_row import SUM, RankingRow, ranked
from opcost.invocation import command
from opcost.measuring.conditions import Conditions
from opcost.operators.short_forms import short_form, short_inputs
from opcost.operators.texts import parse_operator
from opcost.reporting.comparison_tables import all_in_words
from opcost.reporting.layout import keeping
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
    known_order,
    model_notes,
    predicted_lines,
    ranking_notes,
)
from opcost.reporting.show_steps import print_measuring, print_not_measured
from opcost.reporting.tables import doubt_mark, print_origin
from opcost.reporting.terminal import Column, print_commands, print_line, print_table
from opcost.stages.compare import ComparingReport
from opcost.stages.show import DeviceRanking, ShownModel, ShowReport
from opcost.units import UNKNOWN, milli, percent, ratio, scaled, some_of, whole_watts

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

COLUMNS = (
    Column("model", "left"),
    Column("batch"),
    Column("size"),
    Column("ms/run", drop=10),
    Column("mJ/run", drop=10),
    Column("ms/sample", drop=1),
    Column("mJ/sample"),
    Column("W", drop=4),
    Column("samples/J", drop=11),
    Column("samples/s", drop=11),
    Column(KIND_TITLES[0], "left"),
    Column(KIND_TITLES[1], "left", drop=5),
    Column(KIND_TITLES[2], "left", drop=7),
    Column("time roof", drop=3),
    Column("energy roof", drop=2),
    Column("saving mJ/sample", drop=6),
)


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
    """Return a ranking's table, None if no model has a cost."""
    rows = [model.row for model in ranking.models]
    if not rows:
        return None
    by = known_order(by, [(row.energy_per_sample_j, row.power_w, row.saving_energy_per_sample_j) for row in rows])
    labelled = zip(_labels(rows), ranking.models, strict=True)
    cells = [_cells(label, model, by) for label, model in labelled]
    shared = _shared_size(rows)
    kept = [index for index, column in enumerate(COLUMNS) if column.title not in shared]
    columns = keeping(COLUMNS, SORTED_BY.get(by))
    on, sizes = _conditions_title(rows, ranking.differing), ", ".join(shared.values())
    return RankingTable(
        title=f"{TITLES.get(by, TITLES[ENERGY])} on {on}" + (f"; {sizes}" if sizes else ""),
        by=by,
        columns=tuple(columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in cells),
        notes=tuple(ranking_notes(ranking, by)),
    )


def print_rankings(report: ShowReport, by: str, top: int | None = None, with_incomplete: bool = True) -> None:
    """Print a table for each device, or for each model if the report has operators, and models without a figure.

    Args:
        report: the rankings.
        by: one of ``SORTS``.
        top: the most models, or operators of a model; None for all models, and the usual number of operators.
        with_incomplete: whether to name the models with an incomplete sum only.
    """
    sides = sides_of(report, by)
    if sides is not None:
        print_table(sides.title, sides.columns, sides.rows[:top])
        for line in sides.notes:
            print_line(line)
    elif len(report.choice.devices) > 1:
        print_line("No model is completely measured on all of these devices under the same conditions.")
    for ranking in () if sides is not None else report.rankings:
        if report.has_operators:
            _print_models(ranking, by, top)
        table = None if report.has_operators else table_of(ranking, by)
        if table is not None:
            left_out = print_table(table.title, table.columns, table.rows[:top])
            for line in ranking_notes(ranking, table.by, left_out):
                print_line(line)
        else:
            for line in predicted_lines(ranking):
                print_line(line)
        print_measuring(ranking, report, with_incomplete)
        if ranking.others:
            print_line(f"Under other conditions: {some_of(list(ranking.others), NAMES_SHOWN)}")
            print_commands([(command("show", *ranking.others, *report.choice.options), "show them")])
    print_not_measured(report)
    if report.also:
        print_line(f"Also measured: {'; '.join(report.also)}")
    if report.rankings:
        print_origin()


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
    notes = [f"Ratio: over {products[0]}.", *dict.fromkeys(map(_boards_words, report.rankings))]
    if any(row.source == SUM for rows in shared for row in rows):
        notes.append(f"{ESTIMATED} the corrected sum of its operators, because the whole model is not measured.")
    if alone:
        notes.append(f"On one of the devices only: {some_of(alone, NAMES_SHOWN)}")
    facts = ", ".join(_conditions_shown(row.conditions for rows in shared for row in rows))
    title = f"Time and energy per sample on devices beside each other: {facts}"
    return RankingTable(title, by, tuple(columns), tuple(map(_cells_of_sides, shared)), tuple(filter(None, notes)))


def _cells_of_sides(rows: Sequence[RankingRow]) -> tuple[str, ...]:
    (label,), first = _labels(rows[:1]), rows[0]
    cells = [label, UNKNOWN if first.batch_size is None else str(first.batch_size), _sample_size(first) or UNKNOWN]
    for costs in ([row.time_per_sample_s for row in rows], [row.energy_per_sample_j for row in rows]):
        for row, cost in zip(rows, costs, strict=True):
            mark = ESTIMATED if row.source == SUM and cost is not None else ""
            cells.append(mark + milli(cost) + doubt_mark(is_cost_doubtful(row)))
        cells += [UNKNOWN if one is None or not costs[0] else f"{one / costs[0]:.3f}" for one in costs[1:]]
    return tuple(cells)


def _boards_words(ranking: DeviceRanking) -> str:
    """Return how far boards of a device differ: a ratio between two single boards may be theirs. Empty if unknown."""
    time, energy = ranking.boards.time, ranking.boards.energy
    if time is None or energy is None:
        return ""
    most = f"{percent(time.largest_ratio)} in time and {percent(energy.largest_ratio)} in energy"
    return f"{ranking.boards.boards} boards of {ranking.product} differ by up to {most} in whole models."


def _print_models(ranking: DeviceRanking, by: str, top: int | None) -> None:
    """Print each model with its operators, and notes that hold for several models below the first of them."""
    printed: set[str] = set()
    for model in ranking.models:
        row, size = model.row, ", ".join(_shared_size([model.row]).values())
        name = _name_without_size(row) + doubt_mark(is_cost_doubtful(row)) + (f" ({size})" if size else "")
        title = f"{name} on {_conditions_title([row], ranking.differing)}"
        names = print_model(title, model, by, top)
        for line in model_notes(model, ranking.boards, names):
            if line not in printed:
                print_line(line)
            printed.add(line)


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


def _cells(label: str, model: ShownModel, by: str) -> tuple[str, ...]:
    row = model.row
    mark = ESTIMATED if row.source == SUM else ""
    kinds = [f"{kind.operator} {percent(kind.costs.ratio(by), 0)}" for kind in model.kinds[: len(KIND_TITLES)]]
    of_sum = (
        *(*kinds, *[UNKNOWN] * (len(KIND_TITLES) - len(kinds))),
        *(percent(row.roof_time_ratio, 0), percent(row.roof_energy_ratio, 0), milli(row.saving_energy_per_sample_j)),
    )
    doubt = doubt_mark(is_sum_doubtful(row))
    figures = (
        *(milli(row.time_s), milli(row.energy_j), milli(row.time_per_sample_s), milli(row.energy_per_sample_j)),
        *(whole_watts(row.power_w), scaled(row.samples_per_joule, 1), scaled(row.samples_per_second, 1)),
    )
    return (
        label + doubt_mark(is_cost_doubtful(row)),
        UNKNOWN if row.batch_size is None else str(row.batch_size),
        _sample_size(row) or UNKNOWN,
        *(figure if figure == UNKNOWN else mark + figure for figure in figures),
        *(figure if figure == UNKNOWN else figure + doubt for figure in of_sum),
    )


LINES_SHOWN = 15
"""The operators, and the kinds, that are shown unless another number is asked for."""

ORDERS = {ENERGY: "by energy", TIME: "by time", POWER: "by power", SAVING: "by saving", NAME: "by name"}

SHARES = (
    Column("ms/run", drop=6),
    Column("mJ/run"),
    Column("W", drop=8),
    Column("time share", drop=1),
    Column("energy share", drop=1),
    Column("time roof", drop=5),
    Column("energy roof", drop=1),
    Column("saving ms/run", drop=7),
    Column("saving mJ/run", drop=4),
)
"""The columns of costs of all calls of an operator or a kind."""

SHARES_SORTED_BY = {TIME: "ms/run", POWER: "W", SAVING: "saving mJ/run"}
"""The column of each order that could be left out."""

OPERATOR_COLUMNS = (
    Column("operator", "left", wraps=20),
    Column("on", "left", wraps=14),
    Column("calls", drop=2),
    Column("ms/call", drop=10),
    Column("mJ/call", drop=10),
    *SHARES,
    Column("bound", "left", drop=9),
)
FLAGS = Column("flags", "left", drop=3)
KIND_COLUMNS = (Column("kind of operator", "left"), Column("calls", drop=2), *SHARES)


def print_model(label: str, model: ShownModel, by: str, top: int | None = None) -> set[str]:
    """Print a model's cost, its largest operators and its kinds of operators; return the names of both.

    Args:
        label: the model's name and conditions.
        model: with its operators.
        by: one of ``SORTS``.
        top: the most operators to print, None for the usual number.
    """
    _print_cost(label, model)
    most = LINES_SHOWN if top is None else top
    costs = [one.costs for one in model.operators]
    by = known_order(by, [(cost.energy_j, cost.power_w, cost.saving_energy_j) for cost in costs])
    operators = sorted(model.operators, key=lambda one: rank_of(one, by))[:most]
    if not operators:
        print_line("No operator of the model is measured under these conditions.")
        return set()
    order = ORDERS[TIME] if is_by_time(model.row) and by not in (NAME, SAVING) else ORDERS[by]
    shown = f"{len(operators)} of {len(model.operators)}"
    more = f"; --top {len(model.operators)} shows all" if len(operators) < len(model.operators) else ""
    _print_operators(f"Operators {order} ({shown} measured operator tuples{more})", operators, by)
    kinds = sorted(model.kinds, key=lambda kind: rank_of(kind, by))[:most]
    if kinds:
        title = f"Kinds of operators {order} ({len(kinds)} of {len(model.kinds)})"
        cells = [(kind.operator, str(kind.costs.calls), *_share_cells(kind.costs)) for kind in kinds]
        print_table(title, keeping(KIND_COLUMNS, SHARES_SORTED_BY.get(by)), cells)
    return {kind.operator for kind in kinds} | {one.operator.rpartition(".")[2] for one in operators}


def _print_operators(title: str, operators: Sequence[OperatorCost], by: str) -> None:
    """Print a table of operators, with a column for flags and their meanings if there are any."""
    columns: tuple[Column, ...] = OPERATOR_COLUMNS
    rows = list(map(_operator_cells, operators))
    if any(one.flags for one in operators):
        columns = (*columns, FLAGS)
        rows = [(*row, one.flags.replace("|", ", ")) for row, one in zip(rows, operators, strict=True)]
    left_out = print_table(title, keeping(columns, SHARES_SORTED_BY.get(by)), rows)
    meanings = [] if FLAGS.title in left_out else flag_lines(operators)
    for line in meanings:
        print_line(line)
    if left_out or meanings:
        print_line("")


def _print_cost(label: str, model: ShownModel) -> None:
    """Print a line for time and one for energy: the cost, the sum, and the roof; and one for the power."""
    row = model.row
    saving_s, saving_j = (
        None if saving is None or row.batch_size is None else saving * row.batch_size
        for saving in (row.saving_time_per_sample_s, row.saving_energy_per_sample_j)
    )
    time = (
        *("time", _cost(row.source, row.time_s, row.time_standard_error_s, "ms"), _unit(row.time_per_sample_s, "ms")),
        *(_unit(row.sum_time_s, "ms"), ratio(row.corrected_time_ratio)),
        *(percent(row.roof_time_ratio, 0), _unit(saving_s, "ms")),
    )
    energy = (
        *("energy", _cost(row.source, row.energy_j, row.energy_standard_error_j, "mJ")),
        *(_unit(row.energy_per_sample_j, "mJ"), _unit(row.sum_energy_j, "mJ"), ratio(row.corrected_energy_ratio)),
        *(percent(row.roof_energy_ratio, 0), _unit(saving_j, "mJ")),
    )
    power = ("power", UNKNOWN if row.power_w is None else f"{row.power_w:.0f} W", *[""] * (len(energy) - 2))
    doubt = doubt_mark(is_sum_doubtful(row))
    columns = _cost_columns(model)
    kept = [index for index, column in enumerate(columns) if column is not None]
    # Behind those figures that rest on the sum: all after the cost.
    marked = [
        (*cells[:3], *(cell if cell in ("", UNKNOWN) else cell + doubt for cell in cells[3:]))
        for cells in (time, energy, power)
    ]
    rows = [[cells[index] for index in kept] for cells in marked]
    print_table(label, [column for column in columns if column is not None], rows)


def _cost_columns(model: ShownModel) -> tuple[Column | None, ...]:
    """Return the columns of a model's cost; None for one that would repeat another, or that the cost cannot have."""
    row = model.row
    is_whole, is_predicted = row.source != SUM, row.predicted_time_s is not None
    added = [word for word, is_in in (("corrected", model.is_corrected), ("with predictions", is_predicted)) if is_in]
    cost = "whole model" if is_whole else ", ".join(["sum" if added else "sum of operators", *added])
    return (
        *(Column("", "left"), Column(f"{cost} (one run)"), Column("per sample")),
        Column("sum of operators", drop=1) if is_whole or added else None,
        Column("corrected", drop=2) if is_whole else None,
        *(Column("roof"), Column("saving per run", drop=3)),
    )


def _operator_cells(one: OperatorCost) -> tuple[str, ...]:
    operator = parse_operator(one.operator, one.parameters, one.inputs, one.training_mode)
    return (
        *(short_form(operator), short_inputs(operator), str(one.costs.calls)),
        *(milli(one.call_time_s), milli(one.call_energy_j)),
        *_share_cells(one.costs),
        one.bound or UNKNOWN,
    )


def _share_cells(costs: CostShare) -> tuple[str, ...]:
    return (
        *(milli(costs.time_s), milli(costs.energy_j), whole_watts(costs.power_w)),
        *(percent(costs.time_ratio), percent(costs.energy_ratio)),
        *(percent(costs.roof_time_ratio, 0), percent(costs.roof_energy_ratio, 0)),
        *(milli(costs.saving_time_s, 3), milli(costs.saving_energy_j, 3)),
    )


def _unit(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{milli(value)} {unit}"


def _cost(source: str, value: float | None, error: float | None, unit: str) -> str:
    """Return a cost: a whole's with its standard error. A sum's says less than its expected error, which a note has."""
    if value is None or error is None or source == SUM:
        return _unit(value, unit)
    return f"{milli(value)} ± {milli(error, 2)} {unit}"
