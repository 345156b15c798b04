"""Layers of models: rows that add up to the sum, in the order of execution, from a model's name to a table."""

import csv
import io
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from committed_tables import committed, of_boards
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Load
from torch import Tensor, nn

import opcost
from opcost.__main__ import main
from opcost.comparing.layers import LayerRow
from opcost.errors import UserError
from opcost.measuring.conditions import GRAPH
from opcost.measuring.protocol import MeasurementProtocol
from opcost.operators.tuples import OperatorTuple
from opcost.running.request import RunRequest
from opcost.stages.compare import find_comparisons
from opcost.stages.measure_operators import Protocols
from opcost.stages.model_layers import LayersReport, find_layers
from opcost.stages.profile import EVERY_OPERATOR, Measuring, profile
from opcost.stages.show import USUAL_CHOICE, Choice
from opcost.stages.wanted_model import WantedModel, arguments_of
from opcost.storage.configs import ModelFolders
from opcost.storage.counts_file import read_counts, write_counts
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS

ROOT = Path(__file__).parents[2]
H200, H100 = Choice(device="H200"), Choice(device="H100")

SMALL = ["hidden_size=32", "intermediate_size=64", "num_attention_heads=2", "num_hidden_layers=2", "vocab_size=99"]


def totals(rows: Iterable[LayerRow]) -> tuple[float, float]:
    found = list(rows)
    return (
        math.fsum(row.time_s for row in found if row.time_s is not None),
        math.fsum(row.energy_j for row in found if row.energy_j is not None),
    )


def shipped_layers(name: str, choice: Choice, tmp_path: Path) -> LayersReport:
    request = RunRequest((), ModelFolders(tmp_path / "mine", ROOT / "measurements"), committed())
    return find_layers(request, WantedModel(name), choice, RecordedProgress())


def sums_of(name: str, measurements: Path, database: Database) -> dict[str, tuple[float, float]]:
    """Return the sum of operators as the comparison computes it, by device."""
    request = RunRequest((name,), ModelFolders(measurements), database, operators=EVERY_OPERATOR)
    found = {}
    for comparison in find_comparisons(request)[0].results:
        time_s, energy_j = comparison.cost.time_s, comparison.cost.energy_j
        assert time_s is not None
        assert energy_j is not None
        if comparison.conditions.execution == GRAPH:
            found[comparison.conditions.device_product] = time_s.value, energy_j.value
    return found


# With the shipped rows


@pytest.mark.second_tier
@pytest.mark.parametrize("name", ["resnet50", "swin_t"])
def test_layers_add_up_to_the_sum_of_the_comparison(name: str, tmp_path: Path) -> None:
    expected = sums_of(f"{name}_32x3x224x224", ROOT / "measurements", committed())
    assert expected
    for product, sums in expected.items():
        found = shipped_layers(name, Choice(device=product), tmp_path)
        assert found.conditions is not None
        assert found.conditions.device_product == product
        assert not found.differs
        assert not found.lacks_rows
        assert (found.costs.sum_time_s, found.costs.sum_energy_j) == pytest.approx(sums, rel=1e-12)
        for rows in (found.layers.rows, *(found.layers.rows_to(depth) for depth in range(5))):
            assert totals(rows) == pytest.approx(sums, rel=1e-12)
        assert (found.layers.tree.row.time_s, found.layers.tree.row.energy_j) == pytest.approx(sums, rel=1e-12)
    assert not (tmp_path / "mine").exists()


@pytest.mark.second_tier
@pytest.mark.parametrize("name", ["bert_base_8x128_bf16", "llama31_8b_1x2048"])
def test_layers_of_language_models_add_up_to_the_sum(name: str) -> None:
    """Rows of an H100; the Llama of this version of transformers has three other operators."""
    pytest.importorskip("transformers")
    database = of_boards("a8ee")
    request = RunRequest((), ModelFolders(ROOT / "measurements"), database)
    report = find_layers(request, WantedModel(name), H100, RecordedProgress())
    own = (report.costs.sum_time_s, report.costs.sum_energy_j)
    for rows in (report.layers.rows, report.layers.rows_to(3)):
        assert totals(rows) == pytest.approx(own, rel=1e-12)
    (compared,) = sums_of(name, ROOT / "measurements", database).values()
    assert own == pytest.approx(compared, rel=1e-12 if not report.differs else 1e-3)
    paths = [row.path for row in report.layers.rows_to(4)]
    layers = [int(number) for path in paths for number in re.findall(r"layers?\.(\d+)$", path)]
    assert layers == sorted(layers)


