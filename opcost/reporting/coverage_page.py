"""The coverage table as a page of ``docs/``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from opcost.stages.coverage import CoverageReport, CoverageRow
from opcost.units import UNKNOWN, percent

TOLERANCE_RATIO = 0.005
"""The largest deviation of multiply-adds from the published figure, which counts the same operations."""

PUBLISHED_STEP = 1e6
"""Published multiply-adds are rounded to 0.001 · 10⁹."""

TEMPLATE = """\
# FLOPs and bytes in operator tuples

Made on {date} by `{command}` with {libraries}, {device}.

Each model ran twice on the same weights and input: unobserved, with each ATen operation counted as torch dispatches it,
and captured into operator tuples. Random weights in the published graph, seed 0, published input size, one sample.

{summary}

- **modules**, **functions**: calls of each kind in one run; **tuples**: the distinct ones. Functions that compute
  nothing are left out. **operations**: ATen operations that compute, in the unobserved run.
- **FLOPs**, **bytes**: the share of the unobserved run's FLOPs and bytes in tuples.
- **GMAC**: 10⁹ multiply-adds of the unobserved run. **published**: torchvision's `weights.meta["_ops"]`.
  **parameters**: `=` if equal to `num_params`.
- **meta**: `=` if a capture on the meta device gives the same tuples with the same numbers of calls, else the number of
  tuples that differ; then the ratio of its bytes to the device's, if they differ.

{table}
"""

COLUMNS = (
    ("model", "---"),
    ("input", "---"),
    ("on", "---"),
    ("modules", "--:"),
    ("functions", "--:"),
    ("tuples", "--:"),
    ("operations", "--:"),
    ("FLOPs", "--:"),
    ("bytes", "--:"),
    ("GMAC", "--:"),
    ("published", "--:"),
    ("parameters", ":-:"),
    ("meta", ":-:"),
    ("remark", "---"),
)
"""The table's columns, and how Markdown aligns each."""


def coverage_page(report: CoverageReport, command: str) -> str:
    """Return the page in Markdown, with the command that made its report."""
    unchecked = [f"- not checked: {failure.model_name} ({failure.reason})" for failure in report.failures]
    return TEMPLATE.format(
        date=date.today().isoformat(),
        command=command,
        device=report.device_product,
        libraries=", ".join(report.libraries),
        summary="\n".join((summary(report.rows), *unchecked)),
        table="\n".join(_line(cells) for cells in (*zip(*COLUMNS, strict=True), *map(_cells, report.rows))),
    )


def summary(rows: Sequence[CoverageRow]) -> str:
    """Return the worst figures of all rows, one on each line."""
    flop_ratio = min((row.flop_ratio for row in rows if row.flop_ratio is not None), default=None)
    memory_bytes_ratio = min(
        (row.memory_bytes_ratio for row in rows if row.memory_bytes_ratio is not None), default=None
    )
    outside = sorted({operation for row in rows for operation in row.outside})
    disturbed = [row.model_name for row in rows if not row.is_undisturbed]
    stated = [row for row in rows if row.published.multiply_adds is not None]
    counted = [row for row in rows if row.published.parameters is not None]
    deviating = [row.model_name for row in stated if _deviates(row)]
    unequal = [row.model_name for row in counted if row.parameters != row.published.parameters]
    unknown = [row.model_name for row in rows if row.flop_missing_reason is not None]
    carried = f"{_exact_percent(flop_ratio)} of FLOPs, {_exact_percent(memory_bytes_ratio)} of bytes"
    return "\n".join(
        (
            f"- models: {len(rows)}",
            f"- in tuples: at least {carried}",
            *([f"- models of unknown FLOPs: {', '.join(unknown)}"] if unknown else []),
            f"- operations in no tuple: {', '.join(outside) or 'none'}",
            f"- models that ran other operations while captured: {', '.join(disturbed) or 'none'}",
            f"- multiply-adds that deviate by more than {percent(TOLERANCE_RATIO)} from the published figure: "
            f"{len(deviating)} of {len(stated)}{_named(deviating)}",
            f"- numbers of parameters that deviate from the published ones: "
            f"{len(unequal)} of {len(counted)}{_named(unequal)}",
        )
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: CoverageRow) -> tuple[str, ...]:
    published = row.published.multiply_adds
    return (
        row.model_name,
        "x".join(map(str, row.input_size)),
        row.device,
        str(row.module_calls),
        str(row.function_calls),
        str(row.tuples),
        str(row.operations),
        _exact_percent(row.flop_ratio),
        _exact_percent(row.memory_bytes_ratio),
        UNKNOWN if row.multiply_adds is None else f"{row.multiply_adds / 1e9:.3f}",
        UNKNOWN if published is None else f"{published / 1e9:.3f}",
        _parameters(row),
        _meta(row),
        "; ".join(_remarks(row)),
    )


def _parameters(row: CoverageRow) -> str:
    if row.published.parameters is None:
        return UNKNOWN
    return "=" if row.parameters == row.published.parameters else f"{row.parameters:,} / {row.published.parameters:,}"


def _meta(row: CoverageRow) -> str:
    if row.meta_other_tuples is None or row.meta_memory_bytes_ratio is None:
        return UNKNOWN
    tuples = str(row.meta_other_tuples or "=")
    bytes_ratio = f"{row.meta_memory_bytes_ratio:.4f}"
    return tuples if float(bytes_ratio) == 1 else f"{tuples}, {bytes_ratio}"


def _remarks(row: CoverageRow) -> list[str]:
    remarks = []
    if not row.is_undisturbed:
        remarks.append(f"captured run: {row.captured_operations} operations, different")
    if row.outside:
        remarks.append(f"in no tuple: {', '.join(row.outside)}")
    if row.flop_missing_reason is not None:
        remarks.append(row.flop_missing_reason)
    if _deviates(row):
        remarks.append(_why_it_deviates(row))
    return remarks


def _deviates(row: CoverageRow) -> bool:
    published = row.published.multiply_adds
    if published is None or row.multiply_adds is None:
        return False
    return abs(row.multiply_adds - published) > TOLERANCE_RATIO * published


def _why_it_deviates(row: CoverageRow) -> str:
    if abs((row.multiply_adds or 0) - (row.published.multiply_adds or 0)) <= PUBLISHED_STEP / 2:
        return "equal within the rounding of the published figure"
    if row.proposals is not None:
        fitting = f"the published figure fits {row.proposals.published:,.0f}"
        return f"depends on values: its box head has {row.proposals.number:,} regions here; {fitting}"
    return "unexplained"


def _exact_percent(share_ratio: float | None) -> str:
    return UNKNOWN if share_ratio is None else f"{share_ratio * 100:.4f} %"


def _named(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""
