"""Workloads: operator tuples and models as repeatable loads; the work of a GPU between calls and measurements."""

from __future__ import annotations

import itertools
import logging
import math
import statistics
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from opcost.errors import CannotMeasureError, shortened
from opcost.estimates import total_if_known
from opcost.measuring.conditions import EAGER, GRAPH, is_gpu
from opcost.measuring.flags import Flag, Flags, joined_notes
from opcost.measuring.instruments import NOTHING, Finding, Observer
from opcost.measuring.protocol import cycles_and_pause
from opcost.measuring.workload import Call, Calls, Workload
from opcost.operators.input_roles import ATTENTION_BACKWARD
from opcost.operators.reuse import CallState, Place
from opcost.operators.tuples import DEFAULT_SEED, OperatorTuple
from opcost.operators.values import NORMAL_DATA, InputData
from opcost.torch_backend.call_states import calls_in_state, eviction
from opcost.torch_backend.cost_counter import ALLOCATIONS, tensors_of
from opcost.torch_backend.cuda_graph import (
    PROBE_CALLS,
    REPLAY_S,
    CapturedCalls,
    CaptureRefusal,
    capture_again,
    capture_beside,
    capture_calls,
    device_time_s,
    elapsed_s,
    kernel_spans,
    time_in_graph_s,
    traced_behind,
    untraced_gap,
)
from opcost.torch_backend.inputs import after_forward, operator_inputs
from opcost.torch_backend.operators import build_operator
from opcost.torch_backend.passes import Context, running_calls
from opcost.torch_backend.ready_model import REFUSALS
from opcost.torch_backend.repeated_calls import Layer, repeated
from opcost.units import printable

REFUSED = (*REFUSALS, ArithmeticError, AttributeError, LookupError, MemoryError)
"""Exceptions of torch for arguments that an operator does not take."""

TRACED_ROUNDS = 10
"""Rounds in a trace: as many as a precise time needs."""

Span: TypeAlias = tuple[torch.cuda.Event, torch.cuda.Event]


@dataclass(frozen=True)
class Batch:
    """Rounds on a GPU since the end of those before, if any; the spans ``uncounted`` are not part of their time."""

    rounds: int
    before: torch.cuda.Event | None
    end: torch.cuda.Event
    uncounted: tuple[Span, ...]

    @property
    def elapsed_s(self) -> float | None:
        if self.before is None:
            return None
        return elapsed_s(self.before, self.end) - math.fsum(elapsed_s(*span) for span in self.uncounted)


class DeviceQueue:
    """Keeps one batch of rounds queued on a GPU, so that it never idles between two batches.

    ``ended_s`` is the time of the rounds that ended last by the GPU's clock; None on a CPU and after a pause.
    """

    def __init__(self, device: str) -> None:
        self.ended_s: float | None = None
        self.far_launches_s: float | None = None
        self.device = device
        self._ahead: list[Batch] = []
        self._last: torch.cuda.Event | None = None

    def started(self, rounds: int, stream: torch.cuda.Stream | None = None, *uncounted: Span) -> int:
        """Register rounds that were started; wait for those before and return their number; a CPU has ended all."""
        if not is_gpu(self.device):
            return rounds
        end = _now(stream or torch.cuda.current_stream(self.device))
        self._ahead.append(Batch(rounds, self._last, end, uncounted))
        self._last = end
        return self._wait_for(len(self._ahead) - 1)

    def finish(self) -> None:
        with refused_calls(self.device):
            self._wait_for(len(self._ahead))
            synchronize(self.device)
        self._last = None

    def _wait_for(self, batches: int) -> int:
        ended = self._ahead[:batches]
        del self._ahead[:batches]
        if ended:
            ended[-1].end.synchronize()
            self.ended_s = total_if_known([batch.elapsed_s for batch in ended])
        return sum(batch.rounds for batch in ended)


