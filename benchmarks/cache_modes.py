"""Operators by what they find in the cache, warm, cold or chained, beside their whole models -> a CSV file

Times only, in CUDA graphs, on the values that operators see in their model. The models are those that block 0 has
counted. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/cache_modes.py --output cache_modes.csv resnet50_32x3x224x224
         PYTHONPATH=. python benchmarks/cache_modes.py --evaluate cache_modes.csv
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from growing_csv import append, growing_parser, known, parsed
from tables import markdown

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import CACHES, CHAINED, COLD, GRAPH, WARM
from opcost.measuring.flags import Flag
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement
from opcost.measuring.setting import Setting
from opcost.operators.cases import CAPTURED, Case, cases_of
from opcost.running.apparatus import Apparatus, open_apparatus
from opcost.running.request import COUNTS, model_tuple
from opcost.storage.configs import ModelConfig, load_configs
from opcost.storage.database import Database
from opcost.units import percent, ratio

PRECISE = MeasurementProtocol(warm_up_s=0.1, loop_s=1.0, relative_error=0.005)
WHOLE = "whole"
"""The kind of a row that holds a model."""


def measured(apparatus: Apparatus, case: Case, setting: Setting) -> Measurement:
    """Measure how long a case takes."""
    with apparatus.workload(case, setting) as workload:
        return measure(workload, apparatus.instruments("none"), PRECISE)


def runs_otherwise(measurement: Measurement) -> bool:
    """Return whether an operator could be run as it was asked for, and not as warm."""
    return Flag.RAN_WARM not in measurement.flags


def wanted(config: ModelConfig) -> Iterator[tuple[Case, str, int]]:
    """Yield a model, then each of its operators that moves anything, with their kinds and numbers of calls."""
    yield Case(model_tuple(config)), WHOLE, 1
    counts = [count for count in COUNTS.read(config).counts if count.memory_bytes]
    for case, calls in cases_of(counts, CAPTURED).items():
        yield case, case.operator.short_name, calls


def row(apparatus: Apparatus, case: Case, kind: str, precision: str) -> dict[str, object]:
    """Measure a case in each mode; a model as it runs."""
    modes = (WARM,) if kind == WHOLE else CACHES
    found = {mode: measured(apparatus, case, Setting(precision, GRAPH, mode)) for mode in modes}
    return {f"{mode}_s": found[mode].time_s if mode in found else None for mode in CACHES} | {
        "cold_standard_error_s": found[COLD].time_standard_error_s if COLD in found else None,
        "has_cold": COLD in found and runs_otherwise(found[COLD]),
        "has_chain": CHAINED in found and runs_otherwise(found[CHAINED]),
    }


def add_rows(path: Path, configs: list[ModelConfig], apparatus: Apparatus, limit_s: float) -> None:
    """Measure what a file lacks, until a time is up."""
    begin_s, done = time.monotonic(), known(path, "subject")
    for config in configs:
        cases = list(wanted(config))
        for case, kind, calls in cases:
            name = f"{config.name}: {case.operator} {case.input_data}"
            if time.monotonic() - begin_s > limit_s:
                return
            if name in done:
                continue
            try:
                found = row(apparatus, case, kind, config.precision)
            except CannotMeasureError as error:
                print(f"left out: {name}: {error}", file=sys.stderr)
                continue
            whole = {"operators": len(cases) - 1 if kind == WHOLE else None}
            append(path, {"model": config.name, "kind": kind, "subject": name, "calls": calls, **whole, **found})


def report(table: pd.DataFrame) -> str:
    """Return sums beside whole models of which no operator lacks, and the sums of each kind in them, in Markdown."""
    wholes = table[table["kind"] == WHOLE].set_index("model")
    operators = dict(list(table[table["kind"] != WHOLE].groupby("model")))
    models, kinds, lacking = [], [], []
    for name, whole in wholes.iterrows():
        found, whole_s = len(operators.get(name, ())), whole[f"{WARM}_s"]
        if found != whole["operators"]:
            lacking.append(f"{name}: {found} of {whole['operators']:.0f} operators measured")
            continue
        models.append(_line(name, operators[name], whole_s))
        kinds += [_line(f"{name}: {kind}", rows, whole_s) for kind, rows in operators[name].groupby("kind")]
    header = (
        "part of the whole",
        "operators",
        *(f"sum {cache}" for cache in CACHES),
        "share of its time with weights",
        "chained",
    )
    return "\n\n".join((markdown(header, models), markdown(header, kinds), *lacking))


def _line(name: str, rows: pd.DataFrame, whole_s: float) -> list[str]:
    sums_s = {cache: float((rows["calls"] * rows[f"{cache}_s"]).sum()) for cache in CACHES}
    warm_s = rows["calls"] * rows[f"{WARM}_s"]
    shares = (float((warm_s * rows[column].astype(bool)).sum() / warm_s.sum()) for column in ("has_cold", "has_chain"))
    return [name, str(len(rows)), *(ratio(time_s / whole_s) for time_s in sums_s.values()), *map(percent, shares)]


@contextmanager
def opened(device: str) -> Iterator[Apparatus]:
    """Open a device without its meters."""
    with tempfile.TemporaryDirectory() as folder, open_apparatus(device, Database(Path(folder)), False) as apparatus:
        yield apparatus


def main() -> int:
    parser = growing_parser(__doc__, "tell how far the sums are from the whole models")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--device", default="cuda")
    arguments = parsed(parser, report)
    if arguments is None:
        return 0
    configs = load_configs(Path("measurements"), arguments.names)
    with opened(arguments.device) as apparatus:
        add_rows(arguments.output, configs, apparatus, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
