"""Figures of pages that describe the committed rows: conditions, campaigns, and examples of reading them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from claim_formats import board_of, days, milliseconds

from opcost.comparing.cache_chains import SIXTEEN_BITS
from opcost.measuring.conditions import TORCH_DEFAULT

CARD = "NVIDIA H200"
"""The card that the figures are of, where nothing else is said: rows of other cards have figures of their own."""

CITED_BOARD = "cd1b"

OPERATORS = "operator_measurements.csv"
WHOLES = "full_model_measurements.csv"


def conditions(root: Path) -> dict[str, str]:
    """Return the conditions that all rows of operators in graphs share."""
    rows = in_graphs(root)
    names = ("device_product", "device_power_limit_w", "driver_version", "torch_version")
    (product,), (limit_w,), (driver,), (torch,) = (rows[name].unique() for name in names)
    return {
        "device": product,
        "power_limit": f"{limit_w:.0f} W",
        "driver": driver,
        "torch": torch,
        "torch_release": torch.partition("+")[0],
    }


def campaigns(root: Path) -> dict[str, str]:
    """Return the number of rows in graphs of each board, under any conditions, and the days of their measurement."""
    found = {}
    for name, file in (("operators", OPERATORS), ("wholes", WHOLES)):
        table = pd.read_csv(root / "database" / file, low_memory=False).query("execution == 'graph'")
        for board, rows in table.groupby(table["device_uuid"].map(board_of)):
            found |= {f"{name}_{board}": f"{len(rows):,}", f"{name}_days_{board}": days(rows["started_at"])}
    return found


def median_of_all_boards(root: Path) -> dict[str, str]:
    """Return ResNet-50's sum as the example of docs/database.md computes it."""
    calls = pd.read_csv(root / "database" / "model_operators.csv").query(
        "model == 'resnet50_32x3x224x224' and memory_bytes > 0"
    )
    rows = in_graphs(root).query("cache == 'warm'")
    costs = rows.groupby(rows["key"].str.rsplit("-", n=1).str[0])[["time_s", "energy_at_reference_j"]].median()
    total = costs.mul(calls.set_index("key")["calls"], axis=0).sum()
    return {
        "resnet50_median_time": milliseconds(total["time_s"], 3),
        "resnet50_median_energy": f"{total['energy_at_reference_j']:.3f} J",
    }


def cited_convolution(root: Path) -> dict[str, str]:
    """Return the first 3 by 3 convolution of ResNet-50 as docs/database.md cites it: on one board, and on all."""
    rows = in_graphs(root).query(
        "cache == 'warm' and operator == 'torch.nn.Conv2d' and inputs == 'float32[32, 64, 56, 56]' "
        "and input_data == 'captured: 0.5 zeros'"
    )
    rows = rows[rows["parameters"].str.startswith("in_channels=64, out_channels=64, kernel_size=3, padding=1")]
    (cited,) = rows[rows["device_uuid"].map(board_of) == CITED_BOARD].itertuples()
    time_us, energy_mj = 1e6 * rows["time_s"], 1e3 * rows["energy_at_reference_j"]
    error_us, error_mj = 1e6 * cited.time_standard_error_s, 1e3 * cited.energy_at_reference_standard_error_j
    return {
        "cited_boards": {6: "Six"}[rows["device_uuid"].nunique()],
        "cited_time": f"{1e6 * cited.time_s:.1f} ± {error_us:.1f} µs",
        "cited_energy": f"{1e3 * cited.energy_at_reference_j:.1f} ± {error_mj:.1f} mJ",
        "cited_times": f"{time_us.min():.1f} µs to {time_us.max():.1f} µs",
        "cited_energies": f"{energy_mj.min():.1f} mJ to {energy_mj.max():.1f} mJ",
    }


def cache_correction(root: Path) -> dict[str, str]:
    """Return the days and boards of the cache correction by dtype, and of the calls of operators in models."""
    chains = pd.read_csv(root / "database" / "calls_in_chains.csv")
    calls = pd.read_csv(root / "database" / "model_operators.csv")
    calls = calls[~calls["model"].isin(calls.loc[calls["operator"].str.startswith("grid."), "model"])]
    has_16_bits = chains["design"].str.endswith(SIXTEEN_BITS)
    found = {}
    for name, rows in (("chains", chains[~has_16_bits]), ("bf16_chains", chains[has_16_bits])):
        found[f"{name}_boards"] = ", ".join(sorted(map(board_of, rows["device_uuid"].unique())))
        found[f"{name}_days"] = days(rows["measured_at"])
    return found | {
        "calls_days": days(calls["counted_at"]),
        "calls_models": str(calls["model"].nunique()),
    }


def of_card(root: Path, table: str) -> pd.DataFrame:
    """Return the rows of a committed table that are of the card of the figures, in torch's default precision."""
    rows = pd.read_csv(root / "database" / table, low_memory=False)
    # Qualifications have no precision.
    has_default = rows["precision"] == TORCH_DEFAULT if "precision" in rows else True
    return rows[(rows["device_product"] == CARD) & has_default]


def in_graphs(root: Path, table: str = OPERATORS) -> pd.DataFrame:
    """Return those of them that ran as CUDA graphs."""
    return of_card(root, table).query("execution == 'graph'")
