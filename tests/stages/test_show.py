"""The ranking: figures of the committed database as pandas finds them, and what is said of models without a figure."""

import ast
import csv
import io
import json
import math
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas
import pytest
import warm_python
from committed_tables import committed, of_boards
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Load

from opcost.comparing.corrections import Corrections, Curve
from opcost.comparing.operator_costs import CostShare
from opcost.comparing.ranking import ASSUMED_SUM_ERRORS, FEWEST_WHOLES, SORTS, TIME, ranked, sum_errors
from opcost.errors import UserError
from opcost.estimates import Estimate
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Excess
from opcost.operators.cache_chains import KINDS
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.prediction.learned_costs import from_bytes, to_bytes
from opcost.prediction.rates import PREDICTED_ERROR_RATIOS
from opcost.reporting.ranking_tables import (
    csv_lines,
    largest,
    print_csv,
    print_rankings,
    print_remarks,
    ranking_objects,
    sides_of,
    table_of,
)
from opcost.running.request import Request
from opcost.stages import predict
from opcost.stages.compare import find_comparisons
from opcost.stages.filter import filter_operators
from opcost.stages.measure_operators import measure_full_models, measure_operators
from opcost.stages.ranking_data import read_ranking_data
from opcost.stages.show import USUAL_CHOICE, Choice, DeviceRanking, ShowReport, show
from opcost.storage import configs
from opcost.storage.configs import ModelConfig, ModelFolders, load_config
from opcost.storage.counts_file import write_counts
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS
from opcost.units import percent

ROOT = Path(__file__).parents[2]
SHORT = MeasurementProtocol(warm_up_s=1.0, loop_s=2.0)


@cache
def kept() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


@cache
def shown_of_committed(names: tuple[str, ...], choice: Choice) -> ShowReport:
    """Return what several tests look at: it is the same each time."""
    return show(Request(names, ModelFolders(ROOT / "measurements"), committed()), choice, Path(kept().name))


ON_AN_H200 = Choice(device="H200")


def shown(*names: str, choice: Choice | None = None, database: Path | None = None) -> ShowReport:
    if database is None:
        return shown_of_committed(names, choice or ON_AN_H200)
    choice = choice or USUAL_CHOICE
    return show(Request(names, ModelFolders(ROOT / "measurements"), Database(database)), choice)


@pytest.fixture(scope="module")
def everything() -> ShowReport:
    return shown()


