"""Captures and the device's queue, on a simulated CUDA: what is captured how often, and what failures become."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from opcost.errors import CannotMeasureError
from opcost.measuring.flags import CASTING_DOUBT, Flag
from opcost.measuring.workload import Call, Calls
from opcost.torch_backend.cuda_graph import (
    LONGEST_RELOCATED_S,
    MAXIMUM_CALLS,
    PLACEMENTS,
    RAISE_ON_SYNCHRONISATION,
    REPLAY_PER_PLACEMENT_S,
    CaptureRefusal,
    GraphRecorder,
    capture_calls,
)
from opcost.torch_backend.workload import ELEMENTS, DeviceQueue, EagerWorkload, GraphWorkload, additions, as_graph

WAITS = RuntimeError("called a synchronizing CUDA operation")


@dataclass
class FakeCuda:
    """A device on which one call takes ``call_s``; it notes what is done to it."""

    call_s: float = 1e-5
    now_s: float = 0.0
    events: list[str] = field(default_factory=list)
    capturing: FakeGraph | None = None
    graphs: list[FakeGraph] = field(default_factory=list)
    end_fails: bool = False
    free_bytes: int = 90
    reserved_bytes: int = 10
    shortages: int = 0
    debug_mode: int = 0

    def call(self) -> None:
        if self.capturing is not None:
            self.capturing.calls += 1
        else:
            self.now_s += self.call_s

    def set_debug_mode(self, mode: int) -> None:
        self.debug_mode = mode
        self.events.append(f"debug {mode}")

    def wait(self) -> None:
        """Wait for the device outside an operation."""
        if self.debug_mode == RAISE_ON_SYNCHRONISATION:
            raise WAITS


class FakeGraph:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.calls = self.replays = 0
        cuda.graphs.append(self)

    def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
        self._cuda.capturing = self

    def capture_end(self) -> None:
        self._cuda.capturing = None
        self._cuda.events.append("end")
        if self._cuda.end_fails:
            raise RuntimeError("operation failed due to a previous error during capture\nmore")

    def replay(self) -> None:
        self.replays += 1
        self._cuda.now_s += self.calls * self._cuda.call_s


class FakeEvent:
    def __init__(self, cuda: FakeCuda, enable_timing: bool) -> None:
        self._cuda = cuda
        self._is_timed = enable_timing
        self.at_s = 0.0
        self.is_waited_for = False

    def record(self, stream: object) -> None:
        self.at_s = self._cuda.now_s

    def synchronize(self) -> None:
        self.is_waited_for = True

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self._is_timed
        assert end._is_timed
        return (end.at_s - self.at_s) * 1e3


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return played_cuda(monkeypatch)


def played_cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()

    @contextmanager
    def stream_context(_: object) -> Iterator[None]:
        yield

    stream = SimpleNamespace(wait_stream=lambda _: None, device="cuda:0", device_index=0)
    played: dict[str, Callable[..., Any]] = {
        "Stream": lambda _: stream,
        "is_current_stream_capturing": lambda: fake.capturing is not None,
        "stream": stream_context,
        "current_stream": lambda _: stream,
        "CUDAGraph": lambda: FakeGraph(fake),
        "Event": lambda enable_timing=False: FakeEvent(fake, enable_timing),
        "graph_pool_handle": lambda: (0, len(fake.graphs)),
        "get_sync_debug_mode": lambda: fake.debug_mode,
        "set_sync_debug_mode": fake.set_debug_mode,
        "synchronize": lambda *_: fake.events.append("synchronize"),
        "empty_cache": lambda: fake.events.append("empty_cache"),
        "mem_get_info": lambda _: (fake.free_bytes, 100),
        "memory_reserved": lambda _: fake.reserved_bytes,
        "memory_allocated": lambda _: 5,
        "memory_stats": lambda _: {"num_ooms": fake.shortages},
    }
    for name, value in played.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(
        torch._C, "_cuda_endAllocateToPool", lambda *_: fake.events.append("end allocating"), raising=False
    )
    return fake


@pytest.mark.parametrize(
    ("call_s", "calls", "graphs"),
    [(1e-5, 1000, 2), (2e-6, MAXIMUM_CALLS, 2), (1e-9, MAXIMUM_CALLS, 2), (0.003, 3, 2), (0.006, 1, 1), (0.5, 1, 1)],
)
def test_a_replay_lasts_ten_milliseconds_if_calls_are_short(
    cuda: FakeCuda, call_s: float, calls: int, graphs: int
) -> None:
    cuda.call_s = call_s
    captured = capture_calls(Calls(cuda.call), "cuda:0")
    assert captured.cycles == captured.graphs[0].calls == calls  # type: ignore[attr-defined]
    assert len(cuda.graphs) == graphs
    begin_s = cuda.now_s
    captured.replay(3)
    assert cuda.now_s - begin_s == pytest.approx(3 * calls * call_s)


@pytest.mark.parametrize(
    ("call_s", "period", "iterations"),
    [(1e-5, 8, 1000), (1e-5, 64, 1024), (1e-4, 64, 128), (1e-3, 64, 64), (1.0, 64, 64), (1e-9, 48, 85 * 48)],
)
def test_calls_that_differ_are_captured_as_whole_periods(
    cuda: FakeCuda, call_s: float, period: int, iterations: int
) -> None:
    cuda.call_s = period * call_s
    workload = as_graph(EagerWorkload(Calls(cuda.call, period), "cuda:0"))
    assert (workload.execution, workload.iterations_per_round) == ("graph", iterations)
    assert all(graph.calls * period <= max(MAXIMUM_CALLS, period) for graph in cuda.graphs)


def test_what_is_captured_does_not_notice_it(cuda: FakeCuda) -> None:
    captures: list[tuple[bool, bool]] = []

    def asking() -> None:
        captures.append((cuda.capturing is not None, torch.cuda.is_current_stream_capturing()))
        cuda.call()

    capture_calls(Calls(asking), "cuda:0")
    assert {is_capturing for is_capturing, _ in captures} == {False, True}
    assert not any(noticed for _, noticed in captures)
    cuda.capturing = cuda.graphs[0]
    assert torch.cuda.is_current_stream_capturing()


def test_many_calls_that_python_holds_up_are_probed_in_a_graph(cuda: FakeCuda) -> None:
    def held_up() -> None:
        cuda.now_s += 0.0 if cuda.capturing else 64 * 1e-4
        cuda.call()

    cuda.call_s = 64 * 1e-6
    assert capture_calls(Calls(held_up), "cuda:0").cycles == 1
    assert capture_calls(Calls(held_up, period=64), "cuda:0").cycles == MAXIMUM_CALLS // 64


@pytest.mark.parametrize(
    ("call_s", "period", "cycles", "placements"),
    [
        (1e-6, 1, 409, 10),
        (5e-6, 1, 400, 10),
        (5e-6, 2, 200, 10),
        (1e-4, 1, 20, 10),
        (4e-4, 1, 5, 10),
        (6e-4, 1, 17, 1),
        (6e-3, 1, 1, 1),
    ],
)
def test_short_calls_are_captured_in_several_placements(
    cuda: FakeCuda, call_s: float, period: int, cycles: int, placements: int
) -> None:
    cuda.call_s = period * call_s
    made: list[Call] = []

    def relocated() -> Call:
        made.append(lambda: cuda.call())  # noqa: PLW0108 (another one each time)
        return made[-1]

    captured = capture_calls(Calls(cuda.call, period, relocated=relocated), "cuda:0")
    assert (len(captured.graphs), captured.cycles) == (placements, cycles)
    # Each has been uploaded.
    assert {(graph.calls, graph.replays) for graph in captured.graphs} == {(cycles, 1)}  # type: ignore[union-attr]
    # The memory that each graph reads is kept with its calls.
    assert captured.kept == (cuda.call, *made)
    assert captured.notes == ""


def test_each_run_is_in_another_place_whose_first_replay_does_not_count(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed: list[FakeGraph] = []
    workload = as_graph(EagerWorkload(Calls(cuda.call, relocated=lambda: cuda.call), "cuda:0"))

    def replay(graph: FakeGraph) -> None:
        """A replay takes 2 ms, and where it follows another graph's 1 ms more."""
        cuda.now_s += 0.002 if replayed[-1:] == [graph] else 0.003
        replayed.append(graph)

    monkeypatch.setattr(FakeGraph, "replay", replay)
    assert [workload.run(rounds) for rounds in (1, *[2] * 9)] == [0, 1, *[2] * 8]
    assert workload.ended_s == pytest.approx(0.004)
    # Time in which the GPU waits for Python counts, as does the power meanwhile.
    cuda.now_s += 0.5
    assert [workload.run(2), workload.ended_s] == [2, pytest.approx(0.004)]
    assert [workload.run(2), workload.ended_s] == [2, pytest.approx(0.504)]
    replayed[-3:] = []
    placements = [cuda.graphs.index(graph) for graph in replayed]
    first = placements[0]
    assert placements == 2 * [first] + [
        placement for number in range(1, 10) for placement in 3 * [first + number]
    ] + 3 * [first]


