"""Block 2 and the full-model script on the simulated machine: what is missing is measured, once, and kept."""

from dataclasses import replace
from pathlib import Path

import pytest
from simulated_apparatus import RecordedProgress, SimulatedCampaign, change_by_hand, write_both
from simulated_machine import RING, SIMULATED_CONDITIONS, Device, Load, MeterModel, simulated_row

from opcost.errors import CannotMeasureError, UserError
from opcost.invocation import command
from opcost.measuring.conditions import measurement_key
from opcost.measuring.flags import Flag
from opcost.measuring.protocol import FULL_LOOP_S, RETRIES, MeasurementProtocol
from opcost.measuring.record import FailureRow, MeasurementRow, is_flagged
from opcost.measuring.setting import Setting
from opcost.operators.counts import Case, OperatorCount, OperatorCounts, of_operators
from opcost.operators.model_rows import rows_of
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.operators.values import ZEROS_DATA, InputData, InputStatistics, InputValues
from opcost.prediction.durations import Size
from opcost.running import expected_times
from opcost.running.campaign import Demand, campaigns_of, outcomes
from opcost.running.engine import LocalExecutor
from opcost.running.plan import Work
from opcost.stages.measure_operators import FullModelReport, OperatorsReport, measure_full_models, measure_operators
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS

SHORT = MeasurementProtocol(warm_up_s=0.5, loop_s=1.0)
FULL = MeasurementProtocol(warm_up_s=2.0, loop_s=FULL_LOOP_S)


def operator(name: str, width: int = 4) -> OperatorTuple:
    return OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((width,), "float32"),))


RELU, GELU, SILU, LINEAR = (operator(name) for name in ("ReLU", "GELU", "SiLU", "Linear"))
MODEL = model_operator("resnet18", None, (2, 3, 8, 8))
LOADS = {
    RELU: Load(time_s=0.001, power_w=200.0),
    GELU: Load(time_s=0.002, power_w=300.0),
    SILU: Load(time_s=0.003, power_w=400.0),
    LINEAR: Load(time_s=0.004, power_w=500.0),
    MODEL: Load(time_s=0.02, power_w=450.0),
}


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    return SimulatedCampaign(tmp_path, LOADS)


def run(
    campaign: SimulatedCampaign,
    *names: str,
    protocol: MeasurementProtocol = SHORT,
    dry_run: bool = False,
    progress: RecordedProgress | None = None,
) -> list[OperatorsReport]:
    request = campaign.request(*names, dry_run=dry_run)
    return measure_operators(request, lambda _: protocol, campaign.open_apparatus, progress or RecordedProgress())


def run_full(
    campaign: SimulatedCampaign, *names: str, protocol: MeasurementProtocol = SHORT, dry_run: bool = False
) -> list[FullModelReport]:
    request = campaign.request(*names, dry_run=dry_run)
    return measure_full_models(request, lambda _: protocol, campaign.open_apparatus, RecordedProgress())


def rows(campaign: SimulatedCampaign) -> list[MeasurementRow]:
    return campaign.database.operator_measurements.rows()


def failures(campaign: SimulatedCampaign) -> list[FailureRow]:
    return campaign.database.failures.rows()


def progress_of(report: OperatorsReport) -> tuple[int, ...]:
    """Return the numbers of measurements that are wanted, found, measured, failed and remaining."""
    return report.wanted, report.found, report.measured, report.failed, report.remaining


def fail_on(*operators: OperatorTuple, error: BaseException) -> object:
    def before(candidate: OperatorTuple) -> None:
        if candidate in operators:
            raise error

    return before


# What is measured


def test_what_has_no_row_yet_comes_before_what_was_disturbed(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 1, GELU: 1, LINEAR: 1})
    run(campaign)
    relu, gelu, _ = rows(campaign)
    table = campaign.database.operator_measurements
    table.path.unlink()
    table.append(replace(relu, measurement=replace(relu.measurement, flags=(Flag.OTHER_PROCESS,))))
    table.append(gelu)
    progress = RecordedProgress()
    (report,) = run(campaign, progress=progress)
    assert [name.partition(" ")[0] for name in progress.names] == ["Linear", "ReLU"]
    assert (report.remaining, report.expected_s) == (0, 0.0)


def test_what_has_no_row_yet_comes_first_among_all_models_and_each_is_done_as_soon_as_it_is_complete(
    campaign: SimulatedCampaign,
) -> None:
    """As after many kills: repetitions for one model do not keep the next one waiting."""
    paths = [campaign.add_model("a", {RELU: 1, GELU: 1}).path]
    run(campaign, protocol=FULL)
    table = campaign.database.operator_measurements
    uneven = [replace(row, measurement=replace(row.measurement, flags=(Flag.UNEVEN,))) for row in rows(campaign)]
    table.path.write_text(table.text(uneven))
    paths[0].write_text(paths[0].read_text().replace("done: true", "done: false"))
    paths += [campaign.add_model("b", {SILU: 1}).path, campaign.add_model("c", {SILU: 1, RELU: 1}).path]
    done: list[list[str]] = []

    def before(_: object = None) -> None:
        done.append([path.parent.name for path in paths if "done: true" in path.read_text()])

    campaign.before, progress = before, RecordedProgress()
    reports = run(campaign, protocol=FULL, progress=progress)
    before()
    assert [name.partition(" ")[0] for name in progress.names] == ["SiLU", "ReLU", "GELU"]
    assert done == [[], ["b"], ["b", "c"], ["a", "b", "c"]]
    assert [progress_of(report) for report in reports] == [(2, 0, 2, 0, 0), (1, 0, 1, 0, 0), (2, 2, 0, 0, 0)]
    assert [sum(report.steps_s.values()) <= report.taken_s for report in reports] == [True, True, True]


