"""Figures of claims about windows of EnergyMeter, from the rows of ``metered_windows.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from claim_formats import percent

LONG_FROM_S = 1.0


def metered_windows(root: Path) -> dict[str, str]:
    """Return how far the sum of all windows and a single one are off, of 0.2 s and of 1 s to 10 s."""
    table = pd.read_csv(root / "docs" / "data" / "metered_windows.csv").query("tool == 'opcost'")
    found = {}
    for name, rows in table.groupby(np.where(table["length_s"] < LONG_FROM_S, "short", "long")):
        off = rows["metered_j"] / rows["counted_j"] - 1
        sum_off = rows["metered_j"].sum() / rows["counted_j"].sum() - 1
        found |= {
            f"{name}_windows": str(len(rows)),
            f"{name}_windows_sum": f"{abs(sum_off):.2%}".replace("%", " %"),
            f"{name}_window_rms": percent(float(np.sqrt((off**2).mean()))),
        }
    return found
