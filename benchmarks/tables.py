"""Quantiles and Markdown tables, for what benchmarks print"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

SIZES = ("operators", "median", "95 %", "worst")
"""Headings of ``sizes``."""


def sizes(ratios: pd.Series) -> list[str]:
    """Return cells: how many there are, and median, 95 % quantile and largest of their magnitudes."""
    known = ratios.dropna().abs()
    if known.empty:
        return ["0", "", "", ""]
    return [str(len(known)), *(f"{known.quantile(at):.3%}" for at in (0.5, 0.95, 1.0))]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], alignment: str = "--:") -> str:
    """Return a table: the first column to the left, the others by default to the right."""
    lines = [header, ["---", *[alignment] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
