"""How far estimates from FLOPs and bytes are from measured sums, each model held out -> a table (half a minute)

Each model of which all operators are measured is held out in turn: rates come from operators that only the other models
have.
Example: PYTHONPATH=. python benchmarks/estimates.py --measurements measurements --database database
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
from claim_tables import usual_conditions
from tables import markdown

from opcost.command.options import DATABASE, MEASUREMENTS, Parser, add_options
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import OperatorCounts
from opcost.prediction.rates import fitted, known_costs
from opcost.running.request import Request
from opcost.running.shipped_counts import counted_or_shipped
from opcost.storage.database import Database
from opcost.summing.index import Measurements
from opcost.summing.summation import sum_operators

MOSTLY = 0.99
"""Least measured share of the bytes of a model that is held out."""


def held_out(models: dict[str, OperatorCounts], rows: list[MeasurementRow]) -> pd.DataFrame:
    """Return for each measured model the ratio of its estimated sum to its measured sum."""
    measurements = Measurements(rows)
    conditions = usual_conditions(rows)
    found = []
    for name, counts in models.items():
        cost = sum_operators(counts, measurements, conditions)
        if cost.time_s is None or cost.energy_j is None or (cost.memory_bytes_ratio or 0.0) < MOSTLY:
            continue
        own = {count.operator for count in cost.summed}
        others = [count for other in models.values() for count in other.counts if count.operator not in own]
        model = fitted(known_costs(others, measurements, conditions))
        for text, rates in (("one for all", replace(model, of_kind={})), ("by kind", model)):
            estimates = [rates.cost(count, count.occurrences) for count in cost.summed]
            found.append(
                {
                    "model": name,
                    "rates": text,
                    "time": sum(time_s for time_s, _ in estimates) / cost.time_s.value,
                    "energy": sum(energy_j or 0.0 for _, energy_j in estimates) / cost.energy_j.value,
                }
            )
    return pd.DataFrame(found)


def report(table: pd.DataFrame) -> str:
    """Return estimated over measured sums, and how far they are from 1 (root mean square)."""
    lines: list[list[str]] = []
    for rates, rows in table.groupby("rates"):
        lines += [
            [f"{row['model']}, {rates}", f"{row['time']:.2f}", f"{row['energy']:.2f}"] for _, row in rows.iterrows()
        ]
        off = np.sqrt(((rows[["time", "energy"]] - 1) ** 2).mean())
        lines.append([f"**off by, {rates}**", f"{off['time']:.0%}", f"{off['energy']:.0%}"])
    return markdown(("estimated / measured", "time", "energy"), lines)


def main() -> int:
    parser = Parser(description=__doc__)
    add_options(parser, MEASUREMENTS, DATABASE)
    arguments = parser.parse_args()
    request = Request((), arguments.measurements, Database(arguments.database))
    rows = request.database.operator_measurements.rows()
    models = {config.name: counts for config, counts in counted_or_shipped(request, request.configs())}
    print(report(held_out(models, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
