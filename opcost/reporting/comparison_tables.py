"""Tables of comparisons of sums with whole models, and of kernels, on a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from opcost.comparing.remarks import Remark, RemarkKind, worded
from opcost.comparing.row import ComparisonRow
from opcost.reporting.tables import PARTS, dry_run_note, ratio_with_error
from opcost.reporting.terminal import print_line, print_table
from opcost.stages.compare import ComparingReport
from opcost.units import UNKNOWN, millijoules, milliseconds, percent, ratio

if TYPE_CHECKING:
    # Only for types: a comparison must not import torch, as this stage does.
    from opcost.stages.kernels import KernelsReport

Known: TypeAlias = "tuple[float | None, float | None]"
"""A value and its error, None if unknown."""

FLAGGED = " (!)"
FLAGGED_RATIO = 0.05
"""Share of the summed time in flagged rows from which a sum is no result: a flagged row can be off by any factor."""

MISSING_SHOWN = 3
"""Missing operators of one comparison that are named on the screen."""


def print_kernels(reports: Sequence[KernelsReport]) -> None:
    """Print the kernel time of each model, and of its tuples alone, and the differences."""
    columns = ("model", "calls", "in the model", "alone", "alone / in model", "same kernels")
    rows = []
    for report in reports:
        alone_s = [kind.alone_s for kind in report.kinds]
        sum_s = None if None in alone_s else sum(time_s for time_s in alone_s if time_s is not None)
        calls = sum(kind.calls for kind in report.kinds)
        rows.append(_kernel_cells(report.name, calls, report.kernel_time_s, sum_s, report.same_kernels_ratio))
        for kind in report.kinds:
            same_ratio = kind.same_kernels_s / kind.in_model_s if kind.in_model_s else None
            rows.append(_kernel_cells(f"  {kind.operator}", kind.calls, kind.in_model_s, kind.alone_s, same_ratio))
    print_table("Kernel time of operators in one run of the model, and alone", columns, rows)
    for report in reports:
        print_line(f"{report.name}: {percent(report.counted_ratio)} of kernel time is inside counted calls")
        for line in report.differences:
            print_line(f"{report.name}: {line}")


def _kernel_cells(
    name: str, calls: int, in_model_s: float, alone_s: float | None, same_ratio: float | None
) -> tuple[str, ...]:
    time_ratio = None if alone_s is None or not in_model_s else alone_s / in_model_s
    return (name, str(calls), milliseconds(in_model_s), milliseconds(alone_s), ratio(time_ratio), percent(same_ratio))


def print_comparisons(reports: Sequence[ComparingReport], dry_run: bool) -> None:
    """Print each comparison with a line for time and one for energy, the parts of each gap, and the remarks."""
    columns = ("model", "", "sum of operators", "whole model", "sum / whole", "corrected", "in the sum", "missing")
    compared = [one for report in reports for one in zip(report.labels, report.comparisons, strict=True)]
    marks = [_mark(remarks) for report in reports for remarks in report.remarks]
    if compared:
        marked = zip(compared, marks, strict=True)
        rows = [cells for (label, row), mark in marked for cells in _comparison_cells(label, row, mark)]
        print_table("Sum of operators and whole model" + dry_run_note(dry_run, "nothing was written"), columns, rows)
        print_line("± is one standard error; another board may differ by more.")
        if any(marks):
            print_line(
                f"{FLAGGED.strip()} No result yet: measurements are flagged. Measure again; see the lines below."
            )
        for celsius in sorted({row.reference_temperature_c for _, row in compared if row.reference_temperature_c}):
            print_line(f"Energies are normalised to {celsius:g} °C, if all energies of a model can be.")
        if any(row.correction_time_s is not None for _, row in compared):
            print_line("Corrected: the sum plus the cache correction, over the whole model.")
        print_line("")
        print_table(
            "Parts of the whole model", ("model", "", *PARTS), [cells for one in compared for cells in _gap_cells(*one)]
        )
        print_line("Dropped and unmeasured operators without a row are estimated from FLOPs and bytes.")
    for report in reports:
        if report.reason:
            print_line(f"{report.name}: {report.reason}")
        for label, row, remarks in zip(report.labels, report.comparisons, report.remarks, strict=True):
            for line in (*_missing(row), *map(worded, remarks), *_without_energy(row)):
                print_line(f"{label}: {line}")


def _mark(remarks: Sequence[Remark]) -> str:
    """Return the mark of a comparison whose figures are no result, because rows are flagged; else nothing."""
    shares = {remark.kind: remark.figures.get("time_ratio") for remark in remarks}
    share = shares.get(RemarkKind.FLAGGED_OPERATORS)
    is_flagged = isinstance(share, float) and share >= FLAGGED_RATIO
    return FLAGGED if is_flagged or RemarkKind.FLAGGED_WHOLE in shares else ""


def _comparison_cells(label: str, row: ComparisonRow, mark: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    time_ratio = ratio_with_error(row.time_ratio, row.time_standard_error_ratio)
    energy_ratio = ratio_with_error(row.energy_ratio, row.energy_standard_error_ratio)
    time_ratio += mark if row.time_ratio is not None else ""
    energy_ratio += mark if row.energy_ratio is not None else ""
    missing = f"{row.missing_operators} of {row.summed_operators + row.missing_operators}"
    corrected_time = _corrected(
        (row.time_ratio, row.time_standard_error_ratio),
        (row.correction_time_s, row.correction_time_standard_error_s),
        row.full_time_s,
    )
    corrected_energy = _corrected(
        (row.energy_ratio, row.energy_standard_error_ratio),
        (row.correction_energy_j, row.correction_energy_standard_error_j),
        row.full_energy_j,
    )
    time = (milliseconds(row.time_s), milliseconds(row.full_time_s), time_ratio, corrected_time)
    energy = (millijoules(row.energy_j), millijoules(row.full_energy_j), energy_ratio, corrected_energy)
    return (
        (label, "time", *time, f"{percent(row.flop_ratio)} of FLOPs", missing),
        (f"  {row.conditions.device_product}", "energy", *energy, f"{percent(row.memory_bytes_ratio)} of bytes", ""),
    )


def _corrected(sum_ratio: Known, correction: Known, whole: float | None) -> str:
    """Return sum plus correction over the whole, with the error of both."""
    (value_ratio, error_ratio), (more, more_error) = sum_ratio, correction
    if value_ratio is None or error_ratio is None or more is None or more_error is None or not whole:
        return UNKNOWN
    return ratio_with_error(value_ratio + more / whole, math.hypot(error_ratio, more_error / whole))


def _gap_cells(label: str, row: ComparisonRow) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the parts of the whole's time and energy, as shares of it."""
    times_s = (row.correction_time_s, row.dropped_time_s, row.unmeasured_time_s, row.unexplained_time_s)
    energies_j = (row.correction_energy_j, row.dropped_energy_j, row.unmeasured_energy_j, row.unexplained_energy_j)
    return (
        (label, "time", *_parts(row.time_s, row.function_time_s, times_s, row.full_time_s)),
        ("", "energy", *_parts(row.energy_j, row.function_energy_j, energies_j, row.full_energy_j)),
    )


def _parts(
    summed: float | None, functions: float | None, others: Sequence[float | None], whole: float | None
) -> list[str]:
    modules = None if summed is None or functions is None else summed - functions
    return [percent(None if value is None or not whole else value / whole) for value in (modules, functions, *others)]


def _missing(row: ComparisonRow) -> list[str]:
    missing = [operator for operator in row.missing.split(" | ") if operator]
    lines = [f"missing: {operator}" for operator in missing[:MISSING_SHOWN]]
    if len(missing) > MISSING_SHOWN:
        lines.append(f"missing: {len(missing) - MISSING_SHOWN} more; --json and sum_vs_full.csv name them")
    return lines


def _without_energy(row: ComparisonRow) -> list[str]:
    return [f"no energy: {row.energy_missing_reason}"] if row.energy_missing_reason else []
