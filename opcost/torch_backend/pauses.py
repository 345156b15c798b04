"""Calls with pauses in between, on a GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from opcost.measuring.calls import Call, Calls
from opcost.measuring.duty_cycle import stretch
from opcost.measuring.flags import Flag
from opcost.torch_backend.cuda_graph import CaptureRefusal, device_time_s, time_in_graph_s
from opcost.torch_backend.passes import INFERENCE

PROBE_CALLS = 8
PROBE_CLOCKS = 2_000_000
"""About 1 ms: meanwhile Python has launched the calls that are probed."""


def with_pauses(calls: Calls, device: str, duty_cycle: float) -> Calls:
    """Return calls that run for this share of the time, or less, and pause for the rest: a thread that counts clocks.

    The pause is part of their overhead.

    Args:
        calls: what runs on a GPU that is idle now.
        device: that GPU.
        duty_cycle: above 0 and below 1.

    Raises:
        CannotMeasureError: the calls are too long for pauses.
    """
    cycles, pause_s = stretch(_cycle_s(calls.cycle, device, duty_cycle), duty_cycle)
    return with_pauses_of(replace(calls, flags=(*calls.flags, Flag.DUTY_CYCLE)), device, cycles, pause_s)


def with_pauses_of(calls: Calls, device: str, cycles: int, pause_s: float) -> Calls:
    """Return calls of which so many cycles follow each other, and then a pause of so many seconds, on a GPU."""
    clock_hz = PROBE_CLOCKS / _time_s(partial(_pause, PROBE_CLOCKS, device), 1, device)
    pause = partial(_pause, max(round(pause_s * clock_hz), 1), device)

    def paused(cycle: Call) -> Call:
        return partial(_run_and_pause, cycle, cycles, pause)

    relocated = calls.relocated
    return Calls(
        cycle=paused(calls.cycle),
        period=calls.period * cycles,
        flags=calls.flags,
        notes=calls.notes,
        overhead=pause if calls.overhead is None else paused(calls.overhead),
        relocated=None if relocated is None else lambda: paused(relocated()),
    )


def _run_and_pause(cycle: Call, cycles: int, pause: Call) -> None:
    _repeat(cycle, cycles)
    pause()


def _repeat(call: Call, times: int) -> None:
    for _ in range(times):
        call()


def _pause(clocks: int, device: str) -> None:
    with torch.cuda.device(device):
        # torch's own tests keep a GPU busy with it; there is no public name for a kernel that does nothing for a while.
        torch.cuda._sleep(clocks)


def _cycle_s(cycle: Call, device: str, duty_cycle: float) -> float:
    """Return what a cycle takes, in a graph if it can be captured: eager kernels are further apart.

    The second look is at as many as will follow each other, so that the gap between two replays does not count.
    """
    try:
        few_s = time_in_graph_s(cycle, PROBE_CALLS, device) / PROBE_CALLS
        cycles, _ = stretch(few_s, duty_cycle)
        return time_in_graph_s(cycle, cycles, device) / cycles
    except CaptureRefusal:
        return _time_s(cycle, PROBE_CALLS, device)


def _time_s(call: Call, calls: int, device: str) -> float:
    """Return what a call takes on a GPU, where Python has launched it before it is its turn."""
    with INFERENCE.context():
        call()
        _pause(PROBE_CLOCKS, device)
        return device_time_s(partial(_repeat, call, calls), torch.cuda.current_stream(device)) / calls
