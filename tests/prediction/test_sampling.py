"""Drawn operator tuples: their sizes, their limits, and the choice by uncertainty."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.operators.counts import OperatorCount
from opcost.operators.texts import parse_tuple
from opcost.operators.tuples import OperatorTuple
from opcost.prediction.sampling import ALIGNED_TO, MAXIMUM_BYTES, Wish, sample, usual_kinds

LARGE = 10**12


def count_of(operator: OperatorTuple) -> OperatorCount:
    """Return a count whose FLOPs and bytes follow from the sizes of the inputs."""
    elements = sum(spec.elements for spec in operator.floating_inputs)
    return OperatorCount(operator, 1, elements, 4 * elements)


def known(*texts: str) -> list[OperatorCount]:
    return [replace(count_of(parse_tuple(text)), flop=LARGE, memory_bytes=LARGE) for text in texts]


RELUS = known("torch.nn.ReLU() on (float32[32, 16, 7, 7]) eval", "torch.nn.ReLU() on (float32[32, 256, 112, 112]) eval")
GROUPED = known(
    "torch.nn.Conv2d(in_channels=64, out_channels=128, kernel_size=3, padding=1, groups=8) "
    "on (float32[32, 64, 14, 14]) eval",
    "torch.nn.Conv2d(in_channels=256, out_channels=64, kernel_size=7, padding=3, groups=32) on "
    "(float32[32, 256, 56, 56]) eval",
)
ADDS = known("torch.Tensor.add on (float32[32, 64], float32[32, 64])")


def shapes_of(drawn: Sequence[OperatorCount]) -> list[tuple[int, ...]]:
    return [count.operator.floating_inputs[0].shape for count in drawn]


def test_sizes_are_within_and_a_factor_around_the_known_ones() -> None:
    shapes = shapes_of(sample(RELUS, Wish(400, ("ReLU",)), count_of))
    batches, channels, heights, widths = map(set, zip(*shapes, strict=True))
    assert (min(batches), max(batches)) == (1, 64)
    assert 8 <= min(channels) < 16
    assert 256 < max(channels) <= 512 + ALIGNED_TO
    assert 4 <= min(heights) < 7
    assert 112 < max(heights) <= 224
    assert all(height == width for _, _, height, width in shapes)
    assert heights == widths
    assert 0.3 < sum(height % 2 for *_, height in shapes) / len(shapes) < 0.7


def test_a_wider_factor_goes_further() -> None:
    shapes = shapes_of(sample(RELUS, Wish(400, ("ReLU",), beyond_ratio=8.0), count_of))
    assert max(shape[2] for shape in shapes) > 224
    assert min(shape[2] for shape in shapes) == 1


def sizes_of_many(side: int) -> list[int]:
    """Return the drawn sizes of the first tuples of many seeds: later ones avoid those that were drawn before."""
    relus = known(
        "torch.nn.ReLU() on (float32[32, 17, 7, 7]) eval", "torch.nn.ReLU() on (float32[32, 255, 113, 113]) eval"
    )
    shapes = (shape for seed in range(500) for shape in shapes_of(sample(relus, Wish(4, ("ReLU",), seed), count_of)))
    return [shape[side] for shape in shapes if shape[side] not in (17, 255, 7, 113)]


def test_sizes_are_log_uniform_and_half_of_the_numbers_of_channels_are_multiples_of_8() -> None:
    sides, channels = sizes_of_many(2), sizes_of_many(1)
    assert sum(value <= math.sqrt(4 * 226) for value in sides) / len(sides) == pytest.approx(0.5, abs=0.06)
    assert len(channels) > 500
    assert sum(value % ALIGNED_TO == 0 for value in channels) / len(channels) == pytest.approx(0.5, abs=0.06)


@given(st.integers(0, 2**32))
def test_constraints_between_sizes_hold(seed: int) -> None:
    for count in sample(GROUPED, Wish(5, ("Conv2d",), seed), count_of):
        parameters = dict(count.operator.parameters)
        channels, filters, groups, kernel, padding = (
            int(str(parameters[name])) for name in "in_channels out_channels groups kernel_size padding".split()
        )
        assert count.operator.floating_inputs[0].shape[1] == channels
        assert (channels % groups, filters % groups) == (0, 0)
        assert padding == round((kernel - 1) / 2)


@given(st.integers(0, 2**32), st.integers(1, 20))
def test_a_seed_gives_the_same_tuples_none_of_them_twice(seed: int, number: int) -> None:
    wish = Wish(number, ("ReLU", "add"), seed)
    first, again = (sample([*RELUS, *ADDS], wish, count_of) for _ in range(2))
    assert [str(one.operator) for one in first] == [str(one.operator) for one in again]
    assert len({one.operator for one in first}) == number
    assert {one.operator for one in first}.isdisjoint(one.operator for one in (*RELUS, *ADDS))


def test_another_seed_gives_other_tuples_and_kinds_come_in_turn() -> None:
    drawn = [{one.operator for one in sample(RELUS, Wish(50, ("ReLU",), seed), count_of)} for seed in (0, 1)]
    assert len(drawn[0] & drawn[1]) < 15
    both = sample([*RELUS, *ADDS], Wish(20, ("ReLU", "add")), count_of)
    assert Counter(one.operator.short_name for one in both) == {"ReLU": 10, "add": 10}


def test_shapes_of_elementwise_inputs_stay_equal() -> None:
    for one in sample(ADDS, Wish(50, ("add",)), count_of):
        first, second = one.operator.floating_inputs
        assert first.shape == second.shape


def test_calls_are_no_larger_than_the_largest_known_one() -> None:
    relus = [count_of(one.operator) for one in RELUS]
    largest = max(relus, key=lambda one: one.memory_bytes)
    drawn = sample(relus, Wish(200, ("ReLU",)), count_of)
    assert len(drawn) == 200
    assert all(one.memory_bytes <= largest.memory_bytes for one in drawn)
    huge = known("torch.nn.ReLU() on (float32[64, 4096, 512, 512]) eval")
    assert all(one.memory_bytes <= MAXIMUM_BYTES for one in sample(huge, Wish(50, ("ReLU",)), count_of))


def test_excluded_and_invalid_tuples_are_not_drawn() -> None:
    wish = Wish(20, ("ReLU",))
    first = sample(RELUS, wish, count_of)
    excluded = {one.operator.key for one in first}
    assert excluded.isdisjoint(one.operator.key for one in sample(RELUS, wish, count_of, excluded))
    odd = sample(RELUS, wish, lambda operator: count_of(operator) if operator.floating_inputs[0].shape[2] % 2 else None)
    assert {shape[2] % 2 for shape in shapes_of(odd)} == {1}


def test_a_kind_without_more_valid_tuples_ends() -> None:
    small = known("torch.nn.ReLU() on (float32[1, 2]) eval")
    assert len(sample(small, Wish(50, ("ReLU",)), count_of)) < 50
    assert sample(RELUS, Wish(5, ("ReLU",)), lambda _: None) == []
    assert sample(RELUS, Wish(5, ("Tanh",)), count_of) == []
    both = sample([*small, *ADDS], Wish(50, ("ReLU", "add")), count_of)
    assert len(both) == 50


def test_the_usual_kinds_take_most_of_the_time() -> None:
    relu, add = RELUS[0].operator, ADDS[0].operator
    linear = parse_tuple("torch.nn.Linear(in_features=2, out_features=3) on (float32[8, 2]) eval")
    assert usual_kinds([(add, 0.3), (relu, 0.66), (linear, 0.04)]) == ("ReLU", "add")
    assert usual_kinds([(add, 0.2), (relu, 0.3), (add, 0.2)]) == ("add", "ReLU")
    assert usual_kinds([]) == ()
