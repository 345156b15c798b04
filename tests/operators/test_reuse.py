from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.operators.reuse import (
    FAR_BYTES,
    FAR_CODE,
    LONGEST_LIST,
    CallState,
    NearLimits,
    Place,
    Reuse,
    Use,
    _Memory,
    parse_reuse,
    parse_state,
    reuses,
    state_of,
)
from opcost.operators.tuples import OperatorTuple, TensorSpec

MB = 10**6
X, A, B, C, W = range(5)


def use(inputs=(), written=(), weights=(), freed=(), code="", size=MB):
    return Use(*(tuple((block, size) for block in blocks) for blocks in (inputs, weights, written)), freed, code)


def test_an_output_is_near_and_a_residual_as_far_as_what_was_used_in_between():
    # a = f(x); b = g(a); b = h(b); c = a + b
    found = reuses([use([X], [A]), use([A], [B]), use([B], [C], freed=()), use([A, C], [4])])
    assert [one.inputs for one in found[1:]] == [(MB // 2,), (MB // 2,), (2 * MB, MB // 2)]


def test_what_no_call_has_written_is_as_far_as_the_whole_run():
    found = reuses([use([X], [A], [W]), use([A], [B], [5]), use([B], [C], [6])])
    assert [one.weights for one in found] == [5.5 * MB, 6 * MB, 5.5 * MB]
    assert found[0].inputs == (5.5 * MB,)
    (alone,) = reuses([use([X], [A], [W])])
    assert (alone.inputs, alone.weights) == ((MB,), MB)


def test_freed_memory_is_written_again():
    chain = [use([X], [A]), *(use([n], [n + 1], freed=(n - 1,) if n > A else ()) for n in range(A, A + 20))]
    assert reuses(chain)[0].inputs == (2 * MB,)
    kept = [one if not one.freed else use([A + n], [A + n + 1]) for n, one in enumerate(chain, -1)]
    assert reuses(kept)[0].inputs == (21 * MB,)


def test_code_is_as_far_as_the_kinds_of_calls_in_between():
    found = reuses([use([X], code=code) for code in ("add", "mul", "add", "mul", "mul", "norm")])
    assert [one.code for one in found] == [2, 2, 1, 1, 0, 2]


def test_code_is_as_far_as_the_memory_that_was_used_since_it_ran():
    found = reuses([use([X], [A], code="add"), use([A], [B], code="mul"), use([B], [C], code="add")])
    assert [one.code_bytes for one in found] == [2 * MB, 4 * MB, 3 * MB]


def test_code_is_half_near_where_it_shares_the_cache_with_few_data():
    limits, add = (
        NearLimits(30 * MB, 3, 33 * MB, 56 * MB),
        OperatorTuple("torch.Tensor.neg", (), (TensorSpec((4,), "float32"),), mode=None),
    )
    far = [Reuse((0,), None, 4, 0, code_bytes) for code_bytes in (30 * MB, 31 * MB, None)]
    states = [state_of(add, one, limits) for one in (replace(far[0], code=3), *far)]
    assert [one.code for one in states] == [Place.NEAR, Place.HALF, Place.FAR, Place.FAR]


@given(st.lists(st.integers(0, 5), min_size=1))
def test_distances_are_the_distinct_memory_between_two_uses(blocks):
    found = reuses([use([block]) for block in blocks])
    for place, (block, reuse) in enumerate(zip(blocks, found, strict=True), len(blocks)):
        before = (2 * blocks)[:place][::-1]
        assert reuse.inputs == (len(set(before[: before.index(block)])) * MB,)


SIZES = st.lists(st.integers(1, 40).map(lambda one: one * MB), max_size=3)


@given(st.lists(st.integers(1, 40).map(lambda one: one * MB), min_size=1, max_size=3), SIZES, SIZES)
def test_in_a_loop_all_that_a_call_touches_lies_between_two_uses_of_a_byte(inputs, weights, outputs):
    blocks = list(enumerate([*inputs, *weights, *outputs]))
    reads = tuple(blocks[: len(inputs)])
    written = tuple(blocks[len(inputs) + len(weights) :])
    (found,) = reuses([Use(reads, tuple(blocks[len(inputs) : len(inputs) + len(weights)]), written, (), "call")])
    touched = sum(size for _, size in blocks)
    for size, far in zip(inputs, found.inputs, strict=True):
        assert far + (size + touched) / 2 == pytest.approx(touched, rel=0.06)


@given(st.data())
def test_memory_is_used_by_one_block_at_a_time(data):
    memory, sizes = _Memory(), {}
    for _ in range(data.draw(st.integers(1, 40))):
        block = data.draw(st.integers(0, 5))
        if data.draw(st.booleans()):
            memory.free(block)
            sizes.pop(block, None)
        else:
            size = data.draw(st.integers(0, 9))
            memory.distance_bytes(block)
            memory.use_block(block, size)
            sizes[block] = max(size, sizes.get(block, 1))
        used = [memory._addresses[block] + at for block, size in sizes.items() for at in range(size)]
        assert len(used) == len(set(used))
        ends = [address + one.size for address, one in sorted(memory._fragments.items())]
        assert all(end <= begin for end, begin in zip(ends, sorted(memory._fragments)[1:], strict=False))


@pytest.mark.parametrize(
    ("reuse", "text"),
    [
        (Reuse((0, 37 * MB), None, 3), "0,370;;3"),
        (Reuse((), FAR_BYTES, FAR_CODE), ";10000;99"),
        (Reuse((100_000,), 0, 0), "1;0;0"),
        (Reuse((), None, 2, 31 * MB), ";;2;310"),
        (Reuse((MB,), None, 2, None, 4 * MB), "10;;2;;40"),
        (Reuse((), 0, 2, 0, 0), ";0;2;0;0"),
    ],
)
def test_texts_are_read_again(reuse, text):
    assert reuse.text == text
    assert parse_reuse(text) == reuse


@pytest.mark.parametrize("text", ["", ";", "1,;;0", "a;;1", ";;1.0", ",1;;2"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="reuse"):
        parse_reuse(text)


LIMITS = NearLimits(30 * MB, 3, 30 * MB, 60 * MB)


@pytest.mark.parametrize(
    ("distance", "size", "place"),
    [
        (26 * MB, 8 * MB, Place.NEAR),
        (27 * MB, 8 * MB, Place.FAR),
        (0, 60 * MB, Place.NEAR),
        (30 * MB, 60 * MB, Place.HALF),
        (46 * MB, 60 * MB, Place.FAR),
        (31 * MB, 200 * MB, Place.HALF),
        (131 * MB, 200 * MB, Place.FAR),
        (13 * MB, 26 * MB, Place.HALF),
        (20 * MB, 26 * MB, Place.FAR),
        (2 * MB, 4 * MB, Place.NEAR),
        (FAR_BYTES, 60_000, Place.NEAR),
        (FAR_BYTES, 300 * MB, Place.NEAR),
    ],
)
def test_an_input_is_near_half_or_far_by_its_distance_and_its_size(distance, size, place):
    assert LIMITS.place(distance, size) is place


def test_bytes_leave_the_cache_between_two_distances():
    distances = (0, 30 * MB, 45 * MB, 60 * MB, FAR_BYTES)
    assert [LIMITS.missed_ratio(one) for one in distances] == [0, 0, 0.5, 1, 1]


def test_an_input_is_read_again_after_half_of_itself_and_half_of_what_its_call_touches():
    assert LIMITS.missed_bytes([(5 * MB, 20 * MB)], 60 * MB) == 10 * MB
    assert LIMITS.missed_bytes([(0, 2 * MB), (FAR_BYTES, 3 * MB)], 5 * MB) == 3 * MB


@given(st.integers(0, 100 * MB), st.integers(0, 100 * MB), st.integers(0, 300 * MB))
def test_no_input_is_nearer_at_a_longer_distance(first, second, size):
    order = list(Place)
    places = [order.index(LIMITS.place(distance, size)) for distance in sorted((first, second))]
    assert places == sorted(places)


def test_half_of_an_input_was_used_since_the_output_that_it_was_read_for():
    # q = f(x), k = g(x), o = q k: x was read after q was written, so that it counts once.
    found = reuses([use([X], [A]), use([X], [B]), use([A, B], [C])])
    assert found[2].inputs == (2 * MB, MB // 2)
    # A product has read its weights before it writes; of a large input as much as the output has room beside it.
    product = Use(((X, 40 * MB),), ((W, 100 * MB),), ((A, 2 * MB),), (), "product")
    assert reuses([product, use([A], [B])])[1].inputs == (MB,)


def test_results_stay_in_the_cache_until_their_memory_is_written_again():
    # C takes the memory of A, since which B was written. B is read again after C and 40 MB of others.
    large = Use(((X, 20 * MB),), (), ((5, 20 * MB),), (), "large")
    found = reuses([use([X], [A]), use([A], [B]), use([B], [C], freed=(A,)), large, use([B, C], [6])])
    assert found[0].outputs == MB
    assert found[1].outputs >= 41 * MB


def test_an_operation_in_place_writes_over_what_another_has_written():
    found = reuses([use([X], [A]), use([A], [A]), use([A], [B])])
    assert found[0].outputs == 0
    assert found[1].outputs > 0
    assert reuses([use([X])])[0].outputs is None


@given(st.data())
def test_what_is_written_over_was_kept_for_the_bytes_that_were_used_since(data):
    """Against each byte by itself: when it was used, by which call it was written, its longest distance since."""
    memory, sizes, expected = _Memory(), {}, Counter()
    used, writers, apart = {}, {}, {}
    for time in range(data.draw(st.integers(1, 30))):
        block = data.draw(st.integers(0, 4))
        if block in sizes and data.draw(st.booleans()):
            memory.free(block)
            del sizes[block]
            continue
        is_new, call = block not in sizes, data.draw(st.sampled_from([None, time]))
        size = sizes.setdefault(block, data.draw(st.integers(1, 9)))
        memory.use_block(block, size, call)
        distances = {byte: sum(later > own for later in used.values()) for byte, own in used.items()}
        begin = memory._addresses[block]
        for byte in range(begin, begin + size):
            if byte in writers:
                apart[byte] = max(apart[byte], distances[byte])
                if is_new or call is not None:
                    expected[writers.pop(byte), apart.pop(byte)] += 1
            if call is not None:
                writers[byte], apart[byte] = call, 0
            used[byte] = time
    found = Counter()
    for call, parts in memory._written_over.items():
        for part in parts:
            found[call, part.apart] += part.size
    assert found == expected


@given(st.lists(st.sampled_from(Place), max_size=3 * LONGEST_LIST), st.booleans(), st.sampled_from(Place))
def test_states_are_read_again(places, far_weights, code):
    state = CallState(tuple(places), far_weights, code)
    assert parse_state(str(state)) == state
    assert ("*" in str(state)) <= (len(places) > LONGEST_LIST)


def test_equal_places_of_a_long_list_have_their_number():
    assert str(CallState((Place.NEAR,) * 202 + (Place.FAR,), False, Place.FAR)) == "inputs near*202 far, code far"
    assert str(CallState((Place.NEAR,) * 3, False, Place.NEAR)) == "inputs near near near"
