"""Counts as rows of a table: what is read back sums as what was counted."""

import os
import re
from dataclasses import replace

import pytest

from opcost.columns import columns_of
from opcost.errors import UserError
from opcost.operators.counts import CAPTURED, OperationWithoutFormula, OperatorCount, OperatorCounts, cases_of
from opcost.operators.model_rows import ModelOperatorRow, counts_of, rows_of
from opcost.operators.reuse import Reuse
from opcost.operators.tuples import OperatorTuple, Phase, TensorSpec, model_operator
from opcost.operators.values import CONSTANT, NORMAL, ZEROS, InputStatistics, InputValues, kind_of
from opcost.running.request import Request
from opcost.running.shipped_counts import counted_or_shipped, ship_counts, shipped_counts
from opcost.storage.configs import ModelFolders
from opcost.storage.counts_file import write_counts
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS
from opcost.storage.table import encode

TENSOR = TensorSpec((4, 4), "float32")
RELU = OperatorTuple("torch.nn.ReLU", (("inplace", True),), (TENSOR,))
ADD = OperatorTuple("torch.add", (), (TENSOR, TensorSpec((4, 4), "float32", identity=1)), mode=None)
SEEN = [(InputStatistics(zeros_ratio, 0.0, 1.0),) for zeros_ratio in (0.5, 0.0, 0.5)]
EARLY, LATE = "2026-11-22T10:00:00+00:00", "2026-11-23T10:00:00+00:00"
COUNTED = OperatorCounts(
    model=model_operator("resnet18", None, (2, 3, 8, 8)),
    counts=(
        OperatorCount(RELU, 3, 0, 128, TENSOR, statistics=tuple(SEEN)),
        OperatorCount(ADD, 1, 0, 192, TENSOR, statistics=((InputStatistics(None, None, None),) * 2,)),
    ),
    total_flop=10,
    total_memory_bytes=600,
    parameters=11,
    torch_version="2.15.0",
    device_type="cpu",
    outside=("aten::sort",),
    composites=("Block",),
)


IN_PHASES = replace(COUNTED, counts=(*COUNTED.counts, replace(COUNTED.counts[1], phase=Phase.BACKWARD)))


@pytest.mark.parametrize(
    "counts", [COUNTED, replace(COUNTED, outside=(), composites=(), device_type="meta"), IN_PHASES]
)
def test_rows_are_read_back_as_the_counts_that_they_were_made_of(counts):
    (shipped,) = counts_of(rows_of("a", counts, LATE))
    assert shipped.counted_at == LATE
    read = shipped.counts
    assert replace(read, counts=()) == replace(counts, counts=())
    assert [replace(one, statistics=()) for one in read.counts] == [
        replace(one, statistics=()) for one in counts.counts
    ]
    if counts.device_type != "meta":
        assert list(cases_of(read.counts, CAPTURED).items()) == list(cases_of(counts.counts, CAPTURED).items())


def test_operations_without_a_formula_are_read_back():
    add = replace(COUNTED.counts[1], flop=None, without_formula=("mine::a", "mine::b"))
    operations = tuple(OperationWithoutFormula(f"mine::{name}", 3, 5120) for name in "ab")
    counts = replace(COUNTED, counts=(COUNTED.counts[0], add), without_formula=operations)
    rows = rows_of("a", counts, LATE)
    assert [(row.flop, row.without_formula) for row in rows[::2]] == [
        (10, ("mine::a 3 5120", "mine::b 3 5120")),
        (0, ()),
    ]
    assert (rows[-1].flop, rows[-1].without_formula) == (None, ("mine::a", "mine::b"))
    assert "mine::a 3 5120 | mine::b 3 5120" in encode(rows[0])
    assert "mine::a | mine::b" in encode(rows[-1])
    (shipped,) = counts_of(rows)
    assert shipped.counts.without_formula == operations
    assert [one.without_formula for one in shipped.counts.counts] == [(), ("mine::a", "mine::b")]
    with pytest.raises(ValueError, match="its FLOPs do not match"):
        counts_of([*rows[:-1], replace(rows[-1], without_formula=())])
    with pytest.raises(ValueError, match="has no FLOPs"):
        counts_of([replace(rows[0], flop=None), *rows[1:]])


WITH_OPERATIONS = replace(
    COUNTED, counts=(COUNTED.counts[0], replace(COUNTED.counts[1], operations=(("add", 1), ("clone", 2))))
)


def test_operations_are_read_back():
    rows = rows_of("a", WITH_OPERATIONS, LATE)
    place = [field.name for field in columns_of(ModelOperatorRow)].index("operations")
    assert [encode(row)[place] for row in rows] == ["", "", "", "add 1 | clone 2"]
    (shipped,) = counts_of(rows)
    assert [one.operations for one in shipped.counts.counts] == [(), (("add", 1), ("clone", 2))]