# On a simulated machine


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    """Return a campaign without models, in which each operator takes 1 ms at 200 W."""
    loads: defaultdict[OperatorTuple, Load] = defaultdict(lambda: Load(time_s=0.001, power_w=200.0))
    conditions = replace(SIMULATED_CONDITIONS, execution=GRAPH)
    return SimulatedCampaign(tmp_path, loads, device="cpu", conditions=conditions)


def profiled(campaign: SimulatedCampaign, wanted: WantedModel) -> tuple[float, float]:
    """Measure a model on the simulated machine, and return its sum as the comparison has it."""
    short = Protocols(lambda _: MeasurementProtocol(0.5, 1.0), lambda _: MeasurementProtocol(0.5, 1.0))
    request = replace(campaign.request(), device="cpu", allow_code=True)
    measuring = Measuring(short, campaign.open_apparatus, lambda _: None)
    (model,) = profile(request, [wanted], RecordedProgress(), measuring).models
    assert model.comparison is not None
    (row,) = model.comparison.comparisons
    assert row.time_s is not None
    assert row.energy_j is not None
    return row.time_s, row.energy_j


@pytest.mark.parametrize(
    "wanted",
    [
        WantedModel("transformers:BertModel", (2, 8), arguments=arguments_of(SMALL)),
        WantedModel("transformers:LlamaForCausalLM", (2, 8), arguments=arguments_of([*SMALL, "num_key_value_heads=1"])),
    ],
    ids=lambda wanted: wanted.model_name,
)
def test_layers_of_small_transformers_are_complete_and_add_up(campaign: SimulatedCampaign, wanted: WantedModel) -> None:
    pytest.importorskip("transformers")
    sums = profiled(campaign, wanted)
    progress = RecordedProgress()
    report = find_layers(replace(campaign.request()), wanted, Choice(execution=GRAPH), progress)
    assert progress.names == []
    rows = report.layers.rows
    assert totals(rows) == pytest.approx(sums, rel=1e-12)
    assert not report.lacks_rows
    assert not report.layers.are_means
    measured = [row for row in rows if row.time_s is not None]
    assert all(row.time_s == pytest.approx(0.001, rel=0.02) for row in measured)
    assert all(row.energy_j == pytest.approx(0.2, rel=0.05) for row in measured)
    assert len({row.path for row in rows if re.search(r"layers?\.1\.", row.path)}) > 3
    for depth in range(6):
        assert totals(report.layers.rows_to(depth)) == pytest.approx(sums, rel=1e-12)


NET = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout()
    def forward(self, x):
        return self.dropout(self.linear(self.linear(x))) + x
def build():
    return nn.Sequential(Block(), nn.ReLU()), torch.randn(2, 4)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    """The name of a model that a user's file builds."""
    path = tmp_path / "net.py"
    path.write_text(NET)
    return f"{path}:build"


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    folders = ("--measurements", str(folder / "measurements"), "--database", str(folder / "database"))
    monkeypatch.setattr(sys, "argv", ["opcost", "layers", *arguments, *folders])
    return main()


def test_a_users_function_has_its_layers_and_nothing_is_written(
    campaign: SimulatedCampaign, net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, campaign.folder, net, "--allow-code", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["path"], row["layer"]) for row in found["layers"]] == [
        *(("0.linear", "Linear"), ("0.linear", "Linear"), ("0.dropout", "Dropout"), ("0", "add"), ("1", "ReLU"))
    ]
    assert (found["conditions"], found["sum_time_s"], found["counted_on"]) == (None, None, "meta")
    assert {row["time_s"] for row in found["layers"]} == {None}
    assert all(row["missing_reason"] for row in found["layers"])
    assert [path.name for path in campaign.measurements.iterdir()] == ["operator_whitelist.yml"]
    assert not campaign.database.folder.exists()


