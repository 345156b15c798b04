"""The benchmark of drawn lists: what is learned from, what is tested, and how lists are compared."""

from __future__ import annotations

import importlib
from dataclasses import astuple, fields
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from opcost.operators.keys import tuple_key
from opcost.prediction.samples import Boards, Samples
from opcost.prediction.sum_errors import ModelCalls
from opcost.stages.trained import TrainingData, Whole

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("drawn_lists")


@pytest.fixture
def source(script: ModuleType) -> ModuleType:
    return importlib.import_module("drawn_samples")


def samples_of_sizes(*sizes: tuple[str, float, float]) -> Samples:
    return Samples(
        raw=np.array([size[1:] for size in sizes]),
        kinds=tuple(kind for kind, _, _ in sizes),
        shapes=tuple(map(str, range(len(sizes)))),
        families=(frozenset(),) * len(sizes),
        times_s=np.ones(len(sizes)),
        energies_j=np.ones(len(sizes)),
        boards=Boards({}, 0.0),
    )


def test_covered_tuples_are_within_the_sizes_of_drawn_ones_of_their_kind(source: ModuleType) -> None:
    samples = samples_of_sizes(("a", 1, 1), ("a", 9, 9), ("b", 5, 5), ("a", 3, 3), ("a", 3, 10), ("b", 3, 3))
    assert source.are_covered(samples, np.array([3, 4, 5]), np.array([0, 1, 2])).tolist() == [True, False, False]


def test_a_shorter_list_has_the_first_tuples_that_fit_in_the_time(source: ModuleType) -> None:
    drawn = source.read_list(ROOT / source.LISTS[source.LEAST_CERTAIN])
    assert {tuple_key(row.key) for row in drawn.rows} == set(drawn.counts)
    shorter = drawn.within(drawn.measured_s / 2)
    assert list(shorter.counts) == list(drawn.counts)[: len(shorter.counts)]
    assert 0.4 * drawn.measured_s < shorter.measured_s <= drawn.measured_s / 2
    assert len(drawn.within(drawn.measured_s + 1).counts) == len(drawn.counts) == 81


def test_a_base_is_thinned_by_models_or_tuples_and_never_has_other_samples(
    script: ModuleType, source: ModuleType
) -> None:
    samples = samples_of_sizes(*[("a", 1, 1)] * 40)
    wholes = [
        Whole(str(number), ModelCalls("f", (number, number + 10, 30 + number), (1, 1, 1)), 1, 1, 0, 0)
        for number in range(10)
    ]
    drawn = source.DrawnSamples(
        TrainingData(samples, [], wholes), (), np.arange(30), {}, {}, np.arange(35, 40), np.zeros(5, dtype=bool)
    )
    whole, models, tuples = (
        script.thinned(drawn, script.Point(by, ratio, 1, script.NO_LIST))
        for by, ratio in ((script.WHOLE_BASE, 1.0), (script.MODELS, 0.5), (script.TUPLES, 0.5))
    )
    assert whole.tolist() == list(range(30))
    assert len(models) == 10
    assert {place % 10 for place in models} == set(models[:5])
    assert len(tuples) == len(set(tuples)) == 15
    assert max(models.max(), tuples.max()) < 30


def test_every_point_of_the_committed_table_is_computed_and_no_other(script: ModuleType) -> None:
    table = pd.read_csv(ROOT / "docs" / "data" / "prediction" / "drawn_lists.csv", keep_default_na=False)
    columns = [field.name for field in fields(script.Point)]
    assert [*dict.fromkeys(table[columns].itertuples(index=False, name=None))] == [*map(astuple, script.points())]


def test_figures_have_medians_and_errors_of_all_costs_together(script: ModuleType) -> None:
    columns = {
        cost: {cost: np.log([1.1, 0.5]), f"{cost} measured": [8, 2], f"{cost} half": [0.2, 0.2]}
        for cost in ("time", "energy")
    }
    found = script.figures(pd.DataFrame({**columns["time"], **columns["energy"]}))
    assert (found["time_of_total"], found["energy_worst"]) == (pytest.approx(0.18), pytest.approx(0.5))
    assert (found["time_covered"], found["time_median"]) == (0.5, pytest.approx(0.3))


def test_lists_are_compared_on_the_same_base(script: ModuleType) -> None:
    rows = [
        {"tested": "tuples", "thinned_by": "models", "base_ratio": 0.1, "draw": draw, "added": added, "error": error}
        for draw, added, error in ((0, "none", 0.5), (0, "random", 0.4), (1, "none", 0.2), (1, "random", 0.3))
    ]
    (changes,) = script.gains(pd.DataFrame(rows), "error")["random"].to_numpy()
    assert changes == pytest.approx([0.0, -0.1, 0.1])


def test_no_work_of_a_later_model_alone_is_learned_from(
    source: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = tmp_path / "later.csv"
    monkeypatch.setattr(source, "LATER_MODELS", table)
    table.write_text("model\nregnet_y_8gf\nvgg19\n", encoding="utf-8")
    found = source.drawn_samples(ROOT)
    names = [whole.name.partition("_32x3")[0] for whole in found.later]
    assert sorted(names) == ["regnet_y_8gf", "vgg19"]
    assert not {whole.name for whole in found.later} & {whole.name for whole in found.data.wholes}
    learned = {*found.base, *(place for own in found.lists.values() for place in own)}
    shapes = {found.data.samples.shapes[place] for place in learned}
    assert len(found.tested) > 10
    assert shapes.isdisjoint(found.data.samples.shapes[place] for place in found.tested)
    assert not any(learned.isdisjoint(whole.calls.places) for whole in found.data.wholes)
    assert all(set(found.base).isdisjoint(own) for own in found.lists.values())
    assert found.measured_s[source.AS_LONG] <= found.measured_s[source.RANDOM] < found.measured_s[source.LEAST_CERTAIN]
    table.write_text("model\nunmeasured\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="no rows of the models in .*later.csv"):
        source.drawn_samples(ROOT)
