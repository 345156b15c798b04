"""Data frames for notebooks: the rows of the tables, and the figures of the commands."""

import ast
import base64
import csv
import io
import itertools
import math
import re
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path

import pandas
import pytest
import torch
from committed_models import known_database
from committed_tables import committed
from torch import Tensor, nn

import opcost
from opcost.reporting.ranking_tables import print_csv
from opcost.running.request import Request
from opcost.stages.show import Choice, show
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database

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
FRAMES = (*TABLES, "failures")


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
    frame = opcost.show("mvit_v2_s", operators=operators, database=ROOT / "database").to_frame()
    known = opcost.show("resnet50", operators=operators, database=ROOT / "database").to_frame()
    assert list(frame) == list(known)
    if not operators:
        (line,) = frame.itertuples()
        assert (line.name, line.energy_missing_reason) == (
            "mvit_v2_s_8x3x16x224x224",
            "not measured under these conditions",
        )
        assert pandas.isna(line.energy_j)


def test_show_returns_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    for names, operators in itertools.product((("resnet50", "swin_t"), ("swin_t",)), (False, True)):
        found = opcost.show(*names, sort="time", operators=operators, device="H200", database=ROOT / "database")
        frame = found.to_frame()
        assert len(found) == len(frame) == (len(names) if not operators else 194 if len(names) > 1 else 140)
        request = Request(names, ModelFolders(ROOT / "measurements"), committed())
        print_csv(show(request, Choice("time", device="H200", operators=operators)), "time")
        lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert list(frame.columns) == list(lines[0])
        assert list(frame["energy_j"]) == [float(line["energy_j"]) for line in lines]


def test_compare_returns_the_comparisons_and_writes_nothing() -> None:
    before = (ROOT / "database" / "sum_vs_full.csv").read_bytes()
    found = opcost.compare("resnet50", database=ROOT / "database")
    frame = found.to_frame()
    assert "sum / whole" in repr(found)
    assert "data:image/svg+xml" in found._repr_html_()
    assert set(found["execution"]) == {"graph", "eager"}
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


def test_a_result_is_the_table_of_the_command_with_its_marks_and_at_most_fifteen_rows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = opcost.show("swin_t", operators=True, device="H200", database=ROOT / "database")
    text, html = repr(found), found._repr_html_()
    # It is returned, not printed, and has no commands of a shell.
    assert capsys.readouterr().out == ""
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.splitlines()) < 100
    for shown in (text, html):
        assert "swin_t (batch 32, 3x224x224) on NVIDIA H200" in shown
        assert "duty cycle: measured with pauses" in shown
        assert "15 of 140 rows; to_frame() or found has all." in shown
        assert "opcost show" not in shown
    assert html.count("Linear 1536→384") == 1
    # The text has the columns that fit, the other one all, and a chart whose style stays inside of it.
    assert ("Not shown at this width: " in text, "Not shown at this width: " in html) == (True, False)
    assert "<style" not in html
    (source,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    chart = xml.etree.ElementTree.fromstring(base64.b64decode(source))
    drawn = [element.text for element in chart.iter("{http://www.w3.org/2000/svg}text")]
    assert "Linear" in drawn
    assert any("energy of a run (mJ)" in str(one) for one in drawn)
    assert found[["operator", "energy_j"]].equals(found.to_frame()[["operator", "energy_j"]])


def test_a_report_is_a_file(tmp_path: Path) -> None:
    path = opcost.report("resnet50", output=tmp_path / "page.html", device="H200", database=ROOT / "database")
    assert path == tmp_path / "page.html"
    assert "resnet50" in path.read_text(encoding="utf-8")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU())

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.layers(image)
        return found


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of a small database; what is learned from it is kept in another one."""
    folder = tmp_path_factory.mktemp("known")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield known_database(folder).folder


def test_a_model_is_predicted_by_its_name_and_as_an_object(known: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in known.iterdir()}
    found = opcost.predict("resnet18", batch=16, device="H200", database=known)
    (line,) = found.to_frame().itertuples()
    assert line.energy_lower_j < line.energy_j < line.energy_upper_j
    assert (line.batch, line.source, line.time_s) == (16, "predicted", found.found.time_s.value)
    for text in (repr(found), found._repr_html_()):
        assert "resnet18_16x3x224x224 on NVIDIA H200, batch 16" in text
        assert "90 % interval" in text
        assert "--measure-next" not in text
    of_object = opcost.predict(Net(), torch.ones(32, 3, 56, 56), device="H200", database=known)
    assert of_object.found.result.name == "Net_32x3x56x56"
    assert of_object["time_s"][0] > 0
    assert of_object.found.per_unit(of_object.found.time_s) == of_object.found.time_s.times(1 / 32)
    assert {path: path.stat().st_mtime_ns for path in known.iterdir()} == before
    with pytest.raises(opcost.UserError, match="^inputs: "):
        opcost.predict("resnet18", torch.ones(1), database=known)
    with pytest.raises(opcost.UserError, match="^batch, input_size and arguments "):
        opcost.predict(Net(), torch.ones(1), batch=3, database=known)


def test_a_sweep_that_does_not_measure_predicts_each_size_and_writes_nothing(known: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in known.iterdir()}
    options = {"input_size": (8, 3, 64, 64), "measure": False, "device": "H200", "database": known}
    found = opcost.sweep("resnet18", size=(64, 128), **options)
    assert list(found["size"]) == [64, 128]
    small, large = found["predicted_time_s"]
    assert 0 < small < large
    assert "predicted ms" in repr(found)
    assert "data:image/svg+xml" in found._repr_html_()
    assert {path: path.stat().st_mtime_ns for path in known.iterdir()} == before
    again = opcost.sweep("resnet18", size="64:128:x2", **options)["predicted_time_s"]
    assert list(again) == pytest.approx([small, large])
    for mistake, axes in {
        "size: '64:32:x2' ends": {"size": "64:32:x2"},
        "size and batch: a sweep varies one": {"size": "8", "batch": "1"},
        "resnet18: nothing to sweep over": {},
    }.items():
        with pytest.raises(opcost.UserError, match=mistake):
            opcost.sweep("resnet18", measure=False, database=known, **axes)


def test_a_sweep_measures_on_this_cpu(tmp_path: Path) -> None:
    code = "from torch import nn, randn\ndef build(size=8):\n    return nn.Conv2d(3, 4, 3), randn(1, 3, size, size)\n"
    (tmp_path / "net.py").write_text(code)
    protocol = {"repetitions": 1, "seconds": 0.05, "device": "cpu", "allow_code": True, "database": tmp_path / "rows"}
    found = opcost.sweep(f"{tmp_path}/net.py:build", size=[8, 16], **protocol)
    assert (found["time_s"] > 0).all()
    assert len(Database(tmp_path / "rows").sweep_sizes.rows()) == 2


def test_each_public_name_has_a_type_and_is_there() -> None:
    """A type checker sees the imports for types, and no function that returns an object for any name."""
    tree = ast.parse(Path(opcost.__file__).read_text(encoding="utf-8"))
    (typed,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imported = {alias.name for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(imported) == opcost.__all__
    assert "__getattr__" not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert all(callable(getattr(opcost, name)) for name in opcost.__all__)
    assert {*opcost.__all__, "__version__"} <= set(dir(opcost))
    with pytest.raises(AttributeError, match="has no attribute 'predictt'"):
        opcost.predictt  # type: ignore[attr-defined] # noqa: B018


def test_the_tables_of_a_database_name_themselves() -> None:
    assert repr(opcost.load(ROOT / "database")) == f"<Frames of {ROOT / 'database'}: {', '.join(FRAMES)}>"
