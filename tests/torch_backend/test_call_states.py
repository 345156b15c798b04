import pytest
import torch
from torch import nn

from opcost.errors import CannotMeasureError
from opcost.operators.reuse import CallState, Place
from opcost.torch_backend.call_states import Eviction, calls_in_state
from opcost.torch_backend.passes import running_calls
from opcost.torch_backend.repeated_calls import Layer, ObservingMode, storage_of

NEAR, HALF, FAR = Place
ONES = torch.ones(4)


class Noted:
    """An eviction that notes what is done in between."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def data(self) -> None:
        self.done.append("data")

    def code(self, dtype: torch.dtype) -> None:
        self.done.append(f"code besides {dtype}")


def work(layer: Layer, state: CallState, calls: int = 1) -> list[object]:
    """Return what happens in calls: evictions, and the storages that each operation writes in place."""
    evict = Noted()
    names = {storage_of(tensor): place for place, tensor in enumerate(layer.inputs)}
    cycle = calls_in_state(layer, state, evict).cycle  # type: ignore[arg-type]

    def run(operation):
        outputs = [operation.kwargs["out"]] if "out" in operation.kwargs else operation.written
        evict.done += [f"writes {names[storage_of(one)]}" for one in outputs] or [operation.name]
        return operation.run()

    with running_calls(), ObservingMode(run):
        for _ in range(calls):
            cycle()
    return evict.done


@pytest.mark.parametrize(
    ("state", "done"),
    [
        (CallState((NEAR, NEAR), False, NEAR), ["data", "writes 0", "writes 1", "add"]),
        (CallState((FAR, NEAR), False, FAR), ["data", "code besides torch.float32", "data", "writes 1", "add"]),
        (CallState((FAR, FAR), False, NEAR), ["data", "add"]),
        (CallState((HALF, FAR), False, NEAR), ["data", "writes 0", "add"]),
    ],
)
def test_near_inputs_are_written_behind_the_eviction(state, done):
    assert work(Layer(torch.add, (ONES.clone(), ONES.clone()), {}), state) == done


def test_code_that_shares_the_cache_with_data_comes_there_behind_the_eviction():
    evict, layer = Noted(), Layer(torch.neg, (ONES.clone(),), {})
    calls = calls_in_state(layer, CallState((FAR,), False, HALF), evict, lambda: evict.done.append("twin"))
    calls.cycle()
    assert evict.done == ["data", "twin", "code besides torch.float32"]


def test_under_autocast_the_operators_kernels_are_those_of_the_dtype_it_casts_to():
    layer, state = Layer(torch.neg, (ONES.clone(),), {}), CallState((FAR,), False, FAR)
    with torch.autocast("cpu", torch.bfloat16):
        assert work(layer, state) == ["data", "code besides torch.bfloat16", "data", "neg"]


def test_what_is_written_half_comes_from_other_memory():
    value, read = ONES.clone(), []
    for place in (NEAR, HALF):
        write = calls_in_state(Layer(torch.neg, (value,), {}), CallState((place,), False, NEAR), Noted()).overhead  # type: ignore[arg-type]
        with running_calls(), ObservingMode(lambda one: (read.append(storage_of(one.args[0])), one.run())[1]):
            write()
    assert [one == storage_of(value) for one in read] == [True, False]


def test_weights_of_a_module_are_near_or_far_together():
    layer = Layer(nn.Linear(4, 4), (ONES.clone(),), {})
    evict = Noted()
    for is_far, writes in ((True, 1), (False, 3)):
        calls = calls_in_state(layer, CallState((NEAR,), is_far, NEAR), evict)  # type: ignore[arg-type]
        seen = []
        with running_calls(), ObservingMode(lambda one, seen=seen: (seen.append(one.name), one.run())[1]):
            calls.overhead()
        assert seen == writes * ["add"]


def test_tensors_of_a_long_list_that_no_call_changes_are_written_in_their_own_place():
    tensors = [torch.full((3,), float(number)) for number in range(20)]
    state = CallState((NEAR,) * 12 + (HALF,) * 8, False, NEAR)
    calls = calls_in_state(Layer(torch._foreach_mul, (tensors, 2.0), {}), state, Noted())  # type: ignore[arg-type]
    seen: list[tuple[str, int]] = []
    with running_calls(), ObservingMode(lambda one: (seen.append((one.name, len(one.args[0]))), one.run())[1]):
        calls.overhead()
    assert seen == [("_foreach_add_", 12), ("_foreach_copy_", 8)]
    assert [one[0].item() for one in tensors] == [float(number) for number in range(20)]


def test_the_tensors_of_a_long_list_are_written_together_and_stay():
    tensors = [torch.full((3,), float(number)) for number in range(20)]
    layer = Layer(torch._foreach_mul_, (tensors, 2.0), {})
    for place in (NEAR, FAR):
        calls = calls_in_state(layer, CallState((place,) * 20, False, NEAR), Noted())  # type: ignore[arg-type]
        seen: list[str] = []
        with running_calls(), ObservingMode(lambda one, seen=seen: (seen.append(one.name), one.run())[1]):
            calls.cycle()
        assert seen == ["_foreach_copy_", "_foreach_mul_"]
        assert [one[0].item() for one in tensors] == [2.0 * number for number in range(20)]
        calls.overhead()
        assert [one[0].item() for one in tensors] == [float(number) for number in range(20)]


@pytest.mark.parametrize("is_far", [False, True])
def test_an_operation_in_place_finds_the_same_values_each_time(is_far):
    changed = ONES.clone()
    done = work(
        Layer(torch.Tensor.add_, (changed, 2.0), {}), CallState((FAR if is_far else NEAR,), False, NEAR), calls=3
    )
    assert changed.tolist() == 4 * [3.0]
    assert done == 3 * (["data", "writes 0", "data", "writes 0"] if is_far else ["data", "writes 0", "writes 0"])


def test_values_of_any_dtype_stay():
    values = [
        torch.tensor([1, 2, 3], dtype=torch.uint8),
        torch.tensor([True, False]),
        torch.tensor([0.5, -1.5]).bfloat16(),
    ]
    values.append(torch.randn(4, 6)[:, ::2])
    for value in values:
        expected = value.clone()
        work(Layer(torch.clone, (value,), {}), CallState((NEAR,), False, NEAR), calls=2)
        assert torch.equal(value, expected)


def test_a_state_of_other_inputs_is_refused():
    with pytest.raises(CannotMeasureError, match="2 inputs, not of 1"):
        work(Layer(torch.neg, (ONES,), {}), CallState((NEAR, FAR), False, NEAR))


def test_the_eviction_of_a_device_runs():
    evict = Eviction("cpu")
    with running_calls():
        evict.code(torch.float32)
        evict.data()
