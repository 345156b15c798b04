"""Expected durations of measurements: the declared truth of the simulated machine, and bounds."""

import importlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from committed_tables import committed, of_boards
from hypothesis import given
from hypothesis import strategies as st
from simulated_machine import Device, Load, SimulatedMachine, simulated_row

from opcost.measuring.conditions import EAGER, EXECUTIONS, GRAPH
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MeasurementProtocol, protocol_for
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import tuple_key
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.prediction.durations import (
    MODEL_BUILDING_S,
    OPERATOR_BUILDING_S,
    PRECISE_AT,
    PRECISE_EXTRA_S,
    SECONDS_PER_PARAMETER,
    UNKNOWN_SIZE,
    ExpectedTimes,
    Size,
    measured_durations,
    run_s,
)
from opcost.running.expected_times import sizes_in

RELU = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((4,), "float32"),))
SECOND = MeasurementProtocol(warm_up_s=0.5, loop_s=1.0)
PRECISE = protocol_for(True, relative_error=0.01)
PROTOCOLS = (SECOND, PRECISE, protocol_for(False), protocol_for(True, loop_s=3.0))


@pytest.mark.parametrize("time_s", [1e-5, 0.002, 0.03, 0.2, 2.0, 100.0])
@pytest.mark.parametrize("protocol", [SECOND, protocol_for(True, loop_s=3.0), protocol_for(False, loop_s=0.5)])
def test_a_run_takes_as_long_as_on_a_machine_of_declared_times(time_s: float, protocol: MeasurementProtocol) -> None:
    machine = SimulatedMachine(Load(time_s=time_s), device=Device(), seed=1)
    begin_s = machine.read().monotonic_s
    measure(machine, machine.instruments(), protocol)
    taken_s = machine.read().monotonic_s - begin_s
    expected_s = run_s(time_s, GRAPH, protocol, "cpu")
    # The simulated meter idles before and after; and the first chunks of a warm-up are short.
    assert expected_s == pytest.approx(taken_s - 0.6, rel=0.1, abs=0.25)


def test_an_item_of_two_seconds_cannot_end_in_half_a_second() -> None:
    on_a_cpu = ExpectedTimes(replace(simulated_row(RELU).conditions, device_type="cpu"), (), {})
    assert on_a_cpu.attempt_s(2.0, UNKNOWN_SIZE, EAGER, protocol_for(False, loop_s=0.5)) > 5 * 2.0


SIZES = st.builds(Size, st.integers(0, 10**16), st.integers(0, 10**13), st.integers(0, 10**10))


@given(SIZES, SIZES, st.sampled_from(("cuda", "cpu")), st.sampled_from(EXECUTIONS), st.booleans(), st.data())
def test_durations_are_positive_finite_and_grow_with_flop_and_bytes(
    size: Size, more: Size, device_type: str, execution: str, is_model: bool, data: st.DataObject
) -> None:
    protocol = data.draw(st.sampled_from(PROTOCOLS))
    conditions = replace(simulated_row(RELU).conditions, device_type=device_type)
    larger = Size(size.flop + more.flop, size.memory_bytes + more.memory_bytes, size.parameters + more.parameters)
    expected = ExpectedTimes(conditions, (), {}, is_model)
    times_s = [expected.unmeasured_s(one, execution, protocol) for one in (size, larger)]
    assert 0 < times_s[0] <= times_s[1] < float("inf")


def rows(walls_s: Sequence[float], time_s: float = 1e-4, relative_error: float | None = 0.01) -> list[MeasurementRow]:
    """Return consecutive rows of one board that took these times, after a first one."""
    first = simulated_row(RELU)
    end = datetime(2026, 11, 23, tzinfo=timezone.utc)
    found = []
    for wall_s in (0.0, *walls_s):
        end += timedelta(seconds=wall_s)
        measurement = replace(
            first.measurement, time_s=time_s, loop_time_s=0.5, ended_at=end.isoformat(timespec="milliseconds")
        )
        circumstances = replace(
            first.circumstances, warm_up_s=0.1, loop_s=None if relative_error else 0.5, relative_error=relative_error
        )
        conditions = replace(first.conditions, execution=GRAPH)
        found.append(replace(first, measurement=measurement, circumstances=circumstances, conditions=conditions))
    return found


def expected_s(known: list[MeasurementRow], protocol: MeasurementProtocol = PRECISE) -> float:
    return ExpectedTimes(simulated_row(RELU).conditions, known, {}).unmeasured_s(UNKNOWN_SIZE, GRAPH, protocol, 1e-4)


@pytest.mark.parametrize("relative_error", [None, 0.01])
def test_durations_follow_the_time_that_rows_took_altogether(relative_error: float | None) -> None:
    protocol = MeasurementProtocol(0.1, 0.5 if relative_error is None else 30.0, relative_error)
    assert expected_s(rows([2.0] * 200, relative_error=relative_error), protocol) == pytest.approx(2.0, rel=0.05)


def test_the_time_between_two_campaigns_is_no_measurement() -> None:
    assert expected_s(rows([3600.0] * 5)) == expected_s([])


def test_a_higher_precision_takes_no_less_time() -> None:
    expected = ExpectedTimes(simulated_row(RELU).conditions, (), {})
    errors = (0.1, 0.05, 0.02, 0.01, 0.005, 0.001)
    for execution in EXECUTIONS:
        protocols = [protocol_for(True, relative_error=error) for error in errors]
        times_s = [expected.attempt_s(1e-4, UNKNOWN_SIZE, execution, one) for one in protocols]
        assert times_s == sorted(times_s)
        assert times_s[-1] < 31


# Expected durations against the campaigns of the committed rows, each board held out, and the fitted constants


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


@pytest.mark.second_tier
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


@pytest.mark.second_tier
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


@pytest.mark.second_tier
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
