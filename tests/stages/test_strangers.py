from dataclasses import replace

import torch
from torch import nn

from opcost.operators.counts import Case, OperatorCount
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.stages.strangers import LARGEST_BYTES, Insertion, as_stranger, drawn_cases
from opcost.torch_backend.passes import running_calls


def cases(name: str, number: int, memory_bytes: int = 100) -> list[Case]:
    operators = [
        OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((size,), "float32"),)) for size in range(1, 1 + number)
    ]
    return [Case(one, counted=OperatorCount(one, 1, 0, memory_bytes), counted_on="cpu") for one in operators]


def test_operators_of_all_kinds_are_drawn_in_turn_and_large_ones_are_not() -> None:
    found = [*cases("ReLU", 9), *cases("GELU", 2), *cases("SiLU", 3, LARGEST_BYTES + 1), *cases("Dropout", 1, 0)]
    drawn = drawn_cases(found, 6, seed=1)
    kinds = [case.operator.short_name for case in drawn]
    assert kinds[:4] == 2 * kinds[:2]
    assert set(kinds[:2]) == {"ReLU", "GELU"}
    assert kinds[4:] == 2 * ["ReLU"]
    assert len(set(drawn)) == 6
    assert drawn_cases(found, 6, seed=1) == drawn
    assert drawn_cases(found, 6, seed=2) != drawn


def test_a_stranger_finds_nothing_near() -> None:
    (linear,) = cases("Linear", 1)
    assert as_stranger(linear).state == "inputs far, weights far, code far"
    spec = TensorSpec((4,), "float32")
    add = OperatorTuple("torch.add", (), (spec, replace(spec, identity=1)), mode=None)
    assert as_stranger(Case(add)).state == "inputs far far, code far"


def test_a_call_is_inserted_behind_every_third_operation_that_computes() -> None:
    model, values = nn.Sequential(*(nn.ReLU() for _ in range(7))), torch.ones(4)
    seen: list[int] = []
    insertion = Insertion(lambda: seen.append(insertion.inserted), every=3)
    with running_calls():
        for _ in range(2):
            insertion.into(lambda: model(values.view(2, 2)))
    # Each run begins with none.
    assert seen == [1, 2, 1, 2]
