"""The report of a simulated campaign: every model, every tuple, the database's own figures, and no word of the host."""

import csv
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Load, MeterModel

from opcost.__main__ import main
from opcost.invocation import command
from opcost.measuring.flags import Flag
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.sweep_record import SweepFigures, SweepPlace, SweepPrediction, SweepSizeRow, SweepWork
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.reporting.report import write_report
from opcost.reporting.report_sections import without_identities
from opcost.stages.compare import find_comparisons
from opcost.stages.measure_operators import measure_full_models, measure_operators

SCRIPT = Path(__file__).parents[2] / "compare_sum_vs_full.py"
SHORT = MeasurementProtocol(warm_up_s=1.0, loop_s=2.0)
RELU, GELU, SILU = (
    OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((4,), "float32"),)) for name in ("ReLU", "GELU", "SiLU")
)
MODEL, OTHER = (model_operator("resnet18", None, (batch, 3, 8, 8)) for batch in (2, 3))
LOADS = {
    RELU: Load(time_s=0.001, power_w=200.0),
    GELU: Load(time_s=0.002, power_w=300.0),
    SILU: Load(time_s=0.003, power_w=400.0),
    MODEL: Load(time_s=0.008, power_w=300.0),
    OTHER: Load(time_s=0.004, power_w=300.0),
}


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    return campaign_in(tmp_path)


