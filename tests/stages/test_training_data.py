"""Training data: the rows under some conditions, and a fingerprint that depends on no others."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated_apparatus import RecordedProgress

from opcost.comparing.ranking import ASSUMED_SUM_ERRORS, sum_errors
from opcost.measuring.conditions import Conditions
from opcost.operators.training import Training
from opcost.operators.tuples import Phase
from opcost.running.request import Request
from opcost.stages import predict as trained_module
from opcost.stages.predict import Ground, training_data, training_fingerprint
from opcost.stages.ranking_data import read_ranking_data
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database

ROOT = Path(__file__).parents[2]
TABLES = ("operator_measurements", "full_model_measurements", "model_operators", "calls_in_chains")
MODEL = b",resnet34_"
LEARNED, OTHERS = b"-b5778c1496bbb68b", b"-95ae9a2e0164342e"
"""The ends of keys under two sets of conditions."""


def committed(name: str) -> list[bytes]:
    return (ROOT / "database" / f"{name}.csv").read_bytes().splitlines(keepends=True)


def key_of(line: bytes) -> bytes:
    return line.partition(b",")[0]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """Return the rows of one model under two sets of conditions, and all chains."""
    header, *counts = committed("model_operators")
    own = [line for line in counts if MODEL in line]
    operators = {line.split(b",", 2)[1].partition(b"-")[0] for line in own}
    (tmp_path / "model_operators.csv").write_bytes(b"".join([header, *own]))
    for name in TABLES[:2]:
        header, *rows = committed(name)
        wanted = [line for line in rows if key_of(line).partition(b"-")[0] in operators]
        (tmp_path / f"{name}.csv").write_bytes(b"".join([header, *wanted]))
    (tmp_path / "calls_in_chains.csv").write_bytes(b"".join(committed("calls_in_chains")))
    return Database(tmp_path)


@pytest.fixture
def conditions(database: Database) -> Conditions:
    rows = database.operator_measurements.rows(lambda key: key.encode().endswith(LEARNED))
    return rows[0].conditions


def append(database: Database, name: str, lines: Iterator[bytes]) -> None:
    with (database.folder / f"{name}.csv").open("ab") as file:
        file.write(next(lines))


def test_rows_under_other_conditions_are_not_read_and_make_no_difference(
    database: Database, conditions: Conditions
) -> None:
    request = Request((), ModelFolders(database.folder / "mine", ROOT / "measurements"), database)
    configs = [config for config in request.configs() if config.name.startswith("resnet34_")]
    all_rows = read_ranking_data(request, configs, ())
    restricted = read_ranking_data(request, configs, (), under=[conditions])
    assert {row.conditions for row in restricted.operator_rows} == {conditions}
    assert len(all_rows.operator_rows) > len(restricted.operator_rows) > 20
    found = training_data(read_ranking_data(request, configs, (), under=[conditions]), conditions)
    expected = training_data(all_rows, conditions)
    assert found.samples.kinds == expected.samples.kinds
    assert np.array_equal(found.samples.times_s, expected.samples.times_s)
    assert found.wholes == expected.wholes
    assert len(found.wholes) >= 1
    # The same errors as those that opcost show expects.
    assert found.sum_errors[Phase.INFERENCE] == sum_errors(all_rows.results(conditions))


def test_sums_of_training_steps_are_no_errors_of_inference(database: Database, conditions: Conditions) -> None:
    request = Request((), ModelFolders(database.folder / "mine", ROOT / "measurements"), database)
    configs = [config for config in request.configs() if config.name.startswith("resnet34_")]
    data = read_ranking_data(request, configs, ())
    step = Training("mse", "sgd", (), ())
    steps = [replace(model, config=replace(model.config, training=step)) for model in data.models]
    found, of_passes = (training_data(replace(data, models=tuple(own)), conditions) for own in (steps, data.models))
    assert found.sum_errors[Phase.INFERENCE] == of_passes.sum_errors[Phase.STEP] == sum_errors([])
    assert found.sum_errors[Phase.STEP] == of_passes.sum_errors[Phase.INFERENCE]
    # Their sums of predicted calls are learned from alike.
    assert found.wholes == of_passes.wholes != {}
    assert len(found.samples) == len(of_passes.samples)


def test_rows_that_are_not_learned_from_leave_the_fingerprint(database: Database, conditions: Conditions) -> None:
    """Those under other conditions, chains of another dtype, and counts of other operators."""
    before = training_fingerprint(database, [conditions])
    assert before == training_fingerprint(Database(database.folder), [conditions])
    for name in TABLES[:2]:
        append(database, name, (line for line in committed(name) if key_of(line).endswith(OTHERS)))
    append(database, "model_operators", (line for line in committed("model_operators") if b",vit_b_16_" in line))
    chains = [line for line in committed("calls_in_chains") if b"bfloat16" not in line]
    (database.folder / "calls_in_chains.csv").write_bytes(b"".join(chains))
    assert training_fingerprint(database, [conditions]) == before
    first, other = (training_fingerprint(database, [conditions], models) for models in (["a"], ["a", "b"]))
    assert first != other == training_fingerprint(database, [conditions], ["b", "a"])


def test_a_fingerprint_of_a_large_table_takes_little_memory(database: Database, conditions: Conditions) -> None:
    with database.operator_measurements.path.open("ab") as file:
        file.writelines(b"%016x%s,%s\n" % (number, OTHERS, b"x" * 1000) for number in range(20_000))
    tracemalloc.start()
    try:
        training_fingerprint(database, [conditions])
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", TABLES)
def test_a_row_that_is_learned_from_changes_it(name: str, database: Database, conditions: Conditions) -> None:
    before = training_fingerprint(database, [conditions])
    path = database.folder / f"{name}.csv"
    own = path.read_bytes().splitlines(keepends=True)
    if name == "calls_in_chains":
        # They correct its sums.
        path.unlink()
    else:
        has_conditions = name != "model_operators"
        # The first line of counts is that of the whole model.
        append(database, name, (line for line in own[2:] if not has_conditions or key_of(line).endswith(LEARNED)))
    assert training_fingerprint(database, [conditions]) != before


def test_rows_that_come_while_costs_are_learned_are_not_taken_as_learned(
    database: Database, conditions: Conditions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, before = Request((), ModelFolders(tmp_path), database), training_fingerprint(database, [conditions])

    def train(*_: object) -> Any:
        lines = (line for line in committed("operator_measurements") if key_of(line).endswith(LEARNED))
        append(database, "operator_measurements", lines)
        return "learned", {conditions.key: {Phase.STEP: ASSUMED_SUM_ERRORS}}

    monkeypatch.setattr(trained_module, "_train", train)
    monkeypatch.setattr(trained_module, "knowledge", lambda *_: None)
    ground = Ground({conditions: 1}, {})
    trained_module.trained(request, ground, conditions, tmp_path / "cache", RecordedProgress())
    assert training_fingerprint(database, [conditions]) != before
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f"learned-cuda-graph-{before}.npz"]
