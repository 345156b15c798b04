"""Predicted costs of models: learned from the committed rows of some models, for others and for other batches."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import warm_python
from committed_models import CONDITIONS, known_database
from simulated_apparatus import RecordedProgress

from opcost.__main__ import main
from opcost.command.run import EXTRAS
from opcost.comparing.predicted_run import WidthReason
from opcost.errors import UserError
from opcost.estimates import value_of
from opcost.operators.counts import OperatorCounts
from opcost.operators.model_inputs import Units
from opcost.reporting.model_tables import print_prediction
from opcost.reporting.ranking_tables import print_rankings, ranking_objects
from opcost.reporting.report_sections import ranking
from opcost.running.expected_times import numbers_of_rows
from opcost.running.request import RunRequest
from opcost.running.shipped_counts import shipped_counts
from opcost.stages.count import count_operators
from opcost.stages.predict import PACKAGES, Prediction, PredictionRequest, predict
from opcost.stages.show import show
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database
from opcost.units import milli

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Database:
    return known_database(tmp_path_factory.mktemp("database"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def request_of(database: Database, tmp_path: Path) -> RunRequest:
    return RunRequest((), ModelFolders(tmp_path / "mine", ROOT / "measurements"), database)


def predicted(request: RunRequest, cache: Path, name: str, **options: object) -> Prediction:
    wish = PredictionRequest(WantedModel(name), **{"device": "H200", **options})  # type: ignore[arg-type]
    return predict(request, wish, cache, RecordedProgress())


def test_a_measured_whole_is_the_answer_and_the_corrected_sum_its_check(request_of: RunRequest, cache: Path) -> None:
    found = predicted(request_of, cache, "resnet50")
    (shown,) = (one.row for one in show(request_of).models if one.row.name == found.result.name)
    assert found.whole is not None
    assert (found.time_s.value, found.time_s.has(found.whole.measurement.time_s)) == (shown.time_s, True)
    assert found.energy_j is not None
    assert (found.energy_j.value, found.basis.temperature_c) == (shown.energy_j, shown.reference_temperature_c)
    assert found.energy_j.upper - found.energy_j.value >= 0.999 * 1.645 * shown.energy_standard_error_j
    # Own rows of other boards are in the interval.
    boards = [row for row in request_of.database.full_model_measurements.rows() if row.key == found.whole.key]
    assert len(boards) > 1
    assert all(found.time_s.has(row.measurement.time_s) for row in boards)
    assert all(found.energy_j.has(value_of(found.basis.energy_of(row))) for row in boards)
    # The check is the sum that show has, with the error that it expects.
    assert found.run.time_s.value / found.time_s.value == pytest.approx(shown.corrected_time_ratio)
    assert found.run.energy_j is not None
    assert found.run.energy_j.value / found.energy_j.value == pytest.approx(shown.corrected_energy_ratio)
    assert found.power_w == pytest.approx(shown.power_w)
    assert (found.run.calls, found.run.measured_time_ratio) == ((), 1)
    assert found.run.time_s.has(found.time_s.value)
    half_width = found.run.time_s.upper / found.run.time_s.value - 1
    assert half_width == pytest.approx(shown.expected_time_error_ratio, abs=0.002)


def test_inputs_behind_rectifiers_are_taken_as_half_zeros_on_shapes(request_of: RunRequest, cache: Path) -> None:
    calls = predicted(request_of, cache, "vgg16", batch=8).run.calls
    found = {str(one.case.input_data) for one in calls if one.count.operator.short_name == "Conv2d"}
    assert "captured: 0.5 zeros" in found


def test_another_batch_of_a_measured_model_is_between_its_batch_and_in_proportion(
    request_of: RunRequest, cache: Path
) -> None:
    whole = predicted(request_of, cache, "resnet50").run
    half = predicted(request_of, cache, "resnet50", batch=16)
    assert (half.result.units, half.result.name) == (Units(16), "resnet50_16x3x224x224")
    assert half.run.measured_time_ratio == 0
    assert 0.4 * whole.time_s.value < half.run.time_s.value < 0.7 * whole.time_s.value
    # The models that are learned from are of four families.
    assert WidthReason.FEW_FAMILIES in {one.reason for one in half.run.widened}
    errors = [one.error_s for one in half.run.calls]
    assert len(errors) > 10
    assert errors == sorted(errors, reverse=True)
    assert half.time_s == half.run.time_s
    per_sample = half.per_unit(half.time_s)
    assert per_sample is not None
    assert per_sample.value == pytest.approx(half.run.time_s.value / 16)
    assert half.power_w is not None
    assert 100 < half.power_w < 800


def test_an_unseen_model_of_known_kinds_is_near_its_measured_whole(request_of: RunRequest, cache: Path) -> None:
    # The committed whole of ResNet-34 takes 3.2 ms; none of its own rows is learned from.
    found = predicted(request_of, cache, "resnet34_32x3x224x224")
    assert 0.7 * 3.2e-3 < found.run.time_s.value < 1.3 * 3.2e-3


def test_a_model_of_unknown_kinds_is_answered_with_an_interval_that_holds_its_whole(
    request_of: RunRequest, cache: Path
) -> None:
    found = predicted(request_of, cache, "vit_b_16").run
    assert found.outside_time_ratio > 0.2
    reasons = {one.reason: one for one in found.widened}
    assert {"MultiheadAttention", "GELU"} <= set(reasons[WidthReason.NEW_KINDS].operators)
    assert reasons[WidthReason.NEW_KINDS].time_ratio == pytest.approx(
        sum(one.time_s for one in found.calls if one.is_new) / sum(one.time_s for one in found.calls), rel=0.01
    )
    rows = Database(ROOT / "database").full_model_measurements.rows()
    wholes = [
        row.measurement
        for row in rows
        if "float32[32, 3," in row.inputs and row.operator.endswith(".vit_b_16") and row.key.endswith(CONDITIONS)
    ]
    assert wholes
    assert found.energy_j is not None
    assert all(found.time_s.has(one.time_s) and found.energy_j.has(one.energy_j) for one in wholes)
    assert found.time_s.upper < 10 * found.time_s.value


NET = """
import torch
from torch import nn

