"""Measurements and the rows of measurements and failures in the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Protocol, TypeAlias

from opcost.columns import ABOVE_0, COUNT, COUNT_FROM_1, FROM_0, MOMENT, SHARE, SIGNED, Column, Columns, one_of
from opcost.estimates import Estimate, estimate_of, ratio_if_known, standard_error_of, sum_of_independent, value_of
from opcost.measuring.conditions import DEVICE_UUID, EXECUTIONS, Circumstances, Conditions
from opcost.measuring.flags import (
    AT_LIMIT,
    CASTING_DOUBT,
    LEAVING_CLOCKS_LOW,
    OTHER_WORK,
    POSSIBLY_THROTTLED,
    Flag,
    Flags,
)
from opcost.measuring.protocol import DUTY_CYCLES
from opcost.operators.counts import COUNTED, INPUT_DATA, MODEL, PHASE, Case, CaseColumns
from opcost.operators.tuples import Phase

REFERENCE_TEMPERATURE_C = 50.0
"""Temperature to which energies are normalised: in the middle of the range that operators reach on an H200 (45 to
62 °C)."""

COEFFICIENT_SPREAD_PER_KELVIN = 0.0015
"""Standard deviation of operators' power temperature coefficients from their board's: coefficients of four operators on
two H200 were 0.22 to 0.52 % per kelvin (``docs/log/meters.md``)."""

COEFFICIENT_ERROR_PER_KELVIN = 0.001
"""Standard error of a board's power temperature coefficient if rows do not hold it: qualifications gave 0.03 to 0.1 %
per kelvin."""

FAR_ABOVE_LIMIT_RATIO = 1.14
"""Share of the power limit above which a load is throttled at once. Some loads of up to 1.12 run at full clocks for
0.3 s (H100, H200; ``docs/log/power_limit.md``)."""

LASTING_LIMIT_RATIO = 1.02
"""Share of the power limit above which no lasting load draws: the limiter keeps loops of a second and more at up to
0.9993 (806 rows, H100, H200), and meters that agree within 2 % count as equal."""

LEAST_SETTLED_LOOP_S = 2.3
"""The shortest loop of a whole in which its clocks have settled, or settle soon: two and a half swings of 0.9 s. In
shorter loops throttled wholes still have 98 % to 99 % of full clocks (``docs/log/power_limit.md``)."""

IMPOSSIBLE_POWER = "impossible-power"
IMPOSSIBLE_POWER_MEANING = "power above what the board can draw"
"""The name among those of flags, and the meaning, of a power that is impossible."""


@dataclass(frozen=True)
class Measurement(Columns):
    """Time and energy per iteration, with the loop and the readings that they were calculated from.

    Energy and power are None if no meter gave enough readings. Outliers are beyond three standard deviations. With few
    ``power_readings`` (3 to 10), intervals need Student's factor. ``busy_ratio`` is a mean of readings over about 0.2 s
    each. Beside the ``power_log``, the files ``…-samples.csv`` and ``…-counter.csv`` hold NVML's samples and the energy
    counter's ticks. Programs read flags only; notes are for people. ``builds`` are of whole models only (None: one, by
    a former version); one build has no range.
    """

    time_s: Annotated[float, Column("time per iteration", ABOVE_0)]
    energy_j: Annotated[float | None, Column("energy per iteration", ABOVE_0)]
    time_standard_error_s: Annotated[float, Column("standard error of the time", FROM_0)]
    energy_standard_error_j: Annotated[float | None, Column("standard error of the energy", FROM_0)]
    energy_missing_reason: Annotated[str | None, Column("reason why the energy is empty")]
    time_median_s: Annotated[float | None, Column("median over the loop's chunks", ABOVE_0)]
    time_without_outliers_s: Annotated[float | None, Column("mean over the loop's chunks without outliers", ABOVE_0)]
    power_median_w: Annotated[float | None, Column("median of the readings", FROM_0)]
    power_without_outliers_w: Annotated[float | None, Column("mean of the readings without outliers", FROM_0)]
    energy_at_reference_j: Annotated[
        float | None, Column("energy normalised to 50 °C; empty if the board is not qualified", ABOVE_0)
    ]
    energy_at_reference_standard_error_j: Annotated[
        float | None, Column("standard error of the normalised energy", FROM_0)
    ]
    power_w: Annotated[float | None, Column("mean power in the loop", ABOVE_0)]
    power_standard_error_w: Annotated[float | None, Column("standard error of the mean power", FROM_0)]
    power_readings: Annotated[int, Column("number of independent readings of the mean power", COUNT)]
    meter: Annotated[str, Column("meter and field of the mean power")]
    check_power_w: Annotated[float | None, Column("mean power by the next best meter", FROM_0)]
    check_power_standard_error_w: Annotated[float | None, Column("standard error of `check_power_w`", FROM_0)]
    check_meter: Annotated[str | None, Column("meter and field of `check_power_w`")]
    iterations: Annotated[int, Column("counted iterations of the loop", COUNT)]
    loop_time_s: Annotated[float, Column("length of the loop, including iterations that are not counted", ABOVE_0)]
    started_at: Annotated[str, Column("begin of the loop", MOMENT)]
    ended_at: Annotated[str, Column("end of the loop", MOMENT)]
    temperature_c: Annotated[float | None, Column("mean temperature of the chip in the loop", SIGNED)]
    memory_temperature_c: Annotated[float | None, Column("mean temperature of the memory in the loop", SIGNED)]
    sm_clock_hz: Annotated[float | None, Column("mean clock of the multiprocessors in the loop", FROM_0)]
    power_capped_ratio: Annotated[float | None, Column("share of the loop throttled by the power limit", SHARE)]
    thermal_slowdown_ratio: Annotated[float | None, Column("share of the loop throttled by temperature", SHARE)]
    busy_ratio: Annotated[float | None, Column("share of the loop in which a kernel ran, by nvidia-smi", SHARE)]
    power_log: Annotated[str | None, Column("file in `power_logs/` with the raw readings (not in git)")]
    executed_as: Annotated[
        str, Column("actual execution; `eager` if a CUDA graph cannot capture the calls", one_of(*EXECUTIONS))
    ]
    duty_cycle: Annotated[float | None, Column("largest share of the time at work; empty: no pauses", SHARE)]
    flags: Annotated[Flags, Column("named properties of the measurement, see [flags](#flags)")]
    notes: Annotated[str, Column("free text for people, such as differences from the run in the model")]
    builds: Annotated[
        int | None, Column("builds of a whole model, of which this is the one with the median time", COUNT_FROM_1)
    ] = None
    builds_time_range_ratio: Annotated[
        float | None, Column("longest minus shortest time of the builds, over their median", FROM_0)
    ] = None
    builds_energy_range_ratio: Annotated[
        float | None, Column("the same for their energies, normalised if all are known", FROM_0)
    ] = None
    waits: Annotated[
        int | None, Column("waits for the device between the pieces of a graph; empty: not in pieces", COUNT_FROM_1)
    ] = None
    call_memory_peak_bytes: Annotated[
        int | None,
        Column(
            "most memory of the device in one call of a whole model, or of an operator in its state, with weights and "
            "inputs; empty: unknown",
            COUNT,
        ),
    ] = None
    far_launches_s: Annotated[
        float | None,
        Column(
            "part of the time of an operator in its state that launches and fills of memory take longer than in its "
            "loop, because their graph comes from memory, as in a model that fits into no cache; empty: unknown",
            FROM_0,
        ),
    ] = None

    @property
    def time(self) -> Estimate:
        return Estimate(self.time_s, self.time_standard_error_s)

    @property
    def energy(self) -> Estimate | None:
        return estimate_of(self.energy_j, self.energy_standard_error_j)

    @property
    def energy_at_reference(self) -> Estimate | None:
        return estimate_of(self.energy_at_reference_j, self.energy_at_reference_standard_error_j)

    def with_figures(self, time_s: Estimate, energy_j: Estimate | None, at_reference_j: Estimate | None) -> Measurement:
        return replace(
            self,
            time_s=time_s.value,
            time_standard_error_s=time_s.standard_error,
            energy_j=value_of(energy_j),
            energy_standard_error_j=standard_error_of(energy_j),
            energy_at_reference_j=value_of(at_reference_j),
            energy_at_reference_standard_error_j=standard_error_of(at_reference_j),
        )


MeasuredCases: TypeAlias = tuple[tuple[Case, Measurement], ...]
"""The cases of one measurement: the one that was asked for, then the phases that were measured with it."""


@dataclass(frozen=True)
class StepTimes(Columns):
    """The time that a measurement took with all its loops, and that of each step, unknown in the process of the
    campaign.

    All are empty in rows of versions before 0.3.
    """

    taken_s: Annotated[float | None, Column("time that the measurement took, with everything it repeated", FROM_0)] = (
        None
    )
    building_s: Annotated[float | None, Column("part of it: building, first calls, and rests of the GPU", FROM_0)] = (
        None
    )
    warming_up_s: Annotated[float | None, Column("part of it: warm-up", FROM_0)] = None
    looping_s: Annotated[float | None, Column("part of it: loops", FROM_0)] = None
    reading_meters_s: Annotated[float | None, Column("part of it: last readings and evaluation", FROM_0)] = None


@dataclass(frozen=True, kw_only=True)
class MeasurementRow(CaseColumns):
    """One measurement of an operator or a whole model, with its conditions and circumstances.

    Rows with equal keys repeat a measurement. Sums prefer rows with energy, then rows that are not flagged, then
    rows of the whole model's board, then those of the most builds, then the longest loop, then the newest row.
    """

    ORDER: ClassVar = ("key", "operator", "measurement")

    key: Annotated[str, Column("hashes of operator tuple, input data and conditions")]
    measurement: Measurement
    order_seed: Annotated[int | None, Column("seed of the campaign's random order; empty: the model's order")]
    conditions: Conditions
    circumstances: Circumstances
    step_times: StepTimes = StepTimes()


def time_of(row: MeasurementRow) -> Estimate:
    """Return a row's time per iteration in s."""
    return row.measurement.time


