"""Training data of predictors: operators measured under one set of conditions, and wholes that consist of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opcost.comparing.ranking import ASSUMED_SUM_ERRORS, ModelFigures, SumErrors, sum_errors_by_correction
from opcost.measuring.conditions import Conditions
from opcost.operators.counts import OperatorCount
from opcost.operators.keys import case_key, tuple_key
from opcost.operators.values import InputData, parse_input_data
from opcost.prediction.samples import Samples, cases_of, family_of, samples_of
from opcost.prediction.sum_errors import ModelCalls
from opcost.running.request import Request
from opcost.stages.ranking_data import RankingData, read_ranking_data
from opcost.storage.configs import ModelConfig


@dataclass(frozen=True)
class Whole:
    """A measured whole model: its calls among the samples, its costs in s and J, and the corrections of its sum."""

    name: str
    calls: ModelCalls
    time_s: float
    energy_j: float | None
    correction_s: float
    correction_j: float | None


@dataclass(frozen=True)
class TrainingData:
    """Samples with the call that each is of, and the measured wholes that consist of them.

    ``sum_errors`` are those of sums of measured operators, by whether they have a cache correction.
    """

    samples: Samples
    calls: Sequence[tuple[OperatorCount, InputData]]
    wholes: Sequence[Whole]
    sum_errors: Mapping[bool, SumErrors] = field(default_factory=lambda: ASSUMED_SUM_ERRORS)


def read_training_data(request: Request, configs: Sequence[ModelConfig], conditions: Conditions) -> TrainingData:
    """Return what there is to learn from under some conditions; rows under others are not parsed.

    Args:
        request: the database.
        configs: of the models whose wholes are among it.
        conditions: those of the rows.

    Raises:
        UserError: a table is damaged.
    """
    return training_data(read_ranking_data(request, configs, (), under=conditions), conditions)


def training_data(data: RankingData, conditions: Conditions) -> TrainingData:
    """Return what there is to learn from under some conditions.

    Args:
        data: of all models.
        conditions: those of the rows.
    """
    models = {model.config.name: model.counts for model in data.models if model.counts is not None}
    families: dict[str, set[str]] = {}
    for counts in models.values():
        for count in counts.counts:
            families.setdefault(count.operator.key, set()).add(family_of(counts.model))
    cases = cases_of(data.operator_rows, data.operator_counts, conditions)
    frozen = {key: frozenset(names) for key, names in families.items()}
    of_case = {case_key(key): place for place, key in enumerate(cases)}
    all_figures = data.figures(conditions)
    wholes = (
        _whole(figures, family_of(models[figures.name].model), of_case)
        for figures in all_figures
        if figures.is_complete and not figures.is_whole_flagged
    )
    return TrainingData(
        samples=samples_of(cases, data.operator_counts, frozen),
        calls=[
            (data.operator_counts[tuple_key(key)], parse_input_data(rows[0].input_data)) for key, rows in cases.items()
        ],
        wholes=[whole for whole in wholes if whole is not None],
        sum_errors=sum_errors_by_correction(all_figures),
    )


def _whole(figures: ModelFigures, family: str, of_case: Mapping[str, int]) -> Whole | None:
    """Return a measured whole, None if it has none, or if its sum has other calls than samples."""
    cost, whole = figures.cost, figures.whole
    corrected_s, corrected_j = figures.corrected_time_s, figures.corrected_energy_j
    if cost is None or whole is None or cost.time_s is None or corrected_s is None:
        return None
    if any(part.case.key not in of_case for part in cost.parts):
        return None
    energy_j = cost.basis.energy_of(whole)
    return Whole(
        name=figures.name,
        calls=ModelCalls(
            family,
            tuple(of_case[part.case.key] for part in cost.parts),
            tuple(part.occurrences for part in cost.parts),
        ),
        time_s=whole.measurement.time_s,
        energy_j=None if energy_j is None else energy_j.value,
        correction_s=corrected_s.value - cost.time_s.value,
        correction_j=None if corrected_j is None or cost.energy_j is None else corrected_j.value - cost.energy_j.value,
    )
