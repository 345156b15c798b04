"""Expected durations against the campaigns of the committed rows, each board held out, and the fitted constants."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from committed_tables import committed, of_boards

from opcost.measuring.conditions import GRAPH
from opcost.measuring.protocol import protocol_for
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import tuple_key
from opcost.prediction.durations import (
    MODEL_BUILDING_S,
    OPERATOR_BUILDING_S,
    PRECISE_AT,
    PRECISE_EXTRA_S,
    SECONDS_PER_PARAMETER,
    ExpectedTimes,
    measured_durations,
)
from opcost.running.expected_times import sizes_in

ROOT = Path(__file__).parents[2]
COMMITTED = committed()


def durations(rows: list[MeasurementRow], are_models: bool) -> list[tuple[float, str, float, float]]:
    """Return actual duration, key of the tuple, warm-up and actual loop of measurements in graphs."""
    graphs = [row for row in rows if row.conditions.execution == GRAPH]
    graphs.sort(key=lambda row: row.measurement.ended_at)
    found = []
    for row, before in zip(graphs[1:], graphs, strict=False):
        for actual_s, _, protocol in measured_durations([before, row], are_models):
            found.append((actual_s, tuple_key(row.key), protocol.warm_up_s, row.measurement.loop_time_s))
    return found


def test_campaigns_took_as_long_as_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    benchmark = importlib.import_module("expected_durations")
    models, _ = benchmark.compared(COMMITTED, are_models=True)
    # A whole between operators waited for its weights to be measured from memory.
    models = models[(models.measurements >= 5) & (models.protocol == "a loop of 3 s")]
    assert len(models) >= 8
    assert models["expected / actual"].between(0.9, 1.1).all()
    operators, items = benchmark.compared(COMMITTED, are_models=False)
    large = operators[(operators.execution == GRAPH) & (operators.measurements >= 50)]
    assert len(large) >= 14
    assert large["expected / actual"].between(0.55, 1.65).all()
    assert large["expected (s)"].sum() == pytest.approx(large["actual (s)"].sum(), rel=0.05)
    assert items[items.execution == GRAPH].ratio.median() < 1.5


def test_operators_of_unmeasured_models_took_as_long_as_expected_on_a_known_card_and_on_another() -> None:
    protocol, sizes = protocol_for(is_gpu=True, relative_error=PRECISE_AT), sizes_in(COMMITTED.model_operators)
    ratios = {}
    boards = {
        "h100": of_boards("72a5").operator_measurements.rows(),
        "h200": of_boards("831e").operator_measurements.rows(),
    }
    # The rows that were known when these were measured.
    first = min(row.measurement.started_at for rows in boards.values() for row in rows)
    known = [row for row in COMMITTED.operator_measurements.rows() if row.measurement.started_at < first]
    for card, rows in boards.items():
        expected = ExpectedTimes(rows[0].conditions, known, sizes)
        expected_s = sum(expected.unmeasured_s(sizes[tuple_key(row.key)], GRAPH, protocol) for row in rows)
        ratios[card] = sum(row.step_times.taken_s or 0.0 for row in rows) / expected_s
    assert ratios == pytest.approx({"h200": 0.94, "h100": 1.0}, abs=0.05)


def test_the_time_to_build_is_that_of_the_rows() -> None:
    sizes = sizes_in(COMMITTED.model_operators)
    operators = durations(COMMITTED.operator_measurements.rows(), are_models=False)
    building_s = [
        actual_s - warm_up_s - loop_s
        for actual_s, key, warm_up_s, loop_s in operators
        if key in sizes and sizes[key].flop
    ]
    assert np.median(building_s) == pytest.approx(OPERATOR_BUILDING_S, abs=0.06)
    extra_s = np.mean([loop_s - 0.2 for _, _, warm_up_s, loop_s in operators if warm_up_s < 1])
    assert extra_s == pytest.approx(PRECISE_EXTRA_S[GRAPH], abs=0.02)
    wholes = [row for row in COMMITTED.full_model_measurements.rows() if row.circumstances.loop_s is not None]
    models = durations(wholes, are_models=True)
    parameters = np.array([(1.0, sizes[key].parameters if key in sizes else 0) for _, key, _, _ in models])
    spent_s = np.array([actual_s - warm_up_s - loop_s for actual_s, _, warm_up_s, loop_s in models])
    # Without the first model of a process, which loads libraries: it takes seconds longer.
    later = spent_s < 5.0
    base_s, per_parameter_s = np.linalg.lstsq(parameters[later], spent_s[later], rcond=None)[0]
    assert base_s == pytest.approx(MODEL_BUILDING_S, abs=0.15)
    assert per_parameter_s == pytest.approx(SECONDS_PER_PARAMETER, rel=0.3)