def ran_as_requested(row: MeasurementRow) -> bool:
    """Return whether a row has the requested execution; what a CUDA graph cannot capture ran eagerly."""
    return row.measurement.executed_as == row.conditions.execution


def is_flagged(measurement: Measurement) -> bool:
    """Return whether a flag casts doubt on a measurement."""
    return not CASTING_DOUBT.isdisjoint(measurement.flags)


class Measured(Protocol):
    """Anything with a measurement and its conditions, such as a row."""

    @property
    def measurement(self) -> Measurement: ...

    @property
    def conditions(self) -> Conditions: ...


def is_above_limit(power_w: float | None, power_limit_w: float | None) -> bool:
    """Return whether a mean power is above what a lasting load can draw; False if one of both is unknown."""
    return power_w is not None and power_limit_w is not None and power_w > LASTING_LIMIT_RATIO * power_limit_w


def has_impossible_power(row: Measured) -> bool:
    """Return whether a row has a power that its board cannot draw, so that its meter or its time is wrong."""
    measured, limit_w = row.measurement, row.conditions.device_power_limit_w
    if measured.power_w is None or limit_w is None:
        return False
    most_ratio = LASTING_LIMIT_RATIO if measured.loop_time_s >= LEAST_SETTLED_LOOP_S else FAR_ABOVE_LIMIT_RATIO
    if not {Flag.DUTY_CYCLE, Flag.ABOVE_POWER_LIMIT}.isdisjoint(measured.flags):
        # Pauses keep the mean below the limit; at work a load may draw more (up to 1.49, H200).
        most_ratio = 1 / min(DUTY_CYCLES)
    return measured.power_w > most_ratio * limit_w


