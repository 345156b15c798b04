"""How NVML's power samples settle after a load's begin, in a database's short loops and their logs -> a table

Loops with pauses, and those at the power limit, are left out.
Example: PYTHONPATH=. python benchmarks/settling.py database
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd
from tables import markdown

from opcost.storage.database import Database

BIN_S = 0.02
"""NVML has a new sample as often."""

BINS = 10
"""Shown before a loop's begin, and after it."""

SETTLED_S = 0.06
"""After a loop's begin, and so 0.16 s or more after the load's."""

FEWEST_SAMPLES = 5
LEFT_OUT = "duty-cycle|power-limit|power-cap"


def deviations(database: Database) -> pd.DataFrame:
    """Return for each sample its time since the loop's begin in s, and how far it is from those that have settled."""
    rows = pd.read_csv(database.operator_measurements.path)
    rows = rows[
        rows["relative_error"].notna() & rows["power_log"].notna() & ~rows["flags"].fillna("").str.contains(LEFT_OUT)
    ]
    found = (loop_deviations(database, row) for _, row in rows.iterrows())
    return pd.concat([pd.DataFrame(columns=["since_s", "ratio"], dtype=float), *found], ignore_index=True)


def loop_deviations(database: Database, row: pd.Series) -> pd.DataFrame | None:
    """Return those of one loop; None where its samples are not there, or hardly any."""
    log = database.power_logs / str(row["power_log"])
    samples_file = log.with_name(f"{log.stem}-samples.csv")
    if not samples_file.exists():
        return None
    samples = pd.read_csv(samples_file)
    begin_s, end_s = (pd.Timestamp(row[name]).timestamp() for name in ("started_at", "ended_at"))
    is_settled = samples["epoch_s"].between(begin_s + SETTLED_S, end_s)
    if is_settled.sum() < FEWEST_SAMPLES:
        return None
    settled_w = samples.loc[is_settled, "power_w"].mean()
    return pd.DataFrame({"since_s": samples["epoch_s"] - begin_s, "ratio": samples["power_w"] / settled_w - 1})


def report(found: pd.DataFrame) -> str:
    """Return means and quantiles for each 20 ms from 0.2 s before a loop's begin to 0.2 s after it, in Markdown."""
    bins = (found["since_s"] / BIN_S).round()
    shown = found["ratio"][bins.abs() <= BINS].groupby(bins)
    header = ("since the loop's begin", "samples", "10 %", "90 %", "mean")
    return markdown(header, ([f"{BIN_S * at:+.2f} s", *_cells(ratios)] for at, ratios in shown))


def _cells(ratios: pd.Series) -> list[str]:
    return [str(len(ratios)), *(f"{value:+.2%}" for value in (*ratios.quantile([0.1, 0.9]), ratios.mean()))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path, help="a folder with operator_measurements.csv and power_logs/")
    print(report(deviations(Database(parser.parse_args().database))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
