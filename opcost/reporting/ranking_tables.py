"""The ranking of models, and single models with operators: on a terminal, and as lines for CSV, JSON and frames."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Annotated, Any

from opcost.columns import Column as Declared
from opcost.columns import Columns, by_column, columns_of, fields_of
from opcost.comparing.comparison import differing as differing_values
from opcost.comparing.operator_costs import KindCosts, OperatorCost, rank_of
from opcost.comparing.ranking import ENERGY, NAME, POWER, SAVING, SUM, TIME, RankingRow, ranked
from opcost.estimates import ratio_if_known
from opcost.invocation import command, joined
from opcost.measuring.conditions import DEVICE_PRODUCT, Conditions
from opcost.measuring.protocol import USUAL_OPTIONS
from opcost.operators.counts import MODEL
from opcost.operators.model_inputs import Unit
from opcost.operators.training import INFERENCE, PARTS
from opcost.reporting import ranking_notes
from opcost.reporting.charts import compared
from opcost.reporting.comparison_tables import all_in_words
from opcost.reporting.output import write_csv
from opcost.reporting.ranking_notes import ESTIMATED, NAMES_SHOWN
from opcost.reporting.tables import (
    LINES_SHOWN,
    OPERATOR_ON_INPUTS,
    Column,
    Table,
    doubt_mark,
    keeping,
    print_commands,
    print_line,
    print_note,
    print_origin,
    print_priced,
    print_table,
)
from opcost.stages.compare import ComparingReport
from opcost.stages.show import DeviceRanking, ShownModel, ShowReport
from opcost.stages.wanted_model import Preparation, Proposals
from opcost.units import KWH_J, UNKNOWN, milli, millijoules, milliseconds, percent, ratio, scaled, some_of, whole_watts

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

SORTED_BY = {TIME: "ms/sample", POWER: "W", SAVING: "saving mJ/sample"}
"""The column of each order that could be left out."""


@dataclass(frozen=True)
class Ranked:
    """A model in a ranking under a label; figures of the sum have a mark if it is no result yet."""

    label: str
    model: ShownModel
    by: str

    @property
    def row(self) -> RankingRow:
        return self.model.row

    def cost(self, text: str) -> str:
        return f"{ESTIMATED}{text}" if self.row.source == SUM and text != UNKNOWN else text

    def of_sum(self, text: str) -> str:
        return text if text in ("", UNKNOWN) else text + doubt_mark(ranking_notes.is_sum_doubtful(self.row))

    def kind(self, place: int) -> str:
        if place >= len(self.model.kinds):
            return UNKNOWN
        kind = self.model.kinds[place]
        return self.of_sum(f"{kind.operator} {percent(kind.costs.ratio(self.by), 0)}")


LARGEST_KIND, SECOND_KIND, THIRD_KIND = ranking_notes.KIND_TITLES
COSTS: Table[Ranked] = (
    Column("model", lambda one: one.label + doubt_mark(ranking_notes.is_cost_doubtful(one.row)), "left"),
    Column("batch", lambda one: _batch(one.row)),
    Column("size", lambda one: _sample_size(one.row) or UNKNOWN),
    Column("ms/run", lambda one: one.cost(milli(one.row.time_s)), drop=10),
    Column("mJ/run", lambda one: one.cost(milli(one.row.energy_j)), drop=10),
    Column("ms/sample", lambda one: one.cost(milli(one.row.time_per_sample_s)), drop=1),
    Column(
        "mJ/sample",
        lambda one: one.cost(milli(one.row.energy_per_sample_j)),
        energy_j=lambda one: one.row.energy_per_sample_j,
    ),
    Column("W", lambda one: one.cost(whole_watts(one.row.power_w)), drop=4),
    Column("samples/J", lambda one: one.cost(scaled(one.row.samples_per_joule, 1)), drop=11),
    Column("samples/s", lambda one: one.cost(scaled(one.row.samples_per_second, 1)), drop=11),
)
KINDS_AND_ROOFS: Table[Ranked] = (
    Column(LARGEST_KIND, lambda one: one.kind(0), "left"),
    Column(SECOND_KIND, lambda one: one.kind(1), "left", drop=5),
    Column(THIRD_KIND, lambda one: one.kind(2), "left", drop=7),
    Column("time roof", lambda one: one.of_sum(percent(one.row.roof_time_ratio, 0)), drop=3),
    Column("energy roof", lambda one: one.of_sum(percent(one.row.roof_energy_ratio, 0)), drop=2),
    Column("saving mJ/sample", lambda one: one.of_sum(milli(one.row.saving_energy_per_sample_j)), drop=6),
)
RANKED = (*COSTS, *KINDS_AND_ROOFS)


def _of_phase(column: str, one: Ranked) -> str:
    units = one.model.result.units
    return one.cost(milli(ratio_if_known(getattr(one.row, column), None if units is None else units.number)))


def _per_kwh(per_joule: float | None) -> str:
    return UNKNOWN if per_joule is None else f"{per_joule * KWH_J:,.0f}"


RANKED_STEPS: Table[Ranked] = (
    *keeping(COSTS, "samples/J"),
    Column("samples/kWh", lambda one: one.cost(_per_kwh(one.row.samples_per_joule)), drop=9),
    *(
        Column(f"{phase} {unit}/sample", partial(_of_phase, f"{phase}_{cost}"), drop=8)
        for unit, cost in (("ms", "time_s"), ("mJ", "energy_j"))
        for phase in PARTS
    ),
    Column("idle share", lambda one: percent(one.row.idle_energy_ratio, 0), drop=8),
    *KINDS_AND_ROOFS,
)


@dataclass(frozen=True)
class RankingTable:
    """A table of models, its order, and the notes below it."""

    title: str
    by: str
    columns: Table[Any]
    records: Sequence[Any]
    notes: Sequence[str]


def table_of(ranking: DeviceRanking, by: str) -> RankingTable | None:
    """Return a ranking's table, None if no model has a cost. It is by time if no model has the figure of its order."""
    rows = [model.row for model in ranking.models]
    if not rows:
        return None
    by = _known_order(by, [(row.energy_per_sample_j, row.power_w, row.saving_energy_per_sample_j) for row in rows])
    shared = _shared_size(rows)
    unit = rows[0].unit or Unit.SAMPLE
    order = TITLES.get(by, TITLES[ENERGY]).replace(Unit.SAMPLE, unit)
    is_step = any(model.result.phases for model in ranking.models)
    title = f"{order}{' of a training step' * is_step} on {_conditions_title(rows, ranking.differing)}"
    return RankingTable(
        "; ".join([title, *([", ".join(shared.values())] if shared else [])]),
        by,
        [
            replace(column, title=column.title.replace(Unit.SAMPLE, unit))
            for column in keeping(RANKED_STEPS if is_step else RANKED, SORTED_BY.get(by))
            if column.title not in shared
        ],
        [Ranked(label, model, by) for label, model in zip(_labels(rows), ranking.models, strict=True)],
        ranking_notes.ranking_notes(ranking, by),
    )


