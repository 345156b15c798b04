"""How far predicted costs are off, for operators, families of models and conditions that were not learned from

Example: PYTHONPATH=. python benchmarks/prediction.py docs/data/prediction
         PYTHONPATH=. python benchmarks/prediction.py FOLDER --parts families
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from claim_tables import committed, usual_conditions

from opcost.comparing.model_result import ModelResult
from opcost.comparing.predicted_run import NORMAL_FACTOR
from opcost.estimates import value_of
from opcost.learners import SHAPE_FOLDS, TREES, TREES_FOR_ERRORS, Table, Trials, folds_of, learned_from
from opcost.measuring.conditions import Conditions
from opcost.measuring.precisions import AUTOCAST_DTYPES, DTYPES
from opcost.operators.counts import OperatorCount, tuple_key
from opcost.operators.values import InputData, parse_input_data
from opcost.prediction.learned_costs import (
    ENERGY,
    POWER,
    SMALL,
    TIME,
    UNDER,
    Deviations,
    LearnedCosts,
    Lesson,
    ModelCalls,
    under_any,
)
from opcost.prediction.samples import cases_of
from opcost.running.request import Request
from opcost.stages.predict import Ground, lessons_of, training_data
from opcost.stages.ranking_data import read_ranking_data
from opcost.storage.configs import ModelFolders

ROOT = Path(__file__).resolve().parent.parent
LEARNED = "learned"
WITHIN = {TIME: 0.10, ENERGY: 0.10}
FEWEST_OF_A_KIND = 20
"""Kinds with fewer samples have one row together."""

OTHERS, ALL = "others", "all"
TIMED_CALLS = 10_000


@dataclass(frozen=True)
class Whole:
    """A measured whole model: its calls among all samples, its costs in s and J, and the corrections of its sum."""

    name: str
    conditions: str
    calls: ModelCalls
    time_s: float
    energy_j: float | None
    correction_s: float = 0.0
    correction_j: float | None = 0.0


@dataclass(frozen=True)
class Committed:
    """The committed samples, by the conditions that are learned from together, and the measured wholes of them."""

    ground: Ground
    conditions: Mapping[str, Conditions]
    lessons: Mapping[str, Lesson]
    wholes: Sequence[Whole]
    calls: Sequence[tuple[OperatorCount, InputData]]

    @cached_property
    def table(self) -> Table:
        return Table.of(self.lessons.values())

    @cached_property
    def trials(self) -> Trials:
        return Trials.of(self.lessons, self.table, TREES_FOR_ERRORS)

    @property
    def names(self) -> list[str]:
        """The name of the conditions of each sample."""
        return [named(self.conditions[key]) for key, one in self.lessons.items() for _ in one.samples.kinds]


def named(conditions: Conditions) -> str:
    return f"{conditions.device_product}, {conditions.precision}"


def committed_samples() -> Committed:
    """Return the committed samples that are learned from together with those under the usual conditions."""
    request = Request((), ModelFolders(ROOT / "measurements"), committed(ROOT))
    data, ground = read_ranking_data(request, request.configs(), ()), Ground.of(request)
    usual = usual_conditions(data.operator_rows)
    known = {one: training_data(data, one) for one in ground.pool_of(usual)}
    wholes, start = [], 0
    for one, own in known.items():
        results = {result.name: result for result in data.results(one)}
        for name, calls in own.wholes.items():
            places = tuple(start + place for place in calls.places)
            wholes.append(_whole(results[name], named(one), replace(calls, places=places)))
        start += len(own.samples)
    counts = data.operator_counts
    cases = cases_of(data.operator_rows, counts, usual).items()
    calls = [(counts[tuple_key(key), rows[0].phase], parse_input_data(rows[0].input_data)) for key, rows in cases]
    return Committed(ground, {one.key: one for one in known}, lessons_of(known, ground), wholes, calls)


def _whole(result: ModelResult, conditions: str, calls: ModelCalls) -> Whole:
    (corrected_s, corrected_j), cost = result.corrected, result.cost
    correction_s = corrected_s.value - cost.time_s.value
    correction_j = None if corrected_j is None or cost.energy_j is None else corrected_j.value - cost.energy_j.value
    time_s, energy_j = result.full.measurement.time_s, value_of(result.full_energy_j)
    return Whole(result.name, conditions, calls, time_s, energy_j, correction_s, correction_j)


# Unseen tuples


def tuples(data: Committed) -> pd.DataFrame:
    """Return the errors of tuples whose shape was not learned from, under each conditions by kind of operator.

    Intervals are from the errors of the other folds.
    """
    trials, shapes = data.trials, [[shape] for one in data.lessons.values() for shape in one.samples.shapes]
    held = trials.trials[1]
    columns: dict[str, object] = {"conditions": data.names, "kind": list(trials.kinds), **held.errors}
    halves = {cost: np.full(len(shapes), np.nan) for cost in WITHIN}
    for others, own in folds_of(shapes, SHAPE_FOLDS):
        deviations, _ = trials.expected(others, ())
        for cost, found in deviations.items():
            expected = found.deviations(trials.classes, held.distances, held.is_outside)
            halves[cost][own] = found.factor * expected[own]
    errors = pd.DataFrame({**columns, **{f"{cost} half": half for cost, half in halves.items()}})
    parts = [tuples_table(own).assign(conditions=name) for name, own in errors.groupby("conditions", sort=False)]
    return pd.concat(parts)


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


def families(data: Committed) -> pd.DataFrame:
    """Return the errors of models whose family was not learned from; intervals are from errors of other families."""
    of_samples = [own for one in data.lessons.values() for own in one.samples.families]
    found: list[dict[str, object]] = []
    for family in sorted({whole.calls.family for whole in data.wholes}):
        others = np.flatnonzero([family not in own for own in of_samples])
        expected = data.trials.expected(others, [one for one in data.trials.models if one.family != family])
        found += [family_row(data, whole, *expected) for whole in data.wholes if whole.calls.family == family]
    return pd.DataFrame(found)


def family_row(
    data: Committed, whole: Whole, deviations: Mapping[str, Deviations], sum_factors: Mapping[str, Mapping[str, float]]
) -> dict[str, object]:
    """Return the predicted over the measured costs of a whole, with the sum's correction, and the half widths."""
    trials, held, lesson = data.trials, data.trials.trials[0], next(iter(data.lessons.values()))
    boards = lesson.samples.boards
    key = trials.classes[whole.calls.places[0]].rpartition(UNDER)[2]
    learned = LearnedCosts(lesson.card, key, {}, {}, {}, {}, deviations, sum_factors, boards, 0)
    row: dict[str, object] = {"model": whole.name, "family": whole.calls.family, "conditions": whole.conditions}
    row |= {"method": LEARNED, "time_s": whole.time_s, "energy_j": whole.energy_j}
    places, calls = list(whole.calls.places), np.array(whole.calls.calls, dtype=float)
    groups = [trials.groups[place] for place in places]
    is_small = np.array([under_any(trials.classes[place]).endswith(SMALL) for place in places])
    halves, times_s = {}, np.zeros(0)
    for cost, measured, correction in (
        (TIME, whole.time_s, whole.correction_s),
        (ENERGY, whole.energy_j, whole.correction_j),
    ):
        predicted = calls * trials.costs[cost][places] * np.exp(held.errors[cost][places])
        times_s = predicted if cost == TIME else times_s
        expected = deviations[cost].deviations(trials.classes, held.distances, held.is_outside)[places]
        row[f"{cost}_ratio"] = (predicted.sum() + correction) / measured
        halves[cost] = learned.half_width(cost, groups, predicted, expected, is_small) / predicted.sum()
    halves[ENERGY] = math.hypot(halves[ENERGY], NORMAL_FACTOR * boards.deviation)
    row |= {f"{cost}_half_width": half for cost, half in halves.items()}
    return {**row, "outside_share": float(times_s @ held.is_outside[places]) / times_s.sum()}


