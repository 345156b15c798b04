"""The methods that a predictor of operators' costs is chosen from."""

from __future__ import annotations

from opcost.learners.gaussian_process import GaussianProcessLearner
from opcost.learners.neighbours import NeighbourLearner
from opcost.learners.polynomials import PolynomialLearner
from opcost.learners.trees import TreeLearner
from opcost.prediction.fitted import Learner

METHODS: tuple[Learner, ...] = (TreeLearner(), GaussianProcessLearner(), NeighbourLearner(), PolynomialLearner())
