"""Calls and tuples over several models, each shared tuple counted once."""

from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple, model_operator
from opcost.stages.count import CensusRow, take_census

CONVOLUTION, LINEAR, ADD, DROPOUT = (OperatorTuple(name) for name in ("a.Conv2d", "a.Linear", "a.add", "a.Dropout"))


def counts_of(**occurrences: int) -> OperatorCounts:
    operators = {"convolution": CONVOLUTION, "linear": LINEAR, "add": ADD, "dropout": DROPOUT}
    costs = {"convolution": (100, 10), "linear": (0, 10), "add": (0, 1), "dropout": (0, 0)}
    return OperatorCounts(
        model=model_operator("resnet18", None, (1, 3, 8, 8)),
        counts=tuple(OperatorCount(operators[name], n, *costs[name]) for name, n in occurrences.items()),
        total_flop=1000,
        total_memory_bytes=1000,
        parameters=1,
        torch_version="2.11.0",
        device_type="meta",
    )


def test_tuples_are_counted_once_over_all_models_and_calls_as_often_as_they_occur() -> None:
    models = {"a": counts_of(convolution=3, linear=1), "b": counts_of(convolution=2, add=5), "c": counts_of(linear=7)}
    assert take_census(models) == [
        CensusRow("a", calls=4, tuples=2, shared_tuples=2, unshared_tuples=0),
        CensusRow("b", calls=7, tuples=2, shared_tuples=1, unshared_tuples=1),
        CensusRow("c", calls=7, tuples=1, shared_tuples=1, unshared_tuples=0),
        CensusRow(None, calls=18, tuples=3, shared_tuples=2, unshared_tuples=1),
    ]


def test_what_computes_nothing_is_not_counted() -> None:
    assert take_census({"a": counts_of(dropout=4)})[0] == CensusRow("a", 0, 0, 0, 0)


def test_no_models_have_nothing() -> None:
    assert take_census({}) == [CensusRow(None, 0, 0, 0, 0)]
