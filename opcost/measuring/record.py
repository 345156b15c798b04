"""What a measurement says, and one row of the database."""

from __future__ import annotations

import math
from dataclasses import dataclass

from opcost.estimates import Estimate
from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.flags import HELD_BACK, LEAVING_CLOCKS_LOW, Flag, Flags

REFERENCE_TEMPERATURE_C = 50.0
"""To which energies are referred, so that figures from a cool and a warm device can be compared: in the midst of what
operators reach on an H200 (45 to 62 °C)."""

SLOPE_SPREAD_PER_KELVIN = 0.0015
"""How far an operator's slope of power over temperature may be from its board's, as a share of the power: 0.22 to
0.52 % per kelvin in four operators on two H200 (``docs/results.md``)."""

SLOPE_ERROR_PER_KELVIN = 0.001
"""How well a board's slope is known, as a share of the power, where rows do not tell: 0.03 to 0.1 % per kelvin."""


POSITIVE = ("time_s", "energy_j", "energy_at_reference_j", "power_w", "loop_time_s")
ERRORS = (
    "time_standard_error_s",
    "energy_standard_error_j",
    "energy_at_reference_standard_error_j",
    "power_standard_error_w",
)
"""Columns of a measurement that are above 0 where they are known, and those that may be 0."""


@dataclass(frozen=True)
class Measurement:
    """Time and energy per iteration, and what they rest on.

    ``time_s`` and ``energy_j`` are per iteration, their errors one standard error. Energy and power are None where
    no meter gave enough readings; ``energy_missing_reason`` says why. ``energy_at_reference_j`` is the energy at
    ``REFERENCE_TEMPERATURE_C``, None where it is not known how the device's power follows its temperature.
    Beside the plain means stand, in rows of this version, medians and means without outliers (beyond three standard
    deviations), of chunks and of readings. ``power_readings`` counts independent ones. ``check_power_w`` is what the
    next best meter said meanwhile. State fields are means over the loop: ``temperature_c`` of the chip,
    ``memory_temperature_c`` of its memory, ``busy_ratio`` the share of the time in which a kernel ran (nvidia-smi's
    figures, each over some 0.2 s before its row). ``executed_as`` is ``graph`` or ``eager``: not every call fits into
    a graph. ``duty_cycle`` is the share of the time in which the load ran at most, None where it ran without pauses.
    ``flags`` are for programs, ``notes`` for people: no code reads them.
    """

    time_s: float
    energy_j: float | None
    time_standard_error_s: float
    energy_standard_error_j: float | None
    energy_missing_reason: str | None
    time_median_s: float | None
    time_without_outliers_s: float | None
    power_median_w: float | None
    power_without_outliers_w: float | None
    energy_at_reference_j: float | None
    energy_at_reference_standard_error_j: float | None
    power_w: float | None
    power_standard_error_w: float | None
    power_readings: int
    meter: str
    check_power_w: float | None
    check_power_standard_error_w: float | None
    check_meter: str | None
    iterations: int
    loop_time_s: float
    started_at: str
    ended_at: str
    temperature_c: float | None
    memory_temperature_c: float | None
    sm_clock_hz: float | None
    power_capped_ratio: float | None
    thermal_slowdown_ratio: float | None
    busy_ratio: float | None
    power_log: str | None
    executed_as: str
    duty_cycle: float | None
    flags: Flags
    notes: str

    def __post_init__(self) -> None:
        """Refuse what nothing can cost.

        Raises:
            ValueError: a time, energy or power is no number above 0, or an error none from 0 on.
        """
        for name in POSITIVE:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}: {value!r} is no number above 0")
        for name in ERRORS:
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name}: {value!r} is no number from 0 on")


@dataclass(frozen=True)
class MeasurementRow:
    """One row of the database: what was measured, under what, with what result.

    ``operator``, ``parameters``, ``inputs`` and ``training_mode`` are the operator tuple's texts for people, and
    ``input_data`` that of the values it ran on; ``key`` (see ``conditions.measurement_key``) is what programs join on.
    ``order_seed`` shuffled the operators of the campaign, None if they came in the model's order.
    """

    key: str
    operator: str
    measurement: Measurement
    parameters: str
    inputs: str
    training_mode: str | None
    input_data: str
    order_seed: int | None
    conditions: Conditions
    circumstances: Circumstances


def time_of(row: MeasurementRow) -> Estimate:
    """Return a row's time per iteration in s."""
    return Estimate(row.measurement.time_s, row.measurement.time_standard_error_s)


def is_doubtful(measurement: Measurement) -> bool:
    """Return whether something seems to have disturbed a measurement."""
    return any(flag.casts_doubt for flag in measurement.flags)


def doubts_of(measurement: Measurement) -> Flags:
    """Return the flags of what seems to have disturbed a measurement, or made it less precise than asked."""
    return tuple(flag for flag in measurement.flags if flag.casts_doubt or flag == Flag.IMPRECISE)


def is_held_back(measurement: Measurement) -> bool:
    """Return whether the power limit has held clocks down under a load, or under its overhead, or may have."""
    return not HELD_BACK.isdisjoint(measurement.flags)


def leaves_clocks_low(measurement: Measurement) -> bool:
    """Return whether clocks may still be low after a measurement, so that the next one should wait."""
    return not LEAVING_CLOCKS_LOW.isdisjoint(measurement.flags)


@dataclass(frozen=True)
class FailureRow:
    """One operator or model that could not be measured, and why."""

    key: str
    operator: str
    reason: str
    failed_at: str
    parameters: str
    inputs: str
    training_mode: str | None
    input_data: str
    conditions: Conditions
    circumstances: Circumstances
