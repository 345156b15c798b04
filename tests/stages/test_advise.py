"""Advice on the whitelist: models made of operators with declared costs, some of them measured."""

from dataclasses import replace
from pathlib import Path

import pytest
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Load, simulated_row

from opcost.errors import UserError
from opcost.measuring.protocol import MeasurementProtocol
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.stages.advise import Advice, ModelAdvice, advise
from opcost.stages.measure_operators import measure_full_models, measure_operators
from opcost.storage.configs import WHITELIST, ModelConfig, ModelFolders, load_whitelist, model_tuple
from opcost.storage.counts_file import write_counts
from opcost.storage.model_counts import COUNTS

SHORT = MeasurementProtocol(warm_up_s=1.0, loop_s=2.0)
NAMES = ("Conv2d", "ReLU", "BatchNorm2d", "GELU")
CONV, RELU, NORM, GELU = (OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((4,), "float32"),)) for name in NAMES)
MODEL = model_operator("resnet18", None, (2, 3, 8, 8))
TIMES_S = {CONV: 0.006, RELU: 0.003, NORM: 0.001}
LOADS = {operator: Load(time_s=time_s, power_w=400.0) for operator, time_s in TIMES_S.items()}
WHOLE = Load(time_s=0.0105, power_w=400.0)


def write(config: ModelConfig, *counts: OperatorCount) -> None:
    write_counts(COUNTS.path(config), OperatorCounts(model_tuple(config), counts, 0, 10**9, 7, "2.11.0", "cuda"))


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    """Model ``a``, measured with its whole; model ``b`` has an operator more, which is not."""
    campaign = SimulatedCampaign(tmp_path, {**LOADS, MODEL: WHOLE})
    models = {
        campaign.add_model("a", dict.fromkeys(TIMES_S, 1)): tuple(TIMES_S),
        campaign.add_model("b", {CONV: 1}, batch=4): (CONV, GELU),
    }
    measure_operators(campaign.request(), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    measure_full_models(campaign.request("a"), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    for config, operators in models.items():
        # The bytes of a call give its time: a microsecond each.
        bytes_of = {operator: round(1e6 * TIMES_S.get(operator, 0.002)) for operator in operators}
        write(config, *(OperatorCount(operator, 1, 0, moved) for operator, moved in bytes_of.items()))
    write_whitelist(campaign, "operators: [Conv2d]\n")
    return campaign


def write_whitelist(campaign: SimulatedCampaign, text: str) -> Path:
    path = campaign.measurements / WHITELIST
    path.write_text(text)
    return path


def advised(campaign: SimulatedCampaign, target: float, *names: str, write: bool = False) -> tuple[Advice, ModelAdvice]:
    advice = advise(campaign.request(*names), target, write)
    return advice, advice.models[0]


def test_no_whitelist_is_chosen_by_estimates_alone(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture
) -> None:
    (config,) = ModelFolders(campaign.measurements).configs(["b"])
    write(config, OperatorCount(OperatorTuple("torch.nn.Softmax"), 1, 0, 500_000))
    whitelist = (campaign.measurements / WHITELIST).read_text()
    advised(campaign, 0.85)
    with pytest.raises(UserError, match="--write-whitelist: no operator of b is measured on simulated"):
        advised(campaign, 0.85, "b", write=True)
    assert (campaign.measurements / WHITELIST).read_text() == whitelist
    advised(campaign, 0.85, write=True)
    assert any(message.endswith(": b") for message in caplog.messages)
    assert "Softmax" in (campaign.measurements / WHITELIST).read_text()


def test_shares_are_of_all_operators_and_of_the_measured_whole(campaign: SimulatedCampaign) -> None:
    advice, first = advised(campaign, 0.85)
    assert first.name == "a"
    assert first.time_ratio == pytest.approx(0.6, rel=0.01)
    assert first.energy_ratio == pytest.approx(0.6, rel=0.02)
    assert first.whole_time_ratio == pytest.approx(0.006 / 0.0105, rel=0.01)
    assert first.whole_energy_ratio == pytest.approx(0.006 / 0.0105, rel=0.02)
    assert first.measured_ratio == 1.0
    assert not first.is_reached
    assert [addition.operator for addition in first.additions] == ["ReLU"]
    assert advice.conditions.device_product == "simulated machine"


def test_what_is_not_measured_is_estimated_and_all_models_lack_what_any_of_them_lacks(
    campaign: SimulatedCampaign,
) -> None:
    advice, _ = advised(campaign, 0.7)
    second, together = advice.models[1], advice.all_models
    assert (second.time_ratio, second.measured_ratio) == pytest.approx((6 / 8, 6 / 8), rel=0.02)
    assert second.whole_time_ratio is second.whole_energy_ratio is None
    assert (second.is_reached, second.additions) == (True, ())
    assert (together.name, together.is_reached) == (None, False)
    assert [addition.operator for addition in together.additions] == ["ReLU", "GELU", "BatchNorm2d"]
    assert together.additions[0].share.time_ratio == pytest.approx(0.15, rel=0.02)
    # Estimates follow from all counted models, whichever are named, and without those that have a mistake.
    alone = advised(campaign, 0.7, "b")
    assert alone[1] == second
    folder = campaign.measurements / "c"
    folder.mkdir()
    (folder / "summary.yml").write_text("model_name: [\n")
    (folder / COUNTS.file_name).write_bytes(b"no pickle")
    assert advised(campaign, 0.7, "b") == alone


def test_the_smallest_whitelist_is_written_and_then_reaches_the_target(campaign: SimulatedCampaign) -> None:
    path = write_whitelist(campaign, "# what we measure\noperators: # in this order\n    - Sigmoid\n")
    assert advise(campaign.request(), 0.85, False).smallest == ("Conv2d", "ReLU", "GELU")
    assert load_whitelist(path) == ("Sigmoid",)
    advised(campaign, 0.85, write=True)
    head = "# what we measure\noperators: # in this order\n"
    assert path.read_text() == head + "    - Conv2d\n    - ReLU\n    - GELU\n"
    again, _ = advised(campaign, 0.85, write=True)
    assert again.all_models.is_reached
    assert load_whitelist(path) == again.smallest == ("Conv2d", "ReLU", "GELU")


@pytest.mark.parametrize(
    ("whitelist", "target", "no_longer"), [('["*"]', 0.85, ("BatchNorm2d",)), ("[Conv2d, Linear]", 0.7, ("Linear",))]
)
def test_what_the_smallest_whitelist_leaves_out_is_reported(
    campaign: SimulatedCampaign, whitelist: str, target: float, no_longer: tuple[str, ...]
) -> None:
    write_whitelist(campaign, f"operators: {whitelist}\n")
    advice, _ = advised(campaign, target)
    assert advice.no_longer == no_longer
    assert (advice.all_models.additions == ()) == ("*" in whitelist)


def test_too_few_measurements_say_nothing(campaign: SimulatedCampaign) -> None:
    with pytest.raises(UserError, match=r"no operator is measured on cpu; run block 2"):
        advise(campaign.request(device="cpu"), 0.9, False)
    path = campaign.database.operator_measurements.path
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "ReLU" not in line and "BatchNorm2d" not in line))
    with pytest.raises(UserError, match=r"1 operators of the counted models are measured on simulated machine"):
        advised(campaign, 0.9, "b")


