"""The comparison: each model's summed operators beside the measured whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial

from opcost.comparing.compare import Evidence, compare
from opcost.comparing.comparison import USUAL_RUNS, Comparison, KindCost, OperatorRuns, kinds_of, labels_of
from opcost.comparing.kernel_times import KernelErrors, kernel_errors
from opcost.comparing.remark_rules import remarks_on_kernels
from opcost.comparing.remarks import Remark, all_worded
from opcost.comparing.row import ComparisonRow
from opcost.estimates import standard_error_of, value_of
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import OperatorCounts
from opcost.operators.subjects import about
from opcost.operators.whitelist import Selection, select
from opcost.running.request import (
    FULL_MODEL_SCRIPT,
    Request,
)
from opcost.running.shipped_counts import counted_or_shipped
from opcost.storage.configs import ModelConfig
from opcost.summing.index import Measurements, best_of_each_board
from opcost.summing.summation import whole_rank


@dataclass(frozen=True)
class ComparingReport:
    """What the comparison found for one model: a row for each set of conditions, or why there is none.

    ``kinds`` holds for each row what each kind of operator costs in its sum, ``remarks`` what its reader must know.
    """

    name: str
    comparisons: tuple[ComparisonRow, ...]
    reason: str | None
    kinds: tuple[tuple[KindCost, ...], ...] = ()
    remarks: tuple[tuple[Remark, ...], ...] = ()

    @property
    def labels(self) -> list[str]:
        """What each comparison is called where there may be others."""
        return labels_of(self.name, [row.conditions for row in self.comparisons])

    @property
    def lacks_a_sum(self) -> bool:
        """Whether there is no whole, or one with nothing to set beside it."""
        return self.reason is not None or any(row.time_s is None for row in self.comparisons)


@dataclass(frozen=True)
class ModelComparisons:
    """A model's sums beside its wholes, one for each set of conditions; errors of kernels where they were profiled."""

    config: ModelConfig
    comparisons: tuple[Comparison, ...]
    kernels: tuple[KernelErrors | None, ...]


def find_comparisons(request: Request, runs: OperatorRuns = USUAL_RUNS) -> list[ModelComparisons]:
    """Compare each chosen model under every set of conditions in which the whole model was measured.

    Where that was on several boards, the one counts on which most of what is summed was measured, too; of equals the
    one whose first row comes last.

    Args:
        request: which models.
        runs: which runs of operators are summed.
    """
    models = _selections(request)
    request.database.must_exist()
    evidence = _evidence(request, [selection for _, selection in models])
    of_models = about(selection.kept.model for _, selection in models)
    wholes = best_of_each_board(request.database.full_model_measurements.rows(of_models))
    kernels = request.database.kernel_times.rows()
    found = []
    for config, selection in models:
        own = [row for row in wholes if _is_whole(row, config, selection.kept, request.device)]
        comparisons = _of_one_board_mostly(compare(selection, whole, evidence, runs) for whole in own)
        errors = [kernel_errors(kernels, selection.kept.model.key, one.conditions) for one in comparisons]
        found.append(ModelComparisons(config, tuple(comparisons), tuple(errors)))
    return found


def _selections(request: Request) -> list[tuple[ModelConfig, Selection]]:
    """Return the chosen models with what the whitelist keeps of their counts, and what it drops."""
    models, whitelist = counted_or_shipped(request, request.configs()), request.whitelist()
    return [(config, select(counts, whitelist)) for config, counts in models]


def _evidence(request: Request, selections: Iterable[Selection]) -> Evidence:
    """Return the rows of these models' operators, and of chains."""
    counts = (count for one in selections for count in (*one.kept.counts, *one.dropped.counts))
    rows = request.database.operator_measurements.rows(about(count.operator for count in counts))
    return Evidence(Measurements(rows), request.database.calls_in_chains.rows())


def keep_comparisons(request: Request, models: Sequence[ModelComparisons]) -> list[ComparingReport]:
    """Write what was compared to the database, unless that is only tried; return it as rows."""
    reports = [_report(model, request.device) for model in models]
    rows = [row for report in reports for row in report.comparisons]
    if rows and not request.dry_run:
        request.database.sum_vs_full.replace_rows(partial(_updated, rows))
    return reports


def _report(model: ModelComparisons, device: str | None) -> ComparingReport:
    name = model.config.name
    pairs = list(zip(model.comparisons, model.kernels, strict=True))
    rows = tuple(_comparison_row(name, comparison, errors) for comparison, errors in pairs)
    return ComparingReport(
        name=name,
        comparisons=rows,
        reason=None if rows else _reason(model.config, device),
        kinds=tuple(kinds_of(comparison.cost) for comparison in model.comparisons),
        remarks=tuple(_all_remarks(comparison, errors) for comparison, errors in pairs),
    )


