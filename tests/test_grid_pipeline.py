"""A grid on its way through blocks 0 to 2, and commands that need a whole model."""

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import warm_python
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Load

from opcost.errors import UserError
from opcost.measuring.conditions import measurement_key
from opcost.measuring.protocol import FULL_LOOP_S, MeasurementProtocol
from opcost.operators.counts import Case, cases_of
from opcost.running.request import Request
from opcost.stages.advise import advise
from opcost.stages.check_files import check_files
from opcost.stages.compare import compare_against, find_comparisons
from opcost.stages.count import CountFailure, CountReport, count_operators, plan_counting
from opcost.stages.filter import filter_operators
from opcost.stages.holdings import holdings
from opcost.stages.make_configs import configs_of
from opcost.stages.measure_operators import (
    OperatorsReport,
    Protocols,
    measure_full_models,
    measure_operators,
    measure_units,
)
from opcost.stages.predict import training_data
from opcost.stages.ranking_data import read_ranking_data
from opcost.stages.verify import rebuild_operators
from opcost.stages.wanted_model import Proposals, WantedModel
from opcost.storage.configs import GRID_NAME, WHITELIST, ModelConfig, ModelFolders, load_config
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS
from opcost.summing.summation import Measurements

SHORT = MeasurementProtocol(warm_up_s=0.5, loop_s=1.0)
FULL = MeasurementProtocol(warm_up_s=2.0, loop_s=FULL_LOOP_S)

CONV = """\
operator: torch.nn.Conv2d
sizes: {batch: 2, side: [4, 8]}
parameters: {in_channels: [8, 9], out_channels: 16, kernel_size: 3, padding: 1, groups: 8}
inputs: [[batch, in_channels, side, side]]
zeros: {inputs: [0, 0.5], weights: [0, 0.9]}
done: false   # stays
"""
DRAWN = """\
tuples:
- torch.nn.Conv2d(in_channels=8, out_channels=8, kernel_size=3, padding=1) on (float32[2, 8, 8, 8]) eval
- torch.nn.Conv2d(in_channels=8, out_channels=8, kernel_size=3, padding=1) on (float32[2, 8, 16, 16]) eval
done: false
"""
RELU = "torch.nn.ReLU() on (float32[8, 64]) eval"
ADD = "torch.Tensor.add on (float32[8, 64], float32[8, 64])"
LIST = f"tuples:\n- {RELU}\n- {ADD}\ndone: false # stays\n"
TEXTS = (
    "normal",
    "captured: normal; weights 0.9 zeros",
    "captured: 0.5 zeros",
    "captured: 0.5 zeros; weights 0.9 zeros",
)


class GridCampaign(SimulatedCampaign):
    """A campaign with a grid. Each case has a declared load of its own."""

    def add_grid(self, text: str = CONV, name: str = "conv_grid") -> ModelConfig:
        path = self.measurements / name / GRID_NAME
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        (config,) = load_config(path, path.parent)
        return config

    def count(self, *names: str, on_meta: bool = False) -> list[CountReport | CountFailure]:
        return count_operators(self.request(*names, device="cpu"), RecordedProgress(), on_meta)

    def prepare(self, text: str = CONV) -> list[Case]:
        """Count and filter a grid; return its cases, with declared loads."""
        config = self.add_grid(text)
        (report,) = self.count("conv_grid")
        assert isinstance(report, CountReport)
        filter_operators(self.request("conv_grid"))
        cases = list(cases_of(FILTERED_COUNTS.read(config).counts, "captured"))
        self.loads = {case.operator: Load(0.001, 200.0) for case in cases}
        self.loads_on = {case: Load(0.001 * (1 + place), 200.0 + 10 * place) for place, case in enumerate(cases)}
        return cases

    def measure(self, *names: str, protocol: MeasurementProtocol = SHORT, dry_run: bool = False) -> OperatorsReport:
        request = self.request(*names, dry_run=dry_run)
        (report,) = measure_operators(request, lambda _: protocol, self.open_apparatus, RecordedProgress())
        return report


@pytest.fixture
def campaign(tmp_path: Path) -> GridCampaign:
    return GridCampaign(tmp_path, {})