def test_what_was_measured_on_another_board_is_measured_again_if_the_same_is_asked_for(
    campaign: SimulatedCampaign,
) -> None:
    campaign.add_model("a", {RELU: 3, GELU: 1})
    run(campaign)
    run_full(campaign)
    table = campaign.database.operator_measurements.path
    header, relu, gelu = table.read_text().splitlines()
    table.write_text(f"{header}\n{relu}\n")
    change_by_hand(table, "simulated-0", "another board")
    table.write_text(f"{table.read_text()}{gelu}\n")
    assert [report.measured for report in run(campaign)] == [0]
    request = replace(campaign.request(), same_board=True)
    (report,) = measure_operators(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    assert (report.found, report.measured) == (1, 1)
    assert [row.circumstances.device_uuid for row in rows(campaign)] == ["another board", "simulated-0", "simulated-0"]
    (whole,) = measure_full_models(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    assert not whole.newly_measured


def test_each_tuple_becomes_a_row_with_its_declared_cost_and_is_not_measured_again(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 3, GELU: 1, LINEAR: 2})
    (report,) = run(campaign)
    assert progress_of(report) == (3, 0, 3, 0, 0)
    found = rows(campaign)
    for row, measured in zip(found, (RELU, GELU, LINEAR), strict=True):
        assert row.key == measurement_key(Case(measured), SIMULATED_CONDITIONS)
        assert (row.operator, row.inputs, row.training_mode) == (measured.operator, "float32[4]", "eval")
        assert row.measurement.time_s == pytest.approx(LOADS[measured].time_s, rel=1e-9)
        assert row.measurement.energy_j == pytest.approx(LOADS[measured].energy_j, rel=0.01)
        assert row.conditions == SIMULATED_CONDITIONS
        assert (row.circumstances.warm_up_s, row.circumstances.loop_s, row.measurement.builds) == (0.5, 1.0, None)
    (report,) = run(campaign)
    assert (progress_of(report), rows(campaign)) == ((3, 3, 0, 0, 0), found)
    assert campaign.built == [RELU, GELU, LINEAR]


def test_one_bench_measures_in_several_settings(campaign: SimulatedCampaign) -> None:
    settings = [
        Setting(precision=precision, execution=execution)
        for precision, execution in (("bf16", "graph"), ("tf32", "eager"))
    ]
    works = [Work(setting.precision, setting, (Case(RELU), Case(GELU))) for setting in settings]
    demand = Demand(works, lambda _: SHORT, campaign.database, campaign.database.operator_measurements)
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        executor = LocalExecutor(bench)
        found_in_turn = list(outcomes(executor, campaigns_of(executor, demand), RecordedProgress()))
    assert [(outcome.work.name, outcome.measured) for outcome in found_in_turn] == [("bf16", 2), ("tf32", 2)]
    assert campaign.settings == [settings[0], settings[0], settings[1], settings[1]]
    found = [(row.conditions.precision, row.conditions.execution) for row in rows(campaign)]
    assert found == [("bf16", "graph")] * 2 + [("tf32", "eager")] * 2
    assert len({row.key for row in rows(campaign)}) == 4


def test_a_request_says_how_models_are_run_and_configs_their_precision(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 1})
    campaign.add_model("b", {RELU: 1}, precision="fp32")
    request = replace(campaign.request(), setting=Setting(cache="cold"))
    measure_operators(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    measure_full_models(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    found = [(row.conditions.precision, row.conditions.cache) for row in rows(campaign)]
    assert found == [("torch-default", "cold"), ("fp32", "cold")]
    assert len({row.key for row in rows(campaign)}) == 2
    assert set(campaign.settings) == {Setting(cache="cold"), Setting("fp32", cache="cold")}
    assert campaign.built == [*2 * [RELU], *6 * [MODEL]]


# Which models


def test_done_models_are_skipped_unless_a_name_or_a_glob_means_them(campaign: SimulatedCampaign) -> None:
    campaign.add_model("done_a", {RELU: 1}, done=True)
    campaign.add_model("done_b", {RELU: 1}, done=True)
    campaign.add_model("c", {GELU: 1})
    assert [report.name for report in run(campaign)] == ["c"]
    (report,) = run(campaign, "done_a")
    assert (report.measured, report.done) == (1, True)
    assert [report.name for report in run(campaign, "done*", dry_run=True)] == ["done_a", "done_b"]


@pytest.mark.parametrize("others", [0, 2])
def test_everything_done_is_nothing_to_do_and_it_is_said_how_to_measure_again(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture, others: int
) -> None:
    campaign.add_model("a", {RELU: 1}, done=True)
    for number in range(others):
        config = campaign.add_model(f"other_{number}", {RELU: 1})
        for kind in (COUNTS, FILTERED_COUNTS):
            kind.path(config).unlink()
    assert run(campaign) == []
    assert campaign.built == []
    (record,) = caplog.records
    assert record.message.startswith("nothing to do: 1 model is done (a)")
    assert "name a model to take it again" in record.message
    assert ("no other is filtered" in record.message) == bool(others)
    # The message is right: a named model is taken, and of what it has nothing is measured again.
    (first,), (second,) = run(campaign, "a"), run(campaign, "a")
    assert (first.measured, second.measured, second.found) == (1, 0, 1)


# done


def test_the_full_protocol_on_a_gpu_sets_done_and_changes_nothing_else(campaign: SimulatedCampaign) -> None:
    path = campaign.add_model("a", {RELU: 1, GELU: 2}).path
    before = path.read_bytes()
    assert run(campaign, protocol=FULL)[0].done
    after = path.read_bytes()
    assert after == before.replace(b"done: false", b"done: true") != before
    # Its tuples were there before.
    path.write_bytes(before)
    (report,) = run(campaign, protocol=FULL)
    assert (report.found, report.measured, report.done, path.read_bytes()) == (2, 0, True, after)


@pytest.mark.parametrize(
    ("device", "protocol", "dry_run"),
    [
        ("cuda:0", replace(FULL, loop_s=29.9), False),
        ("cuda:0", SHORT, False),
        ("cpu", FULL, False),
        ("cuda:0", FULL, True),
    ],
    ids=["a little short", "short", "CPU", "dry run"],
)
def test_nothing_else_sets_done(tmp_path: Path, device: str, protocol: MeasurementProtocol, dry_run: bool) -> None:
    campaign = SimulatedCampaign(tmp_path, LOADS, device=device)
    path = campaign.add_model("a", {RELU: 1}).path
    before = path.read_bytes()
    (report,) = run(campaign, protocol=protocol, dry_run=dry_run)
    assert not report.done
    assert path.read_bytes() == before


# Dry runs


def test_a_dry_run_writes_and_measures_nothing_and_says_how_long_it_takes(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 3, GELU: 1})
    campaign.add_model("b", {GELU: 5, SILU: 1})
    before = sorted(campaign.folder.rglob("*"))
    first, second = run(campaign, dry_run=True, protocol=FULL)
    item_s = FULL.warm_up_s + FULL.loop_s
    assert (first.remaining, first.expected_s) == (2, pytest.approx(2 * item_s, rel=0.03))
    assert (second.remaining, second.expected_s) == (2, pytest.approx(1 * item_s, rel=0.03))
    assert (first.taken_s, second.taken_s) == (0.0, 0.0)
    assert run_full(campaign, dry_run=True)[0].time_s is None
    assert sorted(campaign.folder.rglob("*")) == before
    assert campaign.built == []
    assert campaign.with_meter == [False, False]


@pytest.mark.parametrize("protocol", [SHORT, FULL, MeasurementProtocol(0.5, 0.5)])
def test_a_campaign_takes_as_long_as_its_dry_run_announced(tmp_path: Path, protocol: MeasurementProtocol) -> None:
    truth = {RELU: 0.0005, GELU: 0.02, SILU: 0.7, LINEAR: 5.0}
    loads = {one: Load(time_s=time_s, power_w=200.0) for one, time_s in truth.items()}
    campaign = SimulatedCampaign(tmp_path, loads)
    campaign.add_model("a", {RELU: 1, GELU: 1})
    campaign.add_model("b", {SILU: 1, LINEAR: 1})
    # Rows of another board show the time of each operator.
    run(campaign, protocol=MeasurementProtocol(0.1, 0.1))
    announced = {report.name: report.expected_s for report in run(campaign, dry_run=True, protocol=protocol)}
    begin_s = campaign.machine.read().monotonic_s
    run(campaign, protocol=protocol)
    taken_s = campaign.machine.read().monotonic_s - begin_s
    assert sum(announced.values()) == pytest.approx(taken_s, rel=0.15)
    # At least the first call, one of the warm-up and five of the loop, each of 5.7 s.
    assert announced["b"] > 7 * 5.7


@pytest.mark.parametrize(("device_type", "is_known"), [("cuda", True), ("cpu", False)])
def test_rows_of_another_gpu_say_how_long_a_call_takes_and_those_of_another_cpu_do_not(
    device_type: str, is_known: bool
) -> None:
    measured = replace(SIMULATED_CONDITIONS, device_type=device_type, cpu_threads=None)
    row = simulated_row(RELU, Load(time_s=5.0, power_w=200.0), conditions=measured)
    for product, expected in ((measured.device_product, True), ("another", is_known)):
        conditions = replace(measured, device_product=product)
        times = expected_times.ExpectedTimes(conditions, [row], {})
        assert (times.item_s(Case(RELU), conditions, SHORT) > 8 * 5.0) == expected


def test_sizes_of_counted_models_have_their_weights(campaign: SimulatedCampaign) -> None:
    count = OperatorCount(RELU, 2, 10, 20)
    counts = OperatorCounts(MODEL, (count,), 20, 40, 30, "2.11.0", "cpu")
    for row in rows_of("a", counts, "2026-11-28T00:00:00+00:00"):
        campaign.database.model_operators.append(row)
    table, expected = campaign.database.model_operators, {MODEL.key: Size(20, 40, 30), RELU.key: Size(10, 20, 0)}
    assert expected_times.sizes_in(table) == expected_times.sizes_in(table, of_operators([MODEL])) == expected
    assert expected_times.sizes_in(table, of_operators([RELU])) == {}


def test_a_dry_run_says_why_what_is_missing_is_to_be_measured(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 3, GELU: 1})
    run(campaign)
    run_full(campaign)
    campaign.add_model("b", {GELU: 5, SILU: 1})
    assert [report.planned for report in run(campaign, dry_run=True)] == [{}, {"missing": 1}]
    assert [report.planned for report in run(campaign, dry_run=True, protocol=FULL)] == [
        {"shorter or less precise than asked": 2},
        {"missing": 1},
    ]
    assert run_full(campaign, dry_run=True, protocol=FULL)[0].planned == {"shorter or less precise than asked": 1}


