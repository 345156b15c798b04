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
from opcost.measuring.duty_cycle import DUTY_CYCLES, LONGEST_LOOP_S
from opcost.measuring.evaluation import Execution, evaluate, with_repeatability
from opcost.measuring.flags import Flag, Flags, joined_notes
from opcost.measuring.instruments import Instruments
from opcost.measuring.loop import run_loop
from opcost.measuring.overhead import without_overhead
from opcost.measuring.ports import Workload
from opcost.measuring.precision import is_precise
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement, is_flagged, may_be_throttled
from opcost.measuring.recorded_loop import Loop
from opcost.measuring.retries import RETRIES, repeated
from opcost.power.mean import power_and_check
from opcost.power.trace import PowerTrace

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

    Args:
        measure_once: builds and measures by a protocol.
        protocol: the one to begin with.
        longest_duty_cycle: the first one to try; below 1 for a load that is known to be throttled at longer ones. If
            it fails, all are tried.

    Raises:
        CannotMeasureError: the first measurement without pauses failed.
    """
    if not protocol.at_full_clocks:
        return _tried(measure_once, protocol)
    duty_cycles = [duty_cycle for duty_cycle in (1.0, *DUTY_CYCLES) if duty_cycle <= longest_duty_cycle]
    first, *others = [_with_duty_cycle(protocol, duty_cycle) for duty_cycle in duty_cycles]
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


def _with_duty_cycle(protocol: MeasurementProtocol, duty_cycle: float) -> MeasurementProtocol:
    loop_s = protocol.loop_s if duty_cycle == 1 else min(protocol.loop_s, LONGEST_LOOP_S)
    return replace(protocol, duty_cycle=duty_cycle, loop_s=loop_s)


def _tried(measure_once: Callable[[MeasurementProtocol], Measurement], protocol: MeasurementProtocol) -> Measurement:
    """Return the first measurement that is not flagged, or that calls for a lower duty cycle; else the last one."""

    def is_final(measurement: Measurement) -> bool:
        return not is_flagged(measurement) or (protocol.at_full_clocks and may_be_throttled(measurement))

    return repeated(partial(measure_once, protocol), is_final, RETRIES.at_once)


def measure(workload: Workload, instruments: Instruments, protocol: MeasurementProtocol) -> Measurement:
    """Warm a workload up, run it in a loop while the meter logs, and evaluate both.

    An overhead of the workload is measured in the same way and subtracted.

    Raises:
        CannotMeasureError: the overhead alone takes at least as long.
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
    """Measure a workload and subtract its overhead.

    The overhead is measured, too, or only timed if it waits and the power of waiting is known.
    """
    waiting = instruments.waiting_power.recent(_now_s(instruments)) if overhead.only_waits else None
    if waiting is None:
        # The overhead comes first, so that the meter's last log is the workload's.
        less = _measured_overhead(overhead, instruments, protocol)
        measurement = _measure(workload, instruments, protocol)
    else:
        measurement = _measure(workload, instruments, protocol)
        # The overhead comes last, because clocks are full after the workload.
        less = waiting.lasting(_timed(overhead, instruments))
    return without_overhead(measurement, less, protocol.relative_error)


def _measured_overhead(overhead: Workload, instruments: Instruments, protocol: MeasurementProtocol) -> Measurement:
    measure_once = partial(_measure, overhead, instruments, protocol)
    measurement = repeated(measure_once, lambda one: Flag.CLOCKS_STILL_LOW not in one.flags, RETRIES.overhead)
    if overhead.only_waits:
        instruments.waiting_power.remember(measurement, _now_s(instruments))
    return measurement


def _now_s(instruments: Instruments) -> float:
    return instruments.clock.read().monotonic_s


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
        trace = replace(trace, checks=tuple(map(_without_power_if_for_steady_loads, trace.checks)))
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


def _without_power_if_for_steady_loads(check: PowerTrace) -> PowerTrace:
    reason = "the meter is for steady loads only, and this load has pauses"
    return replace(check, missing_reason=reason) if check.source.is_for_steady_loads else check


def _imprecision(loop: Loop, trace: PowerTrace, protocol: MeasurementProtocol) -> Flags:
    """Return a flag if a loop did not reach its target precision."""
    if protocol.relative_error is None:
        return ()
    power, _ = power_and_check(trace, loop.load_begin.epoch_s, loop.window)
    return () if is_precise(loop, power, protocol.relative_error) else (Flag.IMPRECISE,)
