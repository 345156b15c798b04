"""One declaration of a field: files, checks and tables follow from it."""

import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest

from opcost.columns import COUNT, SHARE, Column, cell_of, cell_reader, form_of, header_of
from opcost.operators.counts import OperationWithoutFormula, OperatorCount, OperatorCounts
from opcost.operators.model_rows import rows_of
from opcost.operators.tuples import OperatorTuple, PlainValue, TensorSpec, model_operator
from opcost.storage.counts_file import write_counts
from opcost.storage.database import Database

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Part:
    name: str
    number: Annotated[int, COUNT]


@dataclass(frozen=True)
class Thing:
    parts: tuple[Part, ...]
    pair: tuple[str, float]
    value: PlainValue
    share: Annotated[float | None, Column("a share", SHARE)] = None
    is_whole: bool = True

    @property
    def mistake(self) -> str | None:
        return "it is too much" if len(self.parts) > 2 else None


THING = Thing((Part("a", 1), Part("b", 2)), ("c", 0.5), ((TensorSpec((2,), "int8"), 3), "\n", float("inf"), ()))
DATA = (
    (("a", 1), ("b", 2)),
    ("c", 0.5),
    ("tuple", ("tuple", ("TensorSpec", (2,), "int8", None, 0), 3), "\n", float("inf"), ("tuple",)),
    None,
    True,
)


def test_an_object_is_a_tuple_of_its_fields_and_comes_back() -> None:
    assert form_of(Thing).write(THING) == DATA
    assert form_of(Thing).read(DATA) == THING
    names = {name: names for name, *names in header_of(Thing)}
    assert names["Thing"] == ["parts", "pair", "value", "share", "is_whole"]
    assert names.keys() == {"Thing", "Part", "TensorSpec", "Constant", "Structure"}


@pytest.mark.parametrize(
    ("place", "data"),
    [
        (0, (("a", -1),)),
        (0, (("a", True),)),
        (0, (("a\n", 1),)),
        (0, (("a",),)),
        (0, (("a", 1),) * 3),
        (0, [("a", 1)]),
        (1, ("c", 1)),
        (1, ("c", float("nan"))),
        (1, ("c", 0.5, 0.5)),
        (2, (1, 2)),
        (2, ("Part", "a", 1)),
        (2, ("Constant", "x", "y")),
        (2, 2**63),
        (2, b""),
        (3, 1.5),
        (4, 1),
        (4, None),
    ],
)
def test_what_a_declaration_does_not_allow_is_refused(place: int, data: Any) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        form_of(Thing).read((*DATA[:place], data, *DATA[place + 1 :]))


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("kind", "items", "cell"),
    [
        (tuple[Colour, ...], (Colour.RED, Colour.BLUE), "red|blue"),
        (tuple[str, ...], ("a b", "c"), "a b | c"),
        (tuple[tuple[str, int], ...], (("a", 1), ("b", -2)), "a 1 | b -2"),
        (tuple[tuple[str, float, Annotated[int, COUNT]], ...], (("a", 0.5, 1),), "a 0.5 1"),
        (tuple[OperationWithoutFormula, ...], (OperationWithoutFormula("m::s", 2, 40),), "m::s 2 40"),
    ],
)
def test_a_tuple_is_one_cell(kind: Any, items: tuple[Any, ...], cell: str) -> None:
    assert cell_of(items) == cell
    assert cell_reader(kind)(cell) == items


@pytest.mark.parametrize("cell", ["", "a", "a 1 2", "a x", "a +1", "a 1_0", "a 01", "a 1|b 2", "a 1 | ", "a -1"])
def test_a_cell_in_another_form_is_refused(cell: str) -> None:
    with pytest.raises(ValueError, match="it has a|other form|invalid literal|zip"):
        cell_reader(tuple[Part, ...])(cell)


# A field that is added to the counts

RELU = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((4,), "float32"),))
COUNTS = OperatorCounts(
    model_operator("resnet18", None, (1, 3, 8, 8)), (OperatorCount(RELU, 2, 0, 32),), 0, 32, 1, "2.15.0", "cpu"
)

PROGRAM = """
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

name, folder = "opcost.operators.counts", Path(sys.argv[1])
spec = importlib.util.find_spec(name)
source = spec.loader.get_source(name)
for own, added in {
    "class OperatorCount(": 'lines: Annotated[int | None, Column("lines of a cache", COUNT)] = None',
    "def __getstate__": "distances: tuple[tuple[Count, ...], ...] = ()",
}.items():
    before, after = source.split(own, 1)
    place = before.rindex("= ()") + 4
    source = f"{before[:place]}\\n    {added}{before[place:]}{own}{after}"
counts = sys.modules[name] = importlib.util.module_from_spec(spec)
exec(compile(source, spec.origin, "exec"), vars(counts))

from opcost.operators.model_rows import counts_of, rows_of
from opcost.storage.counts_file import read_counts, write_counts
from opcost.storage.database import Database

older = read_counts(folder / "older.pkl", "block 0")
(count,) = older.counts
assert (count.lines, count.distances) == (None, ())
found = replace(older, counts=(replace(count, lines=7, distances=((1,), (2, 3))),))
write_counts(folder / "newer.pkl", found)
assert read_counts(folder / "newer.pkl", "block 0") == found

table = Database(folder).model_operators
(rows,) = [table.rows()]
assert [row.lines for row in rows] == [None, None]
table.append_missing(rows_of("b", found, "2026-11-23T10:00:00+00:00"))
header, *lines = table.path.read_text().splitlines()
assert {"operations", "lines"} < set(header.split(","))
(shipped,) = counts_of(table.rows())
assert [one.lines for one in shipped.counts.counts] == [7]
"""


def test_a_field_is_added_to_pickle_and_table_in_one_line_and_older_files_are_read(tmp_path: Path) -> None:
    write_counts(tmp_path / "older.pkl", COUNTS)
    Database(tmp_path).model_operators.append_missing(rows_of("a", COUNTS, "2026-11-22T10:00:00+00:00"))
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=ROOT, check=True, timeout=60)
