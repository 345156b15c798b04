"""The ranking, and operators of models, as CSV, JSON and lines of data frames."""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any

from opcost.columns import Column, Columns, by_column, columns_of
from opcost.comparing.operator_costs import OperatorCost
from opcost.comparing.ranking import RankingRow
from opcost.measuring.conditions import DEVICE_PRODUCT, Conditions
from opcost.operators.cases import MODEL
from opcost.stages.show import ShowReport

KIND = Column("kind of operator with the largest share of the sum; `kind_2` and `kind_3` have the next ones")
KIND_RATIO = Column(
    "its share of the energy of all measured operators of the model; of the time if sorted by time, or if energies are "
    "unknown"
)

PREDICTED = "predicted"
"""The source of costs of models without any measured ones."""

NOT_MEASURED = "not measured under these conditions"
"""The reason why a model has no figures."""


@dataclass(frozen=True)
class LargestKinds(Columns):
    """The kinds of operators that cost most in a model."""

    kind_1: Annotated[str | None, KIND] = None
    kind_1_ratio: Annotated[float | None, KIND_RATIO] = None
    kind_2: Annotated[str | None, Column("see `kind_1`")] = None
    kind_2_ratio: Annotated[float | None, Column("see `kind_1_ratio`")] = None
    kind_3: Annotated[str | None, Column("see `kind_1`")] = None
    kind_3_ratio: Annotated[float | None, Column("see `kind_1_ratio`")] = None


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
    """Return a report with the first models of each device only, or operators of each model if the report has them.

    ``top`` is None for all.
    """
    if top is None:
        return report
    rankings = []
    for one in report.rankings:
        models, others = one.models[:top], one.incomplete[: max(0, top - len(one.models))]
        if report.has_operators:
            models, others = (
                tuple(replace(model, operators=model.operators[:top]) for model in found)
                for found in (one.models, one.incomplete)
            )
        rankings.append(
            replace(one, models=models, incomplete=others, others=one.others if report.has_operators else {})
        )
    return replace(report, rankings=tuple(rankings))


def ranking_objects(report: ShowReport) -> list[dict[str, Any]]:
    """Return one object for each model for JSON, in the order of the tables; figures are in SI units.

    Behind them are the models that are not measured, or under other conditions only: they have no figures. The last are
    predicted costs, whose ``source`` is ``predicted``.
    """
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
        run = {
            "time_s": asdict(one.run.time_s),
            "energy_j": None if one.run.energy_j is None else asdict(one.run.energy_j),
            "power_w": one.run.power_w,
        }
        found = {"name": one.name, "source": PREDICTED, "batch_size": one.batch, "predicted": run}
        objects.append({**unknown, **found, "conditions": asdict(one.conditions)})
    return objects


def csv_columns(report: ShowReport) -> list[str]:
    """Return the columns of ``csv_lines``."""
    return [field.name for field in columns_of(OperatorLine if report.has_operators else ModelLine)]


def csv_lines(report: ShowReport, by: str) -> list[dict[str, Any]]:
    """Return the lines of all models, or of all of their operators if the report has them, by column.

    Those of models without figures have their name, the reason and the conditions only.
    """
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
    """Return the models without figures, with the other conditions that they are measured under."""
    others = [(name, found) for ranking in report.rankings for name, found in ranking.others.items()]
    return [*others, *((name, None) for name in report.not_measured)]


def print_csv(report: ShowReport, by: str) -> None:
    """Print ``csv_lines`` on stdout."""
    writer = csv.DictWriter(sys.stdout, csv_columns(report), lineterminator="\n")
    writer.writeheader()
    writer.writerows(csv_lines(report, by))
