"""Sums that are completed by predicted costs of the operators that have no row."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from opcost.comparing.gap import predicted_piece
from opcost.comparing.ranking import ModelFigures
from opcost.operators.counts import OperatorCount
from opcost.prediction.port import Predictor
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO, predictor_of
from opcost.summing.energy import EnergyBasis
from opcost.summing.index import Measurements


class Completion:
    """Completes sums without a measured whole.

    Args:
        counts: FLOPs and bytes of the operators that have rows.
        measurements: their rows.
    """

    def __init__(self, counts: Collection[OperatorCount], measurements: Measurements) -> None:
        self._counts, self._measurements = counts, measurements
        self._predictors: dict[tuple[str, EnergyBasis], Predictor | None] = {}

    def completed(self, model: ModelFigures) -> ModelFigures:
        """Return the figures with the predicted cost of missing operators, unchanged if it is not needed or unknown.

        It is unknown if less than ``MOSTLY_KNOWN_RATIO`` of the model's bytes or FLOPs is measured.
        """
        missing_ratio = model.missing_ratio
        is_mostly_known = missing_ratio is not None and missing_ratio <= 1 - MOSTLY_KNOWN_RATIO
        if model.whole is not None or model.cost is None or model.is_complete or not is_mostly_known:
            return model
        place = model.conditions.key, model.cost.basis
        if place not in self._predictors:
            self._predictors[place] = predictor_of(self._counts, self._measurements, model.conditions, model.cost.basis)
        predictor = self._predictors[place]
        predicted = None if predictor is None else predicted_piece(model.cost.missing, predictor)
        return replace(model, predicted=predicted)
