"""Rank correlations of all numeric columns of a table, and the groups of columns that carry the same information."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from opcost.columns import by_column, columns_of

SAME_RANKS = 0.99
"""The absolute correlation from which two columns order rows alike: each has the other's order."""

FEWEST_ROWS = 3


def numeric_frame(rows: Sequence[Any]) -> pd.DataFrame:
    """Return the numeric columns of some rows that have at least two values, each column by its name."""
    if not rows:
        nothing: pd.DataFrame = pd.DataFrame()
        return nothing
    names = [field.name for field in columns_of(type(rows[0])) if field.kind in (int, float)]
    frame = pd.DataFrame([by_column(row) for row in rows])[names].apply(pd.to_numeric)
    varied = [name for name in names if frame[name].nunique() > 1 and frame[name].notna().sum() >= FEWEST_ROWS]
    found: pd.DataFrame = frame[varied]
    return found


def spearman(rows: Sequence[Any]) -> pd.DataFrame:
    """Return Spearman's rank correlation of each pair of columns, over the rows that have both; NaN for too few.

    pandas computes it as scipy does: Pearson's correlation of ranks, equal values having their mean rank.
    """
    matrix: pd.DataFrame = numeric_frame(rows).corr(method="spearman", min_periods=FEWEST_ROWS)
    return matrix


def same_information(matrix: pd.DataFrame) -> list[list[str]]:
    """Return groups of two or more columns, each of which orders rows as the group's first does, or in reverse."""
    names = [str(name) for name in matrix.columns]
    known = {name: dict(zip(names, column, strict=True)) for name, column in zip(names, matrix.to_numpy(), strict=True)}
    left, groups = names, []
    while left:
        first, *others = left
        alike = [name for name in others if abs(known[first][name]) >= SAME_RANKS]
        left = [name for name in others if name not in alike]
        if alike:
            groups.append([first, *alike])
    return groups
