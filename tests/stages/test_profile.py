"""Profiles: one command from a model's name to the cost of its operators, that goes on where it was interrupted."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torchvision
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Load
from torch import Tensor, nn

from opcost.__main__ import main
from opcost.errors import CannotMeasureError, UserError
from opcost.measuring import procedure
from opcost.measuring.conditions import GRAPH
from opcost.measuring.protocol import RETRIES, MeasurementProtocol
from opcost.operators.tuples import META, OperatorTuple, PlainValue
from opcost.reporting.measurement_tables import announced
from opcost.reporting.model_tables import print_profile
from opcost.running import planned_bench
from opcost.running.request import RunRequest
from opcost.stages.make_configs import configs_of, scratch_folder
from opcost.stages.measure_operators import Protocols, UnitReport
from opcost.stages.profile import Measuring, Profile, profile
from opcost.stages.wanted_model import WantedModel, arguments_of
from opcost.storage.configs import WHITELIST, ModelFolders
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS

ROOT = Path(__file__).parents[2]
SHORT = MeasurementProtocol(0.5, 1.0)
TINY = WantedModel("tiny_net", (2, 3, 8, 8))


class TinyNet(nn.Module):
    """Four operators, of which a usual whitelist drops the last two."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.activation = nn.Softplus()

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.activation(self.convolution(image)).cumsum(1).mean()
        return found


def tiny_net(*, weights: None = None) -> nn.Module:
    return TinyNet()


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """A user's model, registered with torchvision."""
    torchvision.models._api.register_model("tiny_net")(tiny_net)
    yield
    del torchvision.models._api.BUILTIN_MODELS["tiny_net"]


# On a simulated machine


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    """Return a campaign without models, in which each operator takes 1 ms at 200 W."""
    loads: defaultdict[OperatorTuple, Load] = defaultdict(lambda: Load(time_s=0.001, power_w=200.0))
    conditions = replace(SIMULATED_CONDITIONS, execution=GRAPH)
    # Not on a GPU, whose cache corrections the second run would measure.
    return SimulatedCampaign(tmp_path, loads, device="cpu", conditions=conditions)


def profiled(campaign: SimulatedCampaign, *wanted: WantedModel, dry_run: bool = False) -> Profile:
    request = replace(campaign.request(dry_run=dry_run), device="cpu")
    return profile(request, wanted or [TINY], RecordedProgress(), measuring(campaign))


def measuring(campaign: SimulatedCampaign, plans: list[Sequence[UnitReport]] | None = None) -> Measuring:
    protocols = Protocols(lambda _: SHORT, lambda _: SHORT)
    return Measuring(protocols, campaign.open_apparatus, ([] if plans is None else plans).append)


def test_a_profile_measures_every_operator_and_the_whole(campaign: SimulatedCampaign) -> None:
    (campaign.measurements / WHITELIST).write_text("operators: [Conv2d]\n")
    plans: list[Sequence[UnitReport]] = []
    request = replace(campaign.request(), device="cpu")
    found = profile(request, [TINY], RecordedProgress(), measuring(campaign, plans))
    (model,), (unit,) = found.models, found.units
    assert {line.operator.rpartition(".")[2] for line in model.operators} == {"Conv2d", "Softplus", "cumsum", "mean"}
    assert (unit.operators.measured, unit.whole.newly_measured, found.failed) == (4, True, False)
    assert "tiny_net_2x3x8x8" in announced(plans[0])
    for line in model.operators:
        assert line.time_s == pytest.approx(0.001, rel=0.02)
        assert line.energy_j == pytest.approx(0.2, rel=0.05)
        assert line.time_ratio == pytest.approx(0.25, rel=0.02)
    assert sum(line.flop for line in model.operators) == model.flop
    assert sum(line.memory_bytes for line in model.operators) == model.memory_bytes
    assert model.comparison is not None
    (row,) = model.comparison.comparisons
    assert row.time_ratio == pytest.approx(4.0, rel=0.05)
    assert (model.conditions, row.missing_operators) == (row.conditions, 0)


