"""Data frames for notebooks: the rows of the tables, and the figures of the commands."""

import csv
import io
import itertools
import math
from pathlib import Path

import pandas
import pytest
from committed_tables import committed

import opcost
from opcost.reporting.ranking_tables import print_csv
from opcost.running.request import Request
from opcost.stages.show import Choice, show
from opcost.storage.configs import ModelFolders

ROOT = Path(__file__).parents[1]
TABLES = {
    "operators": "operator_measurements.csv",
    "models": "full_model_measurements.csv",
    "counts": "model_operators.csv",
    "comparisons": "sum_vs_full.csv",
    "cache_corrections": "calls_in_chains.csv",
    "qualifications": "meter_qualifications.csv",
    "drift_checks": "drift_checks.csv",
}


@pytest.mark.parametrize(("name", "file"), TABLES.items())
def test_a_table_has_the_rows_and_columns_of_its_file(name: str, file: str) -> None:
    frame = getattr(opcost.load(ROOT / "database"), name)
    as_read = pandas.read_csv(ROOT / "database" / file, low_memory=False).drop(columns="checksum")
    # A file of an earlier version has fewer.
    assert [column for column in frame.columns if column in as_read] == list(as_read.columns)
    assert len(frame) == len(as_read)
    for column in as_read.dropna(axis="columns", how="all").select_dtypes("float").columns:
        assert frame[column].astype(float).equals(as_read[column].astype(float)), column


def test_a_table_without_a_file_is_empty_and_has_its_columns() -> None:
    failures = opcost.load(ROOT / "database").failures
    assert len(failures) == 0
    assert "reason" in failures


@pytest.mark.parametrize("operators", [False, True])
def test_models_without_any_measurement_leave_the_columns_as_they_are(operators: bool) -> None:
    frame = opcost.show("mvit_v2_s", operators=operators, database=ROOT / "database")
    assert list(frame) == list(opcost.show("resnet50", operators=operators, database=ROOT / "database"))
    if not operators:
        (line,) = frame.itertuples()
        assert (line.name, line.energy_missing_reason) == (
            "mvit_v2_s_8x3x16x224x224",
            "not measured under these conditions",
        )
        assert pandas.isna(line.energy_j)


def test_show_returns_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    for names, operators in itertools.product((("resnet50", "swin_t"), ("swin_t",)), (False, True)):
        frame = opcost.show(*names, sort="time", operators=operators, device="H200", database=ROOT / "database")
        assert len(frame) == (len(names) if not operators else 194 if len(names) > 1 else 140)
        request = Request(names, ModelFolders(ROOT / "measurements"), committed())
        print_csv(show(request, Choice("time", device="H200", operators=operators)), "time")
        lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert list(frame.columns) == list(lines[0])
        assert list(frame["energy_j"]) == [float(line["energy_j"]) for line in lines]


def test_compare_returns_the_comparisons_and_writes_nothing() -> None:
    before = (ROOT / "database" / "sum_vs_full.csv").read_bytes()
    frame = opcost.compare("resnet50", database=ROOT / "database")
    assert set(frame["execution"]) == {"graph", "eager"}
    stored = opcost.load(ROOT / "database").comparisons.query("name == 'resnet50_32x3x224x224' and counted == 'all'")
    of_graphs = [table.query("execution == 'graph'")["energy_ratio"].iloc[0] for table in (frame, stored)]
    assert math.isclose(*of_graphs)
    assert (ROOT / "database" / "sum_vs_full.csv").read_bytes() == before


def test_mistakes_are_user_errors() -> None:
    with pytest.raises(opcost.UserError, match="no such folder"):
        opcost.load("/no/such/folder")
    with pytest.raises(opcost.UserError, match="did you mean"):
        opcost.show("resnet51")
    with pytest.raises(opcost.UserError, match="sort"):
        opcost.show(sort="size")


def test_public_names_are_listed() -> None:
    assert {"show", "load", "compare", "__version__"} <= set(dir(opcost))