def build(is_traced=False):
    layers = nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU()
    net, images = nn.Sequential(*layers).eval(), torch.ones(32, 3, 96, 96)
    return (torch.jit.trace(net, images) if is_traced else net), images
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_traced_model_is_predicted_as_the_same_one_in_eager_mode(
    request_of: RunRequest, cache: Path, tmp_path: Path
) -> None:
    path = tmp_path / "net.py"
    path.write_text(NET)
    request = replace(request_of, allow_code=True)
    wishes = [WantedModel(f"{path}:build", arguments=(("is_traced", value),)) for value in (False, True)]
    found = [predict(request, PredictionRequest(one, device="H200"), cache, RecordedProgress()) for one in wishes]
    eager, traced = (one.run for one in found)
    assert traced.time_s.value == pytest.approx(eager.time_s.value, rel=0.35)
    assert eager.time_s.lower < traced.time_s.value < eager.time_s.upper
    assert traced.time_s.lower < eager.time_s.value < traced.time_s.upper
    assert not [one for one in traced.widened if one.reason is WidthReason.NEW_KINDS]


def test_a_model_of_which_most_is_in_no_operator_is_refused(
    request_of: RunRequest, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shipped_counts

    def emptied(*given: object) -> dict[str, OperatorCounts]:
        found = full(*given)  # type: ignore[arg-type]
        return {name: replace(one, total_flop=9 * one.total_flop, outside=("mm",)) for name, one in found.items()}

    monkeypatch.setattr("opcost.stages.predict.shipped_counts", emptied)
    with pytest.raises(UserError, match=r"88.9 % of its FLOPs or bytes are in no tuple \(mm\), so that no sum"):
        predicted(request_of, cache, "resnet50")


@pytest.mark.parametrize("model", ["resnet50", "mobilenet_v2"])
def test_small_calls_are_a_reason_for_a_wide_interval_at_batch_1(
    request_of: RunRequest, cache: Path, model: str
) -> None:
    found = predicted(request_of, cache, model, batch=1).run
    (small,) = (one for one in found.widened if one.reason is WidthReason.SMALL_CALLS)
    assert small.time_ratio > 0.5
    widths = [one.time_s.upper / one.time_s.value for one in (found, predicted(request_of, cache, model, batch=64).run)]
    assert widths[0] > 1.2 * widths[1]


@pytest.mark.parametrize(
    ("precision", "options", "message"),
    [
        (
            "torch-default",
            {"device": "H20"},
            "--device H20: no row and no data sheet of it; there are rows of NVIDIA H200",
        ),
        ("torch-default", {"execution": "eager"}, "no operator was measured in eager .* only in graph on NVIDIA H200"),
    ],
)
def test_what_has_no_rows_is_refused_with_what_there_is(
    request_of: RunRequest, cache: Path, precision: str, options: dict[str, str], message: str
) -> None:
    wish = PredictionRequest(WantedModel("resnet50", precision=precision), **{"device": "H200", **options})
    with pytest.raises(UserError, match=message):
        predict(request_of, wish, cache, RecordedProgress())


@pytest.mark.parametrize(
    ("precision", "device", "product"),
    [("bf16", "H200", "NVIDIA H200"), ("torch-default", "A100", "NVIDIA A100-SXM4-80GB"), ("fp16", "L4", "NVIDIA L4")],
)
def test_conditions_without_rows_are_answered_by_data_sheets_with_a_line_that_says_so(
    request_of: RunRequest, cache: Path, precision: str, device: str, product: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = predicted(request_of, cache, "resnet50", batch=16).run
    wanted = WantedModel("resnet50", precision=precision)
    wish = PredictionRequest(wanted, device=device, batch=16)
    found = predict(request_of, wish, cache, RecordedProgress())
    conditions, start = found.result.conditions, found.run.start
    assert (conditions.device_product, conditions.precision) == (product, precision)
    assert start is not None
    assert (start.device_product, start.precision) == ("NVIDIA H200", "torch-default")
    assert WidthReason.OTHER_CONDITIONS in {one.reason for one in found.run.widened}
    assert found.run.measured_time_ratio == 0
    # Those in 16 bits are faster here, and those on the other cards slower.
    is_faster = found.time_s.value < known.time_s.value
    assert is_faster == (device == "H200")
    width, own = (one.time_s.upper / one.time_s.value for one in (found, known))
    assert 1.3 * own < width < 10
    assert found.power_w is not None
    assert 0.1 < found.power_w / conditions.device_power_limit_w < 1.3
    print_prediction(found)
    text = " ".join(capsys.readouterr().out.split())
    assert "Rates are those of NVIDIA H200 in torch-default, times the ratio of data sheets (NVIDIA H200" in text
    assert "two cards are two" in text


def test_rows_of_another_version_of_torch_are_named(
    request_of: RunRequest, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, line = predicted(request_of, cache, "resnet50"), "the nearest that there is to 3.1.0"
    for version, is_said in (("2.11.7+cpu", False), ("3.1.0", True), (None, False)):
        monkeypatch.setattr("opcost.stages.predict.version_of", lambda _, version=version: version)
        print_prediction(found)
        assert (line in " ".join(capsys.readouterr().out.split())) == is_said


def test_what_was_learned_is_kept_until_the_rows_change(
    request_of: RunRequest, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    predicted(request_of, cache, "resnet50", batch=8)
    (kept,) = cache.glob("learned-*")
    caplog.clear()
    predicted(request_of, cache, "resnet50", batch=8)
    assert "learning once" not in caplog.text
    kept.write_bytes(b"damaged")
    again = predicted(request_of, cache, "resnet50", batch=8)
    assert "learning once from the measured operators" in caplog.text
    assert kept.stat().st_size > 1000
    assert again.samples > 100


def test_missing_packages_are_refused_before_anything_is_counted_and_not_needed_for_what_was_learned(
    request_of: RunRequest, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted(request_of, cache, "resnet50")
    monkeypatch.setattr("opcost.stages.predict.find_spec", lambda name: None)
    assert predicted(request_of, cache, "resnet50").run.measured_time_ratio == 1
    progress = RecordedProgress()
    with pytest.raises(ModuleNotFoundError) as caught:
        predict(request_of, PredictionRequest(WantedModel("resnet50"), batch=8), tmp_path / "empty", progress)
    assert caught.value.name == "sklearn"
    assert progress.names == []


def test_the_packages_for_training_are_those_of_an_extra() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = tomllib.loads(text)["project"]["optional-dependencies"]["predict"]
    names = {re.split(r"\W*[<>=]", requirement)[0] for requirement in declared}
    assert {"sklearn" if name == "scikit-learn" else name for name in names} == set(PACKAGES)
    assert set(PACKAGES) <= EXTRAS.keys()


def test_show_predicts_counted_models_from_what_was_learned_and_never_learns(
    request_of: RunRequest,
    cache: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["opcost", "show"])
    folder = request_of.folders.own / "small_8x3x224x224"
    folder.mkdir(parents=True)
    (folder / "summary.yml").write_text("model_name: resnet18\ninput_size: [8, 3, 224, 224]\n", encoding="utf-8")
    named = replace(request_of, names=("small_8x3x224x224",))
    count_operators(named, RecordedProgress(), on_meta=True)
    predicted(request_of, cache, "resnet50")
    assert [one.predicted for one in show(request_of, cache=tmp_path).rankings] == [()]
    assert not list(tmp_path.glob("learned-*"))
    assert show(named).rankings == ()
    (all_models,) = show(request_of, cache=cache).rankings
    (named_alone,) = show(named, cache=cache).rankings
    assert all_models.predicted == named_alone.predicted
    (found,) = all_models.predicted
    expected = predicted(request_of, cache, "small_8x3x224x224")
    assert (found.result.name, found.result.units) == (expected.result.name, Units(8))
    assert found.time_s == expected.run.time_s
    print_rankings(show(named, cache=cache), "energy")
    text = " ".join(capsys.readouterr().out.split())
    assert "~ Predicted on NVIDIA H200, never measured; a run with its 90 % interval: small_8x3x224x224" in text
    assert f"{milli(found.time_s.lower)} to {milli(found.time_s.upper)})" in text
    line = next(one for one in ranking_objects(show(request_of, cache=cache)) if one["source"] == "predicted")
    assert (line["name"], line["time_s"]) == ("small_8x3x224x224", None)
    assert line["predicted"]["time_s"]["value"] == expected.run.time_s.value
    assert "Predicted on NVIDIA H200" in ranking((all_models,))


def test_the_rows_are_numbered_by_conditions(database: Database) -> None:
    table = database.operator_measurements
    assert numbers_of_rows(table) == Counter(row.conditions for row in table.rows())


def test_the_least_certain_tuples_become_a_list_for_block_2(request_of: RunRequest, cache: Path) -> None:
    found = predicted(request_of, cache, "resnet50", batch=8, measure_next=5)
    path = Path(str(found.written))
    (config,) = request_of.folders.configs([path.parent.name])
    assert config.grid is not None
    assert found.run.calls[0].case.operator in config.grid.tuples  # type: ignore[union-attr]
    with pytest.raises(UserError, match="exists already"):
        predicted(request_of, cache, "resnet50", batch=8, measure_next=5)


@pytest.fixture
def folders(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[list[str]]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    (cache.parent / "opcost").symlink_to(cache)
    yield ["--measurements", str(tmp_path / "models"), "--database", str(database.folder)]
    (cache.parent / "opcost").unlink()


def test_the_command_predicts_ones_own_model_in_text_and_json(
    folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "import torch\n"
        "from torch import nn\n\n"
        "def build(batch=8):\n"
        "    body = [nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 96, 3, stride=2), nn.ReLU()]\n"
        "    return nn.Sequential(*body).eval(), torch.randn(batch, 3, 112, 112)\n",
        encoding="utf-8",
    )
    arguments = ["predict", f"{file}:build", "--allow-code", "--device", "H200", *folders]

    def run(*options: str) -> int:
        monkeypatch.setattr(sys, "argv", ["opcost", *arguments, *options])
        return main()

    assert run() == 0
    text = capsys.readouterr().out
    assert "net_build on NVIDIA H200 (torch-default, graph): predicted, not measured" in text
    assert run("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["source"] == "predicted"
    assert 0 < found["memory"]["least_bytes"] < found["memory"]["device_bytes"]
    assert 0 < found["time_s"]["lower"] < found["time_s"]["value"] < found["time_s"]["upper"]
    assert "few_families" in {one["reason"] for one in found["widened"]}
    assert (found["measured_whole"], found["time_s"]) == (None, found["predicted_run"]["time_s"])
    assert len(found["predicted"]) >= 4
    with pytest.raises(UserError, match="--batch: the inputs of .* give the batch there.*--argument batch=4"):
        run("--batch", "4")
    assert run("--argument", "batch=4", "--json") == 0
    of_four = json.loads(capsys.readouterr().out)
    assert of_four["batch"] == 4
    assert of_four["time_per_sample_s"]["value"] == pytest.approx(of_four["time_s"]["value"] / 4)


def test_a_model_of_known_counts_needs_no_torch(folders: list[str], request_of: RunRequest, cache: Path) -> None:
    predicted(request_of, cache, "resnet50")
    words = ["predict", "resnet50", *folders[2:], "--measurements", str(ROOT / "measurements")]
    program = (
        "import sys\n"
        "from opcost.__main__ import main\n"
        f"sys.argv = ['opcost', *{words!r}]\n"
        "main()\n"
        "assert not {'torch', 'sklearn', 'pandas'} & set(sys.modules)\n"
    )
    result = warm_python.run([sys.executable, "-c", program], ROOT, libraries=("numpy",))
    assert result.returncode == 0, result.stderr
    assert "resnet50_32x3x224x224" in result.stdout


def test_a_model_with_a_measured_whole_is_never_predicted(
    request_of: RunRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its whole is measured, none of its operators is.
    folder = tmp_path / "database"
    folder.mkdir()
    for name in ("model_operators.csv", "full_model_measurements.csv"):
        (folder / name).write_bytes((request_of.database.folder / name).read_bytes())
    rows = (request_of.database.folder / "operator_measurements.csv").read_bytes().splitlines(keepends=True)
    (folder / "operator_measurements.csv").write_bytes(b"".join(rows[:2]))
    wanted: set[str] = set()

    def predicted_models(
        request: RunRequest, data: object, conditions: object, names: set[str], cache: object
    ) -> tuple[()]:
        wanted.update(names)
        return ()

    monkeypatch.setattr("opcost.stages.show.predicted_models", predicted_models)
    report = show(replace(request_of, database=Database(folder)), cache=tmp_path)
    measured = {one.row.name for one in report.models if one.row.source == "whole"}
    assert {"resnet50_32x3x224x224", "vgg16_32x3x224x224"} <= measured
    assert "vit_b_16_32x3x224x224" in wanted
    assert not measured & wanted
