"""How far short loops agree with long ones: the table that ``fast_vs_reference.py --evaluate`` prints"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from tables import SIZES, markdown, sizes

TIME_RATIO, ENERGY_RATIO = 0.003, 0.01
AT_THE_LIMIT = "the power limit"
"""In the notes of what it slows down, and of what it would slow down if it lasted."""

SHORT, LONG, LONGEST = "", "_reference", "_long_reference"


def time_s(table: pd.DataFrame, loop: str) -> pd.Series:
    """Return the times of ``SHORT``, ``LONG`` or ``LONGEST`` loops."""
    return table[f"time{loop}_s"]


def energy_j(table: pd.DataFrame, loop: str) -> pd.Series:
    """Return the energies at the reference temperature."""
    return table[f"energy{loop}_j"]


def energy_as_measured_j(table: pd.DataFrame, loop: str) -> pd.Series:
    """Return the energies as measured, of ``SHORT`` or ``LONG`` loops."""
    return table[f"energy{loop}_as_measured_j"]


FIGURES: dict[str, tuple[Callable[[pd.DataFrame, str], pd.Series], float]] = {
    "time": (time_s, TIME_RATIO),
    "energy at the reference temperature": (energy_j, ENERGY_RATIO),
    "energy as measured": (energy_as_measured_j, ENERGY_RATIO),
}


def kinds(table: pd.DataFrame) -> set[str]:
    """Return the names of the operators' kinds, such as ``torch.nn.Conv2d``."""
    return set(table["operator"].str.partition("(")[0])


def below_the_limit(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of operators that were never capped, in no loop that the table tells of."""
    capped = table[["power_capped_ratio", "power_capped_reference_ratio"]].fillna(0.0).max(axis=1) > 0
    return table[~capped & ~table["notes"].fillna("").str.contains(AT_THE_LIMIT, regex=False)]


def _compared(name: str, ratio: pd.Series, limit: float) -> list[str]:
    known = ratio.dropna()
    within = f"{(known.abs() <= limit).mean():.1%}" if len(known) else ""
    return [name, f"{limit:.1%}", within, f"{known.median():+.3%}" if len(known) else "", *sizes(known)]


def lines(table: pd.DataFrame) -> list[list[str]]:
    """Return rows of cells: each figure, of all operators and of those below the limit, and of the longest loops."""
    found = []
    for group, members in {"all": table, "never capped": below_the_limit(table)}.items():
        for name, (figure, limit) in FIGURES.items():
            ratio = figure(members, SHORT) / figure(members, LONG) - 1
            found.append(_compared(f"{name}, {group}", ratio, limit))
    if "time_repeated_s" in table:
        at_full_clocks = table.assign(
            time_reference_s=table["time_repeated_s"].fillna(table["time_reference_s"]),
            energy_reference_j=table["energy_repeated_j"].fillna(table["energy_reference_j"]),
        )
        for name, (figure, limit) in list(FIGURES.items())[:2]:
            ratio = figure(at_full_clocks, SHORT) / figure(at_full_clocks, LONG) - 1
            found.append(_compared(f"{name}, all, at the limit against the same again", ratio, limit))
    if "time_long_reference_s" in table:
        for name, (figure, limit) in list(FIGURES.items())[:2]:
            ratio = figure(table, LONG) / figure(table, LONGEST) - 1
            found.append(_compared(f"{name}, long loop against longest", ratio, limit))
    return found


def report(table: pd.DataFrame) -> str:
    """Return what a table of ``fast_vs_reference.py`` says, in Markdown."""
    times_s, wall_s = table["time_reference_s"], table["wall_s"]
    times = f"{1e6 * times_s.min():.3g} us to {1e3 * times_s.max():.3g} ms"
    parts = [
        f"{len(table)} operators of {len(kinds(table))} kinds, {times}; the short loop with all around it took "
        f"{wall_s.median():.2f} s in the median, {wall_s.max():.2f} s at worst",
        markdown(("short against long loop", "limit", "within", "signed median", *SIZES), lines(table)),
    ]
    if "check_power_ratio_reference" in table:
        checked = (table["check_power_ratio_reference"] - 1).groupby(table["check_meter_reference"])
        meters = [[str(meter), f"{ratio.median():+.3%}", *sizes(ratio)] for meter, ratio in checked]
        parts.append(markdown(("second meter against the first, long loop", "signed median", *SIZES), meters))
    return "\n\n".join(parts)