def campaign_in(folder: Path, meter: MeterModel | None = None) -> SimulatedCampaign:
    campaign = SimulatedCampaign(folder, LOADS, meter=meter or MeterModel())
    campaign.add_model("first", {RELU: 3, GELU: 1})
    campaign.add_model("second", {RELU: 1, SILU: 1}, batch=3)
    measure_operators(campaign.request(), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    measure_full_models(campaign.request(), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    return campaign


def report_of(campaign: SimulatedCampaign, *names: str) -> str:
    request, path = campaign.request(*names), campaign.folder / "report.html"
    write_report(path, request, find_comparisons(request))
    return path.read_text(encoding="utf-8")


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert isinstance(data, dict)
    return data


def tuples_of(text: str) -> list[dict[str, Any]]:
    data = data_of(text)
    return [dict(zip(data["fields"], values, strict=True)) for values in data["tuples"]]


def change_rows(campaign: SimulatedCampaign, **measured: Any) -> None:
    """Write the database's operators again, with other values in their measurements."""
    table = campaign.database.operator_measurements
    rows = [replace(row, measurement=replace(row.measurement, **measured)) for row in table.rows()]
    table.path.write_text(table.text(rows))


@pytest.mark.parametrize(
    ("arguments", "sweeps"),
    [
        ((), {"resnet18 1x3xNxN", "net_build", "resnet18 1x3xNxN bf16"}),
        (("first",), {"resnet18 1x3xNxN", "resnet18 1x3xNxN bf16"}),
        (("first", "--device", "simulated"), {"resnet18 1x3xNxN"}),
        (("--device", "simulated"), {"resnet18 1x3xNxN", "net_build"}),
    ],
)
def test_the_subcommand_changes_no_table_and_names_and_device_choose_the_sweeps(
    campaign: SimulatedCampaign, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], sweeps: set[str]
) -> None:
    other = replace(SIMULATED_CONDITIONS, device_product="Another GPU")
    rows = [
        SweepSizeRow(
            SweepPlace(f"{number:016x}-0-0", name, "size", 8, 64),
            *(SweepFigures(1, 0, time_s=1e-3), SweepPrediction(), SweepWork(), None, None, 1.0, conditions),
        )
        for number, (name, conditions) in enumerate(
            (
                ("resnet18 1x3xNxN", SIMULATED_CONDITIONS),
                ("net_build", SIMULATED_CONDITIONS),
                ("resnet18 1x3xNxN bf16", other),
            )
        )
    ]
    table = campaign.database.sweep_sizes
    table.path.write_text(table.text(rows))
    path = campaign.folder / "report.html"
    folders = ["--measurements", str(campaign.measurements), "--database", str(campaign.database.folder)]
    monkeypatch.setattr("sys.argv", ["opcost", "report", *arguments, *folders, "--output", str(path)])
    tables = {file: file.read_bytes() for file in campaign.database.folder.rglob("*") if file.is_file()}
    assert main() == 0
    assert {file: file.read_bytes() for file in campaign.database.folder.rglob("*") if file.is_file()} == tables
    shown = set(
        re.findall(r"<summary>(\S+[^<]*) over size \([^<]*, eager, [^<]*\)</summary>", path.read_text(encoding="utf-8"))
    )
    assert shown == sweeps


def test_every_model_and_every_tuple_is_in_it_with_the_database_s_figures(campaign: SimulatedCampaign) -> None:
    text = report_of(campaign)
    assert [model["label"] for model in data_of(text)["models"]] == ["first", "second"]
    with campaign.database.operator_measurements.path.open(newline="") as file:
        rows = {row["key"]: row for row in csv.DictReader(file)}
    tuples = {one["key"]: one for one in tuples_of(text)}
    assert tuples.keys() == rows.keys()
    for key, one in tuples.items():
        for name in ("time_s", "time_standard_error_s", "energy_j", "energy_standard_error_j", "power_w"):
            assert one[name] == float(rows[key][name])
        for name in ("operator", "parameters", "inputs", "input_data"):
            assert one[name] == rows[key][name]
    # The calls in each model, and whether they are in its sum.
    uses = {one["operator"].rpartition(".")[2]: one["uses"] for one in tuples.values()}
    assert uses == {"ReLU": [[0, 3, 1], [1, 1, 1]], "GELU": [[0, 1, 1]], "SiLU": [[1, 1, 1]]}
    assert len(text.encode()) < 120_000, "a small report is small"
    text = report_of(campaign, "second")
    assert ([model["label"] for model in data_of(text)["models"]], len(tuples_of(text))) == (["second"], 2)


def test_commands_take_a_models_name_as_one_word(tmp_path: Path) -> None:
    campaign, name = SimulatedCampaign(tmp_path, LOADS), "x; touch PWNED #"
    campaign.add_model(name, {RELU: 1})
    measure_full_models(campaign.request(), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    commands = [unescape(one) for one in re.findall(r"<code>(.*?)</code>", report_of(campaign), re.DOTALL)]
    named = [one for one in commands if "touch" in one]
    assert named
    assert all(name in shlex.split(one) for one in named)


def test_a_folder_whose_name_is_no_utf_8_stands_in_commands(
    campaign: SimulatedCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["opcost", "report", "--measurements", "a\udcff", "--database", "b\x1b[31m"])
    text = report_of(campaign)
    assert "--measurements $&#x27;a\\xff&#x27; --database $&#x27;b\\x1b[31m&#x27;</code>" in text
    assert "\x1b" not in text


def test_it_says_nothing_of_folders_and_nasty_texts_stay_text(campaign: SimulatedCampaign) -> None:
    change_rows(campaign, notes=f"<img src=x onerror=alert(1)></script> of {campaign.folder}/secret.py")
    text = report_of(campaign)
    for part in (str(campaign.folder), str(SCRIPT.parent), "<img"):
        assert part not in text
    assert "<img src=x onerror=alert(1)></script> of …/secret.py" in tuples_of(text)[0]["facts"]


def test_without_energies_times_are_shown_and_the_reason(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path)
    nothing = dict.fromkeys(("energy_j", "energy_standard_error_j", "power_w", "power_standard_error_w"))
    change_rows(campaign, **nothing, energy_at_reference_j=None, energy_missing_reason="no meter")
    text = report_of(campaign)
    assert "no model has energy of both sum and whole" in text
    assert {one["energy_j"] for one in tuples_of(text)} == {None}
    assert {one["energy_missing_reason"] for one in tuples_of(text)} == {"no meter"}
    assert "no energy" in tuples_of(text)[0]["flags"]


def test_what_is_not_measured_is_listed_and_asked_for(campaign: SimulatedCampaign) -> None:
    path = campaign.database.operator_measurements.path
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "GELU" not in line))
    text = report_of(campaign)
    (missing,) = [one for one in tuples_of(text) if one["operator"] == "torch.nn.GELU"]
    assert missing["flags"] == ["not measured"]
    assert missing["time_s"] is None
    assert "measure 1 tuples that have no row" in text
    assert "opcost measure first --execution" in text


