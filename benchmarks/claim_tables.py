"""The committed tables that claims read, and how claims print figures."""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pandas as pd

from opcost.measuring.conditions import Conditions
from opcost.measuring.precisions import TORCH_DEFAULT
from opcost.measuring.record import MeasurementRow
from opcost.storage.database import Database

CARD = "NVIDIA H200"
"""The card that the figures are of, where nothing else is said: rows of other cards have figures of their own."""

WHOLES = "full_model_measurements.csv"
COSTS = {"time": "time_s", "energy": "energy_j"}
MINUS = "\N{MINUS SIGN}"


@cache
def committed(root: Path) -> Database:
    """Return the tables of a copy of the repository, to be read only."""
    return Database(root / "database").read_once()


def usual_conditions(rows: Iterable[MeasurementRow]) -> Conditions:
    """Return the conditions that most of some rows have."""
    ((conditions, _),) = Counter(row.conditions for row in rows).most_common(1)
    return conditions


def of_card(root: Path, table: str) -> pd.DataFrame:
    """Return the rows of a committed table that are of the card of the figures, in torch's default precision."""
    rows = pd.read_csv(root / "database" / table, low_memory=False)
    # Qualifications have no precision.
    has_default = rows["precision"] == TORCH_DEFAULT if "precision" in rows else True
    return rows[(rows["device_product"] == CARD) & has_default]


def percent(ratio: float) -> str:
    """Return a ratio as a percentage: one decimal, none from 10 % on."""
    return f"{100 * ratio:.{0 if abs(ratio) >= 0.0995 else 1}f} %"


def fine_percent(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"


def signed_percent(ratio: float) -> str:
    return f"{100 * ratio:+.0f} %".replace("-", MINUS)


def milliseconds(time_s: float) -> str:
    return f"{1e3 * time_s:.1f} ms"
