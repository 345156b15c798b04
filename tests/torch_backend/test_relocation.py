"""The cache at repeated calls: which copies run in which order, and that each does what the operator does."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from opcost.errors import UserError
from opcost.measuring.conditions import COLD, WARM
from opcost.measuring.flags import Flag
from opcost.measuring.setting import Setting
from opcost.measuring.workload import Calls
from opcost.operators.counts import Case
from opcost.operators.tuples import TORCHVISION_MODELS, OperatorTuple, TensorSpec
from opcost.running.apparatus import open_apparatus
from opcost.storage.database import Database
from opcost.torch_backend.cost_counter import tensors_of
from opcost.torch_backend.operators import module_tuple
from opcost.torch_backend.repeated_calls import (
    ELSEWHERE,
    IN_PLACE_AS_WARM,
    MAXIMUM_COPIES,
    NO_WEIGHTS,
    DeviceMemory,
    Layer,
    copies_beyond,
    repeated,
)
from opcost.torch_backend.workload import EagerWorkload, operator_workload

WEIGHTS_BYTES = 4 * (5 * 5 + 5)
"""Those of ``linear()``."""

FREE = 10**9
X = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))


class Recorded(nn.Linear):
    """Notes which module was called, by the place of its weights in memory, and on what."""

    calls: list[tuple[int, torch.Tensor]]

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        Recorded.calls.append((self.weight.data_ptr(), input))
        return super().forward(input)


@pytest.fixture(autouse=True)
def calls() -> list[tuple[int, torch.Tensor]]:
    Recorded.calls = []
    return Recorded.calls


def linear() -> nn.Linear:
    return Recorded(5, 5).eval()


def made(function: Callable[..., object], cache: str, *args: object, cache_bytes: int = 100, **kwargs: object) -> Calls:
    """Return calls of a function on some arguments, next to a cache of declared size."""
    made_calls = repeated(Layer(function, args, kwargs), cache, lambda: DeviceMemory(cache_bytes, FREE))
    if isinstance(function, Recorded):
        # A look at what is called has called it.
        Recorded.calls.clear()
    return made_calls


def run(made_calls: Calls) -> Any:
    with torch.inference_mode():
        return made_calls.cycle()


# Warm


def test_warm_is_one_call_on_one_set_of_weights(calls: list[tuple[int, torch.Tensor]]) -> None:
    warm = made(linear(), WARM, X)
    run(warm)
    run(warm)
    assert (warm.period, warm.notes, warm.overhead) == (1, "", None)
    assert len({place for place, _ in calls}) == 1


def test_a_layer_in_other_memory_is_the_same_layer() -> None:
    shared = torch.randn(4, 6).t()
    gaps = torch.randn(4, 12)[:, 1:8:2]
    layer = Layer(nn.Linear(5, 5), (shared, [gaps, shared[1:]], 3), {"keyword": shared.expand(2, 6, 4)})
    moved = layer.relocated()
    before, after = tensors_of((layer.args, layer.kwargs)), tensors_of((moved.args, moved.kwargs))
    assert [(tensor.shape, tensor.stride(), tensor.storage_offset()) for tensor in before] == [
        (tensor.shape, tensor.stride(), tensor.storage_offset()) for tensor in after
    ]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    places = [[tensor.untyped_storage().data_ptr() for tensor in tensors] for tensors in (before, after)]
    assert not set(places[0]) & set(places[1])
    assert [places[0].index(place) for place in places[0]] == [places[1].index(place) for place in places[1]]
    assert {tensor.data_ptr() for tensor in layer.weights}.isdisjoint(tensor.data_ptr() for tensor in moved.weights)
    assert torch.equal(layer.weights[0], moved.weights[0])
    assert moved.args[2] == 3


def test_a_relocated_call_reads_other_memory_than_the_first_and_than_any_other(
    calls: list[tuple[int, torch.Tensor]],
) -> None:
    warm = made(linear(), WARM, X)
    assert warm.relocated is not None
    # Kept while all are compared: memory that is given back is used again.
    cycles = [warm.cycle, *(warm.relocated() for _ in range(3))]
    calls.clear()
    with torch.inference_mode():
        outputs = [cycle() for cycle in cycles]
    assert len({place for place, _ in calls}) == 4
    assert len({value.data_ptr() for _, value in calls}) == 4
    assert all(torch.equal(output, outputs[0]) for output in outputs)  # type: ignore[arg-type]


def test_cold_calls_can_be_relocated_and_compute_the_same_there(calls: list[tuple[int, torch.Tensor]]) -> None:
    first = made(linear(), COLD, X)
    assert first.relocated is not None
    other = first.relocated()
    calls.clear()
    with torch.inference_mode():
        outputs = [cycle() for cycle in (first.cycle, other)]
    assert torch.equal(outputs[0], outputs[1])  # type: ignore[arg-type]
    places = [place for place, _ in calls]
    assert len(set(places)) == len(places) == 2 * first.period


def test_what_runs_as_warm_runs_in_several_places_and_what_is_behind_an_eviction_does_not() -> None:
    as_warm = [made(nn.ReLU(), COLD, X), made(nn.ReLU(inplace=True), COLD, X)]
    assert all(each.relocated is not None for each in as_warm)
    assert made(linear(), COLD, X, cache_bytes=MAXIMUM_COPIES * WEIGHTS_BYTES).relocated is None


@pytest.mark.parametrize("function", [torch.relu, torch.Tensor.add, F.relu, torch.ops.aten.relu, nn.ReLU(inplace=True)])
def test_functions_of_all_kinds_run_elsewhere(function: Callable[..., object]) -> None:
    args = (X, X) if function is torch.Tensor.add else (X,)
    relocated = made(function, WARM, *args).relocated
    assert relocated is not None
    with torch.inference_mode():
        assert torch.equal(relocated()(), function(*(each.clone() for each in args)))  # type: ignore[arg-type]


# Cold


def test_cold_calls_go_through_copies_in_turn_on_the_same_input(calls: list[tuple[int, torch.Tensor]]) -> None:
    cold = made(linear(), COLD, X, cache_bytes=WEIGHTS_BYTES)
    run(cold)
    run(cold)
    assert (cold.period, cold.notes, cold.overhead) == (3, "", None)
    first, second = calls[:3], calls[3:]
    assert len({place for place, _ in first}) == 3
    assert [place for place, _ in first] == [place for place, _ in second]
    assert all(value is X for _, value in calls)


def test_copies_compute_the_same_and_have_layouts_and_buffers_as_the_operator() -> None:
    module = linear()
    assert torch.equal(run(made(module, COLD, X, cache_bytes=5 * WEIGHTS_BYTES)), module(X))
    module = nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)
    copied = Layer(module, (), {}).copied().weights[0]
    assert copied.is_contiguous(memory_format=torch.channels_last)
    assert copied.data_ptr() != module.weight.data_ptr()
    norm = nn.BatchNorm2d(8).eval()
    cold = made(norm, COLD, torch.randn(2, 8, 3, 3), cache_bytes=100)
    # Scale, offset, mean and variance of 32 bytes each, and a counter of 8: two are beyond 200 bytes.
    assert cold.period == 2


def test_the_weights_among_a_functions_inputs_are_copied() -> None:
    weight, bias = torch.randn(7, 5), torch.randn(7)
    layer = Layer(F.linear, (X, weight, bias), {})
    copied = layer.copied()
    assert len({each.weights[0].data_ptr() for each in (layer, copied)}) == 2
    assert copied.args[0] is X
    assert copied.args[2] is bias
    added = Layer(torch.addmm, (bias, X, weight.T), {})
    assert [tensor is weight.T or torch.equal(tensor, weight.T) for tensor in added.weights] == [True]
    assert added.copied().args[:2] == (bias, X)
    assert torch.equal(added.copied().call(), added.call())
    cold = made(F.linear, COLD, X, weight, bias, cache_bytes=weight.nbytes)
    assert cold.period == 3
    assert torch.equal(run(cold), F.linear(X, weight, bias))


@pytest.mark.parametrize(
    ("function", "args"),
    [(nn.ReLU(), (X,)), (nn.MaxPool1d(3), (X,)), (torch.add, (X, X)), (torch.ops.aten.relu, (X,))],
    ids=["ReLU", "MaxPool1d", "add", "aten.relu"],
)
def test_without_weights_there_is_nothing_to_be_cold(function: Callable[..., object], args: tuple[object, ...]) -> None:
    cold = made(function, COLD, *args)
    assert (cold.period, cold.notes, cold.overhead) == (1, NO_WEIGHTS, None)


def test_small_weights_are_evicted_before_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    cache_bytes = MAXIMUM_COPIES * WEIGHTS_BYTES
    module = linear()
    cold = made(module, COLD, X, cache_bytes=cache_bytes)
    events: list[int | str] = []
    monkeypatch.setattr(torch, "sum", lambda tensor: events.append(tensor.nbytes))
    module.register_forward_hook(lambda *_: events.append("called"))
    result = run(cold)
    assert events == [2 * cache_bytes, X.nbytes, "called"]
    assert cold.overhead is not None
    cold.overhead()
    assert events[3:] == [2 * cache_bytes, X.nbytes]
    assert torch.equal(result, module(X))
    assert (cold.period, cold.notes) == (1, "an eviction of 0.1229 MB before each call subtracted")


sizes = st.integers(1, 10**9)


@given(sizes, sizes, sizes)
def test_copies_are_the_fewest_beyond_twice_the_cache(cache_bytes: int, weights_bytes: int, total_bytes: int) -> None:
    copies = copies_beyond(DeviceMemory(cache_bytes, total_bytes), weights_bytes)
    if copies is None:
        is_too_many = MAXIMUM_COPIES * weights_bytes <= 2 * cache_bytes
        needed = max(2 * cache_bytes // weights_bytes + 1, 2)
        assert is_too_many or 4 * needed * weights_bytes > total_bytes
    else:
        assert 2 <= copies <= MAXIMUM_COPIES
        assert copies * weights_bytes > 2 * cache_bytes
        assert copies == 2 or (copies - 1) * weights_bytes <= 2 * cache_bytes
        assert 4 * copies * weights_bytes <= total_bytes


@pytest.mark.parametrize(
    ("cache_bytes", "weights_bytes", "total_bytes", "copies"),
    [
        (50, 1000, FREE, 2),
        (50, 100, FREE, 2),
        (50, 99, FREE, 2),
        (50, 50, FREE, 3),
        (511, 2, FREE, 512),
        (512, 2, FREE, None),
        (50, 1000, 8000, 2),
        (50, 1000, 7999, None),
    ],
)
def test_copies_are_capped_in_number_and_memory(
    cache_bytes: int, weights_bytes: int, total_bytes: int, copies: int | None
) -> None:
    assert copies_beyond(DeviceMemory(cache_bytes, total_bytes), weights_bytes) == copies


# Any mode


def test_in_place_operators_run_as_warm_and_flags_say_so() -> None:
    in_place = made(nn.ReLU(inplace=True), COLD, X)
    assert (in_place.period, in_place.notes) == (1, f"{ELSEWHERE}; {IN_PLACE_AS_WARM}")
    assert torch.equal(run(in_place), X.relu())
    assert (X < 0).any()
    ran = [made(nn.ReLU(), COLD, X), made(nn.Linear(5, 4), COLD, X)]
    assert [Flag.RAN_WARM in each.flags for each in ran] == [True, False]


def test_a_workload_counts_single_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = module_tuple(nn.Linear(5, 5).eval(), (X,), {})
    monkeypatch.setattr("opcost.torch_backend.workload.device_memory", lambda _: DeviceMemory(100, FREE))
    numbers = {cache: operator_workload(operator, "cpu", cache=cache).iterations_per_round for cache in (WARM, COLD)}
    assert numbers == {WARM: 1, COLD: 2}


def test_a_workload_carries_its_eviction(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = module_tuple(nn.Linear(5, 5).eval(), (X,), {})
    monkeypatch.setattr("opcost.torch_backend.workload.device_memory", lambda _: DeviceMemory(10**6, FREE))
    workload = operator_workload(operator, "cpu", cache=COLD)
    assert workload.notes == "an eviction of 2.000 MB before each call subtracted"
    assert isinstance(workload.overhead, EagerWorkload)
    assert workload.overhead.overhead is None
    assert workload.overhead.run(3) == 3


def test_the_sizes_of_a_gpu_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = SimpleNamespace(L2_cache_size=WEIGHTS_BYTES, total_memory=FREE)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: sizes)
    operator = module_tuple(nn.Linear(5, 5).eval(), (X,), {})
    assert operator_workload(operator, "cpu", cache=COLD).iterations_per_round == 3


# The apparatus


def test_a_cold_cache_on_a_cpu_is_a_users_error(tmp_path: Path) -> None:
    remedy = "use --cache warm or --device cuda"
    with (
        open_apparatus("cpu", Database(tmp_path), with_meter=False) as apparatus,
        pytest.raises(UserError, match=remedy) as caught,
    ):
        apparatus.conditions(Setting(cache=COLD))
    assert len(caught.value.lines) == 1


def test_whole_models_run_as_they_are(tmp_path: Path) -> None:
    model = OperatorTuple(f"{TORCHVISION_MODELS}squeezenet1_1", (), (TensorSpec((1, 3, 32, 32), "float32"),))
    with (
        open_apparatus("cpu", Database(tmp_path), with_meter=False) as apparatus,
        apparatus.workload(Case(model), Setting(cache=COLD)) as whole,
    ):
        assert (whole.iterations_per_round, whole.notes) == (1, "")
