"""The ranking of models on a terminal and as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from opcost.columns import columns_of, values_of
from opcost.comparing.comparison import differing
from opcost.comparing.ranking import ENERGY, POWER, SAVING, TIME
from opcost.comparing.ranking_row import SUM, RankingRow
from opcost.invocation import command
from opcost.measuring.conditions import Conditions
from opcost.operators.tuples import SIZE_IN_NAME
from opcost.reporting.compared_models import names_without_sizes
from opcost.reporting.operator_tables import print_model
from opcost.reporting.remark_notes import all_in_words
from opcost.reporting.tables import print_origin
from opcost.reporting.terminal import Column, print_line, print_table
from opcost.stages.compare import ComparingReport
from opcost.stages.show import DeviceRanking, ShownModel, ShowReport
from opcost.units import MILLI, UNKNOWN, percent, significant

KINDS_SHOWN = 3
"""The kinds of operators that are shown for each model."""

TITLES = {
    ENERGY: "Energy per sample",
    POWER: "Power",
    TIME: "Time per sample",
    SAVING: "Energy per sample, the largest saving first,",
}

COLUMNS = (
    Column("model", "left"),
    Column("batch", drop=7),
    Column("size", drop=8),
    Column("ms/run", drop=9),
    Column("mJ/run", drop=9),
    Column("ms/sample", drop=5),
    Column("mJ/sample"),
    Column("W", drop=1),
    Column("samples/J", drop=10),
    Column("samples/s", drop=10),
    Column("largest kind", "left"),
    Column("second kind", "left", drop=2),
    Column("third kind", "left", drop=4),
    Column("time roof", drop=6),
    Column("energy roof", drop=3),
    Column("saving mJ/sample", drop=11),
)

ESTIMATED, DOUBTFUL = "~", " (!)"
"""The mark before figures of sums, and behind the names of models whose cost is doubtful."""


def ranking_objects(report: ShowReport) -> list[dict[str, Any]]:
    """Return one object for each model for JSON, in the order of the tables; figures are in SI units."""
    return [
        {
            **asdict(model.row),
            "kinds": [asdict(kind) for kind in model.kinds],
            **({"operators": [asdict(one) for one in model.operators]} if model.operators else {}),
        }
        for model in _models(report)
    ]


def csv_lines(report: ShowReport, by: str) -> list[dict[str, Any]]:
    """Return one line for each model, or for each operator of the only model, by column, in SI units.

    Models have the columns of ``RankingRow``, and their largest kinds as ``kind_1``, ``kind_1_ratio`` and so on.
    """
    models = _models(report)
    if any(model.operators for model in models):
        return [
            {"device_product": model.row.conditions.device_product, **_by_column(one)}
            for model in models
            for one in model.operators
        ]
    return [{**_by_column(model.row), **_largest_kinds(model, by)} for model in models]


def print_csv(report: ShowReport, by: str) -> None:
    """Print ``csv_lines`` on stdout."""
    lines = csv_lines(report, by)
    writer = csv.DictWriter(sys.stdout, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)


def _models(report: ShowReport) -> list[ShownModel]:
    return [model for ranking in report.rankings for model in (*ranking.models, *ranking.incomplete)]


def _by_column(row: Any) -> dict[str, object]:
    """Return the values of a row by column."""
    return {field.name: value for field, value in zip(columns_of(type(row)), values_of(row), strict=True)}


def _largest_kinds(model: ShownModel, by: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for number, kind in enumerate([*model.kinds[:KINDS_SHOWN], *[None] * KINDS_SHOWN][:KINDS_SHOWN], 1):
        found[f"kind_{number}"] = kind and kind.operator
        found[f"kind_{number}_ratio"] = kind and kind.costs.ratio(by)
    return found


@dataclass(frozen=True)
class RankingTable:
    """The table of one device's ranking, and the notes below it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def table_of(ranking: DeviceRanking, by: str) -> RankingTable | None:
    """Return a ranking's table, None if no model has a cost."""
    rows = [model.row for model in ranking.models]
    if not rows:
        return None
    labelled = zip(_labels(rows), ranking.models, strict=True)
    cells = (_cells(label, model, by) for label, model in labelled)
    return RankingTable(_title(rows, by), tuple(_columns(by)), tuple(cells), tuple(_notes(ranking, by)))


