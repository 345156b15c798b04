"""The measuring procedure: from a loop and a power trace to time and energy per iteration.

It knows nothing of torch or NVIDIA: it is handed a workload and instruments. Operators and whole models are measured by
the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from opcost.errors import CannotMeasureError
from opcost.measuring.duty_cycle import DUTY_CYCLES
from opcost.measuring.evaluation import Execution, evaluate, with_repeatability
from opcost.measuring.flags import Flag, Flags, joined_notes
from opcost.measuring.instruments import Instruments
from opcost.measuring.loop import Loop, is_precise, run_loop
from opcost.measuring.overhead import without_overhead
from opcost.measuring.ports import Workload
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement, is_doubtful, is_held_back
from opcost.measuring.retries import RETRIES, repeated
from opcost.power.mean import power_and_check
from opcost.power.trace import PowerTrace

SLOWED_FOR_S = 0.2
"""How long to rest after a load that its clocks went down under. They are low, and flags up, for 0.3 s on an H200; the
next load is built and warmed up in another 0.15 s at least."""


def undisturbed(
    measure_once: Callable[[MeasurementProtocol], Measurement], protocol: MeasurementProtocol
) -> Measurement:
    """Return a measurement that nothing seems to have disturbed; after ``RETRIES.at_once`` the last one, as it is.

    What is to be measured at full clocks and was held down by the power limit is measured again in lower duty cycles,
    and where that is no remedy either, as it is.

    Raises:
        CannotMeasureError: it cannot be measured.
    """
    measurement = _tried(measure_once, protocol)
    in_pauses = [replace(protocol, duty_cycle=duty_cycle) for duty_cycle in DUTY_CYCLES]
    # A loop that ended where clocks were held down tells less than one that goes on.
    for other in (*in_pauses, replace(protocol, at_full_clocks=False)):
        if not (protocol.at_full_clocks and is_held_back(measurement)):
            break
        with suppress(CannotMeasureError):
            measurement = _tried(measure_once, other)
    return measurement


def _tried(measure_once: Callable[[MeasurementProtocol], Measurement], protocol: MeasurementProtocol) -> Measurement:
    """Return a measurement that is not doubtful, or that is to be followed by a lower duty cycle, else the last one."""

    def is_final(measurement: Measurement) -> bool:
        return not is_doubtful(measurement) or (protocol.at_full_clocks and is_held_back(measurement))

    return repeated(partial(measure_once, protocol), is_final, RETRIES.at_once)


def measure(workload: Workload, instruments: Instruments, protocol: MeasurementProtocol) -> Measurement:
    """Warm a workload up, run it in a loop while the meter logs, and evaluate both.

    Where a workload has an overhead, that is measured in the same way before it, and subtracted.

    Args:
        workload: what is measured.
        instruments: what it is measured with.
        protocol: how long or precisely.

    Raises:
        CannotMeasureError: the overhead alone takes as long.
    """
    # An overhead comes first, so that the log that the meter keeps is the workload's.
    overhead = None
    if workload.overhead is not None:
        measure_overhead = partial(_measure, workload.overhead, instruments, protocol)
        overhead = repeated(measure_overhead, lambda one: Flag.CLOCKS_STILL_LOW not in one.flags, RETRIES.overhead)
    measurement = _measure(workload, instruments, protocol)
    if overhead is not None:
        measurement = without_overhead(measurement, overhead, protocol.relative_error)
    # Last, since the overhead is of the same build and run.
    return with_repeatability(measurement, instruments.device.repeatability)


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
        trace = _seen_with_pauses(trace)
    execution = Execution(
        executed_as=workload.execution,
        duty_cycle=protocol.duty_cycle if Flag.DUTY_CYCLE in workload.flags else None,
        flags=(
            *workload.flags,
            *_imprecision(loop, trace, protocol),
            *(flag for finding in findings for flag in finding.flags),
        ),
        notes=joined_notes(workload.notes, *(finding.notes for finding in findings)),
    )
    return evaluate(loop, trace, instruments.device, execution)


def _seen_with_pauses(trace: PowerTrace) -> PowerTrace:
    """Return a trace of whose checks those tell no power that are right for steady loads only."""
    return replace(trace, checks=tuple(map(_silent_if_for_steady_loads, trace.checks)))


def _silent_if_for_steady_loads(check: PowerTrace) -> PowerTrace:
    """Return a check that still tells temperatures and clocks, but no power if pauses would make that wrong."""
    reason = "it is right for steady loads only, and this one has pauses"
    return replace(check, missing_reason=reason) if check.source.is_for_steady_loads else check


def _imprecision(loop: Loop, trace: PowerTrace, protocol: MeasurementProtocol) -> Flags:
    """Return a flag where a loop came to its end before it was precise enough."""
    if protocol.relative_error is None:
        return ()
    power, _ = power_and_check(trace, loop.load_begin.epoch_s, loop.window)
    return () if is_precise(loop, power, protocol.relative_error) else (Flag.IMPRECISE,)