def is_doubtful(row: Measured) -> bool:
    """Return whether a flag casts doubt on a row, or its power is impossible."""
    return is_flagged(row.measurement) or has_impossible_power(row)


def names_of(row: Measured, flags: Flags) -> tuple[str, ...]:
    """Return the names of some of a row's flags, and ``IMPOSSIBLE_POWER``, which is no flag in tables, if it has it."""
    return (*(flag.value for flag in flags), *([IMPOSSIBLE_POWER] if has_impossible_power(row) else []))


def quality_flags(measurement: Measurement) -> Flags:
    """Return the flags that cast doubt on a measurement, and those of an imprecise one and of other work."""
    of_quality = CASTING_DOUBT | OTHER_WORK | {Flag.IMPRECISE}
    return tuple(flag for flag in measurement.flags if flag in of_quality)


def does_other_work(measurement: Measurement) -> bool:
    """Return whether an operator is known to do other work than was counted in its model."""
    return not OTHER_WORK.isdisjoint(measurement.flags)


def may_be_throttled(measurement: Measurement) -> bool:
    """Return whether a load or its overhead was throttled by the power limit, or may have been."""
    return not POSSIBLY_THROTTLED.isdisjoint(measurement.flags)


def is_at_power_limit(measurement: Measurement) -> bool:
    """Return whether a load draws the power limit, so that it is throttled if it lasts."""
    return not AT_LIMIT.isdisjoint(measurement.flags)