Printed = Callable[..., str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    """A function that returns what is printed of a report at a width."""

    def text_of(report: ShowReport, by: str = "energy", columns: int = 1000, **options: Any) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        print_rankings(report, by, **options)
        return capsys.readouterr().out

    return text_of


def lines_of(report: ShowReport, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    print_csv(report, "energy")
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


# Figures of the committed database


@pytest.fixture(scope="module")
def wholes() -> pandas.DataFrame:
    rows = pandas.read_csv(ROOT / "database" / "full_model_measurements.csv")
    return rows[rows["execution"] == "graph"]


@pytest.mark.parametrize(
    ("name", "operator", "size", "batch"),
    [
        ("resnet50_32x3x224x224", "torchvision.models.resnet50", "float32[32, 3, 224, 224]", 32),
        ("swin_t_32x3x224x224", "torchvision.models.swin_t", "float32[32, 3, 224, 224]", 32),
        ("resnet18_32x3x32x32", "torchvision.models.resnet18", "float32[32, 3, 32, 32]", 32),
    ],
)
def test_a_samples_cost_is_that_of_a_measured_whole_over_the_batch(
    everything: ShowReport, wholes: pandas.DataFrame, name: str, operator: str, size: str, batch: int
) -> None:
    (model,) = [model for model in everything.rankings[0].models if model.row.name == name]
    row = model.row
    measured = wholes[wholes["operator"].eq(operator) & wholes["inputs"].eq(size)]
    (chosen,) = measured[measured["device_uuid"].eq(row.device_uuid) & measured["time_s"].eq(row.time_s)].itertuples()
    assert row.source == "whole"
    assert (row.batch_size, row.energy_j) == (batch, chosen.energy_at_reference_j)
    assert row.energy_per_sample_j == pytest.approx(chosen.energy_at_reference_j / batch)
    assert row.time_per_sample_s == pytest.approx(chosen.time_s / batch)
    assert row.samples_per_joule == pytest.approx(batch / chosen.energy_at_reference_j)
    assert row.samples_per_second == pytest.approx(batch / chosen.time_s)
    assert row.power_w == pytest.approx(chosen.energy_at_reference_j / chosen.time_s)
    qualified = pandas.read_csv(ROOT / "database" / "meter_qualifications.csv").dropna(subset=["idle_power_w"])
    newest = (
        qualified[qualified["device_uuid"].eq(row.device_uuid)].sort_values("qualified_at")["idle_power_w"].iloc[-1]
    )
    assert row.idle_energy_ratio == pytest.approx(newest * chosen.time_s / chosen.energy_at_reference_j)


def test_costs_of_another_unit_have_a_table_of_their_own(tmp_path: Path, printed: Printed) -> None:
    """Both configs describe the same model."""
    for name in ("per_pixel", "resnet50_32x3x224x224"):
        shutil.copytree(ROOT / "measurements" / "resnet50_32x3x224x224", tmp_path / name)
    with (tmp_path / "per_pixel" / "summary.yml").open("a") as file:
        file.write("unit: pixel\n")
    shutil.copy(ROOT / "measurements" / "operator_whitelist.yml", tmp_path)
    request = Request(("per_pixel", "resnet50_32x3x224x224"), ModelFolders(tmp_path), committed())
    report = show(request, ON_AN_H200)
    rows = {model.row.name: model.row for ranking in report.rankings for model in ranking.models}
    of_pixel, of_sample = rows["per_pixel"], rows["resnet50_32x3x224x224"]
    assert (len(report.rankings), of_pixel.unit, of_sample.unit) == (2, "pixel", "sample")
    assert (of_pixel.batch_size, of_pixel.time_s) == (32, of_sample.time_s)
    assert of_pixel.energy_per_sample_j == pytest.approx((of_sample.energy_per_sample_j or 0) / 224**2)
    text = printed(report)
    assert [f"Energy per {unit} on" in text and f"saving mJ/{unit}" in text for unit in ("pixel", "sample")] == [
        True
    ] * 2
    # Savings of a run are the same.
    alone = [printed(show(replace(request, names=(name,)), ON_AN_H200)) for name in rows]
    assert len({re.search(r"^energy .* ([\d.]+ mJ)$", one, re.MULTILINE)[1] for one in alone}) == 1  # type: ignore[index]


def test_every_measured_model_has_a_rank_and_the_cheapest_is_first(everything: ShowReport) -> None:
    (ranking,) = everything.rankings
    assert ranking.product == "NVIDIA H200"
    names = {model.row.name for model in ranking.models}
    assert len(names) > 100
    assert {"resnet50_32x3x224x224", "bert_base_8x128_torch-default", "networks_gru"} <= names
    # Batches and precisions are options, and no further models.
    assert not any(name.startswith("vit_b_16_") and name != "vit_b_16_32x3x224x224" for name in names)
    # The number of samples of a user's file is unknown.
    costs = [model.row.energy_per_sample_j for model in ranking.models if model.row.energy_per_sample_j is not None]
    assert costs == sorted(costs)
    assert costs[0] > 0
    for model in ranking.models:
        assert sum(kind.costs.time_ratio for kind in model.kinds) == pytest.approx(1)
        assert sum(kind.costs.energy_ratio or 0.0 for kind in model.kinds) == pytest.approx(1)
        assert 0 < (model.row.roof_time_ratio or 0) <= 1
        assert 0 < (model.row.roof_energy_ratio or 0) <= 1


# Conditions


@pytest.fixture
def limited(tmp_path: Path) -> Database:
    """Three wholes at the usual power limit, and one at 400 W."""
    database = Database(tmp_path / "database")
    names = {f"torchvision.models.{name}" for name in ("resnet50", "swin_t", "vgg16", "alexnet")}
    for row in of_boards("cd1b", "1810", "0d8f", "49fd", "7896").full_model_measurements.rows():
        if row.operator in names and row.conditions.execution == "graph":
            is_limited = row.operator.endswith("alexnet")
            conditions = replace(row.conditions, device_power_limit_w=400.0) if is_limited else row.conditions
            key = f"{row.key.rpartition('-')[0]}-{conditions.key}"
            database.full_model_measurements.append(replace(row, key=key, conditions=conditions))
    return database


def table_title(ranking: DeviceRanking) -> str:
    table = table_of(ranking, "energy")
    return "" if table is None else table.title


def test_models_under_other_conditions_are_listed_beside_the_ranking_with_a_command_that_keeps_the_options(
    limited: Database, printed: Printed
) -> None:
    report = shown(database=limited.folder)
    (ranking,) = report.rankings
    assert {model.row.conditions for model in ranking.models} == {ranking.conditions}
    assert [model.row.name.partition("_32x")[0] for model in ranking.models] == ["resnet50", "vgg16", "swin_t"]
    assert list(ranking.others) == ["alexnet_32x3x224x224"]
    text = printed(report, with_incomplete=False)
    assert "Under other conditions: alexnet_32x3x224x224" in text
    assert re.search(r"opcost show alexnet_32x3x224x224 +#", text)
    assert "power limit" not in table_title(ranking)
    choice = Choice(TIME, device="H200", execution="graph")
    options = "--sort time --device H200 --execution graph"
    assert re.search(rf"show alexnet_32x3x224x224 {options} +#", printed(shown(choice=choice, database=limited.folder)))
    # JSON has them without figures.
    *objects, last = ranking_objects(report)
    assert last.keys() == objects[0].keys()
    assert (last["name"], last["conditions"]["device_power_limit_w"]) == ("alexnet_32x3x224x224", 400.0)
    assert (last["time_s"], last["energy_j"], last["kinds"]) == (None, None, [])
    assert len(ranking_objects(largest(report, 3))) == 3


def test_a_named_model_under_other_conditions_has_a_table_of_its_own_whose_title_names_them(
    limited: Database, printed: Printed
) -> None:
    first, second = shown("resnet50", "alexnet", database=limited.folder).rankings
    assert [model.row.name for model in first.models] == ["resnet50_32x3x224x224"]
    assert [model.row.name for model in second.models] == ["alexnet_32x3x224x224"]
    assert (first.conditions.device_power_limit_w, second.conditions.device_power_limit_w) == (700.0, 400.0)
    assert ("power limit 700 W" in table_title(first), "power limit 400 W" in table_title(second)) == (True, True)
    text = printed(shown("resnet50", "alexnet", choice=Choice(operators=True), database=limited.folder))
    assert text.index("power limit 700 W") < text.index("power limit 400 W")


# Roofs and mistakes in other configs


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    """A folder with the config of resnet18 only."""
    folder = tmp_path / "measurements"
    shutil.copytree(ROOT / "measurements" / "resnet18_32x3x224x224", folder / "resnet18_32x3x224x224")
    return folder


def shown_in(folder: Path, *names: str, shipped: Path | None = None) -> ShowReport:
    return show(Request(names, ModelFolders(folder, shipped), committed()), ON_AN_H200)


def test_neither_the_roof_nor_a_figure_depends_on_other_configs_or_their_mistakes(
    everything: ShowReport, own_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (model,) = shown_in(own_folder).rankings[0].models
    (expected,) = [each for each in everything.models if each.row.name == model.row.name]
    assert model.roofline == expected.roofline
    assert model.row.roof_energy_ratio == expected.row.roof_energy_ratio
    (own_folder / "bad").mkdir()
    (own_folder / "bad" / "summary.yml").write_text("model_name: [\n")
    (model,) = shown_in(own_folder, "resnet18_32x3x224x224", shipped=ROOT / "measurements").models
    assert model.row == expected.row
    assert "left out: " in caplog.text
    report = shown_in(own_folder, shipped=ROOT / "measurements")
    assert [model.row for model in report.rankings[0].models] == [model.row for model in everything.rankings[0].models]
    assert "bad/summary.yml" in caplog.text
    with pytest.raises(UserError, match=r"bad/summary\.yml"):
        shown_in(own_folder, "bad", "resnet18")


# Choices


def test_precisions_formats_and_batches_are_options_and_others_are_said(printed: Printed) -> None:
    usual = shown("vit_b_16", choice=Choice(device="H200"))
    assert [model.row.name for model in usual.models] == ["vit_b_16_32x3x224x224"]
    assert usual.also == (
        *("--precision amp-bf16", "--precision bf16", "--precision bf16 --memory-format channels_last"),
        *("--precision fp32", "--precision tf32", "--batch 1", "--batch 8", "--batch 64", "--batch 128"),
    )
    assert "Also measured: --precision amp-bf16; --precision bf16; " in printed(usual)
    # All that is named can be shown, on the chosen devices.
    assert shown("vit_b_16", choice=Choice(device="H100")).also == ("--precision bf16",)
    wholes = pandas.read_csv(ROOT / "database" / "full_model_measurements.csv")
    rows = wholes[wholes["operator"].str.endswith(".vit_b_16")].groupby(["inputs", "precision"])["time_s"]
    cases = [
        (Choice(device="H200", batch=1), "float32[1, 3, 224, 224]", "torch-default"),
        (Choice(device="H200", precision="fp32"), "float32[32, 3, 224, 224]", "fp32"),
        (
            Choice(device="H200", precision="bf16", memory_format="channels_last"),
            "bfloat16[32, 3, 224, 224]:channels_last",
            "bf16",
        ),
    ]
    for choice, inputs, precision in cases:
        report = shown("vit_b_16", choice=choice)
        (model,) = report.models
        assert model.row.time_s in set(rows.get_group((inputs, precision)))
        assert (report.without_cost, report.not_measured) == ((), ())
    with pytest.raises(UserError, match="--precision fp16: no row in it; there are rows in amp-bf16, bf16, fp32"):
        shown("vit_b_16", choice=Choice(precision="fp16"))


def test_notes_on_functions_are_in_the_order_of_the_kinds(everything: ShowReport, printed: Printed) -> None:
    """They were in that of a set, which differs from run to run."""
    kinds = [kind.operator for model in everything.models for kind in model.kinds[:3]]
    noted = re.findall("(\\w+): the function, called outside", printed(everything))
    assert len(noted) > 1
    assert noted == [name for name in dict.fromkeys(kinds) if name in noted]


def test_all_models_of_a_precision_are_ranked(everything: ShowReport) -> None:
    report = shown(choice=Choice(device="H200", precision="bf16"))
    assert {model.row.conditions.precision for model in report.models} == {"bf16"}
    assert {"resnet50_32x3x224x224_bf16", "llama31_8b_1x2048"} <= {model.row.name for model in report.models}
    assert "--precision bf16" in everything.also


def test_devices_are_set_beside_each_other_with_ratios_and_the_spread_of_boards() -> None:
    report = shown("resnet50", "bert_base", "llama31_8b", choice=Choice(device="H100,H200", precision="bf16"))
    table = sides_of(report)
    assert table is not None
    titles = [column.title for column in table.columns]
    costs = {model.row.name: {} for model in report.models}
    for ranking in report.rankings:
        for model in ranking.models:
            costs[model.row.name][ranking.product] = model.row.time_per_sample_s
    assert len(table.records) == 4
    for row in ([column.text(one) for column in table.columns] for one in table.records):
        (own,) = [found for name, found in costs.items() if name.startswith(row[0])]
        ratio = own["NVIDIA H200"] / own["NVIDIA H100 80GB HBM3"]
        assert row[titles.index("ms ratio H200")] == f"{ratio:.3f}"
    assert any("boards of NVIDIA H200 differ by up to" in note for note in table.notes)
    assert sides_of(shown("resnet50")) is None
    with pytest.raises(UserError, match="--device A100: no row of it"):
        shown("resnet50", choice=Choice(device="H100,A100"))


def test_assumed_errors_of_sums_are_the_largest_that_any_conditions_have() -> None:
    request = Request((), ModelFolders(ROOT / "measurements"), committed())
    data = read_ranking_data(request, request.folders.readable(), ())
    found = [sum_errors(data.results(one))[True] for one in data.newest if one.cache == "warm"]
    for quantity in ("time", "energy"):
        known = [getattr(one, quantity).high_ratio for one in found if not one.is_assumed]
        assert len(known) >= 6
        assert getattr(ASSUMED_SUM_ERRORS[True], quantity).high_ratio == pytest.approx(max(known), abs=0.0006)


def test_devices_without_a_common_model_have_tables_of_their_own(printed: Printed) -> None:
    report = shown("inception_v3", "densenet201", choice=Choice(device="H100,H200"))
    assert sides_of(report) is None
    assert "Energy per sample on NVIDIA H200" in printed(report)


def test_a_batch_that_was_not_measured_has_the_command_that_measures_it(printed: Printed) -> None:
    report = shown("resnet50", choice=Choice(device="H200", batch=7))
    assert (report.not_measured, report.without_cost) == (("resnet50_7x3x224x224",), ("resnet50",))
    assert "opcost profile resnet50 --input-size 7x3x224x224" in printed(report)
    with pytest.raises(UserError, match="--batch: the inputs of clip_32_torch-default are those of its"):
        shown("clip_32", choice=Choice(batch=1))
    assert {model.row.batch_size for model in shown(choice=Choice(batch=1, device="H200")).models} == {1}


def test_boards_of_a_device_are_the_same_whichever_models_are_named(everything: ShowReport) -> None:
    assert shown("bert_base", choice=Choice(device="H200")).rankings[0].boards == everything.rankings[0].boards


def test_what_is_begun_on_another_device_is_not_shown_unless_it_is_asked_for() -> None:
    assert [ranking.product for ranking in shown("inception_v3", choice=Choice()).rankings] == ["NVIDIA H200"]
    begun = shown("inception_v3", choice=Choice(device="H100"))
    assert [model.row.name for model in begun.models if model.needs_rows] == ["inception_v3_32x3x299x299"]


@pytest.mark.parametrize("by", SORTS)
def test_models_are_in_the_order_that_is_asked_for(by: str) -> None:
    (ranking,) = shown("resnet[0-9]*_32x3x224x224", choice=Choice(by, device="H200")).rankings
    figures = {
        "energy": [model.row.energy_per_sample_j for model in ranking.models],
        "time": [model.row.time_per_sample_s for model in ranking.models],
        "power": [model.row.power_w for model in ranking.models],
        "saving": [-(model.row.saving_energy_per_sample_j or 0.0) for model in ranking.models],
        "name": [model.row.name for model in ranking.models],
    }
    assert figures[by] == sorted(figures[by])  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *product(["resnet50", "resnet50_32x3x224x224", "resnet50*224", "resnet5?"], ["H200"]),
        *product(["resnet50"], [None, "cuda", "NVIDIA H200", "h200"]),
    ],
)
def test_a_model_is_found_by_its_name_and_its_folders_and_a_device_by_its_type_or_name(
    name: str, device: str | None
) -> None:
    ranking, *others = shown(name, choice=Choice(device=device)).rankings
    assert bool(others) == (device in (None, "cuda"))
    assert [model.row.name for model in ranking.models] == ["resnet50_32x3x224x224"]
    assert ranking.product == "NVIDIA H200"


@pytest.mark.parametrize(
    ("names", "device", "message"),
    [
        (["resnet50"], "NVDIA H200", "--device NVDIA H200: no row of it; did you mean NVIDIA H200?"),
        (["resnet50"], "Z80", "--device Z80: no row of it; there are rows of NVIDIA H100 80GB HBM3, NVIDIA H200"),
        (["resnet50"], "cpu", "--device cpu: no row of it; there are rows of NVIDIA H100 80GB HBM3, NVIDIA H200"),
        (["resnet51"], "H200", "no folder matches 'resnet51'; did you mean resnet50, "),
        (["foo*", "resnet50"], "H200", "no model matches 'foo*'; measured are alexnet, bert_base_bf16, "),
    ],
)
def test_a_device_or_model_without_rows_is_an_error_that_names_those_with_rows(
    names: list[str], device: str, message: str
) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as error:
        shown(*names, choice=Choice(device=device))
    assert "swin3d_b" not in str(error.value)


def test_eager_runs_are_shown_when_asked_for(everything: ShowReport) -> None:
    (ranking,) = shown("resnet50", choice=Choice(execution="eager")).rankings
    assert [model.row.conditions.execution for model in ranking.models] == ["eager"]
    assert {model.row.conditions.execution for model in everything.rankings[0].models} == {"graph"}


def test_a_named_model_without_any_measurement_is_named_in_each_output(
    printed: Printed, capsys: pytest.CaptureFixture[str]
) -> None:
    report = shown("mc3_18", "resnet50")
    assert (report.not_measured, report.without_cost) == (("mc3_18_8x3x16x112x112",), ("mc3_18",))
    known, unknown = ranking_objects(report)
    assert unknown.keys() == known.keys()
    assert (unknown["name"], unknown["time_s"], unknown["kinds"]) == ("mc3_18_8x3x16x112x112", None, [])
    assert unknown["energy_missing_reason"] == "not measured under these conditions"
    line = lines_of(report, capsys)[-1]
    assert (line["name"], line["time_s"], line["kind_1"]) == ("mc3_18_8x3x16x112x112", "", "")
    assert line["energy_missing_reason"] == unknown["energy_missing_reason"]
    report = shown("swin*_t_*x224", "swin_v2_t")
    assert [model.row.name for model in report.models] == ["swin_t_32x3x224x224", "swin_v2_t_32x3x256x256"]
    assert (report.not_measured, report.without_cost) == (("swin3d_t_8x3x16x224x224",), ())
    assert "Not measured under these conditions: swin3d_t_8x3x16x224x224\n" in printed(report)
    assert shown().not_measured == ()


def test_the_next_step_of_a_sum_is_to_measure_the_whole(printed: Printed) -> None:
    text = printed(shown("vgg11", choice=Choice(execution="eager")))
    assert "opcost measure-models vgg11_32x3x224x224 --execution eager --relative-error 0.01 " in text
    text = printed(shown(choice=Choice(execution="eager")), with_incomplete=False)
    assert re.search("opcost measure-models resnet18_32x3x224x224 .* # measure whole models \\(the first 6\\)", text)
    assert "opcost measure" not in printed(shown("resnet50"))


def test_another_execution_in_which_a_model_is_measured_is_named(printed: Printed) -> None:
    report = shown("mobilenet_v2", "swin_t", "resnet50", choice=Choice(TIME, execution="eager"))
    assert report.other_executions == {"graph": ("mobilenet_v2_32x3x224x224", "swin_t_32x3x224x224")}
    names = "mobilenet_v2_32x3x224x224 swin_t_32x3x224x224"
    assert f"opcost show {names} --sort time --execution graph " in printed(report)
    assert shown("mobilenet_v2").other_executions == {}


def test_without_rows_in_an_execution_the_remedy_is_another_or_a_measurement(
    campaign: SimulatedCampaign, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"nothing is measured; run .*measure-models"):
        shown("resnet50", database=tmp_path)
    measure(campaign)
    with pytest.raises(UserError, match="nothing is measured in this execution; add --execution eager"):
        show(campaign.request(), Choice(execution="graph"))


# One model


def test_one_model_is_shown_with_its_operators(printed: Printed) -> None:
    report = shown("swin_t")
    (model,) = report.rankings[0].models
    costs = [one.costs for one in model.operators]
    assert sum(cost.time_s for cost in costs) == pytest.approx(model.row.sum_time_s)
    assert sum(cost.energy_j or 0.0 for cost in costs) == pytest.approx(model.row.sum_energy_j)
    assert sum(kind.costs.calls for kind in model.kinds) == sum(cost.calls for cost in costs)
    saved_j = sum(cost.saving_energy_j or 0.0 for cost in costs)
    assert saved_j / 32 == pytest.approx(model.row.saving_energy_per_sample_j)
    counted = pandas.read_csv(ROOT / "database" / "model_operators.csv").query("model == 'swin_t_32x3x224x224'")
    calls = counted.groupby(counted["key"].str.partition("-")[0])["calls"].sum()
    assert {one.key: one.costs.calls for one in model.operators} == {one.key: calls[one.key] for one in model.operators}
    text = printed(report, top=3)
    assert "Operators by energy (3 of 140 measured operator tuples; --top 140 shows all)" in text
    assert text.count("Linear 1536→384") == 1
    assert "linear: the function, called outside of the module Linear." in text


def test_notes_that_hold_for_several_models_are_printed_once(printed: Printed) -> None:
    text = printed(shown("resnet50", "swin_t", "vgg16", choice=Choice(operators=True, device="H200")), top=1)
    assert [text.count(note) for note in ("\nRoof: ", "\nWhole models were measured on")] == [1, 1]
    assert text.count("\nOperators by energy") == 3


def test_flags_are_explained_where_they_are_shown(printed: Printed) -> None:
    text = printed(shown("swin_t"), columns=160)
    assert "duty cycle: measured with pauses, because without them it is throttled by the power limit" in text
    assert "power limit: at the power limit" in text
    assert "flags" not in printed(shown("swin_t"), top=1, columns=160)


def test_sizes_that_differ_have_a_column_at_every_width_and_those_that_all_share_stand_in_the_title(
    printed: Printed,
) -> None:
    text = printed(shown("resnet34", "resnet50", choice=Choice(execution="eager")), columns=80)
    assert "; batch 32\n" in text
    assert re.search(r"^resnet34 +3x56x56 ", text, re.MULTILINE)
    title, header, *_ = printed(shown("resnet50", "swin_t")).splitlines()
    assert title.endswith("; batch 32, 3x224x224")
    assert "batch" not in header
    assert "size" not in header


def without_energies(report: ShowReport) -> ShowReport:
    """The report of a device whose energy cannot be measured."""
    (device,) = report.rankings
    models = []
    for model in device.models:
        row = replace(
            model.row,
            **dict.fromkeys(("energy_j", "energy_standard_error_j", "power_w", "energy_per_sample_j"), None),
            **dict.fromkeys(("samples_per_joule", "roof_energy_ratio", "saving_energy_per_sample_j"), None),
            energy_missing_reason="no RAPL",
        )
        operators = [replace(one, call_energy_j=None, costs=energyless(one.costs)) for one in model.operators]
        kinds = [replace(kind, costs=energyless(kind.costs)) for kind in model.kinds]
        models.append(replace(model, row=row, operators=tuple(operators), kinds=tuple(kinds)))
    rows = ranked([model.row for model in models], "energy")
    of_row = {model.row.name: model for model in models}
    return replace(report, rankings=(replace(device, models=tuple(of_row[row.name] for row in rows)),))


def energyless(costs: CostShare) -> CostShare:
    return replace(
        costs, **dict.fromkeys(("energy_j", "power_w", "energy_ratio", "roof_energy_ratio", "saving_energy_j"), None)
    )


@pytest.mark.parametrize("by", ["energy", "power", "saving"])
def test_without_energies_models_and_operators_are_sorted_by_time_and_the_reason_is_noted(
    printed: Printed, by: str
) -> None:
    report = without_energies(shown("alexnet", "resnet50", "resnet18_32x3x32x32", "vit_b_16"))
    text = printed(report, by, columns=80)
    assert text.startswith("Time per sample on NVIDIA H200")
    assert re.findall(r"^(resnet18|alexnet|resnet50|vit_b_16) ", text, re.MULTILINE)[0] == "resnet18"
    assert "mJ" not in text.partition("───")[0]
    assert text.count("No energy is measured: no RAPL.") == 1
    text = printed(without_energies(shown("swin_t")), columns=80, top=3)
    assert "Operators by time" in text
    assert "Kinds of operators by time" in text
    assert len([line for line in text.splitlines() if {"ms/run", "calls"} <= set(line.split())]) == 2


def test_incomplete_models_have_one_line_and_commands_that_are_not_broken(printed: Printed) -> None:
    report = shown("regnet*", "swin*", choice=Choice(execution="eager"))
    text = printed(report, columns=80)
    assert text.count("not all operators") == 1
    assert f"and {len(report.rankings[0].incomplete) - 6} more" in " ".join(text.split())
    assert " ".join(model.row.name for model in report.rankings[0].incomplete[:6]) in text
    assert "not all operators" not in printed(report, columns=80, with_incomplete=False)


@pytest.mark.parametrize(("operators", "lines"), [(False, 2), (True, 4)])
def test_csv_and_json_have_the_number_that_is_asked_for(operators: bool, lines: int) -> None:
    report = largest(shown("resnet50", "swin_t", choice=Choice(operators=operators, device="H200")), 2)
    assert len(csv_lines(report, "energy")) == lines
    assert len(ranking_objects(largest(report, 1))) == (2 if operators else 1)


def test_a_size_in_a_name_that_is_not_the_models_is_shown(printed: Printed) -> None:
    report = shown("resnet50", "swin_t")
    (device,) = report.rankings
    mine, other = device.models
    row = replace(mine.row, batch_size=1, input_size="1x3x224x224")
    text = printed(replace(report, rankings=(replace(device, models=(replace(mine, row=row), other)),)))
    assert re.search(rf"^{row.name} +1 ", text, re.MULTILINE)
    assert re.search(rf"^{other.row.name.partition('_32x')[0]} +32 ", text, re.MULTILINE)


def test_csv_of_one_model_has_a_line_for_each_operator(capsys: pytest.CaptureFixture[str]) -> None:
    report = shown("resnet50", "swin_t", choice=Choice(operators=True, device="H200"))
    everything = lines_of(report, capsys)
    assert {line["model"] for line in everything} == {"resnet50_32x3x224x224", "swin_t_32x3x224x224"}
    lines = [line for line in everything if line["model"] == "resnet50_32x3x224x224"]
    operators = report.rankings[0].models[0].operators
    assert [line["key"] for line in lines] == [one.key for one in operators]
    assert [float(line["energy_j"]) for line in lines] == [one.costs.energy_j for one in operators]
    assert {line["device_product"] for line in lines} == {"NVIDIA H200"}


@pytest.mark.parametrize(
    ("names", "operators", "has_operators"),
    [
        (("resnet50",), None, True),
        (("resnet50",), False, False),
        (("resnet50*",), None, False),
        (("resnet50", "resnet50_32x3x224x224"), None, False),
        (("resnet50", "swin_t"), None, False),
        (("resnet50", "swin_t"), True, True),
    ],
)
def test_operators_are_shown_of_one_name_or_when_asked_for(
    names: tuple[str, ...], operators: bool | None, has_operators: bool
) -> None:
    report = shown(*names, choice=Choice(operators=operators))
    assert report.has_operators == has_operators
    assert {bool(model.operators) for model in report.models} == {has_operators}


# Outputs agree


def test_json_csv_and_table_have_the_same_models_in_the_same_order(
    printed: Printed, capsys: pytest.CaptureFixture[str]
) -> None:
    report = shown("resnet101", "resnet152", "resnet50", "swin_t")
    objects, lines = json.loads(json.dumps(ranking_objects(report))), lines_of(report, capsys)
    assert [line["name"] for line in lines] == [each["name"] for each in objects]
    for line, each in zip(lines, objects, strict=True):
        assert float(line["energy_per_sample_j"]) == each["energy_per_sample_j"]
        assert line["device_product"] == each["conditions"]["device_product"]
        assert line["kind_1"] == each["kinds"][0]["operator"]
        assert float(line["kind_1_ratio"]) == each["kinds"][0]["costs"]["energy_ratio"]
    table = printed(report)
    positions = [table.index(f"{1000 * each['energy_per_sample_j']:.4g}"[:5]) for each in objects]
    assert positions == sorted(positions)


def test_all_remarks_are_printed_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for names, execution in ((("resnet18", "swin_t"), None), (("resnet18_32x3x224x224",), "eager")):
        request = Request(names, ModelFolders(ROOT / "measurements"), committed())
        print_remarks(show(request, Choice(execution=execution)), find_comparisons(request))
    remarks, none = capsys.readouterr().out.split("No remarks")
    assert re.search(r"^swin_t_32x3x224x224( \(.*\))?: ", remarks, re.MULTILINE)
    assert "resnet18_32x3x32x32: kernel time of operators alone, as a share of that in the model: " in remarks
    assert "(eager)" not in remarks
    assert none == ": no sum of these models can be compared with a whole model.\n"


def test_each_config_is_read_once_and_nothing_is_hashed_where_nothing_was_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Counter[Path]()

    def load(path: Path, *arguments: Any) -> list[ModelConfig]:
        read[path] += 1
        return load_config(path, *arguments)

    monkeypatch.setattr(configs, "load_config", load)
    monkeypatch.setattr(predict, "training_fingerprint", lambda *_: pytest.fail("all rows are hashed"))
    folders = ModelFolders(ROOT / "measurements")
    # A model without a cost, which would be predicted.
    report = show(Request(("resnet18_32x3x32x32",), folders, committed()), Choice(device="H100"), tmp_path)
    assert set(read.values()) == {1}
    assert len(read) == len(folders.names())
    assert not any(ranking.predicted for ranking in report.rankings)


def test_the_result_of_a_model_is_made_once() -> None:
    request = Request((), ModelFolders(ROOT / "measurements"), committed())
    (config,) = request.folders.configs(["resnet18_32x3x32x32"])
    data = read_ranking_data(request, [config], [config.name])
    results = {one: data.results(one) for one in data.newest}
    assert any(results.values())
    for conditions, found in results.items():
        assert [id(one) for one in data.results(conditions, {config.name})] == list(map(id, found))
        assert data.results(conditions, ()) == []


def test_neither_torch_nor_pandas_is_imported() -> None:
    program = (
        "import sys; from opcost.__main__ import main; sys.argv = ['opcost', 'show', 'resnet50']; status = main(); "
        "sys.exit(status or 'torch' in sys.modules or 'pandas' in sys.modules or 'scipy' in sys.modules)"
    )
    libraries = ("pydantic", "rich.console", "rich.table", "yaml", warm_python.SHIPPED_ROWS)
    result = warm_python.run([sys.executable, "-c", program], ROOT, libraries=libraries)
    assert (result.returncode, result.stderr) == (0, "")
    assert "85.82" in result.stdout


# Sums without a whole, on the simulated machine


def operator(name: str) -> OperatorTuple:
    return OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((4,), "float32"),))


