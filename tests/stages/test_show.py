"""The ranking: figures of the committed database as pandas finds them, and what is said of models without a figure."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas
import pytest
from committed_tables import committed, of_boards
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Load

from opcost.comparing.operator_costs import CostShare
from opcost.comparing.ranking import ASSUMED_SUM_ERRORS, FEWEST_WHOLES, SORTS, TIME, sum_errors
from opcost.comparing.ranking_row import ranked
from opcost.errors import UserError
from opcost.measuring.protocol import MeasurementProtocol
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.prediction.rates import PREDICTED_ERROR_RATIOS
from opcost.reporting.show_lines import csv_lines, largest, print_csv, ranking_objects
from opcost.reporting.show_notes import arithmetic
from opcost.reporting.show_tables import print_rankings, print_remarks, sides_of, table_of
from opcost.running.request import COUNTS, FILTERED_COUNTS, Request
from opcost.stages.compare import find_comparisons, reports_of
from opcost.stages.filter import filter_operators
from opcost.stages.measure_operators import measure_full_models, measure_operators
from opcost.stages.ranking_data import read_ranking_data
from opcost.stages.show import USUAL_CHOICE, Choice, DeviceRanking, ShowReport, show
from opcost.storage.counts_file import write_counts
from opcost.storage.database import Database
from opcost.units import percent

ROOT = Path(__file__).parents[2]
SHORT = MeasurementProtocol(warm_up_s=1.0, loop_s=2.0)


@cache
def shown_of_committed(names: tuple[str, ...], choice: Choice) -> ShowReport:
    """Return what several tests look at: it is the same each time."""
    return show(Request(names, ROOT / "measurements", committed()), choice)


ON_AN_H200 = Choice(device="H200")


def shown(*names: str, choice: Choice | None = None, database: Path | None = None) -> ShowReport:
    if database is None:
        return shown_of_committed(names, choice or ON_AN_H200)
    choice = choice or USUAL_CHOICE
    return show(Request(names, ROOT / "measurements", Database(database)), choice)


@pytest.fixture(scope="module")
def everything() -> ShowReport:
    return shown(choice=Choice(device="H200"))


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


def test_shares_of_kinds_are_those_of_calls_times_rows(everything: ShowReport) -> None:
    (model,) = [model for model in everything.rankings[0].models if model.row.name == "resnet50_32x3x224x224"]
    calls = pandas.read_csv(ROOT / "database" / "model_operators.csv").query("model == 'resnet50_32x3x224x224'")
    rows = pandas.read_csv(ROOT / "database" / "operator_measurements.csv", low_memory=False)
    rows = rows.query("execution == 'graph' and cache == 'warm'")
    costs = rows.groupby(rows["key"].str.rsplit("-", n=1).str[0])["energy_at_reference_j"].median()
    energies = calls.set_index("key")["calls"].mul(costs).dropna()
    of_kind = energies.groupby(calls.set_index("key")["operator"].str.rpartition(".")[2]).sum() / energies.sum()
    for kind in model.kinds:
        # The ranking prefers the rows of the whole model's board, this sum takes medians of all boards.
        assert kind.costs.energy_ratio == pytest.approx(of_kind[kind.operator], rel=0.15, abs=0.003)


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


def test_the_figures_are_those_of_the_comparison(everything: ShowReport) -> None:
    compared = {
        row.name: row
        for row in committed().sum_vs_full.rows()
        if row.conditions == everything.rankings[0].conditions and row.counted == "all" and row.input_data == "captured"
    }
    for model in everything.rankings[0].models:
        row = compared.get(model.row.name)
        # Of transformers' models only the operators are measured on this device.
        assert (row is None) == (model.row.source == "sum")
        if row is None:
            continue
        assert (model.row.time_s, model.row.energy_j) == (row.full_time_s, row.full_energy_j)


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


def test_models_under_other_conditions_are_not_ranked_beside_the_others(
    limited: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    report = shown(database=limited.folder)
    (ranking,) = report.rankings
    assert {model.row.conditions for model in ranking.models} == {ranking.conditions}
    assert [model.row.name.partition("_32x")[0] for model in ranking.models] == ["resnet50", "vgg16", "swin_t"]
    assert list(ranking.others) == ["alexnet_32x3x224x224"]
    print_rankings(report, "energy", with_incomplete=False)
    printed = capsys.readouterr().out
    assert "Under other conditions: alexnet_32x3x224x224" in printed
    assert re.search(r"opcost show alexnet_32x3x224x224 +#", printed)
    assert "power limit" not in table_title(ranking)


def test_the_command_that_shows_models_under_other_conditions_keeps_the_options(
    limited: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = Choice(TIME, device="H200", execution="graph")
    print_rankings(shown(choice=choice, database=limited.folder), TIME)
    printed = " ".join(capsys.readouterr().out.split())
    assert "opcost show alexnet_32x3x224x224 --sort time --device H200 --execution graph #" in printed


def test_json_has_models_under_other_conditions_without_figures(limited: Database) -> None:
    report = shown(database=limited.folder)
    *objects, last = ranking_objects(report)
    assert last.keys() == objects[0].keys()
    assert (last["name"], last["conditions"]["device_power_limit_w"]) == ("alexnet_32x3x224x224", 400.0)
    assert (last["time_s"], last["energy_j"], last["kinds"]) == (None, None, [])
    assert len(ranking_objects(largest(report, 3))) == 3


def test_a_named_model_under_other_conditions_has_a_table_of_its_own(limited: Database) -> None:
    first, second = shown("resnet50", "alexnet", database=limited.folder).rankings
    assert [model.row.name for model in first.models] == ["resnet50_32x3x224x224"]
    assert [model.row.name for model in second.models] == ["alexnet_32x3x224x224"]
    assert (first.conditions.device_power_limit_w, second.conditions.device_power_limit_w) == (700.0, 400.0)
    assert ("power limit 700 W" in table_title(first), "power limit 400 W" in table_title(second)) == (True, True)


def test_the_titles_of_models_name_the_conditions_that_differ(
    limited: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    print_rankings(shown("resnet50", "alexnet", choice=Choice(operators=True), database=limited.folder), "energy")
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.index("power limit 700 W") < printed.index("power limit 400 W")


# Roofs and mistakes in other configs


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    """A folder with the config of resnet18 only."""
    folder = tmp_path / "measurements"
    shutil.copytree(ROOT / "measurements" / "resnet18_32x3x224x224", folder / "resnet18_32x3x224x224")
    return folder


def add_broken(folder: Path) -> None:
    (folder / "bad").mkdir()
    (folder / "bad" / "summary.yml").write_text("model_name: [\n")


def shown_in(folder: Path, *names: str, shipped: Path | None = None) -> ShowReport:
    return show(Request(names, folder, committed(), shipped_measurements=shipped), ON_AN_H200)


def test_the_roof_is_that_of_the_device_whichever_configs_there_are(everything: ShowReport, own_folder: Path) -> None:
    (model,) = shown_in(own_folder).rankings[0].models
    (expected,) = [each for each in everything.models if each.row.name == model.row.name]
    assert model.roofline == expected.roofline
    assert model.row.roof_energy_ratio == expected.row.roof_energy_ratio


def test_a_mistake_in_another_config_is_a_warning_and_changes_no_figure(
    everything: ShowReport, own_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_broken(own_folder)
    (model,) = shown_in(own_folder, "resnet18_32x3x224x224", shipped=ROOT / "measurements").models
    (expected,) = [each for each in everything.models if each.row.name == model.row.name]
    assert model.row == expected.row
    assert "left out: " in caplog.text
    assert "bad/summary.yml" in caplog.text


def test_without_a_name_good_models_are_shown_beside_a_broken_config(
    everything: ShowReport, own_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_broken(own_folder)
    report = shown_in(own_folder, shipped=ROOT / "measurements")
    assert [model.row for model in report.rankings[0].models] == [model.row for model in everything.rankings[0].models]
    assert "bad/summary.yml" in caplog.text
    with pytest.raises(UserError, match=r"bad/summary\.yml"):
        shown_in(own_folder, "bad", "resnet18")


# Choices


def test_precisions_formats_and_batches_are_options_and_others_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    usual = shown("vit_b_16", choice=Choice(device="H200"))
    assert [model.row.name for model in usual.models] == ["vit_b_16_32x3x224x224"]
    assert usual.also == (
        *("--precision amp-bf16", "--precision bf16", "--precision bf16 --memory-format channels_last"),
        *("--precision fp32", "--precision tf32", "--batch 1", "--batch 8", "--batch 64", "--batch 128"),
    )
    print_rankings(usual, "energy")
    assert "Also measured: --precision amp-bf16; --precision bf16; " in capsys.readouterr().out.replace("\n", " ")
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
    assert len(table.rows) == 4
    for row in table.rows:
        (own,) = [found for name, found in costs.items() if name.startswith(row[0])]
        ratio = own["NVIDIA H200"] / own["NVIDIA H100 80GB HBM3"]
        assert row[titles.index("ms ratio H200")] == f"{ratio:.3f}"
    assert any("boards of NVIDIA H200 differ by up to" in note for note in table.notes)
    assert sides_of(shown("resnet50")) is None
    with pytest.raises(UserError, match="--device A100: no row of it"):
        shown("resnet50", choice=Choice(device="H100,A100"))


def test_assumed_errors_of_sums_are_the_largest_that_any_conditions_have() -> None:
    request = Request((), ROOT / "measurements", committed())
    data = read_ranking_data(request, request.folders.readable(), ())
    found = [sum_errors(data.figures(one), is_corrected=True) for one in data.newest if one.cache == "warm"]
    for quantity in ("time", "energy"):
        known = [getattr(one, quantity).high_ratio for one in found if not one.is_assumed]
        assert len(known) >= 6
        assert getattr(ASSUMED_SUM_ERRORS[True], quantity).high_ratio == pytest.approx(max(known), abs=0.0006)


def test_devices_without_a_common_model_have_tables_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    report = shown("inception_v3", "densenet201", choice=Choice(device="H100,H200"))
    assert sides_of(report) is None
    print_rankings(report, "energy")
    assert "Energy per sample on NVIDIA H200" in capsys.readouterr().out


def test_a_batch_that_was_not_measured_has_the_command_that_measures_it(capsys: pytest.CaptureFixture[str]) -> None:
    report = shown("resnet50", choice=Choice(device="H200", batch=7))
    assert (report.not_measured, report.without_cost) == (("resnet50_7x3x224x224",), ("resnet50",))
    print_rankings(report, "energy")
    assert "opcost profile resnet50 --input-size 7x3x224x224" in " ".join(capsys.readouterr().out.split())
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


@pytest.mark.parametrize("name", ["resnet50", "resnet50_32x3x224x224", "resnet50*224", "resnet5?"])
def test_a_model_is_found_by_its_own_name_and_by_its_folders(name: str) -> None:
    (ranking,) = shown(name).rankings
    assert [model.row.name for model in ranking.models] == ["resnet50_32x3x224x224"]


@pytest.mark.parametrize("device", [None, "cuda", "NVIDIA H200", "h200"])
def test_a_device_is_chosen_by_its_type_or_by_its_name(device: str | None) -> None:
    ranking = shown("resnet50", choice=Choice(device=device)).rankings[0]
    assert ranking.product == "NVIDIA H200"


@pytest.mark.parametrize(
    ("device", "remedy"),
    [
        ("NVDIA H200", "did you mean NVIDIA H200?"),
        ("Z80", "there are rows of NVIDIA H100 80GB HBM3, NVIDIA H200"),
        ("cpu", "there are rows of NVIDIA H100 80GB HBM3, NVIDIA H200"),
    ],
)
def test_a_device_without_rows_is_an_error_that_names_those_with_rows(device: str, remedy: str) -> None:
    with pytest.raises(UserError, match=f"--device {device}: no row of it; ") as error:
        shown("resnet50", choice=Choice(device=device))
    assert remedy in str(error.value)


def test_a_name_that_no_model_has_is_an_error_that_names_similar_ones() -> None:
    with pytest.raises(UserError, match=r"no folder matches 'resnet51'; did you mean .*resnet50"):
        shown("resnet51")


def test_a_glob_that_matches_nothing_is_an_error_that_names_measured_models() -> None:
    with pytest.raises(UserError, match=r"no model matches 'foo\*'; measured are alexnet, bert_base_bf16, ") as error:
        shown("foo*", "resnet50")
    assert "swin3d_b" not in str(error.value)


def test_eager_runs_are_shown_when_asked_for(everything: ShowReport) -> None:
    (ranking,) = shown("resnet50", choice=Choice(execution="eager")).rankings
    assert [model.row.conditions.execution for model in ranking.models] == ["eager"]
    assert {model.row.conditions.execution for model in everything.rankings[0].models} == {"graph"}


def test_a_named_model_without_any_measurement_is_named() -> None:
    report = shown("mc3_18", "resnet50")
    assert report.not_measured == ("mc3_18_8x3x16x112x112",)
    assert report.without_cost == ("mc3_18",)


def test_a_glob_names_its_models_without_any_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    report = shown("swin*_t_*x224", "swin_v2_t")
    assert [model.row.name for model in report.models] == ["swin_t_32x3x224x224", "swin_v2_t_32x3x256x256"]
    assert (report.not_measured, report.without_cost) == (("swin3d_t_8x3x16x224x224",), ())
    print_rankings(report, "energy")
    assert "Not measured under these conditions: swin3d_t_8x3x16x224x224\n" in capsys.readouterr().out
    assert shown().not_measured == ()


def test_a_long_list_of_models_without_any_measurement_is_shortened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    report = shown("*")
    print_rankings(report, "energy")
    named, commands = re.findall(
        "^(Not measured under these conditions: .*)\n(.*)", capsys.readouterr().out, re.MULTILINE
    )[0]
    assert named.endswith(f" and {len(report.not_measured) - 6} more")
    assert len(re.findall(r"x3x\d", commands)) == 6
    assert "(the first 6)" in commands


def test_the_next_step_of_a_sum_is_to_measure_the_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    print_rankings(shown("vgg11", choice=Choice(execution="eager")), "energy")
    assert re.search(
        "opcost measure-models vgg11_32x3x224x224 --execution eager --relative-error 0.01 ", capsys.readouterr().out
    )
    print_rankings(shown(choice=Choice(execution="eager")), "energy", with_incomplete=False)
    printed = capsys.readouterr().out
    assert re.search("opcost measure-models resnet18_32x3x224x224 .* # measure whole models \\(the first 6\\)", printed)
    print_rankings(shown("resnet50"), "energy")
    assert "opcost measure" not in capsys.readouterr().out


def test_another_execution_in_which_a_model_is_measured_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    report = shown("mobilenet_v2", "swin_t", "resnet50", choice=Choice(TIME, execution="eager"))
    assert report.other_executions == {"graph": ("mobilenet_v2_32x3x224x224", "swin_t_32x3x224x224")}
    print_rankings(report, "energy")
    names = "mobilenet_v2_32x3x224x224 swin_t_32x3x224x224"
    assert f"opcost show {names} --sort time --execution graph " in capsys.readouterr().out
    assert shown("mobilenet_v2").other_executions == {}


def test_json_and_csv_have_models_without_any_measurement_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    report = shown("mvit_v2_s", "resnet50")
    known, unknown = ranking_objects(report)
    assert unknown.keys() == known.keys()
    assert (unknown["name"], unknown["time_s"], unknown["kinds"]) == ("mvit_v2_s_8x3x16x224x224", None, [])
    assert unknown["energy_missing_reason"] == "not measured under these conditions"
    print_csv(report, "energy")
    line = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))[-1]
    assert (line["name"], line["time_s"], line["kind_1"]) == ("mvit_v2_s_8x3x16x224x224", "", "")
    assert line["energy_missing_reason"] == unknown["energy_missing_reason"]


def test_a_database_without_rows_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing is measured; run .*measure-models"):
        shown("resnet50", database=tmp_path)


def test_rows_of_another_execution_are_named(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    with pytest.raises(UserError, match="nothing is measured in this execution; add --execution eager"):
        show(campaign.request(), Choice(execution="graph"))


# One model


def test_one_model_is_shown_with_its_operators(capsys: pytest.CaptureFixture[str]) -> None:
    report = shown("swin_t")
    (model,) = report.rankings[0].models
    costs = [one.costs for one in model.operators]
    assert sum(cost.time_s for cost in costs) == pytest.approx(model.row.sum_time_s)
    assert sum(cost.energy_j or 0.0 for cost in costs) == pytest.approx(model.row.sum_energy_j)
    assert sum(kind.costs.calls for kind in model.kinds) == sum(cost.calls for cost in costs)
    saved_j = sum(cost.saving_energy_j or 0.0 for cost in costs)
    assert saved_j / 32 == pytest.approx(model.row.saving_energy_per_sample_j)
    print_rankings(report, "energy", top=3)
    printed = capsys.readouterr().out
    assert "Operators by energy (3 of 140 measured operator tuples; --top 140 shows all)" in printed
    assert printed.count("Linear 1536→384") == 1
    assert "linear: the function, called outside of the module Linear." in printed


def test_notes_that_hold_for_several_models_are_printed_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    print_rankings(shown("resnet50", "swin_t", "vgg16", choice=Choice(operators=True, device="H200")), "energy", top=1)
    printed = capsys.readouterr().out
    assert [printed.count(note) for note in ("\nRoof: ", "\nWhole models were measured on")] == [1, 1]
    assert printed.count("\nOperators by energy") == 3


def test_flags_are_explained_where_they_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    print_rankings(shown("swin_t"), "energy")
    printed = capsys.readouterr().out
    assert "duty cycle: measured with pauses, because without them it is throttled by the power limit" in printed
    assert "power limit: at the power limit" in printed
    print_rankings(shown("swin_t"), "energy", top=1)
    assert "flags" not in capsys.readouterr().out


def test_sizes_that_differ_have_a_column_at_every_width_and_those_that_all_share_stand_in_the_title(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_rankings(shown("resnet34", "resnet50", choice=Choice(execution="eager")), "energy")
    printed = capsys.readouterr().out
    assert "; batch 32\n" in printed
    assert re.search(r"^resnet34 +3x56x56 ", printed, re.MULTILINE)
    monkeypatch.setenv("COLUMNS", "1000")
    print_rankings(shown("resnet50", "swin_t"), "energy")
    title, header, *_ = capsys.readouterr().out.splitlines()
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
def test_without_energies_models_are_sorted_by_time_and_the_reason_is_noted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_rankings(without_energies(shown("alexnet", "resnet50", "resnet18_32x3x32x32", "vit_b_16")), by)
    printed = capsys.readouterr().out
    assert printed.startswith("Time per sample on NVIDIA H200")
    assert re.findall(r"^(resnet18|alexnet|resnet50|vit_b_16) ", printed, re.MULTILINE)[0] == "resnet18"
    assert "mJ" not in printed.partition("───")[0]
    assert printed.count("No energy is measured: no RAPL.") == 1


def test_without_energies_operators_are_sorted_by_time_with_their_calls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_rankings(without_energies(shown("swin_t")), "energy", top=3)
    printed = capsys.readouterr().out
    assert "Operators by time" in printed
    assert "Kinds of operators by time" in printed
    headers = [line.split() for line in printed.splitlines() if "ms/run" in line and "calls" in line]
    assert len(headers) == 2


def test_incomplete_models_have_one_line_and_commands_that_are_not_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    report = shown("regnet*", "swin*", choice=Choice(execution="eager"))
    print_rankings(report, "energy")
    printed = capsys.readouterr().out
    assert printed.count("not all operators") == 1
    assert f"and {len(report.rankings[0].incomplete) - 6} more" in " ".join(printed.split())
    assert " ".join(model.row.name for model in report.rankings[0].incomplete[:6]) in printed
    print_rankings(report, "energy", with_incomplete=False)
    assert "not all operators" not in capsys.readouterr().out


@pytest.mark.parametrize(("operators", "lines"), [(False, 2), (True, 4)])
def test_csv_and_json_have_the_number_that_is_asked_for(operators: bool, lines: int) -> None:
    report = largest(shown("resnet50", "swin_t", choice=Choice(operators=operators, device="H200")), 2)
    assert len(csv_lines(report, "energy")) == lines
    assert len(ranking_objects(largest(report, 1))) == (2 if operators else 1)


def test_a_size_in_a_name_that_is_not_the_models_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    report = shown("resnet50", "swin_t")
    (device,) = report.rankings
    mine, other = device.models
    row = replace(mine.row, batch_size=1, input_size="1x3x224x224")
    report = replace(report, rankings=(replace(device, models=(replace(mine, row=row), other)),))
    print_rankings(report, "energy")
    printed = capsys.readouterr().out
    assert re.search(rf"^{row.name} +1 ", printed, re.MULTILINE)
    assert re.search(rf"^{other.row.name.partition('_32x')[0]} +32 ", printed, re.MULTILINE)


def test_what_makes_models_differ_is_noted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    print_rankings(shown("resnet50", "swin_t"), "energy")
    printed = capsys.readouterr().out
    assert "convolutions in TF32 and matrix products in fp32 (torch's default)" in printed
    assert "Models differ in arithmetic, too" in printed
    assert re.search(
        r"Whole models were measured on \d+ boards, which differ by 0.\d % in time and [34].\d % in", printed
    )
    assert "at most by 3.5 % and 7.0 %" in printed
    assert "Standard errors are 0.2 % in time and 0.6 % in energy" in printed
    print_rankings(shown("resnet50"), "energy")
    printed_of_one = capsys.readouterr().out
    assert "± is one standard error on this board, GPU-" in printed_of_one
    roofs = [line for text in (printed, printed_of_one) for line in text.splitlines() if line.startswith("Roof: ")]
    assert len(roofs) == 2
    assert roofs[0] == roofs[1]
    assert "TFLOP/s in TF32, 51 TFLOP/s in fp32" in roofs[0]


def test_a_narrow_ranking_has_the_roof_and_no_note_on_columns_that_it_leaves_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_rankings(shown("resnet50", "swin_t", "vit_b_16"), "energy")
    printed = capsys.readouterr().out
    header = printed.partition("───")[0]
    assert "roof" in header
    assert "second kind" not in header
    assert "linear: the function" not in printed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"device_type": "cuda", "cudnn_tf32": True},
            "convolutions in TF32 and matrix products in fp32 (torch's default)",
        ),
        ({"device_type": "cuda", "cudnn_tf32": True, "matmul_tf32": True, "precision": "tf32"}, "TF32"),
        ({"device_type": "cuda", "cudnn_tf32": False, "precision": "fp32"}, "fp32"),
        ({"device_type": "cpu", "cudnn_tf32": True}, "fp32"),
        ({"device_type": "cuda", "cudnn_tf32": True, "precision": "bf16"}, "bfloat16"),
        ({"device_type": "cuda", "cudnn_tf32": True, "precision": "amp-bf16"}, "bfloat16 by autocast"),
    ],
)
def test_the_arithmetic_is_that_of_the_conditions(changes: dict[str, Any], words: str) -> None:
    assert arithmetic(replace(SIMULATED_CONDITIONS, **changes)) == words


def test_a_narrow_table_of_operators_has_both_shares_and_the_roof_in_energy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("resnet50", "swin_t", "vit_b_16"):
        print_rankings(shown(name), "energy")
        printed = capsys.readouterr().out
        (left_out,) = re.findall(r"\nNot shown at this width: ([^;]*);", printed.partition("Kinds of operators")[0])
        assert {"time share", "energy share", "energy roof"}.isdisjoint(" ".join(left_out.split()).split(", "))


def test_without_a_terminal_a_table_has_all_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_rankings(shown("resnet50", "swin_t"), "energy")
    print_rankings(shown("swin_t"), "energy")
    assert "Not shown" not in capsys.readouterr().out


def test_an_operators_calls_are_those_that_were_counted() -> None:
    (model,) = shown("swin_t").rankings[0].models
    counted = pandas.read_csv(ROOT / "database" / "model_operators.csv").query("model == 'swin_t_32x3x224x224'")
    calls = counted.groupby(counted["key"].str.partition("-")[0])["calls"].sum()
    assert {one.key: one.costs.calls for one in model.operators} == {one.key: calls[one.key] for one in model.operators}


def test_csv_of_one_model_has_a_line_for_each_operator(capsys: pytest.CaptureFixture[str]) -> None:
    report = shown("resnet50", "swin_t", choice=Choice(operators=True, device="H200"))
    print_csv(report, "energy")
    everything = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
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


def test_json_csv_and_table_have_the_same_models_in_the_same_order(capsys: pytest.CaptureFixture[str]) -> None:
    report = shown("resnet101", "resnet152", "resnet50", "swin_t")
    objects = json.loads(json.dumps(ranking_objects(report)))
    print_csv(report, "energy")
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["name"] for line in lines] == [each["name"] for each in objects]
    for line, each in zip(lines, objects, strict=True):
        assert float(line["energy_per_sample_j"]) == each["energy_per_sample_j"]
        assert line["device_product"] == each["conditions"]["device_product"]
        assert line["kind_1"] == each["kinds"][0]["operator"]
        assert float(line["kind_1_ratio"]) == each["kinds"][0]["costs"]["energy_ratio"]
    print_rankings(report, "energy")
    table = capsys.readouterr().out
    positions = [table.index(f"{1000 * each['energy_per_sample_j']:.4g}"[:5]) for each in objects]
    assert positions == sorted(positions)


def test_all_remarks_are_printed_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    report = shown("resnet18", "swin_t")
    request = Request(("resnet18", "swin_t"), ROOT / "measurements", committed())
    print_remarks(report, reports_of(request, find_comparisons(request)))
    printed = capsys.readouterr().out
    assert re.search(r"^swin_t_32x3x224x224( \(.*\))?: ", printed, re.MULTILINE)
    assert "resnet18_32x3x32x32: kernel time of operators alone, as a share of that in the model: " in printed
    assert "(eager)" not in printed


def test_remarks_are_said_to_be_none_if_no_model_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    request = Request(("resnet18_32x3x224x224",), ROOT / "measurements", committed())
    report = show(request, Choice(execution="eager"))
    print_remarks(report, reports_of(request, find_comparisons(request)))
    assert capsys.readouterr().out == "No remarks: no sum of these models can be compared with a whole model.\n"


def test_neither_torch_nor_pandas_is_imported() -> None:
    program = (
        "import sys; from opcost.__main__ import main; sys.argv = ['opcost', 'show', 'resnet50']; status = main(); "
        "sys.exit(status or 'torch' in sys.modules or 'pandas' in sys.modules or 'scipy' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
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
    campaign: SimulatedCampaign, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(campaign, *(f"a{batch}" for batch in BATCHES[1:]))
    report = show(campaign.request())
    rows = {model.row.name: model.row for model in report.rankings[0].models}
    assert [row.source for name, row in sorted(rows.items())] == ["sum", *["whole"] * 6]
    assert rows["a2"].time_s == pytest.approx(WHOLE_TIME_S, rel=1e-6)
    assert rows["a2"].time_per_sample_s == pytest.approx(WHOLE_TIME_S / 2, rel=1e-6)
    assert rows["a2"].energy_j == pytest.approx(3 * 0.2 + 0.6, rel=0.01)
    # Six wholes that equal their sums do not show a high quantile.
    assert rows["a2"].expected_time_error_ratio == ASSUMED_SUM_ERRORS[False].time.high_ratio
    assert rows["a2"].expected_energy_error_ratio == ASSUMED_SUM_ERRORS[False].energy.high_ratio
    assert not rows["a2"].is_expected_error_assumed
    assert not report.without_cost
    (alone,) = show(campaign.request("a2")).rankings[0].models
    assert alone.row == rows["a2"]
    print_rankings(report, "energy")
    printed = capsys.readouterr().out
    assert "~5.000" in printed
    assert "~ a2: the sum of its operators, because the whole model is not measured; expected error" in printed


def test_without_wholes_the_expected_error_of_a_sum_is_that_of_other_sums(
    campaign: SimulatedCampaign, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(campaign)
    report = show(campaign.request("a2"))
    (model,) = report.rankings[0].models
    assert model.row.source == "sum"
    assert model.row.is_expected_error_assumed
    assert model.row.expected_time_error_ratio == ASSUMED_SUM_ERRORS[False].time.high_ratio
    print_rankings(report, "energy")
    assert "expected error 9.2 % in time, 4.9 % in energy, as on an H200" in " ".join(capsys.readouterr().out.split())


def test_an_incomplete_sum_is_no_cost_but_says_what_is_measured(
    campaign: SimulatedCampaign, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(campaign)
    (config,) = campaign.request("a2").configs()
    counts = COUNTS.read(config)
    more = OperatorCount(operator("SiLU"), 1, 100, 100)
    write_counts(COUNTS.path(config), with_operator(counts, more))
    campaign.database.model_operators.path.unlink()
    report = show(campaign.request("a2"))
    assert [model.row.name for model in report.rankings[0].incomplete] == ["a2"]
    assert (report.rankings[0].models, report.without_cost) == ((), ("a2",))
    print_rankings(report, "energy")
    printed = capsys.readouterr().out
    assert "not all operators are measured: a2 (80.0 % of its bytes and 80.0 % of its FLOPs)" in printed
    assert "measure a2" in printed


def with_operator(counts: OperatorCounts, more: OperatorCount) -> OperatorCounts:
    return replace(counts, counts=(*counts.counts, more), total_flop=500, total_memory_bytes=500)


def test_a_whole_of_a_model_that_is_not_counted_has_a_rank_without_kinds(campaign: SimulatedCampaign) -> None:
    measure_full_models(campaign.request("a2"), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    for config in campaign.request().configs():
        COUNTS.path(config).unlink()
    (model,) = show(campaign.request("a2")).rankings[0].models
    assert (model.row.source, model.kinds, model.row.sum_time_s) == ("whole", (), None)
    assert model.row.time_s == pytest.approx(WHOLE_TIME_S, rel=1e-6)


def test_a_sum_is_called_corrected_only_if_it_is_and_has_no_standard_error_beside_its_expected_one(
    campaign: SimulatedCampaign, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    measure(campaign, *(f"a{batch}" for batch in BATCHES[1:]))
    report = show(campaign.request("a2"))
    (device,) = report.rankings
    corrected = replace(report, rankings=(replace(device, models=(replace(device.models[0], is_corrected=True),)),))
    for shown_report, headings in (
        (report, "sum of operators (one run) per sample"),
        (corrected, "sum, corrected (one run) per sample sum of operators"),
    ):
        print_rankings(shown_report, "energy")
        printed = " ".join(capsys.readouterr().out.split())
        assert headings in printed
        assert printed.count("sum of operators") == 1
        assert "±" not in printed


# Sums of which an operator has no row, because the whitelist drops it

TANH, SILU = operator("Tanh"), operator("SiLU")
KEPT = {RELU: 3, GELU: 1, TANH: 1}
"""They take 7 ms in all, the dearest 2 ms a call. All have the same FLOPs and bytes."""


def filtered_campaign(folder: Path, dropped_calls: int, wholes: int = 0) -> SimulatedCampaign:
    """Measure the kept operators, wholes of models that have these only, but not ``b``, which has SiLUs, too."""
    batches = range(3, 3 + wholes)
    models = {model_operator("resnet18", None, (batch, 3, 8, 8)): Load(time_s=0.0077) for batch in batches}
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


def test_operators_that_the_whitelist_drops_have_a_predicted_cost_in_a_sum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = filtered_campaign(tmp_path, dropped_calls=1, wholes=FEWEST_WHOLES)
    report = show(campaign.request("b"), Choice(operators=False))
    (model,) = report.rankings[0].models
    row = model.row
    assert (row.source, model.missing, row.is_missing, report.without_cost) == ("sum", ("SiLU",), True, ())
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
    print_rankings(report, "energy")
    printed = " ".join(capsys.readouterr().out.split())
    assert "~b" not in printed
    assert f"~{row.time_s * 1e3:.3f}" in printed
    measured = "83.3 % of its bytes and 83.3 % of its FLOPs measured"
    assert (
        f"~ b ({percent(share)} of the time predicted; {measured}; expected error "
        f"{percent(row.expected_time_error_ratio)} in time, "
    ) in printed
    assert "those without a row are predicted from FLOPs and bytes" in printed


def test_less_than_half_of_a_model_is_no_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = filtered_campaign(tmp_path, dropped_calls=6)
    report = show(campaign.request("b"))
    (model,) = report.rankings[0].incomplete
    assert (model.row.time_s, model.row.predicted_time_s, report.without_cost) == (None, None, ("b",))
    print_rankings(report, "energy")
    assert "not all operators are measured: b (45.5 % of its bytes" in " ".join(capsys.readouterr().out.split())


def test_the_remedy_names_the_whitelist_and_keeps_the_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    campaign = filtered_campaign(tmp_path, dropped_calls=1)
    whitelist = campaign.measurements / "operator_whitelist.yml"
    print_rankings(show(campaign.request("b"), Choice(device="cpu", execution="eager")), "energy")
    printed = capsys.readouterr().out
    assert f"The whitelist drops SiLU: add it to {whitelist} first, or measure whole models." in printed
    for name in (
        "filter b ",
        "measure b --device cpu --execution eager --seconds 2 ",
        "measure-models b --device cpu --execution eager --relative-error 0.01 ",
    ):
        assert re.search(rf"opcost {name} *#", printed)
    # With it in the whitelist, only the measurement is left.
    whitelist.write_text('operators: ["*"]\n')
    print_rankings(show(campaign.request("b"), Choice(device="Simulated")), "energy")
    printed = capsys.readouterr().out
    assert "whitelist" not in printed
    assert "filter" not in printed
    # A CPU is meant, on a machine with a GPU, too, and the operators with rows stay as they are.
    assert re.search("opcost measure b --device cpu --seconds 2 *#", printed)


def test_models_that_the_user_has_not_counted_are_counted_and_filtered_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    campaign = filtered_campaign(tmp_path, dropped_calls=1)
    request = campaign.request("b")
    for kind in (COUNTS, FILTERED_COUNTS):
        kind.path(request.configs()[0]).unlink()
    print_rankings(show(request), "energy")
    steps = re.findall(r"opcost (\S+) b .*#", capsys.readouterr().out)
    assert steps == ["count", "filter", "measure", "measure-models"]


def test_a_shipped_whitelist_is_copied_before_it_is_edited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    campaign = filtered_campaign(tmp_path, dropped_calls=1)
    own = tmp_path / "a new home" / "measurements"
    request = replace(campaign.request("b"), measurements=own, shipped_measurements=campaign.measurements)
    print_rankings(show(request), "energy")
    shipped = campaign.measurements / "operator_whitelist.yml"
    line = next(line for line in capsys.readouterr().out.splitlines() if f"cp {shipped}" in line)
    subprocess.run(line, shell=True, check=True)
    assert (own / shipped.name).read_text() == shipped.read_text()
