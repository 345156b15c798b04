"""The report's sections on the gap between sum and whole, and on kernels."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.comparing.doubts import doubts
from opcost.estimates import Estimate
from opcost.invocation import command
from opcost.reporting import svg, svg_charts
from opcost.reporting.compared_models import QUANTITIES
from opcost.reporting.html import figure, folded, paragraph, table
from opcost.reporting.report_sections import Compared
from opcost.reporting.svg_charts import Deviation, StackedBar
from opcost.reporting.tables import DOUBTFUL, PARTS, doubt_mark
from opcost.units import percent

KINDS_SHOWN = 10
"""Kinds of operators with the largest errors of kernels."""


def gaps(found: Sequence[Compared]) -> str:
    """Return the parts of each whole model."""
    drawings, rows = [], []
    for quantity, _ in QUANTITIES:
        bars = [StackedBar(one.label, _unexplained(one, quantity), _parts(one, quantity)) for one in found]
        known = [bar for bar in bars if any(share is not None for share in bar.shares)]
        drawings.append(
            svg_charts.stacked_bars(known, f"{quantity}, share of the measured whole model (%)", range(len(PARTS)))
        )
        for one, bar in zip(found, bars, strict=True):
            *parts, rest = map(percent, bar.shares)
            rows.append((bar.name, quantity, *parts, rest + doubt_mark(doubts(one.row, one.remarks, quantity))))
    caption = (
        "The parts of the whole model (100 %). Modules and functions make the sum. The cache correction is left of "
        "zero if calls take less time in the model than alone. A model at the power limit runs at lower clocks, which "
        "add time. Dropped and unmeasured operators without a row are estimated. The unexplained part is left of zero "
        "if the others exceed the whole. A missing part is unknown."
    )
    legend = [svg.swatch(number) + name for number, name in enumerate(PARTS)]
    numbers = table(
        ("model", "of", *PARTS), sorted(rows), f"The parts as shares of the whole. {DOUBTFUL}: no result yet."
    )
    return figure(drawings, caption, legend) + folded("The figures", numbers)


def _parts(one: Compared, quantity: str) -> tuple[float | None, ...]:
    gap, costs = one.comparison.gap, one.row.costs(quantity)
    modules, functions = (
        piece.time_s if quantity == "time" else piece.energy_j for piece in (gap.modules, gap.functions)
    )
    others = (costs.correction, costs.power_limit, costs.dropped, costs.unmeasured, costs.unexplained)
    return tuple(map(costs.over_whole, (modules, functions, *others)))


def _unexplained(one: Compared, quantity: str) -> str:
    share = _parts(one, quantity)[-1]
    shown = "unknown" if share is None else f"{round(100 * share, 1) + 0.0:+.1f} % unexplained"
    return shown + doubt_mark(doubts(one.row, one.remarks, quantity))


def kernel_kinds(found: Sequence[Compared]) -> str:
    """Return the kinds of operators whose kernel time differs between the model and alone."""
    seen: dict[str, list[tuple[str, float]]] = {}
    profiled = {one.name: one for one in found if one.kernels is not None}
    for one in profiled.values():
        for kind, error in one.kernels.by_kind if one.kernels is not None else ():
            seen.setdefault(kind, []).append((one.name, error))
    if not profiled:
        return paragraph(f"The database has no kernel times of these models. Measure: {command('verify kernels')}.")
    largest = sorted(seen, key=lambda kind: -sum(abs(error) for _, error in seen[kind]))[:KINDS_SHOWN]
    rows = [
        (kind, [Deviation(Estimate(error, 0.0), 0, f"{model} {100 * error:+.2f} %") for model, error in seen[kind]])
        for kind in largest
    ]
    caption = (
        "Kernel time alone minus kernel time in the model, by kind of operator, as a share of the model's kernel time. "
        f"Each mark is one of {len(profiled)} models. Left of zero: the kind takes longer in the model than alone, and "
        "makes the sum too small. Kinds on opposite sides cancel in a sum."
    )
    return figure([svg_charts.deviations(rows, "kernel time alone minus in the model (%)")], caption)
