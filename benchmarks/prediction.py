"""How far predicted costs are off, for operators and whole families of models that were not learned from

Example: PYTHONPATH=. python benchmarks/prediction.py docs/data/prediction
         PYTHONPATH=. python benchmarks/prediction.py FOLDER --parts families --processes 1
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from claim_tables import committed, usual_conditions

from opcost.comparing.model_result import ModelResult
from opcost.comparing.predicted_run import NORMAL_FACTOR
from opcost.estimates import value_of
from opcost.learners import Fold, folds_of, learned_from
from opcost.operators.counts import OperatorCount, tuple_key
from opcost.operators.values import InputData, parse_input_data
from opcost.prediction.learned_costs import ENERGY, TIME, CallCosts, IntArray, LearnedCosts, ModelCalls
from opcost.prediction.samples import Samples, cases_of
from opcost.running.request import Request
from opcost.stages.predict import training_data
from opcost.stages.ranking_data import read_ranking_data
from opcost.storage.configs import ModelFolders

ROOT = Path(__file__).resolve().parent.parent
LEARNED = "learned"
MULTIPROCESSORS = 132
"""Of an H200, the card of the committed rows."""

TUPLE_FOLDS = 10
WITHIN = {TIME: 0.10, ENERGY: 0.10}
FEWEST_OF_A_KIND = 20
"""Kinds with fewer samples have one row together."""

CURVE_SIZES, CURVE_DRAWS = (100, 200, 400, 800, 1600), 3
OTHERS, ALL = "others", "all"

TIMED_CALLS = 10_000


@dataclass(frozen=True)
class Whole:
    """A measured whole model: its calls among the samples, its costs in s and J, and the corrections of its sum."""

    name: str
    calls: ModelCalls
    time_s: float
    energy_j: float | None
    correction_s: float = 0.0
    correction_j: float | None = 0.0


@dataclass(frozen=True)
class TrainingData:
    """Samples with the call that each is of, and the measured wholes that consist of them."""

    samples: Samples
    calls: Sequence[tuple[OperatorCount, InputData]]
    wholes: Sequence[Whole]


def committed_samples() -> TrainingData:
    """Return the committed samples under the conditions that most of them have, and the whole models of them."""
    request = Request((), ModelFolders(ROOT / "measurements"), committed(ROOT))
    data = read_ranking_data(request, request.configs(), ())
    conditions = usual_conditions(data.operator_rows)
    found, results = training_data(data, conditions), {one.name: one for one in data.results(conditions)}
    counts = data.operator_counts
    cases = cases_of(data.operator_rows, counts, conditions).items()
    calls = [(counts[tuple_key(key), rows[0].phase], parse_input_data(rows[0].input_data)) for key, rows in cases]
    return TrainingData(found.samples, calls, [_whole(results[name], own) for name, own in found.wholes.items()])


def _whole(result: ModelResult, calls: ModelCalls) -> Whole:
    (corrected_s, corrected_j), cost = result.corrected, result.cost
    correction_s = corrected_s.value - cost.time_s.value
    correction_j = None if corrected_j is None or cost.energy_j is None else corrected_j.value - cost.energy_j.value
    time_s, energy_j = result.full.measurement.time_s, value_of(result.full_energy_j)
    return Whole(result.name, calls, time_s, energy_j, correction_s, correction_j)


def shape_folds(data: TrainingData) -> list[Fold]:
    """Return folds in which no shape is learned from that is predicted."""
    return folds_of([[shape] for shape in data.samples.shapes], TUPLE_FOLDS)


def learned_costs(known: TrainingData) -> LearnedCosts:
    """Return what is learned from samples, and from the wholes among them."""
    return learned_from(known.samples, [whole.calls for whole in known.wholes], MULTIPROCESSORS)


def part_of(data: TrainingData, places: Sequence[int] | IntArray) -> TrainingData:
    """Return some samples, and the wholes with those of their calls that are among them."""
    new = {int(place): number for number, place in enumerate(places)}
    wholes = []
    for whole in data.wholes:
        kept = [(new[place], calls) for place, calls in _calls(whole) if place in new]
        if kept:
            calls = ModelCalls(whole.calls.family, *(tuple(column) for column in zip(*kept, strict=True)))
            wholes.append(Whole(whole.name, calls, whole.time_s, whole.energy_j))
    columns = {name: value for name, value in vars(data.samples).items() if name != "boards"}
    chosen = {
        name: tuple(one[int(place)] for place in places) if isinstance(one, tuple) else one[[*places]]
        for name, one in columns.items()
    }
    return TrainingData(replace(data.samples, **chosen), [data.calls[int(place)] for place in places], wholes)


def _calls(whole: Whole) -> Iterator[tuple[int, int]]:
    return zip(whole.calls.places, whole.calls.calls, strict=True)


# Unseen tuples


def tuple_errors(data: TrainingData, fold: Fold) -> pd.DataFrame:
    """Return the errors in the samples of a fold, with their kinds.

    An error is the logarithm of predicted over measured, NaN where that is unknown; beside it is the half width of its
    interval.
    """
    known, others = (part_of(data, places) for places in fold)
    learned = learned_costs(known)
    costs = learned.costs(others.calls)
    columns: dict[str, object] = {"kind": list(others.samples.kinds)}
    for cost, predicted, measured, deviations in (
        (TIME, costs.times_s, others.samples.times_s, costs.time_deviations),
        (ENERGY, costs.energies_j, others.samples.energies_j, costs.energy_deviations),
    ):
        columns |= {cost: np.log(predicted / measured), f"{cost} half": learned.deviations[cost].factor * deviations}
    return pd.DataFrame(columns)


def tuples_table(errors: pd.DataFrame) -> pd.DataFrame:
    """Return the errors by kind of operator."""
    sizes = errors["kind"].value_counts()
    large = [kind for kind in sizes.index if sizes[kind] >= FEWEST_OF_A_KIND]
    groups = {ALL: errors, **{kind: errors[errors["kind"] == kind] for kind in large}}
    groups[OTHERS] = errors[~errors["kind"].isin(large)]
    return pd.DataFrame(
        {"method": LEARNED, "kind": kind, "samples": len(own), **summary(own)}
        for kind, own in groups.items()
        if len(own)
    )


def summary(errors: pd.DataFrame) -> dict[str, float]:
    """Return the median error, the share within the limit and the coverage of the intervals, for each cost."""
    found = {}
    for cost, limit in WITHIN.items():
        known = errors[errors[cost].notna()]
        ratios = np.abs(np.expm1(known[cost]))
        found[f"{cost}_median"] = float(ratios.median())
        found[f"{cost}_within_10"] = float((ratios <= limit).mean())
        found[f"{cost}_covered"] = float((known[cost].abs() <= known[f"{cost} half"]).mean())
    return found


# Unseen families


def family_rows(data: TrainingData, family: str) -> list[dict[str, object]]:
    """Return a row for each whole of a family, learned from all samples that no model of it has.

    It has the predicted over the measured costs, with the sum's correction.
    """
    is_known = np.array([family not in families for families in data.samples.families])
    learned = learned_costs(part_of(data, np.flatnonzero(is_known)))
    rows = []
    for whole in (whole for whole in data.wholes if whole.calls.family == family):
        costs = learned.costs([data.calls[place] for place in whole.calls.places])
        calls = np.array(whole.calls.calls, dtype=float)
        time_s, energy_j = float(calls @ costs.times_s), float(calls @ costs.energies_j)
        halves = sum_halves(learned, costs, whole)
        rows.append(
            {
                "model": whole.name,
                "family": family,
                "method": LEARNED,
                "time_s": whole.time_s,
                "energy_j": whole.energy_j,
                "time_ratio": (time_s + whole.correction_s) / whole.time_s,
                "energy_ratio": (energy_j + whole.correction_j) / whole.energy_j,
                **{f"{cost}_half_width": half for cost, half in halves.items()},
                "outside_share": float(calls @ (costs.times_s * costs.is_outside)) / time_s,
            }
        )
    return rows


def sum_halves(learned: LearnedCosts, costs: CallCosts, whole: Whole) -> dict[str, float]:
    """Return the half widths of the 90 % intervals of the logarithms of a sum's time and energy.

    That of the energy includes the difference between boards.
    """
    calls, halves = np.array(whole.calls.calls, dtype=float), {}
    for cost, values, deviations in (
        (TIME, costs.times_s, costs.time_deviations),
        (ENERGY, costs.energies_j, costs.energy_deviations),
    ):
        half = learned.half_width(cost, costs.groups, calls * values, deviations, costs.is_small)
        halves[cost] = half / float(calls @ values)
    halves[ENERGY] = math.hypot(halves[ENERGY], NORMAL_FACTOR * learned.boards.deviation)
    return halves


# Learning curves


def curve_row(data: TrainingData, size: int, draw: int) -> dict[str, float]:
    """Return the errors in a tenth of the shapes after learning from some of the other samples, drawn at random."""
    learned_from, predicted = shape_folds(data)[draw]
    chosen = np.random.default_rng(draw).permutation(learned_from)[:size]
    return {"samples": len(chosen), "draw": draw, **summary(tuple_errors(data, (np.sort(chosen), predicted)))}


# Times


def times_table(data: TrainingData, _: object) -> pd.DataFrame:
    """Return how long learning from all samples takes, and predicting many calls, alone."""
    started = time.perf_counter()
    learned = learned_costs(data)
    training_s = time.perf_counter() - started
    calls = [data.calls[place % len(data.calls)] for place in range(TIMED_CALLS)]
    started = time.perf_counter()
    learned.costs(calls)
    rows = [("learning", len(data.calls), training_s), ("predicting", len(calls), time.perf_counter() - started)]
    return pd.DataFrame(rows, columns=["what", "calls", "seconds"])


Run = Callable[..., Iterator[Any]]
"""Maps a function over arguments, in processes of their own."""


def tuples(data: TrainingData, run: Run) -> pd.DataFrame:
    """Return the errors of tuples whose shape was not learned from."""
    folds = shape_folds(data)
    return tuples_table(pd.concat(run(tuple_errors, [data] * len(folds), folds)))


def families(data: TrainingData, run: Run) -> pd.DataFrame:
    """Return the errors of models whose family was not learned from."""
    names = sorted({whole.calls.family for whole in data.wholes})
    return pd.DataFrame([row for rows in run(family_rows, [data] * len(names), names) for row in rows])


def curve(data: TrainingData, run: Run) -> pd.DataFrame:
    """Return the errors after learning from some of the samples."""
    most = min(len(learned) for learned, _ in shape_folds(data))
    points = [(size, draw) for size in (*CURVE_SIZES, most) for draw in range(CURVE_DRAWS)]
    return pd.DataFrame(run(curve_row, [data] * len(points), *zip(*points, strict=True)))


PARTS: Mapping[str, tuple[str, Callable[[TrainingData, Run], pd.DataFrame]]] = {
    "times": ("times", times_table),
    "tuples": ("unseen_tuples", tuples),
    "families": ("unseen_families", families),
    "curve": ("learning_curve", curve),
}
"""Each table's file, and what makes it."""


