"""Rows of ``sum_vs_full.csv``: each column with the function that gives its value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, TypeVar

from opcost.columns import ABOVE_0, COUNT, MOMENT, Column, Columns, one_of
from opcost.comparing.cache_chain_rows import Excess
from opcost.comparing.comparison import Comparison
from opcost.comparing.eager_regime import EagerCost
from opcost.comparing.gap import Gap
from opcost.comparing.kernel_times import KernelErrors
from opcost.comparing.remark_rules import remarks_on_kernels
from opcost.comparing.remarks import Remark, all_worded
from opcost.estimates import Estimate, estimate_of, standard_error_of, sum_of_independent, value_of
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import COUNTED, INPUT_DATA, MODEL
from opcost.summing.summation import ModelCost

Value = TypeVar("Value")

GETTER = "getter"


@dataclass(frozen=True)
class RowSource:
    """The data of a row: model name, comparison, kernel errors if known, and time of the comparison."""

    name: str
    comparison: Comparison
    kernels: KernelErrors | None
    compared_at: str

    @property
    def full(self) -> MeasurementRow:
        return self.comparison.full

    @property
    def cost(self) -> ModelCost:
        return self.comparison.cost

    @property
    def gap(self) -> Gap:
        """The parts of the whole model's cost."""
        return self.comparison.gap

    @property
    def eager(self) -> EagerCost | None:
        return self.comparison.eager

    @property
    def energy_missing_reason(self) -> str | None:
        """The reason why the sum or the whole model has no energy."""
        return self.cost.energy_missing_reason or self.full.measurement.energy_missing_reason

    @property
    def remarks(self) -> tuple[Remark, ...]:
        return (*self.comparison.remarks, *remarks_on_kernels(self.kernels))


def _time_of(part: Excess | None) -> Estimate | None:
    return None if part is None else part.time_s


def _energy_of(part: Excess | None) -> Estimate | None:
    return None if part is None else part.energy_j


def _of(get: Callable[[RowSource], Value]) -> Value:
    declared: Value = field(metadata={GETTER: get})
    return declared


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
        return None if cost is None or not self.whole else cost / self.whole


