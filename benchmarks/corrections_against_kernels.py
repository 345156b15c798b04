"""The cache correction of each call beside how much longer its kernels take in a model than alone

The kernels of an eager run, by the profiler, are those of ``opcost compare-kernels --json``. Rows with weights from
memory (``opcost measure --cache cold``) stand beside them, if there are any.
Example: opcost compare-kernels --measurements MODELS --database RUN --json > KERNELS.json
         PYTHONPATH=. python benchmarks/corrections_against_kernels.py MODELS RUN KERNELS.json
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
from claims_of_precisions import CorrectedRows
from tables import markdown

from opcost.command.options import Parser
from opcost.comparing.cache_corrections import corrections_under, kind_of, moved_bytes
from opcost.comparing.compare import corrections_of
from opcost.measuring.conditions import COLD
from opcost.operators.tuples import OperatorTuple
from opcost.running.request import Request
from opcost.stages.compare import find_comparisons
from opcost.storage.database import Database
from opcost.summing.index import Measurements
from opcost.summing.summation import ModelCost, sum_operators

SHIPPED = Path(__file__).resolve().parent.parent / "database"
SHOWN = 20


def calls_of(request: Request, reports: list[dict[str, object]]) -> Iterator[dict[str, object]]:
    """Yield the cells of each operator tuple of models whose kernels and whole are known; times of all calls in s."""
    tuples = {report["name"]: {one["operator"]: one for one in report["tuples"]} for report in reports}  # type: ignore[attr-defined]
    chains = request.database.calls_in_chains.rows()
    measurements = Measurements(request.database.operator_measurements.rows())
    for model in find_comparisons(request):
        for comparison in model.comparisons:
            under = comparison.conditions
            found = corrections_of(comparison.counts, corrections_under(chains, under), measurements, under)
            cold = sum_operators(comparison.counts, measurements, replace(comparison.conditions, cache=COLD))
            warm_s, cold_s = _times_s(comparison.cost), _times_s(cold)
            for count in comparison.cost.summed:
                kernels = tuples.get(model.config.name, {}).get(str(count.operator))
                if found is None or kernels is None or not count.computes or kernels["alone_s"] is None:
                    continue
                yield {
                    "model": model.config.name,
                    "precision": comparison.conditions.precision,
                    "kind": kind_of(count),
                    "operator": count.operator.short_name,
                    "moved_mb": moved_bytes(count) / 1e6,
                    "calls": kernels["calls"],
                    "whole_s": comparison.full.measurement.time_s,
                    "longer_s": kernels["in_model_s"] - kernels["alone_s"],
                    "correction_s": found.of([count]).time_s.value,
                    "cold_s": cold_s.get(count.operator, math.nan) - warm_s.get(count.operator, math.nan),
                }


def _times_s(cost: ModelCost) -> dict[OperatorTuple, float]:
    """Return the time of all calls of each operator of a sum."""
    times_s: dict[OperatorTuple, float] = {}
    for part in cost.parts:
        times_s[part.case.operator] = times_s.get(part.case.operator, 0.0) + part.time_s
    return times_s


def by_kind(calls: pd.DataFrame) -> str:
    """Return the mean over models of what calls take longer and of its correction, as shares of the whole, by kind."""
    models = calls.groupby("precision")["model"].nunique()
    shares = calls.assign(
        longer=calls["longer_s"] / calls["whole_s"],
        correction=calls["correction_s"] / calls["whole_s"],
        miss=(calls["longer_s"] - calls["correction_s"]) / calls["whole_s"],
    )
    lines = []
    for (precision, kind), rows in shares.groupby(["precision", "kind"]):
        of_model = rows.groupby("model")["miss"].sum()
        means = (rows[name].sum() / models[precision] for name in ("longer", "correction"))
        worst = of_model.abs().idxmax()
        lines.append([precision, kind, *(f"{mean:+.2%}" for mean in means), f"{of_model[worst]:+.2%} ({worst})"])
    return markdown(("precision", "kind", "longer in the model", "correction", "largest miss (model)"), lines)


def largest(calls: pd.DataFrame) -> str:
    """Return the operators whose correction is furthest off, by their share of the whole."""
    share = (calls["longer_s"] - calls["correction_s"]) / calls["whole_s"]
    lines = []
    for index in share.abs().nlargest(SHOWN).index:
        row = calls.loc[index]
        names = ("longer_s", "correction_s", "cold_s")
        times = ("" if math.isnan(row[name]) else f"{1e6 * row[name] / row['calls']:+.2f} us" for name in names)
        place = (row["model"], row["operator"], row["kind"], f"{row['moved_mb']:.1f} MB", str(row["calls"]))
        lines.append([*place, *times, f"{share[index]:+.2%}"])
    figures = ("longer", "correction", "cold - warm", "miss of the whole")
    titles = ("model", "operator", "kind", "moved", "calls", *figures)
    return markdown(titles, lines)


def main() -> int:
    parser = Parser(description=__doc__)
    for name in ("measurements", "database", "kernels"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    rows = CorrectedRows(arguments.database, corrections=Database(SHIPPED))
    request = Request((), arguments.measurements, rows, dry_run=True)
    calls = pd.DataFrame(calls_of(request, json.loads(arguments.kernels.read_text(encoding="utf-8"))))
    print(f"{by_kind(calls)}\n\n{largest(calls)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
