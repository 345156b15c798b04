"""Marks of layers: what they count as whose, that nothing of them stays on the model, and that no mark waits."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from opcost import UserError
from opcost.metering.layers import NO_LAYER
from opcost.running.layer_loop import LayerLoop
from opcost.torch_backend.layer_marks import (
    EventStopwatch,
    HostStopwatch,
    LayerMarks,
    MarkedIteration,
    refuse_unobservable,
    stopwatch_of,
)
from opcost.torch_backend.ready_model import ObservedForward
from tests.small_model import SmallModel


def run_block(self: Any, x: Tensor) -> dict[str, Any]:
    found = self.conv(self.conv(x))
    found += x
    found = self.relu(found)
    return {"out": found, "none": None, "pair": (found, 1)}


class Net(nn.Module):
    def __init__(self, checkpointed: bool | None = None) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.block = SmallModel(
            run_block, conv=nn.Conv2d(4, 4, 3, padding=1), relu=nn.ReLU(inplace=True), unused=nn.Linear(3, 3)
        )
        self.head = nn.Linear(4, 2)
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        found = (
            self.block(x)["out"]
            if self.checkpointed is None
            else checkpoint(lambda y: self.block(y)["out"], x, use_reentrant=self.checkpointed)
        )
        return self.head(found.mean((2, 3)))


def net(checkpointed: bool | None = None) -> Net:
    torch.manual_seed(0)
    return Net(checkpointed)


def marked(model: nn.Module, run: Callable[[], object], describes: bool = False) -> tuple[LayerMarks, MarkedIteration]:
    """Return the marks of one iteration."""
    watch = HostStopwatch()
    marks = LayerMarks(model, watch)
    root = ObservedForward(model, marks.around_model)
    root.install()
    marks.open(watch.mark(), describes)
    try:
        run()
    finally:
        root.remove()
        iteration = marks.close(watch.mark())
    return marks, iteration


def owners(marks: LayerMarks, iteration: MarkedIteration) -> list[str]:
    """Return the owner of each span in words, without repetitions."""
    words = ["none" if slot == NO_LAYER else f"{marks.paths[slot // 2]} {'fb'[slot % 2]}" for slot in iteration.slots]
    return [word for index, word in enumerate(words) if index == 0 or word != words[index - 1]]


def train(model: nn.Module, inputs: Tensor) -> Callable[[], None]:
    return lambda: model(inputs).square().sum().backward()


INPUTS = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_each_span_has_the_owner_that_did_the_work() -> None:
    model = net()
    marks, iteration = marked(model, train(model, INPUTS))
    forward = ["none", " f", "stem f", "stem.0 f", "stem f", "stem.1 f", "stem f", " f"]
    forward += ["block f", "block.conv f", "block f", "block.conv f", "block f", "block.relu f", "block f"]
    forward += [" f", "head f", " f", "none"]
    backward = ["head b", " b", "block.relu b", "block b", "block.conv b", "stem.1 b", "stem.0 b", "none"]
    assert owners(marks, iteration) == forward + backward
    assert iteration.is_whole
    assert dict(zip(marks.paths, iteration.calls, strict=True))["block.conv"] == 2
    spans = iteration.spans()
    assert sum(spans.times_s) == pytest.approx(iteration.moments[-1] - iteration.moments[0])
    assert 0 < spans.own_s.sum() < sum(spans.times_s)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_that_runs_again_counts_as_backward(reentrant: bool) -> None:
    model = net(reentrant)
    marks, iteration = marked(model, train(model, INPUTS))
    found = Counter(owners(marks, iteration))
    assert found["block.conv f"] == 2
    assert found["block.conv b"] >= 2
    assert iteration.is_whole
    assert dict(zip(marks.paths, iteration.calls, strict=True))["block.conv"] == 2
    assert owners(marks, iteration)[-1] == "none"


class _First(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)[0]
        return found


CASES: dict[str, tuple[Callable[[], nn.Module], Tensor, bool]] = {
    "in place": (net, INPUTS, False),
    "autocast": (net, INPUTS, True),
    "reentrant": (lambda: net(True), INPUTS, False),
    "not reentrant": (lambda: net(False), INPUTS, True),
    "resnet18": (torchvision.models.resnet18, torch.randn(2, 3, 32, 32), False),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8), True),
    "gru": (lambda: _First(nn.GRU(8, 4)), torch.randn(5, 2, 8), False),
    "lstm": (lambda: _First(nn.LSTM(8, 4)), torch.randn(2, 5, 8), False),
}


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_the_same_bit_for_bit(name: str) -> None:
    build, inputs, autocast = CASES[name]
    torch.manual_seed(0)
    model = build()
    other = copy.deepcopy(model)
    found = []
    for one in (model, other):

        def run(one: nn.Module = one) -> None:
            torch.manual_seed(3)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                output = one(inputs)
            output.float().square().sum().backward()
            found.append((output, [weight.grad for weight in one.parameters()], list(one.buffers())))

        if one is model:
            attributes = [dict(vars(part)) for part in model.modules()]
            _, iteration = marked(model, run, describes=True)
            assert iteration.is_whole
            assert [dict(vars(part)) for part in model.modules()] == attributes
        else:
            run()
    (output, gradients, buffers), (plain_output, plain_gradients, plain_buffers) = found
    assert torch.equal(output, plain_output)
    assert all(
        (one is None and plain is None) or torch.equal(one, plain)
        for one, plain in zip(gradients, plain_gradients, strict=True)
    )
    assert all(torch.equal(one, plain) for one, plain in zip(buffers, plain_buffers, strict=True))


def test_the_native_path_of_a_transformer_stays_one_layer() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

    def run() -> None:
        with torch.inference_mode():
            model(torch.randn(2, 5, 8))

    marks, iteration = marked(model, run)
    assert owners(marks, iteration) == ["none", " f", "none"]


def test_a_recurrent_layer_whose_hidden_state_is_unused_has_its_backward() -> None:
    model = nn.Sequential(_First(nn.GRU(8, 4)), nn.Linear(4, 2))
    marks, iteration = marked(model, lambda: model(torch.randn(5, 2, 8)).sum().backward())
    found = owners(marks, iteration)
    assert found[found.index("1 b") :] == ["1 b", "0.inner b", "none"]


def test_operator_tuples_are_noted_once_a_call_without_those_of_composites_that_call_their_children() -> None:
    model = net().eval()
    marks, _ = marked(model, lambda: model(INPUTS), describes=True)
    calls = {marks.paths[slot // 2]: sum(found.values()) for slot, found in marks.calls_of_tuples.items()}
    assert calls == {"stem.0": 1, "stem.1": 1, "block.conv": 2, "block.relu": 1, "head": 1}
    assert marks.autocasts == {(None, None)}
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    marks, _ = marked(model, lambda: model(torch.randn(2, 5, 8)), describes=True)
    assert "" not in {marks.paths[slot // 2] for slot in marks.calls_of_tuples}


def test_a_copy_and_a_pickle_of_an_observed_model_are_models_of_their_own() -> None:
    model = net()
    copies: list[Any] = []

    def run() -> None:
        copies.extend([copy.deepcopy(model), pickle.loads(pickle.dumps(model))])

    marked(model, run)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    for one in copies:
        assert one(INPUTS).abs().sum() > 0
        assert one.block.conv.forward.__self__ is one.block.conv


def test_a_failed_backward_is_noticed_and_hooks_of_an_ended_iteration_do_nothing() -> None:
    model = net()
    kept: list[Tensor] = []

    def fail() -> None:
        output = model(INPUTS)
        kept.append(output)
        model.stem[0].weight.register_hook(lambda _: 1 / 0)
        output.sum().backward(retain_graph=True)

    watch = HostStopwatch()
    marks = LayerMarks(model, watch)
    marks.open(watch.mark())
    with pytest.raises(ZeroDivisionError):
        fail()
    iteration = marks.close(watch.mark())
    assert not iteration.is_whole
    number = len(iteration.moments)
    with pytest.raises(ZeroDivisionError):
        kept[0].sum().backward()
    assert len(iteration.moments) == number


def test_gradients_inside_of_a_forward_belong_to_its_layers() -> None:
    def run_forces(self: Any, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (forces,) = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
        return forces

    model = SmallModel(run_forces, energy=nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    marks, iteration = marked(model, lambda: model(torch.randn(2, 3)))
    found = owners(marks, iteration)
    assert {"energy.0 b", "energy.1 b", "energy.2 b"} <= set(found)
    assert found[-2:] == [" f", "none"]
    assert iteration.is_whole


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.jit.script(nn.Linear(2, 2))


def test_compiled_scripted_and_copied_models_are_refused_at_once() -> None:
    compiled = nn.Sequential(nn.Linear(2, 2))
    compiled[0].compile()
    refused = {
        "is compiled": [torch.compile(nn.Linear(2, 2)), compiled],
        "'inner' is scripted": [Scripted()],
        "DataParallel": [nn.DataParallel(nn.Linear(2, 2))],
    }
    for words, models in refused.items():
        for model in models:
            with pytest.raises(UserError, match=words):
                refuse_unobservable(model)
    refuse_unobservable(net())


class FakeGpu:
    """A device that is ``behind`` events behind the host."""

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.recorded = 0
        self.made = 0

    def event(self, enable_timing: bool) -> FakeEvent:
        assert enable_timing
        self.made += 1
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self.number = 0

    def record(self, stream: object) -> None:
        self._gpu.recorded += 1
        self.number = self._gpu.recorded

    def query(self) -> bool:
        return self.number <= self._gpu.recorded - self._gpu.behind

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.query()
        assert end.query(), "an event is read before it has occurred"
        return float(end.number - self.number)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu = FakeGpu(behind=50)
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return gpu


def test_marks_are_read_once_they_are_over(gpu: FakeGpu) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    loop = LayerLoop(model, EventStopwatch("cuda:0"))
    loop.open()
    for _ in range(200):
        model(torch.randn(1, 2)).sum().backward()
    loop.close()
    assert loop.times.marked < loop.iterations == 200
    gpu.behind = 0
    loop.read()
    assert loop.times.marked >= 3
    # Each mark is 1 ms after the one before it.
    assert loop.times.time_s(0) is not None
    assert loop.times.standard_error_s(2) == pytest.approx(0.0, abs=1e-9)
    assert gpu.made < gpu.recorded / 2


def test_nothing_is_marked_while_a_graph_is_captured(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    model = nn.Sequential(nn.Linear(2, 2))
    loop = LayerLoop(model, EventStopwatch("cuda:0"))
    loop.open()
    model(torch.randn(1, 2))
    loop.close()
    assert (loop.iterations, gpu.recorded) == (0, 0)


def test_an_iteration_before_a_capture_marks_nothing_in_it(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    loop = LayerLoop(model, EventStopwatch("cuda:0"))
    loop.open()
    warm_up = model(torch.randn(1, 2)).sum()
    recorded = gpu.recorded
    assert recorded > 1
    with monkeypatch.context() as captured:
        captured.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        model(torch.randn(1, 2)).sum().backward()
        warm_up.backward()
    assert gpu.recorded == recorded
    loop.close()
    assert loop.iterations == 1


def test_each_device_has_its_stopwatch_on_which_time_is_never_negative(gpu: FakeGpu) -> None:
    assert isinstance(stopwatch_of("cpu"), HostStopwatch)
    assert isinstance(stopwatch_of("cuda:1"), EventStopwatch)
    watch: Any = EventStopwatch("cuda:0")
    gpu.behind = 0
    first, second = watch.mark(), watch.mark()
    assert watch.elapsed_s(first, second) == pytest.approx(1e-3)
    assert watch.elapsed_s(second, first) == 0.0
