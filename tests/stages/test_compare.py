"""The comparison: operators with declared costs must sum to the declared whole, and what is missing is said."""

import re
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path

import pytest
from simulated_apparatus import RecordedProgress, SimulatedCampaign, change_by_hand, compare_models
from simulated_machine import Load, MeterModel

from opcost.comparing.model_result import OperatorRuns, kernel_key
from opcost.errors import UserError
from opcost.invocation import command
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import ComparisonRow, KernelTimeRow
from opcost.measuring.setting import USUAL, Setting
from opcost.operators.counts import OperatorCount, OperatorCounts, select, tuple_key
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.reporting.charts import draw_comparisons
from opcost.stages.compare import ComparingReport
from opcost.stages.measure_operators import measure_full_models, measure_operators
from opcost.storage.configs import WHITELIST, ModelConfig, model_tuple
from opcost.storage.counts_file import write_counts
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS

SHORT = MeasurementProtocol(warm_up_s=1.0, loop_s=2.0)


def operator(name: str) -> OperatorTuple:
    return OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((4,), "float32"),))


RELU, GELU, SILU = operator("ReLU"), operator("GELU"), operator("SiLU")
OCCURRENCES = {RELU: 3, GELU: 1, SILU: 2}
PARTS = {
    RELU: Load(time_s=0.001, power_w=200.0),
    GELU: Load(time_s=0.002, power_w=300.0),
    SILU: Load(time_s=0.003, power_w=400.0),
}
TIME_S = sum(number * PARTS[part].time_s for part, number in OCCURRENCES.items())
ENERGY_J = sum(number * PARTS[part].energy_j for part, number in OCCURRENCES.items())
MODEL = model_operator("resnet18", None, (2, 3, 8, 8))


def campaign_in(folder: Path, whole: Load, meter: MeterModel | None = None, done: bool = False) -> SimulatedCampaign:
    campaign = SimulatedCampaign(folder, {**PARTS, MODEL: whole}, meter=meter or MeterModel())
    campaign.add_model("a", OCCURRENCES, done=done)
    return campaign


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    return campaign_in(tmp_path, Load(time_s=TIME_S, power_w=ENERGY_J / TIME_S))


@pytest.fixture
def measured(campaign: SimulatedCampaign) -> SimulatedCampaign:
    """The campaign with rows of the operators and of the whole."""
    measure_parts(campaign)
    measure_whole(campaign)
    return campaign


def measure_parts(campaign: SimulatedCampaign, protocol: MeasurementProtocol = SHORT, setting: Setting = USUAL) -> None:
    request = replace(campaign.request(), setting=setting)
    measure_operators(request, lambda _: protocol, campaign.open_apparatus, RecordedProgress())


def measure_whole(campaign: SimulatedCampaign, protocol: MeasurementProtocol = SHORT) -> None:
    measure_full_models(campaign.request(), lambda _: protocol, campaign.open_apparatus, RecordedProgress())


def compare(campaign: SimulatedCampaign, *names: str, dry_run: bool = False) -> list[ComparingReport]:
    return compare_models(campaign.request(*names, dry_run=dry_run))


def compared_row(campaign: SimulatedCampaign, *names: str) -> ComparisonRow:
    (report,) = compare(campaign, *names)
    (row,) = report.comparisons
    return row


def stored(campaign: SimulatedCampaign) -> list[ComparisonRow]:
    return campaign.database.sum_vs_full.rows()


# Declared truth


