"""How well repeated runs of block 2 agree, operator by operator -> tables in Markdown

Each database is of one run, in a fresh process, in an order of its own: three or more of them.
Example: python general_pipeline_block2.py resnet50_32x3x224x224 --database run1 (and so on)
         python benchmarks/repeatability.py run1 run2 run3
"""

from __future__ import annotations

import argparse
import math
import sys
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
from tables import SIZES, markdown, sizes

from opcost.estimates import NORMAL_QUANTILE

TABLE = "operator_measurements.csv"
AT_THE_LIMIT = "the power limit|power-limit|power-cap"
"""In the flags (in early tables the notes) of a loop that was throttled, or would be if it lasted."""

FIGURES = {
    "time": ("time_s", "time_standard_error_s"),
    "energy as measured": ("energy_j", "energy_standard_error_j"),
    "energy at the reference temperature": ("energy_at_reference_j", "energy_at_reference_standard_error_j"),
}
"""Columns of what is compared and of its standard error."""

AVERAGES = {
    "mean": ("time_s", "power_w"),
    "mean without outliers": ("time_without_outliers_s", "power_without_outliers_w"),
    "median": ("time_median_s", "power_median_w"),
}


def joined(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of the keys that all runs have, numbered by ``run``, with an operator's whole ``name``.

    Of several rows with one key in a run the last one stays.
    """
    numbered = [table.drop_duplicates("key", keep="last").assign(run=run) for run, table in enumerate(tables)]
    rows = pd.concat(numbered, ignore_index=True)
    texts = rows[["operator", "parameters", "inputs", "input_data"]].astype("string").fillna("")
    rows["name"] = texts["operator"] + "(" + texts["parameters"] + ") " + texts["inputs"] + " " + texts["input_data"]
    # Databases of early runs have notes and no flags.
    remarks = rows.reindex(columns=["flags", "notes"]).astype("string").fillna("")
    rows["remarks"] = remarks["flags"] + " " + remarks["notes"]
    return rows[rows.groupby("key")["run"].transform("nunique") == len(tables)]


def variation(rows: pd.DataFrame, values: pd.Series) -> pd.Series:
    """Return, by operator's name, standard deviation over the runs by mean, where all runs have a value."""
    by_run = rows.assign(value=values).pivot(index=["key", "name"], columns="run", values="value").dropna()
    return (by_run.std(axis=1, ddof=1) / by_run.mean(axis=1)).droplevel("key")


def never_at_the_limit(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of operators that no run found at the power limit."""
    at_limit = rows["remarks"].str.contains(AT_THE_LIMIT)
    return rows[~rows["key"].isin(rows.loc[at_limit, "key"])]


def groups(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return all rows, and those of operators that never reached the power limit."""
    return {"all": rows, "never at the power limit": never_at_the_limit(rows)}


def repeats(rows: pd.DataFrame) -> str:
    """Return a table of how far time and energy vary over the runs."""
    lines = []
    for (group, members), (figure, (column, _)) in product(groups(rows).items(), FIGURES.items()):
        spread = variation(members, members[column])
        lines.append([f"{figure}, {group}", *sizes(spread), "" if spread.empty else str(spread.idxmax())])
    return markdown(("coefficient of variation", *SIZES, "worst operator"), lines)


def apart(rows: pd.DataFrame, column: str, error_column: str) -> np.ndarray:
    """Return by how many standard errors of the difference any two runs differ, operator by operator."""
    values, errors = (rows.pivot(index="key", columns="run", values=name) for name in (column, error_column))
    differences = [
        (values[one] - values[other]) / np.hypot(errors[one], errors[other])
        for one, other in combinations(values.columns, 2)
    ]
    return pd.concat(differences).dropna().to_numpy()


def honesty(rows: pd.DataFrame) -> str:
    """Return a table of how far runs differ beyond what their standard errors say.

    The error of an energy at the reference temperature holds that of the slope, which runs of one board have in common.
    """
    lines = []
    for (group, members), (figure, columns) in product(groups(rows).items(), FIGURES.items()):
        found = apart(members, *columns)
        cells = ["", ""]
        if len(found):
            cells = [f"{np.mean(np.abs(found) < NORMAL_QUANTILE):.1%}", f"{math.sqrt(np.mean(found**2)):.2f}"]
        lines.append([f"{figure}, {group}", str(len(found)), *cells])
    return markdown(
        ("two runs apart", "pairs", "within the 95 % interval", "root mean square, in standard errors"), lines
    )


def averages(rows: pd.DataFrame) -> str:
    """Return a table of how far other averages are from the plain mean, row by row."""
    lines = []
    for name, columns in list(AVERAGES.items())[1:]:
        for figure, column, plain in zip(("time", "power"), columns, AVERAGES["mean"], strict=True):
            lines.append([f"{figure}: {name}", *sizes(rows[column] / rows[plain] - 1)])
    return markdown(("difference to the mean", "rows", *SIZES[1:]), lines)


def repeats_of_averages(rows: pd.DataFrame) -> str:
    """Return a table of how far each average varies over the runs: which one repeats best?"""
    lines = []
    for name, (time, power) in AVERAGES.items():
        figures = {"time": rows[time], "power x time": rows[power] * rows[time]}
        lines += [[f"{figure}: {name}", *sizes(variation(rows, values))] for figure, values in figures.items()]
    return markdown(("coefficient of variation", *SIZES), lines)


def meters(rows: pd.DataFrame) -> str:
    """Return a table of the second meter's power over the first one's, less 1."""
    checked = rows.dropna(subset=["check_meter", "check_power_w", "power_w"])
    differences = (checked["check_power_w"] / checked["power_w"] - 1).groupby(
        [checked["check_meter"], checked["meter"]]
    )
    at = (0.0, 0.05, 0.5, 0.95, 1.0)
    lines = [
        [f"{check} against {meter}", str(len(group)), *(f"{group.quantile(share):+.3%}" for share in at)]
        for (check, meter), group in differences
    ]
    return markdown(("meters", "rows", "lowest", "5 %", "median", "95 %", "highest"), lines)


def report(tables: list[pd.DataFrame]) -> str:
    """Return all tables, and what they rest on."""
    rows = joined(tables)
    operators, boards = rows["key"].nunique(), sorted(rows["device_uuid"].dropna().unique())
    left_out = len({key for table in tables for key in table["key"]}) - operators
    return "\n\n".join(
        (
            f"{len(tables)} runs, {operators} operators in all of them ({left_out} in some only), "
            f"{len(boards)} boards: {', '.join(boards)}",
            *(table(rows) for table in (repeats, honesty, averages, repeats_of_averages, meters)),
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("databases", nargs="+", type=Path, metavar="DATABASE")
    databases = parser.parse_args().databases
    if len(databases) < 3:
        parser.error("a spread wants three runs or more; name more databases")
    print(report([pd.read_csv(database / TABLE) for database in databases]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