def test_the_same_profile_again_measures_and_counts_nothing(campaign: SimulatedCampaign) -> None:
    first = profiled(campaign)
    folder = campaign.measurements / first.models[0].name
    built, times = list(campaign.built), (folder / COUNTS.file_name).stat()
    # Block 1's pickle is not made.
    assert sorted(path.name for path in folder.iterdir()) == [COUNTS.file_name, "summary.yml"]
    again = profiled(campaign)
    assert campaign.built == built
    assert (folder / COUNTS.file_name).stat().st_mtime_ns == times.st_mtime_ns
    # The time of the comparison differs.
    before, after = ([replace(one, comparison=None) for one in found.models] for found in (first, again))
    assert before == after
    progress, request = RecordedProgress(), replace(campaign.request(dry_run=True), device="cpu")
    with scratch_folder(request.folders, [TINY]) as scratch:
        (unit,) = profile(replace(request, folders=scratch), [TINY], progress, measuring(campaign)).units
    assert (unit.expected_s, progress.names) == (0.0, [])


def test_an_interrupted_profile_goes_on(campaign: SimulatedCampaign) -> None:
    def stop(operator: OperatorTuple) -> None:
        if len(campaign.built) == 2:
            raise KeyboardInterrupt

    campaign.before = stop
    with pytest.raises(KeyboardInterrupt):
        profiled(campaign)
    campaign.before = lambda _: None
    (unit,) = profiled(campaign).units
    assert (unit.operators.found, unit.operators.measured, unit.whole.newly_measured) == (2, 2, True)


def test_several_sizes_are_profiled_with_one_start(campaign: SimulatedCampaign) -> None:
    found = profiled(campaign, replace(TINY, input_size=(4, 3, 8, 8)), TINY, TINY)
    assert [model.name for model in found.models] == ["tiny_net_4x3x8x8", "tiny_net_2x3x8x8"]
    assert campaign.with_meter == [True]


@pytest.mark.parametrize(
    ("refused", "unmeasured", "line"),
    [
        ("cumsum", ["torch.Tensor.cumsum"], "failed: out of memory"),
        ("tiny_net", [], "the whole model is not measured on cpu: out of memory; correct this, and repeat the command"),
    ],
)
def test_what_cannot_be_measured_is_reported_and_the_others_are_shown(
    campaign: SimulatedCampaign, capsys: pytest.CaptureFixture[str], refused: str, unmeasured: list[str], line: str
) -> None:
    def refuse(operator: OperatorTuple) -> None:
        if operator.short_name == refused:
            raise CannotMeasureError("out of memory")

    campaign.before = refuse
    found = profiled(campaign)
    assert found.failed
    assert [line.operator for line in found.models[0].operators if line.time_s is None] == unmeasured
    print_profile(found, TINY.words)
    printed = " ".join(capsys.readouterr().out.split())
    assert line in printed
    # The same command would fail again.
    assert unmeasured or "measure-models" not in printed


def test_a_plan_writes_nothing(campaign: SimulatedCampaign, capsys: pytest.CaptureFixture[str]) -> None:
    request = replace(campaign.request(dry_run=True), device="cpu")
    with scratch_folder(request.folders, [TINY]) as scratch:
        found = profile(replace(request, folders=scratch), [TINY], RecordedProgress(), measuring(campaign))
        print_profile(found, TINY.words)
    assert [unit.operators.remaining for unit in found.units] == [4]
    printed = capsys.readouterr().out
    assert "total time needed" in printed
    assert "tiny_net_2x3x8x8: to be measured: 4 without a row" in printed
    assert "tiny_net_2x3x8x8: to be measured: the whole model, without a row" in printed
    assert [path.name for path in campaign.measurements.iterdir()] == [WHITELIST]
    assert (campaign.database.folder.exists(), campaign.built) == (False, [])


# Without measuring


def test_without_measuring_the_costs_are_those_of_the_database(campaign: SimulatedCampaign) -> None:
    profiled(campaign)
    found = profile(campaign.request(), [TINY], RecordedProgress(), None)
    (model,) = found.models
    (known,) = model.known
    assert (known.calls_ratio, model.conditions, found.failed) == (1.0, None, False)
    assert known.sum_time_s == pytest.approx(0.004, rel=0.02)
    assert known.whole_time_s == pytest.approx(0.001, rel=0.02)
    assert [line.time_s for line in model.operators] == [None] * 4
    assert len(found.comparisons[0].comparisons) == 1


def test_without_measuring_models_are_counted_on_shapes_and_again_with_values_before_they_are_measured(
    campaign: SimulatedCampaign,
) -> None:
    (model,) = profile(campaign.request(), [TINY], RecordedProgress(), None).models
    assert (model.counted_on, model.known) == (META, ())
    assert profiled(campaign).models[0].counted_on == "cpu"
    assert profile(campaign.request(), [TINY], RecordedProgress(), None).models[0].counted_on == "cpu"


