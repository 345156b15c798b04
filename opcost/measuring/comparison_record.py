"""Rows from which sums are corrected and with which they are compared: chains, kernel times, and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from opcost.columns import ABOVE_0, COUNT, COUNT_FROM_1, FROM_0, MOMENT, SIGNED, Column, Columns, one_of
from opcost.estimates import Estimate, estimate_of, ratio_if_known, sum_of_independent
from opcost.measuring.conditions import DEVICE_UUID, Conditions
from opcost.operators.cases import COUNTED, INPUT_DATA, MODEL


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
        """Time and energy with their errors; None if refused."""
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


@dataclass(frozen=True)
class Costs:
    """The times in s or the energies in J of a comparison: the whole, the sum and its functions, and the other parts.

    Those that are unknown are None.
    """

    whole: float | None
    summed: float | None
    functions: float | None
    correction: float | None
    power_limit: float | None
    dropped: float | None
    unmeasured: float | None
    unexplained: float | None

    def over_whole(self, cost: float | None) -> float | None:
        """Return one of these costs as a share of the whole, None if one of both is unknown."""
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

    def costs(self, quantity: str) -> Costs:
        """Return the costs in ``time`` or ``energy``."""
        if quantity == "time":
            return Costs(
                *(self.full_time_s, self.time_s, self.function_time_s, self.correction_time_s),
                *(self.power_limit_time_s, self.dropped_time_s, self.unmeasured_time_s, self.unexplained_time_s),
            )
        return Costs(
            *(self.full_energy_j, self.energy_j, self.function_energy_j, self.correction_energy_j),
            *(self.power_limit_energy_j, self.dropped_energy_j, self.unmeasured_energy_j, self.unexplained_energy_j),
        )

    def correction(self, quantity: str) -> Estimate | None:
        """Return all that corrects the sum of ``time`` or ``energy``: the cache correction and the power limit's part.

        None if the cache correction is unknown. An unknown part of the power limit is left out.
        """
        if quantity == "time":
            cache = estimate_of(self.correction_time_s, self.correction_time_standard_error_s)
            limit = estimate_of(self.power_limit_time_s, self.power_limit_time_standard_error_s)
        else:
            cache = estimate_of(self.correction_energy_j, self.correction_energy_standard_error_j)
            limit = estimate_of(self.power_limit_energy_j, self.power_limit_energy_standard_error_j)
        return cache if cache is None or limit is None else sum_of_independent([cache, limit])

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """Model, conditions and values: a newer comparison replaces an older one of the same identity."""
        return self.name, self.key, self.input_data, self.counted, self.conditions.cache