# Conditions without rows


def conditions(data: Committed) -> pd.DataFrame:
    """Return the errors of models under conditions of which nothing was learned from, with rates by data sheets."""
    halves = {*DTYPES, *AUTOCAST_DTYPES}
    groups: dict[str, set[str]] = {}
    for key, one in data.conditions.items():
        groups.setdefault(one.device_product, set()).add(key)
        groups.setdefault("16 bits" if one.precision in halves else one.precision, set()).add(key)
    return pd.DataFrame([row for name, keys in groups.items() for row in left_out(data, name, keys)])


def left_out(data: Committed, name: str, keys: Collection[str]) -> Iterator[dict[str, object]]:
    """Yield the errors of the wholes under some conditions, learned from all others."""
    numbers = {one: len(data.lessons[key].samples) for key, one in data.conditions.items() if key not in keys}
    ground, lessons = replace(data.ground, numbers=numbers), dict(data.lessons)
    for key in keys:
        one, start = data.conditions[key], ground.nearest_to(data.conditions[key])
        lessons[key] = replace(lessons[key], card=ground.scaled(lessons[start.key].card, start, one))
    table = Table.of(lessons.values())
    is_out = np.array([key in keys for key, one in lessons.items() for _ in one.samples.kinds])
    places, kinds = np.flatnonzero(is_out), [kind for kind, out in zip(table.kinds, is_out, strict=True) if out]
    errors = {target: np.zeros(len(is_out)) for target in table.targets}
    for target, function in table.functions(np.flatnonzero(~is_out), TREES).items():
        errors[target][places] = function.predict(table.features[places], kinds) - table.targets[target][places]
    costs = data.trials.costs
    for whole in data.wholes:
        own, calls = list(whole.calls.places), np.array(whole.calls.calls, dtype=float)
        if is_out[own].all():
            times_s = calls * costs[TIME][own] * np.exp(errors[TIME][own])
            powers = np.exp((errors[TIME] + errors[POWER])[own])
            yield {
                "left_out": name,
                "conditions": whole.conditions,
                "model": whole.name,
                "time_ratio": (times_s.sum() + whole.correction_s) / whole.time_s,
                "energy_ratio": ((calls * costs[ENERGY][own] * powers).sum() + whole.correction_j) / whole.energy_j,
            }


