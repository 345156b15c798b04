"""Time each operator of some rows alone and in a chain of its own, where other calls ran before it -> rows

In the chain the weights come from memory and the first input was just written, as in a model. Alone, a loop finds all
of them in the cache. No model is run, nothing is measured but time.
Example: PYTHONPATH=. python benchmarks/operators_in_chains.py RUN --output FILE
         PYTHONPATH=. python benchmarks/operators_in_chains.py --evaluate docs/data/operators_in_chains.csv
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from operators_in_turn import case_of, is_in_warm_graph
from tables import markdown
from weights_in_caches import STREAM_ELEMENTS
from weights_in_caches import graph_s as of_graph_s

from opcost.command.options import Parser
from opcost.errors import CannotMeasureError
from opcost.operators.cases import Case
from opcost.storage.database import Database
from opcost.torch_backend.relocation import Layer
from opcost.torch_backend.workload import operator_call, refused_calls

LONGEST_S = 2e-3
"""Longer operators depend little on caches."""

WEIGHTS_BYTES = 2**27
"""Copies of weights that are run in turn have at least so many bytes, more than any cache holds."""

FEWEST, MOST = 6, 24
"""Calls in a chain."""

LOOP_S, REPEATS = 0.008, 3


@dataclass(frozen=True)
class Row:
    """The times of one call in s: in a loop of itself; in turn with other weights; in a chain less the other calls.

    ``key`` is that of the operator tuple with its input data, as in ``operator_measurements.csv``.
    """

    key: str
    operator: str
    inputs: str
    copies: int
    alone_s: float
    in_turn_s: float | None
    in_chain_s: float


def times_of(case: Case, stream: torch.Tensor) -> tuple[int, float, float | None, float]:
    """Return the number of copies, and the times alone, in turn with other weights (None without any), in a chain."""
    layer = Layer(*operator_call(case.operator, "cuda", case.input_data))
    weights_bytes = sum(tensor.nbytes for tensor in layer.weights)
    copies = min(max(WEIGHTS_BYTES // weights_bytes + 1, FEWEST), MOST) if weights_bytes else MOST
    layers = [layer, *(layer.copied() for _ in range(copies - 1))] if weights_bytes else copies * [layer]
    graph_s = partial(of_graph_s, loop_s=LOOP_S, repeats=REPEATS)
    alone_s = graph_s(lambda: [layer.call() for _ in range(copies)]) / copies
    in_turn_s = graph_s(lambda: [one.call() for one in layers]) / copies if weights_bytes else None
    written = [tensor for tensor in layer.inputs if tensor.is_floating_point()][:1]
    lines = [tensor[(0,) * (tensor.dim() - 1)].clone() if tensor.dim() else tensor.clone() for tensor in written]

    def chain(with_calls: bool) -> None:
        torch.sum(stream)
        for one in layers:
            for tensor, line in zip(written, lines, strict=True):
                tensor.copy_(line)
            if with_calls:
                one.call()

    return copies, alone_s, in_turn_s, (graph_s(lambda: chain(True)) - graph_s(lambda: chain(False))) / copies


def measured(cases: Sequence[Case], limit_s: float) -> Iterator[Row]:
    """Yield the rows of cases until the time is over."""
    stream = torch.zeros(STREAM_ELEMENTS, device="cuda")
    begun = time.monotonic()
    for case in cases:
        if time.monotonic() - begun > limit_s:
            return
        try:
            with refused_calls("cuda"), torch.inference_mode():
                times = times_of(case, stream)
        except CannotMeasureError as error:
            print(f"{case.operator.short_name}: {error}", file=sys.stderr)
            continue
        yield Row(case.key, case.operator.operator, case.operator.inputs_text, *times)


def report(rows: pd.DataFrame) -> str:
    """Return how much longer a call takes in turn with other weights and in a chain, the longest first; times in us."""
    longer = rows.assign(
        turn=1e6 * (rows["in_turn_s"] - rows["alone_s"]), chain=1e6 * (rows["in_chain_s"] - rows["alone_s"])
    )
    lines = [
        (
            row.operator,
            row.inputs,
            f"{1e6 * row.alone_s:.1f}",
            "" if pd.isna(row.turn) else f"{row.turn:+.1f}",
            f"{row.chain:+.1f}",
        )
        for row in longer.sort_values("chain", ascending=False).itertuples()
    ]
    return markdown(("operator", "inputs", "alone", "in turn", "in a chain"), lines)


def main() -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("database", type=Path, nargs="?", help="the folder of the operators' rows")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--output", type=Path, help="measure; the file of the rows")
    action.add_argument("--evaluate", type=Path, help="print the rows of a file")
    parser.add_argument("--limit-seconds", type=float, default=300.0, help="begin no operator after this time")
    arguments = parser.parse_args()
    if arguments.evaluate:
        print(report(pd.read_csv(arguments.evaluate)))
        return 0
    measurements = Database(arguments.database).operator_measurements.rows()
    times_s = {case_of(row): row.measurement.time_s for row in measurements if is_in_warm_graph(row)}
    cases = sorted((case for case, time_s in times_s.items() if time_s < LONGEST_S), key=times_s.__getitem__)
    rows = []
    for row in measured(cases, arguments.limit_seconds):
        rows.append(asdict(row))
        pd.DataFrame(rows).to_csv(arguments.output, index=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