def _all_remarks(comparison: Comparison, errors: KernelErrors | None) -> tuple[Remark, ...]:
    return (*comparison.remarks, *remarks_on_kernels(errors))


def _of_one_board_mostly(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Return one comparison for each whole model under some conditions, of those with wholes of several boards."""
    best: dict[str, Comparison] = {}
    for comparison in comparisons:
        known = best.get(comparison.full.key)
        if known is None or _board_rank(comparison) >= _board_rank(known):
            best[comparison.full.key] = comparison
    return list(best.values())


def _board_rank(comparison: Comparison) -> tuple[bool, bool, float]:
    return whole_rank(comparison.full, comparison.cost)


def _is_whole(row: MeasurementRow, config: ModelConfig, counts: OperatorCounts, device: str | None) -> bool:
    is_model = row.key.partition("-")[0] == counts.model.key and row.conditions.precision == config.precision
    return is_model and (device is None or row.conditions.device_type == device.partition(":")[0])


def _reason(config: ModelConfig, device: str | None) -> str:
    where = f" on {device}" if device else ""
    return f"the whole model is not measured{where}; run {FULL_MODEL_SCRIPT} {config.name}"


def _comparison_row(name: str, comparison: Comparison, errors: KernelErrors | None) -> ComparisonRow:
    cost, whole, gap, eager = comparison.cost, comparison.full.measurement, comparison.gap, comparison.eager
    more = gap.correction
    correction_time_s, correction_energy_j = (None, None) if more is None else (more.time_s, more.energy_j)
    return ComparisonRow(
        key=comparison.full.key,
        operator=comparison.full.operator,
        time_s=value_of(cost.time_s),
        energy_j=value_of(cost.energy_j),
        name=name,
        input_data=comparison.runs.input_data,
        counted=comparison.runs.counted,
        time_standard_error_s=standard_error_of(cost.time_s),
        energy_standard_error_j=standard_error_of(cost.energy_j),
        full_time_s=whole.time_s,
        full_time_standard_error_s=whole.time_standard_error_s,
        full_energy_j=value_of(comparison.full_energy_j),
        full_energy_standard_error_j=standard_error_of(comparison.full_energy_j),
        reference_temperature_c=cost.basis.temperature_c,
        time_ratio=value_of(comparison.time_ratio),
        time_standard_error_ratio=standard_error_of(comparison.time_ratio),
        energy_ratio=value_of(comparison.energy_ratio),
        energy_standard_error_ratio=standard_error_of(comparison.energy_ratio),
        function_time_s=gap.functions.time_s,
        function_energy_j=gap.functions.energy_j,
        correction_time_s=value_of(correction_time_s),
        correction_time_standard_error_s=standard_error_of(correction_time_s),
        correction_energy_j=value_of(correction_energy_j),
        correction_energy_standard_error_j=standard_error_of(correction_energy_j),
        dropped_time_s=gap.dropped.time_s,
        dropped_energy_j=gap.dropped.energy_j,
        unmeasured_time_s=gap.unmeasured.time_s,
        unmeasured_energy_j=gap.unmeasured.energy_j,
        unexplained_time_s=gap.unexplained.time_s,
        unexplained_energy_j=gap.unexplained.energy_j,
        eager_device_time_s=None if eager is None else eager.device_time_s,
        eager_launch_time_s=None if eager is None else eager.launch_time_s,
        eager_energy_j=None if eager is None else eager.energy_j,
        kernel_error_ratio=None if errors is None else errors.ratio,
        absolute_kernel_error_ratio=None if errors is None else errors.absolute_ratio,
        energy_missing_reason=cost.energy_missing_reason or whole.energy_missing_reason,
        flop_ratio=cost.flop_ratio,
        memory_bytes_ratio=cost.memory_bytes_ratio,
        summed_operators=len(cost.summed),
        missing_operators=len(cost.missing),
        missing=" | ".join(str(count.operator) for count in cost.missing),
        remarks=all_worded(_all_remarks(comparison, errors)),
        compared_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        conditions=comparison.conditions,
    )


def _updated(new_rows: Iterable[ComparisonRow], known: Iterable[ComparisonRow]) -> list[ComparisonRow]:
    """Put new rows in the place of older ones of the same model, conditions and values; others and equal ones stay."""
    rows = {_place(row): row for row in known}
    for row in new_rows:
        old = rows.get(_place(row))
        if old is None or replace(row, compared_at=old.compared_at) != old:
            rows[_place(row)] = row
    return list(rows.values())


def _place(row: ComparisonRow) -> tuple[str, str, str, str, str]:
    return row.name, row.key, row.input_data, row.counted, row.conditions.cache
