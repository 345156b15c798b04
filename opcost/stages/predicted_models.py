"""Predicted costs of counted models without measured ones, if what predicts them was learned already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from opcost.comparing.predicted_run import PredictedRun
from opcost.measuring.conditions import Conditions
from opcost.operators.cases import conditions_key
from opcost.running.request import Request
from opcost.stages.predict import RowsOfRun, run_under
from opcost.stages.ranking_data import RankingData
from opcost.stages.trained import Trained, trained_before

MOST_PREDICTED = 20
"""The most models that are predicted for a ranking: each takes some 10 ms."""


@dataclass(frozen=True)
class PredictedModel:
    """A model that is not measured on a device, its batch (None if unknown), and what a run is predicted to cost."""

    name: str
    batch: int | None
    conditions: Conditions
    run: PredictedRun


@dataclass(frozen=True)
class Unmeasured:
    """The models without a cost on a device, and the conditions of its rows."""

    candidates: Sequence[Conditions]
    names: Collection[str]


def predicted_models(
    request: Request, data: RankingData, wanted: Unmeasured, cache: Path | None
) -> tuple[PredictedModel, ...]:
    """Return the predicted costs of models, the first by name. Nothing is counted, and nothing is learned.

    Models that are not counted, or whose device and precision have nothing learned that fits the present rows, are left
    out.

    Args:
        request: the folders.
        data: of all models.
        wanted: the models, and the conditions to choose from.
        cache: the folder of what was learned, None for no predictions.
    """
    models = [one for one in data.models if one.config.name in wanted.names and one.counts and one.counts.counts]
    if cache is None or not models:
        return ()
    numbers = Counter(conditions_key(row.key) for row in data.operator_rows)
    known: dict[Conditions, Trained | None] = {}
    found: list[PredictedModel] = []
    for model in sorted(models, key=lambda one: one.config.name):
        fitting = [one for one in wanted.candidates if one.precision == model.config.precision]
        if not fitting:
            continue
        conditions = max(fitting, key=lambda one: numbers[one.key])
        if conditions not in known:
            known[conditions] = trained_before(request, conditions, cache)
        learned = known[conditions]
        if learned is not None and model.counts is not None:
            run = run_under(model.counts, RowsOfRun(data.measurements, data.chains), conditions, learned)
            found.append(PredictedModel(model.config.name, model.config.batch_size, conditions, run))
        if len(found) == MOST_PREDICTED:
            break
    return tuple(found)
