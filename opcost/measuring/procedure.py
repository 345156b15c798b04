"""The measuring procedure: run a workload while a meter logs, and evaluate both.

Operators and whole models are measured by the same code, which does not depend on torch or NVIDIA.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from opcost.errors import CannotMeasureError
from opcost.estimates import Estimate
from opcost.measuring.evaluation import Execution, evaluate, with_repeatability
from opcost.measuring.flags import Flag, Flags, joined_notes
from opcost.measuring.instruments import Instruments, lasting
from opcost.measuring.loop import run_loop
from opcost.measuring.overhead import without_overhead
from opcost.measuring.protocol import DUTY_CYCLES, LONGEST_LOOP_S, RETRIES, MeasurementProtocol
from opcost.measuring.record import Measurement, is_flagged, may_be_throttled
from opcost.measuring.recorded_loop import Loop, is_precise
from opcost.measuring.workload import Workload
from opcost.power.trace import PowerTrace, power_and_check

TIMING = MeasurementProtocol(warm_up_s=0.0, loop_s=0.02)
"""The loop of an overhead of which only the time is measured."""


def undisturbed(
    measure_once: Callable[[MeasurementProtocol], Measurement],
    protocol: MeasurementProtocol,
    longest_duty_cycle: float = 1.0,
) -> Measurement:
    """Return the first measurement that is not flagged, or the last one after ``RETRIES.at_once``.

    If the protocol asks for full clocks and the load was throttled by the power limit, it is measured again with lower
    duty cycles, and finally without the request for full clocks.

    ``measure_once`` builds and measures. ``longest_duty_cycle`` is the first one to try; it is below 1 for a load that
    is known to be throttled at longer ones. If it fails, all are tried. Raises CannotMeasureError: the first
    measurement without pauses failed.
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

    def is_final(measurement: Measurement) -> bool:
        return not is_flagged(measurement) or (protocol.at_full_clocks and may_be_throttled(measurement))

    return _repeated(partial(measure_once, protocol), is_final, RETRIES.at_once)


def _repeated(
    measure_once: Callable[[], Measurement], is_final: Callable[[Measurement], bool], times: int
) -> Measurement:
    """Return the first measurement that is final, or the last one after a number of times.

    If the first one fails, its error is raised; if a later one does, the one before it is returned.
    """
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
    """Warm a workload up, run it in a loop while the meter logs, and evaluate both, without the overhead that it may
    have.

    Raises ``CannotMeasureError`` if the overhead alone takes at least as long.
    """
    if workload.overhead is None:
        measurement = _measure(workload, instruments, protocol)
    else:
        measurement = _measured_without(workload.overhead, workload, instruments, protocol)
    # This comes last because workload and overhead are of the same build and run.
    return with_repeatability(measurement, instruments.device.repeatability)


def _measured_without(
    overhead: Workload, workload: Workload, instruments: Instruments, protocol: MeasurementProtocol
) -> Measurement:
    """Measure a workload, and its overhead, which is only timed if it waits and the power of waiting is known."""
    clock, known = instruments.clock, instruments.waiting_power
    waiting = known.recent(clock.read().monotonic_s) if overhead.only_waits else None
    if waiting is None:
        # The overhead comes first, so that the meter's last log is the workload's.
        measure_once = partial(_measure, overhead, instruments, protocol)
        less = _repeated(measure_once, lambda one: Flag.CLOCKS_STILL_LOW not in one.flags, RETRIES.overhead)
        if overhead.only_waits:
            known.remember(less, clock.read().monotonic_s)
        measurement = _measure(workload, instruments, protocol)
    else:
        measurement = _measure(workload, instruments, protocol)
        # The overhead comes last, because clocks are full after the workload.
        less = lasting(waiting, _timed(overhead, instruments))
    return without_overhead(measurement, less, protocol.relative_error)


def _timed(overhead: Workload, instruments: Instruments) -> Estimate:
    """Return the time of an iteration."""
    for observer in instruments.observers:
        observer.before_start()
    try:
        return run_loop(overhead, instruments, TIMING).time_s
    finally:
        for observer in instruments.observers:
            observer.after_finish()


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
    if protocol.duty_cycle < 1:
        reason = "the meter is for steady loads only, and this load has pauses"
        checks = (
            replace(one, missing_reason=reason) if one.source.is_for_steady_loads else one for one in trace.checks
        )
        trace = replace(trace, checks=tuple(checks))
    execution = Execution(
        executed_as=workload.execution,
        duty_cycle=protocol.duty_cycle if Flag.DUTY_CYCLE in workload.flags else None,
        waits=workload.waits,
        flags=(
            *workload.flags,
            *_imprecision(loop, trace, protocol),
            *([Flag.ABOVE_POWER_LIMIT] if loop.is_too_heavy else []),
            *(flag for finding in findings for flag in finding.flags),
        ),
        notes=joined_notes(workload.notes, *(finding.notes for finding in findings)),
    )
    return evaluate(loop, trace, instruments.device, execution)


def _imprecision(loop: Loop, trace: PowerTrace, protocol: MeasurementProtocol) -> Flags:
    """Return a flag if a loop did not reach its target precision."""
    if protocol.relative_error is None:
        return ()
    power, _ = power_and_check(trace, loop.load_begin.epoch_s, loop.window)
    return () if is_precise(loop, power, protocol.relative_error) else (Flag.IMPRECISE,)
