"""Blocks of missing repetitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opcost.running.plan import IN_A_BLOCK, Wanted, planned_blocks


@given(
    st.lists(st.text("abc", min_size=1, max_size=3), unique=True, max_size=8),
    st.integers(1, 23),
    st.integers(0, 2**32),
)
def test_without_rows_each_repetition_of_each_size_is_planned_once(keys: list[str], number: int, seed: int) -> None:
    blocks = planned_blocks(keys, (), Wanted(number, 1.0, None), (), seed)
    planned = [(block.key, repetition) for block in blocks for repetition in block.repetitions]
    assert sorted(planned) == sorted((key, repetition) for key in keys for repetition in range(1, number + 1))
    assert all(1 <= len(block.repetitions) <= IN_A_BLOCK for block in blocks)
    numbers = [block.number for block in blocks]
    assert numbers == sorted(numbers)


@given(st.sets(st.sampled_from("abcdef"), min_size=1), st.integers(0, 2**32))
def test_sizes_that_failed_come_last(failed: set[str], seed: int) -> None:
    blocks = planned_blocks("abcdef", (), Wanted(10, 1.0, None), failed, seed)
    are_last = [block.key in failed for block in blocks]
    assert are_last == sorted(are_last)
