"""Axes of sweeps: texts become sizes, and sizes become inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.operators.sweep_axes import MOST_SIZES, Axis, AxisKind

SIZES = st.lists(st.integers(1, 10**6), min_size=1, max_size=30, unique=True)


def test_ranges_double_add_and_are_listed() -> None:
    assert Axis.parse(AxisKind.SIZE, "8:4096:x2").sizes == tuple(2**power for power in range(3, 13))
    assert Axis.parse(AxisKind.TOKENS, "50:500:50").sizes == tuple(range(50, 501, 50))
    assert Axis.parse(AxisKind.BATCH, "4, 1,2:9:3").sizes == (1, 2, 4, 5, 8)


@pytest.mark.parametrize("text", ["", "0", "8:4096", "9:8:1", "1:9:x1", "1:9:0", "a", "1,,2", "1:100000:1", "-1", "²"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Axis.parse(AxisKind.SIZE, text)


@given(SIZES)
def test_the_text_of_an_axis_gives_the_axis(sizes: list[int]) -> None:
    axis = Axis(AxisKind.SIZE, tuple(sorted(sizes)))
    assert Axis.parse(AxisKind.SIZE, str(axis)) == axis


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(2, 9), st.booleans())
def test_a_range_is_within_its_ends(first: int, length: int, step: int, is_factor: bool) -> None:
    text = f"{first}:{first + length}:{'x' if is_factor else ''}{step}"
    if not is_factor and length // step >= MOST_SIZES:
        with pytest.raises(ValueError, match=str(MOST_SIZES)):
            Axis.parse(AxisKind.BATCH, text)
        return
    axis = Axis.parse(AxisKind.BATCH, text)
    assert axis.sizes[0] == first
    assert axis.sizes[-1] <= first + length
    following = axis.sizes[-1] * step if is_factor else axis.sizes[-1] + step
    assert following > first + length


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        axis = Axis.parse(AxisKind.SIZE, text)
    except ValueError:
        return
    assert Axis.parse(AxisKind.SIZE, str(axis)) == axis


def test_an_axis_changes_its_numbers_only() -> None:
    assert AxisKind.SIZE.changed((32, 3, 224, 224), 64) == (32, 3, 64, 64)
    assert AxisKind.TOKENS.changed((8, 128), 50) == (8, 50)
    assert AxisKind.BATCH.changed((32, 3, 224, 224), 1) == (1, 3, 224, 224)
    with pytest.raises(ValueError, match="no size"):
        AxisKind.SIZE.changed((8, 128), 50)


def test_the_context_of_a_decode_step_is_in_no_input_and_its_tokens_are_one_of_each_text() -> None:
    assert AxisKind.CONTEXT.changed((8, 1), 2048) == (8, 1)
    assert AxisKind.CONTEXT.units((8, 1), 2048) == 8
    with pytest.raises(ValueError, match="one token of each text"):
        AxisKind.CONTEXT.changed((8, 128), 2048)


def test_costs_are_divided_by_all_pixels_tokens_or_samples_of_a_run() -> None:
    assert AxisKind.SIZE.units((32, 3, 64, 64), 64) == 32 * 64 * 64
    assert AxisKind.TOKENS.units((8, 50), 50) == 400
    assert AxisKind.BATCH.units((), 4) == 4
    assert AxisKind.SIZE.units((), 64) is None


@given(
    SIZES.filter(lambda sizes: len(sizes) > 1),
    st.sampled_from([kind for kind in AxisKind if kind is not AxisKind.CONTEXT]),
)
def test_the_axis_of_some_inputs_is_found(sizes: list[int], kind: AxisKind) -> None:
    shapes = [kind.changed((10**7, 3, 10**7, 10**7), size) for size in sizes]
    assert Axis.among(shapes) == Axis(kind, tuple(sorted(sizes)))


def test_inputs_that_differ_in_two_ways_have_no_axis() -> None:
    assert Axis.among([(1, 3, 32, 32), (2, 3, 64, 64)]) is None
    assert Axis.among([(1, 3, 32, 32)]) is None
    assert Axis.among([(), ()]) is None
