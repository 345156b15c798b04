"""The report's sections on what lies between sum and whole, and on kernels."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.estimates import Estimate
from opcost.reporting import svg, svg_charts
from opcost.reporting.compared_models import QUANTITIES
from opcost.reporting.html import figure, folded, paragraph, table
from opcost.reporting.report_sections import Compared
from opcost.reporting.svg_charts import Deviation, Pieces
from opcost.units import percent

PIECES = ("modules", "functions", "caches", "dropped", "not measured", "not explained")


KINDS_OF_KERNELS = 10


def gaps(found: Sequence[Compared]) -> str:
    """Return what lies between each sum and its whole."""
    drawings, rows = [], []
    for quantity, _ in QUANTITIES:
        bars = [Pieces(one.label, _unexplained(one, quantity), _pieces(one, quantity)) for one in found]
        known = [bar for bar in bars if any(share is not None for share in bar.shares)]
        drawings.append(
            svg_charts.pieces(known, f"{quantity}, share of the measured whole model (%)", range(len(PIECES)))
        )
        rows += [(bar.name, quantity, *map(percent, bar.shares)) for bar in bars]
    caption = (
        "What makes the whole (100 %). Modules and functions are the sum. Caches is the cache correction, left of zero "
        "where calls take less time in the model than alone. Dropped and not measured are estimated where they have no "
        "row. Not explained lies left of zero where the rest is more than the whole. A missing piece is unknown."
    )
    legend = [svg.swatch(number) + name for number, name in enumerate(PIECES)]
    numbers = table(("model", "of", *PIECES), sorted(rows), "The same in figures, as shares of the whole.")
    return figure(drawings, caption, legend) + folded("The same in figures", numbers)


def _pieces(one: Compared, quantity: str) -> tuple[float | None, ...]:
    gap, row = one.comparison.gap, one.row
    correction = (row.correction_time_s, row.correction_energy_j)
    whole = row.full_time_s if quantity == "time" else row.full_energy_j
    known = [(gap.modules.time_s, gap.modules.energy_j), (gap.functions.time_s, gap.functions.energy_j), correction]
    known += [(piece.time_s, piece.energy_j) for piece in (gap.dropped, gap.unmeasured, gap.unexplained)]
    values = [time_s if quantity == "time" else energy_j for time_s, energy_j in known]
    return tuple(None if value is None or not whole else value / whole for value in values)


def _unexplained(one: Compared, quantity: str) -> str:
    share = _pieces(one, quantity)[-1]
    return "not known" if share is None else f"{round(100 * share, 1) + 0.0:+.1f} % not explained"


def kernel_kinds(found: Sequence[Compared]) -> str:
    """Return which kinds of operators differ between model and loop, by their kernels."""
    seen: dict[str, list[tuple[str, float]]] = {}
    profiled = {one.name: one for one in found if one.kernels is not None}
    for one in profiled.values():
        for kind, error in one.kernels.by_kind if one.kernels is not None else ():
            seen.setdefault(kind, []).append((one.name, error))
    if not profiled:
        text = "No kernel times of these models are in the database; python -m opcost compare-kernels measures them."
        return paragraph(text)
    largest = sorted(seen, key=lambda kind: -sum(abs(error) for _, error in seen[kind]))[:KINDS_OF_KERNELS]
    rows = [
        (kind, [Deviation(Estimate(error, 0.0), 0, f"{model} {100 * error:+.2f} %") for model, error in seen[kind]])
        for kind in largest
    ]
    caption = (
        f"Kernels alone less kernels in the model, kind by kind, one mark for each of {len(profiled)} models, as a "
        "share of all its kernel time. Left of zero: this kind takes longer in the model than in a loop of its own, "
        "and makes the sum too small. Kinds on opposite sides cancel in a sum."
    )
    return figure([svg_charts.deviations(rows, "kernels alone minus kernels in the model (%)")], caption)
