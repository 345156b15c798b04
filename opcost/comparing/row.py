"""One row of ``sum_vs_full.csv``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from opcost.columns import ABOVE_0, COUNT, MOMENT, Column, Columns, one_of
from opcost.measuring.conditions import Conditions
from opcost.operators.subjects import COUNTED, INPUT_DATA


@dataclass(frozen=True)
class ComparisonRow(Columns):
    """A model's summed operators beside the measured whole, under one set of conditions: those of the operators.

    The whole is the sum (in modules and in functions), the cache correction, what is dropped, what is unmeasured, and
    what is unexplained. What an eager run should take follows from rows of eager loops and of graphs, kernel errors
    from ``kernel_times.csv``.
    """

    key: Annotated[str, Column("that of the whole model's row")]
    operator: Annotated[str, Column("the model as an operator, such as `torchvision.models.resnet50`")]
    time_s: Annotated[float | None, Column("of the sum")]
    energy_j: Annotated[float | None, Column("of the sum")]
    name: Annotated[str, Column("the model's folder in measurements/")]
    input_data: Annotated[str, Column("the values that the operators were asked for on", one_of(*INPUT_DATA))]
    counted: Annotated[str, Column("which operators are summed: all, or those of leaf modules", one_of(*COUNTED))]
    time_standard_error_s: Annotated[float | None, Column("one standard error of the sum's time")]
    energy_standard_error_j: Annotated[float | None, Column("one standard error of the sum's energy")]
    full_time_s: Annotated[float, Column("of the whole model", ABOVE_0)]
    full_time_standard_error_s: Annotated[float, Column("one standard error of the whole's time")]
    full_energy_j: Annotated[float | None, Column("of the whole model", ABOVE_0)]
    full_energy_standard_error_j: Annotated[float | None, Column("one standard error of the whole's energy")]
    reference_temperature_c: Annotated[float | None, Column("temperature of the energies; empty: as measured")]
    time_ratio: Annotated[float | None, Column("sum / whole")]
    time_standard_error_ratio: Annotated[float | None, Column("one standard error of the ratio of times")]
    energy_ratio: Annotated[float | None, Column("sum / whole")]
    energy_standard_error_ratio: Annotated[float | None, Column("one standard error of the ratio of energies")]
    function_time_s: Annotated[float | None, Column("part of the sum in functions")]
    function_energy_j: Annotated[float | None, Column("part of the sum in functions")]
    correction_time_s: Annotated[
        float | None, Column("cache correction: what calls take longer in a model, no part of the sum")
    ]
    correction_time_standard_error_s: Annotated[float | None, Column("one standard error of the correction")]
    correction_energy_j: Annotated[
        float | None, Column("cache correction: what calls take longer in a model, no part of the sum")
    ]
    correction_energy_standard_error_j: Annotated[float | None, Column("one standard error of the correction")]
    dropped_time_s: Annotated[float | None, Column("what is left out on purpose, estimated where it has no row")]
    dropped_energy_j: Annotated[float | None, Column("what is left out on purpose, estimated where it has no row")]
    unmeasured_time_s: Annotated[float | None, Column("what has no row, estimated")]
    unmeasured_energy_j: Annotated[float | None, Column("what has no row, estimated")]
    unexplained_time_s: Annotated[float | None, Column("what is left of the whole")]
    unexplained_energy_j: Annotated[float | None, Column("what is left of the whole")]
    eager_device_time_s: Annotated[float | None, Column("what an eager run should take on the device")]
    eager_launch_time_s: Annotated[float | None, Column("what its launches should take on the host")]
    eager_energy_j: Annotated[float | None, Column("what it should take in energy")]
    kernel_error_ratio: Annotated[
        float | None, Column("share that kernels take longer alone, kinds summed with their signs")
    ]
    absolute_kernel_error_ratio: Annotated[float | None, Column("the same without signs")]
    energy_missing_reason: Annotated[str | None, Column("why an energy is empty")]
    flop_ratio: Annotated[float | None, Column("share of the model's FLOPs in the sum")]
    memory_bytes_ratio: Annotated[float | None, Column("share of the model's bytes in the sum")]
    summed_operators: Annotated[int, Column("operator tuples in the sum", COUNT)]
    missing_operators: Annotated[int, Column("operator tuples without a row", COUNT)]
    missing: Annotated[str, Column("which these are, separated by |")]
    remarks: Annotated[str, Column("what else to know, separated by |")]
    compared_at: Annotated[str, Column("when it was compared", MOMENT)]
    conditions: Conditions
