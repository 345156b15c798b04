"""Short tables of results for notebooks, in the words and digits of a screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from opcost.units import UNKNOWN

if TYPE_CHECKING:
    from pandas import DataFrame


def short_table(rows: Iterable[Mapping[str, object]]) -> DataFrame:
    """Return rows as a data frame without columns that are unknown in all rows; other unknown cells have a dash."""
    import pandas

    frame = pandas.DataFrame(list(rows))
    known: DataFrame = frame.dropna(axis="columns", how="all").fillna(UNKNOWN)
    return known
