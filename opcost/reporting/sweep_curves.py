"""The points that figures of a sweep draw: each cost over the size, measured and predicted, in the units of people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opcost.comparing.sweep_sizes import SweepPrediction, SweepSizeRow
from opcost.units import MILLI

MICRO = 1e-6

Value = Callable[[SweepSizeRow], "float | None"]
"""Returns a figure of a size in SI units, None if it is unknown."""


@dataclass(frozen=True)
class Drawn:
    """One cost over the size, with the label of its axis. ``bounds`` are those of ``predicted``, empty if unknown."""

    quantity: str
    label: str
    points: tuple[tuple[float, float], ...]
    predicted: tuple[tuple[float, float], ...] = ()
    bounds: tuple[tuple[float, float], ...] = ()


def drawn_points(rows: Sequence[SweepSizeRow], unit: str) -> tuple[Drawn, ...]:
    """Return time, energy, power, and energy per pixel, token or sample."""
    return (
        _drawn(rows, ("time", "time of a run (ms)"), MILLI, _time, _predicted_time),
        _drawn(rows, ("energy", "energy of a run (mJ)"), MILLI, _energy, _predicted_energy),
        _drawn(rows, ("power", "power (W)"), 1.0, lambda row: row.figures.power_w, _predicted_power),
        _drawn(rows, ("energy per unit", f"energy per {unit} (µJ)"), MICRO, _energy_per_unit, _predicted_per_unit),
    )


Bounded = tuple["float | None", "float | None", "float | None"]
"""A predicted value and its bounds, None if they are unknown."""


def _drawn(
    rows: Sequence[SweepSizeRow],
    names: tuple[str, str],
    scale: float,
    measured: Value,
    predicted: Callable[[SweepSizeRow], Bounded],
) -> Drawn:
    points = [(float(row.place.size), value / scale) for row in rows if (value := measured(row)) is not None]
    curve, bounds = [], []
    for row in rows:
        value, lower, upper = predicted(row)
        if value is not None:
            curve.append((float(row.place.size), value / scale))
            if lower is not None and upper is not None:
                bounds.append((lower / scale, upper / scale))
    all_bounds = tuple(bounds) if len(bounds) == len(curve) else ()
    return Drawn(*names, tuple(points), tuple(curve), all_bounds)


def _time(row: SweepSizeRow) -> float | None:
    return row.figures.time_s


def _energy(row: SweepSizeRow) -> float | None:
    return row.figures.energy_j


def _energy_per_unit(row: SweepSizeRow) -> float | None:
    return row.figures.energy_per_unit_j


def _predicted_time(row: SweepSizeRow) -> Bounded:
    one = row.prediction
    return one.predicted_time_s, one.predicted_time_lower_s, one.predicted_time_upper_s


def _predicted_energy(row: SweepSizeRow) -> Bounded:
    one = row.prediction
    return one.predicted_energy_j, one.predicted_energy_lower_j, one.predicted_energy_upper_j


def _predicted_power(row: SweepSizeRow) -> Bounded:
    return _power(row.prediction), None, None


def _power(one: SweepPrediction) -> float | None:
    if one.predicted_energy_j is None or one.predicted_time_s is None:
        return None
    return one.predicted_energy_j / one.predicted_time_s


def _predicted_per_unit(row: SweepSizeRow) -> Bounded:
    units = row.place.units_of_a_run
    value, lower, upper = _predicted_energy(row)
    return _over(value, units), _over(lower, units), _over(upper, units)


def _over(value: float | None, units: int | None) -> float | None:
    return None if value is None or not units else value / units