def shown(name: str, table: pd.DataFrame) -> str:
    """Return a table as it is printed: of families the figures by method, of the others all rows."""
    if name != "families":
        return table.round(4).to_string(index=False)
    return "\n".join(f"{method}: {by_method(own)}" for method, own in table.groupby("method", sort=False))


def by_method(rows: pd.DataFrame) -> str:
    """Return the figures of a method on unseen families."""
    parts = []
    for cost in (TIME, ENERGY):
        errors = (rows[f"{cost}_ratio"] - 1).abs()
        known = rows[rows[f"{cost}_half_width"].notna()]
        covered = np.log(known[f"{cost}_ratio"]).abs() <= known[f"{cost}_half_width"]
        worst = rows.loc[errors.idxmax(), "model"]
        parts.append(
            f"{cost} {errors.median():.1%} in the median, {errors.max():.1%} at worst ({worst}), "
            f"{(errors <= 0.15).mean():.0%} within 15 %, {covered.mean():.0%} in the interval"
        )
    return "; ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the tables are written")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="the tables (default: all)")
    parser.add_argument("--processes", type=int, default=2, help="at once (default 2)")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(arguments.processes) as pool:
        data = committed_samples()
        for name in arguments.parts:
            started = time.perf_counter()
            file, made_by = PARTS[name]
            table = made_by(data, pool.map)
            path = arguments.folder / f"{file}.csv"
            if "method" in table and path.exists():
                # Those of baselines, which are learned from the same folds, stay.
                before = pd.read_csv(path)
                table = pd.concat([table, before[before["method"] != LEARNED]])
            table.to_csv(path, index=False, float_format="%.5g")
            print(f"{name}, {time.perf_counter() - started:.0f} s\n{shown(name, table)}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
