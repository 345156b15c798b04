"""Files of a sweep: tables, the folder tree, figures, and the section of the report."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from simulated_machine import Load
from simulated_sweep import SimulatedSweep

from opcost.comparing.sweep_sizes import figures_of
from opcost.measuring.flags import Flag
from opcost.measuring.sweep_record import SweepPrediction
from opcost.reporting.report import sweeps
from opcost.reporting.sweeps import (
    export_tree,
    print_plan,
    print_sweep,
    same_information,
    spearman,
    sweep_object,
    write_sweep_figures,
    write_tables,
)
from opcost.stages.sweep import SweepResult

SIZES = (32, 64, 128, 256)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    loads = {size: Load(0.001 * (size / 32) ** 2, 200.0 + size) for size in SIZES}
    swept = SimulatedSweep(tmp_path_factory.mktemp("sweep"), loads, failing={512: "out of <memory>"})
    found = swept.result(swept.measure(repetitions=2))
    first, *others = found.sizes
    prediction = SweepPrediction(
        predicted_time_s=0.0011, predicted_time_lower_s=0.001, predicted_time_upper_s=0.0012, predicted_energy_j=0.2
    )
    return replace(found, sizes=(replace(first, prediction=prediction), *others))


def test_tables_have_a_row_for_each_size_repetition_and_piece(tmp_path: Path, result: SweepResult) -> None:
    files = {path.stem: list(csv.DictReader(path.open())) for path in write_tables(result, tmp_path)}
    assert [row["size"] for row in files["sizes"]] == ["32", "64", "128", "256", "512"]
    assert len(files["repetitions"]) == 2 * len(SIZES)
    assert files["kernels"] == []
    assert {row["quantity"] for row in files["pieces"]} == {"time", "energy"}
    assert files["sizes"][-1]["time_s"] == ""
    assert files["sizes"][-1]["failure"] == "out of <memory>"
    assert "checksum" not in files["sizes"][0]


def test_the_tree_has_a_folder_for_each_run(tmp_path: Path, result: SweepResult) -> None:
    logs = tmp_path / "power_logs"
    logs.mkdir()
    (logs / "log-iterations.csv").write_text("iteration,time_s\n1,0.001\n")
    first, *others = result.repetitions
    result = replace(result, repetitions=(replace(first, iterations_log="log-iterations.csv"), *others))
    folders = export_tree(result, logs, tmp_path / "tree")
    assert [folder.name for folder in folders] == [f"input_{size}" for size in SIZES]
    metrics = json.loads((tmp_path / "tree" / "input_64" / "run_2" / "power_metrics.json").read_text())
    assert metrics["power_w"] == pytest.approx(264.0, rel=0.02)
    assert metrics["dram_power_w"] is None
    assert [path.parent.name for path in (tmp_path / "tree").glob("*/*/latency.csv")] == [f"run_{first.repetition}"]


def test_the_matrix_is_that_of_scipy(result: SweepResult) -> None:
    stats = pytest.importorskip("scipy.stats")
    matrix = spearman(result.repetitions)
    rows = result.repetitions
    expected = stats.spearmanr([row.place.size for row in rows], [row.measurement.power_w for row in rows]).statistic
    assert matrix.loc["size", "power_w"] == pytest.approx(expected)
    assert list(matrix.columns) == list(matrix.index)
    assert "order_seed" not in matrix


def test_columns_that_order_rows_alike_are_a_group(result: SweepResult) -> None:
    groups = same_information(spearman([row for row in result.sizes if row.failure is None]))
    (group,) = [one for one in groups if "size" in one]
    assert {"units_of_a_run", "time_s", "energy_j"} <= set(group)
    assert all(len(one) > 1 for one in groups)
    assert spearman([]).empty
    assert same_information(spearman([])) == []


def test_figures_are_drawn_with_their_predicted_curve(tmp_path: Path, result: SweepResult) -> None:
    files = write_sweep_figures(result, tmp_path)
    assert [path.name for path in files] == ["curves-linear.svg", "curves-log.svg", "correlations.svg"]
    for path in files:
        ET.parse(path)
    assert "measured (median)" in files[0].read_text()
    assert write_sweep_figures(replace(result, sizes=(), repetitions=()), tmp_path / "none") == []


def test_the_section_escapes_texts_and_is_left_out_without_sweeps(result: SweepResult) -> None:
    section = sweeps(result.sizes)
    assert "resnet18 2x3xNxN" in section
    assert "out of &lt;memory&gt;" in section
    assert section.count("<svg") == 4
    assert sweeps((*(replace(row, failure="older") for row in result.sizes), *result.sizes)) == section
    assert sweeps(()) == ""


def test_the_terminal_shows_sizes_reasons_and_pieces(result: SweepResult, capsys: pytest.CaptureFixture[str]) -> None:
    print_sweep(result)
    text = capsys.readouterr().out
    assert "not measured (512): out of <memory>" in text
    assert "fit by pieces" in text
    found = json.loads(json.dumps(sweep_object(result)))
    assert [one["size"] for one in found["sizes"]] == [32, 64, 128, 256, 512]
    print_plan(replace(result, planned=7, expected_s=75.0))
    assert "7 repetitions of 5 sizes to measure, 8 in the database; about 1 min 15 s" in capsys.readouterr().out


# The screen without some repetitions or predictions


@pytest.fixture
def screen(tmp_path: Path) -> SweepResult:
    swept = SimulatedSweep(tmp_path, {32: Load(0.001, 200.0), 64: Load(0.004, 300.0)})
    return swept.result(swept.measure(repetitions=3))


def test_a_prediction_has_its_interval(
    screen: SweepResult, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    print_sweep(screen)
    shown = capsys.readouterr().out
    # A prediction that was not asked for is no line.
    assert "not predicted" not in shown
    assert "doubtful" not in shown
    predicted = SweepPrediction(0.002, 0.001, 0.004, 0.3, 0.2, 0.5, 0.0)
    print_sweep(replace(screen, sizes=[replace(row, prediction=predicted) for row in screen.sizes]))
    shown = capsys.readouterr().out
    assert "1.000 to 4.000" in shown
    assert "200.0 to 500.0" in shown
    assert "predicted nJ/" in shown


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (1, "Without 1 doubtful repetition (meters disagree)."),
        (3, "With 3 doubtful repetitions, because these sizes have no others (meters disagree)."),
    ],
)
def test_doubtful_repetitions_are_counted_with_their_reason(
    screen: SweepResult, capsys: pytest.CaptureFixture[str], number: int, line: str
) -> None:
    key = screen.sizes[0].place.key
    of_size = [row for row in screen.repetitions if row.place.key == key]
    others = [row for row in screen.repetitions if row.place.key != key]
    doubtful = [
        replace(row, measurement=replace(row.measurement, flags=(Flag.METERS_DISAGREE,))) for row in of_size[:number]
    ]
    repetitions = [*doubtful, *of_size[number:], *others]
    sizes = [
        replace(row, figures=figures_of([one for one in repetitions if one.place.key == row.place.key]))
        for row in screen.sizes
    ]
    print_sweep(replace(screen, repetitions=repetitions, sizes=sizes))
    assert line in capsys.readouterr().out
