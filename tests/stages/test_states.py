import math
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_apparatus import RecordedProgress, SimulatedCampaign, compare_models, write_both
from simulated_machine import SIMULATED_CONDITIONS, Load

from opcost.comparing.comparison import Remark, RemarkKind
from opcost.comparing.model_result import OperatorRuns
from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import GRAPH, STATE
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import Setting
from opcost.operators.counts import CAPTURED, Case
from opcost.operators.reuse import Reuse
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.prediction.durations import IN_STATE_S
from opcost.running.campaign import Demand, campaigns_of
from opcost.running.engine import LocalExecutor
from opcost.running.plan import Work
from opcost.stages.compare import ComparingReport
from opcost.stages.measure_operators import (
    OperatorsReport,
    campaigns_in_state,
    measure_full_models,
    measure_operators,
    works_in_state,
)
from opcost.storage.configs import model_tuple
from opcost.storage.model_counts import COUNTS
from opcost.summing.in_state import H200, in_state

MB = 10**6
SPEC = TensorSpec((2_000_000,), "float32")
ADD = OperatorTuple("torch.Tensor.add", (), (SPEC, replace(SPEC, identity=1)), mode=None)
NEAR, ONE_FAR = "inputs near near", "inputs far near, code far"
WARM_TIME_S, WARM_POWER_W = 20e-6, 400.0
PROTOCOL = MeasurementProtocol(0.1, 30.0, relative_error=0.01)


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    """A model of five additions, two of which find an input and their code far."""
    found = SimulatedCampaign(
        tmp_path,
        {ADD: Load(WARM_TIME_S, WARM_POWER_W)},
        loads_in={(ADD, NEAR): Load(22e-6, 400.0), (ADD, ONE_FAR): Load(30e-6, 400.0)},
        conditions=replace(SIMULATED_CONDITIONS, execution=GRAPH, device_product="NVIDIA H200"),
    )
    config = found.add_model("a", {ADD: 5})
    found.loads = {**found.loads, model_tuple(config): Load(130e-6, 400.0)}
    counts = COUNTS.read(config)
    reuse = (*(3 * [Reuse((0, 0), None, 0, 0)]), *(2 * [Reuse((200 * MB, MB), None, 50)]))
    (count,) = counts.counts
    write_both(config, replace(counts, counts=(replace(count, reuse=reuse, memory_bytes=24 * MB, outputs=SPEC),)))
    return found


def measure(campaign: SimulatedCampaign, in_state: bool = True) -> None:
    request = replace(campaign.request(), in_state=in_state)
    (report,) = measure_operators(request, lambda _: PROTOCOL, campaign.open_apparatus, RecordedProgress())
    assert (report.failed, report.remaining) == (0, 0)


def compared(campaign: SimulatedCampaign) -> ComparingReport:
    """Measure the whole, and return the sum in state beside it."""
    measure_full_models(campaign.request(), lambda _: PROTOCOL, campaign.open_apparatus, RecordedProgress())
    (report,) = compare_models(campaign.request(), OperatorRuns(cache=STATE))
    return report