RELU, GELU = operator("ReLU"), operator("GELU")
LOADS = {RELU: Load(time_s=0.001, power_w=200.0), GELU: Load(time_s=0.002, power_w=300.0)}
WHOLE_TIME_S = 0.005
BATCHES = range(2, 9)


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    """Models of three ReLUs and a GELU on a CPU, which differ in their batch only."""
    whole = Load(time_s=WHOLE_TIME_S, power_w=240.0)
    models = {model_operator("resnet18", None, (batch, 3, 8, 8)): whole for batch in BATCHES}
    conditions = replace(SIMULATED_CONDITIONS, device_type="cpu", device_product="Simulated CPU")
    campaign = SimulatedCampaign(tmp_path, {**LOADS, **models}, device="cpu", conditions=conditions)
    for batch in BATCHES:
        campaign.add_model(f"a{batch}", {RELU: 3, GELU: 1}, batch=batch)
    return campaign


def measure(campaign: SimulatedCampaign, *wholes: str) -> None:
    measure_operators(campaign.request(), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    if wholes:
        measure_full_models(campaign.request(*wholes), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())


def test_a_complete_sum_takes_the_place_of_a_whole_and_says_its_expected_error(
    campaign: SimulatedCampaign, printed: Printed
) -> None:
    measure(campaign)
    report = show(campaign.request("a2"))
    (model,) = report.rankings[0].models
    errors = ASSUMED_SUM_ERRORS[False]
    # Without wholes the expected error is that of other sums.
    assert (model.row.source, model.row.is_expected_error_assumed) == ("sum", True)
    assert model.row.expected_time_error_ratio == errors.time.high_ratio
    assert "expected error 9.2 % in time, 4.9 % in energy, as on an H200" in printed(report)
    measure(campaign, *(f"a{batch}" for batch in BATCHES[1:]))
    report = show(campaign.request())
    rows = {model.row.name: model.row for model in report.rankings[0].models}
    row = rows["a2"]
    assert [row.source for name, row in sorted(rows.items())] == ["sum", *["whole"] * 6]
    assert row.time_s == pytest.approx(WHOLE_TIME_S, rel=1e-6)
    assert row.time_per_sample_s == pytest.approx(WHOLE_TIME_S / 2, rel=1e-6)
    assert row.energy_j == pytest.approx(3 * 0.2 + 0.6, rel=0.01)
    # Six wholes that equal their sums do not show a high quantile.
    expected = row.expected_time_error_ratio, row.expected_energy_error_ratio, row.is_expected_error_assumed
    assert expected == (errors.time.high_ratio, errors.energy.high_ratio, False)
    assert not report.without_cost
    alone = show(campaign.request("a2"))
    assert [model.row for model in alone.models] == [row]
    text = printed(report)
    assert "~5.000" in text
    assert "~ a2: the sum of its operators, because the whole model is not measured; expected error" in text
    # It is called corrected only if it is, and has no standard error beside its expected one.
    (device,) = alone.rankings
    (model,) = device.models
    curve = Curve(((1, Excess(Estimate(0.0, 0.0), Estimate(0.0, 0.0))),))
    known = Corrections(dict.fromkeys(KINDS, curve))
    one = replace(model, result=replace(model.result, corrections=known))
    corrected = replace(alone, rankings=(replace(device, models=(one,)),))
    for shown_report, headings in (
        (alone, "sum of operators (one run) per sample"),
        (corrected, "sum, corrected (one run) per sample sum of operators"),
    ):
        words = " ".join(printed(shown_report).split())
        assert headings in words
        assert words.count("sum of operators") == 1
        assert "±" not in words


def test_an_incomplete_sum_is_no_cost_but_says_what_is_measured(campaign: SimulatedCampaign, printed: Printed) -> None:
    measure(campaign)
    (config,) = campaign.request("a2").configs()
    counts = COUNTS.read(config)
    more = OperatorCount(operator("SiLU"), 1, 100, 100)
    write_counts(
        COUNTS.path(config), replace(counts, counts=(*counts.counts, more), total_flop=500, total_memory_bytes=500)
    )
    campaign.database.model_operators.path.unlink()
    report = show(campaign.request("a2"))
    assert [model.row.name for model in report.rankings[0].incomplete] == ["a2"]
    assert (report.rankings[0].models, report.without_cost) == ((), ("a2",))
    text = printed(report)
    assert "not all operators are measured: a2 (80.0 % of its bytes and 80.0 % of its FLOPs)" in text
    assert "measure a2" in text


def test_a_whole_of_a_model_that_is_not_counted_has_a_rank_without_kinds(campaign: SimulatedCampaign) -> None:
    measure_full_models(campaign.request("a2"), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    for config in campaign.request().configs():
        COUNTS.path(config).unlink()
    (model,) = show(campaign.request("a2")).rankings[0].models
    assert (model.row.source, model.kinds, model.row.sum_time_s) == ("whole", (), None)
    assert model.row.time_s == pytest.approx(WHOLE_TIME_S, rel=1e-6)


# Sums of which an operator has no row, because the whitelist drops it

TANH, SILU = operator("Tanh"), operator("SiLU")
KEPT = {RELU: 3, GELU: 1, TANH: 1}
"""They take 7 ms in all, the dearest 2 ms a call. All have the same FLOPs and bytes."""


def filtered_campaign(folder: Path, dropped_calls: int, wholes: int = 0) -> SimulatedCampaign:
    """Measure the kept operators, wholes of models that have these only, but not ``b``, which has SiLUs, too."""
    batches = range(3, 3 + wholes)
    models = {model_operator("resnet18", None, (batch, 3, 8, 8)): Load(time_s=0.0077) for batch in (2, *batches)}
    conditions = replace(SIMULATED_CONDITIONS, device_type="cpu", device_product="Simulated CPU")
    loads = {**LOADS, TANH: Load(time_s=0.002, power_w=250.0), **models}
    campaign = SimulatedCampaign(folder, loads, device="cpu", conditions=conditions)
    for batch in batches:
        campaign.add_model(f"a{batch}", KEPT, batch=batch)
    campaign.add_model("b", {**KEPT, SILU: dropped_calls})
    (campaign.measurements / "operator_whitelist.yml").write_text("operators: [ReLU, GELU, Tanh]\n")
    filter_operators(campaign.request())
    measure(campaign, *(f"a{batch}" for batch in batches))
    return campaign


def test_operators_that_the_whitelist_drops_have_a_predicted_cost_in_a_sum(tmp_path: Path, printed: Printed) -> None:
    campaign = filtered_campaign(tmp_path, dropped_calls=1, wholes=FEWEST_WHOLES)
    report = show(campaign.request("b"), Choice(operators=False))
    (model,) = report.rankings[0].models
    row = model.row
    assert (row.source, model.result.missing, row.is_missing, report.without_cost) == ("sum", ("SiLU",), True, ())
    assert row.sum_time_s == pytest.approx(0.007, rel=1e-6)
    assert row.predicted_time_s is not None
    assert 0.001 < row.predicted_time_s < 0.002
    assert row.time_s == pytest.approx(0.007 + row.predicted_time_s)
    assert row.energy_j == pytest.approx((row.sum_energy_j or 0.0) + (row.predicted_energy_j or 0.0))
    # The other models' wholes are 10 % larger than their sums; they are few.
    share = row.predicted_time_s / row.time_s
    error = PREDICTED_ERROR_RATIOS[report.rankings[0].conditions.execution]
    of_sum = max(1 - 1 / 1.1, ASSUMED_SUM_ERRORS[False].time.high_ratio)
    assert row.expected_time_error_ratio == pytest.approx(math.hypot(of_sum, error * share), rel=1e-4)
    assert row.time_standard_error_s == pytest.approx(error / 1.96 * row.predicted_time_s, rel=1e-3)
    text = printed(report)
    assert "~b" not in text
    assert f"~{row.time_s * 1e3:.3f}" in text
    measured = "83.3 % of its bytes and 83.3 % of its FLOPs measured"
    error = f"{percent(row.expected_time_error_ratio)} in time, "
    assert f"~ b ({percent(share)} of the time predicted; {measured}; expected error {error}" in text
    assert "those without a row are predicted from FLOPs and bytes" in text


def test_what_rests_on_all_models_is_kept_until_rows_change(tmp_path: Path) -> None:
    campaign, cache = filtered_campaign(tmp_path, dropped_calls=1, wholes=FEWEST_WHOLES), tmp_path / "cache"
    # The cost of b rests on all: its part without a row is predicted, and its error is that of other sums.
    expected = show(campaign.request("b"))
    assert show(campaign.request("b"), cache=cache) == expected
    (path,) = cache.iterdir()
    content = path.read_bytes()
    text = repr(from_bytes(content))
    assert "0.092)" in text
    path.write_bytes(to_bytes(ast.literal_eval(text.replace("0.092)", "0.081)"))))
    changed = show(campaign.request("b"), cache=cache)
    assert changed != expected
    for damaged in (content[:-9], content.replace(b"0.092", b"0.081"), b"\xff", to_bytes(((), "abort()"))):
        path.write_bytes(damaged)
        assert show(campaign.request("b"), cache=cache) == expected
    assert path.read_bytes() == content
    measure(campaign, "b")
    changed = show(campaign.request("b"), cache=cache)
    assert changed.rankings[0].models[0].row.source == "whole"
    assert changed == show(campaign.request("b"))
    assert [one != path for one in cache.iterdir()] == [True]


def test_less_than_half_of_a_model_is_no_cost(tmp_path: Path, printed: Printed) -> None:
    campaign = filtered_campaign(tmp_path, dropped_calls=6)
    report = show(campaign.request("b"))
    (model,) = report.rankings[0].incomplete
    assert (model.row.time_s, model.row.predicted_time_s, report.without_cost) == (None, None, ("b",))
    assert "not all operators are measured: b (45.5 % of its bytes" in printed(report)


def test_the_remedy_names_the_steps_that_are_left_and_keeps_the_options(tmp_path: Path, printed: Printed) -> None:
    campaign = filtered_campaign(tmp_path, dropped_calls=1)
    whitelist = campaign.measurements / "operator_whitelist.yml"
    text = printed(show(campaign.request("b"), Choice(device="cpu", execution="eager")))
    assert f"The whitelist drops SiLU: add it to {whitelist} first, or measure whole models." in text
    for name in (
        "filter b ",
        "measure b --device cpu --execution eager --seconds 2 ",
        "measure-models b --device cpu --execution eager --relative-error 0.01 ",
    ):
        assert re.search(rf"opcost {name} *#", text)
    # A shipped whitelist is copied before it is edited.
    own = tmp_path / "a new home" / "measurements"
    request = replace(campaign.request("b"), folders=ModelFolders(own, campaign.measurements))
    line = next(line for line in printed(show(request)).splitlines() if f"cp {whitelist}" in line)
    subprocess.run(line, shell=True, check=True)
    assert (own / whitelist.name).read_text() == whitelist.read_text()
    # With the operator in the whitelist, only the measurement is left.
    whitelist.write_text('operators: ["*"]\n')
    text = printed(show(campaign.request("b"), Choice(device="Simulated")))
    assert "whitelist" not in text
    assert "filter" not in text
    # A CPU is meant, on a machine with a GPU, too, and the operators with rows stay as they are.
    assert re.search("opcost measure b --device cpu --seconds 2 *#", text)
    # A model that the user has not counted is counted and filtered first.
    for kind in (COUNTS, FILTERED_COUNTS):
        kind.path(campaign.request("b").configs()[0]).unlink()
    assert re.findall(r"opcost (\S+) b .*#", printed(show(campaign.request("b")))) == [
        *("count", "filter", "measure", "measure-models")
    ]