def _known_order(by: str, figures: Iterable[tuple[float | None, float | None, float | None]]) -> str:
    of_order = dict(zip((ENERGY, POWER, SAVING), zip(*figures, strict=True), strict=False))
    return TIME if by in of_order and all(figure is None for figure in of_order[by]) else by


def print_rankings(report: ShowReport, by: str, top: int | None = None, with_incomplete: bool = True) -> None:
    """Print a table for each device, or each model if the report has operators, and models without a figure.

    ``top`` is the most models, or operators of a model. Models with an incomplete sum only are named on demand.
    """
    sides = sides_of(report, by)
    if sides is not None:
        print_table(sides.title, sides.columns, sides.records[:top])
        print_note(*sides.notes)
    elif len(report.choice.devices) > 1:
        print_line("No model is completely measured on all of these devices under the same conditions.")
    for ranking in () if sides is not None else report.rankings:
        if report.has_operators:
            printed: set[str] = set()
            for model in ranking.models:
                row, size = model.row, ", ".join(_shared_size([model.row]).values())
                name = _name_without_size(row) + doubt_mark(ranking_notes.is_cost_doubtful(row))
                name += f" ({size})" if size else ""
                _print_cost(f"{name} on {_conditions_title([row], ranking.differing)}", model)
                names = _print_operators(model, by, LINES_SHOWN if top is None else top)
                notes = ranking_notes.model_notes(model, ranking.boards, names)
                new = (line for line in dict.fromkeys(notes) if line not in printed)
                print_note(*new, warnings=ranking_notes.doubt_lines([row]))
                printed.update(notes)
        table = None if report.has_operators else table_of(ranking, by)
        if table is None:
            print_line(*ranking_notes.predicted_lines(ranking))
        else:
            left_out = print_table(table.title, table.columns, table.records[:top])
            doubts = ranking_notes.doubt_lines([model.row for model in ranking.models])
            print_note(*ranking_notes.ranking_notes(ranking, table.by, left_out), warnings=doubts)
        _print_measuring(ranking, report, with_incomplete)
        if ranking.others:
            print_note(f"Under other conditions: {some_of(list(ranking.others), NAMES_SHOWN)}")
            print_commands([(command("show", *ranking.others, *report.choice.options), "show them")])
    _print_not_measured(report)
    if report.also:
        print_note(f"Also measured: {'; '.join(report.also)}")
    if report.rankings:
        print_origin()


