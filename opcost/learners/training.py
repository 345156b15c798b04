"""Training with all methods, on one thread of linear algebra."""

from __future__ import annotations

from collections.abc import Sequence

from sklearn import config_context
from threadpoolctl import threadpool_limits

from opcost.learners.methods import METHODS
from opcost.prediction.learned_costs import LearnedCosts, learned_costs
from opcost.prediction.samples import Samples
from opcost.prediction.sum_errors import ModelCalls

THREADS = 1
"""Threads of linear algebra. The matrices are small: threads wait for each other longer than they calculate. Trees grow
on all cores."""


def learned_from(samples: Samples, models: Sequence[ModelCalls], multiprocessors: int) -> LearnedCosts:
    """Return the costs that samples teach all methods; the arguments are those of ``learned_costs``.

    Features and targets are checked where samples are made, so that scikit-learn does not check them in each of some
    thousand small fits.
    """
    with threadpool_limits(THREADS), config_context(assume_finite=True, skip_parameter_validation=True):
        return learned_costs(samples, models, METHODS, multiprocessors)
