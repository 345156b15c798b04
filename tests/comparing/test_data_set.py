"""Tables of a data set: which columns they have, of which types, and in which order."""

from dataclasses import replace

import pytest
from simulated_machine import Load, simulated_row

from opcost.comparing.data_set import data_columns, data_tables, table_name
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple, PlainValue, TensorSpec

TENSOR = TensorSpec((4, 4), "float32")


def linear(**parameters: PlainValue) -> OperatorTuple:
    return OperatorTuple("torch.nn.Linear", tuple(parameters.items()), (TENSOR,))


def column(table, name):
    place = list(table.columns).index(name)
    return table.columns[name], [row[place] for row in table.rows]


def test_each_kind_of_operator_has_a_table_with_its_columns():
    relu = OperatorTuple("torch.nn.ReLU", (), (TENSOR,))
    rows = [simulated_row(one) for one in (relu, linear(in_features=4, out_features=8), relu)]
    counts = {relu.key: OperatorCount(relu, 3, 0, 128, TENSOR, operations=(("relu", 1),))}
    of_linear, of_relu = data_tables(rows, counts)
    assert [(table.name, len(table.rows)) for table in (of_linear, of_relu)] == [
        ("torch.nn.Linear", 1),
        ("torch.nn.ReLU", 2),
    ]
    assert column(of_linear, "parameter_out_features") == (int, [8])
    assert column(of_linear, "memory_bytes") == (int, [None])
    assert "parameter_out_features" not in of_relu.columns
    assert [column(of_relu, name)[1][0] for name in ("flop", "memory_bytes", "flop_per_byte", "operations")] == [
        0,
        128,
        0.0,
        "relu 1",
    ]
    assert column(of_relu, "time_s") == (float, [row.measurement.time_s for row in rows[::2]])
    assert column(of_relu, "device_product")[1] == [row.conditions.device_product for row in rows[::2]]


def test_an_intensity_is_unknown_where_flops_are_or_nothing_moves():
    row = simulated_row(linear())
    for flop, memory_bytes in ((None, 8), (0, 0)):
        names = ("mine::a",) if flop is None else ()
        count = OperatorCount(linear(), 1, flop, memory_bytes, without_formula=names)
        (table,) = data_tables([row], {linear().key: count})
        assert column(table, "flop_per_byte") == (float, [None])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((1, 2), int),
        ((1, 2.5), float),
        ((True, False), bool),
        (("a", "b"), str),
        ((1, (1, 2)), str),
        ((1, True), str),
        ((1, 2**70), str),
    ],
)
def test_a_column_has_the_type_that_holds_all_its_values(values, kind):
    rows = [simulated_row(linear(bias=value)) for value in values]
    (table,) = data_tables([*rows, simulated_row(linear())], {})
    found, cells = column(table, "parameter_bias")
    assert found == kind
    assert {None, values[0]} <= set(cells)


def test_the_order_of_rows_does_not_depend_on_that_in_the_database():
    rows = [simulated_row(linear(in_features=number), Load(power_w=200.0 + number)) for number in (3, 1, 2)]
    again = replace(rows[0], measurement=replace(rows[0].measurement, started_at="1999-01-01T00:00:00+00:00"))
    assert data_tables([*rows, again], {}) == data_tables([again, *rows[::-1]], {})
    (table,) = data_tables([*rows, again], {})
    assert column(table, "parameter_in_features")[1] == [1, 2, 3, 3]
    assert column(table, "started_at")[1][2] == again.measurement.started_at


def test_names_of_tables_suit_any_file_system_and_are_not_those_of_lists():
    names = ("torch.nn.Conv2d", "../../x", "f.<locals>.Block", "whole_models", "tables.f", "x" * 300)
    assert [table_name(name) for name in names] == [
        "torch.nn.Conv2d",
        ".._.._x",
        "f._locals_.Block",
        "_whole_models",
        "tables.f",
        "x" * 200,
    ]


def test_no_two_columns_have_the_same_name():
    names = [field.name for field in data_columns()]
    assert len(names) == len(set(names))
