"""The protocol: lengths of warm-up and loop or a target precision, pauses, repetitions, and single iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from opcost.errors import CannotMeasureError
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
"""Warm-up with a target precision on a GPU that was busy before: NVML's samples are within 0.3 % of their final value
0.06 s after an operator's begin (mean of 549 operators on an H200, ``docs/log/meters.md``)."""

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


ANY = MeasurementProtocol(0.0, FULL_LOOP_S)
"""A protocol: the UUID of the board is the same for all."""


def protocol_for(
    is_gpu: bool, loop_s: float = FULL_LOOP_S, relative_error: float | None = None, order_seed: int | None = None
) -> MeasurementProtocol:
    """Return the protocol for a device with a loop of the requested length or target precision."""
    if relative_error is None:
        return MeasurementProtocol(GPU_WARM_UP_S if is_gpu else CPU_WARM_UP_S, loop_s, order_seed=order_seed)
    return MeasurementProtocol(SHORT_WARM_UP_S if is_gpu else CPU_WARM_UP_S, FULL_LOOP_S, relative_error, order_seed)


STATE_RELATIVE_ERROR = 0.01
"""The precision of a time in state if none is asked for: it takes a third of a second at most."""


def protocol_in_state(protocol: MeasurementProtocol) -> MeasurementProtocol:
    """Return the protocol of calls in their state, which are timed beside their evictions to a precision."""
    relative_error = protocol.relative_error or STATE_RELATIVE_ERROR
    return protocol_for(True, relative_error=relative_error, order_seed=protocol.order_seed)


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
    protocols = Counter((one.relative_error, one.loop_s) for one in measured)
    return protocols.most_common(1)[0][0] if protocols else (None, None)


@dataclass(frozen=True)
class RetryPolicy:
    """The largest numbers of measurements of one case, including the first.

    ``overhead``: measurements of an overhead while clocks are still low from the load before; a new build would be that
    load again. ``at_once``: builds with their measurements while the result is flagged. ``runs``: campaigns while the
    best row is flagged, or has no energy although there is a meter. A case that fails is tried again by every campaign,
    after all others.
    """

    overhead: int = 3
    at_once: int = 3
    runs: int = 3


RETRIES = RetryPolicy()

# Pauses between calls let a load above the power limit run at full clocks. In a model such an operator runs for a
# millisecond, followed by lighter ones, so it is not throttled. In a loop of itself it may be throttled within 0.1 s.
# Pauses keep the mean power below the limit. Their cost is measured separately and subtracted.

DUTY_CYCLES = (0.75, 0.5)
"""The largest shares of time at work of a load that is throttled, tried in turn until it is not. With 140 W in the
pauses and 98 % of 700 W they allow for 868 and 1230 W. At 85 %, in cycles of 1.2 ms, the noise of samples was so slow
that loops took 10 to 20 s (H200)."""

LONGEST_LOOP_S = 2.0
"""Longest loop with pauses. Most reach 1 % within 1 s. Of seven that took more than 2 s, one reached it; the others
were known to 1.8 % to 5 % (H200, ``docs/log/speed.md``)."""

SAMPLING_PERIOD_S = 0.8e-3
"""The interval at which the board seems to sample its power for one NVML power sample, or twice that interval: samples
scatter by 2 to 19 % with pauses of 0.4 to 4 ms, as the mean of 25 values in 20 ms does (``docs/log/meters.md``)."""

OUT_OF_STEP = (0.382, 0.618)
"""The fraction of a sampling interval by which a period of work and pause is longer than whole intervals. With the
golden section, successive samples cover all phases of the period evenly."""

LONGEST_PERIOD = 11
"""The most whole sampling intervals in a period: 9.3 ms, half of an NVML sample."""

SHORT_PERIODS = 4
"""The number of shortest periods that are used for short calls. The calls then run for about 1 ms without a pause, so
that cache effects of a pause and writes to memory during it are negligible."""


def cycles_and_pause(cycle_s: float, duty_cycle: float) -> tuple[int, float]:
    """Return the cycles of calls (of ``cycle_s`` each) before a pause, and the length of the pause in s.

    Raises CannotMeasureError: a cycle and its pause are longer than the longest period.
    """
    periods_s = [(whole + part) * SAMPLING_PERIOD_S for whole in range(1, LONGEST_PERIOD + 1) for part in OUT_OF_STEP]
    cycles = {period_s: int(duty_cycle * period_s / cycle_s) for period_s in periods_s}
    best_s = max(periods_s[:SHORT_PERIODS], key=lambda period_s: cycles[period_s] / period_s)
    if not cycles[best_s]:
        best_s = next((period_s for period_s in periods_s if cycles[period_s]), best_s)
    if not cycles[best_s]:
        raise CannotMeasureError(f"a call of {cycle_s:.3g} s is too long for pauses every {periods_s[-1]:.2g} s")
    return cycles[best_s], best_s - cycles[best_s] * cycle_s


SINGLE_SHARE = 0.25
"""Length of all single iterations as a share of the loop."""

FEWEST_ITERATIONS, MOST_ITERATIONS = 20, 2000
"""The fewest and the most iterations: the 5th percentile needs 20."""

LONGEST_ITERATIONS_S = 10.0
"""Longest time of single iterations. Long ones are fewer than ``FEWEST_ITERATIONS``, but no fewer than
``FEWEST_LONG_ITERATIONS``."""

FEWEST_LONG_ITERATIONS = 3


def iterations_after(loop_s: float, time_s: float) -> int:
    """Return how many iterations of ``time_s`` are timed after a loop of ``loop_s``."""
    number = max(FEWEST_ITERATIONS, min(MOST_ITERATIONS, round(SINGLE_SHARE * loop_s / time_s)))
    if number * time_s <= max(LONGEST_ITERATIONS_S, loop_s):
        return number
    return max(FEWEST_LONG_ITERATIONS, int(LONGEST_ITERATIONS_S / time_s))
