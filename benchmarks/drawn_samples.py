"""Samples of the base, of two drawn lists of operator tuples, and of models that were measured later"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pandas as pd
from claim_tables import committed, usual_conditions

from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import OperatorCount
from opcost.operators.keys import tuple_key
from opcost.operators.tuples import META
from opcost.prediction.fitted import IntArray
from opcost.prediction.samples import Samples, cases_of
from opcost.running.request import Request
from opcost.running.shipped_counts import counts_in
from opcost.stages.ranking_data import CountedModel, RankingData, read_ranking_data
from opcost.stages.trained import TrainingData, Whole, training_data
from opcost.storage.database import Database
from opcost.storage.grid_files import GRID_NAME, read_grid
from opcost.summing.index import Measurements
from opcost.torch_backend.grid_counts import count_grid

FOLDER = Path("docs", "data", "prediction")
LATER_MODELS = FOLDER / "fourteen_later_wholes.csv"
RANDOM, LEAST_CERTAIN, AS_LONG = "random", "least certain", "least certain, as long"
LISTS = {RANDOM: FOLDER / "drawn_random", LEAST_CERTAIN: FOLDER / "drawn_least_certain"}


@dataclass(frozen=True)
class DrawnList:
    """The first tuples of a drawn list that were measured: their rows, and their counts by key, in the list's order."""

    rows: Sequence[MeasurementRow]
    counts: Mapping[str, OperatorCount]

    @property
    def measured_s(self) -> float:
        """The time of all measurements in s, without the start."""
        return sum(row.step_times.taken_s or 0.0 for row in self.rows)

    def within(self, limit_s: float) -> DrawnList:
        """Return the first tuples whose measurements took no longer together."""
        ends_s = accumulate(self._of({key}).measured_s for key in self.counts)
        return self._of({key for key, end_s in zip(self.counts, ends_s, strict=True) if end_s <= limit_s})

    def _of(self, keys: Collection[str]) -> DrawnList:
        rows = [row for row in self.rows if tuple_key(row.key) in keys]
        return DrawnList(rows, {key: count for key, count in self.counts.items() if key in keys})


def read_list(folder: Path) -> DrawnList:
    """Return the tuples of a list that its own campaign measured."""
    rows = Database(folder).operator_measurements.rows()
    measured = {tuple_key(row.key) for row in rows}
    counts, _ = count_grid(read_grid(folder / GRID_NAME).grid, META)
    keys = {count.operator.key: count for count in counts.counts}
    return DrawnList(rows, {key: count for key, count in keys.items() if key in measured})


@dataclass(frozen=True)
class DrawnSamples:
    """All samples, with the places of the base's, of each list's, and of those that are tested.

    Families and wholes in ``data`` are those of the base's models, ``later`` the wholes of the others. ``is_covered``
    is of the tested ones: their FLOPs and bytes are between those that the lists have of the kind. ``measured_s`` is
    the time in s that the measurements of each list took.
    """

    data: TrainingData
    later: Sequence[Whole]
    base: IntArray
    lists: Mapping[str, IntArray]
    measured_s: Mapping[str, float]
    tested: IntArray
    is_covered: IntArray


def drawn_samples(root: Path) -> DrawnSamples:
    """Return the samples of a copy of the repository, under the conditions that most of its rows have.

    Tested are the tuples that only later models have, without those of the same work as one that is learned from.

    Raises:
        SystemExit: its database does not have the later models.
    """
    request = Request((), root / "measurements", committed(root))
    read = read_ranking_data(request, request.configs(), ())
    conditions = usual_conditions(read.operator_rows)
    drawn = {name: read_list(root / folder) for name, folder in LISTS.items()}
    everything = _with_lists(read, drawn.values())
    names = set(pd.read_csv(root / LATER_MODELS)["model"])
    data = training_data(_of_models(everything, lambda model: not _is_named(model, names)), conditions)
    later = training_data(_of_models(everything, lambda model: _is_named(model, names)), conditions).wholes
    if not later:
        raise SystemExit(f"{root / 'database'}: no rows of the models in {LATER_MODELS}; merge them")
    cases = cases_of(everything.operator_rows, everything.operator_counts, conditions)
    keys = [tuple_key(case) for case in cases]
    of_models, only_later = _of_models_and_of_later_ones(request, names)
    drawn[AS_LONG] = drawn[LEAST_CERTAIN].within(drawn[RANDOM].measured_s)
    lists = {name: _places(keys, one.counts) for name, one in drawn.items()}
    of_lists = np.unique(np.concatenate([*lists.values()]))
    base = np.setdiff1d(_places(keys, of_models - only_later), of_lists)
    tested = _of_other_work(data.samples, _places(keys, only_later), np.concatenate([base, of_lists]))
    return DrawnSamples(
        data=data,
        later=later,
        base=base,
        lists=lists,
        measured_s={name: one.measured_s for name, one in drawn.items()},
        tested=tested,
        is_covered=are_covered(data.samples, tested, of_lists),
    )


def are_covered(samples: Samples, tested: IntArray, drawn: IntArray) -> IntArray:
    """Return whether the FLOPs and bytes of each tested sample are between those of drawn ones of its kind."""
    sizes = samples.raw[:, :2]
    found = np.zeros(len(tested), dtype=bool)
    for number, place in enumerate(tested):
        own = sizes[[other for other in drawn if samples.kinds[other] == samples.kinds[place]]]
        found[number] = len(own) and np.all((own.min(axis=0) <= sizes[place]) & (sizes[place] <= own.max(axis=0)))
    return found


def _with_lists(read: RankingData, lists: Iterable[DrawnList]) -> RankingData:
    """Return the data with the rows and counts of lists that it does not have."""
    known = {row.key for row in read.operator_rows}
    new = {row.key: row for one in lists for row in one.rows if row.key not in known}
    rows = [*read.operator_rows, *new.values()]
    counts = {key: count for one in lists for key, count in one.counts.items()}
    return replace(
        read, operator_rows=rows, operator_counts={**counts, **read.operator_counts}, measurements=Measurements(rows)
    )


def _of_models(data: RankingData, is_wanted: Callable[[CountedModel], bool]) -> RankingData:
    return replace(data, models=tuple(model for model in data.models if is_wanted(model)))


def _is_named(model: CountedModel, names: Collection[str]) -> bool:
    return model.counts is not None and model.counts.model.short_name in names


def _of_models_and_of_later_ones(request: Request, names: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the keys of the tuples that models have, and of those that only models of these names have."""
    of_named: set[str] = set()
    of_others: set[str] = set()
    counts = (one.counts for one in counts_in(request.database.model_operators).values())
    for one in (model for model in counts if not model.model.is_grid):
        keys = of_named if one.model.short_name in names else of_others
        keys.update(count.operator.key for count in one.counts)
    return of_named | of_others, of_named - of_others


def _places(keys: Sequence[str], wanted: Collection[str]) -> IntArray:
    return np.array([place for place, key in enumerate(keys) if key in wanted], dtype=int)


def _of_other_work(samples: Samples, places: IntArray, learned: IntArray) -> IntArray:
    """Return the places of samples that do not do the same work as any that is learned from."""
    known = {samples.shapes[place] for place in learned}
    return np.array([place for place in places if samples.shapes[place] not in known], dtype=int)
