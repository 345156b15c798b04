"""How long, or how precisely, is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

FULL_LOOP_S = 30.0
"""The loop of the full protocol: the project's reference, to which shorter protocols are compared."""


CHUNK_S = 0.07
"""The loop waits for the device once per chunk: rarely enough to cost 0.02 % of the time, often enough to see drift,
and out of step with meters that look every 0.1 s."""


SHORT_CHUNK_S = 0.02
"""A loop that ends when its figures are precise enough may take 0.2 s: of these, ten chunks."""


MINIMUM_CHUNKS = 5


GPU_WARM_UP_S = 2.0
"""Longer than the slowest meter's rise time (1.2 s), and long enough for clocks and most of the temperature's rise."""


CPU_WARM_UP_S = 0.5


SHORT_WARM_UP_S = 0.1
"""For loops that end when they are precise enough: NVML's samples, each of the 20 ms before it, are within 0.3 % of
what they will be 0.06 s after an operator's begin, where the device was at work before (mean of 549 operators on an
H200, ``docs/log/meters.md``)."""


@dataclass(frozen=True)
class MeasurementProtocol:
    """How long to warm up and how long to measure, in s.

    With a ``relative_error`` the loop ends as soon as the 95 % intervals of time and energy are within it, and after
    ``loop_s`` at the latest. ``order_seed`` shuffles what a campaign measures; None leaves it in the model's order.

    A load that draws more than the device may runs ever slower alone, but not where it runs ``at_full_clocks``: a loop
    that ends when it is precise ends where clocks are held down, too, and is run again with pauses, for ``duty_cycle``
    of the time.
    """

    warm_up_s: float
    loop_s: float
    relative_error: float | None = None
    order_seed: int | None = None
    at_full_clocks: bool = False
    duty_cycle: float = 1.0

    @property
    def chunk_s(self) -> float:
        """How long a chunk of the loop shall last."""
        longest_s = CHUNK_S if self.relative_error is None else SHORT_CHUNK_S
        return min(longest_s, self.loop_s / MINIMUM_CHUNKS)


def protocol_for(
    is_gpu: bool, loop_s: float = FULL_LOOP_S, relative_error: float | None = None, order_seed: int | None = None
) -> MeasurementProtocol:
    """Return a protocol: a loop of the length or precision asked for, after the device's warm-up."""
    if relative_error is None:
        return MeasurementProtocol(GPU_WARM_UP_S if is_gpu else CPU_WARM_UP_S, loop_s, order_seed=order_seed)
    return MeasurementProtocol(SHORT_WARM_UP_S if is_gpu else CPU_WARM_UP_S, FULL_LOOP_S, relative_error, order_seed)


ProtocolFor: TypeAlias = Callable[[bool], MeasurementProtocol]
"""Returns the protocol for a device, given whether that is a GPU."""