def test_replays_in_one_place_are_timed_from_the_end_of_those_before(cuda: FakeCuda) -> None:
    workload = as_graph(EagerWorkload(Calls(cuda.call), "cuda:0"))
    workload.run(1)
    # Time that passes between two batches belongs to the second.
    cuda.now_s += 0.5
    workload.run(2)
    assert workload.ended_s is None
    workload.run(1)
    assert workload.ended_s == pytest.approx(0.5 + 2 * 0.01)
    # A pause belongs to nothing.
    workload.finish()
    cuda.now_s += 0.5
    workload.run(1)
    workload.run(1)
    assert workload.ended_s is None


@given(st.floats(1e-9, 1.0), st.sampled_from([1, 2, 8]))
def test_places_are_neither_too_many_nor_too_long(call_s: float, period: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        cuda = played_cuda(monkeypatch)
        cuda.call_s = period * call_s
        captured = capture_calls(Calls(cuda.call, period, relocated=lambda: cuda.call), "cuda:0")
    placements = len(captured.graphs)
    assert placements in (1, PLACEMENTS)
    assert captured.cycles * placements * period <= max(MAXIMUM_CALLS, period)
    if placements > 1:
        assert call_s <= 1.01 * LONGEST_RELOCATED_S
        assert captured.cycles == 1 or captured.cycles * cuda.call_s <= 1.2 * REPLAY_PER_PLACEMENT_S


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory\nmore"), RuntimeError("no deepcopy"), AttributeError("no such thing")],
)
def test_there_are_as_many_places_as_can_be_made_and_notes_say_so(cuda: FakeCuda, error: Exception) -> None:
    made: list[Call] = []

    def relocated() -> Call:
        if len(made) == 2:
            raise error
        made.append(cuda.call)
        return cuda.call

    workload = as_graph(EagerWorkload(Calls(cuda.call, notes="a note", relocated=relocated), "cuda:0"))
    assert isinstance(workload, GraphWorkload)
    assert workload.placements == 3
    reason = str(error).partition("\n")[0]
    assert workload.notes == f"a note; in 3 of 10 memory placements: {type(error).__name__}: {reason}"


