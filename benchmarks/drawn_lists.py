"""How much drawn lists of operator tuples improve predicted costs, the least certain ones and random ones

Learns from the base, and from the base with each list; predicts the tuples of models that were measured later. Thinner
bases show the learning curve. Points that the file has are not computed again.
Example: PYTHONPATH=. python benchmarks/drawn_lists.py --output docs/data/prediction/drawn_lists.csv
         PYTHONPATH=. python benchmarks/drawn_lists.py --evaluate docs/data/prediction/drawn_lists.csv
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, astuple, dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
import pandas as pd
from drawn_samples import AS_LONG, LEAST_CERTAIN, RANDOM, DrawnSamples, drawn_samples
from prediction import LEARNED, methods_of_all, part_of, sum_halves, summary, whole_row

from opcost.estimates import FloatArray
from opcost.prediction.fitted import IntArray
from opcost.prediction.learned import TIME
from opcost.prediction.learned_costs import ENERGY, CallCosts, LearnedCosts
from opcost.stages.trained import Whole

ROOT = Path(__file__).resolve().parent.parent

NO_LIST, BOTH = "none", "both"
ADDED = {
    NO_LIST: (),
    RANDOM: (RANDOM,),
    LEAST_CERTAIN: (LEAST_CERTAIN,),
    AS_LONG: (AS_LONG,),
    BOTH: (RANDOM, LEAST_CERTAIN),
}
WHOLE_BASE, MODELS, TUPLES = "whole", "models", "tuples"
RATIOS = {MODELS: (0.10, 0.25, 0.50), TUPLES: (0.10, 0.25)}
DRAWS = 3

ALL_TUPLES, COVERED_TUPLES, LATER_WHOLES = "tuples", "covered tuples", "models"
OF_LIST = "list: {}"
"""Tuples of a list that is not learned from, by the whole base only."""


@dataclass(frozen=True)
class Point:
    """A share of the base's models or tuples, drawn at random, and a list that is added: samples to learn from."""

    thinned_by: str
    base_ratio: float
    draw: int
    added: str


def points() -> list[Point]:
    """Return all points, those of the whole base first."""
    found = [Point(WHOLE_BASE, 1.0, 0, added) for added in ADDED]
    for thinned_by, ratios in RATIOS.items():
        found += [Point(thinned_by, ratio, draw, added) for ratio in ratios for draw in range(DRAWS) for added in ADDED]
    return found


def thinned(samples: DrawnSamples, point: Point) -> IntArray:
    """Return the places of a point's base: tuples drawn at random, or all tuples of models drawn at random."""
    source = np.random.default_rng(point.draw)
    if point.thinned_by == WHOLE_BASE:
        return samples.base
    if point.thinned_by == TUPLES:
        return np.sort(source.permutation(samples.base)[: round(point.base_ratio * len(samples.base))])
    wholes = samples.data.wholes
    chosen = source.permutation(len(wholes))[: round(point.base_ratio * len(wholes))]
    places = {place for number in chosen for place in wholes[number].calls.places}
    return np.intersect1d(samples.base, sorted(places))


def rows_of_point(samples: DrawnSamples, point: Point) -> list[dict[str, object]]:
    """Return the errors of a point: in the tested tuples, in those that the lists cover, and in the later models.

    Points of the whole base also have the errors in each list that is not learned from.
    """
    base = thinned(samples, point)
    lists = [samples.lists[name] for name in ADDED[point.added]]
    places = np.unique(np.concatenate([base, *lists]))
    learned = methods_of_all(part_of(samples.data, places))
    tested = errors_of_tuples(samples, learned, samples.tested)
    of_models = pd.DataFrame([_errors_of_whole(samples, learned, whole) for whole in samples.later])
    shared = {
        **asdict(point),
        "base_samples": len(base),
        "samples": len(places),
        "list_s": sum(samples.measured_s[name] for name in ADDED[point.added]),
    }
    found = {ALL_TUPLES: tested, COVERED_TUPLES: tested[samples.is_covered], LATER_WHOLES: of_models}
    if point.thinned_by == WHOLE_BASE:
        others = [name for name in (RANDOM, LEAST_CERTAIN) if not np.isin(samples.lists[name], places).any()]
        found |= {OF_LIST.format(name): errors_of_tuples(samples, learned, samples.lists[name]) for name in others}
    return [{**shared, "tested": name, "number": len(errors), **figures(errors)} for name, errors in found.items()]


