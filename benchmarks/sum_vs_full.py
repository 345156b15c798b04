"""Comparisons of some databases as rows for others to read, and how far sums are from wholes -> CSV, and a table

Rows that the file has of the same model under the same conditions are replaced.
Example: PYTHONPATH=. python benchmarks/sum_vs_full.py --output docs/data/sum_vs_full.csv database
         PYTHONPATH=. python benchmarks/sum_vs_full.py --evaluate docs/data/sum_vs_full.csv
         PYTHONPATH=. python benchmarks/sum_vs_full.py --models docs/data/sum_vs_full.csv
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Mapping
from itertools import product
from pathlib import Path

import pandas as pd
from tables import markdown

from opcost.command.options import Parser
from opcost.comparing.row import ComparisonRow
from opcost.operators.cases import ALL, CAPTURED
from opcost.storage.database import Database
from opcost.units import millijoules, milliseconds

PLACE = ["config", "gpu", "mode", "precision", "memory_format", "execution", "cache", "counted", "input_data"]
"""Columns that tell one row from another."""

FIGURES = [f"{what}_{unit}" for unit in ("time_s", "energy_j") for what in ("sum", "full", "correction")]
GROUP = ["execution", "counted", "input_data"]
HEADER = ("sum / whole - 1", "models", "signed median", "median", "95 %", "worst", "worst model")


def row(compared: ComparisonRow) -> dict[str, object]:
    """Return what others want to know of a comparison; models run in inference mode, on contiguous inputs."""
    conditions = compared.conditions
    return {
        "config": compared.name,
        "model": compared.operator.rpartition(".")[2],
        "gpu": conditions.device_product,
        "date": compared.compared_at[:10],
        "mode": "inference",
        "precision": conditions.precision,
        "memory_format": "contiguous_format",
        "execution": conditions.execution,
        "cache": conditions.cache,
        "counted": compared.counted,
        "input_data": compared.input_data,
        "missing_operators": compared.missing_operators,
        "sum_time_s": compared.time_s,
        "full_time_s": compared.full_time_s,
        "correction_time_s": compared.correction_time_s,
        "sum_energy_j": compared.energy_j,
        "full_energy_j": compared.full_energy_j,
        "correction_energy_j": compared.correction_energy_j,
    }


def joined(table: pd.DataFrame, databases: list[Path]) -> pd.DataFrame:
    """Return a table with the comparisons of some databases: the last row of each place stays."""
    found = [row(one) for folder in databases for one in Database(folder).sum_vs_full.rows()]
    rows = [*table.to_dict("records"), *found]
    table = pd.DataFrame(rows).astype(dict.fromkeys(FIGURES, float))
    return table.drop_duplicates(PLACE, keep="last").sort_values(PLACE, ignore_index=True)


def report(table: pd.DataFrame) -> str:
    """Return how far sums are from wholes, for each way of running, counting and feeding them.

    Sums that lack operators are left out.
    """
    lines = []
    complete = table[table["missing_operators"] == 0]
    for (group, rows), quantity in product(complete.groupby(GROUP), ("time_s", "energy_j")):
        name = f"{quantity.partition('_')[0]}, {', '.join(map(str, group))}"
        summed, whole = rows[f"sum_{quantity}"], rows[f"full_{quantity}"]
        for text, total in ((name, summed), (f"{name}, corrected", summed + rows[f"correction_{quantity}"])):
            errors = (total / whole - 1).dropna()
            if len(errors):
                lines.append([text, *_sizes(errors), str(rows["config"][errors.abs().idxmax()])])
    return markdown(HEADER, lines)


def by_model(table: pd.DataFrame) -> str:
    """Return each complete sum of all operators on values as in the model beside its whole: graphs first, by time."""
    is_told = (table["missing_operators"] == 0) & (table["counted"] == ALL) & (table["input_data"] == CAPTURED)
    lines = []
    for execution, rows in sorted(table[is_told].groupby("execution"), reverse=True):
        for one in rows.sort_values("full_time_s").to_dict("records"):
            whole = [milliseconds(one["full_time_s"]), *_ratios(one, "time_s")]
            lines.append(
                [one["config"], str(execution), *whole, millijoules(one["full_energy_j"]), *_ratios(one, "energy_j")]
            )
    return markdown(("model", "execution", *2 * ("whole", "sum / whole", "corrected")), lines)


def _ratios(one: Mapping[Hashable, float], quantity: str) -> list[str]:
    summed, more, whole = (one[f"{what}_{quantity}"] for what in ("sum", "correction", "full"))
    return ["" if math.isnan(total) else f"{total / whole:.3f}" for total in (summed, summed + more)]


def _sizes(errors: pd.Series) -> list[str]:
    quantiles = (f"{errors.abs().quantile(at):.2%}" for at in (0.5, 0.95, 1.0))
    return [str(len(errors)), f"{errors.median():+.2%}", *quantiles]


def main() -> int:
    parser = Parser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--output", type=Path, help="put the comparisons of databases into this file")
    what.add_argument("--evaluate", type=Path, metavar="FILE", help="tell how far sums are from wholes")
    what.add_argument("--models", type=Path, metavar="FILE", help="tell it of each model")
    parser.add_argument("databases", nargs="*", type=Path, metavar="DATABASE")
    arguments = parser.parse_args()
    if arguments.models:
        print(by_model(pd.read_csv(arguments.models)))
        return 0
    if arguments.output:
        known = pd.read_csv(arguments.output) if arguments.output.exists() else pd.DataFrame()
        joined(known, arguments.databases).to_csv(arguments.output, index=False)
    print(report(pd.read_csv(arguments.evaluate or arguments.output)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
