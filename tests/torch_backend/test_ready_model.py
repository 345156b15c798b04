"""Example inputs become the arguments of a run by one rule, and a user's model is given back as it was."""

import queue
import threading
import time
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opcost.operators.tuples import OperatorTuple
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.ready_model import ReadyModel, borrowed, device_of
from opcost.torch_backend.training_step import as_step
from tests.small_model import SmallModel

X, Y = torch.ones(2, 3), torch.zeros(4)
Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    ("examples", "positional", "keyword"),
    [
        (X, (X,), {}),
        ((X, 2), (X, 2), {}),
        ([X, 2], (X, 2), {}),
        (Pair(X, Y), (Pair(X, Y),), {}),
        (([X, Y],), ([X, Y],), {}),
        ((), (), {}),
        ({"x": X, "scale": 2.0}, (), {"x": X, "scale": 2.0}),
        (OrderedDict(x=X), (), {"x": X}),
        (UserDict(x=X), (), {"x": X}),
        ({0: X}, ({0: X},), {}),
        (({"x": X},), ({"x": X},), {}),
    ],
)
def test_examples_are_arguments(examples: Any, positional: tuple[Any, ...], keyword: dict[str, Any]) -> None:
    ready = ReadyModel.of(nn.Identity(), examples)
    assert type(ready.keyword_inputs) is dict
    assert str((ready.inputs, ready.keyword_inputs)) == str((positional, keyword))


def test_the_encoding_of_a_tokenizer_has_arguments_by_keyword() -> None:
    encoding = pytest.importorskip("transformers").BatchEncoding({"input_ids": X, "attention_mask": X})
    ready = ReadyModel.of(nn.Identity(), encoding)
    assert list(ready.keyword_inputs) == ["input_ids", "attention_mask"]
    assert ready.tensors == [X, X]


def test_a_tensor_that_is_there_twice_stays_one() -> None:
    ready = ReadyModel.of(nn.Identity(), ([X, X], {"more": Y}, 3)).with_tensors(torch.clone)
    (first, second), more, number = ready.inputs
    assert first is second
    assert first is not X
    assert (more["more"].shape, number) == (Y.shape, 3)


def run_forces(self: Any, positions: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        positions = positions.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.energy(positions).sum(), positions)
    return -gradient


def test_a_model_that_computes_gradients_runs_outside_of_inference_mode() -> None:
    ready = run_first(ReadyModel(SmallModel(run_forces, energy=nn.Linear(3, 1)), (X,)))
    assert ready.computes_gradients
    with torch.inference_mode():
        assert torch.equal(ready.run(), -ready.model.energy.weight.expand(2, 3))
    counts = capture(ready, OperatorTuple("test.forces"))
    names = [count.operator.short_name for count in counts.counts]
    assert names == ["Linear", "sum", "ones_like", "mm", "neg"]
    # The gradient is one product of the output's with the weights.
    assert [count.flop for count in counts.counts] == [2 * 2 * 3, 0, 0, 2 * 2 * 3, 0]
    assert (counts.flop, counts.outside) == (counts.total_flop, ())


def test_other_models_run_in_inference_mode() -> None:
    def asking(self: Any, x: torch.Tensor) -> torch.Tensor:
        assert torch.is_inference_mode_enabled()
        return x

    assert not run_first(ReadyModel(SmallModel(asking), (X,))).computes_gradients


