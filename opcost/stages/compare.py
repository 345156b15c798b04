"""The comparison of each model's sum of operators with the measured whole model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial

from opcost.comparing.comparison import (
    USUAL_RUNS,
    Comparison,
    Evidence,
    KindCost,
    OperatorRuns,
    compare,
    kinds_of,
    labels_of,
    summed,
)
from opcost.comparing.kernel_times import KernelErrors, kernel_errors
from opcost.comparing.remarks import Remark, remarks_on_kernels
from opcost.comparing.row import ComparisonRow, comparison_row
from opcost.measuring.protocol import protocol_options
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import is_meant, refuse_unknown
from opcost.operators.cases import of_operators, tuple_key
from opcost.operators.whitelist import select
from opcost.running.request import COUNTS, Request, no_counts_reason
from opcost.running.shipped_counts import counted_or_shipped
from opcost.stages.proposals import Proposals
from opcost.storage.configs import ModelConfig
from opcost.summing.index import Measurements, best_of_each_board
from opcost.summing.summation import best_whole


@dataclass(frozen=True)
class ComparingReport:
    """The comparisons of one model: a row for each set of conditions, or the reason if there is none.

    For each row, ``kinds`` has the cost of each kind of operator in the sum, and ``remarks`` its remarks. ``remedy`` is
    the command that measures what is missing, None if it is the one for all models.
    """

    name: str
    comparisons: tuple[ComparisonRow, ...]
    reason: str | None
    kinds: tuple[tuple[KindCost, ...], ...] = ()
    remarks: tuple[tuple[Remark, ...], ...] = ()
    remedy: str | None = None

    @property
    def labels(self) -> list[str]:
        return labels_of(self.name, [row.conditions for row in self.comparisons])

    @property
    def is_incomplete(self) -> bool:
        return self.reason is not None or any(row.time_s is None for row in self.comparisons)


@dataclass(frozen=True)
class ModelComparisons:
    """The comparisons of a model, one for each set of conditions, and the errors of kernels if these were profiled.

    ``no_counts_reason`` says why a named model is left out.
    """

    config: ModelConfig
    comparisons: tuple[Comparison, ...] = ()
    kernels: tuple[KernelErrors | None, ...] = ()
    no_counts_reason: str | None = None


def find_comparisons(request: Request, runs: OperatorRuns = USUAL_RUNS) -> list[ModelComparisons]:
    """Compare each chosen model under every set of conditions in which the whole model was measured.

    A named model without counts has no comparison but a reason, unless no model has counts.

    If it was measured on several boards, the board with most of the summed operators counts; of equals, the one whose
    first row comes last.
    """
    configs = request.models() if request.names else request.folders.readable()
    models, whitelist = counted_or_shipped(request, configs, is_strict=False), request.whitelist()
    selections = [(config, select(counts, whitelist)) for config, counts in models]
    database, device = request.database, request.device
    database.must_exist()
    counts = (count for _, one in selections for count in (*one.kept.counts, *one.dropped.counts))
    rows = database.operator_measurements.rows(of_operators(count.operator for count in counts))
    evidence = Evidence(Measurements(rows), database.calls_in_chains.rows())
    table = database.full_model_measurements
    if device is not None and request.is_product:
        refuse_unknown(device, (row.conditions.device_product for row in table.rows()))
    wholes = best_of_each_board(table.rows(of_operators(one.kept.model for _, one in selections)))
    kernels = database.kernel_times.rows()
    found = []
    for config, selection in selections:
        key = selection.kept.model.key
        of_key: dict[str, list[MeasurementRow]] = {}
        for row in wholes:
            is_model = tuple_key(row.key) == key and row.conditions.precision == config.precision
            if is_model and is_meant(device, row.conditions):
                of_key.setdefault(row.key, []).append(row)
        sums = [best_whole(own, partial(summed, selection, evidence=evidence, runs=runs)) for own in of_key.values()]
        comparisons = [compare(selection, whole, evidence, runs, cost) for whole, cost in sums]
        errors = [kernel_errors(kernels, key, one.conditions) for one in comparisons]
        found.append(ModelComparisons(config, tuple(comparisons), tuple(errors)))
    names = {model.config.name for model in found}
    for config in configs:
        if config.name not in names and request.is_named(config):
            found.append(ModelComparisons(config, no_counts_reason=no_counts_reason(config, COUNTS)))
    return sorted(found, key=lambda model: model.config.name)


def keep_comparisons(request: Request, models: Sequence[ModelComparisons]) -> list[ComparingReport]:
    """Write comparisons to the database, except in a dry run; return them as rows."""
    reports = reports_of(request, models)
    rows = [row for report in reports for row in report.comparisons]
    if rows and not request.dry_run:
        request.database.sum_vs_full.replace_rows(partial(_updated, rows))
    return reports


def reports_of(request: Request, models: Sequence[ModelComparisons]) -> list[ComparingReport]:
    """Return comparisons as rows."""
    return [_report(model, f" on {request.device}" if request.device else "") for model in models]


def _report(model: ModelComparisons, where: str) -> ComparingReport:
    name, now = model.config.name, datetime.now(timezone.utc).isoformat(timespec="seconds")
    pairs = list(zip(model.comparisons, model.kernels, strict=True))
    remarks = tuple((*found.remarks, *remarks_on_kernels(errors)) for found, errors in pairs)
    proposals = Proposals.of([model.config])
    remedy: str | None = proposals.command("measure-models", [name])
    reason = model.no_counts_reason or f"the whole model is not measured{where}; run {remedy}"
    if pairs:
        # As the operators of the first comparison were measured.
        conditions, parts = model.comparisons[0].conditions, model.comparisons[0].cost.parts
        is_cpu = conditions.device_type == "cpu"
        device = ("--device", "cpu") if is_cpu else ("--execution", conditions.execution)
        how = protocol_options(part.row.circumstances for part in parts)
        remedy = next(iter(proposals.profiling([name], *device, *how)), None)
    return ComparingReport(
        name=name,
        comparisons=tuple(comparison_row(name, *pair, said, now) for pair, said in zip(pairs, remarks, strict=True)),
        reason=None if pairs else reason,
        kinds=tuple(kinds_of(comparison.cost) for comparison in model.comparisons),
        remarks=remarks,
        remedy=remedy,
    )


def _updated(new_rows: Iterable[ComparisonRow], known: Iterable[ComparisonRow]) -> list[ComparisonRow]:
    """Replace older rows of the same model, conditions and values; others, and equal ones, stay."""
    rows = {row.identity: row for row in known}
    for row in new_rows:
        old = rows.get(row.identity)
        if old is None or replace(row, compared_at=old.compared_at) != old:
            rows[row.identity] = row
    return list(rows.values())