def test_each_combination_becomes_a_row_with_its_declared_cost(campaign: GridCampaign) -> None:
    cases = campaign.prepare()
    assert [str(case.input_data) for case in cases] == [*TEXTS, *TEXTS]
    report = campaign.measure()
    assert (report.tuples, report.wanted, report.measured, report.failed, report.remaining) == (2, 8, 8, 0, 0)
    assert not report.has_whole
    rows = {row.key: row for row in campaign.database.operator_measurements.rows()}
    assert len(rows) == 8
    for case in cases:
        row = rows[measurement_key(case, SIMULATED_CONDITIONS)]
        assert row.input_data == str(case.input_data)
        assert row.measurement.time_s == pytest.approx(campaign.loads_on[case].time_s, rel=1e-9)
        assert row.measurement.power_w == pytest.approx(campaign.loads_on[case].power_w, rel=0.02)


@pytest.mark.parametrize("on_meta", [False, True])
def test_predictions_learn_from_measured_tuples_of_a_list(campaign: GridCampaign, on_meta: bool) -> None:
    config = campaign.add_grid(DRAWN, "drawn")
    campaign.count("drawn", on_meta=on_meta)
    filter_operators(campaign.request("drawn"))
    cases = list(cases_of(FILTERED_COUNTS.read(config).counts, "captured"))
    campaign.loads = {case.operator: Load(0.001 * (1 + place), 200.0) for place, case in enumerate(cases)}
    campaign.measure("drawn")
    request = campaign.request()
    data = training_data(
        read_ranking_data(request, request.folders.sound_configs(), (), under=[SIMULATED_CONDITIONS]),
        SIMULATED_CONDITIONS,
    )
    assert list(data.samples.raw[:, 0]) == [2 * 2 * 8 * 8 * 9 * side**2 for side in (8, 16)]
    assert data.samples.times_s == pytest.approx([0.001, 0.002], rel=0.01)
    assert not any(data.samples.families)
    assert not data.wholes


def test_block_0_reports_what_it_left_out(campaign: GridCampaign) -> None:
    campaign.add_grid()
    (plan,) = plan_counting(campaign.request(device="cpu"))
    assert (plan.name, plan.model, plan.counted_before) == ("conv_grid", "16 combinations of torch.nn.Conv2d", False)
    (report,) = campaign.count()
    assert isinstance(report, CountReport)
    assert (report.unique_tuples, report.operator_calls, report.counted_on) == (2, 8, "cpu")
    assert report.flops == report.counted_flops == report.whitelisted_flops
    (line,) = report.left_out
    assert "8 combinations" in line
    assert "in_channels=9" in line


def test_block_1_and_the_replay_take_a_grid_as_a_model(campaign: GridCampaign) -> None:
    campaign.prepare()
    (selection,) = filter_operators(campaign.request())
    assert (selection.kept_tuples, selection.measurements) == (2, 8)
    (replay,) = rebuild_operators(campaign.request(device="cpu"), RecordedProgress())
    assert (replay.operators, replay.rebuilt, replay.failures) == (2, 2, ())
    campaign.database.folder.mkdir(exist_ok=True)
    assert check_files(campaign.request().folders, campaign.database).problems == ()


def test_a_complete_grid_is_done(campaign: GridCampaign) -> None:
    campaign.prepare()
    path = campaign.measurements / "conv_grid" / GRID_NAME
    assert not campaign.measure(protocol=SHORT).done
    assert campaign.measure(protocol=FULL).done
    assert path.read_text() == CONV.replace("done: false", "done: true")
    assert campaign.count() == []
    assert [report.name for report in campaign.count("conv_grid")] == ["conv_grid"]
    assert measure_operators(campaign.request(), lambda _: FULL, campaign.open_apparatus, RecordedProgress()) == []


def test_a_grid_on_shapes_alone_has_the_values_that_it_names(campaign: GridCampaign) -> None:
    config = campaign.add_grid()
    campaign.count()
    on_cpu = COUNTS.read(config)
    campaign.count(on_meta=True)
    assert COUNTS.read(config) == replace(on_cpu, device_type="meta")


