"""Holdings of a database: complete models, models in part, and the time for the rest, as other tools find them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas
import pytest
from committed_tables import committed
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Load

from opcost.__main__ import main
from opcost.errors import UserError
from opcost.measuring.protocol import protocol_for
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.reporting.holdings_tables import holdings_objects, print_holdings
from opcost.running.request import Request
from opcost.stages.holdings import Holdings, PartialModel, holdings
from opcost.stages.measure_models import measure_full_models
from opcost.stages.measure_operators import OperatorsReport, measure_operators

ROOT = Path(__file__).parents[2]
PRECISIONS, OTHER_SOURCES = (ROOT / "docs" / "data" / name for name in ("precisions", "other_sources"))
FOLDERS = [ROOT / "database", *sorted(table.parent for table in PRECISIONS.glob("*/operator_measurements.csv"))]
SHORT = protocol_for(is_gpu=True, loop_s=2.0)
RELU, GELU, SILU, LINEAR = (
    OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((32, 64), "float32"),))
    for name in ("ReLU", "GELU", "SiLU", "Linear")
)


def held_in(database: Path, *names: str, execution: str | None = None, device: str | None = None) -> list[Holdings]:
    return holdings(Request(names, ROOT / "measurements", committed(database)), execution, device)


# Committed tables, as pandas finds them


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_holdings_are_those_of_the_tables(folder: Path) -> None:
    found = held_in(folder)
    rows = pandas.read_csv(folder / "operator_measurements.csv", low_memory=False)
    wholes = pandas.read_csv(folder / "full_model_measurements.csv")
    counted = pandas.read_csv(folder / "model_operators.csv").drop_duplicates(["model_key", "key"])
    # The first row of a model is the model itself.
    is_model = counted["key"].str.partition("-")[0] == counted["model_key"]
    inputs = counted[is_model].set_index("model_key")[["inputs", "parameters"]]
    assert {one.conditions.key for one in found} == set(rows["key"].str.rpartition("-")[2])
    for one in found:
        measured = rows[rows["key"].str.endswith(one.conditions.key)]["key"].str.rpartition("-")[0]
        precision = one.conditions.precision
        dtype = "bfloat16" if precision == "bf16" else "float32"
        runs = inputs["inputs"].str.startswith(dtype) & (
            inputs["parameters"].fillna("").str.contains("autocast") == (precision == "amp-bf16")
        )
        # Views and allocations compute nothing; they move no bytes.
        parts = counted[~is_model & counted["model_key"].isin(inputs.index[runs]) & (counted["memory_bytes"] > 0)]
        is_missing = ~parts["key"].isin(set(measured))
        tuples = parts["key"].str.partition("-")[0]
        has_any = tuples.isin(set(measured.str.partition("-")[0])).groupby(parts["model_key"]).any()
        missing = tuples[is_missing].groupby(parts["model_key"]).nunique().reindex(has_any.index[has_any], fill_value=0)
        assert one.tuples == measured.str.partition("-")[0].nunique()
        assert one.wholes == wholes[wholes["key"].str.endswith(one.conditions.key)]["operator"].size - (
            wholes[wholes["key"].str.endswith(one.conditions.key)]["key"].duplicated().sum()
        )
        assert len(one.complete) == (missing == 0).sum()
        assert sorted(model.missing for model in one.partial) == sorted(missing[missing > 0])
        in_part = is_missing & parts["model_key"].isin(missing.index[missing > 0])
        assert one.missing == tuples[in_part].nunique()
        assert (one.expected_s > 0) == bool(one.partial)


def test_the_database_has_all_of_its_models_in_graphs_and_some_eagerly() -> None:
    graph, eager, weights_from_memory = held_in(ROOT / "database")
    assert (graph.conditions.execution, len(graph.complete), graph.partial) == ("graph", 88, ())
    assert (eager.conditions.execution, len(eager.complete), len(eager.partial)) == ("eager", 8, 51)
    assert (weights_from_memory.conditions.cache, weights_from_memory.complete) == ("cold", ())
    assert {"resnet50_32x3x224x224", "swin_t_32x3x224x224"} <= set(graph.complete)
    assert sum(model.missing for model in eager.partial) > eager.missing
    assert eager.expected_s < sum(model.expected_s for model in eager.partial)


def test_one_model_was_measured_in_part_in_fp32() -> None:
    of_precision = {one.conditions.precision: one for one in held_in(PRECISIONS / "h200_fourth")}
    assert of_precision["fp32"].complete == ("convnext_tiny_32x3x224x224",)
    (model,) = of_precision["fp32"].partial
    assert (model.name, model.tuples, model.missing) == ("efficientnet_b0_32x3x224x224", 118, 35)
    # All of its 129 measurements in bf16 took 79 s.
    assert 10 < model.expected_s < 60
    assert (of_precision["tf32"].complete, of_precision["tf32"].partial) == (("convnext_tiny_32x3x224x224",), ())
    assert of_precision["bf16"].complete == (
        "convnext_tiny_32x3x224x224",
        "convnext_tiny_32x3x224x224, channels_last",
        "efficientnet_b0_32x3x224x224",
        "efficientnet_b0_32x3x224x224, channels_last",
    )


def test_a_model_and_an_execution_and_a_device_can_be_chosen() -> None:
    (eager,) = held_in(ROOT / "database", "vgg13_bn", "alexnet", execution="eager", device="H200")
    assert [model.name for model in eager.partial] == ["vgg13_bn_32x3x224x224"]
    assert eager.complete == ("alexnet_32x3x224x224",)
    assert eager.missing == eager.partial[0].missing
    assert held_in(PRECISIONS / "h100", execution="eager") == []
    with pytest.raises(UserError, match="--device A100: no row of it; there are rows of NVIDIA H200"):
        held_in(ROOT / "database", device="A100")


def test_a_model_has_the_name_of_its_config_and_a_chosen_one_is_shown_in_its_precision_only() -> None:
    configs, database = PRECISIONS / "measurements", committed(PRECISIONS / "h200_fourth")
    of_precision = {one.conditions.precision: one for one in holdings(Request((), configs, database))}
    assert [model.name for model in of_precision["fp32"].partial] == ["efficientnet_b0_32x3x224x224_fp32"]
    assert of_precision["tf32"].complete == ("convnext_tiny_32x3x224x224_tf32",)
    named = holdings(Request(("convnext_tiny_32x3x224x224_tf32",), configs, database))
    complete = [model for one in named for model in one.complete]
    assert (complete, [one.partial for one in named]) == (["convnext_tiny_32x3x224x224_tf32"], 3 * [()])


def test_models_with_other_inputs_than_one_tensor_of_numbers_are_held_in_the_precision_of_their_weights() -> None:
    held = held_in(OTHER_SOURCES / "h200")
    assert [(one.conditions.precision, len(one.complete), one.partial) for one in held] == [
        ("bf16", 10, ()),
        ("torch-default", 8, ()),
    ]
    for one in held:
        assert {
            "BertModel_8x128",
            "CLIPModel_32x77_32x3x224x224, values (('integers', 0, 49408), 'normal')",
        } <= set(one.complete)


# Simulated campaigns


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    """Three models: one of them has an operator of its own, and one shares none with the others."""
    loads = {one: Load(time_s=0.001, power_w=300.0) for one in (RELU, GELU, SILU, LINEAR)}
    wholes = {model_operator("resnet18", None, (batch, 3, 8, 8)): Load(time_s=0.004) for batch in (1, 2, 3)}
    campaign = SimulatedCampaign(tmp_path, {**loads, **wholes}, conditions=SIMULATED_CONDITIONS)
    campaign.add_model("a", {RELU: 3, GELU: 1}, batch=1)
    campaign.add_model("b", {RELU: 1, SILU: 2}, batch=2)
    campaign.add_model("c", {LINEAR: 1}, batch=3)
    return campaign


def measure(campaign: SimulatedCampaign, *names: str, dry_run: bool = False) -> list[OperatorsReport]:
    request = campaign.request(*names, dry_run=dry_run)
    return measure_operators(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())


def test_a_campaign_completes_what_was_held_in_part_in_the_expected_time(campaign: SimulatedCampaign) -> None:
    measure(campaign, "a")
    (found,) = holdings(campaign.request())
    (planned,) = measure(campaign, "b", dry_run=True)
    assert (found.tuples, found.wholes, found.complete, found.missing) == (2, 0, ("a",), 1)
    assert found.partial == (PartialModel("b", 2, 1, planned.expected_s),)
    assert found.expected_s == planned.expected_s > 0
    measure(campaign, "b")
    (found,) = holdings(campaign.request())
    assert (found.tuples, found.complete, found.partial, found.expected_s) == (3, ("a", "b"), (), 0)


def test_a_whole_is_held_without_its_operators(campaign: SimulatedCampaign) -> None:
    measure_full_models(campaign.request("c"), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    (found,) = holdings(campaign.request())
    assert (found.tuples, found.wholes, found.complete, found.partial) == (0, 1, (), ())


def test_each_set_of_conditions_has_its_own_holdings(
    campaign: SimulatedCampaign, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(campaign, "a")
    campaign.conditions = replace(SIMULATED_CONDITIONS, device_power_limit_w=400.0, matmul_bf16_reduction=False)
    campaign.add_model("d", {RELU: 1, LINEAR: 1}, batch=4, precision="tf32")
    measure(campaign, "d")
    usual, other = holdings(campaign.request())
    # Without a config in this precision, a model has its usual name: "c" has all of its operators in "d".
    assert (usual.complete, other.complete) == (("a",), ("d", "resnet18_3x3x8x8"))
    assert [model.name for model in other.partial] == ["resnet18_1x3x8x8", "resnet18_2x3x8x8"]
    print_holdings([usual, other])
    printed = capsys.readouterr().out
    assert "torch-default, eager, power limit 700 W  " in printed
    assert "tf32, eager, power limit 400 W, matmul bf16 reduction False" in printed
    assert "resnet18_1x3x8x8 lacks 1 of 2 tuples" in printed


def test_nothing_is_held_by_an_empty_database(campaign: SimulatedCampaign, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="no such folder"):
        holdings(campaign.request())
    campaign.database.folder.mkdir()
    found = holdings(campaign.request())
    assert found == []
    print_holdings(found)
    assert capsys.readouterr().out == "No row.\n"


# The command


def run_show(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["opcost", "show", *arguments])
    return main()


def test_json_has_all_models_and_conditions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = PRECISIONS / "h200_fourth"
    assert run_show(monkeypatch, "--conditions", "--json", "--database", str(folder)) == 0
    objects = json.loads(capsys.readouterr().out)
    assert objects == json.loads(json.dumps(holdings_objects(held_in(folder))))
    precisions = [(one["conditions"]["precision"], one["missing"]) for one in objects]
    assert precisions == [("bf16", 0), ("fp32", 35), ("tf32", 0)]
    assert objects[1]["partial"][0].keys() == {"name", "tuples", "missing", "expected_s"}


@pytest.mark.parametrize("option", ["--csv", "--why", "--operators"])
def test_options_of_the_ranking_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    with pytest.raises(UserError, match=f"^--conditions: not with {option}; leave one of them out$"):
        run_show(monkeypatch, "--conditions", option)
    assert capsys.readouterr().out == ""
