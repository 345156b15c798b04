"""One model on a terminal: its cost, its operators and their kinds, and what each would save at its roof."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.comparing.operator_costs import CostShare, KindCosts, OperatorCost, rank_of
from opcost.comparing.ranking import ENERGY, NAME, POWER, SAVING, TIME
from opcost.comparing.ranking_row import SUM
from opcost.operators.short_forms import short_form, short_inputs
from opcost.operators.texts import parse_operator
from opcost.reporting.layout import keeping
from opcost.reporting.show_doubts import is_by_time, is_sum_doubtful
from opcost.reporting.show_notes import flag_lines, known_order
from opcost.reporting.tables import doubt_mark
from opcost.reporting.terminal import Column, print_line, print_table
from opcost.stages.show import ShownModel
from opcost.units import UNKNOWN, milli, percent, ratio

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

SORTED_BY = {TIME: "ms/run", POWER: "W", SAVING: "saving mJ/run"}
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
        print_table(title, keeping(KIND_COLUMNS, SORTED_BY.get(by)), list(map(_kind_cells, kinds)))
    return {kind.operator for kind in kinds} | {one.operator.rpartition(".")[2] for one in operators}


def _print_operators(title: str, operators: Sequence[OperatorCost], by: str) -> None:
    """Print a table of operators, with a column for flags and their meanings if there are any."""
    columns: tuple[Column, ...] = OPERATOR_COLUMNS
    rows = list(map(_operator_cells, operators))
    if any(one.flags for one in operators):
        columns = (*columns, FLAGS)
        rows = [(*row, one.flags.replace("|", ", ")) for row, one in zip(rows, operators, strict=True)]
    left_out = print_table(title, keeping(columns, SORTED_BY.get(by)), rows)
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
    rows = [[_marked(cells, doubt)[index] for index in kept] for cells in (time, energy, power)]
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


def _marked(cells: Sequence[str], doubt: str) -> tuple[str, ...]:
    """Return the cells with a mark behind those figures that rest on the sum: all after the cost."""
    return (*cells[:3], *(cell if cell in ("", UNKNOWN) else cell + doubt for cell in cells[3:]))


def _operator_cells(one: OperatorCost) -> tuple[str, ...]:
    operator = parse_operator(one.operator, one.parameters, one.inputs, one.training_mode)
    return (
        *(short_form(operator), short_inputs(operator), str(one.costs.calls)),
        *(milli(one.call_time_s), milli(one.call_energy_j)),
        *_share_cells(one.costs),
        one.bound or UNKNOWN,
    )


def _kind_cells(kind: KindCosts) -> tuple[str, ...]:
    return (kind.operator, str(kind.costs.calls), *_share_cells(kind.costs))


def _share_cells(costs: CostShare) -> tuple[str, ...]:
    return (
        *(milli(costs.time_s), milli(costs.energy_j), UNKNOWN if costs.power_w is None else f"{costs.power_w:.0f}"),
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
