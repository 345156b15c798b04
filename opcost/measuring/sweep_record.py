"""Rows of sweeps: the repetitions of each size, the sizes that failed, and the kernels of each size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from opcost.columns import ABOVE_0, COUNT, COUNT_FROM_1, FROM_0, MOMENT, SHARE, SIGNED, Column, Columns, one_of
from opcost.measuring.conditions import DEVICE_UUID, Circumstances, Conditions
from opcost.measuring.record import Measurement
from opcost.operators.sweep_axes import AxisKind


@dataclass(frozen=True)
class SweepPlace(Columns):
    """A size of a sweep. ``units_of_a_run`` is empty if the inputs are those of a user's function."""

    key: Annotated[str, Column("hashes of the model's tuple, input data and conditions: one for each size")]
    model: Annotated[
        str, Column("name of the model, with its precision and memory format if they are not the usual ones")
    ]
    axis: Annotated[str, Column("what varies", one_of(*(kind.value for kind in AxisKind)))]
    size: Annotated[int, Column("value of the axis: pixels of a side, tokens of a sample, or samples", COUNT_FROM_1)]
    units_of_a_run: Annotated[
        int | None, Column("pixels, tokens or samples of a run, of all samples together", COUNT_FROM_1)
    ]


@dataclass(frozen=True)
class IterationTimes(Columns):
    """The times of single iterations, each between two events of the device, after the loop.

    In a graph, each iteration is a replay of a graph of one iteration, whose launch is part of its time.
    """

    iterations_timed: Annotated[int, Column("iterations that were timed one by one", COUNT)]
    iteration_mean_s: Annotated[float | None, Column("their mean time", ABOVE_0)]
    iteration_p5_s: Annotated[float | None, Column("their 5th percentile", ABOVE_0)]
    iteration_p50_s: Annotated[float | None, Column("their median", ABOVE_0)]
    iteration_p95_s: Annotated[float | None, Column("their 95th percentile", ABOVE_0)]

    @staticmethod
    def of(times_s: Sequence[float]) -> IterationTimes:
        if not times_s:
            return IterationTimes(0, None, None, None, None)
        p5, p50, p95 = (float(one) for one in np.quantile(np.array(times_s), (0.05, 0.5, 0.95)))
        return IterationTimes(len(times_s), float(np.mean(times_s)), p5, p50, p95)


@dataclass(frozen=True)
class HostPower(Columns):
    """The mean power of the host's processors and their memory in the loop, by RAPL."""

    cpu_package_power_w: Annotated[float | None, Column("mean power of all CPU packages in the loop", FROM_0)]
    dram_power_w: Annotated[float | None, Column("mean power of the host's memory in the loop", FROM_0)]
    host_power_missing_reason: Annotated[str | None, Column("reason why the power of the packages is empty")]


@dataclass(frozen=True)
class MemoryUse(Columns):
    """The memory of a build: on a GPU torch's tensors and graphs beyond those before it, on a CPU the process's."""

    memory_used_bytes: Annotated[int | None, Column("memory in use after the loop", COUNT)]
    memory_peak_bytes: Annotated[int | None, Column("largest memory in use since the build began", COUNT)]
    memory_missing_reason: Annotated[str | None, Column("reason why the peak is empty")]
    cache_bytes: Annotated[int | None, Column("L2 cache of a GPU", COUNT)] = None


@dataclass(frozen=True)
class Repetition:
    """The result of one repetition; ``times_s`` has the time of each iteration that was timed, in order."""

    measurement: Measurement
    times_s: tuple[float, ...]
    host: HostPower
    memory: MemoryUse


@dataclass(frozen=True)
class SweepRepetitionRow(Columns):
    """One repetition of one size, known by key, board, length of the loop and number.

    Repetitions of a block share one build, that is one load and capture.
    """

    place: SweepPlace
    repetition: Annotated[int, Column("number of the repetition of this size", COUNT_FROM_1)]
    block: Annotated[int, Column("number of the block of repetitions of this size that share one build", COUNT_FROM_1)]
    order_seed: Annotated[int, Column("seed of the random order of the blocks", COUNT)]
    iteration_times: IterationTimes
    iterations_log: Annotated[
        str | None, Column("file in `power_logs/` with the time of each iteration that was timed (not in git)")
    ]
    host: HostPower
    memory: MemoryUse
    measurement: Measurement
    conditions: Conditions
    circumstances: Circumstances


@dataclass(frozen=True)
class SweepFailureRow(Columns):
    """A size that does not fit, or failed in another way; the sweep went on."""

    place: SweepPlace
    reason: Annotated[str, Column("reason why it could not be measured")]
    failed_at: Annotated[str, Column("time of the failure", MOMENT)]
    conditions: Conditions
    circumstances: Circumstances


@dataclass(frozen=True)
class SweepKernelRow(Columns):
    """A kernel of one run of one size by torch's profiler, run eagerly after the repetitions."""

    place: SweepPlace
    kernel: Annotated[str, Column("name of the kernel or copy")]
    calls: Annotated[int, Column("times that it is launched in a run", COUNT_FROM_1)]
    kernel_time_s: Annotated[float, Column("time of all of its launches in a run", FROM_0)]
    profiled_at: Annotated[str, Column("time of the profile", MOMENT)]
    conditions: Conditions
    circumstances: Circumstances


@dataclass(frozen=True)
class KernelUse:
    """A kernel in one run: its launches, and the time of all of them in s."""

    kernel: str
    calls: int
    time_s: float