def leaves_clocks_low(measurement: Measurement) -> bool:
    """Return whether clocks may still be low afterwards, as not after a load that was ended before it was throttled."""
    is_ended_before = Flag.ABOVE_POWER_LIMIT in measurement.flags and Flag.POWER_CAPPED not in measurement.flags
    return not is_ended_before and not LEAVING_CLOCKS_LOW.isdisjoint(measurement.flags)


@dataclass(frozen=True, kw_only=True)
class FailureRow(CaseColumns):
    """One operator or model that could not be measured, with the reason."""

    ORDER: ClassVar = ("key", "operator", "reason", "failed_at")

    key: Annotated[str, Column("key of the missing row")]
    reason: Annotated[str, Column("reason why it could not be measured")]
    failed_at: Annotated[str, Column("time of the failure", MOMENT)]
    conditions: Conditions
    circumstances: Circumstances


NOTICEABLE_RANGE_RATIO = 0.01
"""Range of the builds' times over their median from which people are informed: builds of one state are within 0.2 %."""


def are_different(time_range_ratio: float | None) -> bool:
    """Return whether builds with this range of times over their median differ noticeably; False if it is unknown."""
    return (time_range_ratio or 0.0) > NOTICEABLE_RANGE_RATIO


# Rows from which sums are corrected and with which they are compared


@dataclass(frozen=True)
class Excess:
    """Additional time in s and energy in J; the energy is None if unknown."""

    time_s: Estimate
    energy_j: Estimate | None

    def times(self, count: float) -> Excess:
        return Excess(self.time_s.times(count), None if self.energy_j is None else self.energy_j.times(count))


@dataclass(frozen=True)
class ChainRow(Columns):
    """Additional cost of a call in a chain over a call in a loop of itself, for one kind and size of operator.

    If the time is empty, the measurement was refused; ``notes`` holds the reason.
    """

    kind: Annotated[str, Column("kind of operator")]
    memory_bytes: Annotated[int, Column("bytes that a call reads and writes, without weights", COUNT_FROM_1)]
    calls: Annotated[int, Column("calls of this kind in the chain", COUNT_FROM_1)]
    time_s: Annotated[float | None, Column("additional time of one call, may be below 0; empty if refused", SIGNED)]
    time_standard_error_s: Annotated[float | None, Column("standard error of the time", ABOVE_0)]
    energy_j: Annotated[
        float | None, Column("additional energy of one call, may be below 0; at 50 °C if all can be normalised", SIGNED)
    ]
    energy_standard_error_j: Annotated[float | None, Column("standard error of the energy", ABOVE_0)]
    measured_at: Annotated[str, Column("end of the chain's loop", MOMENT)]
    device_uuid: Annotated[str | None, DEVICE_UUID]
    notes: Annotated[str, Column("flags and notes of the chain's measurement, or the reason why it was refused")]
    design: Annotated[str, Column("version and number of blocks of the chains; a shorter stream; another dtype")]
    conditions: Conditions

    @property
    def excess(self) -> Excess | None:
        time_s = estimate_of(self.time_s, self.time_standard_error_s)
        energy_j = estimate_of(self.energy_j, self.energy_standard_error_j)
        return None if time_s is None else Excess(time_s, energy_j)