def sides_of(report: ShowReport, by: str = ENERGY) -> RankingTable | None:
    """Return the table that sets models on devices beside each other; None if none has a cost on all of them."""
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
    names = list(enumerate(product.removeprefix("NVIDIA ") for product in products))
    columns: list[Column[Sequence[RankingRow]]] = [
        Column("model", lambda rows: _labels(rows[:1])[0], "left"),
        Column("batch", lambda rows: _batch(rows[0]), drop=2),
        Column("size", lambda rows: _sample_size(rows[0]) or UNKNOWN, drop=1),
    ]
    for unit, cost in (("ms", "time_per_sample_s"), ("mJ", "energy_per_sample_j")):
        of_cost, of_ratio = partial(_cost_of_side, cost), partial(_ratio_of_side, cost)
        columns += [Column(f"{unit}/sample {name}", partial(of_cost, side), wraps=1) for side, name in names]
        columns += [Column(f"{unit} ratio {name}", partial(of_ratio, side), wraps=1) for side, name in names[1:]]
    notes = [f"Ratio: over {products[0]}."]
    for boards, product in dict.fromkeys((ranking.boards, ranking.product) for ranking in report.rankings):
        # A ratio between two single boards may be theirs.
        if boards.time is not None and boards.energy is not None:
            most = ranking_notes.in_quantities(boards.time.high_ratio, boards.energy.high_ratio)
            notes.append(f"{boards.boards} boards of {product} differ by up to {most} in whole models.")
    if any(row.source == SUM for rows in shared for row in rows):
        notes.append(f"{ESTIMATED} the corrected sum of its operators, because the whole model is not measured.")
    if alone:
        notes.append(f"On one of the devices only: {some_of(alone, NAMES_SHOWN)}")
    facts = ", ".join(_conditions_shown(row.conditions for rows in shared for row in rows))
    title = f"Time and energy per sample on devices beside each other: {facts}"
    return RankingTable(title, by, columns, shared, notes)


def _cost_of_side(cost: str, side: int, rows: Sequence[RankingRow]) -> str:
    row, value = rows[side], getattr(rows[side], cost)
    mark = ESTIMATED if row.source == SUM and value is not None else ""
    return mark + milli(value) + doubt_mark(ranking_notes.is_cost_doubtful(row))


def _ratio_of_side(cost: str, side: int, rows: Sequence[RankingRow]) -> str:
    first, value = getattr(rows[0], cost), getattr(rows[side], cost)
    return UNKNOWN if value is None or not first else ratio(value / first)


