"""Two campaigns with the same tuples, such as on one GPU and on several: times, waiting, and how figures differ

Example: PYTHONPATH=. python benchmarks/side_by_side.py one/database all/database
"""

import argparse
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
from tables import markdown

from opcost.measuring.record import MeasurementRow
from opcost.storage.database import Database


def moment_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def taken_s(row: MeasurementRow) -> float:
    return row.step_times.taken_s or 0.0


def begin_s(row: MeasurementRow) -> float:
    """Return when a tuple was begun: its building, warm-up and further loops came before its last loop."""
    return moment_s(row.measurement.ended_at) - taken_s(row)


def shares(rows: Sequence[MeasurementRow]) -> pd.DataFrame:
    """Return for each board its tuples, when its first one began and its last one ended, and its share of time at work.

    Moments are in s after the campaign's first tuple began. Drift checks count as waiting.
    """
    first_s = min(map(begin_s, rows))
    last_s = max(moment_s(row.measurement.ended_at) for row in rows)
    found = []
    for board in sorted({str(row.circumstances.device_uuid) for row in rows}):
        own = [row for row in rows if str(row.circumstances.device_uuid) == board]
        found.append(
            {
                "board": board,
                "tuples": len(own),
                "begins (s)": min(map(begin_s, own)) - first_s,
                "ends (s)": max(moment_s(row.measurement.ended_at) for row in own) - first_s,
                "at work": sum(map(taken_s, own)) / (last_s - first_s),
            }
        )
    return pd.DataFrame(found)


def differences(one: Sequence[MeasurementRow], other: Sequence[MeasurementRow]) -> pd.DataFrame:
    """Return how figures of the same tuples differ on each board of the other campaign: median, 90th percentile."""
    known, found = {row.key: row for row in one}, []
    pairs = [(known[row.key], row) for row in other if row.key in known]
    for board in sorted({str(row.circumstances.device_uuid) for _, row in pairs}):
        of_board = [pair for pair in pairs if str(pair[1].circumstances.device_uuid) == board]
        line: dict[str, object] = {"board": board, "tuples": len(of_board)}
        for name in ("time_s", "energy_j"):
            figures = [(getattr(a.measurement, name), getattr(b.measurement, name)) for a, b in of_board]
            ratios = np.array([second / first - 1 for first, second in figures if first and second])
            if len(ratios):
                line[f"{name}, median (%)"] = 100 * np.median(ratios)
                line[f"{name}, 90 % within (%)"] = 100 * np.quantile(np.abs(ratios), 0.9)
        found.append(line)
    return pd.DataFrame(found)


def shown(table: pd.DataFrame, digits: int) -> str:
    return markdown(list(table), table.round(digits).astype(str).to_numpy().tolist())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("databases", nargs=2, type=Path, metavar="DATABASE")
    one, other = (Database(path).operator_measurements.rows() for path in parser.parse_args().databases)
    spans_s = []
    for name, rows in (("first", one), ("second", other)):
        table = shares(rows)
        spans_s.append(table["ends (s)"].max())
        of_tuple_s = np.array(list(map(taken_s, rows)))
        times = f"{of_tuple_s.mean():.3f} s, 95 % under {np.quantile(of_tuple_s, 0.95):.2f} s, none over"
        print(f"\n{name}: {len(rows)} tuples in {spans_s[-1]:.1f} s on {len(table)} boards")
        print(f"each took {times} {of_tuple_s.max():.2f} s\n{shown(table, 3)}")
    keys = [{row.key for row in rows} for rows in (one, other)]
    print(f"\nfrom the first tuple to the last row: {spans_s[0] / spans_s[1]:.2f} times as fast; ", end="")
    print(f"{len(keys[0] & keys[1])} tuples in both, {len(keys[0] ^ keys[1])} in one")
    print(f"\nthe second campaign's figures over the first one's:\n{shown(differences(one, other), 2)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