@dataclass(frozen=True)
class ComparisonRow(Columns):
    """A model's summed operators and the measured whole model, under one set of conditions.

    The whole is the sum (modules and functions), the cache correction, what the power limit adds, dropped operators,
    unmeasured operators, and the unexplained rest. Expected costs of an eager run are derived from rows of eager loops
    and of graphs, kernel errors from ``kernel_times.csv``.
    """

    key: Annotated[str, Column("key of the whole model's row")] = _of(lambda one: one.full.key)
    operator: Annotated[str, Column("the model as an operator, such as `torchvision.models.resnet50`")] = _of(
        lambda one: one.full.operator
    )
    time_s: Annotated[float | None, Column("time of the sum")] = _of(lambda one: value_of(one.cost.time_s))
    energy_j: Annotated[float | None, Column("energy of the sum")] = _of(lambda one: value_of(one.cost.energy_j))
    name: Annotated[str, MODEL] = _of(lambda one: one.name)
    input_data: Annotated[str, Column("requested input data of the operators", one_of(*INPUT_DATA))] = _of(
        lambda one: one.comparison.runs.input_data
    )
    counted: Annotated[str, Column("summed operators: all, or leaf modules only", one_of(*COUNTED))] = _of(
        lambda one: one.comparison.runs.counted
    )
    time_standard_error_s: Annotated[float | None, Column("standard error of the sum's time")] = _of(
        lambda one: standard_error_of(one.cost.time_s)
    )
    energy_standard_error_j: Annotated[float | None, Column("standard error of the sum's energy")] = _of(
        lambda one: standard_error_of(one.cost.energy_j)
    )
    full_time_s: Annotated[float, Column("time of the whole model", ABOVE_0)] = _of(
        lambda one: one.full.measurement.time_s
    )
    full_time_standard_error_s: Annotated[float, Column("standard error of the whole model's time")] = _of(
        lambda one: one.full.measurement.time_standard_error_s
    )
    full_energy_j: Annotated[float | None, Column("energy of the whole model", ABOVE_0)] = _of(
        lambda one: value_of(one.comparison.full_energy_j)
    )
    full_energy_standard_error_j: Annotated[float | None, Column("standard error of the whole model's energy")] = _of(
        lambda one: standard_error_of(one.comparison.full_energy_j)
    )
    reference_temperature_c: Annotated[float | None, Column("temperature of the energies; empty: as measured")] = _of(
        lambda one: one.cost.basis.temperature_c
    )
    time_ratio: Annotated[float | None, Column("time of the sum / of the whole model")] = _of(
        lambda one: value_of(one.comparison.time_ratio)
    )
    time_standard_error_ratio: Annotated[float | None, Column("standard error of the ratio of times")] = _of(
        lambda one: standard_error_of(one.comparison.time_ratio)
    )
    energy_ratio: Annotated[float | None, Column("energy of the sum / of the whole model")] = _of(
        lambda one: value_of(one.comparison.energy_ratio)
    )
    energy_standard_error_ratio: Annotated[float | None, Column("standard error of the ratio of energies")] = _of(
        lambda one: standard_error_of(one.comparison.energy_ratio)
    )
    function_time_s: Annotated[float | None, Column("part of the sum's time in functions")] = _of(
        lambda one: one.gap.functions.time_s
    )
    function_energy_j: Annotated[float | None, Column("part of the sum's energy in functions")] = _of(
        lambda one: one.gap.functions.energy_j
    )
    correction_time_s: Annotated[float | None, Column("cache correction of the time, not included in the sum")] = _of(
        lambda one: value_of(_time_of(one.gap.correction))
    )
    correction_time_standard_error_s: Annotated[float | None, Column("standard error of that correction")] = _of(
        lambda one: standard_error_of(_time_of(one.gap.correction))
    )
    correction_energy_j: Annotated[float | None, Column("cache correction of the energy, not included in the sum")] = (
        _of(lambda one: value_of(_energy_of(one.gap.correction)))
    )
    correction_energy_standard_error_j: Annotated[float | None, Column("standard error of that correction")] = _of(
        lambda one: standard_error_of(_energy_of(one.gap.correction))
    )
    power_limit_time_s: Annotated[
        float | None, Column("time that lower clocks at the power limit add, not included in the sum")
    ] = _of(lambda one: value_of(_time_of(one.gap.power_limit)))
    power_limit_time_standard_error_s: Annotated[float | None, Column("standard error of that time")] = _of(
        lambda one: standard_error_of(_time_of(one.gap.power_limit))
    )
    power_limit_energy_j: Annotated[
        float | None,
        Column(
            "energy at the power limit and the temperature of the run, less that of the sum; not included in the sum"
        ),
    ] = _of(lambda one: value_of(_energy_of(one.gap.power_limit)))
    power_limit_energy_standard_error_j: Annotated[float | None, Column("standard error of that energy")] = _of(
        lambda one: standard_error_of(_energy_of(one.gap.power_limit))
    )
    dropped_time_s: Annotated[
        float | None, Column("time of operators that are not in the whitelist, predicted if not measured")
    ] = _of(lambda one: one.gap.dropped.time_s)
    dropped_energy_j: Annotated[
        float | None, Column("energy of operators that are not in the whitelist, predicted if not measured")
    ] = _of(lambda one: one.gap.dropped.energy_j)
    unmeasured_time_s: Annotated[float | None, Column("predicted time of operators without a row")] = _of(
        lambda one: one.gap.unmeasured.time_s
    )
    unmeasured_energy_j: Annotated[float | None, Column("predicted energy of operators without a row")] = _of(
        lambda one: one.gap.unmeasured.energy_j
    )
    unexplained_time_s: Annotated[float | None, Column("whole model minus all other parts")] = _of(
        lambda one: one.gap.unexplained.time_s
    )
    unexplained_energy_j: Annotated[float | None, Column("whole model minus all other parts")] = _of(
        lambda one: one.gap.unexplained.energy_j
    )
    eager_device_time_s: Annotated[float | None, Column("expected time of an eager run on the device")] = _of(
        lambda one: None if one.eager is None else one.eager.device_time_s
    )
    eager_launch_time_s: Annotated[float | None, Column("expected time of its launches on the host")] = _of(
        lambda one: None if one.eager is None else one.eager.launch_time_s
    )
    eager_energy_j: Annotated[float | None, Column("expected energy of an eager run")] = _of(
        lambda one: None if one.eager is None else one.eager.energy_j
    )
    kernel_error_ratio: Annotated[
        float | None, Column("kernel time alone minus that in the model, relative to the latter, with signs")
    ] = _of(lambda one: None if one.kernels is None else one.kernels.ratio)
    absolute_kernel_error_ratio: Annotated[
        float | None, Column("the same, but magnitudes summed over kinds of operators")
    ] = _of(lambda one: None if one.kernels is None else one.kernels.absolute_ratio)
    energy_missing_reason: Annotated[str | None, Column("reason why an energy is empty")] = _of(
        lambda one: one.energy_missing_reason
    )
    flop_ratio: Annotated[float | None, Column("share of the model's FLOPs in the sum")] = _of(
        lambda one: one.cost.flop_ratio
    )
    memory_bytes_ratio: Annotated[float | None, Column("share of the model's bytes in the sum")] = _of(
        lambda one: one.cost.memory_bytes_ratio
    )
    flop_missing_reason: Annotated[str | None, Column("reason why the model's FLOPs are unknown")] = _of(
        lambda one: one.cost.flop_missing_reason
    )
    summed_operators: Annotated[int, Column("number of operator tuples in the sum", COUNT)] = _of(
        lambda one: len(one.cost.summed)
    )
    missing_operators: Annotated[int, Column("number of operator tuples without a row", COUNT)] = _of(
        lambda one: len(one.cost.missing)
    )
    missing: Annotated[str, Column("operator tuples without a row, separated by |")] = _of(
        lambda one: " | ".join(str(count.operator) for count in one.cost.missing)
    )
    remarks: Annotated[str, Column("remarks in words, separated by |")] = _of(lambda one: all_worded(one.remarks))
    compared_at: Annotated[str, Column("time of the comparison", MOMENT)] = _of(lambda one: one.compared_at)
    conditions: Annotated[Conditions, Column("conditions of the summed operators")] = _of(
        lambda one: one.comparison.conditions
    )

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


def comparison_row(source: RowSource) -> ComparisonRow:
    """Return the row of a comparison."""
    values: dict[str, Any] = {each.name: each.metadata[GETTER](source) for each in fields(ComparisonRow)}
    return ComparisonRow(**values)
