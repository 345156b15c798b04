"""Figures of claims about windows of EnergyMeter and LayerwiseEnergy, from the rows of their benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

LONG_FROM_S = 1.0
LONG_LOOP = 1000
"""Iterations of a loop of which the iterations that are marked in any case are few."""


def metered_windows(root: Path) -> dict[str, str]:
    """Return how far sums of windows and single ones are off on each board, of 0.2 s and of 1 s to 10 s."""
    files = sorted((root / "docs" / "data").glob("metered_windows*.csv"))
    boards = [pd.read_csv(path).query("tool == 'opcost'") for path in files]
    found = {"windows_boards": str(len(boards))}
    for name, is_long in (("short", False), ("long", True)):
        tables = [board[(board["length_s"] >= LONG_FROM_S) == is_long] for board in boards]
        ratios = [table["metered_j"] / table["counted_j"] - 1 for table in tables]
        known = [table[table["metered_j"].notna()] for table in tables]
        sums = [abs(float(table["metered_j"].sum() / table["counted_j"].sum() - 1)) for table in known]
        found |= {
            f"{name}_windows": str(len(tables[0])),
            f"{name}_windows_sums": _range(sums, 2),
            f"{name}_window_rms": _range((float(np.sqrt((off**2).mean())) for off in ratios), 1),
        }
    return found


def metered_layers(root: Path) -> dict[str, str]:
    """Return the overhead of LayerwiseEnergy."""
    blocks = pd.read_csv(root / "docs" / "data" / "layers" / "blocks.csv")
    pairs = blocks.pivot_table("time_per_iteration_s", ["model", "mode", "board", "iterations", "pair"], "with_layers")
    overhead = pairs[True] / pairs[False] - 1
    long = overhead[pairs.index.get_level_values("iterations") == LONG_LOOP]
    by_run = overhead[pairs.index.get_level_values("iterations") < LONG_LOOP].groupby(["model", "mode", "board"])
    means = by_run.mean()
    found = {
        "layer_boards": str(blocks["board"].nunique()),
        "layer_long_pairs": str(len(long)),
        "layer_long_overhead": f"{100 * long.mean():.1f} ± {100 * long.std() / np.sqrt(len(long)):.1f} %",
    }
    for model in ("vit_b_16", "resnet50"):
        own = means[means.index.get_level_values("model") == model]
        found[f"{model}_overhead"] = _range(own, 1)
    return found


def _range(values: Iterable[float], digits: int) -> str:
    ordered = sorted(values)
    lowest, highest = (f"{100 * ordered[place]:.{digits}f}" for place in (0, -1))
    return f"{lowest} % to {highest} %".replace("-", "\N{MINUS SIGN}")