def shipped_profile(tmp_path: Path, *wanted: WantedModel) -> Profile:
    database = Database(tmp_path / "database", ROOT / "database")
    request = RunRequest((), ModelFolders(tmp_path / "measurements", ROOT / "measurements"), database)
    return profile(request, wanted, RecordedProgress(), None)


def test_a_shipped_model_needs_no_count_and_has_its_rows(tmp_path: Path) -> None:
    (model,) = shipped_profile(tmp_path, WantedModel("resnet50")).models
    products = {known.conditions.device_product: known for known in model.known}
    known = products["NVIDIA H200"]
    assert {product: one.calls_ratio for product, one in products.items()} == dict.fromkeys(products, 1.0)
    assert known.whole_time_s == pytest.approx(0.004967, rel=0.01)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_shares_some_operators_with_others_has_an_estimated_rest(tmp_path: Path) -> None:
    (model,) = shipped_profile(tmp_path, WantedModel("resnet18", (32, 3, 224, 192))).models
    assert model.known == () or model.known[0].calls_ratio < 1


# Configs


def named_and_new(folders: ModelFolders, wanted: list[WantedModel]) -> list[tuple[str, bool]]:
    """Return the name of each config, and whether it was written now."""
    before = {*folders.own.glob("*/*")}
    return [
        (config.name, config.path.is_relative_to(folders.own) and config.path not in before)
        for config in configs_of(folders, wanted)
    ]


def test_a_config_is_written_once_and_one_with_the_same_content_is_used(tmp_path: Path) -> None:
    folders = ModelFolders(tmp_path / "own", ROOT / "measurements")
    assert named_and_new(folders, [WantedModel("resnet50")]) == [("resnet50_32x3x224x224", False)]
    wanted = [WantedModel("resnet18", precision="bf16", memory_format="channels_last"), TINY]
    first, second = named_and_new(folders, wanted), named_and_new(folders, wanted)
    names = ["resnet18_32x3x224x224_bf16_channels_last", "tiny_net_2x3x8x8"]
    assert first == [(name, True) for name in names]
    assert second == [(name, False) for name in names]
    (config, _) = configs_of(folders, wanted)
    assert (config.precision, config.memory_format) == ("bf16", "channels_last")


