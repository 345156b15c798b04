"""The comparison: each model's summed operators beside the measured whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from opcost.atomic_file import replace_file
from opcost.comparison import Comparison, OperatorRuns, compare
from opcost.conditions import WARM, Conditions
from opcost.config_files import ModelConfig
from opcost.csv_database import CsvTable
from opcost.errors import UserError
from opcost.measurement import REFERENCE_TEMPERATURE_C, MeasurementRow
from opcost.operators import OperatorCounts
from opcost.request import (
    FULL_MODEL_MEASUREMENTS,
    FULL_MODEL_SCRIPT,
    OPERATOR_MEASUREMENTS,
    SUM_VS_FULL,
    Request,
    selected,
)
from opcost.statistics import standard_error_of, value_of
from opcost.subjects import CAPTURED
from opcost.summation import Measurements, best_rows


@dataclass(frozen=True)
class ComparisonRow:
    """One row of ``sum_vs_full.csv``; ``time_s`` and ``energy_j`` are the sum's, errors one standard error.

    Energies are those at ``reference_temperature_c``, as measured where that is None. ``input_data`` says on which
    values the summed operators were asked for: captured, normal or zeros. ``conditions`` are those of the operators.
    """

    key: str
    operator: str
    time_s: float | None
    energy_j: float | None
    name: str
    input_data: str
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
    energy_missing_reason: str | None
    flop_ratio: float | None
    memory_bytes_ratio: float | None
    summed_operators: int
    missing_operators: int
    missing: str
    remarks: str
    compared_at: str
    conditions: Conditions


@dataclass(frozen=True)
class ComparingReport:
    """What the comparison found for one model: a row for each set of conditions, or why there is none."""

    name: str
    comparisons: tuple[ComparisonRow, ...]
    reason: str | None


def compare_models(request: Request, input_data: str = CAPTURED, cache: str = WARM) -> list[ComparingReport]:
    """Compare each chosen model under every set of conditions in which the whole model was measured.

    ``input_data``, one of ``INPUT_DATA``, says on which values the summed operators ran; ``cache``, one of ``CACHES``,
    what they found in the cache.
    """
    models = selected(request, request.configs())
    if not request.database.is_dir():
        raise UserError(f"{request.database}: there is no such folder; name the folder with --database DIR")
    measurements = Measurements(CsvTable(request.database / OPERATOR_MEASUREMENTS, MeasurementRow).rows())
    full_rows = best_rows(CsvTable(request.database / FULL_MODEL_MEASUREMENTS, MeasurementRow).rows())
    runs = OperatorRuns(input_data, cache)
    reports = []
    for config, counts in models:
        wholes = [row for row in full_rows.values() if _is_whole(row, config, counts, request.device)]
        comparisons = [compare(config.name, counts, whole, measurements, runs) for whole in wholes]
        found = tuple(_comparison_row(comparison, input_data) for comparison in comparisons)
        reports.append(ComparingReport(config.name, found, None if found else _reason(config, request.device)))
    rows = [row for report in reports for row in report.comparisons]
    if rows and not request.dry_run:
        _write(request.database / SUM_VS_FULL, rows)
    return reports


def _is_whole(row: MeasurementRow, config: ModelConfig, counts: OperatorCounts, device: str | None) -> bool:
    is_model = row.key.partition("-")[0] == counts.model.key and row.conditions.precision == config.precision
    return is_model and (device is None or row.conditions.device_type == device.partition(":")[0])


def _reason(config: ModelConfig, device: str | None) -> str:
    where = f" on {device}" if device else ""
    return f"the whole model is not measured{where}; run {FULL_MODEL_SCRIPT} {config.name}"


def _comparison_row(comparison: Comparison, input_data: str) -> ComparisonRow:
    cost, whole = comparison.cost, comparison.full.measurement
    return ComparisonRow(
        key=comparison.full.key,
        operator=comparison.full.operator,
        time_s=value_of(cost.time_s),
        energy_j=value_of(cost.energy_j),
        name=comparison.name,
        input_data=input_data,
        time_standard_error_s=standard_error_of(cost.time_s),
        energy_standard_error_j=standard_error_of(cost.energy_j),
        full_time_s=whole.time_s,
        full_time_standard_error_s=whole.time_standard_error_s,
        full_energy_j=value_of(comparison.full_energy_j),
        full_energy_standard_error_j=standard_error_of(comparison.full_energy_j),
        reference_temperature_c=REFERENCE_TEMPERATURE_C if cost.is_at_reference else None,
        time_ratio=value_of(comparison.time_ratio),
        time_standard_error_ratio=standard_error_of(comparison.time_ratio),
        energy_ratio=value_of(comparison.energy_ratio),
        energy_standard_error_ratio=standard_error_of(comparison.energy_ratio),
        energy_missing_reason=cost.energy_missing_reason or whole.energy_missing_reason,
        flop_ratio=cost.flop_ratio,
        memory_bytes_ratio=cost.memory_bytes_ratio,
        summed_operators=len(cost.summed),
        missing_operators=len(cost.missing),
        missing=" | ".join(str(count.operator) for count in cost.missing),
        remarks=" | ".join(comparison.remarks),
        compared_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        conditions=comparison.conditions,
    )


def _write(path: Path, new_rows: list[ComparisonRow]) -> None:
    """Put new rows in the place of older ones of the same model, conditions and values; others and equal ones stay."""
    table = CsvTable(path, ComparisonRow)
    rows = {_place(row): row for row in table.rows()}
    for row in new_rows:
        old = rows.get(_place(row))
        if old is None or replace(row, compared_at=old.compared_at) != old:
            rows[_place(row)] = row
    replace_file(path, table.text(list(rows.values())).encode())


def _place(row: ComparisonRow) -> tuple[str, str, str, str]:
    return row.name, row.key, row.input_data, row.conditions.cache
