"""How far expected durations are from actual ones, each board held out -> two tables (some seconds)

The duration of a measurement is the time from the end of the row before to its own end. A campaign's expected duration
follows from the rows of all other boards and from FLOPs and bytes of its operators, as for a case without a row.
Example: PYTHONPATH=. python benchmarks/expected_durations.py --database database
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pandas as pd
from tables import markdown

from opcost.command.options import DATABASE, Parser, add_options
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import tuple_key
from opcost.prediction.durations import UNKNOWN_SIZE, ExpectedTimes, measured_durations
from opcost.running.expected_times import sizes_in
from opcost.storage.database import Database

FEWEST = 5
"""Measurements of the smallest campaign that is compared."""


def campaigns(rows: Sequence[MeasurementRow]) -> Iterator[list[MeasurementRow]]:
    """Yield the rows of each campaign: of one board, protocol, order and execution."""
    found = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.measurement.ended_at):
        found[(row.circumstances, row.order_seed, row.conditions.execution)].append(row)
    yield from (campaign for campaign in found.values() if len(campaign) > FEWEST)


def compared(database: Database, are_models: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return expected and actual durations of campaigns, and of their measurements."""
    rows = (database.full_model_measurements if are_models else database.operator_measurements).rows()
    sizes = sizes_in(database.model_operators)
    totals, items = [], []

    @cache
    def times_of(board: str | None, conditions: Conditions) -> ExpectedTimes:
        others = [row for row in rows if row.circumstances.device_uuid != board]
        return ExpectedTimes(conditions, others, sizes, are_models)

    for campaign in campaigns(rows):
        circumstances = campaign[0].circumstances
        times = times_of(circumstances.device_uuid, campaign[0].conditions)
        durations = [
            (
                times.unmeasured_s(sizes.get(tuple_key(row.key), UNKNOWN_SIZE), row.conditions.execution, protocol),
                actual_s,
            )
            for actual_s, row, protocol in measured_durations(campaign, are_models)
        ]
        if not durations:
            continue
        expected_s, actual_s = map(sum, zip(*durations, strict=True))
        what = {
            "of": "models" if are_models else "operators",
            "execution": campaign[0].conditions.execution,
            "protocol": circumstances.protocol,
        }
        totals.append(
            {
                **what,
                "begin": campaign[0].measurement.started_at[:16],
                "board": str(circumstances.device_uuid)[4:8],
                "measurements": len(durations),
                "expected (s)": round(expected_s),
                "actual (s)": round(actual_s),
                "expected / actual": round(expected_s / actual_s, 2),
            }
        )
        items += [{**what, "ratio": expected / actual} for expected, actual in durations]
    return pd.DataFrame(totals), pd.DataFrame(items)


def quantiles(items: pd.DataFrame) -> pd.DataFrame:
    """Return the distribution of expected over actual durations of single measurements."""
    kinds = items.groupby(["of", "execution", "protocol"]).ratio
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)
    columns = {f"{share:.0%}": kinds.quantile(share).round(2) for share in shares}
    return pd.DataFrame({"measurements": kinds.size(), **columns}).reset_index()


def main() -> None:
    parser = Parser(description=__doc__)
    add_options(parser, DATABASE)
    database = Database(parser.parse_args().database)
    totals, items = map(pd.concat, zip(*(compared(database, are_models) for are_models in (True, False)), strict=True))
    for table in (totals, quantiles(items)):
        print(markdown(list(table), table.astype(str).to_numpy().tolist()), end="\n\n")
    log = np.log(totals["expected / actual"])
    print(f"expected / actual of campaigns: median {np.exp(np.median(log)):.2f}, {np.exp(log.min()):.2f} to", end=" ")
    print(f"{np.exp(log.max()):.2f}")


if __name__ == "__main__":
    main()