def print_remarks(report: ShowReport, reports: Sequence[ComparingReport]) -> None:
    shown = {(model.row.name, model.row.conditions) for model in report.models}
    lines = [
        f"{one.name}: {line}"
        for one in compared(reports)
        if (one.row.name, one.row.conditions) in shown
        for line in all_in_words(one.row, one.remarks) or ["none"]
    ]
    if lines:
        print_line("Remarks on the sums of the whitelisted operators and the whole models:")
        print_line(*lines, hanging=4)
    else:
        print_line("No remarks: no sum of these models can be compared with a whole model.")


def _labels(rows: Sequence[RankingRow]) -> list[str]:
    """Return the models' names, with the conditions that differ between the models.

    A size that is the row's own is left out of the name, unless two models would have the same name and size.
    """
    shorter = [_name_without_size(row) for row in rows]
    found = Counter(zip(shorter, (row.input_size for row in rows), strict=True))
    names = [name if found[name, row.input_size] == 1 else row.name for name, row in zip(shorter, rows, strict=True)]
    conditions = differing_values([row.conditions for row in rows])
    return [f"{name} ({', '.join(texts)})" if texts else name for name, texts in zip(names, conditions, strict=True)]


def _name_without_size(row: RankingRow) -> str:
    return row.name.removesuffix(f"_{row.input_size}") if row.input_size else row.name


def _batch(row: RankingRow) -> str:
    return UNKNOWN if row.batch_size is None else str(row.batch_size)


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
    named = (field for field in fields_of(Conditions) if field.name in names)
    others = [ranking_notes.condition_words(field, conditions) for field in named]
    libraries = " or ".join(sorted({row.library for row in rows if row.library}))
    facts = [*_conditions_shown([row.conditions for row in rows]), *filter(None, [libraries]), *others, measured]
    return f"{conditions.device_product}: {', '.join(facts)}"


def _conditions_shown(conditions: Iterable[Conditions]) -> list[str]:
    facts = [
        (
            one.execution,
            ranking_notes.arithmetic(one),
            f"torch {one.torch_version}",
            f"driver {one.driver_version}" if one.driver_version else "",
            f"{one.cpu_threads} threads" if one.cpu_threads else "",
        )
        for one in conditions
    ]
    return [" or ".join(sorted({*texts} - {""})) for texts in zip(*facts, strict=True) if any(texts)]


# A model with its operators

ORDERS = {ENERGY: "by energy", TIME: "by time", POWER: "by power", SAVING: "by saving", NAME: "by name"}

SHARES: Table[OperatorCost | KindCosts] = (
    Column("ms/run", lambda one: milli(one.costs.time_s), drop=6),
    Column("mJ/run", lambda one: milli(one.costs.energy_j)),
    Column("W", lambda one: whole_watts(one.costs.power_w), drop=8),
    Column("time share", lambda one: percent(one.costs.time_ratio), drop=1),
    Column("energy share", lambda one: percent(one.costs.energy_ratio), drop=1),
    Column("time roof", lambda one: percent(one.costs.roof_time_ratio, 0), drop=5),
    Column("energy roof", lambda one: percent(one.costs.roof_energy_ratio, 0), drop=1),
    Column("saving ms/run", lambda one: milli(one.costs.saving_time_s, 3), drop=7),
    Column("saving mJ/run", lambda one: milli(one.costs.saving_energy_j, 3), drop=4),
)
"""The costs of all calls of an operator or a kind."""

SHARES_SORTED_BY = {TIME: "ms/run", POWER: "W", SAVING: "saving mJ/run"}
"""The column of each order that could be left out."""

OPERATORS: Table[OperatorCost] = (
    *OPERATOR_ON_INPUTS,
    Column("calls", lambda one: str(one.costs.calls), drop=2),
    Column("ms/call", lambda one: milli(one.call_time_s), drop=10),
    Column("mJ/call", lambda one: milli(one.call_energy_j), drop=10),
    *SHARES,
    Column("bound", lambda one: one.bound or UNKNOWN, "left", drop=9),
)
FLAGS: Table[OperatorCost] = (Column("flags", lambda one: one.flags.replace("|", ", "), "left", drop=3),)
KINDS: Table[KindCosts] = (
    Column("kind of operator", lambda kind: kind.operator, "left"),
    Column("calls", lambda kind: str(kind.costs.calls), drop=2),
    *SHARES,
)