def test_operators_with_declared_costs_sum_to_the_declared_whole(measured: SimulatedCampaign) -> None:
    row = compared_row(measured)
    assert (row.time_s, row.full_time_s) == pytest.approx((TIME_S, TIME_S), rel=1e-6)
    assert row.time_ratio == pytest.approx(1, rel=1e-6)
    assert (row.energy_j, row.energy_ratio) == pytest.approx((ENERGY_J, 1), rel=0.01)
    assert (row.summed_operators, row.missing_operators, row.missing, row.flop_ratio) == (3, 0, "", 1.0)
    assert row.remarks == ""


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_lies_within_the_stated_errors(tmp_path: Path, seed: int) -> None:
    loads = {part: replace(load, jitter_ratio=0.05) for part, load in PARTS.items()}
    whole = Load(time_s=TIME_S, power_w=ENERGY_J / TIME_S, jitter_ratio=0.05)
    campaign = SimulatedCampaign(tmp_path, {**loads, MODEL: whole})
    campaign.machine.idle(seed)
    campaign.add_model("a", OCCURRENCES)
    measure_parts(campaign)
    measure_whole(campaign)
    row = compared_row(campaign)
    for ratio, error, largest in (
        (row.time_ratio, row.time_standard_error_ratio, 0.02),
        (row.energy_ratio, row.energy_standard_error_ratio, 0.03),
    ):
        assert ratio is not None
        assert error is not None
        assert 0 < error < largest
        assert abs(ratio - 1) < 4 * error


# Missing rows


def remove_lines(campaign: SimulatedCampaign, *operators: str) -> None:
    path = campaign.database.operator_measurements.path
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not any(operator in line for operator in operators)))


def test_each_set_of_conditions_is_compared_by_itself_and_others_are_a_difference(campaign: SimulatedCampaign) -> None:
    measure_parts(campaign)
    campaign.conditions = replace(campaign.conditions, torch_version="2.12.0")
    measure_whole(campaign)
    row = compared_row(campaign)
    assert (row.time_s, row.energy_j, row.time_ratio) == (None, None, None)
    assert row.missing_operators == 3
    assert "torch_version: 2.11.0 / 2.12.0" in row.remarks
    assert row.energy_missing_reason == "no operator of the model is measured"
    measure_parts(campaign)
    campaign.conditions = replace(campaign.conditions, torch_version="2.11.0")
    measure_whole(campaign)
    (report,) = compare(campaign)
    assert sorted(row.conditions.torch_version for row in report.comparisons) == ["2.11.0", "2.12.0"]
    assert all(row.time_ratio == pytest.approx(1, rel=1e-6) for row in report.comparisons)