def print_rankings(report: ShowReport, by: str, top: int | None = None) -> None:
    """Print a table for each device, or the operators of the only model, and lines on models without a figure.

    Args:
        report: the rankings.
        by: one of ``SORTS``.
        top: the most models, or operators of the only model; None for all models, and the usual number of operators.
    """
    for ranking in report.rankings:
        for model in ranking.models if report.is_of_one_model else ():
            print_model(_title_of_model(model.row), model, by, top)
            for line in _cost_notes([model.row]):
                print_line(line)
        table = None if report.is_of_one_model else table_of(ranking, by)
        if table is not None:
            print_table(table.title, table.columns, table.rows[:top])
            for line in table.notes:
                print_line(line)
        for model in ranking.incomplete:
            print_line(_incomplete_line(model.row))
    if report.not_measured:
        remedy = command("measure-models", *report.not_measured)
        print_line(f"Not measured: {', '.join(report.not_measured)}; run {remedy}")
    if report.rankings:
        print_origin()


def print_remarks(report: ShowReport, reports: Sequence[ComparingReport]) -> None:
    """Print all remarks on the comparisons under the conditions that are shown."""
    shown = {(model.row.name, model.row.conditions) for model in _models(report)}
    print_line("Remarks on the sums of the whitelisted operators and the whole models:")
    for one in reports:
        for label, row, remarks in zip(one.labels, one.comparisons, one.remarks, strict=True):
            if (row.name, row.conditions) in shown:
                for line in all_in_words(row, remarks) or ["none"]:
                    print_line(f"{label}: {line}", hanging=4)


def _columns(by: str) -> list[Column]:
    """Return the columns of the ranking; the one that it is sorted by is never left out."""
    kept = {TIME: "ms/sample", POWER: "W", SAVING: "saving mJ/sample"}.get(by)
    return [replace(column, drop=0) if column.title == kept else column for column in COLUMNS]


def _labels(rows: Sequence[RankingRow]) -> list[str]:
    """Return the models' names without sizes, with the conditions that differ between the models."""
    conditions = differing([row.conditions for row in rows])
    names = [
        f"{row.name} ({', '.join(texts)})" if texts else row.name for row, texts in zip(rows, conditions, strict=True)
    ]
    return names_without_sizes(names)


def _title_of_model(row: RankingRow) -> str:
    size = f"batch {row.batch_size}, {row.input_size.partition('x')[2]}"
    mark = DOUBTFUL if row.is_flagged or row.is_unexplained else ""
    return f"{SIZE_IN_NAME.sub('', row.name)}{mark} ({size}) on {_conditions_title([row])}"


def _title(rows: Sequence[RankingRow], by: str) -> str:
    """Return the title of a table."""
    return f"{TITLES.get(by, TITLES[ENERGY])} on {_conditions_title(rows)}"


def _conditions_title(rows: Sequence[RankingRow]) -> str:
    """Return the device, the conditions and the dates of rows."""
    days = sorted({row.measured_at[:10] for row in rows})
    measured = f"measured {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")
    facts = [*_conditions_shown([row.conditions for row in rows]), measured]
    return f"{rows[0].conditions.device_product}: {', '.join(facts)}"


def _conditions_shown(conditions: Iterable[Conditions]) -> list[str]:
    found = list(conditions)
    values = {
        "": [one.execution for one in found],
        "precision ": [one.precision for one in found],
        "torch ": [one.torch_version for one in found],
        "driver ": [one.driver_version for one in found if one.driver_version],
        "threads ": [str(one.cpu_threads) for one in found if one.cpu_threads],
    }
    return [f"{name}{' or '.join(sorted(set(texts)))}" for name, texts in values.items() if texts]


