"""How far a whole model's time depends on its position in memory: many builds in one process -> a CSV file

Each build lies elsewhere, since all earlier builds and a buffer of random size before each are kept. Models take
turns, so that a drift of the device affects all alike. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/whole_builds.py --output builds.csv mobilenet_v3_large_32x3x224x224
         PYTHONPATH=. python benchmarks/whole_builds.py --evaluate builds.csv
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import pandas as pd
import torch
from growing_csv import append, growing_parser, parsed
from tables import markdown

from opcost.measuring.instruments import Instruments
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import GPU_WARM_UP_S, MeasurementProtocol
from opcost.measuring.setting import USUAL
from opcost.meters.clock import SystemClock
from opcost.meters.opening import NoMeter
from opcost.operators.cases import Case
from opcost.operators.tuples import OperatorTuple
from opcost.running.devices import facts_of
from opcost.running.request import model_tuple
from opcost.running.workloads import Workloads
from opcost.storage.model_folders import load_configs

BUILDS = 10
LOOK = MeasurementProtocol(GPU_WARM_UP_S, loop_s=3.0)
"""As wholes have been measured."""

LARGEST_BYTES = 2**30


def rows(models: Mapping[str, OperatorTuple], workloads: Workloads, seed: int) -> Iterator[dict[str, object]]:
    """Yield a row for each build of each model, in turn; all are kept until the last."""
    clock, meter, sizes = SystemClock(), NoMeter("only times are wanted"), random.Random(seed)
    board = facts_of(workloads.device).uuid or "cpu"
    process = {"board": board, "process": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    between = []
    with ExitStack() as kept:
        for number in range(BUILDS):
            for config, operator in models.items():
                size = sizes.randrange(LARGEST_BYTES)
                between.append(torch.empty(size, dtype=torch.uint8, device=workloads.device))
                measured = measure(
                    kept.enter_context(workloads(Case(operator), USUAL)), Instruments(meter, clock), LOOK
                )
                yield {
                    "config": config,
                    **process,
                    "build": number,
                    "time_s": measured.time_s,
                    "time_standard_error_s": measured.time_standard_error_s,
                    "executed_as": measured.executed_as,
                }


def report(table: pd.DataFrame) -> str:
    """Return how far the builds of each model are apart, in Markdown."""
    header = ("model", "board", "process", "builds", "mean", "spread", "shortest", "longest", "error of one")
    lines = []
    for (config, board, process), own in table.groupby(["config", "board", "process"]):
        times_s = own["time_s"]
        ends = (f"{end / times_s.mean() - 1:+.2%}" for end in (times_s.min(), times_s.max()))
        error = f"±{(own['time_standard_error_s'] / times_s).mean():.2%}"
        spread = f"±{times_s.std() / times_s.mean():.2%}"
        place = [str(config), str(board)[:8], str(process)]
        lines.append([*place, str(len(own)), f"{1e3 * times_s.mean():.4g} ms", spread, *ends, error])
    return markdown(header, lines)


def add_rows(path: Path, names: list[str], seed: int, limit_s: float) -> None:
    """Build and measure models in turn, the next until a time is up; what the file holds of other processes stays."""
    end_s = time.monotonic() + limit_s
    models = {config.name: model_tuple(config) for config in load_configs(Path("measurements"), names)}
    for row in rows(models, Workloads("cuda"), seed):
        append(path, row)
        if time.monotonic() > end_s:
            break


def main() -> int:
    parser = growing_parser(__doc__, "print how far builds are apart", qualifies=False)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parsed(parser, report)
    if arguments is not None:
        add_rows(arguments.output, arguments.names, arguments.seed, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