def test_a_description_that_is_too_long_for_a_cell_is_unknown(tmp_path):
    """Each cell has a longest text, and one that is cut cannot be parsed."""
    many = replace(COUNTED, counts=(replace(COUNTED.counts[0], outputs=(TENSOR,) * 10_000), COUNTED.counts[1]))
    table = Database(tmp_path).model_operators
    table.append_missing(rows_of("a", many, LATE))
    (shipped,) = counts_of(table.rows())
    assert [one.outputs for one in shipped.counts.counts] == [None, TENSOR]


def test_reuse_distances_of_long_lists_are_read_back(tmp_path):
    reuse = (Reuse((10**9,) * 400, None, 99),)
    many = replace(COUNTED, counts=(replace(COUNTED.counts[0], occurrences=1, statistics=(), reuse=reuse),))
    table = Database(tmp_path).model_operators
    table.append_missing(rows_of("a", many, LATE))
    (shipped,) = counts_of(table.rows())
    assert shipped.counts.counts[0].reuse == reuse


def test_rows_of_an_older_table_are_the_same_rows_without_operations():
    older, rows = rows_of("a", COUNTED, LATE), rows_of("a", WITH_OPERATIONS, LATE)
    assert counts_of([*older, *rows]) == counts_of([*rows, *older]) == counts_of(rows)


def test_rows_that_were_counted_again_by_other_rules_for_bytes_are_the_same_rows():
    again = replace(COUNTED.counts[0], memory_bytes=64)
    rows = rows_of("a", replace(COUNTED, counts=(again, COUNTED.counts[1]), total_memory_bytes=408), LATE)
    # Shipped rows come first.
    assert counts_of([*rows, *rows_of("a", COUNTED, LATE)]) == counts_of(rows)


@pytest.mark.parametrize("text", ["add", "add 0", "add -1", "add 1_0", "add 1|clone 2", "add 1 | ", "my::add 1"])
def test_impossible_operations_are_refused(tmp_path, text):
    table = Database(tmp_path).model_operators
    row = rows_of("a", WITH_OPERATIONS, LATE)[-1]
    *lines, cells, _ = table.text([row]).split("\n")
    table.path.write_text("\n".join([*lines, cells.rpartition(",")[0].replace("add 1 | clone 2", text) + ",", ""]))
    with pytest.raises(UserError, match="operations: .* is not (possible|valid)"):
        table.rows()


def test_rows_begin_with_the_key_of_measurements():
    rows = rows_of("a", COUNTED, LATE)
    cases = cases_of(COUNTED.counts, CAPTURED)
    assert [row.key for row in rows[1:]] == [case.key for case in cases]
    assert [row.calls for row in rows] == [1, 2, 1, 1]
    assert (rows[0].operator, rows[0].flop, rows[0].memory_bytes) == ("torchvision.models.resnet18", 10, 600)


def test_the_last_of_several_counts_is_read_and_equal_rows_count_once():
    old = rows_of("a", replace(COUNTED, total_flop=99), EARLY)
    new = rows_of("a", COUNTED, LATE)
    assert counts_of([*new, *old, *new]) == counts_of(new)


def test_counts_with_values_are_read_before_later_ones_of_shapes_only():
    values, shapes = rows_of("a", COUNTED, EARLY), rows_of("a", replace(COUNTED, device_type="meta"), LATE)
    assert counts_of([*values, *shapes]) == counts_of(values)


def test_two_configs_of_one_model_that_were_counted_at_once_are_not_added_up():
    others = replace(COUNTED, composites=())
    rows = [*rows_of("a", COUNTED, LATE), *rows_of("b", COUNTED, LATE), *rows_of("c", others, LATE)]
    assert [shipped.counts for shipped in counts_of(rows)] == [
        *(shipped.counts for shipped in counts_of(rows_of("a", COUNTED, LATE))),
        *(shipped.counts for shipped in counts_of(rows_of("c", others, LATE))),
    ]


@pytest.mark.parametrize("kind", [NORMAL, ZEROS, CONSTANT, *(InputValues(0.3, spread=wide) for wide in (1, 16, 64))])
def test_statistics_of_a_kind_are_of_that_kind(kind):
    assert kind_of(kind.statistics()) == kind


def test_rows_without_the_model_itself_are_refused():
    with pytest.raises(ValueError, match="the row of the model itself is missing"):
        counts_of(rows_of("a", COUNTED, LATE)[1:])
    changed = replace(rows_of("a", COUNTED, LATE)[1], operator="torch.nn.SiLU")
    with pytest.raises(ValueError, match="its key is that of another operator tuple"):
        counts_of([rows_of("a", COUNTED, LATE)[0], changed])