def test_of_wholes_of_two_boards_that_counts_on_which_the_operators_were_measured(campaign: SimulatedCampaign) -> None:
    measure_whole(campaign)
    table = campaign.database.full_model_measurements.path
    change_by_hand(table, "simulated-0", "another board")
    measure_parts(campaign)
    assert "on another board" in compared_row(campaign).remarks
    request = replace(campaign.request(), same_board=True)
    measure_full_models(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    header, *wholes = table.read_text().splitlines()
    assert len(wholes) == 2
    for order in (wholes, wholes[::-1]):
        table.write_text("\n".join([header, *order, ""]))
        assert compared_row(campaign).remarks == ""


def test_what_cannot_be_compared_is_said_with_the_remedy_and_writes_nothing(campaign: SimulatedCampaign) -> None:
    with pytest.raises(UserError, match=r"no such folder; name the folder of a database"):
        compare(campaign)
    assert not campaign.database.folder.exists()
    measure_parts(campaign)
    (report,) = compare(campaign)
    assert report.comparisons == ()
    assert report.reason == f"the whole model is not measured; run {command('measure-models', 'a')}"
    measure_whole(campaign)
    (report,) = compare(campaign, dry_run=True)
    assert len(report.comparisons) == 1
    assert not campaign.database.sum_vs_full.path.exists()


# Which devices


@pytest.mark.parametrize(("device", "compared"), [(None, 1), ("SIMULATED", 1), ("cpu", 0), ("cuda:0", 0)])
def test_a_device_selects_rows_by_its_type_or_a_part_of_its_name(
    measured: SimulatedCampaign, device: str | None, compared: int
) -> None:
    (report,) = compare_models(measured.request(device=device))
    assert len(report.comparisons) == compared
    with pytest.raises(UserError, match="--device H200: no row of it; there are rows of simulated machine"):
        compare_models(measured.request(device="H200"))


# Which models


def test_a_config_with_a_mistake_is_left_out_unless_it_is_named(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture
) -> None:
    campaign.database.folder.mkdir(exist_ok=True)
    broken = campaign.measurements / "broken" / "summary.yml"
    broken.parent.mkdir()
    broken.write_text("model_name: resnet18\n")
    assert [report.name for report in compare(campaign)] == ["a"]
    assert "left out: " in caplog.text
    with pytest.raises(UserError, match=r"broken/summary\.yml"):
        compare(campaign, "broken")


@pytest.mark.parametrize("names", [("*",), ("a", "*")])
def test_models_without_counts_are_left_out_with_one_line_unless_they_are_named(
    campaign: SimulatedCampaign, names: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("b", "c"):
        campaign.add_model(name, OCCURRENCES)
        (campaign.measurements / name / "operators.pkl").unlink()
    campaign.database.folder.mkdir(exist_ok=True)
    assert [report.name for report in compare(campaign, *names)] == ["a"]
    (line,) = caplog.messages
    assert line == f"2 models are not counted and left out: b, c; run {command('count', *names)}"


@pytest.mark.parametrize("name", ["b", "{measurements}/b", "{measurements}/b/summary.yml"])
def test_a_model_without_counts_that_is_named_is_left_out_with_its_reason_unless_it_is_the_only_one(
    campaign: SimulatedCampaign, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    campaign.add_model("b", OCCURRENCES)
    (campaign.measurements / "b" / "operators.pkl").unlink()
    campaign.database.folder.mkdir(exist_ok=True)
    named = name.format(measurements=campaign.measurements)
    reason = r"b/operators\.pkl: .* run .*opcost count b"
    with pytest.raises(UserError, match=reason):
        compare(campaign, named)
    for names in ((named, "a"), (named, "*")):
        counted, left_out = compare(campaign, *names)
        assert (counted.name, left_out.name, left_out.comparisons) == ("a", "b", ())
        assert left_out.reason is not None
        assert re.search(reason, left_out.reason)
        assert left_out.is_incomplete
    assert caplog.messages == [], "the reason stands in the result"


def test_damaged_counts_are_reported_in_the_result_if_the_model_is_named_and_in_a_warning_otherwise(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture
) -> None:
    campaign.add_model("b", OCCURRENCES)
    (campaign.measurements / "b" / "operators.pkl").write_bytes(b"no pickle")
    campaign.database.folder.mkdir(exist_ok=True)
    assert [report.name for report in compare(campaign, "*")] == ["a"]
    assert "b/operators.pkl" in caplog.text
    _, left_out = compare(campaign, "b", "*")
    assert "b/operators.pkl" in (left_out.reason or "")
    with pytest.raises(UserError, match=r"b/operators\.pkl"):
        compare(campaign, "b*")


@pytest.mark.parametrize(("names", "said"), [((), ""), (("*",), " '*'")])
def test_no_counts_at_all_are_one_line(campaign: SimulatedCampaign, names: tuple[str, ...], said: str) -> None:
    (campaign.measurements / "a" / "operators.pkl").unlink()
    with pytest.raises(UserError) as caught:
        compare(campaign, *names)
    assert caught.value.lines == (f"{campaign.measurements}: no model is counted; run {command('count')}{said}",)


def test_counts_that_ship_with_the_rows_do_where_there_are_no_pickles(measured: SimulatedCampaign) -> None:
    (pickled,) = compare(measured)
    measured.add_model("b", {RELU: 1}, batch=3)
    for name in ("a", "b"):
        (measured.measurements / name / "operators.pkl").unlink()
    for names in ((), ("*",), ("a", "*")):
        (shipped,) = compare(measured, *names)
        ours, theirs = shipped.comparisons[0], pickled.comparisons[0]
        assert replace(ours, compared_at=theirs.compared_at) == theirs
    _, left_out = compare(measured, "a", "b")
    assert "b/operators.pkl: no such file" in (left_out.reason or "")


def test_a_comparison_follows_the_whitelist_as_it_is(measured: SimulatedCampaign) -> None:
    (measured.measurements / WHITELIST).write_text("operators: [ReLU]\n")
    row = compared_row(measured)
    assert row.time_s == pytest.approx(3 * 0.001, rel=1e-6)
    assert row.dropped_time_s == pytest.approx(0.002 + 2 * 0.003, rel=1e-6)


def test_done_models_are_compared_too(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path, Load(), done=True)
    campaign.database.folder.mkdir()
    assert len(compare(campaign)) == 1


# What is written


def test_a_later_comparison_takes_the_place_of_an_earlier_one_unless_it_is_equal(
    campaign: SimulatedCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_whole(campaign)
    compare(campaign)
    measure_parts(campaign)
    row = compared_row(campaign)
    assert stored(campaign) == [row]
    before = campaign.database.sum_vs_full.path.read_bytes()

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime(2100, 1, 1, tzinfo=tz)

    monkeypatch.setattr("opcost.stages.compare.datetime", Later)
    compare(campaign)
    assert campaign.database.sum_vs_full.path.read_bytes() == before


def test_rows_of_other_models_stay(campaign: SimulatedCampaign) -> None:
    campaign.add_model("b", {RELU: 1})
    measure_parts(campaign)
    measure_whole(campaign)
    compare(campaign)
    compare(campaign, "a")
    assert sorted(row.name for row in stored(campaign)) == ["a", "b"]


def test_sums_of_each_cache_stand_beside_one_another_in_the_file(campaign: SimulatedCampaign) -> None:
    measure_whole(campaign)
    measure_parts(campaign)
    for cache in ("warm", "state"):
        (report,) = compare_models(campaign.request(), OperatorRuns(cache=cache))
        (row,) = report.comparisons
        assert (row.conditions.cache, row.missing_operators) == (cache, 0)
    assert sorted(row.conditions.cache for row in stored(campaign)) == ["state", "warm"]


# The parts of the whole

ADD = OperatorTuple("torch.add", (), (TensorSpec((4,), "float32"),), mode=None)
ROLL = OperatorTuple("torch.roll", (), (TensorSpec((4,), "float32"),), mode=None)


def counts_with_bytes(config: ModelConfig, occurrences: dict[OperatorTuple, int]) -> OperatorCounts:
    """Counts whose bytes give an operator's time: a microsecond each."""
    times_s = {operator: load.time_s for operator, load in PARTS.items()} | {ADD: 0.001, ROLL: 0.004}
    counts = [
        OperatorCount(operator, number, 0, round(1e6 * times_s[operator])) for operator, number in occurrences.items()
    ]
    return OperatorCounts(model_tuple(config), tuple(counts), 0, 10**6, 7, "2.11.0", "cuda")


@pytest.fixture
def explained(tmp_path: Path) -> SimulatedCampaign:
    """Three modules and an addition are measured, a roll is not; the whitelist drops SiLU."""
    occurrences = {**OCCURRENCES, ADD: 2, ROLL: 1}
    loads = {**PARTS, ADD: Load(time_s=0.001, power_w=300.0), MODEL: Load(time_s=0.02, power_w=300.0)}
    campaign = SimulatedCampaign(tmp_path, loads)
    config = campaign.add_model("a", dict.fromkeys((*PARTS, ADD), 1))
    measure_parts(campaign)
    measure_whole(campaign)
    (campaign.measurements / WHITELIST).write_text("operators: [ReLU, GELU, add, roll]\n")
    counts = counts_with_bytes(config, occurrences)
    write_counts(COUNTS.path(config), counts)
    write_counts(FILTERED_COUNTS.path(config), select(counts, ("ReLU", "GELU", "add", "roll")).kept)
    return campaign


def test_the_sum_and_the_named_parts_make_the_whole(explained: SimulatedCampaign) -> None:
    row = compared_row(explained)
    assert row.time_s == pytest.approx(3 * 0.001 + 0.002 + 2 * 0.001, rel=1e-6)
    assert row.function_time_s == pytest.approx(0.002, rel=1e-6)
    assert row.dropped_time_s == pytest.approx(2 * 0.003, rel=1e-6)
    assert row.unmeasured_time_s == pytest.approx(0.004, rel=0.01)
    assert row.unexplained_time_s == pytest.approx(0.02 - 0.007 - 0.006 - 0.004, rel=0.02)
    named = [row.time_s, row.dropped_time_s, row.unmeasured_time_s, row.unexplained_time_s]
    assert sum(value or 0.0 for value in named) == pytest.approx(row.full_time_s)
    energies = [row.energy_j, row.dropped_energy_j, row.unmeasured_energy_j, row.unexplained_energy_j]
    assert None not in energies
    assert sum(value or 0.0 for value in energies) == pytest.approx(row.full_energy_j)
    assert row.dropped_energy_j == pytest.approx(2 * 0.003 * 400, rel=0.02)


def test_of_leaf_modules_only_functions_are_dropped(explained: SimulatedCampaign) -> None:
    (report,) = compare_models(explained.request(), OperatorRuns(counted="leaf"))
    (row,) = report.comparisons
    assert row.counted == "leaf"
    assert row.time_s == pytest.approx(3 * 0.001 + 0.002, rel=1e-6)
    assert row.function_time_s == 0.0
    assert row.dropped_time_s == pytest.approx(2 * 0.003 + 2 * 0.001 + 0.004, rel=0.01)
    assert row.missing_operators == 0
    assert "the sum is of leaf modules only" in row.remarks
    compare(explained)
    assert [row.counted for row in stored(explained)] == ["leaf", "all"]


def test_kernels_that_were_profiled_are_reported_by_kind(explained: SimulatedCampaign) -> None:
    assert compare(explained)[0].comparisons[0].kernel_error_ratio is None
    row = compared_row(explained)
    table = explained.database.kernel_times
    key = kernel_key(tuple_key(row.key), row.conditions)
    for operator, in_model_s, alone_s in (("ReLU", 0.006, 0.0055), ("add", 0.004, 0.0042)):
        kernels = (in_model_s, alone_s, in_model_s)
        table.append(KernelTimeRow(key, row.name, operator, 1, *kernels, "2026-11-22T08:00:00+00:00", row.conditions))
    row = compared_row(explained)
    assert row.kernel_error_ratio == pytest.approx(-0.03)
    assert row.absolute_kernel_error_ratio == pytest.approx(0.07)
    assert row.remarks.endswith("in the model: 97.0 % (magnitudes 7.0 %); largest differences: ReLU -5.0 %, add +2.0 %")


def test_figures_show_each_comparison_with_its_kinds_of_operators(
    explained: SimulatedCampaign, caplog: pytest.LogCaptureFixture
) -> None:
    reports = compare(explained)
    (kinds,) = reports[0].kinds
    assert {kind.operator: kind.time_s for kind in kinds} == pytest.approx(
        {"ReLU": 0.003, "GELU": 0.002, "add": 0.002}, rel=1e-6
    )
    assert draw_comparisons(reports, explained.folder / "missing") == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    complete = replace(reports[0].comparisons[0], missing_operators=0)
    files = draw_comparisons([replace(reports[0], comparisons=(complete,))], explained.folder / "figures")
    assert len(files) == 3
    assert all(path.stat().st_size > 1000 for path in files)
    assert draw_comparisons([ComparingReport("a", (), "not measured")], explained.folder / "none") == []
    assert not (explained.folder / "none").exists()


def test_too_few_measurements_leave_what_is_missing_unknown(explained: SimulatedCampaign) -> None:
    remove_lines(explained, "SiLU", "GELU")
    row = compared_row(explained)
    assert (row.unmeasured_time_s, row.dropped_time_s, row.unexplained_time_s) == (None, None, None)