@pytest.mark.parametrize("line", ["seed: 1", "composites: [TinyNet]", "precision: fp32", "weights_name: A"])
def test_a_folder_of_another_content_keeps_its_name(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tiny_net_2x3x8x8" / "summary.yml"
    path.parent.mkdir()
    path.write_text(f"model_name: tiny_net\ninput_size: [2, 3, 8, 8]\n{line}\n")
    before = path.read_text()
    (found,) = configs_of(ModelFolders(tmp_path), [TINY])
    assert (found.name, path.read_text()) == ("tiny_net_2x3x8x8_2", before)


@pytest.mark.parametrize(
    ("configs", "precision", "expected"),
    [
        ({"mine": "[2, 3, 8, 8]\nprecision: [fp32, bf16]"}, "bf16", ("mine_bf16", False)),
        # Its name means another model as well.
        ({"tiny": "[2, 3, 8, 8]", "tiny_4x3x8x8": "[4, 3, 8, 8]"}, TINY.precision, ("tiny_net_2x3x8x8", True)),
    ],
)
def test_a_case_of_a_config_with_lists_is_used_unless_its_name_is_ambiguous(
    tmp_path: Path, configs: dict[str, str], precision: str, expected: tuple[str, bool]
) -> None:
    for name, keys in configs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.yml").write_text(f"model_name: tiny_net\ninput_size: {keys}\n")
    assert named_and_new(ModelFolders(tmp_path), [replace(TINY, precision=precision)]) == [expected]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (WantedModel("resnet81"), "^MODEL: .* has no model 'resnet81'; did you mean"),
        (WantedModel("resnet18", (1, 3)), "^--input-size: resnet18 takes 4 numbers such as"),
        (WantedModel("resnet18", arguments=(("weights", "x"),)), "^--argument: weights is no argument here"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(tmp_path: Path, wanted: WantedModel, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        configs_of(ModelFolders(tmp_path), [TINY, wanted])
    assert len(raised.value.lines) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "name", "remedy"),
    [
        (
            "model_name: transformers:BertModel\ninputs: {input_ids: {shape: [2, 8], dtype: int64}}\n",
            "mine",
            "these take it: opcost count mine && opcost filter mine && opcost measure mine --whole && "
            "opcost compare mine",
        ),
        (
            "model_name: net.py:build\n",
            "mine",
            "these take it: opcost count mine --allow-code && opcost filter mine && "
            "opcost measure mine --whole --allow-code && opcost compare mine",
        ),
        (
            "model_name: resnet18\nbatch: [1, 2]\ninput_size: [1, 3, 32, 32]\nprecision: [bf16]\n",
            "mine_2x3x32x32_bf16",
            "run opcost profile resnet18 --input-size 2x3x32x32 --precision bf16",
        ),
    ],
)
def test_the_name_of_a_config_is_no_model_and_the_line_says_which_commands_take_it(
    text: str, name: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opcost.invocation._opcost", lambda: ["opcost"])
    path = tmp_path / "mine" / "summary.yml"
    path.parent.mkdir()
    path.write_text(text)
    (path.parent / "net.py").touch()
    with pytest.raises(UserError) as raised:
        configs_of(ModelFolders(tmp_path), [WantedModel(name)])
    assert raised.value.lines == (f"MODEL: {name} is a config ({path}) and no model; {remedy}",)


def test_a_mistake_in_the_size_of_a_model_is_shown_although_a_config_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "resnet18").mkdir()
    (tmp_path / "resnet18" / "summary.yml").write_text("model_name: resnet34\ninput_size: [1, 3, 32, 32]\n")
    with pytest.raises(UserError, match="^--input-size: resnet18 takes 4 numbers"):
        configs_of(ModelFolders(tmp_path), [WantedModel("resnet18", (1, 3))])


def test_a_model_that_does_not_run_leaves_no_config(campaign: SimulatedCampaign) -> None:
    with pytest.raises(UserError, match="^--input-size: tiny_net does not run"):
        profiled(campaign, replace(TINY, input_size=(2, 3, 2, 2)))
    assert [path.name for path in campaign.measurements.iterdir()] == [WHITELIST]


@pytest.mark.parametrize("words", [("--dry-run",), ("--no-measure",)])
def test_a_mistake_names_what_the_user_wrote(words: tuple[str, ...], tmp_path: Path, monkeypatch: Any) -> None:
    """The config was written for the profile, and is removed."""
    (tmp_path / "net.py").write_text("def build(): return 'no model'\n")
    for model, option in ((f"{tmp_path}/net.py:build", "MODEL"), ("tiny_net", "--precision")):
        with pytest.raises(UserError) as raised:
            run(monkeypatch, tmp_path, model, "1x3x2x2", "--precision", "bf16", "--allow-code", *words)
        (line,) = raised.value.lines
        assert line.startswith(f"{option}: {model}")
        assert "summary.yml" not in line


@pytest.mark.parametrize(
    ("name", "folder"),
    [("resnet18", "resnet18"), ("timm:vit.a", "timm_vit_a"), ("nets/my_net.py:build", "my_net_build")],
)
def test_a_folder_has_a_plain_name(name: str, folder: str) -> None:
    assert WantedModel(name).base_name == folder


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('n="1e5"', "1e5"),
        ("n='12'", "12"),
        ("n=1e5", 1e5),
        ("n=1e-3", 1e-3),
        ("n=12", 12),
        ("n=true", True),
        ('n="true"', "true"),
        ("n=gelu", "gelu"),
        ('n=[1, "2", 3e0]', (1, "2", 3.0)),
    ],
)
def test_an_argument_keeps_its_type(text: str, value: PlainValue, tmp_path: Path) -> None:
    wanted = replace(TINY, arguments=arguments_of([text]))
    first, again = (configs_of(ModelFolders(tmp_path), [wanted])[0] for _ in range(2))
    assert repr(wanted.arguments) == repr(first.arguments) == repr((("n", value),))
    assert again == first
    option, written = wanted.words[-2:]
    assert (option, repr(arguments_of([written]))) == ("--argument", repr(wanted.arguments))


