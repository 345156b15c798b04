"""Figures of claims about networks of other kinds: recurrent, on graphs, spectral, with forces, with a scan."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pandas as pd
from claim_formats import days, milliseconds
from claims_of_precisions import complete, ratios_of, reports_in

FOLDER = Path("docs", "data", "networks", "h200")

WITHIN_AIMS = ("networks_graph", "networks_gru", "networks_lstm", "networks_spectral")
"""The networks whose sums reach the aims of 3 % in time and 4 % in energy."""


def sums_of_networks(root: Path) -> dict[str, str]:
    """Return the sums over wholes, plain and corrected: of those that reach the aims together, and of each."""
    rows = [complete(row) for report in reports_in(root, FOLDER) for row in report.comparisons]
    sums = pd.DataFrame(map(asdict, rows)).set_index("name")
    found = {}
    for quantity, of_quantity in ratios_of(sums):
        good = of_quantity[list(WITHIN_AIMS)]
        found[f"networks_{quantity}"] = f"{good.min():.3f} to {good.max():.3f}"
        found |= {f"{name}_{quantity}": f"{ratio:.3f}" for name, ratio in of_quantity.items()}
    found |= {f"{name}_whole": milliseconds(time_s, 2) for name, time_s in sums["full_time_s"].items()}
    table = pd.read_csv(root / FOLDER / "operator_measurements.csv", usecols=["started_at"])
    return found | {"networks_days": days(table["started_at"])}
