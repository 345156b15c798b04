"""How well short loops agree with long ones: the tables that ``fast_vs_reference.py --evaluate`` prints"""

from __future__ import annotations

import pandas as pd
from tables import SIZES, markdown, sizes

TIME_RATIO, ENERGY_RATIO = 0.003, 0.01
AT_THE_LIMIT = "the power limit|power-limit|power-cap"
"""In the flags (in early tables the notes) of a loop that was throttled, or would be if it lasted."""

SHORT, SAME_BUILD, LONG, LONGEST, SUSTAINED = "", "_same_build", "_reference", "_long_reference", "_sustained"
"""Parts of the columns' names: a short loop; one on the build that runs in the long ones, too; 10 s; 30 s; 10 s (in
early rows 3 s) at the clocks that the power limit leaves."""


FIGURES = {
    "time": ("time{}_s", TIME_RATIO),
    "energy at the reference temperature": ("energy{}_j", ENERGY_RATIO),
    "energy as measured": ("energy{}_as_measured_j", ENERGY_RATIO),
}
"""Each figure's column, with a place for the loop's part, and how far loops may differ."""


def kinds(table: pd.DataFrame) -> set[str]:
    """Return the names of the operators' kinds, such as ``torch.nn.Conv2d``."""
    return set(table["operator"].str.partition("(")[0])


def below_the_limit(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of operators that no loop of the table found at the power limit."""
    capped = table[["power_capped_ratio", "power_capped_reference_ratio"]].fillna(0.0).max(axis=1) > 0
    for column in {"flags", "flags_reference", "notes", "notes_reference"} & set(table.columns):
        capped |= table[column].fillna("").str.contains(AT_THE_LIMIT)
    return table[~capped]


COMPARED = (
    ("all", SHORT, LONG),
    ("never at the power limit", SHORT, LONG),
    ("the same build", SAME_BUILD, LONG),
    ("long loop against longest", LONG, LONGEST),
    ("full clocks against sustained", LONG, SUSTAINED),
)
"""Name of the comparison, and the two loops that it compares."""


def _compared(name: str, ratio: pd.Series, limit: float) -> list[str]:
    known = ratio.dropna()
    within = f"{(known.abs() <= limit).mean():.1%}" if len(known) else ""
    return [name, f"{limit:.1%}", within, f"{known.median():+.3%}" if len(known) else "", *sizes(known)]


def lines(table: pd.DataFrame) -> list[list[str]]:
    """Return rows of cells: each figure, of all operators and of those below the limit, and of other loops."""
    found = []
    for group, one, other in COMPARED:
        members = below_the_limit(table) if group == "never at the power limit" else table
        for name, (column, limit) in FIGURES.items():
            columns = [column.format(one), column.format(other)]
            if set(columns) <= set(table.columns):
                first, second = (members[column] for column in columns)
                found.append(_compared(f"{name}, {group}", first / second - 1, limit))
    return found


def report(table: pd.DataFrame) -> str:
    """Return the agreement of short and long loops, and of meters, in Markdown."""
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
