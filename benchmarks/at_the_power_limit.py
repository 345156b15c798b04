"""Operators that draw more than the power limit: throttled under a lasting load, beside their rows at full clocks

Their rows are those that block 2 measured with pauses on the same board. Here each runs in a loop of 2 s after 2 s, in
which its clocks settle at the limit. How much longer it takes there, and how much less energy, shows what a model at
the limit takes. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/at_the_power_limit.py --database RUN --output FILE
         PYTHONPATH=. python benchmarks/at_the_power_limit.py --evaluate FILE
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from fast_vs_reference import text
from growing_csv import append, growing_parser, known
from operators_in_turn import case_of
from tables import markdown

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import GRAPH, WARM
from opcost.measuring.flags import Flag
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement, MeasurementRow
from opcost.measuring.setting import Setting
from opcost.operators.cases import Case
from opcost.running.apparatus import Apparatus, open_apparatus
from opcost.running.qualification import qualified
from opcost.storage.database import Database

LASTING = MeasurementProtocol(warm_up_s=2.0, loop_s=2.0)
"""Clocks at the limit swing for two or three periods of 0.9 s (``docs/log/power_limit.md``)."""

COLUMNS = {"time_s": "time_s", "energy_j": "energy_j", "clock_hz": "sm_clock_hz", "temperature_c": "temperature_c"}


def above_the_limit(rows: Sequence[MeasurementRow], seed: int) -> list[MeasurementRow]:
    """Return the rows of cases that were measured with pauses in graphs, in an order that only the seed decides."""
    found = [
        row
        for row in rows
        if Flag.DUTY_CYCLE in row.measurement.flags
        and (row.conditions.execution, row.conditions.cache) == (GRAPH, WARM)
    ]
    found.sort(key=lambda row: row.key)
    random.Random(seed).shuffle(found)
    return found


def compared(apparatus: Apparatus, row: MeasurementRow) -> dict[str, object]:
    """Return the cells of a case: at full clocks and under a lasting load."""
    case, setting = case_of(row), Setting(precision=row.conditions.precision)
    with apparatus.workload(case, setting) as workload:
        lasting = measure(workload, apparatus.instruments("lasting"), LASTING)
    apparatus.rest.begin()
    apparatus.rest.end()
    place = {"operator": text(case), "dtype": _dtype(case), "precision": setting.precision}
    return {**place, **_cells("full", row.measurement), **_cells("lasting", lasting)}


def _dtype(case: Case) -> str:
    return case.operator.floating_inputs[0].dtype if case.operator.floating_inputs else ""


def _cells(name: str, measurement: Measurement) -> dict[str, object]:
    return {f"{name}_{column}": getattr(measurement, field) for column, field in COLUMNS.items()}


def add_rows(path: Path, database: Database, seed: int, limit_s: float) -> None:
    """Measure the cases of this board's rows that a file does not have.

    Raises:
        SystemExit: no operator was measured with pauses on this board.
    """
    begin_s = time.monotonic()
    done = known(path, "operator")
    with qualified(open_apparatus, "cuda", database, True) as apparatus:
        board = apparatus.circumstances(LASTING).device_uuid
        rows = [row for row in database.operator_measurements.rows() if row.circumstances.device_uuid == board]
        wanted = above_the_limit(rows, seed)
        if not wanted:
            raise SystemExit("--database: no operator was measured with pauses on this board; run block 2 first")
        for row in wanted:
            if time.monotonic() - begin_s > limit_s:
                break
            if text(case_of(row)) in done:
                continue
            try:
                append(path, compared(apparatus, row))
            except CannotMeasureError as error:
                print(f"left out: {row.operator}: {error}", file=sys.stderr)


def report(rows: pd.DataFrame) -> str:
    """Return the ratios under a lasting load over those at full clocks, and the exponents of time and energy.

    Exponents are to the base of the power at full clocks over that under the lasting load.
    """
    power_w = {name: rows[f"{name}_energy_j"] / rows[f"{name}_time_s"] for name in ("full", "lasting")}
    ratio = power_w["full"] / power_w["lasting"]
    ratios = {name: rows[f"lasting_{name}"] / rows[f"full_{name}"] for name in ("time_s", "energy_j", "clock_hz")}
    exponents = {name: np.log(values) / np.log(ratio) for name, values in ratios.items()}
    lines = [
        [
            rows["operator"][i].partition(" on ")[0],
            f"{power_w['full'][i]:.0f} W",
            f"{power_w['lasting'][i]:.0f} W",
            *(f"{values[i]:.3f} ({exponents[name][i]:+.2f})" for name, values in ratios.items()),
        ]
        for i in rows.index
    ]
    medians = [f"({values.median():+.2f})" for values in exponents.values()]
    titles = ("operator", "full clocks", "lasting", "time", "energy", "clock")
    return markdown(titles, [*lines, ["median", "", "", *medians]])


def main() -> int:
    parser = growing_parser(__doc__, "print how time, energy and clock change at the limit")
    arguments = parser.parse_args()
    if arguments.evaluate:
        print(report(pd.read_csv(arguments.evaluate)))
        return 0
    add_rows(arguments.output, Database(arguments.database), arguments.seed, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
