"""What a measurement says, and one row of the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from opcost.columns import ABOVE_0, COUNT, FROM_0, MOMENT, SHARE, SIGNED, Column, Columns, one_of
from opcost.estimates import Estimate
from opcost.measuring.conditions import EXECUTIONS, Circumstances, Conditions
from opcost.measuring.flags import HELD_BACK, LEAVING_CLOCKS_LOW, Flag, Flags
from opcost.operators.columns import INPUT_DATA, INPUTS, OPERATOR, PARAMETERS, TRAINING_MODE

REFERENCE_TEMPERATURE_C = 50.0
"""To which energies are referred, so that figures from a cool and a warm device can be compared: in the midst of what
operators reach on an H200 (45 to 62 °C)."""

SLOPE_SPREAD_PER_KELVIN = 0.0015
"""How far an operator's slope of power over temperature may be from its board's, as a share of the power: 0.22 to
0.52 % per kelvin in four operators on two H200 (``docs/log/meters.md``)."""

SLOPE_ERROR_PER_KELVIN = 0.001
"""How well a board's slope is known, as a share of the power, where rows do not tell: 0.03 to 0.1 % per kelvin."""


@dataclass(frozen=True)
class Measurement(Columns):
    """Time and energy per iteration, and what they rest on.

    Energy and power are None where no meter gave enough readings. Outliers are beyond three standard deviations. Few
    ``power_readings`` (3 to 10) want Student's factor. ``busy_ratio`` is from figures each over some 0.2 s. Beside the
    ``power_log`` are NVML's samples and the energy counter's ticks, in files ``…-samples.csv`` and ``…-counter.csv``.
    Flags are for programs, notes for people: no code reads them.
    """

    time_s: Annotated[float, Column("per iteration", ABOVE_0)]
    energy_j: Annotated[float | None, Column("per iteration", ABOVE_0)]
    time_standard_error_s: Annotated[float, Column("one standard error of the time", FROM_0)]
    energy_standard_error_j: Annotated[float | None, Column("one standard error of the energy", FROM_0)]
    energy_missing_reason: Annotated[str | None, Column("why the energy is empty")]
    time_median_s: Annotated[float | None, Column("median of the loop's chunks", ABOVE_0)]
    time_without_outliers_s: Annotated[float | None, Column("mean of the loop's chunks, outliers left out", ABOVE_0)]
    power_median_w: Annotated[float | None, Column("median of the readings", FROM_0)]
    power_without_outliers_w: Annotated[float | None, Column("mean of the readings, outliers left out", FROM_0)]
    energy_at_reference_j: Annotated[
        float | None, Column("energy at 50 °C; empty if the board is not qualified", ABOVE_0)
    ]
    energy_at_reference_standard_error_j: Annotated[float | None, Column("one standard error of that", FROM_0)]
    power_w: Annotated[float | None, Column("mean power in the loop", ABOVE_0)]
    power_standard_error_w: Annotated[float | None, Column("one standard error of the mean power", FROM_0)]
    power_readings: Annotated[int, Column("independent readings that the mean power rests on", COUNT)]
    meter: Annotated[str, Column("which meter and field the power is from")]
    check_power_w: Annotated[float | None, Column("mean power by the next best meter", FROM_0)]
    check_power_standard_error_w: Annotated[float | None, Column("one standard error of that", FROM_0)]
    check_meter: Annotated[str | None, Column("which meter and field that is")]
    iterations: Annotated[int, Column("counted iterations of the loop", COUNT)]
    loop_time_s: Annotated[float, Column("length of the loop, iterations that do not count included", ABOVE_0)]
    started_at: Annotated[str, Column("when the loop began", MOMENT)]
    ended_at: Annotated[str, Column("when the loop ended", MOMENT)]
    temperature_c: Annotated[float | None, Column("mean temperature of the chip in the loop", SIGNED)]
    memory_temperature_c: Annotated[float | None, Column("mean temperature of the memory in the loop", SIGNED)]
    sm_clock_hz: Annotated[float | None, Column("mean clock of the multiprocessors in the loop", FROM_0)]
    power_capped_ratio: Annotated[float | None, Column("share of the loop throttled by the power limit", SHARE)]
    thermal_slowdown_ratio: Annotated[float | None, Column("share of the loop throttled by temperature", SHARE)]
    busy_ratio: Annotated[float | None, Column("share of the loop in which a kernel ran, by nvidia-smi", SHARE)]
    power_log: Annotated[str | None, Column("file in `power_logs/` with the raw readings (not in git)")]
    executed_as: Annotated[str, Column("how it ran; what no CUDA graph can hold runs eagerly", one_of(*EXECUTIONS))]
    duty_cycle: Annotated[float | None, Column("largest share of the time in which the load ran; empty: all", SHARE)]
    flags: Annotated[Flags, Column("what programs must know of the measurement, see [flags](#flags)")]
    notes: Annotated[str, Column("what people may want to know: how the run differs from that in the model")]


@dataclass(frozen=True)
class MeasurementRow(Columns):
    """What was measured, under what, with what result; a whole model is an operator like any other.

    Rows with equal keys repeat a measurement: sums prefer those with energy, then undisturbed ones, then the longest
    loop, then the newest.
    """

    key: Annotated[str, Column("operator tuple, values and conditions as three hashes")]
    operator: Annotated[str, OPERATOR]
    measurement: Measurement
    parameters: Annotated[str, PARAMETERS]
    inputs: Annotated[str, INPUTS]
    training_mode: Annotated[str | None, TRAINING_MODE]
    input_data: Annotated[str, INPUT_DATA]
    order_seed: Annotated[int | None, Column("seed of the order of the run's operators; empty: the model's order")]
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
class FailureRow(Columns):
    """One operator or model that could not be measured, and why."""

    key: Annotated[str, Column("that of the row that is lacking")]
    operator: Annotated[str, OPERATOR]
    reason: Annotated[str, Column("why it could not be measured")]
    failed_at: Annotated[str, Column("when that was found", MOMENT)]
    parameters: Annotated[str, PARAMETERS]
    inputs: Annotated[str, INPUTS]
    training_mode: Annotated[str | None, TRAINING_MODE]
    input_data: Annotated[str, INPUT_DATA]
    conditions: Conditions
    circumstances: Circumstances
