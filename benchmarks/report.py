"""How large is the report, and how fast does a browser show and sort it? -> figures to read, no file

Real rows of the database are repeated under other numbers until there are as many tuples as are asked for, in models
that share some, each with a power log of usual length. With --open a report that is there is timed instead.

Example: PYTHONPATH=. python benchmarks/report.py --tuples 10000
         PYTHONPATH=. python benchmarks/report.py --open report.html
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from playwright.sync_api import sync_playwright

from opcost.comparing.compare import Evidence, compare
from opcost.measuring.conditions import GRAPH, measurement_key
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import Case
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import Constant, OperatorTuple, model_operator
from opcost.operators.whitelist import Selection
from opcost.reporting.report import write_report
from opcost.running.request import Request
from opcost.stages.compare import ModelComparisons, keep_comparisons
from opcost.storage.database import Database
from opcost.summing.index import Measurements

MODELS = 20
SHARED_RATIO = 0.2
FLOP = 10**9
MEMORY_BYTES = 3 * 10**8
LOG_S = 0.5
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
REPEATS = 5

SORT = """async column => {
    const begin = performance.now();
    document.querySelector(`[data-column=${column}] button`).click();
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - begin;
}"""
SEARCH = """async text => {
    const field = document.getElementById('query');
    const begin = performance.now();
    field.value = text;
    field.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - begin;
}"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=10_000, help="how many (default: 10000)")
    parser.add_argument("--open", type=Path, metavar="FILE.html", help="a report that is there")
    parser.add_argument("--database", type=Path, default=Path("database"), help="real rows to repeat")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.open or synthetic_report(Path(folder), arguments.database, arguments.tuples)
        print(f"{path.stat().st_size / 1e6:.2f} MB")
        time_in_browser(path)


def synthetic_report(folder: Path, database: Path, tuples: int) -> Path:
    """Write a report of so many tuples with a log each; return it."""
    known, made_up = Database(database), Database(folder)
    rows = [row for row in known.operator_measurements.rows() if is_usual(row)]
    whole = known.full_model_measurements.rows()[-1]
    whole = replace(whole, conditions=rows[0].conditions)
    made = [numbered(rows[number % len(rows)], number, rows[0]) for number in range(tuples)]
    made_up.power_logs.mkdir()
    for _, row in made:
        write_log(made_up.power_logs, row)
    begin_s = time.perf_counter()
    models = list(models_of(made, whole))
    request = Request((), folder, made_up, dry_run=True)
    reports = keep_comparisons(request, models)
    path = folder / "report.html"
    write_report(path, request, models, reports)
    print(f"{tuples} tuples in {len(models)} models: compared and written in {time.perf_counter() - begin_s:.1f} s")
    return path


def is_usual(row: MeasurementRow) -> bool:
    return row.conditions.execution == GRAPH and row.measurement.energy_j is not None


def numbered(row: MeasurementRow, number: int, usual: MeasurementRow) -> tuple[OperatorTuple, MeasurementRow]:
    """Return a row as one of another tuple, which carries a number, under the usual conditions."""
    name, _, rest = row.parameters.partition("=")
    parameters = ((name, Constant(rest)), ("number", number)) if rest else ()
    inputs = (Constant(row.inputs), number)
    operator = OperatorTuple(row.operator, parameters, inputs, mode=row.training_mode)
    key = measurement_key(Case(operator), usual.conditions)
    measured = replace(row.measurement, power_log=f"{key}-20261122T000000-1.csv")
    return operator, replace(row, key=key, measurement=measured, input_data="normal", conditions=usual.conditions)


def write_log(folder: Path, row: MeasurementRow) -> None:
    """Write what nvidia-smi and NVML would have reported around a row's loop."""
    begin_s = datetime.fromisoformat(row.measurement.started_at).timestamp() - LOG_S / 3
    moments_s = [begin_s + 0.02 * number for number in range(round((LOG_S + row.measurement.loop_time_s) / 0.02))][:90]
    power_w = row.measurement.power_w or 1.0
    powers_w = [power_w * (1 + 0.02 * math.sin(7 * number)) for number in range(len(moments_s))]
    name = str(row.measurement.power_log)
    stamps = [f"{datetime.fromtimestamp(one, timezone.utc):%Y/%m/%d %H:%M:%S.%f}"[:-3] for one in moments_s]
    smi = (f"{stamp}, {powers_w[number - number % 5]:.2f}" for number, stamp in enumerate(stamps))
    (folder / name).write_text("\n".join(["timestamp, power.draw.instant [W]", *smi]) + "\n")
    samples = (f"{moment_s:.6f},{one:.3f}" for moment_s, one in zip(moments_s, powers_w, strict=True))
    (folder / name.replace(".csv", "-samples.csv")).write_text("\n".join(["epoch_s,power_w", *samples]) + "\n")


def models_of(
    made: Sequence[tuple[OperatorTuple, MeasurementRow]], whole: MeasurementRow
) -> Iterator[ModelComparisons]:
    """Yield models of equal parts of the tuples, each with some of the next one's."""
    measurements = Measurements([row for _, row in made])
    size = math.ceil(len(made) / MODELS)
    for number in range(MODELS):
        used = made[number * size : round((number + 1 + SHARED_RATIO) * size)]
        counts = tuple(
            OperatorCount(operator, 1 + place % 5, FLOP, MEMORY_BYTES) for place, (operator, _) in enumerate(used)
        )
        model = model_operator(f"model{number}", None, (32, 3, 224, 224))
        total = OperatorCounts(model, counts, FLOP * len(used), MEMORY_BYTES * len(used), 0, "2.11.0", "cuda")
        config: Any = SimpleNamespace(name=f"model{number}_32x3x224x224", folder=Path(f"model{number}"), code=None)
        yield ModelComparisons(
            config, (compare(Selection(total, replace(total, counts=())), whole, Evidence(measurements)),), (None,)
        )


def time_in_browser(path: Path) -> None:
    """Print how long a headless browser takes to paint the report, to be ready, to sort by any column, to search."""
    executable = next((found for name in BROWSERS if (found := shutil.which(name)) is not None), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        paints_s, ready_s = [], []
        for _ in range(REPEATS):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(path.resolve().as_uri())
            page.wait_for_timeout(200)
            paints_s.append(page.evaluate(PAINTED) / 1000)
            ready_s.append(page.evaluate(LOADED) / 1000)
        print(f"first paint {spread(paints_s)}, table ready {spread(ready_s)}")
        columns = page.evaluate("[...document.querySelectorAll('[data-column]')].map(head => head.dataset.column)")
        sorts_s = [page.evaluate(SORT, column) / 1000 for column in columns for _ in range(REPEATS)]
        searches_s = [page.evaluate(SEARCH, text) / 1000 for text in ("c", "conv2d 64", "no such", "")]
        print(f"sort, all columns {spread(sorts_s)}; search {spread(searches_s)}")
        browser.close()


def spread(times_s: Sequence[float]) -> str:
    return f"{median(times_s):.2f} s (median of {len(times_s)}, worst {max(times_s):.2f} s)"


if __name__ == "__main__":
    main()
