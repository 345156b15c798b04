"""How NVML's power samples see a load with pauses, and how far apart the looks are that they are means of -> a CSV file

Samples that see all of the time would scatter the less the shorter the pauses; those that look now and then scatter
where looks are in step with pauses. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/pauses.py --output pauses.csv
         PYTHONPATH=. python benchmarks/pauses.py --evaluate pauses.csv
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from growing_csv import append, growing_parser, parsed
from short_kernels import in_graphs
from tables import markdown

from opcost.measuring.conditions import TORCH_DEFAULT
from opcost.measuring.duty_cycle import LOOK_S
from opcost.measuring.loop import run_loop
from opcost.measuring.protocol import MeasurementProtocol
from opcost.operators.cases import Case
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.power.trace import fresh_rows
from opcost.running.apparatus import Apparatus, open_apparatus
from opcost.running.qualification import qualified
from opcost.storage.database import Database
from opcost.torch_backend.cuda_graph import time_in_graph_s
from opcost.torch_backend.pauses import with_pauses_of
from opcost.torch_backend.switches import precision
from opcost.torch_backend.workload import EagerWorkload, operator_workload

CONVOLUTION = Case(
    OperatorTuple(
        "torch.nn.Conv2d",
        (("in_channels", 512), ("out_channels", 256), ("kernel_size", 1), ("bias", False)),
        (TensorSpec((32, 512, 28, 28), "float32"),),
    )
)
"""35 us and 760 W on an H200."""

DUTY_CYCLES = (0.65, 0.5)
PERIODS_S = (0.4e-3, 0.9e-3, 1.25e-3, 1.294e-3, 1.538e-3, 1.818e-3, 1.906e-3, 2.094e-3, 2.222e-3, 2.709e-3, 4.1e-3)
LOOP = MeasurementProtocol(warm_up_s=0.4, loop_s=2.0)
LOOP_OF = ["device_uuid", "duty_cycle", "period_s"]
"""Columns that tell one loop from another."""

TOGETHER = 10
PROBE_CALLS = 8
LEAST_SCATTER = 0.003
"""What samples scatter by anyway."""

SAMPLE_S = 0.02
PAUSE_W = 140.0
SMOOTH_S = 0.1e-3
"""How long a look takes to follow the load; with 0.05 ms half the interval fits as well."""

JITTER_S = 0.05e-3
"""Standard deviation of the moment of a look. Without it, periods of which a whole number fits into a sample would
hardly scatter."""

INTERVALS_S = tuple(round(step * 0.05e-3, 9) for step in range(2, 41))
DEVIATIONS = np.linspace(-0.003, 0.003, 7)
"""How far periods may be from what was wanted, as a share."""

FloatArray = npt.NDArray[np.float64]


def samples_of(apparatus: Apparatus, calls_in_turn: int, pause_s: float) -> tuple[FloatArray, FloatArray]:
    """Run the convolution with pauses; return the moments (epoch, in s) and powers (in W) of the samples meanwhile."""
    calls = operator_workload(CONVOLUTION.operator, apparatus.device).calls
    paused = with_pauses_of(replace(calls, relocated=None), apparatus.device, calls_in_turn, pause_s)
    workload = in_graphs(apparatus, EagerWorkload(paused, apparatus.device))
    instruments = apparatus.instruments("pauses")
    instruments.meter.start()
    loop = run_loop(workload, instruments, LOOP)
    for observer in instruments.observers:
        observer.after_finish()
    return fresh_rows(instruments.stop(), loop.window)


def add_rows(path: Path, database: Path, limit_s: float) -> None:
    """Measure the periods in all duty cycles that a file lacks of this board, until a time is up."""
    begin_s = time.monotonic()
    done = set() if not path.exists() else set(pd.read_csv(path).groupby(LOOP_OF).groups)
    with qualified(open_apparatus, "cuda", Database(database), True) as apparatus, precision(TORCH_DEFAULT):
        call = operator_workload(CONVOLUTION.operator, apparatus.device).calls.cycle
        call_s = time_in_graph_s(call, PROBE_CALLS, apparatus.device) / PROBE_CALLS
        board = str(apparatus.circumstances(LOOP).device_uuid)
        for duty_cycle, period_s in product(DUTY_CYCLES, PERIODS_S):
            if time.monotonic() - begin_s > limit_s:
                break
            if (board, duty_cycle, period_s) in done:
                continue
            calls_in_turn = round(duty_cycle * period_s / call_s)
            epoch_s, power_w = samples_of(apparatus, calls_in_turn, period_s - calls_in_turn * call_s)
            asked = dict(zip(LOOP_OF, (board, duty_cycle, period_s), strict=True))
            for at_s, sample_w in zip(epoch_s, power_w, strict=True):
                append(path, {**asked, "epoch_s": f"{at_s:.6f}", "power_w": sample_w})


def looked_at(interval_s: float, duty_cycle: float, period_s: float, busy_w: float, samples: int) -> FloatArray:
    """Return samples that are means of looks so far apart, at a load that pauses for the rest of each period."""
    looks = np.arange(samples * SAMPLE_S // interval_s + 1) * interval_s
    phase_s = (looks + np.random.default_rng(0).normal(0.0, JITTER_S, len(looks))) % period_s
    busy_s, pause_s = duty_cycle * period_s, (1 - duty_cycle) * period_s
    # In the steady state of a first-order lag; 0 is the power of pauses, 1 that of the load.
    rest, rise = math.exp(-pause_s / SMOOTH_S), math.exp(-busy_s / SMOOTH_S)
    least = (1 - rise) * rest / (1 - rise * rest)
    most = (1 - rise) / (1 - rise * rest)
    level = np.where(
        phase_s < busy_s, 1 - (1 - least) * np.exp(-phase_s / SMOOTH_S), most * np.exp((busy_s - phase_s) / SMOOTH_S)
    )
    sample = (looks / SAMPLE_S).astype(int)
    means: FloatArray = np.bincount(sample, weights=level) / np.bincount(sample)
    return PAUSE_W + (busy_w - PAUSE_W) * means[:samples]


def scatter(power_w: FloatArray, together: int = 1) -> float:
    """Return the standard deviation of samples, or of means of neighbours, as a share of their mean."""
    groups = power_w[: len(power_w) // together * together].reshape(-1, together).mean(axis=1)
    return float(groups.std(ddof=1) / power_w.mean())


def expected_scatter(interval_s: float, duty_cycle: float, period_s: float, busy_w: float, samples: int) -> float:
    """Return the scatter of samples that are means of looks so far apart: the median of some deviations."""
    periods_s = period_s * (1 + DEVIATIONS)
    looks = (looked_at(interval_s, duty_cycle, each_s, busy_w, samples) for each_s in periods_s)
    return float(np.median([scatter(power_w) for power_w in looks]))


def report(table: pd.DataFrame) -> str:
    """Return how samples scatter, and which interval between looks says so best, in Markdown."""
    lines, errors = [], dict.fromkeys(INTERVALS_S, 0.0)
    for (board, duty_cycle, period_s), rows in table.groupby(LOOP_OF):
        power_w = rows["power_w"].to_numpy()
        busy_w = (power_w.mean() - (1 - duty_cycle) * PAUSE_W) / duty_cycle
        expected = {
            interval_s: max(expected_scatter(interval_s, duty_cycle, period_s, busy_w, len(power_w)), LEAST_SCATTER)
            for interval_s in INTERVALS_S
        }
        for interval_s, ratio in expected.items():
            errors[interval_s] += math.log(ratio / scatter(power_w)) ** 2
        shares = (scatter(power_w), scatter(power_w, TOGETHER), expected[LOOK_S])
        cells = (f"{duty_cycle:.0%}", f"{1e3 * period_s:.3f} ms", *(f"{share:.2%}" for share in shares))
        lines.append((str(board)[:12], *cells))
    loops = len(lines)
    best = sorted(errors, key=errors.__getitem__)[:5]
    fits = [
        (f"{1e3 * interval_s:.2f} ms", f"{math.exp(math.sqrt(errors[interval_s] / loops)):.2f}") for interval_s in best
    ]
    header = ("board", "duty cycle", "a pause every", "samples", f"means of {TOGETHER}", "expected of looks")
    scattered = markdown(header, lines)
    fitted = markdown(("looks are apart by", "scatter is told to within a factor of (root mean square)"), fits)
    return f"{scattered}\n\n{fitted}"


def main() -> int:
    parser = growing_parser(__doc__, "tell how samples scatter")
    arguments = parsed(parser, report)
    if arguments is None:
        return 0
    add_rows(arguments.output, arguments.database, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
