"""The report's sections on meters and drift."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import median

from opcost.estimates import value_of
from opcost.invocation import command
from opcost.measuring.meter_quality import REFERENCE, QualificationRow
from opcost.measuring.record import MeasurementRow
from opcost.reporting import svg_charts
from opcost.reporting.compared_models import QUANTITIES
from opcost.reporting.html import figure, folded, paragraph, table
from opcost.reporting.report_sections import board_of
from opcost.reporting.svg_charts import Course
from opcost.reporting.titled import titled
from opcost.summing.energy import EnergyBasis, common_basis
from opcost.units import percent


def meters(rows: Sequence[QualificationRow], boards: set[str | None]) -> str:
    """Return the qualities of the boards' meters, by their newest qualification."""
    newest = {
        (row.device_uuid, row.driver_version, row.quality.meter): row for row in rows if row.device_uuid in boards
    }
    if not newest:
        return paragraph(f"The database has no qualification of these boards' meters. Qualify: {command('qualify')}.")
    cells = [{"board": board_of(row.device_uuid)} | titled(row) for row in newest.values()]
    columns, lines = list(cells[0]), [list(each.values()) for each in cells]
    caption = (
        "The meters of each board (first digits of its UUID): their deviation from the reference meter under a steady "
        "load, and the worst deviation under pulses. A meter within 2 % is right for steady loads, such as loops; if "
        "it is also within 5 % under pulses, it is good."
    )
    deviations = {
        row: abs(row.quality.steady_deviation_ratio)
        for row in newest.values()
        if row.quality.steady_deviation_ratio is not None and row.quality.verdict != REFERENCE
    }
    if not deviations:
        return table(columns, lines, caption)
    worst, number = max(deviations.values()), len({row.device_uuid for row in deviations})
    verdict = (
        f"The meters of {number} boards agree within {percent(worst, digits=2)} under a steady load, such as a loop. "
        "An error that all meters share is not visible here, since there is no external meter."
    )
    return paragraph(verdict) + folded("Each meter", table(columns, lines, caption))


def drift(rows: Sequence[MeasurementRow], boards: set[str | None]) -> str:
    """Return the drift of the boards, by their drift checks."""
    groups: dict[tuple[str | None, str], list[MeasurementRow]] = {}
    for row in rows:
        if row.circumstances.device_uuid in boards:
            groups.setdefault((row.circumstances.device_uuid, row.key), []).append(row)
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return paragraph("These boards have no repeated drift checks.")
    lines = {quantity: [_course(group, quantity) for group in several] for quantity, _ in QUANTITIES}
    drawings = [
        svg_charts.courses([line for line in of_quantity if line.points], f"{quantity} minus the board's median (%)")
        for quantity, of_quantity in lines.items()
    ]
    legend = [svg_charts.legend_mark(number % 8, line.name) for number, line in enumerate(lines["time"])]
    caption = (
        "The drift checks: one addition that each campaign repeats. A flat course shows no drift. A board's energies "
        f"are normalised to 50 °C if all of them can be. Standard deviations: {_scatter(lines)}."
    )
    return figure(drawings, caption, legend)


def _course(rows: Sequence[MeasurementRow], quantity: str) -> Course:
    basis = common_basis(rows)
    values = [(_epoch_s(row.measurement.started_at), _value_of(row, quantity, basis)) for row in rows]
    known = [(moment_s, value) for moment_s, value in values if value is not None]
    middle = median(value for _, value in known) if known else 1.0
    first = rows[0]
    name = f"board {board_of(first.circumstances.device_uuid)}, {first.conditions.execution}, {len(rows)} times"
    begin_s = min(moment_s for moment_s, _ in values)
    return Course(name, tuple(((moment_s - begin_s) / 60, value / middle - 1) for moment_s, value in known))


def _value_of(row: MeasurementRow, quantity: str, basis: EnergyBasis) -> float | None:
    return row.measurement.time_s if quantity == "time" else value_of(basis.energy_of(row))


def _scatter(lines: Mapping[str, Sequence[Course]]) -> str:
    texts = []
    for quantity, courses in lines.items():
        known = [course for course in courses if len(course.points) > 1]
        spreads = [math.sqrt(sum(y * y for _, y in one.points) / (len(one.points) - 1)) for one in known]
        texts.append(f"{quantity} {', '.join(percent(spread, digits=2) for spread in spreads) or 'unknown'}")
    return "; ".join(texts)


def _epoch_s(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
