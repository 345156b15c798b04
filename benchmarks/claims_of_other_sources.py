"""Figures of claims about sums of models of transformers and timm."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pandas as pd
from claim_formats import days, percent, spread
from claim_tables import kernel_ratios
from claims_of_precisions import complete, differences, reports_in

from opcost.measuring.conditions import TORCH_DEFAULT

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
    }
    for precision, word in PRECISIONS.items():
        rows = sums[sums["precision"] == precision]
        found |= differences(rows, f"other_{word}", rows["config"])
    return found | differences(sums, "other", sums["config"] + " in " + sums["precision"].map(PRECISIONS))


def kernels_of_other_sources(root: Path) -> dict[str, str]:
    """Return the ratio of kernel time alone to kernel time in the model, by the profiler."""
    table = pd.read_csv(root / FOLDER / CARD / "kernel_times.csv")
    alone, same = kernel_ratios(table)
    return {
        "other_kernel_cases": str(len(alone)),
        "other_kernel_days": days(table["profiled_at"]),
        **spread(alone, "other_kernels"),
        "other_same_kernels_lowest": percent(same.min()),
    }


def _sums(root: Path) -> pd.DataFrame:
    """Return the sums and wholes of all measured configs, by their names."""
    found = [
        {**asdict(complete(row)), "precision": row.conditions.precision}
        for report in reports_in(root, FOLDER / CARD)
        for row in report.comparisons
    ]
    sums = pd.DataFrame(found).set_index("name")
    return sums.assign(config=sums.index.str.replace("_(?:torch-default|bf16)$", "", regex=True))
