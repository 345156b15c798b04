"""Zeros of inputs that were counted on shapes: rules by the operator that made an input."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from opcost.comparing.predicted_run import RULES, Effect, with_usual_zeros
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import META, OperatorTuple, TensorSpec
from opcost.operators.values import InputStatistics

SHAPE, HALF = (2, 8, 6, 6), (2, 8, 3, 3)


def call(name: str, position: int, *shapes: tuple[int, ...], returns: tuple[int, ...] = SHAPE) -> OperatorCount:
    parameters = (("kernel_size", 2),) if name == "MaxPool2d" else ()
    specs = tuple(TensorSpec(shape, "float32", identity=place) for place, shape in enumerate(shapes or (SHAPE,)))
    operator = OperatorTuple(f"torch.nn.{name}", (*parameters, ("place", position)), specs)
    return OperatorCount(operator, 1, 0, 8, TensorSpec(returns, "float32"), positions=(position,))


def shares(*calls: OperatorCount) -> list[tuple[float | None, ...]]:
    """Return the shares of zeros of the inputs of each call."""
    found = with_usual_zeros(model(*calls)).counts
    return [tuple(one.zeros_ratio for one in count.statistics[0]) for count in found]


def model(*calls: OperatorCount, device_type: str = META) -> OperatorCounts:
    whole = OperatorTuple("torchvision.models.vgg11", (), (TensorSpec(SHAPE, "float32"),))
    return OperatorCounts(whole, calls, 0, 0, 0, "2.0", device_type)


def test_a_convolution_behind_relu_has_half_zeros_and_others_have_none() -> None:
    assert shares(call("Conv2d", 0), call("ReLU", 1), call("Conv2d", 2), call("Conv2d", 3)) == [
        (0.0,), (0.0,), (0.5,), (0.0,),
    ]  # fmt: skip


def test_calls_count_in_their_order_in_the_run() -> None:
    assert shares(call("Conv2d", 2), call("ReLU", 1), call("Conv2d", 0)) == [(0.5,), (0.0,), (0.0,)]


def test_pooling_leaves_fewer_zeros_and_copies_keep_them() -> None:
    found = shares(
        call("ReLU", 0), call("MaxPool2d", 1, returns=HALF), call("Dropout", 2, HALF, returns=HALF),
        call("Conv2d", 3, HALF, returns=HALF),
    )  # fmt: skip
    assert found == [(0.0,), (0.5,), (0.35,), (0.35,)]


def test_a_residual_block_begins_with_a_rectified_sum() -> None:
    found = shares(
        call("add_", 0, SHAPE, SHAPE), call("ReLU", 1), call("Conv2d", 2), call("ReLU", 3), call("Conv2d", 4),
        call("add_", 5, SHAPE, SHAPE),
    )  # fmt: skip
    assert found == [(0.0, 0.0), (0.0,), (0.35,), (0.0,), (0.5,), (0.0, 0.35)]


def test_joined_tensors_have_the_mean_share_and_a_gate_keeps_zeros() -> None:
    small = (2, 8, 6, 2)
    joined = call("cat", 2, SHAPE, small, returns=(2, 8, 6, 8))
    found = shares(
        call("ReLU", 0), call("Conv2d", 1, returns=small), joined, call("Conv2d", 3, (2, 8, 6, 8)),
        call("ReLU", 4), call("mul", 5, small, SHAPE), call("Conv2d", 6),
    )  # fmt: skip
    assert found[2] == (0.5, 0.0)
    assert found[3] == (0.375,)
    assert found[6] == (0.5,)


def test_means_of_many_values_are_no_zeros() -> None:
    assert shares(call("ReLU", 0), call("AdaptiveAvgPool2d", 1, returns=HALF), call("Conv2d", 2, HALF))[2] == (0.0,)
    assert shares(call("ReLU", 0), call("AdaptiveAvgPool2d", 1), call("Conv2d", 2))[2] == (0.5,)


def test_values_that_are_known_and_calls_without_places_stay_as_they_are() -> None:
    calls = (call("ReLU", 0), call("Conv2d", 1))
    on_cpu = model(*calls, device_type="cpu")
    assert with_usual_zeros(on_cpu) is on_cpu
    without = model(*(replace(one, positions=()) for one in calls))
    assert with_usual_zeros(without) is without
    seen = ((InputStatistics(0.9, 1.0, 1.0),),)
    of_a_grid = model(*(replace(one, statistics=seen) for one in calls))
    assert with_usual_zeros(of_a_grid) is of_a_grid


def test_the_kind_of_values_follows_from_the_share() -> None:
    (_, second) = with_usual_zeros(model(call("ReLU", 0), call("Conv2d", 1))).counts
    assert [str(data) for data in second.captured_data] == ["captured: 0.5 zeros"]


@given(st.lists(st.sampled_from(["ReLU", "add", "mul", "cat", "MaxPool2d", "Dropout", "Conv2d"]), max_size=12))
def test_shares_are_shares(names: list[str]) -> None:
    calls = [call(name, place, SHAPE, SHAPE) for place, name in enumerate(names)]
    assert all(0.0 <= share <= 1.0 for own in shares(*calls) for share in own if share is not None)


def test_each_rule_says_where_it_is_from() -> None:
    assert all(rule.source and 0.0 < rule.ratio <= 1.0 for rule in RULES)
    assert {rule.effect for rule in RULES} == set(Effect)
