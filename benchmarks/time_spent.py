"""Where the time of campaigns goes, from the rows and run logs of databases -> tables in Markdown

Example: python general_pipeline_block2.py swin_t --relative-error 0.01 --database run
         PYTHONPATH=. python benchmarks/time_spent.py run
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
from tables import markdown

from opcost.columns import by_column
from opcost.command.log import RUN_LOGS
from opcost.measuring.record import MeasurementRow
from opcost.storage.database import Database

STEPS = ("building_s", "warming_up_s", "looping_s", "reading_meters_s")
SPENT = ("operators", "whole models", "drift checks", "cache corrections", "start")
"""The parts of a run, besides the rest. A start ends with the first measurement, and includes a qualification."""


def frame(rows: Sequence[MeasurementRow]) -> pd.DataFrame:
    """Return the rows that have the time that they took, each with its begin and end in s."""
    columns = ["device_product", "duty_cycle", "ended_at", "taken_s", *STEPS]
    table = pd.DataFrame([by_column(row) for row in rows], columns=columns).dropna(subset="taken_s")
    ended_s = table["ended_at"].map(_seconds).astype(float)
    end_s = ended_s + table["reading_meters_s"].astype(float).fillna(0.0)
    return table.assign(end_s=end_s, begin_s=end_s - table["taken_s"])


def of_measurements(table: pd.DataFrame) -> str:
    """Return how long measurements took, by card, with and without pauses, and the mean of each step."""
    lines = []
    for card, members in table.groupby("device_product"):
        has_pauses = members["duty_cycle"].notna()
        groups = {"all": members, "without pauses": members[~has_pauses], "with pauses": members[has_pauses]}
        lines += [_line(f"{card}, {name}", group) for name, group in groups.items() if len(group)]
    header = ("time of a measurement", "number", "mean", "median", "95 %", "longest", "up to 1.5 s")
    return markdown((*header, *(step.removesuffix("_s").replace("_", " ") for step in STEPS), "rest"), lines)


def _line(name: str, table: pd.DataFrame) -> list[str]:
    taken_s = table["taken_s"].astype(float)
    steps_s = [table[step].astype(float) for step in STEPS]
    rest_s = taken_s - sum(step_s.fillna(0.0) for step_s in steps_s)
    figures_s = (taken_s.mean(), taken_s.median(), taken_s.quantile(0.95), taken_s.max())
    means_s = (step_s.mean() for step_s in (*steps_s, rest_s))
    return [name, str(len(table)), *map(_time, figures_s), f"{(taken_s <= 1.5).mean():.1%}", *map(_time, means_s)]


def _time(time_s: float) -> str:
    return "" if np.isnan(time_s) else f"{time_s:.2f} s"


def runs(database: Database) -> list[tuple[str, dict[str, tuple[int, float]]]]:
    """Return each run that has measured something: its name, and the number and time in s of each part and of all."""
    tables = {
        "operators": frame(database.operator_measurements.rows()),
        "whole models": frame(database.full_model_measurements.rows()),
        "drift checks": frame(database.drift_checks.rows()),
    }
    chains_s = np.array([_seconds(row.measured_at) for row in database.calls_in_chains.rows()])
    found = []
    for path in sorted((database.folder / RUN_LOGS).glob("*.log")):
        begin_s, end_s = _window(path)
        inside = {name: rows[rows["end_s"].between(begin_s, end_s)] for name, rows in tables.items()}
        if any(len(rows) for rows in inside.values()):
            parts = {name: (len(rows), float(rows["taken_s"].sum())) for name, rows in inside.items()}
            ends_s = np.concatenate([rows["end_s"] for rows in inside.values()])
            chains = chains_s[(chains_s >= begin_s) & (chains_s <= end_s)]
            if len(chains):
                before_s = ends_s[ends_s < chains.min()].max(initial=begin_s)
                parts["cache corrections"] = (len(chains), chains.max() - before_s)
            parts["start"] = (1, min(rows["begin_s"].min() for rows in inside.values() if len(rows)) - begin_s)
            found.append((path.stem, parts | {"all": (1, end_s - begin_s)}))
    return found


def of_runs(databases: Sequence[Database]) -> str:
    """Return how long runs took, part by part."""
    lines = []
    for name, parts in (run for database in databases for run in runs(database)):
        total_s = parts["all"][1]
        rest_s = total_s - sum(time_s for part, (_, time_s) in parts.items() if part != "all")
        cells = [f"{parts[part][1]:.1f} s ({parts[part][0]})" if parts.get(part, (0, 0))[0] else "" for part in SPENT]
        lines.append([name, f"{total_s:.1f} s", *cells, f"{rest_s:.1f} s"])
    return markdown(("run", "all", *SPENT, "rest"), lines)


def _window(log: Path) -> tuple[float, float]:
    """Return the begin and the end of a run in s: each message begins with its time, a line of a traceback does not."""
    moments_s = []
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            moments_s.append(_seconds(line.partition(" ")[0]))
        except ValueError:
            continue
    return min(moments_s, default=0.0), max(moments_s, default=0.0)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def report(databases: Sequence[Database]) -> str:
    """Return all tables."""
    rows = _rows(databases)
    table = frame(rows)
    return "\n\n".join(
        (
            f"{len(table)} measurements of operators; {len(rows) - len(table)} without the time that they took",
            of_measurements(table),
            of_runs(databases),
        )
    )


def _rows(databases: Sequence[Database]) -> list[MeasurementRow]:
    return [row for database in databases for row in database.operator_measurements.rows()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("databases", nargs="+", type=Path, metavar="DATABASE")
    arguments = parser.parse_args()
    databases = [Database(folder) for folder in arguments.databases]
    print(report(databases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
