"""Figures of claims about models of torchvision on another card than the shipped one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pandas as pd
from claim_formats import days
from claims_of_precisions import complete, ratios_of, reports_in

FOLDER = Path("docs", "data", "zoo", "h100")


def sums_on_an_h100(root: Path) -> dict[str, str]:
    """Return the lowest and highest sum over whole, plain and corrected."""
    rows = [complete(row) for report in reports_in(root, FOLDER) for row in report.comparisons]
    sums = pd.DataFrame(map(asdict, rows))
    found = {f"zoo_h100_{name}": f"{ratio.min():.3f} to {ratio.max():.3f}" for name, ratio in ratios_of(sums)}
    table = pd.read_csv(root / FOLDER / "operator_measurements.csv", usecols=["started_at"])
    return found | {"zoo_h100_models": str(len(sums)), "zoo_h100_days": days(table["started_at"])}
