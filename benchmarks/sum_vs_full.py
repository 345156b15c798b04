"""How far sums of operators are from whole models, by the rows of sum_vs_full.csv -> a table, or one line per model

Example: PYTHONPATH=. python benchmarks/sum_vs_full.py
         PYTHONPATH=. python benchmarks/sum_vs_full.py --models > build/models.md
"""

import argparse
import math
import sys
from collections.abc import Hashable, Mapping
from itertools import product
from pathlib import Path

import pandas as pd
from tables import markdown

from opcost.operators.counts import ALL, CAPTURED
from opcost.units import millijoules, milliseconds

TABLE = Path("database/sum_vs_full.csv")
GROUP = ["execution", "counted", "input_data"]
HEADER = ("sum / whole - 1", "models", "signed median", "median", "95 %", "worst", "worst model")

PAGE = """# Each model's sum beside its whole

Made by `PYTHONPATH=. python benchmarks/sum_vs_full.py --models` from `database/sum_vs_full.csv`; the conditions are
those of `docs/accuracy.md`, and no operator is left out.

`corrected` is with the cache correction, and with the power limit's part where a model reaches it. Eager runs are not
corrected.
"""


def complete(table: pd.DataFrame) -> pd.DataFrame:
    """Return the sums that lack no operator."""
    return table[table["missing_operators"] == 0]


def corrected(rows: pd.DataFrame, quantity: str) -> pd.Series:
    """Return sums with all that corrects them, unknown without a cache correction.

    An unknown part of the power limit is left out.

    Args:
        rows: of the table.
        quantity: ``time_s`` or ``energy_j``.
    """
    return rows[quantity] + rows[f"correction_{quantity}"] + rows[f"power_limit_{quantity}"].fillna(0.0)


def report(table: pd.DataFrame) -> str:
    """Return how far complete sums are from wholes, for each execution, set of operators and kind of values."""
    lines = []
    for (group, rows), quantity in product(complete(table).groupby(GROUP), ("time_s", "energy_j")):
        name = f"{quantity.partition('_')[0]}, {', '.join(map(str, group))}"
        summed, whole = rows[quantity], rows[f"full_{quantity}"]
        for text, total in ((name, summed), (f"{name}, corrected", corrected(rows, quantity))):
            errors = (total / whole - 1).dropna()
            if len(errors):
                lines.append([text, *_sizes(errors), str(rows["name"][errors.abs().idxmax()])])
    return markdown(HEADER, lines)


def _sizes(errors: pd.Series) -> list[str]:
    quantiles = (f"{errors.abs().quantile(at):.2%}" for at in (0.5, 0.95, 1.0))
    return [str(len(errors)), f"{errors.median():+.2%}", *quantiles]


def by_model(table: pd.DataFrame) -> str:
    """Return each complete sum of all operators on captured values beside its whole: graphs first, by time."""
    rows = complete(table)
    rows = rows[(rows["counted"] == ALL) & (rows["input_data"] == CAPTURED)]
    rows = rows.assign(**{f"corrected_{quantity}": corrected(rows, quantity) for quantity in ("time_s", "energy_j")})
    lines = []
    for execution, of_execution in sorted(rows.groupby("execution"), reverse=True):
        for one in of_execution.sort_values("full_time_s").to_dict("records"):
            time = [milliseconds(one["full_time_s"]), *_ratios(one, "time_s")]
            energy = [millijoules(one["full_energy_j"]), *_ratios(one, "energy_j")]
            lines.append([one["name"], str(execution), *time, *energy])
    return markdown(("model", "execution", *2 * ("whole", "sum / whole", "corrected")), lines)


def _ratios(one: Mapping[Hashable, float], quantity: str) -> list[str]:
    totals = one[quantity], one[f"corrected_{quantity}"]
    return ["" if math.isnan(total) else f"{total / one[f'full_{quantity}']:.3f}" for total in totals]


def page_of(table: pd.DataFrame) -> str:
    """Return the page with a line for each model."""
    return f"{PAGE}\n{by_model(table)}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", action="store_true", help="print the page with a line for each model")
    parser.add_argument("table", nargs="?", type=Path, default=TABLE, help=f"rows of the comparison (usually {TABLE})")
    arguments = parser.parse_args()
    table = pd.read_csv(arguments.table)
    sys.stdout.write(page_of(table) if arguments.models else f"{report(table)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