# Times


def times(data: Committed) -> pd.DataFrame:
    """Return how long learning from all samples takes, and predicting many calls, alone."""
    started = time.perf_counter()
    learned = learned_from(data.lessons)
    training_s = time.perf_counter() - started
    calls = [data.calls[place % len(data.calls)] for place in range(TIMED_CALLS)]
    started = time.perf_counter()
    learned.costs(calls)
    rows = [("learning", learned.samples, training_s), ("predicting", len(calls), time.perf_counter() - started)]
    return pd.DataFrame(rows, columns=["what", "calls", "seconds"])


PARTS: Mapping[str, tuple[str, Callable[[Committed], pd.DataFrame]]] = {
    "times": ("times", times),
    "tuples": ("unseen_tuples", tuples),
    "families": ("unseen_families", families),
    "conditions": ("unseen_conditions", conditions),
}
"""Each table's file, and what makes it."""


def shown(name: str, table: pd.DataFrame) -> str:
    """Return a table as it is printed: of models the figures by conditions, of others all rows."""
    by = {"families": ["conditions"], "conditions": ["left_out", "conditions"]}.get(name)
    if by is None:
        is_shown = table["kind"] == ALL if "kind" in table else np.ones(len(table), dtype=bool)
        return table[is_shown].round(4).to_string(index=False)
    return "\n".join(f"{group}: {figures(own)}" for group, own in table.groupby(by, sort=False))


def figures(rows: pd.DataFrame) -> str:
    parts = []
    for cost in (TIME, ENERGY):
        errors = np.log(rows[f"{cost}_ratio"]).abs()
        half = rows[f"{cost}_half_width"] if f"{cost}_half_width" in rows else pd.Series(dtype=float)
        covered = (
            f", {(errors <= half).mean():.0%} in the interval, half of it {half.median():.2f}" if len(half) else ""
        )
        of_errors = (
            f"{errors.median():.3f} in the median, {errors.quantile(0.9):.3f} at 90 %, {errors.max():.3f} at worst"
        )
        parts.append(f"{cost} {of_errors}{covered}")
    return f"{len(rows)} models; " + "; ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the tables are written")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="the tables (default: all)")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    data = committed_samples()
    for name in arguments.parts:
        started = time.perf_counter()
        file, made_by = PARTS[name]
        table = made_by(data)
        path = arguments.folder / f"{file}.csv"
        if "method" in table and path.exists():
            # Those of baselines stay.
            before = pd.read_csv(path)
            table = pd.concat([table, before[before["method"] != LEARNED]])
        table.to_csv(path, index=False, float_format="%.5g")
        print(f"{name}, {time.perf_counter() - started:.0f} s\n{shown(name, table)}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
