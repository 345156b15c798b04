"""One row of ``sum_vs_full.csv``."""

from __future__ import annotations

from dataclasses import dataclass

from opcost.measuring.conditions import Conditions


@dataclass(frozen=True)
class ComparisonRow:
    """One row of ``sum_vs_full.csv``; ``time_s`` and ``energy_j`` are the sum's, errors one standard error.

    The part of the sum in functions, what calls take longer among others, what was dropped or not measured (estimated
    where it has no row), and what is left of the whole are those of ``comparing.gap.Gap``; what an eager run of the
    summed operators should take on the device, and for its launches, and its energy, those of
    ``comparing.eager_regime``; by how much kernels alone differ from those in the model that of
    ``comparing.kernel_times``. All are None where they are not known. Energies are those at
    ``reference_temperature_c``, as measured where that is None. ``input_data`` says on which values the summed
    operators were asked for: captured, normal or zeros; ``counted`` which: all, or leaf modules. ``conditions`` are
    those of the operators.
    """

    key: str
    operator: str
    time_s: float | None
    energy_j: float | None
    name: str
    input_data: str
    counted: str
    time_standard_error_s: float | None
    energy_standard_error_j: float | None
    full_time_s: float
    full_time_standard_error_s: float
    full_energy_j: float | None
    full_energy_standard_error_j: float | None
    reference_temperature_c: float | None
    time_ratio: float | None
    time_standard_error_ratio: float | None
    energy_ratio: float | None
    energy_standard_error_ratio: float | None
    function_time_s: float | None
    function_energy_j: float | None
    correction_time_s: float | None
    correction_time_standard_error_s: float | None
    correction_energy_j: float | None
    correction_energy_standard_error_j: float | None
    dropped_time_s: float | None
    dropped_energy_j: float | None
    unmeasured_time_s: float | None
    unmeasured_energy_j: float | None
    unexplained_time_s: float | None
    unexplained_energy_j: float | None
    eager_device_time_s: float | None
    eager_launch_time_s: float | None
    eager_energy_j: float | None
    kernel_error_ratio: float | None
    absolute_kernel_error_ratio: float | None
    energy_missing_reason: str | None
    flop_ratio: float | None
    memory_bytes_ratio: float | None
    summed_operators: int
    missing_operators: int
    missing: str
    remarks: str
    compared_at: str
    conditions: Conditions