def test_what_cannot_be_captured_in_another_place_is_captured_in_the_first(cuda: FakeCuda) -> None:
    for error in (torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("not permitted")):
        captured = capture_calls(Calls(cuda.call, relocated=lambda error=error: in_capture(cuda, error)), "cuda:0")  # type: ignore[misc]
        assert captured.kept == (cuda.call,)
        assert "in 1 of 10 memory placements" in captured.notes
        assert cuda.capturing is None
    with pytest.raises(KeyboardInterrupt):
        capture_calls(Calls(cuda.call, relocated=lambda: in_capture(cuda, KeyboardInterrupt())), "cuda:0")


def test_an_overhead_is_captured_with_what_it_belongs_to(cuda: FakeCuda) -> None:
    workload = as_graph(EagerWorkload(Calls(cuda.call, overhead=cuda.call), "cuda:0"))
    assert isinstance(workload.overhead, GraphWorkload)
    call = in_capture(cuda, RuntimeError("operation not permitted when stream is capturing"))
    eager = as_graph(EagerWorkload(Calls(call, 3, notes="a note", overhead=cuda.call), "cuda:0"))
    assert isinstance(eager.overhead, EagerWorkload)
    assert (eager.execution, eager.overhead.calls.cycle, eager.iterations_per_round) == ("eager", cuda.call, 3)


def test_the_debug_mode_is_set_back(cuda: FakeCuda) -> None:
    capture_calls(Calls(cuda.call), "cuda:0")
    assert [event for event in cuda.events if event.startswith("debug")] == ["debug 2", "debug 0"]


def test_a_call_that_waits_outside_an_operation_is_not_captured(cuda: FakeCuda) -> None:
    with pytest.raises(CaptureRefusal, match="it synchronises with the GPU"):
        capture_calls(Calls(cuda.wait), "cuda:0")
    assert cuda.graphs == []
    assert cuda.debug_mode == 0