def test_a_tuple_is_measured_warm_and_in_each_state_of_its_calls(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    rows = campaign.database.operator_measurements.rows()
    assert [(row.state, row.conditions.cache) for row in rows] == [(None, "warm"), (NEAR, STATE), (ONE_FAR, STATE)]
    times_s = [row.measurement.time_s for row in rows]
    assert times_s == pytest.approx([WARM_TIME_S, 22e-6, 30e-6], rel=0.02)
    assert [row.measurement.energy_j is None for row in rows] == [False, True, True]
    built = len(campaign.built)
    measure(campaign)
    assert len(campaign.built) == built


def test_a_sum_in_state_has_the_row_of_each_call_with_the_energy_that_follows(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    (row,) = compared(campaign).comparisons
    assert row.time_s == pytest.approx(3 * 22e-6 + 2 * 30e-6, rel=0.02)
    # One input of 8 MB comes from memory and 8 MB go to it, as the whole call of 24 MB stays in the cache in its loop.
    # The results of the three others are written over at once.
    assert H200.energy is not None
    waiting_j = H200.energy.waiting_w.value * (3 * 2e-6 + 2 * 10e-6)
    memory_j = 8 * MB * (2 * H200.energy.read_j.value + 2 * H200.energy.written_j.value)
    energy_j = 5 * WARM_TIME_S * WARM_POWER_W + waiting_j + memory_j
    assert row.energy_j == pytest.approx(energy_j, rel=0.02)
    (warm,) = compare_models(campaign.request())[0].comparisons
    assert warm.time_s == pytest.approx(5 * WARM_TIME_S, rel=0.02)


def test_a_warm_sum_is_corrected_by_the_states_of_its_calls(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    (in_state,), (warm,) = compared(campaign).comparisons, compare_models(campaign.request())[0].comparisons
    assert warm.time_s == pytest.approx(5 * WARM_TIME_S, rel=0.02)
    assert in_state.correction_time_s == in_state.correction_energy_j == 0
    assert in_state.correction_time_standard_error_s == in_state.correction_energy_standard_error_j == 0
    assert warm.time_s + warm.correction_time_s == pytest.approx(in_state.time_s, rel=1e-9)
    assert warm.energy_j + warm.correction_energy_j == pytest.approx(in_state.energy_j, rel=1e-9)
    error_j = math.hypot(warm.energy_standard_error_j, warm.correction_energy_standard_error_j)
    assert error_j == pytest.approx(in_state.energy_standard_error_j, rel=1e-9)
    assert str(Remark(RemarkKind.CORRECTED_BY_STATES)) in warm.remarks


def test_calls_share_the_errors_of_their_warm_row_and_of_the_card(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    (row,) = compared(campaign).comparisons
    energy = H200.energy
    assert energy is not None
    waiting_j = energy.waiting_w.standard_error * (3 * 2e-6 + 2 * 10e-6)
    memory_j = 2 * 8 * MB * energy.read_j.standard_error, 2 * 8 * MB * energy.written_j.standard_error
    warm = campaign.database.operator_measurements.rows()[0].measurement
    assert warm.energy_standard_error_j is not None
    expected_j = math.hypot(waiting_j, *memory_j, 5 * warm.energy_standard_error_j)
    assert row.energy_standard_error_j == pytest.approx(expected_j, rel=0.02)


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_launches_that_stay_in_the_cache_take_no_time_from_memory(campaign: SimulatedCampaign, ratio: float) -> None:
    measure(campaign)
    warm, near, _ = campaign.database.operator_measurements.rows()
    measured = replace(near, measurement=replace(near.measurement, far_launches_s=1e-6))
    (count,) = COUNTS.read(campaign.request().models()[0]).counts
    case = Case(ADD, state=NEAR, far_launches_ratio=ratio, counted=count)
    row, added = in_state(measured, warm, case)
    assert row.measurement.time_s == pytest.approx(22e-6 - (1 - ratio) * 1e-6, rel=0.02)
    assert added.time_s == pytest.approx(row.measurement.time_s - warm.measurement.time_s)
    far, _ = in_state(measured, warm, replace(case, far_launches_ratio=1.0))
    assert H200.energy is not None
    saved_j = (1 - ratio) * 1e-6 * H200.energy.waiting_w.value
    assert far.measurement.energy_j - row.measurement.energy_j == pytest.approx(saved_j)


def test_the_energy_that_a_state_adds_is_unknown_on_other_cards(campaign: SimulatedCampaign) -> None:
    campaign.conditions = replace(campaign.conditions, device_product="NVIDIA A100")
    measure(campaign)
    (row,) = compared(campaign).comparisons
    assert row.time_s == pytest.approx(3 * 22e-6 + 2 * 30e-6, rel=0.02)
    assert row.energy_j is None


def test_a_plan_has_the_states_and_a_state_that_fails_is_reported(campaign: SimulatedCampaign) -> None:
    request = replace(campaign.request(), in_state=True)

    def report(dry_run: bool) -> OperatorsReport:
        one = replace(request, dry_run=dry_run)
        (found,) = measure_operators(one, lambda _: PROTOCOL, campaign.open_apparatus, RecordedProgress())
        return found

    plan = report(dry_run=True)
    assert (plan.wanted, plan.remaining) == (3, 3)
    assert plan.expected_s > 2 * IN_STATE_S

    def fail(_: OperatorTuple) -> None:
        if campaign.settings[-1].cache == STATE:
            raise CannotMeasureError("no graph")

    campaign.before = fail
    failed = report(dry_run=False)
    assert (failed.wanted, failed.measured, failed.failed, failed.remaining) == (3, 1, 2, 2)
    assert failed.reasons == ("no graph",)
    campaign.before = lambda _: None
    assert (report(dry_run=False).remaining, report(dry_run=True).remaining) == (0, 0)


@pytest.mark.parametrize("has_distances", [True, False])
def test_a_call_whose_state_is_not_measured_costs_what_it_costs_warm_and_it_is_said(
    campaign: SimulatedCampaign, has_distances: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if not has_distances:
        (config,) = campaign.request().folders.configs(["a"])
        counts = COUNTS.read(config)
        write_both(config, replace(counts, counts=tuple(replace(one, reuse=()) for one in counts.counts)))
    measure(campaign, in_state=not has_distances)
    assert ("counted without reuse distances" in caplog.text) is not has_distances
    report = compared(campaign)
    assert report.comparisons[0].time_s == pytest.approx(5 * WARM_TIME_S, rel=0.02)
    assert report.comparisons[0].correction_time_s is None
    assert RemarkKind.NOT_IN_STATE in [remark.kind for remark in report.remarks[0]]


def test_a_model_is_done_as_soon_as_its_states_are_tried(campaign: SimulatedCampaign) -> None:
    (config,) = campaign.request().folders.configs(["a"])
    second = campaign.add_model("b", {ADD: 5})
    campaign.loads = {**campaign.loads, model_tuple(second): Load(130e-6, 400.0)}
    counts = COUNTS.read(config)
    write_both(second, replace(counts, model=model_tuple(second)))
    full = MeasurementProtocol(0.1, 30.0)

    def stop(_: OperatorTuple) -> None:
        if len(campaign.built) == 2:
            raise KeyboardInterrupt

    campaign.before = stop
    request = replace(campaign.request(), in_state=True)
    with pytest.raises(KeyboardInterrupt):
        measure_operators(request, lambda _: full, campaign.open_apparatus, RecordedProgress())
    assert [one.done for one in campaign.request().folders.configs(["a", "b"])] == [False, False]
    campaign.before = lambda _: None
    reports = measure_operators(request, lambda _: full, campaign.open_apparatus, RecordedProgress())
    assert [(one.remaining, one.done) for one in reports] == [(0, True), (0, True)]
    assert [one.done for one in campaign.request().folders.configs(["a", "b"])] == [True, True]


def test_a_plan_of_states_alone_has_the_time_to_start(campaign: SimulatedCampaign) -> None:
    measure(campaign, in_state=False)
    request = replace(campaign.request(), in_state=True, dry_run=True)
    (plan,) = measure_operators(request, lambda _: PROTOCOL, campaign.open_apparatus, RecordedProgress())
    assert plan.remaining == 2
    assert plan.besides_parts_s["start"] > 0


def test_a_state_is_measured_on_the_board_of_its_warm_row(campaign: SimulatedCampaign) -> None:
    """The energy follows from that row, and boards differ."""
    measure(campaign, in_state=False)
    own, other = "simulated-0", "another board"
    (config,) = campaign.request().folders.configs(["a"])
    counts = COUNTS.read(config)
    cases = tuple(Case(count.operator) for count in counts.counts)
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        executor = LocalExecutor(bench)
        (worker,) = executor.workers
        demand = Demand((), lambda _: PROTOCOL, campaign.database, campaign.database.operator_measurements)
        models = [(Work("a", Setting(), cases), counts)]
        for boards, expected in (((own, other), own), ((None, other), None), ((own,), None)):
            executor.workers = tuple(replace(worker, board=board) for board in boards)
            warm = campaigns_of(executor, replace(demand, works=[work for work, _ in models]))
            in_state = works_in_state(executor, demand, models, CAPTURED)
            (planned,) = campaigns_in_state(executor, demand, in_state, warm).values()
            assert {item.board for item in planned.plan.items} == {expected}
            assert planned.number == 2
