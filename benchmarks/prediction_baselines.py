"""The committed samples that predictors learn from, and simpler predictors to compare the learned ones with.

Each is made of samples and returns the times in s and the energies in J of others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from claim_tables import committed, usual_conditions
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LassoCV, LinearRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from opcost.estimates import FloatArray
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import PlainValue, tensor_specs
from opcost.prediction.features import CONVOLUTION, RAW
from opcost.prediction.fitted import places_of
from opcost.prediction.samples import card_of
from opcost.running.request import Request
from opcost.stages.ranking_data import read_ranking_data
from opcost.stages.trained import TrainingData, training_data

Costs: TypeAlias = tuple[FloatArray, FloatArray]
Predict: TypeAlias = Callable[[TrainingData], Costs]

MULTIPROCESSORS = 132
"""Of an H200, the card of the committed rows."""

FEWEST, FOLDS, DEGREE = 20, 10, 2
"""The fewest samples of a kind for polynomials of its own, the folds that choose their penalty, and their degree."""

PENALTIES, STEPS = 20, 2000
TREES = 100


def committed_samples(root: Path) -> TrainingData:
    """Return the samples under the conditions that most committed rows have, and the whole models of them."""
    request = Request((), root / "measurements", committed(root))
    data = read_ranking_data(request, request.configs(), ())
    return training_data(data, usual_conditions(data.operator_rows))


def roofline(known: TrainingData) -> Predict:
    """Return predictions by the highest measured rates (Williams, Waterman, Patterson, CACM 52(4) (2009), 65-76).

    No call is shorter than the shortest one. Energies are those of FLOPs and of bytes together, each at their best
    (Choi, Bedard, Fowler, Vuduc, IPDPS 2013).
    """
    samples = known.samples
    card = card_of(samples, MULTIPROCESSORS)
    flop, memory_bytes = samples.raw[:, RAW.index("flop")], samples.raw[:, RAW.index("memory_bytes")]
    energies_j = samples.energies_j
    flop_per_j, bytes_per_j, least_j = (
        *(float(np.nanquantile(amount / energies_j, 0.99)) for amount in (flop, memory_bytes)),
        float(np.nanmin(energies_j)),
    )

    def predict(others: TrainingData) -> Costs:
        raw = others.samples.raw
        flop, memory_bytes = raw[:, RAW.index("flop")], raw[:, RAW.index("memory_bytes")]
        is_convolution = np.array([kind.startswith(CONVOLUTION) for kind in others.samples.kinds])
        rates = np.where(is_convolution, card.convolution_rate, card.product_rate)
        times_s = np.maximum(card.launch_s, np.maximum(flop / rates, memory_bytes / card.byte_rate))
        return times_s, np.maximum(least_j, flop / flop_per_j + memory_bytes / bytes_per_j)

    return predict


def linear_in_flops(known: TrainingData) -> Predict:
    """Return predictions by a cost per FLOP and a cost per call, with the least relative errors.

    All kinds together have them, so that calls without FLOPs cost the same.
    """
    flop = known.samples.raw[:, RAW.index("flop")]
    lines = [_line(flop, costs) for costs in (known.samples.times_s, known.samples.energies_j)]

    def predict(others: TrainingData) -> Costs:
        flop = others.samples.raw[:, RAW.index("flop")]
        time, energy = (constant + slope * flop for constant, slope in lines)
        return time, energy

    return predict


def _line(sizes: FloatArray, costs: FloatArray) -> tuple[float, float]:
    """Return the constant and the slope with the least squares of relative errors, neither below 0."""
    chosen = np.isfinite(costs)
    sizes, costs = sizes[chosen], costs[chosen]
    table = np.column_stack([1 / costs, sizes / costs])
    found = LinearRegression(fit_intercept=False, positive=True).fit(table, np.ones(len(costs)))
    return float(found.coef_[0]), float(found.coef_[1])


def forest_of_attributes(known: TrainingData) -> Predict:
    """Return predictions by random forests on constructors' arguments and inputs' sizes, as they are in the tuples.

    Targets are logarithms, without which a forest knows the largest operators only.
    """
    vectorizer = DictVectorizer(sparse=False)
    table = vectorizer.fit_transform([_attributes(count) for count, _ in known.calls])
    forests = []
    for costs in (known.samples.times_s, known.samples.energies_j):
        chosen = np.isfinite(costs)
        forest = RandomForestRegressor(TREES, random_state=0, max_features=0.5)
        forests.append(forest.fit(table[chosen], np.log(costs[chosen])))

    def predict(others: TrainingData) -> Costs:
        table = vectorizer.transform([_attributes(count) for count, _ in others.calls])
        time, energy = (np.exp(forest.predict(table)) for forest in forests)
        return time, energy

    return predict


def _attributes(count: OperatorCount) -> Mapping[str, float | str]:
    """Return an operator's name, arguments and inputs' sizes by name; texts become columns of 0 and 1."""
    operator = count.operator
    found: dict[str, float | str] = {"operator": operator.short_name}
    for name, value in operator.parameters:
        found |= dict(_numbers(name, value))
    for number, spec in enumerate(tensor_specs([*operator.inputs, *(value for _, value in operator.keyword_inputs)])):
        found |= {f"size {number} {axis}": float(size) for axis, size in enumerate(spec.shape)}
    return found


def _numbers(name: str, value: PlainValue) -> list[tuple[str, float | str]]:
    if isinstance(value, tuple):
        return [one for place, part in enumerate(value) for one in _numbers(f"{name} {place}", part)]
    return [(name, float(value) if isinstance(value, (bool, int, float)) else str(value))]


SIZES_OF_LAYERS = (
    *("batch", "channels", "height", "width", "n", "groups"),
    *("kernel_height", "kernel_width", "stride", "padding", "last_input", "last_output"),
)
SPECIAL_TERMS = ("flop", "memory_bytes")


def neural_power(known: TrainingData) -> Predict:
    """Return predictions by NeuralPower's polynomials (Cai, Juan, Stamoulis and Marculescu, ACML 2017).

    Time and power of each kind of layer are polynomials of the layer's sizes, with FLOPs and bytes as special terms.
    Lasso chooses the terms, with a penalty by ten-fold cross-validation. Degrees are 2 (there 2 or 3). Kinds with few
    samples have ``linear_in_flops``. No time is below the shortest of the kind, and no power above the highest of all:
    the published method has no such limits, and extrapolates to any value.
    """
    samples = known.samples
    powers_w = samples.energies_j / samples.times_s
    models: dict[str, tuple[_Polynomial, _Polynomial]] = {}
    for kind, places in places_of(samples.kinds).items():
        own = places[np.isfinite(powers_w[places])]
        if len(own) >= FEWEST:
            models[kind] = (
                _Polynomial.of(samples.raw[own], samples.times_s[own]),
                _Polynomial.of(samples.raw[own], powers_w[own]),
            )
    otherwise, limit_w = linear_in_flops(known), float(np.nanmax(powers_w))

    def predict(others: TrainingData) -> Costs:
        times_s, energies_j = otherwise(others)
        for kind, places in places_of(others.samples.kinds).items():
            if kind in models:
                time, power = (model.predict(others.samples.raw[places]) for model in models[kind])
                times_s[places], energies_j[places] = time, time * np.minimum(limit_w, power)
        return times_s, energies_j

    return predict


@dataclass(frozen=True)
class _Polynomial:
    """A fitted polynomial of sizes, and the smallest value that it has."""

    pipeline: Pipeline
    scale: float
    least: float

    @staticmethod
    def of(raw: FloatArray, targets: FloatArray) -> _Polynomial:
        scale = float(np.mean(targets))
        lasso = LassoCV(alphas=PENALTIES, cv=min(FOLDS, len(targets)), max_iter=STEPS, random_state=0)
        pipeline = make_pipeline(StandardScaler(), lasso)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            pipeline.fit(_terms(raw), targets / scale)
        return _Polynomial(pipeline, scale, float(np.min(targets)))

    def predict(self, raw: FloatArray) -> FloatArray:
        return np.maximum(self.least, self.scale * self.pipeline.predict(_terms(raw)))


def _terms(raw: FloatArray) -> FloatArray:
    sizes = raw[:, [RAW.index(name) for name in SIZES_OF_LAYERS]]
    special = raw[:, [RAW.index(name) for name in SPECIAL_TERMS]]
    return np.column_stack([PolynomialFeatures(DEGREE, include_bias=False).fit_transform(sizes), special])


BASELINES: Mapping[str, Callable[[TrainingData], Predict]] = {
    "roofline": roofline,
    "linear in FLOPs": linear_in_flops,
    "forest of attributes": forest_of_attributes,
    "NeuralPower": neural_power,
}
