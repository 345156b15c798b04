"""Extremely randomised trees (Geurts, Ernst and Wehenkel, Machine Learning 63 (2006), 3-42)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from opcost.estimates import FloatArray
from opcost.prediction.fitted import Fitted, Forest

TREES = 60
TREES_FOR_ERRORS = 30
"""Trees of the forests of which only the errors are wanted. Half of the trees take half of the time, and predict
held-out samples with mean errors that are at most 2.5 % larger (``docs/log/prediction.md``)."""

FEATURE_RATIO = 0.5


@dataclass(frozen=True)
class TreeLearner:
    """Fits one forest to all kinds of operators."""

    name: str = "trees"
    is_common: bool = True
    trees: int = TREES

    def tuned(self, features: FloatArray, targets: FloatArray) -> TreeLearner:
        return self

    def for_errors(self) -> TreeLearner:
        return replace(self, trees=min(self.trees, TREES_FOR_ERRORS))

    def fit(self, features: FloatArray, targets: FloatArray) -> Fitted:
        """Return the forest that fits the targets."""
        forest = ExtraTreesRegressor(self.trees, max_features=FEATURE_RATIO, n_jobs=-1, random_state=0)
        trees = [one.tree_ for one in forest.fit(features, targets).estimators_]
        starts = np.cumsum([0, *(tree.node_count for tree in trees)])
        lower, upper = (
            np.concatenate(
                [
                    # In scikit-learn, a leaf has the child -1. Here it is its own.
                    np.where(child < 0, np.arange(len(child)), child) + start
                    for child, start in zip(children, starts, strict=False)
                ]
            )
            for children in ([tree.children_left for tree in trees], [tree.children_right for tree in trees])
        )
        return Forest(
            features=np.concatenate([np.maximum(tree.feature, 0) for tree in trees]).astype(np.int64),
            thresholds=np.concatenate([tree.threshold for tree in trees]),
            lower=lower.astype(np.int64),
            upper=upper.astype(np.int64),
            values=np.concatenate([tree.value[:, 0, 0] for tree in trees]),
            roots=starts[:-1].astype(np.int64),
            depth=max(tree.max_depth for tree in trees),
        )