@pytest.fixture
def waiting(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., object]]:
    """Return an operation on the CPU, which is the device here, that waits for it."""
    monkeypatch.setattr(GraphRecorder, "device_type", "cpu")
    library = torch.library.Library("opcost_test", "FRAGMENT")
    library.define("wait(Tensor x) -> Tensor")

    def wait(x: torch.Tensor) -> torch.Tensor:
        assert cuda.capturing is None
        cuda.wait()
        return x.clone()

    library.impl("wait", wait, "CPU")
    yield torch.ops.opcost_test.wait
    library._destroy()


@pytest.mark.parametrize("waits", [1, 3])
def test_a_call_that_waits_is_captured_in_pieces(cuda: FakeCuda, waiting: Callable[..., object], waits: int) -> None:
    x = torch.ones(2)

    def call() -> None:
        for _ in range(waits):
            torch.relu(x)
            cuda.call()
            waiting(x)

    cuda.call_s = 1e-3
    captured = capture_calls(Calls(call, relocated=lambda: call), "cuda:0")
    assert (captured.waits, captured.cycles, len(captured.graphs), len(cuda.graphs)) == (waits, 1, 1, waits)
    begin_s = cuda.now_s
    captured.replay(2)
    assert cuda.now_s - begin_s == pytest.approx(2 * waits * 1e-3)
    assert cuda.debug_mode == 0


@pytest.mark.parametrize(("call_s", "work"), [(0.9e-4, True), (1e-3, False)])
def test_a_call_with_too_many_waits_or_nothing_else_is_not_captured(
    cuda: FakeCuda, waiting: Callable[..., object], call_s: float, work: bool
) -> None:
    x = torch.ones(2)
    cuda.call_s = call_s

    def call() -> None:
        if work:
            torch.relu(x)
        cuda.call()
        waiting(x)

    workload = as_graph(EagerWorkload(Calls(call), "cuda:0"))
    assert (workload.execution, workload.notes) == ("eager", "eager: it synchronises with the GPU")


def test_a_call_that_waits_runs_eagerly_with_pauses(cuda: FakeCuda, waiting: Callable[..., object]) -> None:
    """A pause is no operation of torch, so a pause after the last piece would not be captured."""
    x = torch.ones(2)

    def call() -> None:
        torch.relu(x)
        cuda.call()
        waiting(x)
        cuda.call()

    cuda.call_s = 1e-3
    workload = as_graph(EagerWorkload(Calls(call, overhead=cuda.call, overhead_only_waits=True), "cuda:0"))
    assert (workload.execution, workload.notes) == ("eager", "eager: it synchronises with the GPU")
    assert workload.overhead is not None
    assert (workload.overhead.execution, workload.overhead.only_waits) == ("eager", True)


def test_a_piece_that_cannot_be_captured_leaves_no_capture_open(cuda: FakeCuda, waiting: Callable[..., object]) -> None:
    x = torch.ones(2)

    def call() -> None:
        waiting(torch.relu(x))
        torch.relu(x)
        if len(cuda.graphs) == 2:
            raise RuntimeError("operation not permitted when stream is capturing")

    workload = as_graph(EagerWorkload(Calls(call), "cuda:0"))
    assert workload.notes == "eager: a CUDA graph cannot capture it: operation not permitted when stream is capturing"
    assert cuda.capturing is None
    assert "end allocating" in cuda.events


def in_capture(cuda: FakeCuda, error: BaseException, times: int = 10**9) -> Callable[[], None]:
    """Return a call that fails so often when it is captured."""
    failures = 0

    def call() -> None:
        nonlocal failures
        if cuda.capturing is not None and failures < times:
            failures += 1
            raise error
        cuda.call()

    return call


def test_what_a_graph_cannot_hold_runs_eagerly_with_the_reason(cuda: FakeCuda) -> None:
    call = in_capture(cuda, RuntimeError("operation not permitted when stream is capturing\nmore"))
    workload = as_graph(EagerWorkload(Calls(call, notes="a note"), "cuda:0"))
    assert isinstance(workload, EagerWorkload)
    reason = "eager: a CUDA graph cannot capture it: operation not permitted when stream is capturing"
    assert (workload.execution, workload.notes) == ("eager", f"a note; {reason}")
    assert cuda.capturing is None
    assert "end allocating" in cuda.events
    cuda.end_fails = True
    workload = as_graph(EagerWorkload(Calls(cuda.call), "cuda:0"))
    assert workload.execution == "eager"
    assert "previous error during capture" in workload.notes


def test_a_capture_that_runs_out_of_memory_is_tried_again_with_all_of_it(cuda: FakeCuda) -> None:
    workload = as_graph(
        EagerWorkload(Calls(in_capture(cuda, torch.OutOfMemoryError("CUDA out of memory"), 1)), "cuda:0")
    )
    assert isinstance(workload, GraphWorkload)
    assert [event for event in cuda.events if event in ("synchronize", "empty_cache")] == ["synchronize", "empty_cache"]