def test_an_empty_database_is_a_report_that_says_what_to_do(tmp_path: Path) -> None:
    campaign = SimulatedCampaign(tmp_path, LOADS)
    campaign.add_model("first", {RELU: 3})
    campaign.database.folder.mkdir()
    text = report_of(campaign)
    assert data_of(text)["tuples"] == []
    assert command("measure-models", "first") in text


def test_a_tuple_says_which_doubts_and_flags_its_measurement_has(campaign: SimulatedCampaign) -> None:
    change_rows(campaign, flags=(Flag.METERS_DISAGREE, Flag.IMPRECISE), duty_cycle=0.5)
    text = report_of(campaign)
    assert "measure 3 flagged tuples again" in text
    for one in tuples_of(text):
        assert one["flags"] == ["flagged", "imprecise", "eager"]
        assert set(one["measured_flags"].split("; ")) == {Flag.METERS_DISAGREE.meaning, Flag.IMPRECISE.meaning}
        assert one["facts"][data_of(text)["facts"].index("duty_cycle")] == 0.5


def test_a_log_that_is_there_is_drawn_with_its_window(campaign: SimulatedCampaign) -> None:
    change_rows(
        campaign, power_log="a.csv", started_at="2026-11-22T08:00:01+00:00", ended_at="2026-11-22T08:00:03+00:00"
    )
    logs = campaign.database.power_logs
    logs.mkdir()
    assert {one["trace"] for one in tuples_of(report_of(campaign))} == {None}
    header = "timestamp, power.draw.instant [W]\n"
    lines = (f"2026/11/22 08:00:0{second}.000, {300 + second}\n" for second in range(5))
    (logs / "a.csv").write_text(header + "".join(lines))
    trace = tuples_of(report_of(campaign))[0]["trace"]
    assert trace["window"] == [250, 750]
    assert trace["lines"][0][1].startswith("0 750 ")


def test_a_log_s_name_leads_to_no_other_folder(campaign: SimulatedCampaign) -> None:
    campaign.database.power_logs.mkdir()
    (campaign.folder / "secret.csv").write_text("epoch_s,power_w\n1.0,2.0\n")
    change_rows(campaign, power_log="../../secret.csv")
    assert {one["trace"] for one in tuples_of(report_of(campaign))} == {None}


def test_energies_of_drift_checks_are_all_normalised_or_all_as_measured(campaign: SimulatedCampaign) -> None:
    table = campaign.database.drift_checks
    row = campaign.database.operator_measurements.rows()[0]
    assert row.measurement.energy_j is not None
    for at_reference_j in (None, 1.2 * row.measurement.energy_j):
        table.append(replace(row, measurement=replace(row.measurement, energy_at_reference_j=at_reference_j)))
    assert "Standard deviations: time 0.00\u00a0%; energy 0.00\u00a0%" in report_of(campaign)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("device_uuid: GPU-95d669f2 (whole)", "device_uuid: GPU 95d6 (whole)"),
        ("nvidia-smi -i GPU-11111111-2222-3333-4444-555555555555 printed", "nvidia-smi -i GPU 1111 printed"),
        ("see /home/user/a.py", "see …/a.py"),
        ("~/logs/x.csv is gone", "…/x.csv is gone"),
        ("0.9 s / 1.2 s and 3 GB/s on 1/2", "0.9 s / 1.2 s and 3 GB/s on 1/2"),
    ],
)
def test_boards_are_short_and_folders_left_out(text: str, shown: str) -> None:
    assert without_identities(text) == shown


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("report.txt", "is not the name of an HTML file; use one that ends in .html"),
        ("none/report.html", "there is no folder"),
    ],
)
def test_an_impossible_file_is_reported_before_anything_is_read(tmp_path: Path, name: str, problem: str) -> None:
    result = script("--report", str(tmp_path / name))
    assert result.returncode == 2
    assert problem in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_script_writes_it_and_a_dry_run_does_not(campaign: SimulatedCampaign) -> None:
    path = campaign.folder / "r.html"
    folders = ("--measurements", str(campaign.measurements), "--database", str(campaign.database.folder))
    assert script(*folders, "--report", str(path), "--dry-run").returncode == 0
    assert not path.exists()
    assert script(*folders, "--report", str(path)).returncode == 0
    assert [model["label"] for model in data_of(path.read_text())["models"]] == ["first", "second"]
