"""The stopwatch of GPUs on events that play CUDA's: nothing waits, and used events are used again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from opcost.running.layer_loop import LayerLoop
from opcost.torch_backend.layer_marks import EventStopwatch, HostStopwatch, stopwatch_of


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


def test_each_device_has_its_stopwatch() -> None:
    assert isinstance(stopwatch_of("cpu"), HostStopwatch)
    assert isinstance(stopwatch_of("cuda:1"), EventStopwatch)


def test_time_is_never_negative(gpu: FakeGpu) -> None:
    watch: Any = EventStopwatch("cuda:0")
    gpu.behind = 0
    first, second = watch.mark(), watch.mark()
    assert watch.elapsed_s(first, second) == pytest.approx(1e-3)
    assert watch.elapsed_s(second, first) == 0.0