@dataclass(frozen=True)
class KernelTimeRow(Columns):
    """One kind of operator in one run of a model; times are the kernel times of all calls."""

    key: Annotated[str, Column("hashes of the model and the conditions")]
    name: Annotated[str, MODEL]
    operator: Annotated[str, Column("kind of operator, such as `torch.nn.Conv2d`")]
    calls: Annotated[int, Column("calls in one run", COUNT)]
    in_model_time_s: Annotated[float, Column("kernel time in the model", FROM_0)]
    alone_time_s: Annotated[
        float | None, Column("kernel time of the same calls alone; empty if one cannot run alone", FROM_0)
    ]
    same_kernels_time_s: Annotated[
        float, Column("part of `in_model_time_s` in calls that launch the same kernels when alone", FROM_0)
    ]
    profiled_at: Annotated[str, Column("time of profiling", MOMENT)]
    conditions: Conditions


UNIT_OF: Mapping[str, str] = {"time": "s", "energy": "j"}
PARTS = ("full_", "", "function_", "correction_", "power_limit_", "dropped_", "unmeasured_", "unexplained_")
"""The beginnings of columns with costs of a comparison, in the order of the fields of ``Costs``; of the sum none."""


@dataclass(frozen=True)
class Costs:
    """The times in s or energies in J of a comparison, None if unknown: whole, sum, its functions, other parts."""

    whole: float | None
    summed: float | None
    functions: float | None
    correction: float | None
    power_limit: float | None
    dropped: float | None
    unmeasured: float | None
    unexplained: float | None

    def over_whole(self, cost: float | None) -> float | None:
        return ratio_if_known(cost, self.whole)


