"""The fewest of some things that are together enough, by scipy's solver of integer programs."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from opcost.estimates import FloatArray

TIE_WEIGHT = 0.5
"""Of the mean sum, which is at most 1: of equally small choices the one that reaches most."""


def smallest_cover(shares: FloatArray, target_ratio: float) -> tuple[int, ...]:
    """Return the fewest columns, at least one, whose sum reaches a target in each row, and of several choices the best.

    Args:
        shares: what each column has of each row, shape (rows, columns), none below 0, each row's sum about 1.
        target_ratio: what is wanted in each row, above 0 and below 1.

    Raises:
        ValueError: all columns together do not reach it.
    """
    columns = shares.shape[1]
    solution = milp(
        c=1 - TIE_WEIGHT * shares.mean(axis=0),
        constraints=[
            LinearConstraint(shares, lb=target_ratio),
            LinearConstraint(np.ones((1, columns)), lb=1.0),
        ],
        bounds=Bounds(0, 1),
        integrality=np.ones(columns),
        options={"mip_rel_gap": 0.0},
    )
    if not solution.success:
        raise ValueError(f"no columns reach {target_ratio:g}: {solution.message}")
    return tuple(int(index) for index in np.flatnonzero(np.round(solution.x)))