def _cells(label: str, model: ShownModel, by: str) -> tuple[str, ...]:
    row = model.row
    mark = ESTIMATED if row.source == SUM else ""
    kinds = [f"{kind.operator} {percent(kind.costs.ratio(by), 0)}" for kind in model.kinds[:KINDS_SHOWN]]
    figures = (
        *(_milli(row.time_s), _milli(row.energy_j), _milli(row.time_per_sample_s), _milli(row.energy_per_sample_j)),
        *(_plain(row.power_w, 0), _plain(row.samples_per_joule, 1), _plain(row.samples_per_second, 0)),
    )
    return (
        label + (DOUBTFUL if row.is_flagged or row.is_unexplained else ""),
        str(row.batch_size),
        row.input_size.partition("x")[2],
        *(figure if figure == UNKNOWN else mark + figure for figure in figures),
        *kinds,
        *[UNKNOWN] * (KINDS_SHOWN - len(kinds)),
        percent(row.roof_time_ratio, 0),
        percent(row.roof_energy_ratio, 0),
        _milli(row.saving_energy_per_sample_j),
    )


def _milli(value: float | None) -> str:
    return UNKNOWN if value is None else significant(value / MILLI)


def _plain(value: float | None, decimals: int) -> str:
    return UNKNOWN if value is None else f"{value:,.{decimals}f}"


def _notes(ranking: DeviceRanking, by: str) -> list[str]:
    rows = [model.row for model in ranking.models]
    first, *others = _cost_notes(rows)
    lines = [first]
    quantity = "time" if by == TIME else "energy"
    if any(model.kinds for model in ranking.models):
        lines.append(f"Kinds of operators with their shares of the {quantity} of all measured operators of the model.")
    if any(row.roof_time_ratio is not None for row in rows):
        lines.append("Roof: cost of the operators at the highest rates that any operator reached, over their cost.")
    return [*lines, *others]


def _cost_notes(rows: Sequence[RankingRow]) -> list[str]:
    """Return what a reader has to know of costs: the temperature of energies, and sums and doubts."""
    lines = [_energies_line(rows)]
    lines += [_sum_line(row) for row in rows if row.source == SUM]
    if any(row.is_flagged for row in rows):
        lines.append(f"{DOUBTFUL.strip()} No result yet: the measurement is flagged; measure again.")
    lines += [
        f"{DOUBTFUL.strip()} {row.name}: sum and whole model differ by 25 % or more, so one of them is no result yet."
        for row in rows
        if row.is_unexplained
    ]
    return lines


def _energies_line(rows: Sequence[RankingRow]) -> str:
    temperatures = {row.reference_temperature_c for row in rows if row.energy_j is not None}
    names = [row.name for row in rows if row.energy_j is not None and row.reference_temperature_c is None]
    if not temperatures:
        return "No energy is measured."
    if len(temperatures) > 1:
        return f"Energies are total, at 50 °C; as measured for {', '.join(names)}."
    (celsius,) = temperatures
    return f"Energies are total, {'as measured' if celsius is None else f'at {celsius:g} °C'}."


def _sum_line(row: RankingRow) -> str:
    errors = {"time": row.expected_time_error_ratio, "energy": row.expected_energy_error_ratio}
    known = [f"{percent(error)} in {name}" for name, error in errors.items() if error is not None]
    error = f"expected error {', '.join(known)}" if known else "its error is unknown"
    return f"{ESTIMATED} {row.name}: the sum of its operators, because the whole model is not measured; {error}"


def _incomplete_line(row: RankingRow) -> str:
    measured = f"{percent(row.memory_bytes_ratio)} of its bytes and {percent(row.flop_ratio)} of its FLOPs"
    remedy = f"run {command('measure', row.name)} for the rest, or {command('measure-models', row.name)}"
    return f"{row.name}: operators with {measured} are measured, the whole model is not; {remedy}"