@dataclass(frozen=True)
class SweepPrediction(Columns):
    """The predicted cost of a run: the corrected sum of its operators, of which those without a row are predicted.

    Bounds are of the interval of 90 %.
    """

    predicted_time_s: Annotated[float | None, Column("predicted time of a run", ABOVE_0)] = None
    predicted_time_lower_s: Annotated[float | None, Column("lower bound of the predicted time", FROM_0)] = None
    predicted_time_upper_s: Annotated[float | None, Column("upper bound of the predicted time", FROM_0)] = None
    predicted_energy_j: Annotated[float | None, Column("predicted energy of a run", ABOVE_0)] = None
    predicted_energy_lower_j: Annotated[float | None, Column("lower bound of the predicted energy", FROM_0)] = None
    predicted_energy_upper_j: Annotated[float | None, Column("upper bound of the predicted energy", FROM_0)] = None
    measured_operators_ratio: Annotated[
        float | None, Column("share of the predicted time in operators that were measured", SHARE)
    ] = None
    prediction_missing_reason: Annotated[str | None, Column("reason why the prediction is empty")] = None


UNPREDICTED = SweepPrediction(prediction_missing_reason="not predicted")


@dataclass(frozen=True)
class SweepFigures(Columns):
    """Medians over the repetitions of a size. Those that are flagged count only if there are no others.

    A spread is 1.4826 median absolute deviations over the median, which a standard deviation equals for normal errors.
    A range is the largest minus the smallest value over the median. Both are empty for a single repetition.
    """

    repetitions: Annotated[int, Column("repetitions that count", COUNT)]
    flagged_repetitions: Annotated[int, Column("repetitions with a flag that casts doubt", COUNT)]
    time_s: Annotated[float | None, Column("median of the times of an iteration in the loop", ABOVE_0)] = None
    time_spread_ratio: Annotated[float | None, Column("spread of these times", FROM_0)] = None
    time_range_ratio: Annotated[float | None, Column("range of these times", FROM_0)] = None
    energy_j: Annotated[float | None, Column("median of the energies, normalised to 50 °C if all are", ABOVE_0)] = None
    energy_spread_ratio: Annotated[float | None, Column("spread of these energies", FROM_0)] = None
    energy_range_ratio: Annotated[float | None, Column("range of these energies", FROM_0)] = None
    energy_missing_reason: Annotated[str | None, Column("reason why the energy is empty")] = None
    iteration_p5_s: Annotated[float | None, Column("median of the 5th percentiles of single iterations", ABOVE_0)] = (
        None
    )
    iteration_p50_s: Annotated[float | None, Column("median of the medians of single iterations", ABOVE_0)] = None
    iteration_p95_s: Annotated[float | None, Column("median of the 95th percentiles of single iterations", ABOVE_0)] = (
        None
    )
    power_w: Annotated[float | None, Column("median of the device's mean powers", ABOVE_0)] = None
    cpu_package_power_w: Annotated[float | None, Column("median of the powers of all CPU packages", FROM_0)] = None
    dram_power_w: Annotated[float | None, Column("median of the powers of the host's memory", FROM_0)] = None
    temperature_c: Annotated[float | None, Column("median temperature of the chip", SIGNED)] = None
    sm_clock_hz: Annotated[float | None, Column("median clock of the multiprocessors", FROM_0)] = None
    busy_ratio: Annotated[float | None, Column("median share of the loop in which a kernel ran", SHARE)] = None
    power_capped_ratio: Annotated[float | None, Column("median share of the loop at the power limit", SHARE)] = None
    memory_used_bytes: Annotated[int | None, Column("median of the memory in use", COUNT)] = None
    memory_peak_bytes: Annotated[int | None, Column("median of the largest memory in use", COUNT)] = None
    cache_bytes: Annotated[int | None, Column("L2 cache of a GPU", COUNT)] = None
    time_per_unit_s: Annotated[float | None, Column("time over the pixels, tokens or samples of a run", ABOVE_0)] = None
    energy_per_unit_j: Annotated[
        float | None, Column("energy over the pixels, tokens or samples of a run", ABOVE_0)
    ] = None


@dataclass(frozen=True)
class SweepWork(Columns):
    """The work of a run, as it was counted for the prediction; empty if it was not."""

    flop: Annotated[int | None, Column("floating-point operations of a run", COUNT)] = None
    memory_bytes: Annotated[int | None, Column("bytes that the operators of a run read and write", COUNT)] = None
    largest_call_bytes: Annotated[int | None, Column("inputs and outputs of the call with most of them", COUNT)] = None
    kernels: Annotated[int | None, Column("kernels of a run, by the profiler; empty: not profiled", COUNT)] = None
    kernels_time_s: Annotated[float | None, Column("time of these kernels", FROM_0)] = None


UNKNOWN_WORK = SweepWork()


@dataclass(frozen=True)
class SweepSizeRow(Columns):
    """A size of a sweep on one board, measured, predicted or both. A sweep replaces its rows."""

    place: SweepPlace
    figures: SweepFigures
    prediction: SweepPrediction
    work: SweepWork
    failure: Annotated[str | None, Column("reason why the size has no repetition; empty if it has, or was not tried")]
    device_uuid: Annotated[str | None, DEVICE_UUID]
    loop_s: Annotated[float | None, Column("requested length of the loop; empty: only predicted", ABOVE_0)]
    conditions: Conditions

    @property
    def identity(self) -> tuple[object, ...]:
        return self.place.key, self.device_uuid, self.loop_s
