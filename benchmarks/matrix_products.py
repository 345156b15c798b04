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

    The ratio is that of the larger to the smaller power, less 1.
    """
    known = table.dropna(subset=["power_w"]).sort_values("m")
    found = [
        (int(lower.m), _excess(lower.power_w, upper.power_w))
        for lower, upper in pairwise(known.itertuples())
        if upper.m == lower.m + 1 and _excess(lower.time_s, upper.time_s) <= SAME_TIME_RATIO
    ]
    return pd.DataFrame(found, columns=["m", "ratio"])


def _excess(one: float, other: float) -> float:
    return max(one, other) / min(one, other) - 1


def report(table: pd.DataFrame) -> str:
    """Return how far the powers of neighbours differ, in Markdown."""
    pairs = neighbours(table)
    head = f"{len(table)} products, {len(pairs)} pairs of neighbours whose times agree within {SAME_TIME_RATIO:.0%}"
    if pairs.empty:
        return head
    shares = {ratio: float((pairs["ratio"] > ratio).mean()) for ratio in POWER_RATIOS}
    worst = pairs.loc[pairs["ratio"].idxmax()]
    lines = [[f"differ by more than {ratio:.0%} in power", f"{share:.2%}"] for ratio, share in shares.items()]
    lines.append(["median difference", f"{pairs['ratio'].median():.3%}"])
    lines.append([f"worst difference (m = {worst.m:.0f} and {worst.m + 1:.0f})", f"{worst.ratio:.2%}"])
    verdict = "met" if shares[POWER_RATIOS[0]] < TARGET else "missed"
    table_text = markdown(("of these pairs", ""), lines)
    return f"{head}\n\n{table_text}\n\nTarget, under {TARGET:.0%} beyond {POWER_RATIOS[0]:.0%}: {verdict}."


def lacking(path: Path, seed: int) -> list[int]:
    """Return the m that a file does not have yet, shuffled."""
    done = known(path, "m")
    order = list(ROWS)
    random.Random(seed).shuffle(order)
    return [m for m in order if str(m) not in done]


def measure_products(path: Path, database: Path, seed: int, limit_s: float) -> None:
    """Measure the products that a file lacks, until a time is up."""
    import torch

    from opcost.apparatus import open_apparatus
    from opcost.ports import SHORT_WARM_UP_S, MeasurementProtocol
    from opcost.stage_qualifying import qualified
    from opcost.subjects import Subject
    from opcost.torch_operators import function_tuple

    begin_s = time.monotonic()
    protocol = MeasurementProtocol(SHORT_WARM_UP_S, LOOP_S)
    weight = torch.empty(SIDE, SIDE, dtype=torch.bfloat16, device="meta")
    with qualified(open_apparatus, "cuda", database, True) as apparatus:
        for m in lacking(path, seed):
            if time.monotonic() - begin_s > limit_s:
                break
            left = torch.empty(m, SIDE, dtype=torch.bfloat16, device="meta")
            product = Subject(function_tuple(torch.matmul, (left, weight), {}))
            row = apparatus.measure(product, PRECISION, protocol, f"product-{m}")
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