@pytest.mark.parametrize("change", [{"calls": 0}, {"calls": 10**9}, {"flop": -1}, {"memory_bytes": -1}])
def test_impossible_counts_are_refused(change):
    with pytest.raises(ValueError, match="is not possible"):
        replace(rows_of("a", COUNTED, LATE)[0], **change)


@pytest.fixture
def request_of_one(tmp_path):
    folder = tmp_path / "measurements" / "a"
    folder.mkdir(parents=True)
    (folder / "summary.yml").write_text(
        "model_name: resnet18\nweights_name: null\ninput_size: [2, 3, 8, 8]\ncomposites: [Block]\ndone: false\n"
    )
    (tmp_path / "measurements" / "operator_whitelist.yml").write_text("operators: [ReLU]\n")
    (tmp_path / "database").mkdir()
    return Request((), ModelFolders(tmp_path / "measurements"), Database(tmp_path / "database"))


def shipped_by(request):
    return shipped_counts(request.database, request.configs())


def test_counts_are_shipped_once_and_read_where_no_pickle_is_newer(request_of_one):
    request = request_of_one
    (config,) = request.configs()
    pickle = COUNTS.path(config)
    assert shipped_by(request) == {}
    write_counts(pickle, COUNTED)
    ship_counts(request.database, [config])
    table = request.database.model_operators
    rows = table.rows()
    # The pickle is as new, so it counts; shipping it again adds nothing.
    assert shipped_by(request) == {}
    ship_counts(request.database, [config])
    assert table.rows() == rows
    os.utime(pickle, (0, 0))
    assert list(shipped_by(request)) == ["a"]
    pickle.unlink()
    ((_, counts),) = counted_or_shipped(request, [config])
    assert [one.operator for one in counts.counts] == [RELU, ADD]


@pytest.mark.parametrize(
    ("known", "counts", "rows"),
    [(COUNTED, WITH_OPERATIONS, 4), (replace(COUNTED, total_flop=9), WITH_OPERATIONS, 8), (IN_PHASES, IN_PHASES, 5)],
)
def test_counts_are_not_shipped_again_for_their_operations(request_of_one, known, counts, rows):
    (config,) = request_of_one.configs()
    table = request_of_one.database.model_operators
    table.append_missing(rows_of("a", known, EARLY))
    write_counts(COUNTS.path(config), counts)
    ship_counts(request_of_one.database, [config])
    assert len(table.rows()) == rows


def test_counts_of_other_composites_do_not_stand_for_a_config(request_of_one):
    (config,) = request_of_one.configs()
    write_counts(COUNTS.path(config), COUNTED)
    ship_counts(request_of_one.database, [config])
    COUNTS.path(config).unlink()
    config.path.write_text(config.path.read_text().replace("[Block]", "[]"))
    assert shipped_counts(request_of_one.database, request_of_one.folders.configs([])) == {}


def test_a_damaged_table_is_a_mistake_of_one_line(request_of_one):
    request = request_of_one
    table = request.database.model_operators
    for row in rows_of("a", COUNTED, LATE)[1:]:
        table.append(row)
    with pytest.raises(UserError, match="restore the file, or delete it and count the models again"):
        shipped_by(request)


def test_a_pickle_that_knows_shapes_only_does_not_stand_for_counts_with_values(request_of_one):
    (config,) = request_of_one.configs()
    write_counts(COUNTS.path(config), COUNTED)
    ship_counts(request_of_one.database, [config])
    write_counts(COUNTS.path(config), replace(COUNTED, device_type="meta"))
    assert list(shipped_by(request_of_one)) == ["a"]
    COUNTS.path(config).write_bytes(b"damaged")
    assert shipped_by(request_of_one) == {}


def test_counts_of_shapes_only_and_those_that_cannot_be_read_back_are_not_shipped(request_of_one, caplog):
    (config,) = request_of_one.configs()
    write_counts(COUNTS.path(config), replace(COUNTED, device_type="meta"))
    ship_counts(request_of_one.database, [config])
    assert not request_of_one.database.model_operators.path.exists()
    write_counts(COUNTS.path(config), replace(COUNTED, outside=("a | b",)))
    ship_counts(request_of_one.database, [config])
    assert not request_of_one.database.model_operators.path.exists()
    assert "a: counts not added to the database" in caplog.text


@pytest.mark.parametrize("cell", ["clone", "clone 1.5", "clone 0", "2 | clone", " 1"])
def test_a_cell_of_operations_that_is_no_list_of_them_is_refused_as_it_stands(tmp_path, cell):
    table = Database(tmp_path).model_operators
    row = replace(rows_of("a", COUNTED, LATE)[1], operations=(("clone", 2),))
    # Without a checksum, as a line that somebody edited.
    text = table.text([row]).replace("clone 2", cell)
    table.path.write_text(text[: text.rindex(",") + 1] + "\n")
    with pytest.raises(UserError, match=f"operations: '{re.escape(cell)}' is not possible .names and numbers."):
        table.rows()
