"""The data sheets of cards, as their makers have published them."""

from __future__ import annotations

import csv
from pathlib import Path

from opcost.prediction.samples import DataSheet

TABLE = Path(__file__).parent / "data_sheets.csv"


def data_sheets() -> dict[str, DataSheet]:
    """Return the sheets by product."""
    found = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            product, source, multiprocessors = (row.pop(name) for name in ("product", "source", "multiprocessors"))
            rates = {name: float(value) for name, value in row.items()}
            found[product] = DataSheet(product, source, int(multiprocessors), **rates)
    return found