def test_a_measured_model_is_shown_by_its_name_and_by_that_of_its_config(
    campaign: SimulatedCampaign, net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    time_s, energy_j = profiled(campaign, WantedModel(net))
    (config,) = [path.name for path in campaign.measurements.iterdir() if path.is_dir()]
    outputs = []
    # The counts are there, so no code runs.
    for arguments in ([net, "--allow-code"], [config]):
        assert run(monkeypatch, campaign.folder, *arguments, "--execution", "graph", "--csv", "--depth", "1") == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    rows = list(csv.DictReader(io.StringIO(outputs[0])))
    assert [(row["path"], row["layer"], row["calls"]) for row in rows] == [("0", "Block", "4"), ("1", "ReLU", "1")]
    assert sum(float(row["time_s"]) for row in rows) == pytest.approx(time_s, rel=1e-12)
    assert sum(float(row["energy_j"]) for row in rows) == pytest.approx(energy_j, rel=1e-12)
    assert run(monkeypatch, campaign.folder, config, "--execution", "graph") == 0
    shown = capsys.readouterr().out
    assert "5 calls in order of execution" in shown
    assert "Linear 4→4" in shown


# Mistakes


def mistake_of(request: RunRequest, name: str, choice: Choice = USUAL_CHOICE) -> str:
    with pytest.raises(UserError) as caught:
        find_layers(request, WantedModel(name), choice, RecordedProgress())
    (line,) = caught.value.lines
    return line


def test_counts_of_an_earlier_version_name_the_command_that_counts_again(campaign: SimulatedCampaign, net: str) -> None:
    profiled(campaign, WantedModel(net))
    (folder,) = [path for path in campaign.measurements.iterdir() if path.is_dir()]
    path = folder / COUNTS.file_name
    counts = read_counts(path, "count")
    old = tuple(replace(count, positions=(), callers=()) for count in counts.counts)
    write_counts(path, replace(counts, counts=old, modules=()))
    (campaign.database.folder / "model_operators.csv").unlink(missing_ok=True)
    line = mistake_of(campaign.request(), folder.name)
    assert line.startswith(f"{path}: ")
    assert line.endswith(f"count {folder.name} --allow-code")


def test_an_ambiguous_or_unknown_model_or_device_and_code_that_may_not_run_are_one_line(
    campaign: SimulatedCampaign, net: str, tmp_path: Path
) -> None:
    folder = campaign.measurements / "sweep"
    folder.mkdir()
    (folder / "summary.yml").write_text("model_name: resnet18\ninput_size: [1, 3, 32, 32]\nbatch: [1, 2]\n")
    line = mistake_of(campaign.request(), "sweep")
    assert line.startswith(f"{folder / 'summary.yml'}: sweep has 2 cases")
    assert "sweep_1x3x32x32" in line
    assert "--allow-code" in mistake_of(campaign.request(), net)
    request = RunRequest((), ModelFolders(tmp_path, ROOT / "measurements"), committed())
    assert "resnet50" in mistake_of(request, "resnet5000")
    assert mistake_of(request, "resnet18_32x3x32x32", Choice(device="A100")).startswith("--device A100: ")


# Of an object


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), nn.Flatten()

    def forward(self, image: Tensor, *, scale: float = 2.0) -> Tensor:
        found: Tensor = self.head(self.block(image)) * scale
        return found


def test_an_object_has_the_layers_that_its_profile_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opcost.measuring.protocol.CPU_WARM_UP_S", 0.01)
    model, inputs = Net().train(), {"image": torch.ones(2, 3, 8, 8)}
    before = opcost.layers(model, inputs, database=tmp_path)
    assert "opcost.profile(model, inputs) measures" in str(before)
    assert before.rows["time_s"].isna().all()
    measured = opcost.profile(model, inputs, seconds=0.02, database=tmp_path)
    found = opcost.layers(model, inputs, database=tmp_path)
    assert list(found.rows["path"]) == ["block.0", "block.1", "head", ""]
    assert list(found.rows["layer"]) == ["Conv2d", "ReLU", "Flatten", "mul"]
    assert found.rows["time_s"].sum() == pytest.approx(measured.operators["time_s"].sum(), rel=1e-12)
    assert found.costs.whole_time_s == measured.whole.time_s
    deep = opcost.layers(model, inputs, depth=1, name="mine", database=tmp_path)
    assert list(deep.rows["path"]) == ["block", "head", ""]
    assert [child.name for child in deep.tree.children] == ["block", "head", "mul"]
    assert model.training
    for text in (str(deep), deep._repr_html_()):
        assert "Sequential" in text
        assert "(model)" in text


def test_a_name_has_the_layers_that_the_command_shows() -> None:
    found = opcost.layers("resnet18", depth=1, device="H200")
    assert {"layer1", "avgpool", "fc"} <= set(found.rows["path"])
    assert found.costs.whole_time_s is not None
    wrongs: list[dict[str, Any]] = [{"inputs": torch.ones(2)}, {"name": "mine"}]
    for wrong in wrongs:
        with pytest.raises(UserError, match="those of a model's name are found by it"):
            opcost.layers("resnet18", **wrong)


def test_an_object_that_cannot_be_counted_is_a_users_error(tmp_path: Path) -> None:
    layers: Any = partial(opcost.layers, database=tmp_path)
    with pytest.raises(UserError, match="torch.nn.Module"):
        layers(torch.relu, torch.ones(2))
    with pytest.raises(UserError, match="A100"):
        layers(Net(), torch.ones(2, 3, 8, 8), device="A100")
