"""The bytes that a call moves in its state beyond those of its warm loop, and the energy that follows."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.operators.counts import Case, OperatorCount, OperatorCounts, cases_of_count, select
from opcost.operators.reuse import FAR_BYTES, NearLimits, Reuse, Use, reuses
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.summing.in_state import H200, bytes_added, far_launches_ratio

MB = 10**6
LIMITS = NearLimits(30 * MB, 3, 40 * MB, 60 * MB)


def spec(megabytes: float, identity: int = 0) -> TensorSpec:
    return TensorSpec((int(megabytes * MB / 4),), "float32", identity=identity)


def count(
    operator: OperatorTuple, read: float, written: float, reuse: tuple[Reuse, ...] = (), weights: float | None = None
) -> OperatorCount:
    """Return the count of an operator that reads and writes so many MB, with one call for each reuse."""
    return OperatorCount(
        operator,
        len(reuse) or 1,
        0,
        int((read + written) * MB),
        spec(written),
        weight_bytes=None if weights is None else int(weights * MB),
        reuse=reuse,
    )


def function(name: str, *inputs: TensorSpec) -> OperatorTuple:
    return OperatorTuple(name, (), inputs, mode=None)


def run(*counts: OperatorCount) -> OperatorCounts:
    return OperatorCounts(function("model"), counts, 0, 0, 0, "2.11", "cuda")


RELU = function("torch.relu", spec(20))
ALL_FAR, NONE_FAR = Case(RELU, state="inputs far"), Case(RELU, state="inputs near", read_bytes=0.0, written_ratio=0.0)


@pytest.mark.parametrize(
    ("operator", "read", "written", "workspace", "far", "near"),
    [
        # A loop that keeps its data: all that the state moves is added.
        (RELU, 20, 20, 0, (20, 20), (0, 0)),
        # In between, half of the loop's own bytes; from the lost bytes on, all of them.
        (function("torch.relu", spec(25)), 25, 25, 0, (12.5, 12.5), (-12.5, -12.5)),
        (function("torch.relu", spec(30)), 30, 30, 0, (0, 0), (-30, -30)),
        # The workspace takes a part of the cache, and goes to memory in the state only as far as the results do.
        (RELU, 20, 20, 10, (10, 10 + 5), (-10, -10)),
        # In place, 20 MB are met after 20 MB of the copy and half of themselves, so that they stay.
        (function("torch.relu_", spec(20)), 20, 20, 0, (20, 20), (0, 0)),
        (function("torch.relu_", spec(40)), 40, 40, 0, (0, 0), (-40, -40)),
        # Its other input is met after the copy, too: 20 + 20 + 20 MB.
        (function("torch.mul_", spec(20), spec(20, 1)), 40, 20, 0, (20, 20), (-20, 0)),
        # Added and subtracted in turn, it finds its own results.
        (function("torch.Tensor.add_", spec(25), spec(25, 1)), 50, 25, 0, (25, 12.5), (-25, -12.5)),
        # Operands that are only written are not read.
        (function("torch.Tensor.zero_", spec(60)), 0, 60, 0, (0, 0), (0, -60)),
        (function("torch.Tensor.copy_", spec(20), spec(20, 1)), 20, 20, 0, (20, 20), (0, 0)),
        (function("torch.Tensor.__invert__", spec(25)), 25, 25, 0, (12.5, 12.5), (-12.5, -12.5)),
    ],
)
def test_bytes_are_those_beyond_the_loops(operator, read, written, workspace, far, near):
    counted = count(operator, read, written)
    for case, expected in ((ALL_FAR, far), (NONE_FAR, near)):
        found = bytes_added(counted, case, LIMITS, workspace * MB)
        assert found == pytest.approx(tuple(one * MB for one in expected), abs=1.0)


def test_calls_read_what_their_distances_leave_in_memory():
    near, half, far = (
        Reuse((distance,), None, 0, outputs) for distance, outputs in ((0, 0), (20 * MB, None), (FAR_BYTES, 60 * MB))
    )
    counted = count(RELU, 20, 20, (near, half, far, far))
    found = {case.state: case for case, _ in cases_of_count(counted, "normal", LIMITS)}
    # In the middle of 20 MB: 10 MB of them and 20 MB of the call's 40 MB behind the distance.
    assert found["inputs near"].read_bytes == 0
    assert found["inputs half"].read_bytes == pytest.approx(10 * MB)
    assert found["inputs far"].read_bytes == pytest.approx(20 * MB)
    assert [found[f"inputs {place}"].written_ratio for place in ("near", "half", "far")] == [0, 1, 1]


def test_of_a_table_a_few_rows_are_read():
    table = function("torch.nn.functional.embedding", TensorSpec((1000,), "int64"), spec(100, 1))
    (one,) = cases_of_count(count(table, 10, 2, (Reuse((0, 0), None, 0, 0),)), "normal", LIMITS)
    assert one[0].read_bytes == 0
    (one,) = cases_of_count(count(table, 10, 2, (Reuse((0, FAR_BYTES), None, 0, 0),)), "normal", LIMITS)
    assert one[0].read_bytes == 10 * MB


def test_weights_are_read_by_their_own_distance():
    linear = OperatorTuple("torch.nn.Linear", (("in_features", 8), ("out_features", 8)), (spec(2),))
    for distance, read in ((FAR_BYTES, 12 * MB), (0, 0.0)):
        ((case, _),) = cases_of_count(
            count(linear, 14, 2, (Reuse((0,), distance, 9, 0),), weights=12), "normal", LIMITS
        )
        assert case.read_bytes == read


@given(st.integers(1, 60), st.integers(1, 60))
def test_a_run_of_one_call_adds_nothing_to_its_loop(read, written):
    """All that the call touches lies between two uses of a byte, in both."""
    (reuse,) = reuses([Use(((0, read * MB),), (), ((1, written * MB),), (), "call")])
    counted = count(function("torch.relu", spec(read)), read, written, (reuse,))
    ((case, _),) = cases_of_count(counted, "normal", LIMITS)
    added, _ = bytes_added(counted, case, LIMITS)
    # Distances have two digits.
    assert added == pytest.approx(0, abs=0.06 * read / 20 * (read + written) * MB + 1e5)


@pytest.mark.parametrize(("run_mb", "ratio"), [(30, 0.0), (50, 0.5), (70, 1.0)])
def test_launches_come_from_memory_in_runs_that_fit_into_no_cache(run_mb, ratio):
    """Weights were last used a whole run ago, as the graph was."""
    own = ((0, (run_mb - 10) * MB),)
    uses = [Use((), own, ((1, 5 * MB),), (), "first"), Use(((1, 5 * MB),), (), ((2, 5 * MB),), (), "second")]
    found = zip(reuses(uses), (run_mb - 10, None), strict=True)
    first, second = (count(RELU, 20, 20, (one,), weights) for one, weights in found)
    assert far_launches_ratio(run(first, second), LIMITS) == pytest.approx(ratio, abs=0.15)


def test_a_part_of_a_run_has_its_launches_and_calls_without_memory_say_nothing():
    small, unknown = Reuse((0,), 19 * MB, 5, 0, MB), Reuse((FAR_BYTES,), None, 99, None, FAR_BYTES)
    nothing = replace(count(function("torch.nn.functional.dropout", spec(1)), 0, 0, (unknown,)), memory_bytes=0)
    counts = run(count(RELU, 20, 20, (small,)), count(function("torch.cat", spec(1)), 1, 1, (unknown,)), nothing)
    assert far_launches_ratio(counts, LIMITS) == 0
    selection = select(counts, ("cat",))
    assert [far_launches_ratio(part, LIMITS) for part in (selection.kept, selection.dropped)] == [0, 0]


def test_a_run_of_unknown_size_has_far_launches():
    assert far_launches_ratio(run(count(RELU, 20, 20)), LIMITS) == 1


def test_limits_of_an_h200_have_an_order():
    assert H200.near.data_bytes < H200.near.kept_bytes < H200.near.lost_bytes
