"""The data set of committed rows: every row is there, with its figures, and with what was counted."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml
from simulated_machine import simulated_row

from opcost.__main__ import main
from opcost.command.program import subcommand
from opcost.errors import UserError
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.reporting.pages import data_card
from opcost.running.request import Request
from opcost.stages.holdings import ExportReport, export
from opcost.storage.configs import ModelFolders, load_config, model_tuple
from opcost.storage.counts_file import write_counts
from opcost.storage.data_files import FORMATS, DataFolder
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "docs" / "data" / "resnet50"


def exported(folder: Path, *kinds: str, database: Path = SMALL, device: str | None = None) -> ExportReport:
    request = Request((), ModelFolders(ROOT / "measurements"), Database(database), device)
    return export(request, kinds, DataFolder(folder), data_card)


def package(folder: Path) -> dict[str, Any]:
    """Return the tables that an export lists, by their files."""
    listed = json.loads((folder / "datapackage.json").read_text())
    return {one["path"]: one for one in listed["resources"]}


def read(path: Path) -> pandas.DataFrame:
    return pandas.read_csv(path, keep_default_na=False, na_values=[""])


def test_every_row_is_exported_with_its_figures(tmp_path: Path) -> None:
    report = exported(tmp_path)
    rows = read(SMALL / "operator_measurements.csv")
    wholes = read(SMALL / "full_model_measurements.csv")
    tables = {path: read(tmp_path / path) for path in package(tmp_path)}
    models = tables.pop("whole_models.csv")
    assert sorted(models["time_s"]) == pytest.approx(sorted(wholes["time_s"]))
    assert (models["flop"] > 0).all()
    assert {f"{operator}.csv" for operator in set(rows["operator"])} == set(tables)
    assert report == ExportReport(len(tables), len(rows), len(wholes), 0)
    all_rows = pandas.concat(tables.values())
    kept = [name for name in rows.columns if name in all_rows.columns]
    assert {"time_s", "energy_j", "energy_at_reference_j", "power_w", "device_uuid", "torch_version"} <= {*kept}
    order = ["key", "started_at"]
    pandas.testing.assert_frame_equal(
        all_rows[kept].sort_values(order).reset_index(drop=True),
        rows[kept].sort_values(order).reset_index(drop=True),
        check_dtype=False,
    )


def test_flops_and_bytes_are_those_of_the_counts(tmp_path: Path) -> None:
    exported(tmp_path, "Conv2d")
    convolutions = read(tmp_path / "torch.nn.Conv2d.csv")
    counted = read(SMALL / "model_operators.csv").drop_duplicates("key").set_index("key")
    tuples = counted.loc[convolutions["key"].str.rpartition("-")[0]]
    assert (convolutions["flop"].to_numpy() == tuples["flop"].to_numpy()).all()
    assert (convolutions["memory_bytes"].to_numpy() == tuples["memory_bytes"].to_numpy()).all()
    sizes = [convolutions[f"output_0_size_{place}"] for place in range(4)]
    products = convolutions["parameter_in_channels"] * convolutions["parameter_kernel_size"] ** 2
    assert (convolutions["flop"] == 2 * products * sizes[0] * sizes[1] * sizes[2] * sizes[3]).all()


@pytest.mark.second_tier
def test_the_shipped_tables_have_the_operations_of_nearly_all_tuples(tmp_path: Path) -> None:
    exported(tmp_path, "Linear", "Conv*", database=ROOT / "database")
    names = ["torch.nn.Conv1d.csv", "torch.nn.Conv2d.csv", "torch.nn.Conv3d.csv", "torch.nn.Linear.csv"]
    assert list(package(tmp_path)) == names
    linear = {"addmm 1", "mm 1", "bmm 1", "add 1 | mm 1", "add 1 | bmm 1"}
    for name in names:
        found = set(read(tmp_path / name)["operations"].dropna())
        assert found <= (linear if "Linear" in name else {"convolution 1"}), name


def test_the_same_rows_give_the_same_files_and_the_page_names_every_column(tmp_path: Path) -> None:
    exported(tmp_path / "a")
    exported(tmp_path / "b")
    contents = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"]
    assert contents[0] == contents[1]
    page = (tmp_path / "a" / "README.md").read_text()
    names = {one["name"] for table in package(tmp_path / "a").values() for one in table["schema"]["fields"]}
    assert "| `input_N_size_M` |" in page
    assert "| `parameter_NAME` |" in page
    declared = {name for name in names if not re.match(r"(input|output|parameter|argument)_|arg", name)}
    assert [name for name in declared if f"| `{name}` |" not in page] == []
    assert {"time_s", "flop_per_byte", "input_0_size_1"} <= names


def test_the_package_describes_each_table(tmp_path: Path) -> None:
    exported(tmp_path)
    for path, table in package(tmp_path).items():
        content = (tmp_path / path).read_bytes()
        assert (table["bytes"], table["hash"]) == (len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
        frame = read(tmp_path / path)
        fields = {one["name"]: one for one in table["schema"]["fields"]}
        assert list(fields) == list(frame.columns)
        assert table["rows"] == len(frame)
        assert fields["time_s"]["unit"] == "s"
        assert [name for name, field in fields.items() if not field.get("description")] == []
        for name, field in fields.items():
            values = frame[name].dropna()
            assert not (field.get("constraints", {}).get("required") and len(values) < len(frame)), name
            if field["type"] in ("integer", "number"):
                assert pandas.to_numeric(values, errors="coerce").notna().all(), name
            if field["type"] == "boolean":
                assert set(values.astype(str)) <= {*field["trueValues"], *field["falseValues"]}, name


def test_the_card_names_the_tables_as_data_hubs_read_them(tmp_path: Path) -> None:
    exported(tmp_path, "Linear")
    head, text = (tmp_path / "README.md").read_text().removeprefix("---\n").split("---\n", 1)
    configs = yaml.safe_load(head)["configs"]
    assert [one["data_files"] for one in configs] == list(package(tmp_path)) == ["torch.nn.Linear.csv"]
    assert "NVIDIA H200" in text
    assert "whole models" not in text.split("## Columns")[0]
    assert "with torch 2." in text


def test_only_rows_of_a_kind_and_device_are_exported(tmp_path: Path) -> None:
    assert exported(tmp_path, "torch.nn.Linear", device="h200").tables == 1
    for kind in ("ReLu", "torch.nn.relu"):
        with pytest.raises(UserError, match=rf"^--kind {kind}: no row of it; there are rows of "):
            exported(tmp_path, kind)
    with pytest.raises(UserError, match="^--device H100: no row of it; there are rows of NVIDIA H200$"):
        exported(tmp_path, device="H100")
    with pytest.raises(UserError, match="operator_measurements.csv: no measurements of operators; "):
        exported(tmp_path / "to", database=tmp_path)
    assert not (tmp_path / "to").exists()


def test_an_operator_of_a_grid_has_its_flops_from_the_grids_counts(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "data" / "grid" / "measurements", tmp_path / "measurements")
    folder = tmp_path / "measurements" / "conv_grid"
    (config,) = load_config(folder / "grid.yml", folder)
    operator, uncounted = (
        OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((4, 4), "float32"),)) for name in ("ReLU", "GELU")
    )
    count = OperatorCount(operator, 1, 0, 128)
    write_counts(COUNTS.path(config), OperatorCounts(model_tuple(config), (count,), 0, 128, 0, "2.14", "meta"))
    database = Database(tmp_path / "database")
    for one in (operator, uncounted):
        database.operator_measurements.append(simulated_row(one))
    request = Request((), ModelFolders(tmp_path / "measurements"), database)
    report = export(request, (), DataFolder(tmp_path / "to"), data_card)
    assert report == ExportReport(tables=2, rows=2, wholes=0, uncounted=1)
    assert list(read(tmp_path / "to" / "torch.nn.ReLU.csv")["memory_bytes"]) == [128]


def test_a_row_that_is_no_operator_tuple_is_a_line(tmp_path: Path) -> None:
    table = Database(tmp_path).operator_measurements
    row = simulated_row(OperatorTuple("torch.nn.ReLU", (), (TensorSpec((4, 4), "float32"),)))
    table.append(type(row)(**{**vars(row), "inputs": "float32[4"}))
    with pytest.raises(UserError, match="operator_measurements.csv: .*; delete the line, or restore the file$"):
        exported(tmp_path / "to", database=tmp_path)


def test_a_whole_that_is_no_model_is_a_line_of_its_own_table(tmp_path: Path) -> None:
    shutil.copy(SMALL / "operator_measurements.csv", tmp_path)
    row = simulated_row(OperatorTuple("torchvision.models.resnet18", (), (TensorSpec((4, 4), "float32"),)))
    Database(tmp_path).full_model_measurements.append(type(row)(**{**vars(row), "inputs": "float32[4"}))
    with pytest.raises(UserError, match=r"full_model_measurements.csv: .*; delete the line, or restore the file$"):
        exported(tmp_path / "to", database=tmp_path)


def test_the_command_says_what_it_wrote_in_a_format_that_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "to"
    words = ["opcost", "export", "--kind", "Linear", "--to", str(to), "--database", str(SMALL)]
    monkeypatch.setattr("sys.argv", words)
    assert main() == 0
    rows = len(read(to / "torch.nn.Linear.csv"))
    said = f"{to}: {rows} measurement{'s' * (rows > 1)} of 1 kind of operators; README.md explains the columns"
    assert capsys.readouterr().out == f"{said}\n"
    for name in FORMATS:
        assert subcommand("export").parser().parse_args(["--format", name]).format == name