def test_rows_of_a_model_are_found_again(campaign: GridCampaign) -> None:
    """A grid measures nothing that a model has measured under the same conditions."""
    cases = campaign.prepare()
    campaign.add_model("a", {case.operator: 1 for case in cases})
    request = campaign.request("a")
    measure_operators(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    assert campaign.measure("conv_grid").found == 2


def test_rows_with_zeros_in_weights_are_in_no_sum(campaign: GridCampaign) -> None:
    cases = campaign.prepare()
    campaign.measure()
    rows = campaign.database.operator_measurements.rows()
    sparse = [row for row in rows if "weights" in row.input_data]
    assert len(sparse) == 4
    for case in cases:
        row = Measurements(rows).nearest(case, SIMULATED_CONDITIONS)
        assert row is not None
        assert row not in sparse
        assert Measurements(sparse).nearest(case, SIMULATED_CONDITIONS) is None


@pytest.mark.parametrize(("text", "old", "new"), [(CONV, "[4, 8]", "[4, 16]"), (LIST, f"- {ADD}\n", "")])
def test_a_changed_grid_is_to_be_counted_again(campaign: GridCampaign, text: str, old: str, new: str) -> None:
    campaign.prepare(text)
    config = campaign.add_grid(text.replace(old, new))
    with pytest.raises(UserError, match=r"grid\.yml, which has changed since; run .*count conv_grid"):
        COUNTS.read(config)


def test_a_grid_has_no_profile(campaign: GridCampaign) -> None:
    campaign.prepare()
    (config,) = ModelFolders(campaign.measurements).configs(["conv_grid"])
    assert WantedModel.of(config) is None
    assert not Proposals.of([config]).profiled
    with pytest.raises(UserError, match="is a config") as caught:
        configs_of(campaign.request().folders, [WantedModel("conv_grid")])
    assert "--whole" not in str(caught.value)


# Commands that need a whole model


def measured_models(campaign: GridCampaign, request: Request) -> list[str]:
    reports = measure_full_models(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    return [report.name for report in reports]


def measured_units(campaign: GridCampaign, request: Request) -> list[str]:
    protocols = Protocols(lambda _: SHORT, lambda _: SHORT)
    opened, progress = campaign.open_apparatus, RecordedProgress()
    return [unit.name for unit in measure_units(request, protocols, opened, progress, lambda _: None)]


COMMANDS: dict[str, Callable[[GridCampaign, Request], list[str]]] = {
    "measure-models": measured_models,
    "measure --whole": measured_units,
    "compare": lambda _, request: [one.name for one in find_comparisons(request)],
}


@pytest.fixture
def beside_a_model(campaign: GridCampaign) -> GridCampaign:
    """A grid that is measured, and a model."""
    cases = campaign.prepare()
    config = campaign.add_model("a", {cases[0].operator: 1})
    campaign.loads = {**campaign.loads, COUNTS.read(config).model: Load(0.002, 300.0)}
    campaign.measure("conv_grid")
    return campaign


@pytest.mark.parametrize("command", COMMANDS)
def test_a_grid_is_left_out_where_models_are_meant_and_alone_is_a_mistake(
    beside_a_model: GridCampaign, command: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = COMMANDS[command]
    with caplog.at_level(logging.WARNING):
        assert run(beside_a_model, beside_a_model.request("*")) == ["a"]
    (line,) = [record.getMessage() for record in caplog.records if "conv_grid" in record.getMessage()]
    assert "measure conv_grid" in line
    assert run(beside_a_model, beside_a_model.request()) == ["a"]
    with pytest.raises(UserError, match="conv_grid is a grid") as caught:
        run(beside_a_model, beside_a_model.request("conv_grid"))
    assert len(caught.value.lines) == 1


def test_holdings_advice_and_other_conditions_are_for_models(beside_a_model: GridCampaign) -> None:
    (one,) = holdings(beside_a_model.request())
    assert (one.tuples, one.complete, one.partial) == (2, ("a",), ())
    grid = beside_a_model.request("conv_grid")
    for use in (
        holdings,
        lambda grid: advise(grid, 0.9, False),
        lambda grid: compare_against(grid, ["precision=fp32"]),
    ):
        with pytest.raises(UserError, match="conv_grid is a grid"):
            use(grid)


# Lists of tuples


def test_tuples_of_a_list_become_rows_and_the_list_is_done(campaign: GridCampaign) -> None:
    cases = campaign.prepare(LIST)
    assert [str(case.operator) for case in cases] == [RELU, ADD]
    (plan,) = plan_counting(campaign.request(device="cpu"))
    assert plan.model == "2 operator tuples"
    report = campaign.measure(protocol=FULL)
    assert (report.tuples, report.wanted, report.measured, report.failed, report.done) == (2, 2, 2, 0, True)
    rows = {row.key for row in campaign.database.operator_measurements.rows()}
    assert rows == {measurement_key(case, SIMULATED_CONDITIONS) for case in cases}
    assert (campaign.measurements / "conv_grid" / GRID_NAME).read_text() == LIST.replace("done: false", "done: true")
    (grid, *operators) = campaign.database.model_operators.rows()
    assert (grid.operator, [row.key for row in operators]) == ("grid.tuples", [case.key for case in cases])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CONV.replace("groups: 8", "groups: 7"), ("operator:", "16 combinations", "divisible")),
        (
            "tuples:\n- torch.Tensor.add on (float32[8], float32[9])\n",
            ("tuples:", "1 operator tuple left out", "must match"),
        ),
    ],
)
def test_a_grid_of_which_nothing_is_left_is_a_failure(
    campaign: GridCampaign, text: str, words: tuple[str, ...]
) -> None:
    campaign.add_grid(text)
    (failure,) = campaign.count("conv_grid")
    assert isinstance(failure, CountFailure)
    words = ("grid.yml:1:", *words, "; correct its parameters")
    assert [word for word in words if word not in failure.reason] == []