def _print_operators(model: ShownModel, by: str, most: int) -> set[str]:
    """Print a model's largest operators, with the meanings of their flags, and its kinds; return the names of both."""
    costs = (one.costs for one in model.operators)
    by = _known_order(by, [(cost.energy_j, cost.power_w, cost.saving_energy_j) for cost in costs])
    operators = sorted(model.operators, key=lambda one: rank_of(one, by))[:most]
    if not operators:
        print_line("No operator of the model is measured under these conditions.")
        return set()
    order = ORDERS[TIME] if ranking_notes.is_by_time(model.row) and by not in (NAME, SAVING) else ORDERS[by]
    shown = f"{len(operators)} of {len(model.operators)}"
    more = f"; --top {len(model.operators)} shows all" if len(operators) < len(model.operators) else ""
    flags = FLAGS if any(one.flags for one in operators) else ()
    kept = SHARES_SORTED_BY.get(by)
    title = f"Operators {order} ({shown} measured operator tuples{more})"
    left_out = print_table(title, keeping((*OPERATORS, *flags), kept), operators)
    meanings = [] if any(column.title in left_out for column in flags) else ranking_notes.flag_lines(operators)
    print_note(*meanings)
    if left_out or meanings:
        print_line("")
    kinds = sorted(model.kinds, key=lambda kind: rank_of(kind, by))[:most]
    if kinds:
        print_table(f"Kinds of operators {order} ({len(kinds)} of {len(model.kinds)})", keeping(KINDS, kept), kinds)
    return {kind.operator for kind in kinds} | {one.operator.rpartition(".")[2] for one in operators}


def _print_cost(label: str, model: ShownModel) -> None:
    """Print time, energy and power, without columns that would repeat another or that the cost cannot have."""
    row = model.row
    is_whole, phases = row.source != SUM, PARTS if model.result.phases else ()
    parts = {"corrected": model.result.correction, "with predictions": row.predicted_time_s}
    added = [word for word, part in parts.items() if part is not None]
    cost = "whole model" if is_whole else ", ".join(["sum" if added else "sum of operators", *added])
    errors = (row.time_standard_error_s, row.energy_standard_error_j) if is_whole else (None, None)
    doubt = doubt_mark(ranking_notes.is_sum_doubtful(row))
    saving_s, saving_j = (
        None if saving is None or model.result.units is None else saving * model.result.units.number
        for saving in (row.saving_time_per_sample_s, row.saving_energy_per_sample_j)
    )

    def column(title: str, *texts: str, drop: int = 0, mark: str = "") -> Column[int]:
        marked = [text if text in ("", UNKNOWN) else text + mark for text in (*texts, "")]
        return Column(title, marked.__getitem__, "right" if title else "left", drop)

    def costs(time_s: float | None, energy_j: float | None) -> tuple[str, str]:
        return milliseconds(time_s), millijoules(energy_j)

    per_run = _cost(row.time_s, errors[0], "ms"), _cost(row.energy_j, errors[1], "mJ")
    of_phases = {name: costs(getattr(row, f"{name}_time_s"), getattr(row, f"{name}_energy_j")) for name in phases}
    summed = costs(row.sum_time_s, row.sum_energy_j)
    corrected = ratio(row.corrected_time_ratio), ratio(row.corrected_energy_ratio)
    roof = percent(row.roof_time_ratio, 0), percent(row.roof_energy_ratio, 0)
    columns = [
        column("", "time", "energy", "power"),
        column(f"{cost} (one run)", *per_run, UNKNOWN if row.power_w is None else f"{row.power_w:.0f} W"),
        column(f"per {row.unit or Unit.SAMPLE}", *costs(row.time_per_sample_s, row.energy_per_sample_j)),
        *(column(f"{phase} (one run)", *texts) for phase, texts in of_phases.items()),
        *[column("idle share", "", percent(row.idle_energy_ratio, 0), drop=1)] * bool(phases),
        *[column("sum of operators", *summed, drop=1, mark=doubt)] * (is_whole or bool(added)),
        *[column("corrected", *corrected, drop=2, mark=doubt)] * is_whole,
        column("roof", *roof, mark=doubt),
        column("saving per run", *costs(saving_s, saving_j), drop=3, mark=doubt),
    ]
    print_table(label, columns, range(3))
    print_priced(row.energy_per_sample_j, row.unit or Unit.SAMPLE)


