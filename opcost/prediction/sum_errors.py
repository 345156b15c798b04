"""Errors of the sums of predicted costs of models.

Errors of one kind of operator have the same sign in a model, since one function predicts all; so have those of calls
outside of all samples, which lie in one direction from these. Others are independent. The interval of a sum is
conformal over held-out models: each model's error over its expected deviation is a score. Models of one family are
alike and no independent scores, so each family has the same weight, however many models it has (pooling: Dunn,
Wasserman and Ramdas, Distribution-Free Prediction Sets for Two-Layer Hierarchical Models, JASA 118 (2023), 2491-2502).
Scores are of sums on a mean board, so the differences between boards are not among them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opcost.estimates import FloatArray
from opcost.prediction.intervals import weighted_quantile

FAR = "far from all samples"

SMALL_CALLS_ERROR = 0.37
"""Half the width of the interval of 90 % of the logarithm that the small predicted calls of a run share: libraries
choose their kernels by the size of the run, and each call reads its weights from memory. It is the smallest with which
the intervals of all six models that were measured at small sizes contain these; six are too few for a quantile of 90 %
(ResNet-50, MobileNetV3, Swin-T, ViT-B/16, AlexNet and BERT, 2026-11-28, ``docs/log/prediction.md``)."""


@dataclass(frozen=True)
class ModelCalls:
    """The calls of a whole model among samples: its family, and the place and number of each."""

    family: str
    places: tuple[int, ...]
    calls: tuple[int, ...]


@dataclass(frozen=True)
class HeldOutSums:
    """Costs of samples, the errors of their logarithms when they were held out, and the deviations expected of them.

    ``groups`` are those whose errors have the same sign, see ``groups_of``.
    """

    groups: Sequence[str]
    costs: FloatArray
    errors: FloatArray
    deviations: FloatArray

    def factor(self, models: Sequence[ModelCalls]) -> float | None:
        """Return the deviations within which nine tenths of sums are; None with too few families of models."""
        scored = [(model.family, score) for model in models if (score := self._score(model)) is not None]
        sizes = Counter(family for family, _ in scored)
        weights = np.array([1.0 / sizes[family] for family, _ in scored])
        return weighted_quantile(np.array([score for _, score in scored]), weights)

    def _score(self, model: ModelCalls) -> float | None:
        """Return the error of a model's sum over its deviation, None if one of them is unknown."""
        places = list(model.places)
        actual = np.array(model.calls, dtype=float) * self.costs[places]
        predicted = actual * np.exp(self.errors[places])
        groups = [self.groups[place] for place in places]
        deviation = sum_deviation(groups, predicted, self.deviations[places])
        if not math.isfinite(deviation) or not np.isfinite(predicted).all():
            return None
        return abs(math.log(predicted.sum() / actual.sum())) * float(predicted.sum()) / deviation


def groups_of(kinds: Sequence[str], is_far: npt.NDArray[np.bool_]) -> tuple[str, ...]:
    """Return the group of each call whose errors have the same sign: its kind, or one of all calls far from samples."""
    return tuple(FAR if far else kind for kind, far in zip(kinds, is_far, strict=True))


def sum_deviation(groups: Sequence[str], costs: FloatArray, deviations: FloatArray) -> float:
    """Return the deviation of a sum of predicted costs, in their unit; NaN if that of a call is."""
    of_group: dict[str, float] = {}
    for group, cost, deviation in zip(groups, costs, deviations, strict=True):
        of_group[group] = of_group.get(group, 0.0) + float(cost * deviation)
    return math.hypot(*of_group.values())