# The commands


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    options = ("--measurements", str(folder / "measurements"), "--database", str(folder / "database"))
    return warm_python.run([sys.executable, "-m", "opcost", *words, *options])


def test_a_mistake_is_one_line(campaign: GridCampaign) -> None:
    path = campaign.measurements / "conv_grid" / GRID_NAME
    path.parent.mkdir()
    for text, old, new, place, *words in (
        (CONV, "torch.nn.Conv2d", "torch.nn.Conv2dd", "1: operator: ", "Conv2dd", "did you mean Conv2d"),
        (CONV, "torch.nn.Conv2d", "torch.nn.functional.softmacks", "1: operator: ", "did you mean softmax"),
        (CONV, "torch.nn.Conv2d", "torch.os.system", "1: operator: ", "torch.os.system"),
        (CONV, "torch.nn.Conv2d", "torch.nix.Conv2d", "1: operator: ", "torch.nix.Conv2d"),
        (CONV, "torch.nn.Conv2d", "timm.layers.Conv2dSame", "1: operator: ", "torch.nn.Conv2d"),
        (CONV, "sizes:", "sises:", "2: sises: ", "did you mean sizes?"),
        (LIST, "Tensor.add", "Tensor.addd", "3: tuples: ", "item 2: this version of torch has no operator"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(UserError) as caught:
            campaign.count("conv_grid")
        line = next(line for line in caught.value.lines if line.startswith(f"{path}:{place}"))
        assert [word for word in (*words, "; ") if word not in line] == [], line


def test_the_commands_take_a_grid(campaign: GridCampaign) -> None:
    campaign.add_grid()
    (campaign.measurements / WHITELIST).write_text("operators: [Conv2d]\n")
    counted = run(campaign.folder, "count", "conv_grid", "--meta")
    assert (counted.returncode, "conv_grid: 8 combinations left out" in counted.stdout) == (0, True)
    for command in (["filter"], ["verify", "operators"]):
        assert run(campaign.folder, *command, "conv_grid").returncode == 0
    plan = run(campaign.folder, "measure", "conv_grid", "--dry-run", "--device", "cpu")
    assert (plan.returncode, "8 without a row" in plan.stdout, "--whole" in plan.stdout) == (0, True, False)
    for words in (("measure", "--whole"), ("measure-models",)):
        refused = run(campaign.folder, *words, "conv_grid", "--dry-run", "--device", "cpu")
        assert refused.returncode == 2
        (line,) = refused.stderr.splitlines()
        assert "conv_grid is a grid" in line
    (campaign.measurements / "conv_grid" / GRID_NAME).write_text(CONV.replace("sizes:", "sises:"))
    refused = run(campaign.folder, "count", "conv_grid")
    assert refused.returncode == 2
    assert "grid.yml:2: sises: unknown key; did you mean sizes?" in refused.stderr
