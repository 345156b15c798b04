"""The whitelist splits a model's operators, and shares say what each part is of the whole."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.operators.counts import (
    OperationWithoutFormula,
    OperatorCount,
    OperatorCounts,
    Share,
    by_operator,
    names_kept,
    outside,
    select,
    share,
)
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator

NAMES = ["torch.nn.Conv2d", "torch.nn.Linear", "torch.nn.ReLU", "torchvision.ops.Permute", "mine.Conv2d"]


def count(name: str, width: int, occurrences: int, flop: int, memory_bytes: int) -> OperatorCount:
    return OperatorCount(OperatorTuple(name, (), (TensorSpec((width,), "float32"),)), occurrences, flop, memory_bytes)


def counts_of(*counts: OperatorCount, flop_outside: int = 0, bytes_outside: int = 0) -> OperatorCounts:
    return OperatorCounts(
        model=model_operator("resnet18", None, (2, 3, 8, 8)),
        counts=counts,
        total_flop=sum(item.occurrences * item.flop for item in counts) + flop_outside,
        total_memory_bytes=sum(item.occurrences * item.memory_bytes for item in counts) + bytes_outside,
        parameters=5,
        torch_version="2.11.0",
        device_type="cuda",
    )


MODEL = counts_of(
    count("torch.nn.Conv2d", 1, 3, 100, 10),
    count("torch.nn.Conv2d", 2, 1, 300, 30),
    count("torch.nn.ReLU", 1, 4, 0, 20),
    count("torch.nn.Linear", 1, 2, 100, 5),
    flop_outside=200,
    bytes_outside=50,
)

ANY_COUNTS = st.builds(
    counts_of,
    *[
        st.builds(
            count, st.sampled_from(NAMES), st.just(width), st.integers(1, 9), st.integers(0, 99), st.integers(0, 99)
        )
        for width in range(4)
    ],
    flop_outside=st.integers(0, 99),
    bytes_outside=st.integers(0, 99),
)
WHITELISTS = st.lists(st.sampled_from(["Conv2d", "Linear", "ReLU", "Permute", "LayerNorm"]), unique=True)


@given(ANY_COUNTS, WHITELISTS)
def test_every_tuple_is_kept_or_dropped_in_its_order(counts: OperatorCounts, whitelist: list[str]) -> None:
    selection = select(counts, whitelist)
    kept, dropped = selection.kept.counts, selection.dropped.counts
    assert all(item.operator.short_name in whitelist for item in kept)
    assert not any(item.operator.short_name in whitelist for item in dropped)
    assert [item for item in counts.counts if item in kept] == list(kept)
    assert len(kept) + len(dropped) == len(counts.counts)


@given(ANY_COUNTS, WHITELISTS)
def test_kept_dropped_and_outside_make_the_whole(counts: OperatorCounts, whitelist: list[str]) -> None:
    selection = select(counts, whitelist)
    assert replace(selection.kept, counts=()) == replace(counts, counts=())
    parts = [share(selection.kept.counts, counts), share(selection.dropped.counts, counts), outside(counts)]
    assert sum(part.calls for part in parts) == counts.operator_calls
    for field, total in (("flop_ratio", counts.total_flop), ("memory_bytes_ratio", counts.total_memory_bytes)):
        ratios = [getattr(part, field) for part in parts]
        assert sum(ratios) == pytest.approx(1) if total else ratios == [None, None, None]


@given(ANY_COUNTS)
def test_groups_hold_every_tuple_once(counts: OperatorCounts) -> None:
    groups = by_operator(counts)
    assert sorted(map(str, counts.counts)) == sorted(str(item) for group in groups.values() for item in group)
    assert all(item.operator.short_name == name for name, group in groups.items() for item in group)


def test_shares_of_a_model() -> None:
    kept = select(MODEL, ["Conv2d", "LayerNorm"]).kept
    assert share(kept.counts, MODEL) == Share(calls=4, calls_ratio=0.4, flop_ratio=0.6, memory_bytes_ratio=60 / 200)
    assert outside(MODEL) == Share(calls=0, calls_ratio=None, flop_ratio=0.2, memory_bytes_ratio=50 / 200)
    assert share((), counts_of()) == Share(0, None, None, None)
    assert list(by_operator(MODEL)) == ["ReLU", "Conv2d", "Linear"]


def test_shares_of_a_model_of_unknown_flop_are_those_of_calls_and_bytes():
    operation = OperationWithoutFormula("mine::scale", 1, 10)
    unknown = replace(count("mine.scale", 1, 1, 0, 10), flop=None, without_formula=("mine::scale",))
    counts = replace(MODEL, counts=(*MODEL.counts, unknown), without_formula=(operation,))
    assert counts.flop is None
    assert (share(counts.counts, counts).flop_ratio, outside(counts).flop_ratio) == (None, None)
    assert share(MODEL.counts, counts).flop_ratio is None
    assert share(MODEL.counts, counts).memory_bytes_ratio == share(MODEL.counts, MODEL).memory_bytes_ratio
    assert unknown.computes


def test_an_operator_goes_by_the_last_part_of_its_name() -> None:
    counts = counts_of(count("mine.Conv2d", 1, 1, 1, 1), count("torch.nn.Conv2d", 1, 1, 1, 1))
    assert len(select(counts, ["Conv2d"]).kept.counts) == 2
    assert select(counts, ["torch.nn.Conv2d", "conv2d", "Conv"]).kept.counts == ()


def test_a_star_keeps_everything_that_computes_something() -> None:
    dropout = count("torch.nn.Dropout", 1, 1, 0, 0)
    counts = counts_of(*MODEL.counts, dropout)
    for whitelist in (["*"], ["Conv2d", "*"]):
        assert select(counts, whitelist).kept.counts == MODEL.counts
        assert select(counts, whitelist).dropped.counts == (dropout,)
    assert select(counts, ["*", "Dropout"]).kept == counts
    assert names_kept(["Sigmoid", "*"], counts.counts) == ("Sigmoid", "Conv2d", "Linear", "ReLU")
    assert names_kept(["Sigmoid"], counts.counts) == ("Sigmoid",)
