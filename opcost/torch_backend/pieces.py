"""Capture in pieces of a call that synchronises with its device: graphs, with the operations that wait between them.

A graph cannot capture an operation that waits for the device, such as ``item()`` or an index that is on the host. The
capture ends before such an operation, which runs outside, and the next capture begins after it. A replay repeats both
in this order, so the device is idle only where the model itself waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_leaves

from opcost.measuring.workload import Call
from opcost.torch_backend.cost_counter import tensors_of
from opcost.torch_backend.passes import INFERENCE
from opcost.torch_backend.repetition import ObservingMode, Operation, storage_of


class CaptureRefusal(Exception):  # noqa: N818 (nothing is wrong: the call is made in a loop instead)
    """A call cannot be captured; the message is the reason."""


class SynchronisationRefusal(CaptureRefusal):
    """A call cannot be captured because it waits for the device."""


class Graph(Protocol):
    """Captured work."""

    def replay(self) -> None:
        """Launch the work."""


class Recorder(Protocol):
    """Captures the work that is launched on a device of type ``device_type``."""

    device_type: str

    def run_without_waiting(self, call: Call) -> object:
        """Make a call outside a capture; ``SynchronisationRefusal`` if it waits, when it has not run to its end."""

    def run_waiting(self, call: Call) -> object:
        """Make a call that may wait, within ``run_without_waiting``."""

    def begin(self) -> None:
        """Begin a capture: what is launched from now on is captured and does not run."""

    def end(self) -> Graph:
        """End a capture and return what it captured."""


@dataclass(frozen=True)
class Pieces:
    """The steps of a call in order: replays of graphs, and operations that wait for the device.

    ``graphs`` and ``waits`` are the numbers of both.
    """

    steps: tuple[Call, ...]
    graphs: int
    waits: int

    def replay(self) -> None:
        with INFERENCE.context():
            for step in self.steps:
                step()


def captured_in_pieces(call: Call, recorder: Recorder) -> Pieces:
    """Capture one call in pieces.

    Raises CaptureRefusal: its operations differ from call to call, or it waits for the device outside an operation.
    """
    operations: list[tuple[object, bool]] = []

    def surveyed(operation: Operation) -> Any:
        """Run an operation on the device, and note whether it waits."""
        try:
            result, waits = recorder.run_without_waiting(operation.run), False
        except SynchronisationRefusal:
            result, waits = recorder.run_waiting(operation.run), True
        operations.append((operation.function, waits))
        return result

    with _DeviceMode(recorder.device_type, surveyed):
        recorder.run_without_waiting(call)
    capture = _Capture(recorder, operations)
    with _DeviceMode(recorder.device_type, capture.observed):
        call()
    capture.end()
    return Pieces(tuple(capture.steps), len(capture.steps) - len(capture.waits), len(capture.waits))


@dataclass
class _Wait:
    """An operation that waits for the device, and its output, which later operations read.

    A repetition leaves the output as it is, because the operation's inputs are the same, unless ``is_modified``: a
    graph writes into it.
    """

    operation: Operation
    output: object
    is_modified: bool = False

    def repeat(self) -> None:
        output = self.operation.run()
        if self.is_modified:
            for kept, value in zip(tensors_of(self.output), tensors_of(output), strict=True):
                kept.copy_(value)


class _DeviceMode(ObservingMode):
    """Runs the operations that may launch work on a device by a function."""

    def __init__(self, device_type: str, run: Callable[[Operation], Any]) -> None:
        super().__init__()
        self._device_type = device_type
        self._run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operation = Operation(func, args, kwargs or {})
        return self._run(operation) if may_launch_on(self._device_type, operation) else operation.run()


class _Capture:
    """Captures the operations of a call, and runs those that wait between two captures."""

    def __init__(self, recorder: Recorder, operations: Iterable[tuple[object, bool]]) -> None:
        self.steps: list[Call] = []
        self.waits: list[_Wait] = []
        self._recorder = recorder
        self._expected = iter(operations)
        self._is_capturing = False

    def observed(self, operation: Operation) -> Any:
        function, waits = next(self._expected, (None, False))
        if function is not operation.function:
            raise CaptureRefusal("its operations differ from call to call")
        written = set(map(storage_of, operation.written))
        for wait in self.waits:
            wait.is_modified |= not written.isdisjoint(map(storage_of, tensors_of(wait.output)))
        if waits:
            self.end()
            wait = _Wait(operation, operation.run())
            self.waits.append(wait)
            self.steps.append(wait.repeat)
            return wait.output
        if not self._is_capturing:
            self._recorder.begin()
            self._is_capturing = True
        return operation.run()

    def end(self) -> None:
        """End the capture, if any, and run what it captured, whose values the next operation may need."""
        if not self._is_capturing:
            return
        graph = self._recorder.end()
        self._is_capturing = False
        graph.replay()
        self.steps.append(graph.replay)


def may_launch_on(device_type: str, operation: Operation) -> bool:
    """Return whether an operation may launch work on a device: it is no view, and an argument is on it or names it."""
    leaves = tree_leaves((operation.args, operation.kwargs))
    devices = (leaf.device if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    is_there = any(isinstance(device, torch.device) and device.type == device_type for device in devices)
    # A composite operation that is declared as a view may copy (reshape).
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    is_view = operation.function.is_view and not operation.function.has_kernel_for_dispatch_key(composite)
    return is_there and not is_view