def _cost(value: float | None, error: float | None, unit: str) -> str:
    """Return a cost: a whole's with its standard error. A sum's says less than its expected error, which a note has."""
    if value is None:
        return UNKNOWN
    return f"{milli(value)} {unit}" if error is None else f"{milli(value)} ± {milli(error, 2)} {unit}"


# Operators and models that are not measured, and the commands that measure them


def _print_measuring(ranking: DeviceRanking, report: ShowReport, is_named: bool) -> None:
    """Print the commands that measure what is missing; those without a cost only if models are named."""
    shares = [f"{model.row.name} ({ranking_notes.measured_share(model.row)})" for model in ranking.incomplete]
    if shares and is_named:
        print_line(f"No whole model and not all operators are measured: {some_of(shares, NAMES_SHOWN)}")
    sums = [model for model in (ranking.all_models if is_named else ranking.models) if model.row.source == SUM]
    if not sums:
        return
    options, proposals = report.choice.measuring_options(ranking.conditions.device_type), report.proposals
    ways, needing = [], [model for model in sums if model.result.missing]
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
    names = [model.row.name for model in models]
    missing = {name for model in models for name in model.result.missing}
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
    if uncounted := [name for name in names if name not in proposals.counted]:
        ways.append((proposals.command("count", uncounted), "count operators"))
    if unfiltered := [name for name in names if dropped or name not in proposals.filtered]:
        ways.append((command("filter", *unfiltered), "keep the operators of the whitelist"))
    return ways


def _print_not_measured(report: ShowReport) -> None:
    if report.not_measured:
        print_line(f"Not measured under these conditions: {some_of(report.not_measured, NAMES_SHOWN)}")
        options, shown = report.choice.measuring_options(), report.not_measured[:NAMES_SHOWN]
        proposals, profiled = report.proposals, report.proposals.profiled
        of_folders = [name for name in report.not_measured if name not in profiled]
        ways = [_whole_models(of_folders, options, proposals)] if of_folders else []
        predicted = [name for name in shown if name in profiled and report.choice.mode == INFERENCE]
        ways += [(command("predict", *profiled[name]), "predict it") for name in predicted]
        profiles = proposals.profiling(shown, *options, *USUAL_OPTIONS)
        print_commands([*ways, *((profile, "count and measure it") for profile in profiles)])
    for execution, names in report.other_executions.items():
        print_line(f"Measured in {execution} execution: {some_of(names, NAMES_SHOWN)}")
        choice = replace(report.choice, execution=execution)
        print_commands([(command("show", *names[:NAMES_SHOWN], *choice.options), f"show them{_of_first(names)}")])


def _whole_models(names: Sequence[str], options: Sequence[str], proposals: Proposals) -> tuple[str, str]:
    measuring = proposals.command("measure-models", names[:NAMES_SHOWN], *options, *USUAL_OPTIONS)
    return measuring, f"measure whole models{_of_first(names)}"


def _of_first(models: Sequence[object]) -> str:
    return f" (the first {NAMES_SHOWN})" if len(models) > NAMES_SHOWN else ""


# Lines for CSV, JSON and data frames

KIND = Declared("kind of operator with the largest share of the sum; `kind_2` and `kind_3` have the next ones")
KIND_RATIO = Declared(
    "its share of the energy of all measured operators of the model; of the time if sorted by time, or if energies are "
    "unknown"
)

PREDICTED = "predicted"
NOT_MEASURED = "not measured under these conditions"


@dataclass(frozen=True)
class LargestKinds(Columns):
    """The kinds of operators that cost most in a model."""

    kind_1: Annotated[str | None, KIND] = None
    kind_1_ratio: Annotated[float | None, KIND_RATIO] = None
    kind_2: Annotated[str | None, Declared("see `kind_1`")] = None
    kind_2_ratio: Annotated[float | None, Declared("see `kind_1_ratio`")] = None
    kind_3: Annotated[str | None, Declared("see `kind_1`")] = None
    kind_3_ratio: Annotated[float | None, Declared("see `kind_1_ratio`")] = None