def _now(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(stream)
    return event


class EagerWorkload(DeviceQueue):
    """Calls in a Python loop, in inference mode, as in a user's program; each loop is in a new ``context``."""

    execution = EAGER
    placements = 1
    waits = None

    def __init__(self, calls: Calls, device: str, only_waits: bool = False, context: Context = nullcontext) -> None:
        super().__init__(device)
        self.calls = calls
        self.context = context
        self.flags = calls.flags
        self.notes = calls.notes
        self.call_memory_peak_bytes = calls.call_memory_peak_bytes
        self.iterations_per_round = calls.period
        self.only_waits = only_waits
        self.overhead = None
        if calls.overhead is not None:
            overhead = Calls(calls.overhead, calls.period)
            self.overhead = EagerWorkload(overhead, device, calls.overhead_only_waits, context)

    def annotated(self, note: str = "", flags: Flags = ()) -> EagerWorkload:
        return self.of(replace(self.calls, flags=(*self.flags, *flags), notes=joined_notes(self.notes, note)))

    def of(self, calls: Calls) -> EagerWorkload:
        return EagerWorkload(calls, self.device, context=self.context)

    def run(self, rounds: int) -> int:
        with refused_calls(self.device):
            with running_calls(), self.context():
                for _ in range(rounds):
                    self.calls.cycle()
            return self.started(rounds)


class GraphWorkload(DeviceQueue):
    """CUDA graphs of calls, one for each memory placement; successive runs replay them in turn.

    The first replay in a placement is not counted, because the GPU fetches the graph and its data then (on an H200 up
    to 0.2 us more for each call of less than 7 us).
    """

    execution = GRAPH

    def __init__(self, captured: CapturedCalls, eager: EagerWorkload, overhead: GraphWorkload | None) -> None:
        super().__init__(eager.device)
        self.flags = (*eager.flags, *captured.flags)
        self.call_memory_peak_bytes = eager.call_memory_peak_bytes
        self.notes = joined_notes(eager.notes, captured.notes)
        self.placements = len(captured.graphs)
        self.waits = captured.waits
        self.only_waits = eager.only_waits
        self.overhead = overhead
        self.iterations_per_round = captured.cycles * eager.iterations_per_round
        self._captured = captured
        self._eager = eager
        self._placement = itertools.count()

    def run(self, rounds: int) -> int:
        captured, placement, first = self._captured, next(self._placement), list[Span]()
        with refused_calls(self.device):
            if self.placements > 1:
                begin = _now(captured.stream)
                captured.replay(1, placement)
                first.append((begin, _now(captured.stream)))
            captured.replay(rounds, placement)
            return self.started(rounds, captured.stream, *first)

    def single(self) -> CapturedCalls:
        """Return one iteration in a graph of its own; the graph itself if it has no more."""
        if self.iterations_per_round == 1:
            return self._captured
        with self._eager.context():
            return capture_again(self._eager.calls.cycle, 1, self._captured.stream)


class PairedWorkload(DeviceQueue):
    """Calls and their overhead alone in turn, each in a CUDA graph; the time of a round is the difference of both."""

    execution = GRAPH
    placements = 1
    waits = overhead = None
    only_waits = False

    def __init__(self, eager: EagerWorkload) -> None:
        super().__init__(eager.device)
        with refused_calls(eager.device), eager.context():
            self._both, self._alone = capture_beside(eager.calls, eager.device)
        self.flags = (*eager.flags, *self._both.flags)
        self.notes, self.call_memory_peak_bytes = eager.notes, eager.call_memory_peak_bytes
        self.iterations_per_round = self._both.cycles

    def run(self, rounds: int) -> int:
        stream = self._both.stream
        with refused_calls(self.device):
            begin = _now(stream)
            self._alone.replay(rounds)
            end = _now(stream)
            self._both.replay(rounds)
            # Once with all since the last round, because it is no call; once as the overhead of the calls.
            return self.started(rounds, stream, (self._last or begin, end), (begin, end))


class TracedWorkload(PairedWorkload):
    """Calls behind their overhead in a CUDA graph; the time of a round is that of their own kernels in a trace.

    The difference to the overhead alone would be up to 15 % too short: a call that writes little leaves its followers
    less to write back. What a trace gets wrong is known from loops of the call alone (``docs/log/states.md``).
    """

    def __init__(self, eager: EagerWorkload) -> None:
        super().__init__(eager)
        calls = eager.calls.alone
        assert calls is not None
        with refused_calls(eager.device), eager.context():
            self._others = kernel_spans(self._alone, 1).shape[1]
            self._gap = untraced_gap(calls, self._both.stream)
        self._times_s: list[float] = []
        self._idle_s: list[float] = []

    def run(self, rounds: int) -> int:
        with refused_calls(self.device):
            while len(self._times_s) < rounds:
                traced = traced_behind(kernel_spans(self._both, TRACED_ROUNDS), self._others)
                of_rounds = (traced.time_s + self._gap.time_s).reshape(TRACED_ROUNDS, -1).sum(axis=1)
                self._times_s += map(float, of_rounds)
                self._idle_s += map(float, traced.idle_s)
                self.far_launches_s = max(statistics.median(self._idle_s) - self._gap.idle_s, 0.0)
        self.ended_s = math.fsum(self._times_s[:rounds])
        del self._times_s[:rounds]
        return rounds


@contextmanager
def refused_calls(device: str) -> Iterator[None]:
    """Convert torch's errors to a ``CannotMeasureError``."""
    try:
        yield
    except REFUSALS as error:
        # After a CUDA fault every further call fails, so this raises and ends the process.
        synchronize(device)
        raise CannotMeasureError(one_line(error)) from error


def as_graph(workload: EagerWorkload, replay_s: float = REPLAY_S) -> GraphWorkload | EagerWorkload:
    """Return the calls in CUDA graphs, or eagerly with a note why; a CannotMeasureError if torch raises an error."""

    def graph_of(eager: EagerWorkload, overhead: GraphWorkload | None) -> GraphWorkload:
        with refused_calls(eager.device), eager.context():
            return GraphWorkload(capture_calls(eager.calls, eager.device, replay_s), eager, overhead)

    try:
        return graph_of(workload, None if workload.overhead is None else graph_of(workload.overhead, None))
    except CaptureRefusal as refusal:
        return workload.annotated(f"eager: {refusal}")


def beside(workload: EagerWorkload, is_traced: bool = False) -> PairedWorkload:
    """Return calls and their overhead in CUDA graphs; a CannotMeasureError if they cannot be captured."""
    try:
        return TracedWorkload(workload) if is_traced else PairedWorkload(workload)
    except CaptureRefusal as refusal:
        raise CannotMeasureError(str(refusal)) from refusal


def operator_workload(
    operator: OperatorTuple,
    device: str,
    data: InputData = NORMAL_DATA,
    state: CallState | None = None,
    context: Context = nullcontext,
) -> EagerWorkload:
    """Return an operator tuple with fresh weights and random inputs as a repeatable load on a device.

    ``state`` is that of each call, for a ``TracedWorkload``. A loop of calls runs in one ``context``. An in-place
    operator adds and subtracts in turn, or finds its input written again, on a CPU another tensor for its output: in a
    loop it would modify its own input, and with it the power. An output with NaN or infinity is flagged if the inputs
    have none.
    Raises CannotMeasureError: it cannot be built or repeated here.
    """
    with refused_calls(device):
        layer = Layer(*operator_call(operator, device, data))
        with context():
            if state is not None:
                is_half = state.code is Place.HALF
                twin = Layer(*operator_call(operator, device, data)).call if is_half else None
                calls = calls_in_state(layer, state, eviction(device), twin)
            else:
                calls = repeated(layer, restores=is_gpu(device))
            flags: Flags = ()
            # Operators that only allocate return whatever the memory held.
            if operator.short_name not in ALLOCATIONS:
                read = {name: value for name, value in layer.kwargs.items() if name != "out"}
                with running_calls():
                    flags = flags_of_output(calls.cycle(), (layer.args, read))
        return EagerWorkload(calls, device, context=context).annotated(flags=flags)


def operator_call(
    operator: OperatorTuple, device: str, data: InputData = NORMAL_DATA
) -> tuple[Callable[..., object], tuple[object, ...], dict[str, object]]:
    """Return an operator with fresh weights and arguments; a CannotMeasureError if it cannot be built here."""
    function, (args, kwargs) = build_operator(operator, device), operator_inputs(operator, device, data)
    if operator.operator in ATTENTION_BACKWARD:
        function, args = after_forward(function, args, kwargs)
    weights = matrices_of(function, args) if data.weight_zeros_ratio else []
    if data.weight_zeros_ratio and not weights:
        raise CannotMeasureError("the operator has no weights that can be set to zero")
    for weight in weights:
        if not weight.is_meta:
            # The same ones each time.
            generator = torch.Generator(weight.device).manual_seed(DEFAULT_SEED)
            chances = torch.rand(weight.shape, device=weight.device, generator=generator)
            with torch.no_grad():
                weight.masked_fill_(chances < data.weight_zeros_ratio, 0.0)
    return function, args, kwargs


def synchronize(device: str) -> None:
    """Wait until the device is idle."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


LONGEST_TEXT = 1000


def one_line(error: BaseException) -> str:
    """Return an error's type and the first line of its message, with the second if the first ends with a colon.

    It ends in dots if there are more, or it is very long: a message may quote a whole tensor.
    """
    message = ""
    with suppress(Exception, SystemExit):
        message = str(error)
    lines = message.strip().splitlines() or ["no message"]
    shown = lines[: 2 if lines[0].endswith(":") else 1]
    text = shortened(" ".join(map(str.strip, shown)), LONGEST_TEXT)
    more = " ..." if len(lines) > len(shown) and not text.endswith("...") else ""
    return f"{shortened(printable(type(error).__name__))}: {text}{more}{_module_of(error)}"


def _module_of(error: BaseException) -> str:
    """Return path and class of the innermost module below the outermost one that an error was raised in, if any."""
    # A module may not be built to the end.
    with suppress(Exception):
        frames = (frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__))
        called = [one for one in frames if isinstance(one, nn.Module)]
        paths = {id(module): path for path, module in called[0].named_modules()} if called else {}
        inner = next((one for one in reversed(called) if paths.get(id(one))), None)
        if inner is not None:
            return shortened(printable(f" (in {paths[id(inner)]}: {type(inner).__name__})"))
    return ""


def flags_of_output(output: object, arguments: object) -> Flags:
    """Return a flag if an output is not finite although all arguments are, unlike a mask filled with -inf."""
    is_flagged = not all(map(_is_finite, tensors_of(output))) and all(map(_is_finite, tree_leaves(arguments)))
    return (Flag.NOT_FINITE,) if is_flagged else ()


def _is_finite(value: Any) -> bool:
    """Return whether a number or all numbers of a tensor are finite; True for all other values."""
    if isinstance(value, float):
        return math.isfinite(value)
    if not isinstance(value, torch.Tensor) or not value.numel():
        return True
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    if not value.is_floating_point():
        return True
    try:
        # Both are NaN if any value is.
        return all(math.isfinite(end.item()) for end in torch.aminmax(value))
    except RuntimeError:
        # Some tensors (4-bit floats, sparse tensors) do not support this function; they are not flagged.
        return True


def matrices_of(function: Callable[..., object], args: Sequence[object]) -> list[torch.Tensor]:
    """Return the weights of a module, or those among a function's arguments, without vectors: scales and biases."""
    if isinstance(function, nn.Module):
        named = function.named_parameters()
        found: list[torch.Tensor] = [one for name, one in named if "weight" in name.rpartition(".")[2]]
    else:
        found = Layer(function, tuple(args), {}).weights
    return [weight for weight in found if weight.dim() >= 2]


# Between calls and between measurements: pauses for duty cycles, and a background load that keeps temperature and
# clocks up

PROBE_CLOCKS = 2_000_000
"""A pause of about 1 ms, in which Python launches the calls that are timed."""


ELEMENTS = 2**22
"""Elements of each of three fp32 tensors, 50 MB in total. They fit into an H200's cache and draw about 500 W, as much
as operators on average. Larger tensors draw almost 700 W, the power limit."""


BATCH_S = 0.005
"""Length of a batch of the background load. Python may keep a thread waiting for so long before it starts the next one.
A pause of the load waits for one and a half."""


def with_pauses(calls: Calls, device: str, duty_cycle: float) -> Calls:
    """Return calls on an idle GPU that run for at most a share of the time, 0 to 1, and pause for the rest.

    A pause is a kernel of one thread that counts clocks, and an overhead. A CannotMeasureError if calls are too long.
    """
    try:
        # In a graph, because eager kernels have larger gaps; the second time with as many cycles as will follow each
        # other, so that the gap between replays has the right weight.
        few_s = time_in_graph_s(calls.cycle, PROBE_CALLS, device) / PROBE_CALLS
        cycles, _ = cycles_and_pause(few_s, duty_cycle)
        cycle_s = time_in_graph_s(calls.cycle, cycles, device) / cycles
    except CaptureRefusal:
        cycle_s = _time_s(calls.cycle, PROBE_CALLS, device)
    cycles, pause_s = cycles_and_pause(cycle_s, duty_cycle)
    clock_hz = PROBE_CLOCKS / _time_s(partial(_pause, PROBE_CLOCKS, device), 1, device)
    pause = partial(_pause, max(round(pause_s * clock_hz), 1), device)

    def paused(cycle: Call) -> Call:
        def run_and_pause() -> None:
            _repeat(cycle, cycles)
            pause()

        return run_and_pause

    relocated = calls.relocated
    return Calls(
        cycle=paused(calls.cycle),
        period=calls.period * cycles,
        flags=(*calls.flags, Flag.DUTY_CYCLE),
        notes=calls.notes,
        overhead=pause if calls.overhead is None else paused(calls.overhead),
        overhead_only_waits=calls.overhead is None,
        relocated=None if relocated is None else lambda: paused(relocated()),
        call_memory_peak_bytes=calls.call_memory_peak_bytes,
    )


def _repeat(call: Call, times: int) -> None:
    for _ in range(times):
        call()


def _pause(clocks: int, device: str) -> None:
    with torch.cuda.device(device):
        # There is no public function for a kernel that waits; torch's own tests use this one.
        torch.cuda._sleep(clocks)


def _time_s(call: Call, calls: int, device: str) -> float:
    """Return the time of a call on a GPU in s, without the time of its launch."""
    with running_calls():
        call()
        _pause(PROBE_CLOCKS, device)
        return device_time_s(partial(_repeat, call, calls), torch.cuda.current_stream(device)) / calls


class BackgroundLoad(Observer):
    """Runs a workload in a thread from ``resume``, which builds it, to ``pause``; as an observer, outside of loops."""

    def __init__(self, make_workload: Callable[[], Workload]) -> None:
        self._make_workload = make_workload
        self._workload: Workload | None = None
        self._wanted = threading.Event()
        self._is_closing = self._is_refused = False
        self._pauses = 0
        self._round = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def before_start(self) -> None:
        self.pause()

    def after_finish(self) -> Finding:
        self.resume()
        return NOTHING

    def resume(self) -> None:
        """Start the load, or leave the device idle if it has not enough memory, and as long as it is ``paused``."""
        if self._is_refused or self._pauses:
            return
        if self._workload is None:
            try:
                self._workload = self._make_workload()
            except CannotMeasureError as error:
                text = "no background load between operators, so short loops may begin on a cool device: %s"
                logging.getLogger(__name__).warning(text, error)
                self._is_refused = True
                return
            self._thread.start()
        self._wanted.set()

    def pause(self) -> None:
        self._wanted.clear()
        if self._workload is not None:
            with self._round:
                self._workload.finish()

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._pauses += 1
        try:
            self.pause()
            yield
        finally:
            self._pauses -= 1
            self.resume()

    def close(self) -> None:
        self._is_closing = True
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        assert self._workload is not None
        while self._wanted.wait() and not self._is_closing:
            with self._round:
                if self._wanted.is_set():
                    self._workload.run(1)


def additions(device: str) -> Workload:
    """Return additions as a background load; ``CannotMeasureError`` if the device has not enough memory."""
    with refused_calls(device):
        augend, addend, total = (torch.randn(ELEMENTS, device=device) for _ in range(3))
        return as_graph(EagerWorkload(Calls(partial(torch.add, augend, addend, out=total)), device), BATCH_S)