def figures(errors: pd.DataFrame) -> dict[str, float]:
    """Return the figures of ``summary``, and for each cost the absolute errors over all costs, and the largest error.

    Args:
        errors: the logarithm of predicted over measured costs, half widths of its intervals, and measured costs.
    """
    found = summary(errors)
    for cost in (TIME, ENERGY):
        known = errors[errors[cost].notna()]
        ratios = np.abs(np.expm1(known[cost]))
        found[f"{cost}_of_total"] = float((ratios * known[f"{cost} measured"]).sum() / known[f"{cost} measured"].sum())
        found[f"{cost}_worst"] = float(ratios.max())
    return found


def errors_of_tuples(samples: DrawnSamples, learned: LearnedCosts, places: IntArray) -> pd.DataFrame:
    """Return the errors in some samples, half widths of 90 % intervals, and measured costs, see ``figures``."""
    known = samples.data.samples
    costs = learned.costs([samples.data.calls[place] for place in places])
    columns: dict[str, FloatArray] = {}
    for cost, predicted, measured, deviations in (
        (TIME, costs.times_s, known.times_s, costs.time_deviations),
        (ENERGY, costs.energies_j, known.energies_j, costs.energy_deviations),
    ):
        own = measured[places]
        columns |= {cost: np.log(predicted / own), f"{cost} measured": own}
        columns[f"{cost} half"] = learned.deviations[cost].factor * deviations
    return pd.DataFrame(columns)


def _errors_of_whole(samples: DrawnSamples, learned: LearnedCosts, whole: Whole) -> dict[str, float]:
    """Return the error of the sum of a model's predicted calls; none of its operators counts as measured."""
    costs: CallCosts = learned.costs([samples.data.calls[place] for place in whole.calls.places])
    row = whole_row(whole, LEARNED, costs.times_s, costs.energies_j)
    halves = sum_halves(learned, costs, whole)
    found: dict[str, float] = {}
    for cost, measured in ((TIME, whole.time_s), (ENERGY, whole.energy_j)):
        found |= {cost: float(np.log(row[f"{cost}_ratio"])), f"{cost} half": halves[cost], f"{cost} measured": measured}
    return found


# Comparison


def shown(table: pd.DataFrame) -> str:
    """Return the figures of each share of the base with each list, as means over the draws."""
    shown_columns = [f"{cost}_{name}" for cost in (TIME, ENERGY) for name in ("median", "within_10", "of_total")]
    groups = table.groupby(["tested", "thinned_by", "base_ratio", "added"], sort=False)
    means = groups[["samples", *shown_columns, "time_covered", "energy_covered"]].mean()
    return means.round(4).to_string()


def gains(table: pd.DataFrame, figure: str) -> pd.DataFrame:
    """Return how much each list changes a figure of the same base, by the share of the base: mean, lowest, highest."""
    index = ["tested", "thinned_by", "base_ratio", "draw"]
    by_list = table.pivot(index=index, columns="added", values=figure)
    changes = by_list.drop(columns=NO_LIST).sub(by_list[NO_LIST], axis=0)
    return changes.groupby(level=index[:-1], sort=False).agg(["mean", "min", "max"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--output", type=Path, help="compute the points that this file does not have, and add them")
    what.add_argument("--evaluate", type=Path, metavar="FILE", help="print the figures of a file")
    parser.add_argument("--root", type=Path, default=ROOT, help="a copy of the repository (default: this one)")
    parser.add_argument("--processes", type=int, default=2, help="at once (default 2)")
    arguments = parser.parse_args()
    if arguments.output is not None:
        _compute(arguments)
    table = pd.read_csv(arguments.output or arguments.evaluate, keep_default_na=False, na_values=[""])
    print(shown(table))
    for figure in ("time_median", "time_of_total", "energy_median", "energy_of_total"):
        print(f"\n{figure}, change by a list\n{gains(table, figure).round(4).to_string()}")
    return 0


def _compute(arguments: argparse.Namespace) -> None:
    rows = _rows_in(arguments.output)
    known = {tuple(row[name] for name in Point.__dataclass_fields__) for row in rows}
    missing = [point for point in points() if astuple(point) not in known]
    if not missing:
        return
    samples = drawn_samples(arguments.root)
    with ProcessPoolExecutor(arguments.processes) as pool:
        for point, found in zip(missing, _computed(pool, samples, missing), strict=True):
            rows += found
            pd.DataFrame(rows).to_csv(arguments.output, index=False, float_format="%.5g")
            print(*astuple(point), f"time {found[0]['time_median']:.2%} in the median", flush=True)


def _computed(
    pool: ProcessPoolExecutor, samples: DrawnSamples, missing: Sequence[Point]
) -> Iterator[list[dict[str, object]]]:
    return pool.map(rows_of_point, repeat(samples), missing)


def _rows_in(path: Path) -> list[dict[str, object]]:
    if not path.exists():
        return []
    table = pd.read_csv(path, keep_default_na=False, na_values=[""])
    return table.to_dict("records")


if __name__ == "__main__":
    sys.exit(main())
