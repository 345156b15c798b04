"""The protocol: lengths of warm-up and loop, or a target precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from opcost.measuring.conditions import Circumstances

FULL_LOOP_S = 30.0
"""Loop of the full protocol, the project's reference for shorter protocols."""

CHUNK_S = 0.07
"""Length of a chunk. The loop waits for the device once per chunk: rarely enough to cost 0.02 % of the time, often
enough to show drift, and out of step with meters that update every 0.1 s."""

SHORT_CHUNK_S = 0.02
"""Length of a chunk with a target precision: ten chunks in the shortest loop of 0.2 s."""

MINIMUM_CHUNKS = 5

GPU_WARM_UP_S = 2.0
"""Longer than the slowest meter's rise time (1.2 s), and long enough for clocks and most of the temperature's rise."""

CPU_WARM_UP_S = 0.5

SHORT_WARM_UP_S = 0.1
"""Warm-up with a target precision on a GPU that was busy before: NVML's samples, each averaging over 20 ms, are within
0.3 % of their final value 0.06 s after an operator's begin (mean of 549 operators on an H200,
``docs/log/meters.md``)."""

BUILDS = 3
"""Builds of a whole model: the fewest whose median one outlier does not change."""


@dataclass(frozen=True)
class MeasurementProtocol:
    """Lengths of warm-up and loop in s, or the target precision of the loop.

    With a ``relative_error`` the loop ends as soon as the 95 % intervals of time and energy are within it, and after
    ``loop_s`` at the latest. ``order_seed`` shuffles the cases of a campaign; None keeps the model's order. With
    ``at_full_clocks`` a loop also ends when the load is throttled, and is run again with pauses. ``duty_cycle`` is the
    largest share of time at work. A whole model is measured in a number of ``builds``, each in a loop of its own.
    """

    warm_up_s: float
    loop_s: float
    relative_error: float | None = None
    order_seed: int | None = None
    at_full_clocks: bool = False
    duty_cycle: float = 1.0
    builds: int = BUILDS

    @property
    def chunk_s(self) -> float:
        longest_s = CHUNK_S if self.relative_error is None else SHORT_CHUNK_S
        return min(longest_s, self.loop_s / MINIMUM_CHUNKS)


def protocol_for(
    is_gpu: bool, loop_s: float = FULL_LOOP_S, relative_error: float | None = None, order_seed: int | None = None
) -> MeasurementProtocol:
    """Return the protocol for a device with a loop of the requested length or target precision."""
    if relative_error is None:
        return MeasurementProtocol(GPU_WARM_UP_S if is_gpu else CPU_WARM_UP_S, loop_s, order_seed=order_seed)
    return MeasurementProtocol(SHORT_WARM_UP_S if is_gpu else CPU_WARM_UP_S, FULL_LOOP_S, relative_error, order_seed)


USUAL_OPTIONS = ("--relative-error", "0.01")
"""The options of a command that measures without need of a certain protocol: most loops end within 1 s."""

ProtocolFor: TypeAlias = Callable[[bool], MeasurementProtocol]
"""Returns the protocol for a device, given whether it is a GPU."""


def protocol_options(measured: Iterable[Circumstances]) -> tuple[str, ...]:
    """Return the options of a command that measures as most rows were: with others, all would be measured again."""
    relative_error, loop_s = _most_common(measured)
    if relative_error is not None:
        return "--relative-error", f"{relative_error:g}"
    return () if loop_s in (None, FULL_LOOP_S) else ("--seconds", f"{loop_s:g}")


def usual_protocol(measured: Iterable[Circumstances], is_gpu: bool) -> MeasurementProtocol:
    """Return the protocol by which most rows were measured on a device, the full one without rows."""
    relative_error, loop_s = _most_common(measured)
    return protocol_for(is_gpu, loop_s or FULL_LOOP_S, relative_error)


def _most_common(measured: Iterable[Circumstances]) -> tuple[float | None, float | None]:
    """Return the most common relative error and length of the loop in s; both are None without rows."""
    protocols = Counter((one.relative_error, one.loop_s) for one in measured)
    return protocols.most_common(1)[0][0] if protocols else (None, None)