@dataclass(frozen=True)
class ComparisonRow(Columns):
    """A model's summed operators and the measured whole model, under one set of conditions.

    The whole is the sum (modules and functions), the cache correction, what the power limit adds, dropped operators,
    unmeasured operators, and the unexplained rest. Expected costs of an eager run are derived from rows of eager loops
    and of graphs, kernel errors from ``kernel_times.csv``.
    """

    key: Annotated[str, Column("key of the whole model's row")]
    operator: Annotated[str, Column("the model as an operator, such as `torchvision.models.resnet50`")]
    time_s: Annotated[float | None, Column("time of the sum")]
    energy_j: Annotated[float | None, Column("energy of the sum")]
    name: Annotated[str, MODEL]
    input_data: Annotated[str, Column("requested input data of the operators", one_of(*INPUT_DATA))]
    counted: Annotated[str, Column("summed operators: all, or leaf modules only", one_of(*COUNTED))]
    time_standard_error_s: Annotated[float | None, Column("standard error of the sum's time")]
    energy_standard_error_j: Annotated[float | None, Column("standard error of the sum's energy")]
    full_time_s: Annotated[float, Column("time of the whole model", ABOVE_0)]
    full_time_standard_error_s: Annotated[float, Column("standard error of the whole model's time")]
    full_energy_j: Annotated[float | None, Column("energy of the whole model", ABOVE_0)]
    full_energy_standard_error_j: Annotated[float | None, Column("standard error of the whole model's energy")]
    reference_temperature_c: Annotated[float | None, Column("temperature of the energies; empty: as measured")]
    time_ratio: Annotated[float | None, Column("time of the sum / of the whole model")]
    time_standard_error_ratio: Annotated[float | None, Column("standard error of the ratio of times")]
    energy_ratio: Annotated[float | None, Column("energy of the sum / of the whole model")]
    energy_standard_error_ratio: Annotated[float | None, Column("standard error of the ratio of energies")]
    function_time_s: Annotated[float | None, Column("part of the sum's time in functions")]
    function_energy_j: Annotated[float | None, Column("part of the sum's energy in functions")]
    correction_time_s: Annotated[float | None, Column("cache correction of the time, not included in the sum")]
    correction_time_standard_error_s: Annotated[float | None, Column("standard error of that correction")]
    correction_energy_j: Annotated[float | None, Column("cache correction of the energy, not included in the sum")]
    correction_energy_standard_error_j: Annotated[float | None, Column("standard error of that correction")]
    power_limit_time_s: Annotated[
        float | None, Column("time that lower clocks at the power limit add, not included in the sum")
    ]
    power_limit_time_standard_error_s: Annotated[float | None, Column("standard error of that time")]
    power_limit_energy_j: Annotated[
        float | None,
        Column(
            "energy at the power limit and the temperature of the run, less that of the sum; not included in the sum"
        ),
    ]
    power_limit_energy_standard_error_j: Annotated[float | None, Column("standard error of that energy")]
    dropped_time_s: Annotated[
        float | None, Column("time of operators that are not in the whitelist, predicted if not measured")
    ]
    dropped_energy_j: Annotated[
        float | None, Column("energy of operators that are not in the whitelist, predicted if not measured")
    ]
    unmeasured_time_s: Annotated[float | None, Column("predicted time of operators without a row")]
    unmeasured_energy_j: Annotated[float | None, Column("predicted energy of operators without a row")]
    unexplained_time_s: Annotated[float | None, Column("whole model minus all other parts")]
    unexplained_energy_j: Annotated[float | None, Column("whole model minus all other parts")]
    eager_device_time_s: Annotated[float | None, Column("expected time of an eager run on the device")]
    eager_launch_time_s: Annotated[float | None, Column("expected time of its launches on the host")]
    eager_energy_j: Annotated[float | None, Column("expected energy of an eager run")]
    kernel_error_ratio: Annotated[
        float | None, Column("kernel time alone minus that in the model, relative to the latter, with signs")
    ]
    absolute_kernel_error_ratio: Annotated[
        float | None, Column("the same, but magnitudes summed over kinds of operators")
    ]
    energy_missing_reason: Annotated[str | None, Column("reason why an energy is empty")]
    flop_ratio: Annotated[float | None, Column("share of the model's FLOPs in the sum")]
    memory_bytes_ratio: Annotated[float | None, Column("share of the model's bytes in the sum")]
    flop_missing_reason: Annotated[str | None, Column("reason why the model's FLOPs are unknown")]
    summed_operators: Annotated[int, Column("number of operator tuples in the sum", COUNT)]
    missing_operators: Annotated[int, Column("number of operator tuples without a row", COUNT)]
    missing: Annotated[str, Column("operator tuples without a row, separated by |")]
    remarks: Annotated[str, Column("remarks in words, separated by |")]
    compared_at: Annotated[str, Column("time of the comparison", MOMENT)]
    conditions: Annotated[Conditions, Column("conditions of the summed operators")]
    phase: Annotated[Phase, PHASE] = Phase.INFERENCE

    def costs(self, quantity: str) -> Costs:
        """Return the costs in ``time`` or ``energy``."""
        name = f"{quantity}_{UNIT_OF[quantity]}"
        return Costs(*(getattr(self, f"{part}{name}") for part in PARTS))

    def estimate(self, quantity: str, part: str = "", unit: str | None = None) -> Estimate | None:
        """Return a cost with its error, of the sum or of one of ``PARTS``; None if it is unknown."""
        end = UNIT_OF[quantity] if unit is None else unit
        values = (getattr(self, f"{part}{quantity}{name}_{end}") for name in ("", "_standard_error"))
        return estimate_of(*values)

    def correction(self, quantity: str) -> Estimate | None:
        """Return cache correction and power limit's part, which is left out if unknown, of ``time`` or ``energy``."""
        cache, limit = (self.estimate(quantity, part) for part in ("correction_", "power_limit_"))
        return cache if cache is None or limit is None else sum_of_independent([cache, limit])

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """Model, conditions and values: a newer comparison replaces an older one of the same identity."""
        return self.name, self.key, self.input_data, self.counted, self.conditions.cache