@pytest.mark.parametrize(
    ("free_bytes", "reserved_bytes", "cleared"), [(90, 10, False), (51, 49, False), (49, 51, True), (49, 15, False)]
)
def test_what_torch_keeps_unused_is_given_back_before_a_capture(
    cuda: FakeCuda, free_bytes: int, reserved_bytes: int, cleared: bool
) -> None:
    cuda.free_bytes, cuda.reserved_bytes = free_bytes, reserved_bytes
    capture_calls(Calls(cuda.call), "cuda:0")
    assert ("empty_cache" in cuda.events) is cleared
    assert cuda.events.index("end") > (cuda.events.index("empty_cache") if cleared else -1)


def test_there_are_no_more_places_than_memory_is_free_for(cuda: FakeCuda) -> None:
    def call() -> None:
        if cuda.capturing is not None and cuda.capturing.calls == 0:
            cuda.free_bytes -= 10
        cuda.call()

    captured = capture_calls(Calls(call, relocated=lambda: call), "cuda:0")
    # 20 are taken by the probe and the first placement: as many again, and no less, are to be spared.
    assert captured.notes == "in 5 of 10 memory placements: not enough free memory"
    assert cuda.free_bytes == 30


def test_memory_that_a_library_does_without_in_a_capture_is_reported(cuda: FakeCuda) -> None:
    def does_without() -> None:
        cuda.shortages += cuda.capturing is not None
        cuda.call()

    captured = capture_calls(Calls(does_without), "cuda:0")
    assert captured.flags == (Flag.OUT_OF_MEMORY_IN_CAPTURE,)
    assert Flag.OUT_OF_MEMORY_IN_CAPTURE in CASTING_DOUBT
    # Before a capture torch frees memory and tries again: nothing is amiss.
    cuda.shortages = 3
    assert capture_calls(Calls(cuda.call), "cuda:0").flags == ()


def test_no_capture_stays_open_after_a_lack_of_memory_or_an_interrupt(cuda: FakeCuda) -> None:
    call = in_capture(cuda, torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(CannotMeasureError, match="out of memory"):
        as_graph(EagerWorkload(Calls(call), "cuda:0"))
    assert cuda.capturing is None
    with pytest.raises(KeyboardInterrupt):
        capture_calls(Calls(in_capture(cuda, KeyboardInterrupt())), "cuda:0")
    assert cuda.capturing is None


def test_a_graph_is_a_workload_of_many_iterations(cuda: FakeCuda) -> None:
    workload = as_graph(EagerWorkload(Calls(cuda.call, notes="a note"), "cuda:0"))
    assert (workload.execution, workload.iterations_per_round, workload.notes) == ("graph", 1000, "a note")
    assert [workload.run(rounds) for rounds in (1, 5, 2)] == [0, 1, 5]
    workload.finish()
    assert workload.run(4) == 0


def test_eager_calls_are_timed_by_the_gpu_and_together_if_they_end_together(cuda: FakeCuda) -> None:
    workload = EagerWorkload(Calls(cuda.call), "cuda:0")
    for rounds in (1, 3, 2):
        workload.run(rounds)
    assert workload.ended_s == pytest.approx(3e-5)
    workload = EagerWorkload(Calls(cuda.call), "cuda:0")
    workload.run(1)
    workload.run(3)
    workload.finish()
    # The first of the two has nothing before it.
    assert workload.ended_s == pytest.approx(3e-5)


def test_a_queue_waits_for_what_was_started_before(cuda: FakeCuda) -> None:
    queue = DeviceQueue("cuda:0")
    assert [queue.started(rounds) for rounds in (3, 1, 4)] == [0, 3, 1]
    queue.finish()
    assert "synchronize" in cuda.events
    assert queue.started(1) == 0


def test_the_load_between_measurements_adds_large_tensors_in_a_graph(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = []

    def add(*tensors: torch.Tensor, out: torch.Tensor) -> None:
        added.append((*tensors, out))
        cuda.call()

    monkeypatch.setattr(torch, "add", add)
    load = additions("cpu")
    load.run(3)
    assert (load.execution, load.notes, cuda.capturing) == ("graph", "", None)
    assert len({tensor.data_ptr() for tensor in added[0]}) == 3
    assert {tensor.shape for tensors in added for tensor in tensors} == {(ELEMENTS,)}
