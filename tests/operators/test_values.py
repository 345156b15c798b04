"""Kinds of values: what is seen, what it is called, and what is drawn for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.operators.values import (
    CONSTANT,
    NORMAL,
    NORMAL_DATA,
    ZEROS,
    InputData,
    InputStatistics,
    InputValues,
    Pattern,
    kind_of,
    parse_input_data,
)

HALF = InputValues(zeros_ratio=0.5)
FINITE = st.none() | st.floats(allow_nan=False, allow_infinity=False)
STATISTICS = st.builds(
    InputStatistics, st.none() | st.floats(0, 1), FINITE, st.none() | st.floats(0, allow_infinity=False)
)
SHARES = st.sampled_from([0.0, *(tenths / 10 for tenths in range(1, 10)), 1.0])
PATTERNS = st.lists(st.sampled_from(Pattern), max_size=3).map(tuple)
DATA = st.builds(InputData.of, st.lists(STATISTICS.map(kind_of), max_size=4), SHARES, PATTERNS)


@pytest.mark.parametrize(
    ("zeros_ratio", "mean", "spread", "kind"),
    [
        (0.0, 0.0, 1.0, NORMAL),
        (0.04, 0.5, 2.0**-40, CONSTANT),
        (0.0, 0.0, 2.0**-40, NORMAL),
        (0.0, 100.0, 1.0, NORMAL),
        (0.0, 100.0, 0.0, CONSTANT),
        (0.0, -100.0, 0.05, CONSTANT),
        (0.5, -1.0, 1.0, CONSTANT),
        (0.26, 0.0, 1.0, InputValues(zeros_ratio=0.3)),
        (0.5, 0.4, 0.58, HALF),
        (0.5, 1.0, 1.0, InputValues(spread=0.0, mean=1.0)),
        (0.97, 0.0, 1.0, InputValues(zeros_ratio=0.9)),
        (0.999, 0.0, 1.0, ZEROS),
        (1.0, 0.0, 0.0, ZEROS),
        (1.0, None, None, ZEROS),
        (0.0, None, None, NORMAL),
        (0.5, None, None, HALF),
        (None, None, None, NORMAL),
        (0.0, 0.0, 11.0, NORMAL),
        (0.0, 0.0, 12.0, InputValues(spread=16.0)),
        (0.0, 0.0, 33.0, InputValues(spread=64.0)),
        # Half of the values are zero, so the others spread wider than all of them together.
        (0.5, 0.0, 10.0, InputValues(zeros_ratio=0.5, spread=16.0)),
        (0.0, 0.0, 1e30, InputValues(spread=64.0)),
    ],
)
def test_what_is_seen_is_of_a_kind(
    zeros_ratio: float | None, mean: float | None, spread: float | None, kind: InputValues
) -> None:
    assert kind_of(InputStatistics(zeros_ratio, mean, spread)) == kind


@given(STATISTICS)
def test_whatever_is_seen_is_of_a_kind(seen: InputStatistics) -> None:
    assert 0.0 <= kind_of(seen).zeros_ratio <= 1.0


@given(STATISTICS)
def test_a_kind_without_its_spread_has_as_many_zeros_or_is_constant(seen: InputStatistics) -> None:
    kind = kind_of(seen)
    rest = kind.without_spread()
    assert rest in (CONSTANT, InputValues(zeros_ratio=kind.zeros_ratio))
    assert (rest == CONSTANT) == (kind == CONSTANT)


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        ([], "normal"),
        ([NORMAL, NORMAL], "normal"),
        ([ZEROS], "zeros"),
        ([HALF], "captured: 0.5 zeros"),
        ([HALF, NORMAL], "captured: 0.5 zeros, normal"),
        ([NORMAL, HALF, HALF], "captured: normal, 0.5 zeros"),
        ([ZEROS, CONSTANT], "captured: zeros, constant"),
        ([CONSTANT], "captured: constant"),
        (
            [InputValues(zeros_ratio=0.1, spread=64.0), InputValues(spread=16.0)],
            "captured: 0.1 zeros spread 64, spread 16",
        ),
    ],
)
def test_data_are_described_in_words(kinds: list[InputValues], text: str) -> None:
    data = InputData.of(kinds)
    assert str(data) == text
    assert parse_input_data(text) == data
    assert all(data.kind(index) == kind for index, kind in enumerate(kinds))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (InputData((NORMAL,), 0.9), "captured: normal; weights 0.9 zeros"),
        (InputData((ZEROS,), 0.5), "captured: zeros; weights 0.5 zeros"),
        (InputData((HALF,), 1.0), "captured: 0.5 zeros; weights zeros"),
        (InputData((HALF, NORMAL), 0.1), "captured: 0.5 zeros, normal; weights 0.1 zeros"),
        (InputData(patterns=(Pattern.ZIPF,)), "captured: normal; patterns zipf"),
        (
            InputData((HALF,), 0.9, (Pattern.RANDOM, Pattern.CAUSAL)),
            "captured: 0.5 zeros; patterns random, causal; weights 0.9 zeros",
        ),
    ],
)
def test_patterns_and_zeros_in_weights_are_named_last(data: InputData, text: str) -> None:
    assert str(data) == text
    assert parse_input_data(text) == data


@pytest.mark.parametrize(
    "text",
    [
        "normal; weights 0.9 zeros",
        "captured: normal; weights normal",
        "captured: normal; weights constant",
        "captured: normal; weights 0.9 zeros spread 16",
        "captured: normal; weights ",
        "captured: normal; weights 0.9 zeros; weights 0.9 zeros",
        "captured: normal; weights 0.9 zeros; patterns zipf",
        "captured: normal; patterns ",
        "captured: normal; patterns words",
        "normal; patterns zipf",
    ],
)
def test_other_words_are_no_input_data(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_input_data(text)


@given(DATA)
def test_words_say_all_of_the_data(data: InputData) -> None:
    assert parse_input_data(str(data)) == data


@pytest.mark.parametrize(
    "text",
    [
        "",
        "purple",
        "captured: ",
        "captured: 0.5",
        "1.5 zeros",
        "spread 3",
        "normal,zeros",
        " ",
        "0.5 zeros ",
        "0.5 zerosspread 16",
    ],
)
def test_other_words_are_no_data(text: str) -> None:
    with pytest.raises(ValueError, match="is no kind of values"):
        parse_input_data(text)


@given(DATA, DATA, st.integers(1, 4))
def test_a_distance_is_the_same_both_ways_and_none_to_the_same_data(
    one: InputData, other: InputData, inputs: int
) -> None:
    assert one.distance(other, inputs) == other.distance(one, inputs) >= 0
    assert one.distance(one, inputs) == 0


def test_the_share_of_zeros_counts_more_than_the_spread() -> None:
    data = InputData((HALF,))
    others = [InputValues(zeros_ratio=0.5, spread=16.0), InputValues(zeros_ratio=0.7), NORMAL]
    assert sorted(others, key=lambda kind: data.distance(InputData((kind,)), 1)) == others


def test_every_input_counts_for_a_distance() -> None:
    both, one, neither = InputData.of([HALF, HALF]), InputData.of([HALF, NORMAL]), NORMAL_DATA
    assert both.distance(one, 2) == 0.5
    assert both.distance(neither, 2) == 1.0


def test_constants_are_between_normal_values_and_zeros() -> None:
    assert NORMAL.distance(CONSTANT) < NORMAL.distance(ZEROS)
    assert ZEROS.distance(CONSTANT) < NORMAL.distance(CONSTANT)
