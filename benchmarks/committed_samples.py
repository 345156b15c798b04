"""The committed samples that predictors learn from, and the whole models that consist of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from claim_tables import committed

from opcost.comparing.ranking import ModelFigures
from opcost.operators.counts import OperatorCount
from opcost.operators.values import InputData, parse_input_data
from opcost.prediction.learned_costs import ModelCalls
from opcost.prediction.samples import Samples, cases_of, family_of, samples_of
from opcost.running.request import Request
from opcost.stages.ranking_data import read_ranking_data

MULTIPROCESSORS = 132
"""Of an H200, the card of the committed rows."""


@dataclass(frozen=True)
class Whole:
    """A measured whole model: its calls among the samples, its costs in s and J, and the corrections of its sum."""

    name: str
    calls: ModelCalls
    time_s: float
    energy_j: float
    correction_s: float
    correction_j: float


@dataclass(frozen=True)
class CommittedSamples:
    """Samples with the call that each is of, and the measured wholes that consist of them."""

    samples: Samples
    calls: Sequence[tuple[OperatorCount, InputData]]
    wholes: Sequence[Whole]


def committed_samples(root: Path) -> CommittedSamples:
    """Return the samples under the conditions that most committed rows have."""
    request = Request((), root / "measurements", committed(root))
    data = read_ranking_data(request, request.configs(), ())
    ((conditions, _),) = Counter(row.conditions for row in data.operator_rows).most_common(1)
    families: dict[str, set[str]] = {}
    models = {model.config.name: model.counts for model in data.models if model.counts is not None}
    for counts in models.values():
        for count in counts.counts:
            families.setdefault(count.operator.key, set()).add(family_of(counts.model))
    cases = cases_of(data.operator_rows, data.operator_counts, conditions)
    of_case = {key.rpartition("-")[0]: place for place, key in enumerate(cases)}
    return CommittedSamples(
        samples=samples_of(
            data.operator_rows,
            data.operator_counts,
            {key: frozenset(names) for key, names in families.items()},
            conditions,
        ),
        calls=[
            (data.operator_counts[key.partition("-")[0]], parse_input_data(rows[0].input_data))
            for key, rows in cases.items()
        ],
        wholes=[
            _whole(figure, family_of(models[figure.name].model), of_case)
            for figure in data.figures(conditions)
            if figure.is_complete and figure.whole is not None and not figure.is_whole_flagged
        ],
    )


def _whole(figure: ModelFigures, family: str, of_case: dict[str, int]) -> Whole:
    cost, whole = figure.cost, figure.whole
    places = tuple(of_case[part.case.key] for part in cost.parts)
    return Whole(
        name=figure.name,
        calls=ModelCalls(family, places, tuple(part.occurrences for part in cost.parts)),
        time_s=whole.measurement.time_s,
        energy_j=cost.basis.energy_of(whole).value,
        correction_s=figure.corrected_time_s.value - cost.time_s.value,
        correction_j=figure.corrected_energy_j.value - cost.energy_j.value,
    )
