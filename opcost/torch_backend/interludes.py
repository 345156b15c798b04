"""The work of a GPU between calls and between measurements: pauses for duty cycles, and a background load.

The background load keeps temperature and clocks up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch

from opcost.errors import CannotMeasureError
from opcost.measuring.flags import Flag
from opcost.measuring.instruments import NOTHING, Finding, Observer
from opcost.measuring.protocol import cycles_and_pause
from opcost.measuring.workload import Call, Calls, Workload
from opcost.torch_backend.cuda_graph import device_time_s, time_in_graph_s
from opcost.torch_backend.passes import INFERENCE
from opcost.torch_backend.pieces import CaptureRefusal
from opcost.torch_backend.workload import EagerWorkload, as_graph, refused_calls

PROBE_CALLS = 8
PROBE_CLOCKS = 2_000_000
"""A pause of about 1 ms, in which Python launches the calls that are timed."""


ELEMENTS = 2**22
"""Elements of each of three fp32 tensors, 50 MB in total. They fit into an H200's cache and draw about 500 W, as much
as operators on average. Larger tensors draw almost 700 W, the power limit."""


def with_pauses(calls: Calls, device: str, duty_cycle: float) -> Calls:
    """Return calls on an idle GPU that run for at most a share of the time, 0 to 1, and pause for the rest.

    A pause is a kernel of one thread that counts clocks. It is part of the calls' overhead. Raises CannotMeasureError:
    the calls are too long for pauses.
    """
    cycles, pause_s = cycles_and_pause(_cycle_s(calls.cycle, device, duty_cycle), duty_cycle)
    return with_pauses_of(replace(calls, flags=(*calls.flags, Flag.DUTY_CYCLE)), device, cycles, pause_s)


def with_pauses_of(calls: Calls, device: str, cycles: int, pause_s: float) -> Calls:
    """Return calls on a GPU with a pause of ``pause_s`` after every ``cycles`` cycles."""
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
        flags=calls.flags,
        notes=calls.notes,
        overhead=pause if calls.overhead is None else paused(calls.overhead),
        overhead_only_waits=calls.overhead is None,
        relocated=None if relocated is None else lambda: paused(relocated()),
    )


def _repeat(call: Call, times: int) -> None:
    for _ in range(times):
        call()


def _pause(clocks: int, device: str) -> None:
    with torch.cuda.device(device):
        # There is no public function for a kernel that waits; torch's own tests use this one.
        torch.cuda._sleep(clocks)


def _cycle_s(cycle: Call, device: str, duty_cycle: float) -> float:
    """Return the time of a cycle in s, in a graph if it can be captured, because eager kernels have larger gaps.

    It is timed twice, the second time with as many cycles as will follow each other, so that the gap between replays
    has the right weight.
    """
    try:
        few_s = time_in_graph_s(cycle, PROBE_CALLS, device) / PROBE_CALLS
        cycles, _ = cycles_and_pause(few_s, duty_cycle)
        return time_in_graph_s(cycle, cycles, device) / cycles
    except CaptureRefusal:
        return _time_s(cycle, PROBE_CALLS, device)


def _time_s(call: Call, calls: int, device: str) -> float:
    """Return the time of a call on a GPU in s, without the time of its launch."""
    with INFERENCE.context():
        call()
        _pause(PROBE_CLOCKS, device)
        return device_time_s(partial(_repeat, call, calls), torch.cuda.current_stream(device)) / calls


class BackgroundLoad(Observer):
    """Runs a workload in a thread from ``resume`` to ``pause``. The workload is built at the first ``resume``.

    As an observer it pauses during loops.
    """

    def __init__(self, make_workload: Callable[[], Workload]) -> None:
        self._make_workload = make_workload
        self._workload: Workload | None = None
        self._wanted = threading.Event()
        self._is_closing = self._is_refused = False
        self._round = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def before_start(self) -> None:
        self.pause()

    def after_finish(self) -> Finding:
        self.resume()
        return NOTHING

    def resume(self) -> None:
        """Start the load, or leave the device idle if it has not enough memory."""
        if self._is_refused:
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
        try:
            self.pause()
            yield
        finally:
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
        return as_graph(EagerWorkload(Calls(partial(torch.add, augend, addend, out=total)), device))