def test_a_model_of_another_precision_is_left_out_because_its_operators_cost_something_else(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture
) -> None:
    (config,) = ModelFolders(campaign.measurements).configs(["b"])
    config.path.write_text(config.path.read_text().replace(f"precision: {config.precision}", "precision: tf32"))
    advice, only = advised(campaign, 0.85)
    assert [model.name for model in advice.models] == [only.name] == ["a"]
    assert caplog.messages == [
        "left out, because costs are those of precision: torch-default: b; name them to see theirs"
    ]
    table = campaign.database.operator_measurements
    rows = [replace(row, conditions=replace(row.conditions, precision="tf32")) for row in table.rows()]
    table.append_missing([replace(row, key=f"{row.key.rpartition('-')[0]}-{row.conditions.key}") for row in rows])
    advice, only = advised(campaign, 0.85, "b")
    assert (only.name, advice.conditions.precision) == ("b", "tf32")


def test_costs_are_those_of_the_device_on_which_these_models_are_measured(campaign: SimulatedCampaign) -> None:
    """Another device has more rows, of other operators."""
    elsewhere = replace(SIMULATED_CONDITIONS, device_product="elsewhere")
    operators = [OperatorTuple("torch.nn.ReLU", (), (TensorSpec((side,), "float32"),)) for side in range(10, 20)]
    table = campaign.database.operator_measurements
    for operator in operators:
        table.append(simulated_row(operator, conditions=elsewhere))
    assert advised(campaign, 0.9, "a")[0].conditions.device_product == "simulated machine"
