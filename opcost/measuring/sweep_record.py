"""Rows of sweeps: the repetitions of each size, the sizes that failed, and the kernels of each size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from opcost.columns import ABOVE_0, COUNT, COUNT_FROM_1, FROM_0, MOMENT, Column, Columns, one_of
from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.record import Measurement
from opcost.operators.sweep_axes import AxisKind

KEY = Column("hashes of the model's tuple, input data and conditions: one for each size")
MODEL = Column("name of the model, with its precision and memory format if they are not the usual ones")
AXIS = Column("what varies", one_of(*(kind.value for kind in AxisKind)))
SIZE = Column("value of the axis: pixels of a side, tokens of a sample, or samples", COUNT_FROM_1)
UNITS_OF_A_RUN = Column("pixels, tokens or samples of a run, of all samples together", COUNT_FROM_1)


@dataclass(frozen=True)
class SweepPlace(Columns):
    """A size of a sweep. ``units_of_a_run`` is empty if the inputs are those of a user's function."""

    key: Annotated[str, KEY]
    model: Annotated[str, MODEL]
    axis: Annotated[str, AXIS]
    size: Annotated[int, SIZE]
    units_of_a_run: Annotated[int | None, UNITS_OF_A_RUN]


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
        """Return the quantiles of some times in s; None without any."""
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
