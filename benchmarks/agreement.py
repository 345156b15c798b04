"""How well short loops agree with long ones: the tables that ``fast_vs_reference.py --evaluate`` prints"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from tables import SIZES, markdown, sizes

from opcost.estimates import NORMAL_QUANTILE, student_quantile

SHORT, SAME_BUILD, LONG, LONGEST, SUSTAINED = "", "_same_build", "_reference", "_long_reference", "_sustained"
"""Parts of the columns' names: a short loop; one on the build that runs in the long ones, too; 10 s; 30 s; 10 s (in
early rows 3 s) at the clocks that the power limit leaves."""

FIGURES = {"time": ("time{}{}_s", 0.003), "energy": ("energy{}{}_j", 0.01)}
"""Each figure's column, with places for the loop's part and for its error, and how far loops may differ. Energies are
at the reference temperature."""

LENGTHS = {
    "all": (0.0, math.inf),
    "below 8 us": (0.0, 8e-6),
    "8 us to 30 us": (8e-6, 30e-6),
    "30 us and more": (30e-6, math.inf),
}
"""Classes of operators by the time of the long loop, in s. Below 30 us an operator runs at ten positions in memory, at
others in each build."""

COMPARED = (
    ("another build", SHORT, LONG),
    ("same build", SAME_BUILD, LONG),
    ("30 s on this build", LONG, LONGEST),
    ("throttled on this build", LONG, SUSTAINED),
)
"""The second loop, and the two loops that are compared. A campaign's row is of another build than a long loop: both
have the error of a build. Two loops on the same build show only how well a loop knows its build."""

HEADER = (
    "against the long loop",
    "limit",
    "within",
    "signed median",
    *SIZES,
    "95 % interval holds it",
    "short's alone",
)


def kinds(table: pd.DataFrame) -> set[str]:
    """Return the names of the operators' kinds, such as ``torch.nn.Conv2d``."""
    return set(table["operator"].str.partition("(")[0])


def deviations(table: pd.DataFrame, figure: str, one: str, other: str) -> pd.DataFrame:
    """Return by how much the first loop is larger (``ratio``), and half the widths of 95 % intervals; without gaps.

    ``both`` is that of the difference, ``alone`` that of the first loop. Few readings need Student's factor.
    """
    column, _ = FIGURES[figure]
    names = [column.format(part, error) for part in (one, other) for error in ("", "_standard_error")]
    value, error, reference, reference_error = (table.reindex(columns=names)[name].astype(float) for name in names)
    quantiles = pd.Series(NORMAL_QUANTILE, index=table.index)
    if figure == "energy" and one != LONG and "power_readings" in table:
        quantiles = table["power_readings"].clip(lower=2).map(lambda readings: student_quantile(int(readings) - 1))
    alone = quantiles * error / reference
    both = np.hypot(alone, NORMAL_QUANTILE * reference_error / reference)
    found = pd.DataFrame({"ratio": value / reference - 1, "alone": alone, "both": both})
    return found.dropna(subset="ratio")


def lines(table: pd.DataFrame) -> list[list[str]]:
    """Return rows of cells: each figure by length, against the long loop on another build, on the same, and others."""
    found = []
    for figure, (_, limit) in FIGURES.items():
        for name, one, other in COMPARED:
            off = deviations(table, figure, one, other)
            times_s = table.loc[off.index, "time_reference_s"]
            for length, (shortest_s, longest_s) in LENGTHS.items():
                members = off[(times_s >= shortest_s) & (times_s < longest_s)]
                if len(members) and (one != LONG or length == "all"):
                    found.append([f"{figure}, {name}, {length}", *_cells(members, limit)])
    return found


def _cells(off: pd.DataFrame, limit: float) -> list[str]:
    ratios = off["ratio"]
    return [
        f"{limit:.1%}",
        f"{(ratios.abs() <= limit).mean():.1%}",
        f"{ratios.median():+.3%}",
        *sizes(ratios),
        *(_covered(ratios, off[width]) for width in ("both", "alone")),
    ]


