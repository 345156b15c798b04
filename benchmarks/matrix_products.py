"""Products of bf16 matrices, m x 4096 by 4096 x 4096, for m = 1 to 256 -> a CSV file, to which later runs add

Neighbours in m that take the same time ought to take the same power: ``--evaluate`` tells how many do. Nothing else may
run on the GPU.
Example: PYTHONPATH=. python benchmarks/matrix_products.py --output matrix_products.csv
         PYTHONPATH=. python benchmarks/matrix_products.py --evaluate matrix_products.csv
"""

from __future__ import annotations

import random
import sys
import time
from itertools import pairwise
from pathlib import Path

import pandas as pd
from growing_csv import append, growing_parser, known
from tables import markdown

SIDE = 4096
ROWS = range(1, 257)
LOOP_S = 0.3
PRECISION = "torch-default"
SAME_TIME_RATIO = 0.03
POWER_RATIOS = (0.10, 0.05, 0.02)
TARGET = 0.01
"""At most this share of the neighbours may differ by more than the first of ``POWER_RATIOS``."""

COLUMNS = (
    *("time_s", "time_standard_error_s", "power_w", "power_standard_error_w", "energy_j"),
    *("energy_at_reference_j", "temperature_c", "power_capped_ratio", "meter", "loop_time_s", "notes"),
)
BOARD = "device_uuid"


def neighbours(table: pd.DataFrame) -> pd.DataFrame:
    """Return each two neighbours in m with a power whose times agree: m of the lower one, and their power's ``ratio``.

    The ratio is that of the larger to the smaller power, less 1. ``one_board`` says that both are of the same board,
    ``below_limit`` that the power limit slowed down neither.
    """
    known = table.dropna(subset=["power_w"]).sort_values("m")
    found = [
        (
            int(lower.m),
            _excess(lower.power_w, upper.power_w),
            lower.device_uuid == upper.device_uuid,
            not (lower.power_capped_ratio > 0 or upper.power_capped_ratio > 0),
        )
        for lower, upper in pairwise(known.itertuples())
        if upper.m == lower.m + 1 and _excess(lower.time_s, upper.time_s) <= SAME_TIME_RATIO
    ]
    return pd.DataFrame(found, columns=["m", "ratio", "one_board", "below_limit"])


def _excess(one: float, other: float) -> float:
    return max(one, other) / min(one, other) - 1


def _cells(name: str, pairs: pd.DataFrame) -> list[str]:
    """Return a line of the table: how far the powers of some pairs differ."""
    if pairs.empty:
        return [name, "0", *[""] * (len(POWER_RATIOS) + 2)]
    shares = [f"{(pairs['ratio'] > ratio).mean():.1%}" for ratio in POWER_RATIOS]
    worst = pairs.loc[pairs["ratio"].idxmax()]
    return [name, str(len(pairs)), *shares, f"{pairs['ratio'].median():.2%}", f"{worst.ratio:.2%} (m = {worst.m})"]


def report(table: pd.DataFrame) -> str:
    """Return how far the powers of neighbours differ, in Markdown."""
    pairs = neighbours(table)
    head = f"{len(table)} products, {len(pairs)} pairs of neighbours whose times agree within {SAME_TIME_RATIO:.0%}"
    if pairs.empty:
        return head
    groups = {
        "all": pairs,
        "on one board": pairs[pairs["one_board"]],
        "on two boards": pairs[~pairs["one_board"]],
        "never slowed down by the power limit": pairs[pairs["below_limit"]],
    }
    header = ("pairs", "number", *(f"beyond {ratio:.0%}" for ratio in POWER_RATIOS), "median", "worst")
    told = markdown(header, [_cells(name, members) for name, members in groups.items()])
    verdict = "met" if (pairs["ratio"] > POWER_RATIOS[0]).mean() < TARGET else "missed"
    return f"{head}\n\n{told}\n\nTarget, under {TARGET:.0%} of all beyond {POWER_RATIOS[0]:.0%}: {verdict}."


def lacking(path: Path, seed: int) -> list[int]:
    """Return the m that a file does not have yet, shuffled."""
    done = known(path, "m")
    order = list(ROWS)
    random.Random(seed).shuffle(order)
    return [m for m in order if str(m) not in done]


def measure_products(path: Path, database: Path, seed: int, limit_s: float) -> None:
    """Measure the products that a file lacks, until a time is up."""
    import torch

    from opcost.measuring.protocol import SHORT_WARM_UP_S, MeasurementProtocol
    from opcost.measuring.setting import Setting
    from opcost.operators.cases import Case
    from opcost.running.apparatus import open_apparatus
    from opcost.running.qualification import qualified
    from opcost.storage.database import Database
    from opcost.torch_backend.operators import function_tuple

    begin_s = time.monotonic()
    protocol = MeasurementProtocol(SHORT_WARM_UP_S, LOOP_S)
    weight = torch.empty(SIDE, SIDE, dtype=torch.bfloat16, device="meta")
    with qualified(open_apparatus, "cuda", Database(database), True) as apparatus:
        for m in lacking(path, seed):
            if time.monotonic() - begin_s > limit_s:
                break
            left = torch.empty(m, SIDE, dtype=torch.bfloat16, device="meta")
            product = Case(function_tuple(torch.matmul, (left, weight), {}))
            row = apparatus.measure(product, Setting(PRECISION), protocol, f"product-{m}")
            board = {BOARD: apparatus.circumstances(protocol).device_uuid}
            append(path, {"m": m} | {name: getattr(row, name) for name in COLUMNS} | board)


def main() -> int:
    arguments = growing_parser(__doc__, "tell how far the powers of neighbours differ").parse_args()
    if arguments.evaluate:
        print(report(pd.read_csv(arguments.evaluate)))
    else:
        measure_products(arguments.output, arguments.database, arguments.seed, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
