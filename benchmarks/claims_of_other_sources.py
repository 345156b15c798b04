"""Figures of claims about sums of models of transformers and timm."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pandas as pd
from claim_formats import days, percent
from claims_of_precisions import CorrectedRows, complete, days_of_rows, differences

from opcost.measuring.conditions import TORCH_DEFAULT
from opcost.running.request import Request
from opcost.stages.compare import find_comparisons, reports_of
from opcost.storage.database import Database

FOLDER = Path("docs", "data", "other_sources")
CARD = "h100"

PRECISIONS = {TORCH_DEFAULT: "default", "bf16": "bf16"}
"""The precisions of configs, and the words for them."""


def sums_of_other_sources(root: Path) -> dict[str, str]:
    """Return the differences of sums and wholes in each precision, and in both."""
    sums = _sums(root)
    found = {
        "other_sums": str(len(sums)),
        "other_models": str(sums["operator"].nunique()),
        "other_days": days_of_rows([root / FOLDER / CARD]),
    }
    for precision, word in PRECISIONS.items():
        rows = sums[sums["precision"] == precision]
        found |= differences(rows, f"other_{word}", rows["config"])
    return found | differences(sums, "other", sums["config"] + " in " + sums["precision"].map(PRECISIONS))


def kernels_of_other_sources(root: Path) -> dict[str, str]:
    """Return the ratio of kernel time alone to kernel time in the model, by the profiler."""
    table = pd.read_csv(root / FOLDER / CARD / "kernel_times.csv")
    times = table.groupby("name").sum(numeric_only=True)
    alone, same = (times[f"{name}_time_s"] / times["in_model_time_s"] for name in ("alone", "same_kernels"))
    return {
        "other_kernel_cases": str(len(times)),
        "other_kernel_days": days(table["profiled_at"]),
        "other_kernels_lowest": f"{alone.min():.3f}",
        "other_kernels_highest": f"{alone.max():.3f}",
        "other_kernels_median": f"{alone.median():.3f}",
        "other_same_kernels_lowest": percent(same.min()),
    }


def _sums(root: Path) -> pd.DataFrame:
    """Return the sums and wholes of all measured configs, by their names."""
    rows = CorrectedRows(root / FOLDER / CARD, corrections=Database(root / "database"))
    request = Request((), root / FOLDER / "measurements", rows, dry_run=True)
    found = [
        {**asdict(complete(row)), "precision": row.conditions.precision}
        for report in reports_of(request, find_comparisons(request))
        for row in report.comparisons
    ]
    sums = pd.DataFrame(found).set_index("name")
    return sums.assign(config=sums.index.str.replace("_(?:torch-default|bf16)$", "", regex=True))
