"""The folder of a data set: what pandas reads is what was written, and no other file is replaced."""

import io
import json
import math
import sys

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.columns import Column, DataTable, Field
from opcost.errors import UserError
from opcost.shipped import citation
from opcost.storage.data_files import CSV, PARQUET, DataFolder, csv_of, parquet_of
from opcost.storage.table import cell_text

FIELDS = (Field("time_s", float, False, Column("per iteration")),)
TABLE = DataTable("torch.nn.ReLU", {"time_s": float}, ((1e-5,), (2e-5,)))
OTHER = DataTable("torch.nn.GELU", {"time_s": float}, ((3e-5,),))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
FOREIGN = b'{"$schema": "https://datapackage.org/profiles/2.0/datapackage.json", "resources": [{"path": "a.csv"}]}'
VALUES = {
    bool: st.booleans(),
    # With empty cells, pandas reads integers as floats.
    int: st.integers(-(2**53), 2**53),
    float: FINITE,
    str: st.text(st.characters(codec="utf-8"), min_size=1),
}


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=5))
    columns = {f"column_{number}": kind for number, kind in enumerate(kinds)}
    row = st.tuples(*(st.none() | VALUES[kind] for kind in kinds))
    return DataTable("a", columns, tuple(draw(st.lists(row, min_size=1, max_size=5))))


def as_in_a_frame(table, text):
    """Return the rows as pandas has them: None is NaN."""
    return [[text(value) if isinstance(value, str) else value for value in row] for row in table.rows]


def rows_of(frame):
    return [[None if pandas.isna(value) else value for value in row] for row in frame.astype(object).to_numpy()]


@given(tables())
def test_pandas_reads_from_csv_what_was_written(table):
    texts = {name: kind for name, kind in table.columns.items() if kind is str}
    # Tables of an export have several columns; in a table of one, pandas takes a line of spaces for an empty one.
    options = {"keep_default_na": False, "na_values": [""], "skip_blank_lines": False}
    frame = pandas.read_csv(io.BytesIO(csv_of(table)), dtype=texts, **options)
    expected = [
        [value or None if isinstance(value, str) else value for value in row] for row in as_in_a_frame(table, cell_text)
    ]
    assert rows_of(frame) == expected


@given(tables())
def test_pandas_reads_from_parquet_what_was_written(table):
    pytest.importorskip("pyarrow")
    assert rows_of(pandas.read_parquet(io.BytesIO(parquet_of(table)))) == as_in_a_frame(table, str)


def test_a_column_of_several_types_is_text_in_parquet():
    pytest.importorskip("pyarrow")
    table = DataTable("a", {"b": str, "c": float}, ((1, 2), ("(1, 2)", math.inf)))
    assert rows_of(pandas.read_parquet(io.BytesIO(parquet_of(table)))) == [["1", 2.0], ["(1, 2)", math.inf]]


def written(folder, *tables, data_format=CSV):
    DataFolder(folder, data_format).write(tables, FIELDS, "A title", "page\n")
    return sorted(path.name for path in folder.iterdir())


LISTS = ["CITATION.cff", "README.md", "datapackage.json"]


def test_a_new_folder_has_the_tables_their_columns_and_the_citation(tmp_path):
    folder = tmp_path / "new" / "export"
    assert written(folder, TABLE) == [*LISTS, "torch.nn.ReLU.csv"]
    assert (folder / "torch.nn.ReLU.csv").read_text() == "time_s\n1e-05\n2e-05\n"
    (table,) = json.loads((folder / "datapackage.json").read_text())["resources"]
    assert (table["path"], table["rows"], table["bytes"]) == ("torch.nn.ReLU.csv", 2, 19)
    time_s = {"name": "time_s", "type": "number", "unit": "s", "description": "per iteration"}
    assert table["schema"]["fields"] == [{**time_s, "constraints": {"required": True}}]
    assert (folder / "README.md").read_text().endswith("---\n\npage\n")
    assert (folder / "CITATION.cff").read_bytes() == citation().read_bytes()


def test_a_former_export_is_replaced_and_files_of_the_user_stay(tmp_path):
    written(tmp_path, TABLE, OTHER)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "mine").mkdir()
    assert written(tmp_path, OTHER) == [*LISTS, "mine", "notes.txt", "torch.nn.GELU.csv"]
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["notes.txt", "datapackage.json"])
def test_a_folder_with_other_files_is_refused(tmp_path, name):
    for content in (b"mine", b"", b"\xff", b"{}", b"[1]", b'{"resources": 1}', FOREIGN):
        (tmp_path / name).write_bytes(content)
        for act in (DataFolder(tmp_path).check, lambda: written(tmp_path, TABLE)):
            with pytest.raises(UserError, match="holds other files than an export; name a new folder with --to$"):
                act()
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, content)]


def test_a_file_that_is_not_of_the_export_is_not_replaced(tmp_path):
    written(tmp_path, TABLE)
    before = (tmp_path / "datapackage.json").read_text()
    (tmp_path / "torch.nn.GELU.csv").write_text("mine")
    with pytest.raises(UserError, match=r"torch.nn.GELU.csv: not of a former export; move it away"):
        written(tmp_path, TABLE, OTHER)
    assert (tmp_path / "torch.nn.GELU.csv").read_text() == "mine"
    assert (tmp_path / "datapackage.json").read_text() == before


def test_names_in_a_list_of_tables_lead_nowhere_else(tmp_path):
    folder = tmp_path / "export"
    written(folder, TABLE)
    for place in (tmp_path, folder):
        (place / "mine").write_text("mine")
    (tmp_path / "mine.csv").write_text("mine")
    package = json.loads((folder / "datapackage.json").read_text())
    package["resources"] += [{"path": path} for path in ("../mine", f"{tmp_path}/mine", "../mine.csv", ".", "mine", 7)]
    (folder / "datapackage.json").write_text(json.dumps(package))
    (folder / "torch.nn.ReLU.csv").unlink()
    written(folder, OTHER)
    mine = (tmp_path / "mine", folder / "mine", tmp_path / "mine.csv")
    assert [path.read_text() for path in mine] == ["mine"] * 3


def test_a_missing_library_is_found_before_a_file_changes(tmp_path, monkeypatch):
    written(tmp_path, TABLE)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError) as missing:
        written(tmp_path, OTHER, data_format=PARQUET)
    assert missing.value.name == "pyarrow"
    assert sorted(path.name for path in tmp_path.iterdir()) == [*LISTS, "torch.nn.ReLU.csv"]
