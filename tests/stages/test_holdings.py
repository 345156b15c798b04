"""Holdings of a database: complete models, models in part, and the time for the rest, as other tools find them."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pandas
import pytest
from committed_tables import committed, of_boards
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Load

from opcost.__main__ import main
from opcost.errors import UserError
from opcost.measuring.protocol import protocol_for
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.reporting.count_tables import print_holdings
from opcost.running.request import Request
from opcost.running.shipped_counts import ship_counts
from opcost.stages.holdings import Holdings, PartialModel, holdings
from opcost.stages.measure_operators import OperatorsReport, measure_full_models, measure_operators
from opcost.storage.configs import ModelFolders

ROOT = Path(__file__).parents[2]
SHORT = protocol_for(is_gpu=True, loop_s=2.0)
RELU, GELU, SILU, LINEAR = (
    OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((32, 64), "float32"),))
    for name in ("ReLU", "GELU", "SiLU", "Linear")
)


def held(*names: str, execution: str | None = None, device: str | None = None) -> list[Holdings]:
    return holdings(Request(names, ModelFolders(ROOT / "measurements"), committed()), execution, device)


# Committed tables, as pandas finds them


def test_holdings_are_those_of_the_tables() -> None:
    found, folder = held(), ROOT / "database"
    rows = pandas.read_csv(folder / "operator_measurements.csv", low_memory=False)
    wholes = pandas.read_csv(folder / "full_model_measurements.csv")
    counted = pandas.read_csv(folder / "model_operators.csv").drop_duplicates(["model_key", "key"])
    # The first row of a model is the model itself.
    is_model = counted["key"].str.partition("-")[0] == counted["model_key"]
    models = counted[is_model & ~counted["operator"].str.startswith("grid.")]
    inputs = models.set_index("model_key")[["inputs", "parameters"]]
    assert {one.conditions.key for one in found} == set(rows["key"].str.rpartition("-")[2])
    # In other precisions rows of operators without products stand for each other (``measuring.conditions``).
    for one in (one for one in found if one.conditions.precision == "torch-default"):
        measured = rows[rows["key"].str.endswith(one.conditions.key)]["key"].str.rpartition("-")[0]
        precision = one.conditions.precision
        parameters = inputs["parameters"].fillna("")
        # The inputs, or a parameter, have the dtype of the weights.
        is_bf16 = inputs["inputs"].str.contains("bfloat16") | parameters.str.contains("(?<!auto)dtype='bfloat16'")
        is_autocast = parameters.str.contains("autocast")
        runs = (is_bf16 == (precision == "bf16")) & (is_autocast == (precision == "amp-bf16"))
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


def under(found: list[Holdings], precision: str, execution: str = "graph") -> Holdings:
    (one,) = (
        one
        for one in found
        if (one.conditions.precision, one.conditions.execution, one.conditions.cache) == (precision, execution, "warm")
    )
    return one


def test_the_database_has_all_of_its_models_in_graphs_and_some_eagerly() -> None:
    found = held(device="H200")
    graph, eager = under(found, "torch-default"), under(found, "torch-default", "eager")
    assert len(graph.complete) > 100
    assert {"resnet50_32x3x224x224", "bert_base_8x128_torch-default", "networks_gru"} <= set(graph.complete)
    assert [model.name for model in graph.partial] == [
        "swin3d_s_8x3x16x224x224",
        "timm_efficientnetv2_s_32_torch-default",
    ]
    assert {"resnet50_32x3x224x224_bf16_channels_last", "llama31_8b_1x2048"} <= set(under(found, "bf16").complete)
    assert under(found, "amp-bf16").complete == ("resnet50_32x3x224x224_amp-bf16", "vit_b_16_32x3x224x224_amp-bf16")
    assert [one.complete for one in found if one.conditions.cache == "cold"] == [()]
    assert len(eager.complete) == 8
    assert sum(model.missing for model in eager.partial) > eager.missing
    assert eager.expected_s < sum(model.expected_s for model in eager.partial)


def test_a_model_and_an_execution_and_a_device_can_be_chosen() -> None:
    (eager,) = held("vgg13_bn", "alexnet", execution="eager", device="H200")
    assert [model.name for model in eager.partial] == ["vgg13_bn_32x3x224x224"]
    assert eager.complete == ("alexnet_32x3x224x224",)
    assert eager.missing == eager.partial[0].missing
    assert held(execution="eager", device="H100") == []
    with pytest.raises(UserError, match="--device A100: no row of it; there are rows of NVIDIA H100"):
        held(device="A100")
    # A chosen model is shown in its precision only.
    found = held("convnext_tiny_32x3x224x224_tf32", device="H200")
    complete = [(one.conditions.precision, model) for one in found for model in one.complete]
    assert complete == [("tf32", "convnext_tiny_32x3x224x224_tf32")]


def test_models_with_other_inputs_than_one_tensor_of_numbers_are_held_in_the_precision_of_their_weights(
    tmp_path: Path,
) -> None:
    # The config is of another model, so that these have the names that their tuples give.
    (tmp_path / "resnet18").mkdir()
    (tmp_path / "resnet18" / "summary.yml").write_text("model_name: resnet18\ninput_size: [1, 3, 32, 32]\n")
    found = holdings(Request((), ModelFolders(tmp_path), of_boards("c982")))
    for precision in ("bf16", "torch-default"):
        assert {"BertModel_8x128", "CLIPModel_32x77_32x3x224x224, values (('integers', 0, 49408), 'normal')"} <= set(
            under(found, precision).complete
        )


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


def test_a_tier_is_complete_by_calls_and_by_their_time(
    campaign: SimulatedCampaign, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign.loads[SILU] = Load(time_s=0.003, power_w=300.0)
    for name, tier in {"a": 1, "b": 1, "c": 2}.items():
        with open(campaign.measurements / name / "summary.yml", "a") as file:
            file.write(f"tier: {tier}\n")
    campaign.add_model("uncounted", {}, batch=5)
    path = campaign.measurements / "uncounted" / "summary.yml"
    path.write_text(path.read_text() + "tier: 1\n")
    (path.parent / "operators.pkl").unlink()
    measure(campaign, "a")
    (found,) = holdings(campaign.request())
    first, second = found.tiers
    # Of 4 + 3 calls the 2 of SiLU have no row; the expected time of one is that of its size.
    assert (first.tier, first.models, first.uncounted, first.missing) == (1, 3, 1, 1)
    assert first.calls_ratio == pytest.approx(5 / 7)
    assert 0.0 < first.time_ratio < 1.0
    assert first.expected_s == found.expected_s
    assert (second.models, second.uncounted, second.calls_ratio, second.time_ratio) == (1, 0, 0.0, 0.0)
    measure(campaign, "b")
    (found,) = holdings(campaign.request())
    assert [(one.calls_ratio, one.time_ratio, one.missing) for one in found.tiers] == [(1.0, 1.0, 0), (0.0, 0.0, 1)]
    print_holdings([found])
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "Tier 1 in torch-default: 3 cases, 2 of them counted, 100.0 % of the calls and 100.0 % of the time have rows"
        in printed
    )
    assert (
        "Tier 2 in torch-default: 1 case, 0.0 % of the calls and 0.0 % of the time have rows, 1 tuple missing"
        in printed
    )


def test_an_empty_database_holds_nothing_and_a_whole_is_held_without_its_operators(
    campaign: SimulatedCampaign, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="no such folder"):
        holdings(campaign.request())
    campaign.database.folder.mkdir()
    print_holdings(holdings(campaign.request()))
    assert capsys.readouterr().out == "No row.\n"
    measure_full_models(campaign.request("c"), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    (found,) = holdings(campaign.request())
    assert (found.tuples, found.wholes, found.complete, found.partial) == (0, 1, (), ())


def test_rows_of_operators_of_no_model_are_counted_in_a_large_table_and_not_parsed(
    campaign: SimulatedCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(campaign, "a")
    ship_counts(campaign.database, campaign.request("a").models())
    usual = holdings(campaign.request())
    table = campaign.database.operator_measurements
    line = table.path.read_text(encoding="utf-8").splitlines()[-1]
    with table.path.open("a", encoding="utf-8") as file:
        for number in range(20):
            # It would be refused if it was parsed: its checksum is of another key.
            file.write(f"{number:016x}-{line.partition('-')[2]}\n")
    with pytest.raises(UserError, match="wrong checksum"):
        holdings(campaign.request())
    monkeypatch.setattr("opcost.stages.holdings.WHOLLY_READ_BYTES", 0)
    assert holdings(campaign.request()) == [replace(one, tuples=one.tuples + 20) for one in usual]


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


# The command


def test_json_has_all_models_and_conditions_and_options_of_the_ranking_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["opcost", "show", *arguments, "--conditions"])
        return main()

    for option in ("--csv", "--why", "--operators"):
        with pytest.raises(UserError, match=f"^--conditions: not with {option}; leave one of them out$"):
            run(option)
    assert run("swin3d_s", "--json", "--device", "H200") == 0
    objects = json.loads(capsys.readouterr().out)
    assert objects == json.loads(json.dumps([asdict(one) for one in held("swin3d_s", device="H200")]))
    found = next(one for one in objects if one["partial"])
    assert (found["conditions"]["precision"], found["missing"]) == ("torch-default", 25)
    assert found["partial"][0].keys() == {"name", "tuples", "missing", "expected_s"}