@dataclass(frozen=True)
class ModelLine(Columns):
    """A model of the ranking: its cost, and the kinds of operators that cost most in it."""

    row: RankingRow
    kinds: LargestKinds


@dataclass(frozen=True)
class OperatorLine(Columns):
    """An operator tuple of a model with its cost, with `--operators`."""

    model: Annotated[str, MODEL]
    device_product: Annotated[str, DEVICE_PRODUCT]
    cost: OperatorCost


def largest(report: ShowReport, top: int | None) -> ShowReport:
    """Return a report with ``top`` models of each device only, or operators of each model if the report has them."""
    if top is None:
        return report
    rankings = []
    for one in report.rankings:
        if report.has_operators:
            models, others = (
                tuple(replace(model, operators=model.operators[:top]) for model in found)
                for found in (one.models, one.incomplete)
            )
            rankings.append(replace(one, models=models, incomplete=others))
        else:
            others = one.incomplete[: max(0, top - len(one.models))]
            rankings.append(replace(one, models=one.models[:top], incomplete=others, others={}))
    return replace(report, rankings=tuple(rankings))


def ranking_objects(report: ShowReport) -> list[dict[str, Any]]:
    """Return an object for each model for JSON: in the order of the tables, then without figures, then predicted."""
    unknown: dict[str, Any] = {**dict.fromkeys(field.name for field in fields(RankingRow)), "kinds": []}
    objects = []
    for model in report.models:
        found = {**asdict(model.row), "kinds": [asdict(kind) for kind in model.kinds]}
        operators = {"operators": [asdict(one) for one in model.operators]} if model.operators else {}
        objects.append({**found, **operators})
    for name, conditions in _without_figures(report):
        found = {"name": name, "energy_missing_reason": NOT_MEASURED}
        objects.append({**unknown, **found, "conditions": None if conditions is None else asdict(conditions)})
    for one in (one for ranking in report.rankings for one in ranking.predicted):
        energy_j, result = None if one.energy_j is None else asdict(one.energy_j), one.result
        run = {"time_s": asdict(one.time_s), "energy_j": energy_j, "power_w": one.power_w}
        found = {"name": result.name, "source": PREDICTED, "predicted": run}
        found |= {"batch_size": result.batch_size, "unit": None if result.units is None else result.units.unit}
        objects.append({**unknown, **found, "conditions": asdict(result.conditions)})
    return objects


def csv_columns(report: ShowReport) -> list[str]:
    return [field.name for field in columns_of(OperatorLine if report.has_operators else ModelLine)]


def csv_lines(report: ShowReport, by: str) -> list[dict[str, Any]]:
    """Return lines of all models, or of their operators if the report has them; without figures they have a reason."""
    if report.has_operators:
        return [
            by_column(OperatorLine(model.row.name, model.row.conditions.device_product, one))
            for model in report.models
            for one in model.operators
        ]
    lines = []
    for model in report.models:
        kinds: dict[str, Any] = {}
        for number, kind in enumerate(model.kinds[:3], 1):
            kinds |= {f"kind_{number}": kind.operator, f"kind_{number}_ratio": kind.costs.ratio(by)}
        lines.append(by_column(ModelLine(model.row, LargestKinds(**kinds))))
    for name, conditions in _without_figures(report):
        of_conditions = {} if conditions is None else by_column(conditions)
        lines.append({"name": name, "energy_missing_reason": NOT_MEASURED, **of_conditions})
    return lines


def _without_figures(report: ShowReport) -> list[tuple[str, Conditions | None]]:
    others = [(name, found) for ranking in report.rankings for name, found in ranking.others.items()]
    return [*others, *((name, None) for name in report.not_measured)]


def print_csv(report: ShowReport, by: str) -> None:
    write_csv(sys.stdout, csv_columns(report), csv_lines(report, by))