def _covered(ratios: pd.Series, half_widths: pd.Series) -> str:
    known = half_widths.notna()
    return f"{(ratios[known].abs() <= half_widths[known]).mean():.1%}" if known.any() else ""


def misses(table: pd.DataFrame) -> str:
    """Return a table of the operators that are off by more than a limit, the worst first, with their circumstances."""
    off = {
        (figure, part): deviations(table, figure, part, LONG).reindex(table.index)
        for figure in FIGURES
        for part in (SHORT, SAME_BUILD)
    }
    excess = pd.concat([off[figure, SHORT]["ratio"].abs() / limit for figure, (_, limit) in FIGURES.items()], axis=1)
    worst = excess.max(axis=1).loc[lambda each: each > 1].sort_values(ascending=False)
    found = []
    for index in worst.index:
        row = table.loc[index]
        cells = [_deviation(off[figure, part].loc[index]) for figure in FIGURES for part in (SHORT, SAME_BUILD)]
        name = row["operator"]
        shown = name if len(name) <= 70 else f"{name[:69]}…"
        found.append([shown, f"{1e6 * row['time_reference_s']:.3g} us", *cells, _reasons(row)])
    columns = (f"{figure}, {build} build" for figure in FIGURES for build in ("another", "same"))
    return markdown(("beyond a limit", "long loop", *columns, "known of it"), found)


def _deviation(off: pd.Series) -> str:
    if pd.isna(off["ratio"]):
        return ""
    width = "" if pd.isna(off["both"]) else f" ± {off['both']:.2%}"
    return f"{off['ratio']:+.2%}{width}" + (" (!)" if abs(off["ratio"]) > off["both"] else "")


def _reasons(row: pd.Series) -> str:
    cells = row.reindex(["duty_cycle", "temperature_c", "temperature_reference_c"])
    found = [row["device_uuid"][:8]] if "device_uuid" in row else []
    if cells["duty_cycle"] < 1:
        found.append("with pauses")
    if not pd.isna(warmer_c := cells["temperature_reference_c"] - cells["temperature_c"]):
        found.append(f"{warmer_c:+.0f} K in the long loop")
    for name, column in (("short", "flags"), ("long", "flags_reference")):
        if isinstance(flags := row.get(column), str) and flags:
            found.append(f"{name}: {flags}")
    return "; ".join(found)


def report(table: pd.DataFrame) -> str:
    """Return the agreement of short and long loops, and of meters, in Markdown, card by card."""
    cards = table["device_product"] if "device_product" in table else pd.Series("unknown card", index=table.index)
    return "\n\n".join(_of_card(card, members) for card, members in table.groupby(cards))


def _of_card(card: str, table: pd.DataFrame) -> str:
    reasons = table.reindex(columns=["left_out"])["left_out"].dropna()
    table = table[table["time_reference_s"].notna()]
    times_s, wall_s = table["time_reference_s"], table["wall_s"]
    boards = table.reindex(columns=["device_uuid"])["device_uuid"].nunique()
    parts = [
        f"**{card}**, {boards} boards: {len(table)} operators of {len(kinds(table))} kinds, "
        f"{1e6 * times_s.min():.3g} us to {1e3 * times_s.max():.3g} ms; the short loop with all around it took "
        f"{wall_s.mean():.2f} s on average, {wall_s.median():.2f} s in the median, {wall_s.max():.2f} s at worst",
        *(f"left out, {number}: {reason}" for reason, number in reasons.value_counts().items()),
        markdown(HEADER, lines(table)),
        "An interval holds the long loop if the difference is within the 95 % interval of both loops. Errors of a loop "
        "include the variation between builds, which loops on the same build share.",
        misses(table) + "\n\n(!): outside of the interval.",
    ]
    if "check_power_ratio_reference" in table:
        checked = (table["check_power_ratio_reference"] - 1).groupby(table["check_meter_reference"])
        meters = [[str(meter), f"{ratio.median():+.3%}", *sizes(ratio)] for meter, ratio in checked]
        parts.append(markdown(("second meter against the first, long loop", "signed median", *SIZES), meters))
    return "\n\n".join(parts)