def test_an_error_in_both_ways_of_running_is_that_in_inference_mode() -> None:
    def failing(self: Any, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("inference" if torch.is_inference_mode_enabled() else "gradients")

    with pytest.raises(RuntimeError, match="inference"):
        run_first(ReadyModel(SmallModel(failing), (X,)))


class Counter(nn.Module):
    """Changes a buffer in place, replaces another, and takes a keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.tied = self.layer
        self.normal = nn.BatchNorm1d(3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        self.calls += 1
        self.last = x.sum(0)
        found: Tensor = self.normal(self.layer(x)) * scale
        return found


def prepared() -> Counter:
    model = Counter().train()
    model.normal.eval()
    model.layer.bias.requires_grad_(False)
    model(torch.ones(2, 3)).sum().backward()
    model.layer.register_forward_hook(lambda *_: None)
    return model


def state(model: nn.Module) -> dict[str, Any]:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "modes": [module.training for module in model.modules()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
        "forwards": ["forward" in vars(module) for module in model.modules()],
        "ids": {name: (id(tensor), tensor.data_ptr()) for name, tensor in tensors.items()},
        "values": {name: tensor.detach().clone().tolist() for name, tensor in tensors.items()},
        "gradients": {
            name: (weight.requires_grad, None if weight.grad is None else (id(weight.grad), weight.grad.tolist()))
            for name, weight in model.named_parameters()
        },
        "devices": {name: str(tensor.device) for name, tensor in tensors.items()},
    }


def run(ready: ReadyModel) -> None:
    with torch.inference_mode():
        ready.run()


def run_and_fail(ready: ReadyModel) -> None:
    run(ready)
    raise KeyboardInterrupt


def freeze(ready: ReadyModel) -> None:
    ready.model.requires_grad_(False)
    ready.model.zero_grad()
    ready.model.train()


@pytest.mark.parametrize("act", [run, run_and_fail, freeze], ids=lambda act: act.__name__)
@pytest.mark.parametrize("device", [None, "cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_all_is_as_before(act: Callable[[ReadyModel], None], device: str | None) -> None:
    model = prepared()
    before = state(model)
    try:
        with borrowed(model, (torch.ones(2, 3),), device) as ready:
            assert not any(module.training for module in model.modules())
            act(ready)
    except KeyboardInterrupt:
        pass
    assert state(model) == before


@pytest.mark.parametrize(
    "inputs",
    [torch.ones(2, 3), (torch.ones(2, 3),), [torch.ones(2, 3)], UserDict(x=torch.ones(2, 3), scale=2.0)],
    ids=["one", "tuple", "list", "mapping"],
)
def test_arguments_are_passed_as_the_user_gave_them(inputs: Any) -> None:
    model = prepared().eval()
    scale = 2.0 if isinstance(inputs, UserDict) else 1.0
    with torch.inference_mode():
        wanted = model(torch.ones(2, 3), scale=scale)
    with borrowed(model, inputs) as ready, torch.inference_mode():
        assert torch.equal(ready.run(), wanted)


def test_a_model_comes_back_from_another_device() -> None:
    model = prepared()
    before = state(model)
    with borrowed(model, torch.ones(2, 3), "meta") as ready:
        assert {parameter.device.type for parameter in ready.model.parameters()} == {"meta"}
        assert ready.inputs[0].device.type == "meta"
    assert state(model) == before


def test_inputs_are_copies_and_the_same_tensor_stays_the_same() -> None:
    x = torch.ones(2, 3)

    def two(self: Any, a: Tensor, b: Tensor) -> bool:
        a += 1
        return a is b

    with borrowed(SmallModel(two), (x, x)) as ready:
        assert ready.run()
    assert x.tolist() == torch.ones(2, 3).tolist()


def test_the_device_without_weights_is_that_of_the_inputs_among_which_is_a_tensor() -> None:
    assert device_of(ReadyModel.of(nn.ReLU(), torch.ones(2))) == "cpu"
    assert device_of(ReadyModel.of(nn.Linear(2, 2, device="meta"), torch.ones(2))) == "meta"
    with pytest.raises(ValueError, match="no tensor"), borrowed(nn.ReLU(), (1, 2)):
        pass


def holding(self: Any, x: Tensor) -> Tensor:
    self.calls += 1
    self.seen.append(2)
    self.cache += 1
    self.register_buffer("added", torch.ones(1))
    self.extra = nn.ReLU()
    return self.layer(x)


def test_attributes_containers_and_what_a_forward_adds_are_put_back() -> None:
    model = SmallModel(holding, layer=nn.Linear(3, 3), calls=0, seen=[1], cache=torch.zeros(2))
    cache, seen = model.cache, model.seen
    with borrowed(model, torch.ones(2, 3)) as ready:
        run(ready)
        assert (model.calls, hasattr(model, "added"), hasattr(model, "extra")) == (1, True, True)
    assert (model.calls, model.seen, model.cache.tolist()) == (0, [1], [0.0, 0.0])
    assert model.seen is seen
    assert model.cache is cache
    assert not hasattr(model, "added")
    assert not hasattr(model, "extra")


class Part(nn.Module):
    """Has a part that torch lets no one change, before another that it does."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part, self.layer = part, nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        found: Tensor = self.layer(self.part(x))
        return found


def overlapping() -> nn.Module:
    part = nn.BatchNorm1d(8)
    part.running_mean = torch.zeros(1).expand(8)
    return part


def made_in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return nn.Linear(8, 8)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.UninitializedParameter()

    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.jit.trace(nn.Linear(8, 8), torch.ones(2, 8)),
        lambda: torch.jit.script(nn.Linear(8, 8)),
        overlapping,
        made_in_inference_mode,
        Unused,
    ],
)
def test_what_cannot_be_changed_does_not_keep_the_rest_from_being_put_back(
    make: Callable[[], nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    model = Part(make()).train()
    with borrowed(model, torch.ones(2, 8)) as ready:
        run(ready)
        assert not model.layer.training
    assert (model.training, model.layer.training, model.calls.item()) == (True, True, 0)
    assert caplog.text == ""


def test_a_thread_that_began_to_wait_for_a_queue_is_woken_after_all_was_put_back() -> None:
    model = nn.Linear(8, 8)
    asked = model.asked = queue.Queue[int]()
    thread = threading.Thread(target=asked.get, daemon=True)
    with borrowed(model, torch.ones(2, 8)):
        thread.start()
        while not asked.not_empty._waiters:
            time.sleep(1e-3)
    asked.put(1)
    thread.join(10)
    assert not thread.is_alive()


def test_a_step_holds_inputs_weights_gradients_and_the_state_of_its_optimiser_before_it_begins() -> None:
    model = nn.Linear(8, 4)
    inputs = torch.randn(2, 8)
    assert {id(one) for one in ReadyModel(model, (inputs,)).held} == {id(inputs), *map(id, model.parameters())}
    ready = as_step(ReadyModel(model, (inputs,)), lambda outputs: outputs.sum(), partial(torch.optim.SGD, momentum=0.9))
    ready.run()
    held = {id(one): one for one in ready.held}
    parameters = list(model.parameters())
    buffers = [ready.model.optimizer.state[one]["momentum_buffer"] for one in parameters]
    assert held.keys() == {*map(id, (inputs, *parameters, *(one.grad for one in parameters), *buffers))}
