"""The measuring procedure: run a workload while a meter logs, evaluate both, and repeat where that is needed.

Whole models are measured in several builds, because the time of some has two states 2.6 % apart, and the first build of
a process is often in the rarer one (``docs/log/repeatability.md``).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from opcost.errors import CannotMeasureError
from opcost.estimates import BATCHES, Estimate, is_within, standard_error_of, value_of
from opcost.measuring.evaluation import evaluate, with_repeatability
from opcost.measuring.flags import OF_AN_OVERHEAD, Flag, flags_of, joined_notes
from opcost.measuring.instruments import Finding, Instruments, lasting
from opcost.measuring.loop import LONGEST_PAIRS_S, Loop, is_precise, run_loop, run_pairs
from opcost.measuring.protocol import DUTY_CYCLES, LONGEST_LOOP_S, MINIMUM_CHUNKS, RETRIES, MeasurementProtocol
from opcost.measuring.record import Measurement, is_at_power_limit, is_flagged, may_be_throttled
from opcost.measuring.workload import Workload
from opcost.power.trace import no_trace, power_and_check

TIMING = MeasurementProtocol(warm_up_s=0.0, loop_s=0.02)
"""The loop of an overhead of which only the time is measured."""


LEAST_SHARE, PRECISER = 0.1, 0.8
"""The least share of a difference in both of its loops for which these are measured again, and by what factor more
precisely than it needs: errors have errors."""


def undisturbed(
    measure_once: Callable[[MeasurementProtocol], Measurement],
    protocol: MeasurementProtocol,
    longest_duty_cycle: float = 1.0,
) -> Measurement:
    """Return the first measurement that is not flagged, or the last one after ``RETRIES.at_once``.

    At full clocks, a load that was throttled is measured again with lower duty cycles, and finally without that
    request. ``longest_duty_cycle`` is the first one to try, below 1 for a load that is known to be throttled; if it
    fails, all are. Raises CannotMeasureError: the first measurement without pauses failed.
    """
    if not protocol.at_full_clocks:
        return _tried(measure_once, protocol)
    with_pauses = replace(protocol, loop_s=min(protocol.loop_s, LONGEST_LOOP_S))
    duty_cycles = [duty_cycle for duty_cycle in (1.0, *DUTY_CYCLES) if duty_cycle <= longest_duty_cycle]
    first, *others = [replace(protocol if one == 1 else with_pauses, duty_cycle=one) for one in duty_cycles]
    try:
        measurement = _tried(measure_once, first)
    except CannotMeasureError:
        if longest_duty_cycle == 1:
            raise
        return undisturbed(measure_once, protocol)
    # The last protocol does not end its loop when the load is throttled.
    for other in (*others, replace(protocol, at_full_clocks=False)):
        if not may_be_throttled(measurement):
            break
        with suppress(CannotMeasureError):
            measurement = _tried(measure_once, other)
    return measurement


def _tried(measure_once: Callable[[MeasurementProtocol], Measurement], protocol: MeasurementProtocol) -> Measurement:
    """Return the first measurement that is not flagged, or that calls for a lower duty cycle; else the last one."""
    return _repeated(
        partial(measure_once, protocol),
        lambda one: not is_flagged(one) or (protocol.at_full_clocks and may_be_throttled(one)),
        RETRIES.at_once,
    )


def _repeated(
    measure_once: Callable[[], Measurement], is_final: Callable[[Measurement], bool], times: int
) -> Measurement:
    """Return the first final measurement, or the last before one fails or ``times`` are over."""
    measurement = measure_once()
    for _ in range(times - 1):
        if is_final(measurement):
            break
        try:
            measurement = measure_once()
        except CannotMeasureError:
            break
    return measurement


def measure(workload: Workload, instruments: Instruments, protocol: MeasurementProtocol) -> Measurement:
    """Measure a workload, without its overhead if it has one. Raises CannotMeasureError: that alone takes as long."""
    if workload.overhead is None:
        measurement = _measure(workload, instruments, protocol)
    else:
        measurement = _measured_without(workload.overhead, workload, instruments, protocol)
    # This comes last because workload and overhead are of the same build and run.
    return with_repeatability(measurement, instruments.device.repeatability)


def _measured_without(
    overhead: Workload, workload: Workload, instruments: Instruments, protocol: MeasurementProtocol
) -> Measurement:
    """Measure a workload and its overhead; again, and more precisely, if their difference is not precise enough."""
    measurement, less = _with_and_without(overhead, workload, instruments, protocol)
    asked, share = protocol.relative_error, _share_left(measurement, less)
    left = without_overhead(measurement, less, asked)
    if Flag.IMPRECISE not in left.flags or asked is None or overhead.only_waits or share < LEAST_SHARE:
        return left
    precise = replace(protocol, relative_error=PRECISER * share * asked)
    with suppress(CannotMeasureError):
        return without_overhead(*_with_and_without(overhead, workload, instruments, precise), asked)
    return left


def _share_left(both: Measurement, less: Measurement) -> float:
    """Return the share of the difference in both, of time or energy the smaller."""
    pairs = [(both.time_s, less.time_s), (both.energy_j, less.energy_j)]
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    return min((one - other) / math.hypot(one, other) for one, other in known)


def _with_and_without(
    overhead: Workload, workload: Workload, instruments: Instruments, protocol: MeasurementProtocol
) -> tuple[Measurement, Measurement]:
    """Measure a workload, and its overhead, which is only timed if it waits and the power of waiting is known."""
    clock, known = instruments.clock, instruments.waiting_power
    waiting = known.recent(clock.read().monotonic_s) if overhead.only_waits else None
    if waiting is None:
        # The overhead comes first, so that the meter's last log is the workload's.
        measure_once = partial(_measure, overhead, instruments, protocol)
        less = _repeated(measure_once, lambda one: Flag.CLOCKS_STILL_LOW not in one.flags, RETRIES.overhead)
        if overhead.only_waits:
            known.remember(less, clock.read().monotonic_s)
        return _measure(workload, instruments, protocol), less
    measurement = _measure(workload, instruments, protocol)
    # The overhead comes last, because clocks are full after the workload.
    loop, _ = _observed(overhead, instruments, partial(run_loop, overhead, instruments, TIMING))
    return measurement, lasting(waiting, loop.time_s)


def _observed(workload: Workload, instruments: Instruments, run: Callable[[], Loop]) -> tuple[Loop, Sequence[Finding]]:
    """Return a loop without a meter, with what observers found."""
    for observer in instruments.observers:
        observer.before_start()
    try:
        loop = run()
        workload.finish()
    finally:
        findings = [observer.after_finish() for observer in instruments.observers]
    return loop, findings


def _with_findings(
    found: Measurement, workload: Workload, findings: Sequence[Finding], flags: Sequence[Flag]
) -> Measurement:
    """Return a measurement with what its workload and its observers say, and further flags."""
    all_flags = (*workload.flags, *flags, *(flag for finding in findings for flag in finding.flags), *found.flags)
    return replace(
        found,
        executed_as=workload.execution,
        waits=workload.waits,
        call_memory_peak_bytes=workload.call_memory_peak_bytes,
        far_launches_s=workload.far_launches_s,
        flags=flags_of(all_flags),
        notes=joined_notes(workload.notes, *(finding.notes for finding in findings), found.notes),
    )


def _measure(workload: Workload, instruments: Instruments, protocol: MeasurementProtocol) -> Measurement:
    for observer in instruments.observers:
        observer.before_start()
    instruments.meter.start()
    try:
        loop = run_loop(workload, instruments, protocol)
    finally:
        try:
            findings = [observer.after_finish() for observer in instruments.observers]
        finally:
            trace = instruments.stop()
    workload.finish()
    if protocol.duty_cycle < 1:
        reason = "the meter is for steady loads only, and this load has pauses"
        checks = (
            replace(one, missing_reason=reason) if one.source.is_for_steady_loads else one for one in trace.checks
        )
        trace = replace(trace, checks=tuple(checks))
    is_imprecise = False
    if protocol.relative_error is not None:
        power, _ = power_and_check(trace, loop.load_begin.epoch_s, loop.window)
        is_imprecise = not is_precise(loop, power, protocol.relative_error)
    found = evaluate(loop, trace, instruments.device)
    flags = [Flag.IMPRECISE] if is_imprecise else []
    flags += [Flag.ABOVE_POWER_LIMIT] if loop.is_too_heavy else []
    duty_cycle = protocol.duty_cycle if Flag.DUTY_CYCLE in workload.flags else None
    return _with_findings(replace(found, duty_cycle=duty_cycle), workload, findings, flags)


ONLY_TIMED = "beside its overhead only its time is measured"


def measure_beside(
    workload: Workload, instruments: Instruments, relative_error: float, longest_s: float = LONGEST_PAIRS_S
) -> Measurement:
    """Measure the time that a workload takes beyond its overhead, which it runs in turn with itself; no energy.

    Raises CannotMeasureError: it takes no longer than its overhead, as far as noise shows.
    """
    run = partial(run_pairs, workload, instruments, relative_error, longest_s)
    loop, findings = _observed(workload, instruments, run)
    # Single differences of a short call may be lost in noise.
    joined = loop.joined(MINIMUM_CHUNKS)
    if min(joined.chunk_durations_s) <= 0:
        raise CannotMeasureError(f"it takes no longer than its overhead alone ({loop.time_s.value:.3g} s)")
    found = evaluate(joined, no_trace(ONLY_TIMED), instruments.device).with_figures(loop.time_s, None, None)
    # Differences scatter, so that they say nothing of uneven chunks.
    found = replace(found, flags=flags_of({Flag.NO_KERNEL}.intersection(found.flags)), notes="")
    is_precise_enough = is_within(loop.time_s, len(loop.chunk_durations_s), relative_error)
    found = _with_findings(found, workload, findings, [] if is_precise_enough else [Flag.IMPRECISE])
    return with_repeatability(found, instruments.device.repeatability)


def without_overhead(
    measurement: Measurement, overhead: Measurement, relative_error: float | None = None
) -> Measurement:
    """Return a measurement minus its overhead; errors add in quadrature.

    Values that cannot be subtracted (medians, means without outliers, the check by another meter) are None. The state
    of the device and the loop are those of the measurement. With a ``relative_error`` the difference is flagged if it
    is less precise, whatever both are. Raises CannotMeasureError: the difference of the times is not above 0.
    """

    def difference(both: Estimate | None, less: Estimate | None) -> Estimate | None:
        found = None if both is None or less is None else both.less(less)
        return found if found is not None and found.value > 0 else None

    time_s, energy_j = difference(measurement.time, overhead.time), difference(measurement.energy, overhead.energy)
    if time_s is None:
        raise CannotMeasureError(f"it takes no longer than its overhead alone ({overhead.time_s:.3g} s)")
    at_reference_j = difference(measurement.energy_at_reference, overhead.energy_at_reference) if energy_j else None
    is_precise = relative_error is None or all(
        is_within(figure, BATCHES, relative_error) for figure in (time_s, energy_j) if figure is not None
    )
    power_w = None if energy_j is None else energy_j.divided_by(time_s)
    reason = measurement.energy_missing_reason or overhead.energy_missing_reason
    flags = {*measurement.flags, *OF_AN_OVERHEAD.intersection(overhead.flags)}
    if relative_error is not None:
        flags.discard(Flag.IMPRECISE)
    return replace(
        measurement.with_figures(time_s, energy_j, at_reference_j),
        energy_missing_reason=None if energy_j else reason or "it takes no more energy than its overhead alone",
        time_median_s=None,
        time_without_outliers_s=None,
        power_median_w=None,
        power_without_outliers_w=None,
        power_w=value_of(power_w),
        power_standard_error_w=standard_error_of(power_w),
        check_power_w=None,
        check_power_standard_error_w=None,
        check_meter=None,
        flags=flags_of([*flags, *([] if is_precise else [Flag.IMPRECISE])]),
        notes=joined_notes(measurement.notes, f"overhead: {overhead.notes}" if overhead.notes else ""),
    )


SETTLING_S = 2.7
SETTLED_LOOP_S = 2.7
"""Clocks at the power limit settle within two or three swings of 0.9 s. Warm-up and loop have three
(``docs/log/power_limit.md``)."""


def median_of_builds(measure_build: Callable[[], Measurement], builds: int) -> Measurement:
    """Return the measurement of the build with the median time (of two the shorter) and the differences of builds.

    Flagged builds are replaced, ``RETRIES.at_once - 1`` times in total. The first build must not fail.
    """
    found = [measure_build()]
    for _ in range(builds + RETRIES.at_once - 2):
        if sum(not is_flagged(one) for one in found) >= builds:
            break
        try:
            found.append(measure_build())
        except CannotMeasureError:
            break
    best = max(map(_quality, found))
    counted = sorted((one for one in found if _quality(one) == best), key=lambda one: one.time_s)
    return _with_differences(counted[(len(counted) - 1) // 2], counted)


def settled(run_build: Callable[[MeasurementProtocol], Measurement], protocol: MeasurementProtocol) -> Measurement:
    """Return the measurement of a build in lasting use; ``run_build`` measures it, first by the given protocol.

    At the power limit a short loop has full clocks in a part that is left to chance, so that the build runs again.
    """
    measurement = run_build(protocol)
    if protocol.relative_error is None or not is_at_power_limit(measurement):
        return measurement
    return run_build(replace(protocol, warm_up_s=SETTLING_S, loop_s=SETTLED_LOOP_S, relative_error=None))


def _quality(measurement: Measurement) -> tuple[bool, bool]:
    return measurement.energy_j is not None, not is_flagged(measurement)


def _with_differences(measurement: Measurement, builds: Sequence[Measurement]) -> Measurement:
    """Return a measurement with the ranges of its builds, and with errors that include them.

    A median of n has a standard error of sqrt(pi / 2n) standard deviations; energy and power are not chosen by value.
    """
    times_s, powers_w = [one.time_s for one in builds], [one.power_w for one in builds]
    measured_j, normalised_j = [one.energy_j for one in builds], [one.energy_at_reference_j for one in builds]
    error_s, share = measurement.time_standard_error_s, math.sqrt(math.pi / (2 * len(builds)))

    def range_ratio(values: Sequence[float | None]) -> float | None:
        known = _all_known(values)
        return (max(known) - min(known)) / statistics.median(known) if known else None

    def unexplained(values: Sequence[float | None], error: float) -> float:
        """Return the standard deviation beyond that which an error of each value explains; 0 if it is unknown."""
        known = _all_known(values)
        return math.sqrt(max(0.0, statistics.variance(known) - error**2)) if known else 0.0

    def with_scatter(error: float | None, values: Sequence[float | None]) -> float | None:
        return None if error is None else math.hypot(error, unexplained(values, error))

    return replace(
        measurement,
        builds=len(builds),
        builds_time_range_ratio=range_ratio(times_s),
        builds_energy_range_ratio=range_ratio(measured_j if None in normalised_j else normalised_j),
        time_standard_error_s=math.hypot(error_s, share * unexplained(times_s, error_s)),
        power_standard_error_w=with_scatter(measurement.power_standard_error_w, powers_w),
        energy_standard_error_j=with_scatter(measurement.energy_standard_error_j, measured_j),
        energy_at_reference_standard_error_j=with_scatter(
            measurement.energy_at_reference_standard_error_j, normalised_j
        ),
    )


def _all_known(values: Sequence[float | None]) -> list[float]:
    known = [value for value in values if value is not None]
    return known if 2 <= len(known) == len(values) else []
