"""The committed tables, which claims read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pandas as pd

from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.storage.database import Database


@cache
def committed(root: Path) -> Database:
    """Return the tables of a copy of the repository, to be read only."""
    return Database(root / "database").read_once()


def usual_conditions(rows: Iterable[MeasurementRow]) -> Conditions:
    """Return the conditions that most of some rows have."""
    ((conditions, _),) = Counter(row.conditions for row in rows).most_common(1)
    return conditions


def kernel_ratios(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return kernel time alone, and that of the same kernels, over kernel time in the model, by the model's name."""
    times = table.groupby("name").sum(numeric_only=True)
    alone, same = (times[f"{name}_time_s"] / times["in_model_time_s"] for name in ("alone", "same_kernels"))
    return alone, same