@pytest.mark.parametrize(
    "text",
    [
        "n=&a [*a]",
        "n=" + "[" * 3000,
        "n=" + "[" * 20 + "1" + "]" * 20,
        "n=[" + ",".join(f"&a{i} [{','.join([f'*a{i - 1}'] * 9) if i else 1}]" for i in range(9)) + "]",
        "n=!!python/name:os.system x",
        "n=!x 3",
        "n=1}, m: {",
        "n=1}\nmodel_name: {a: 1",
        "n=" + "x" * 100_000,
        "n=\udcff",
        "n",
        "=3",
    ],
    ids=lambda text: f"{text[:20]!a}",
)
def test_an_argument_that_a_config_would_refuse_is_one_line(text: str) -> None:
    with pytest.raises(UserError) as caught:
        arguments_of([text])
    (line,) = caught.value.lines
    assert line.startswith("--argument ")
    assert "; write " in line or ": write " in line
    assert len(line) < 400


def test_a_name_of_two_lines_is_one_line(tmp_path: Path) -> None:
    for name in ("a\nb.py:build", "resnet\n18"):
        with pytest.raises(UserError, match=r"^MODEL: '[^\n]*' has characters that cannot be shown; [^\n]*$"):
            configs_of(ModelFolders(tmp_path), [replace(TINY, model_name=name)])


# The command


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure on the CPU in this process, once and with hardly any warm-up."""
    monkeypatch.setattr(planned_bench, "open_child_bench", planned_bench.open_local_bench)
    monkeypatch.setattr(procedure, "RETRIES", replace(RETRIES, at_once=1))
    monkeypatch.setattr("opcost.measuring.protocol.CPU_WARM_UP_S", 0.01)


def run(monkeypatch: pytest.MonkeyPatch, home: Path, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["/somewhere/opcost", "profile", *words, "--home", str(home)])
    return main()


@pytest.mark.usefixtures("quick")
def test_the_command_measures_on_the_cpu_and_writes_a_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [f"--{name}={tmp_path / name}" for name in ("measurements", "database")]
    words = ("tiny_net", "2x3x8x8", "--device", "cpu", "--seconds", "0.05", *folders)
    assert run(monkeypatch, tmp_path, *words) == 0
    printed = capsys.readouterr()
    report = tmp_path / "measurements" / "tiny_net_2x3x8x8" / "report.html"
    assert report.exists()
    assert f"report in: {report}" in printed.err
    assert "about " in printed.err
    assert "operators by time (4 of 4)" in printed.out
    assert "Sum of operators and whole model" in printed.out
    assert run(monkeypatch, tmp_path, *words, "--json", "--report", str(tmp_path / "own.html")) == 0
    printed = capsys.readouterr()
    found: dict[str, Any] = json.loads(printed.out)
    (model,), (unit,) = found["models"], found["measurements"]
    assert found["report"] == str(tmp_path / "own.html")
    assert (tmp_path / "own.html").exists()
    assert unit["operators"]["measured"] + unit["operators"]["found"] == 4
    assert {"operator", "calls", "flop", "memory_bytes", "time_s", "energy_j", "time_ratio"} <= set(
        model["operators"][0]
    )
    assert len(model["comparison"]["comparisons"]) == 1


def test_a_dry_run_of_the_command_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for device in ("cpu", "H200"):
        words = ("tiny_net", "--input-size", "2x3x8x8", "--device", device, "--dry-run")
        assert run(monkeypatch, tmp_path, *words) == 0
        assert "total time needed" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    # Nor does it name the config that it had for itself.
    for words in (("--dry-run",), ()):
        assert run(monkeypatch, tmp_path, "tiny_net", "2x3x8x8", "--no-measure", "--json", *words) == 0
        (model,) = json.loads(capsys.readouterr().out)["models"]
        assert model["config"] is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--no-measure", "--device", "cpu")])
def test_without_a_gpu_it_counts_and_shows_what_is_known(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert run(monkeypatch, tmp_path, "resnet18", *words) == 0
    printed = capsys.readouterr().out
    assert "Nothing was measured." in printed
    assert "NVIDIA H200" in printed
    assert "opcost profile resnet18 --device cpu" in printed
    assert run(monkeypatch, tmp_path, "resnet18", *words, "--json") == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert (model["known"][0]["calls_ratio"], model["conditions"], model["comparison"]) == (1.0, None, None)
    written = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    # Without a GPU, that nothing is measured follows once the run's log has begun.
    assert written == (set() if words else {".log"})


@pytest.mark.parametrize("size", ["8x", "3", "0x3", "axb", "8 3", "1x1x1x1x1x1x1"])
def test_a_size_is_checked(
    size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, tmp_path, "resnet18", size)
    assert "is not an input size" in capsys.readouterr().err
