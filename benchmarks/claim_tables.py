"""The committed tables, which claims read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from opcost.storage.database import Database


@cache
def committed(root: Path) -> Database:
    """Return the tables of a copy of the repository, to be read only."""
    return Database(root / "database").read_once()


def kernel_ratios(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return kernel time alone, and that of the same kernels, over kernel time in the model, by the model's name."""
    times = table.groupby("name").sum(numeric_only=True)
    alone, same = (times[f"{name}_time_s"] / times["in_model_time_s"] for name in ("alone", "same_kernels"))
    return alone, same