# Stopped and started again


def test_a_stopped_campaign_goes_on_where_it_was(campaign: SimulatedCampaign) -> None:
    complete = campaign.add_model("a", {RELU: 1}).path
    incomplete = campaign.add_model("b", {RELU: 3, GELU: 1, SILU: 1, LINEAR: 2}).path
    campaign.before = fail_on(SILU, error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(campaign, protocol=FULL)
    kept = rows(campaign)
    assert [row.operator for row in kept] == ["torch.nn.ReLU", "torch.nn.GELU"]
    assert ["done: true" in path.read_text() for path in (complete, incomplete)] == [True, False]
    campaign.before = lambda _: None
    (report,) = run(campaign, protocol=FULL)
    assert progress_of(report) == (4, 2, 2, 0, 0)
    assert rows(campaign)[:2] == kept
    assert len({row.key for row in rows(campaign)}) == len(rows(campaign)) == 4


def test_a_flag_is_explained_once_and_named_in_each_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opcost.running.campaign.quality_flags", lambda _: (Flag.METERS_DISAGREE,))
    campaign = SimulatedCampaign(tmp_path, LOADS)
    campaign.add_model("a", {RELU: 1, GELU: 1})
    progress = RecordedProgress()
    run(campaign, progress=progress)
    assert [result.endswith("mJ  (meters-disagree)") for result in progress.results] == [True, True]
    assert [record.getMessage() for record in caplog.records].count("(meters-disagree): meters disagree") == 1


def test_a_seed_shuffles_the_operators_of_a_model_and_stands_in_the_rows(tmp_path: Path) -> None:
    operators = [operator("ReLU", width) for width in range(1, 13)]
    orders = []
    for name, seed in (("a", 7), ("b", 7), ("c", 8), ("d", None)):
        (tmp_path / name).mkdir()
        campaign = SimulatedCampaign(tmp_path / name, dict.fromkeys(operators, Load(time_s=0.001)))
        campaign.add_model("a", dict.fromkeys(operators, 1))
        run(campaign, protocol=replace(SHORT, order_seed=seed))
        assert {row.order_seed for row in rows(campaign)} == {seed}
        orders.append([row.inputs for row in rows(campaign)])
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == sorted(orders[2]) == sorted(orders[3])
    assert len({tuple(order) for order in orders}) == 3
    assert orders[3] == [str(candidate.inputs[0]) for candidate in operators]


def test_a_sentinel_is_measured_first_and_last_and_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("opcost.running.engine.EVERY", 2)
    campaign = SimulatedCampaign(tmp_path, LOADS, drift_case=Case(LINEAR))
    campaign.add_model("a", {RELU: 1, GELU: 1, SILU: 1})
    (report,) = run(campaign)
    assert [built.short_name for built in campaign.built] == "Linear ReLU GELU Linear SiLU Linear".split()
    assert [row.operator for row in campaign.database.drift_checks.rows()] == [LINEAR.operator] * 3
    assert len(rows(campaign)) == 3
    assert min(report.besides_parts_s["start"], report.besides_parts_s["drift_checks"]) > 0
    assert sum(report.besides_parts_s.values()) == pytest.approx(report.besides_s)
    assert "drift check, 3 measurements: " in caplog.text
    campaign.built.clear()
    run(campaign)
    assert campaign.built == []


def test_a_sentinel_that_cannot_be_measured_does_not_hold_up_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    campaign = SimulatedCampaign(tmp_path, LOADS, drift_case=Case(LINEAR))
    campaign.before = fail_on(LINEAR, error=CannotMeasureError("out of memory"))
    campaign.add_model("a", {RELU: 1, GELU: 1})
    assert run(campaign)[0].measured == 2
    assert caplog.text.count("no drift check: out of memory") == 1


def test_a_device_that_drifts_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    campaign = SimulatedCampaign(tmp_path, LOADS, drift_case=Case(LINEAR))
    campaign.machine.device = Device(cold_power_ratio=0.8, warming_time_s=5.0, white_noise_w=1.0)
    campaign.add_model("a", {RELU: 1, GELU: 1, SILU: 1})
    run(campaign)
    (message,) = [record.getMessage() for record in caplog.records if "drift check" in record.getMessage()]
    assert float(message.rpartition("energy drifted by ")[2].removesuffix(" %")) > 3


AT_ONCE = MeasurementProtocol(warm_up_s=0.15, loop_s=30.0, relative_error=0.02)


@pytest.fixture
def checked(tmp_path: Path) -> SimulatedCampaign:
    """Return a campaign with a drift check, and a second meter beside the first."""
    campaign = SimulatedCampaign(tmp_path, LOADS, meter=RING, drift_case=Case(LINEAR))
    campaign.machine.checks = (MeterModel(averaging_time_s=0.025),)
    return campaign


@pytest.mark.parametrize(("scale", "is_reported"), [(1.0, False), (1.03, True)])
def test_a_wrong_meter_is_seen_by_the_sentinel_where_loops_are_too_short_for_it(
    checked: SimulatedCampaign, scale: float, is_reported: bool
) -> None:
    checked.machine.meter = replace(RING, scale=scale)
    checked.add_model("a", {RELU: 1, GELU: 1})
    run(checked, protocol=AT_ONCE)
    assert [row.measurement.loop_time_s < 0.3 for row in rows(checked)] == [True, True]
    assert [is_flagged(row.measurement) for row in rows(checked)] == [is_reported, is_reported]
    sentinel = checked.database.drift_checks.rows()
    assert [Flag.METERS_DISAGREE in row.measurement.flags for row in sentinel] == [is_reported, is_reported]


def test_a_row_with_a_check_of_its_own_needs_no_sentinel(checked: SimulatedCampaign) -> None:
    def fix(operator: OperatorTuple) -> None:
        if operator == RELU:
            checked.machine.meter = RING

    checked.machine.meter, checked.before = replace(RING, scale=1.03), fix
    checked.add_model("a", {RELU: 1})
    run(checked, protocol=replace(SHORT, loop_s=3.0))
    (row,) = rows(checked)
    assert row.measurement.check_power_w is not None
    assert not is_flagged(row.measurement)


def test_what_was_measured_before_a_meter_went_wrong_is_reported(
    checked: SimulatedCampaign, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def go_wrong(operator: OperatorTuple) -> None:
        if len(checked.built) == 2:
            checked.machine.meter = replace(RING, scale=1.03)

    monkeypatch.setattr("opcost.running.engine.EVERY", 1)
    checked.before = go_wrong
    checked.add_model("a", {RELU: 1, GELU: 1})
    run(checked, protocol=AT_ONCE)
    assert [is_flagged(row.measurement) for row in rows(checked)] == [False, True]
    assert " 1 rows " in caplog.text


# How precise

PRECISE = MeasurementProtocol(warm_up_s=0.5, loop_s=30.0, relative_error=0.02)


COARSER, FINER = (replace(PRECISE, relative_error=error) for error in (0.05, 0.01))


@pytest.mark.parametrize(
    ("first", "second", "is_measured"),
    [
        *((PRECISE, COARSER, False), (PRECISE, FINER, True), (PRECISE, SHORT, True)),
        *((SHORT, PRECISE, True), (FULL, PRECISE, False), (SHORT, FULL, True), (FULL, SHORT, False)),
    ],
)
def test_rows_settle_what_is_no_longer_and_no_more_precise(
    campaign: SimulatedCampaign, first: MeasurementProtocol, second: MeasurementProtocol, is_measured: bool
) -> None:
    campaign.add_model("a", {RELU: 3})
    (report,) = run(campaign, protocol=first)
    assert (report.measured, report.done) == (1, first == FULL)
    (row,) = rows(campaign)
    length_s = None if first.relative_error else first.loop_s
    assert (row.circumstances.loop_s, row.circumstances.relative_error) == (length_s, first.relative_error)
    assert [report.measured for report in run(campaign, "a", protocol=second)] == [int(is_measured)]


# On which values

HALF = InputData((InputValues(zeros_ratio=0.5),))
SEEN = tuple((InputStatistics(zeros_ratio, 0.0, 1.0),) for zeros_ratio in (0.5, 0.0, 0.5))


def looked_at(campaign: SimulatedCampaign, device_type: str = "cuda") -> None:
    """Let the model a have one operator, whose three calls were looked at."""
    config = campaign.add_model("a", {RELU: 3})
    counts = COUNTS.read(config)
    seen = SEEN if device_type == "cuda" else ()
    count = replace(counts.counts[0], statistics=seen)
    write_both(config, replace(counts, counts=(count,), device_type=device_type))


def test_an_operator_is_measured_on_each_kind_of_values_that_it_saw(campaign: SimulatedCampaign) -> None:
    campaign.loads_on = {Case(RELU, HALF): Load(time_s=0.001, power_w=150.0)}
    looked_at(campaign)
    (report,) = run(campaign)
    assert progress_of(report) == (2, 0, 2, 0, 0)
    powers = {row.input_data: row.measurement.power_w for row in rows(campaign)}
    assert powers == {"captured: 0.5 zeros": pytest.approx(150.0, rel=0.01), "normal": pytest.approx(200.0, rel=0.01)}
    cases = (Case(RELU, HALF), Case(RELU))
    assert [row.key for row in rows(campaign)] == [measurement_key(case, SIMULATED_CONDITIONS) for case in cases]


@pytest.mark.parametrize("input_data", ["normal", "zeros"])
def test_one_kind_of_values_may_be_asked_for_and_is_not_done_with_it(
    campaign: SimulatedCampaign, input_data: str
) -> None:
    looked_at(campaign)
    campaign.loads_on = {Case(RELU, ZEROS_DATA): LOADS[RELU]}
    (report,) = measure_operators(
        campaign.request(), lambda _: FULL, campaign.open_apparatus, RecordedProgress(), input_data
    )
    assert [row.input_data for row in rows(campaign)] == [input_data]
    assert (report.remaining, report.done) == (0, False)


def test_values_that_were_not_looked_at_are_normal_and_it_is_said(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture
) -> None:
    looked_at(campaign, device_type="meta")
    run(campaign)
    assert [row.input_data for row in rows(campaign)] == ["normal"]
    assert not run(campaign, protocol=FULL)[0].done
    assert any(message.startswith("a: ") for message in caplog.messages)


# What cannot be measured


def test_a_tuple_that_cannot_be_measured_is_a_failure_until_it_can_and_the_others_go_on(
    campaign: SimulatedCampaign,
) -> None:
    paths = [campaign.add_model("a", {RELU: 3, SILU: 1, GELU: 1}).path, campaign.add_model("b", {SILU: 1}).path]
    paths.append(campaign.add_model("c", {RELU: 1}).path)
    campaign.before = fail_on(SILU, error=CannotMeasureError("RuntimeError: out of memory"))
    first, second, third = run(campaign, protocol=FULL)
    assert progress_of(first) == (3, 0, 2, 1, 1)
    assert first.reasons == second.reasons == ("RuntimeError: out of memory",)
    assert second.failed == 1
    assert [report.done for report in (first, second, third)] == [False, False, True]
    assert ["done: true" in path.read_text() for path in paths] == [False, False, True]
    (failure,) = failures(campaign)
    assert failure.key == measurement_key(Case(SILU), SIMULATED_CONDITIONS)
    assert (failure.operator, failure.inputs) == ("torch.nn.SiLU", "float32[4]")
    assert failure.reason == "RuntimeError: out of memory"
    assert failure.failed_at.endswith("+00:00")
    assert [row.operator for row in rows(campaign)] == ["torch.nn.ReLU", "torch.nn.GELU"]
    campaign.before = lambda _: None
    again = run(campaign, protocol=FULL)[0]
    assert (again.measured, again.failed, again.reasons) == (1, 0, ())


def test_a_bug_ends_the_campaign_but_the_next_one_takes_that_operator_last(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {SILU: 1, RELU: 1})
    campaign.add_model("b", {GELU: 1})
    campaign.before = fail_on(SILU, error=ZeroDivisionError("of the device"))
    for measured in ([], ["torch.nn.ReLU", "torch.nn.GELU"]):
        with pytest.raises(ZeroDivisionError):
            run(campaign)
        assert [row.operator for row in rows(campaign)] == measured
    assert {failure.reason for failure in failures(campaign)} == {"ZeroDivisionError: of the device"}


# Energy that is missing


DEAD_METER = MeterModel(missing_reason="nvidia-smi ended during the measurement")


def test_an_operator_without_energy_is_measured_again_by_a_meter_that_works(tmp_path: Path) -> None:
    SimulatedCampaign(tmp_path, LOADS).add_model("a", {RELU: 1})
    (report,) = run(SimulatedCampaign(tmp_path, LOADS, meter=DEAD_METER), protocol=FULL)
    assert (report.measured, report.remaining, report.done) == (1, 1, False)
    assert (report.without_energy, report.energy_missing_reasons) == (1, (DEAD_METER.missing_reason,))
    (report,) = run(SimulatedCampaign(tmp_path, LOADS), protocol=FULL)
    assert (report.measured, report.remaining, report.done, report.without_energy) == (1, 0, True, 0)


@pytest.mark.parametrize("has_meter", [True, False])
def test_energy_is_given_up_after_some_attempts_or_at_once_without_a_meter(tmp_path: Path, has_meter: bool) -> None:
    device = "cuda:0" if has_meter else "cpu"
    campaign = SimulatedCampaign(tmp_path, LOADS, device=device, meter=DEAD_METER, has_meter=has_meter)
    campaign.add_model("a", {RELU: 1})
    reports = [run(campaign)[0] for _ in range(RETRIES.runs + 1)]
    attempts = RETRIES.runs if has_meter else 1
    assert [report.measured for report in reports] == [int(number < attempts) for number in range(RETRIES.runs + 1)]
    # The last one settles it.
    assert [report.remaining for report in reports] == [
        int(number < attempts - 1) for number in range(RETRIES.runs + 1)
    ]
    (row, *_) = rows(campaign)
    assert (row.measurement.energy_j, row.measurement.power_w) == (None, None)
    assert row.measurement.energy_missing_reason == DEAD_METER.missing_reason
    assert row.measurement.time_s == pytest.approx(0.001)


def test_an_operator_that_something_disturbed_is_measured_again_by_later_runs(campaign: SimulatedCampaign) -> None:
    """Three rows at most: what is uneven by itself stays so."""
    campaign.add_model("a", {RELU: 1})
    table = campaign.database.operator_measurements

    def disturb_all() -> None:
        flags = (Flag.OTHER_PROCESS,)
        rows = [replace(row, measurement=replace(row.measurement, flags=flags)) for row in table.rows()]
        table.path.write_text(table.text(rows))

    assert run(campaign)[0].measured == 1
    disturb_all()
    (report,) = run(campaign, dry_run=True)
    assert (report.found, report.remaining) == (0, 1)
    assert [run(campaign)[0].measured for _ in range(2)] == [1, 0]
    disturb_all()
    assert run(campaign)[0].measured == 1
    disturb_all()
    assert run(campaign)[0].measured == 0


def test_done_that_cannot_be_set_does_not_end_the_campaign(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture
) -> None:
    config = campaign.add_model("a", {RELU: 1})
    campaign.add_model("b", {GELU: 1})
    campaign.before = lambda _: config.path.write_text("no longer a mapping")
    assert [report.done for report in run(campaign, protocol=FULL)] == [False, True]
    assert str(config.path) in caplog.text


def test_a_model_that_is_out_of_date_is_left_out_where_none_is_named(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture
) -> None:
    campaign.add_model("a", {RELU: 1, GELU: 1})
    campaign.add_model("b", {RELU: 1})
    (campaign.measurements / "operator_whitelist.yml").write_text("operators: [ReLU]")
    (report,) = run(campaign)
    assert (report.name, report.measured) == ("b", 1)
    assert "a/operators_filtered.pkl: " in caplog.text
    with pytest.raises(UserError, match=r"a/operators_filtered\.pkl: .* changed since; run .*opcost filter a"):
        run(campaign, "a", "b")


# Mistakes


def test_missing_counts_of_all_models_are_reported_at_once_with_the_remedy(campaign: SimulatedCampaign) -> None:
    for name in ("a", "b"):
        campaign.add_model(name, {RELU: 1})
        (campaign.measurements / name / "operators_filtered.pkl").unlink()
    (campaign.measurements / "b" / "operators.pkl").unlink(missing_ok=True)
    (campaign.measurements / "a" / "operators.pkl").touch()
    with pytest.raises(UserError) as caught:
        run(campaign, "a", "b")
    assert caught.value.lines == tuple(
        f"{campaign.measurements}/{name}/operators_filtered.pkl: no such file; run {scripts} first"
        for name, scripts in (
            ("a", command("filter", "a")),
            ("b", f"{command('count', 'b')} and {command('filter', 'b')}"),
        )
    )
    assert not campaign.database.folder.exists()


def test_mistakes_are_reported_before_anything_is_measured(campaign: SimulatedCampaign) -> None:
    config = campaign.add_model("a", {})
    with pytest.raises(
        UserError, match=r"operators_filtered\.pkl: the whitelist keeps no operator; fix it and run .* a$"
    ):
        run(campaign)
    assert "done: false" in config.path.read_text()
    config = campaign.add_model("b", {RELU: 1})
    campaign.database.folder.mkdir()
    campaign.database.operator_measurements.path.write_text("key,operator\n1,2\n")
    with pytest.raises(UserError, match=r"operator_measurements\.csv:1: its columns"):
        run(campaign, "b")
    config.path.write_text(config.path.read_text().replace("resnet18", "resnet81"))
    with pytest.raises(UserError, match="torchvision has no model 'resnet81'; did you mean .*resnet18"):
        run_full(campaign, "b")
    assert campaign.built == []


def test_counts_of_another_input_size_are_recognised(campaign: SimulatedCampaign) -> None:
    path = campaign.add_model("a", {RELU: 1}).path
    path.write_text(path.read_text().replace("[2, 3, 8, 8]", "[2, 3, 16, 16]"))
    with pytest.raises(UserError) as caught:
        run(campaign)
    (line,) = caught.value.lines
    assert "float32[2, 3, 8, 8]" in line
    assert line.endswith(f"run {command('count', 'a')} and {command('filter', 'a')}")


@pytest.mark.parametrize("wholly_read_bytes", [0, expected_times.WHOLLY_READ_BYTES])
@pytest.mark.parametrize("name", ["operator_measurements", "drift_checks"])
def test_a_table_that_takes_no_row_is_reported_before_anything_is_measured(
    tmp_path: Path, name: str, wholly_read_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of an older version is replaced with its next row, and one of its other lines is damaged."""
    monkeypatch.setattr(expected_times, "WHOLLY_READ_BYTES", wholly_read_bytes)
    campaign = SimulatedCampaign(tmp_path, LOADS, drift_case=Case(LINEAR))
    campaign.add_model("a", {RELU: 1})
    run(campaign)
    path = campaign.database.folder / f"{name}.csv"
    old = "".join(f"{line.rpartition(',')[0]}\n" for line in path.read_text().splitlines()) + "damaged\n"
    path.write_text(old)
    campaign.add_model("b", {GELU: 1})
    campaign.built.clear()
    with pytest.raises(UserError, match=rf"{name}\.csv:\d: 1 cells"):
        run(campaign)
    assert campaign.built == []
    assert path.read_text() == old


# Progress


def test_progress_shows_name_result_and_time(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 3, SILU: 1})
    campaign.add_model("b", {RELU: 1, GELU: 1})
    campaign.before = fail_on(SILU, error=CannotMeasureError("out of memory"))
    progress = RecordedProgress()
    run(campaign, progress=progress)
    assert progress.items == [3]
    assert list(progress.expected_s) == pytest.approx(3 * [SHORT.warm_up_s + SHORT.loop_s], rel=0.4)
    assert progress.names == ["ReLU on 4", "SiLU on 4", "GELU on 4"]
    assert progress.results[0].startswith("1.000 ms  ")
    assert progress.results[0].endswith(" mJ")
    assert progress.results[1] == "failed: out of memory"
    assert progress.ended == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()], ids=["interrupt", "bug"])
def test_progress_ends_however_the_campaign_does(campaign: SimulatedCampaign, error: BaseException) -> None:
    campaign.add_model("a", {RELU: 3, SILU: 1})
    campaign.before, progress = fail_on(SILU, error=error), RecordedProgress()
    with pytest.raises(type(error)):
        run(campaign, progress=progress)
    assert progress.ended == 1


# Whole models


def test_a_whole_model_is_measured_by_the_same_procedure_and_found_again_even_if_it_is_done(
    campaign: SimulatedCampaign,
) -> None:
    campaign.add_model("a", {RELU: 1}, done=True)
    (report,) = run_full(campaign)
    (row,) = campaign.database.full_model_measurements.rows()
    assert row.key == measurement_key(Case(MODEL), SIMULATED_CONDITIONS)
    assert row.operator == "torchvision.models.resnet18"
    assert (report.time_s, report.energy_j) == (row.measurement.time_s, row.measurement.energy_j)
    assert report.time_s == pytest.approx(0.02, rel=1e-9)
    assert report.energy_j == pytest.approx(0.02 * 450, rel=0.01)
    (again,) = run_full(campaign)
    assert (report.newly_measured, again.newly_measured, again.time_s) == (True, False, report.time_s)
    assert campaign.database.full_model_measurements.rows() == [row]


def test_a_whole_model_that_does_not_fit_is_a_failure(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 1})
    campaign.before = fail_on(MODEL, error=CannotMeasureError("out of GPU memory"))
    (report,) = run_full(campaign, protocol=FULL)
    assert (report.failed, report.time_s, report.reason) == (True, None, "out of GPU memory")
    assert failures(campaign)[0].operator == "torchvision.models.resnet18"


def test_a_whole_model_is_the_median_of_three_builds(campaign: SimulatedCampaign) -> None:
    """Every third build is in the short state, as EfficientNet-B0's on an H200."""
    campaign.state_ratios = {MODEL: (0.974, 1.0, 1.0)}
    campaign.add_model("a", {RELU: 1})
    (report,) = run_full(campaign)
    (row,) = campaign.database.full_model_measurements.rows()
    assert campaign.built == 3 * [MODEL]
    assert report.time_s == row.measurement.time_s == pytest.approx(0.02, rel=1e-6)
    assert (report.builds, row.measurement.builds) == (3, 3)
    assert report.builds_time_range_ratio == pytest.approx(0.026, rel=1e-3)
    assert row.measurement.builds_energy_range_ratio == pytest.approx(0.026, abs=0.01)
    assert row.measurement.time_standard_error_s == pytest.approx(0.011 * 0.02, rel=0.05)


def test_a_whole_model_whose_second_build_does_not_fit_keeps_the_first(campaign: SimulatedCampaign) -> None:
    def before(_: OperatorTuple) -> None:
        if campaign.built:
            raise CannotMeasureError("out of GPU memory")

    campaign.add_model("a", {RELU: 1})
    campaign.before = before
    (report,) = run_full(campaign)
    assert (report.failed, report.builds, report.builds_time_range_ratio) == (False, 1, None)
    assert report.time_s == pytest.approx(0.02)


def test_three_builds_are_expected_of_a_whole_model(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 1})
    three, one = (
        run_full(campaign, protocol=replace(SHORT, builds=builds), dry_run=True)[0].expected_s for builds in (3, 1)
    )
    assert three == pytest.approx(3 * one)
    assert one > SHORT.warm_up_s + SHORT.loop_s


def test_rows_of_three_builds_say_how_long_the_next_whole_takes(campaign: SimulatedCampaign) -> None:
    """Their times contain all builds already."""
    for number in range(4):
        campaign.add_model(f"m{number}", {RELU: 1}, batch=2 + number)
    campaign.loads = {**LOADS, **{model_operator("resnet18", None, (2 + n, 3, 8, 8)): LOADS[MODEL] for n in range(4)}}
    names = [f"m{number}" for number in range(3)]
    run_full(campaign, *names)
    (report,) = run_full(campaign, "m3", dry_run=True)
    assert report.expected_s == pytest.approx(3 * (SHORT.warm_up_s + SHORT.loop_s), rel=0.5)


def test_a_named_model_of_the_database_needs_no_count(campaign: SimulatedCampaign) -> None:
    config = campaign.add_model("a", {RELU: 2})
    run(campaign)
    for kind in (COUNTS, FILTERED_COUNTS):
        kind.path(config).unlink()
    campaign.database.operator_measurements.path.unlink()
    (report,) = run(campaign, "a")
    assert progress_of(report) == (1, 0, 1, 0, 0)
    with pytest.raises(UserError, match="no model is"):
        run(campaign)


def test_a_whitelist_that_keeps_nothing_of_a_model_of_the_database_is_named(campaign: SimulatedCampaign) -> None:
    config = campaign.add_model("a", {RELU: 2})
    run(campaign)
    for kind in (COUNTS, FILTERED_COUNTS):
        kind.path(config).unlink()
    (campaign.measurements / "operator_whitelist.yml").write_text("operators: [Conv2d]\n", encoding="utf-8")
    with pytest.raises(UserError, match="operator_whitelist.yml: it keeps no operator of a; "):
        run(campaign, "a")


def test_a_filtered_pickle_stands_before_the_counts_of_the_database(campaign: SimulatedCampaign) -> None:
    config = campaign.add_model("a", {RELU: 2})
    run(campaign)
    COUNTS.path(config).unlink()
    (report,) = run(campaign, "a")
    assert progress_of(report) == (1, 1, 0, 0, 0)
    FILTERED_COUNTS.path(config).write_bytes(b"damaged")
    with pytest.raises(UserError, match=FILTERED_COUNTS.file_name):
        run(campaign, "a")
