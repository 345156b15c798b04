"""The committed samples that predictors learn from, and the whole models that consist of them."""

from __future__ import annotations

from pathlib import Path

from claim_tables import committed, usual_conditions

from opcost.running.request import Request
from opcost.stages.ranking_data import read_ranking_data
from opcost.stages.trained import TrainingData, training_data

MULTIPROCESSORS = 132
"""Of an H200, the card of the committed rows."""


def committed_samples(root: Path) -> TrainingData:
    """Return the samples under the conditions that most committed rows have."""
    request = Request((), root / "measurements", committed(root))
    data = read_ranking_data(request, request.configs(), ())
    return training_data(data, usual_conditions(data.operator_rows))
