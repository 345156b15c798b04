"""Rows of the layers of a metered loop: its time and energy, divided so that the rows add up to the meter's totals.

Samples of power are means over 20 ms to 100 ms, so they cannot resolve layers of microseconds. The energy of the window
is divided in proportion to time x power. The power of a layer's forward is that of its operator tuple in the database;
all else has the mean of the known powers. Without any known power, shares of energy are shares of time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from opcost.columns import ABOVE_0, COUNT_FROM_1, FROM_0, SHARE, Column, Columns
from opcost.estimates import total_if_known

BETWEEN: Final = "(between layers)"
"""The row of the time and energy that are attributed to no layer: optimizer, loss, data, gaps between iterations."""

UNKNOWN_OWNER: Final = "(unknown layer)"
"""The row of the backward of operations from before the iteration, or that one of several threads has made."""

MODEL: Final = "(model)"
"""The name of the model itself: what it calculates outside of its layers."""

OTHERS: Final = f"`{BETWEEN}`: no layer, `{UNKNOWN_OWNER}`: backward whose layer is unknown"


@dataclass(frozen=True)
class KnownCost:
    """Time and energy of the calls of a layer's forward in one iteration, by rows of the database."""

    time_s: float
    energy_j: float

    @property
    def power_w(self) -> float:
        return self.energy_j / self.time_s


@dataclass(frozen=True)
class LayerShare:
    """The times of a layer per iteration, with their standard errors; None without such a pass."""

    layer: str
    layer_class: str
    calls: float | None
    forward_time_s: float | None
    backward_time_s: float | None
    forward_error_s: float | None = None
    backward_error_s: float | None = None
    known: KnownCost | None = None

    @property
    def time_s(self) -> float:
        return (self.forward_time_s or 0.0) + (self.backward_time_s or 0.0)


@dataclass(frozen=True)
class LoopTotals:
    """The window of a loop: its length, and its energy, None if unknown."""

    time_s: float
    energy_j: float | None
    iterations: int
    marked: int


@dataclass(frozen=True)
class MeteredLayerRow(Columns):
    """A layer of a metered loop. Figures are means per iteration; ``(between layers)`` is attributed to no layer."""

    layer: Annotated[str, Column(f"path of the module; `(model)`: the model itself, {OTHERS}")]
    layer_class: Annotated[str | None, Column("class of the module")]
    calls: Annotated[float | None, Column("forward calls per iteration", FROM_0)]
    time_s: Annotated[float | None, Column("forward and backward, without the layers inside", FROM_0)]
    forward_time_s: Annotated[float | None, Column("of `time_s`, forward", FROM_0)]
    forward_time_standard_error_s: Annotated[float | None, Column("over the marked iterations", FROM_0)]
    backward_time_s: Annotated[float | None, Column("of `time_s`, backward", FROM_0)]
    backward_time_standard_error_s: Annotated[float | None, Column("over the marked iterations", FROM_0)]
    energy_j: Annotated[float | None, Column("share of the meter's energy by time and power", FROM_0)]
    forward_energy_j: Annotated[float | None, Column("of `energy_j`, forward", FROM_0)]
    backward_energy_j: Annotated[float | None, Column("of `energy_j`, backward", FROM_0)]
    energy_by_time_j: Annotated[float | None, Column("share of the meter's energy by time alone", FROM_0)]
    power_w: Annotated[float | None, Column("`energy_j` over `time_s`", FROM_0)]
    time_ratio: Annotated[float | None, Column("share of the window's time", SHARE)]
    energy_ratio: Annotated[float | None, Column("share of the window's energy", SHARE)]
    database_time_s: Annotated[float | None, Column("of the forward's operator tuples, by rows", ABOVE_0)]
    database_energy_j: Annotated[float | None, Column("of the forward's operator tuples, by rows", ABOVE_0)]
    database_power_w: Annotated[float | None, Column("the power that divides the energy; empty: the mean", ABOVE_0)]
    energy_missing_reason: Annotated[str | None, Column("reason of an empty energy, and of an empty `time_s`")]
    iterations: Annotated[int, Column("iterations in the window", COUNT_FROM_1)]
    marked_iterations: Annotated[int, Column("iterations whose layers were timed", COUNT_FROM_1)]


@dataclass(frozen=True)
class MeteredKindRow(Columns):
    """All layers of one class in a metered loop. Figures are means per iteration."""

    layer_class: Annotated[str, Column(f"class of the modules; {OTHERS}")]
    layers: Annotated[int, Column("number of modules that were called", COUNT_FROM_1)]
    time_s: Annotated[float | None, Column("forward and backward", FROM_0)]
    energy_j: Annotated[float | None, Column("share of the meter's energy", FROM_0)]
    power_w: Annotated[float | None, Column("`energy_j` over `time_s`", FROM_0)]
    time_ratio: Annotated[float | None, Column("share of the window's time", SHARE)]
    energy_ratio: Annotated[float | None, Column("share of the window's energy", SHARE)]
    database_energy_j: Annotated[float | None, Column("by rows; empty unless all of its layers have some", ABOVE_0)]


def layer_rows(totals: LoopTotals, layers: Sequence[LayerShare], missing_reason: str | None) -> list[MeteredLayerRow]:
    """Return a row for each layer and one for the time between, which add up to the totals over all iterations.

    Args:
        totals: the window's.
        layers: those that ran. If they take more than the window, as marked iterations may, all are scaled to it, and
            the row between them is unknown.
        missing_reason: why the energy is unknown, if it is.
    """
    time_s = totals.time_s / totals.iterations
    layers_s = math.fsum(layer.time_s for layer in layers)
    scale = min(1.0, time_s / layers_s) if layers_s > 0 else 1.0
    between_s = max(0.0, time_s - scale * layers_s)
    division = _Division(layers, between_s / scale, totals.energy_j)
    between = _row(totals, LayerShare(BETWEEN, "", None, between_s / scale, None), scale, division, missing_reason)
    if scale < 1.0:
        reason = f"layers of marked iterations took longer than a mean iteration, and are scaled by {scale:.4g}"
        unknown: dict[str, Any] = dict.fromkeys(
            ("time_s", "time_ratio", "energy_j", "energy_by_time_j", "energy_ratio", "power_w")
        )
        between = replace(between, **unknown, energy_missing_reason=f"{BETWEEN} is unknown: {reason}")
    return [*(_row(totals, layer, scale, division, missing_reason) for layer in layers), between]


class _Division:
    """The shares of energy: time x power over its sum."""

    def __init__(self, layers: Sequence[LayerShare], between_s: float, energy_j: float | None) -> None:
        self.energy_j = energy_j
        known = [
            (layer.forward_time_s, layer.known.power_w) for layer in layers if layer.known and layer.forward_time_s
        ]
        known_s = math.fsum(time_s for time_s, _ in known)
        self.mean_w = math.fsum(time_s * power_w for time_s, power_w in known) / known_s if known_s > 0 else 1.0
        parts = [self._forward(layer) + self._backward(layer) for layer in layers]
        self._sum = math.fsum([*parts, between_s * self.mean_w])

    def forward_j(self, layer: LayerShare) -> float | None:
        return self._part_j(self._forward(layer))

    def backward_j(self, layer: LayerShare) -> float | None:
        return self._part_j(self._backward(layer))

    def _part_j(self, weight: float) -> float | None:
        return None if self.energy_j is None else self.energy_j * (weight / self._sum)

    def _forward(self, layer: LayerShare) -> float:
        return (layer.forward_time_s or 0.0) * (layer.known.power_w if layer.known else self.mean_w)

    def _backward(self, layer: LayerShare) -> float:
        return (layer.backward_time_s or 0.0) * self.mean_w


def _row(
    totals: LoopTotals, layer: LayerShare, scale: float, division: _Division, missing_reason: str | None
) -> MeteredLayerRow:
    is_between, runs = layer.layer == BETWEEN, totals.iterations
    forward_j, backward_j = division.forward_j(layer), division.backward_j(layer)
    time_s = scale * layer.time_s
    energy_j = None if forward_j is None or backward_j is None else (forward_j + backward_j) / runs
    time_ratio = min(1.0, time_s * runs / totals.time_s)

    def of_pass(value: float | None, pass_s: float | None, factor: float) -> float | None:
        return None if is_between or value is None or pass_s is None else factor * value

    return MeteredLayerRow(
        layer=layer.layer,
        layer_class=layer.layer_class or None,
        calls=layer.calls,
        time_s=time_s,
        forward_time_s=of_pass(layer.forward_time_s, layer.forward_time_s, scale),
        forward_time_standard_error_s=of_pass(layer.forward_error_s, layer.forward_time_s, scale),
        backward_time_s=of_pass(layer.backward_time_s, layer.backward_time_s, scale),
        backward_time_standard_error_s=of_pass(layer.backward_error_s, layer.backward_time_s, scale),
        energy_j=energy_j,
        forward_energy_j=of_pass(forward_j, layer.forward_time_s, 1 / runs),
        backward_energy_j=of_pass(backward_j, layer.backward_time_s, 1 / runs),
        energy_by_time_j=None if totals.energy_j is None else totals.energy_j * time_ratio / runs,
        power_w=None if energy_j is None or not time_s else energy_j / time_s,
        time_ratio=time_ratio,
        energy_ratio=None if energy_j is None or not totals.energy_j else min(1.0, energy_j * runs / totals.energy_j),
        database_time_s=layer.known.time_s if layer.known else None,
        database_energy_j=layer.known.energy_j if layer.known else None,
        database_power_w=layer.known.power_w if layer.known else None,
        energy_missing_reason=missing_reason if totals.energy_j is None else None,
        iterations=runs,
        marked_iterations=totals.marked,
    )


def kind_rows(rows: Iterable[MeteredLayerRow]) -> list[MeteredKindRow]:
    """Return the sums of layers by class, those that take most energy first; of time, where energy is unknown."""
    kinds: dict[str, list[MeteredLayerRow]] = {}
    for row in rows:
        kinds.setdefault(row.layer_class or row.layer, []).append(row)
    summed = [_kind(name, own) for name, own in kinds.items()]
    return sorted(
        summed, key=lambda kind: (kind.time_s if kind.energy_j is None else kind.energy_j) or 0.0, reverse=True
    )


def _kind(name: str, rows: Sequence[MeteredLayerRow]) -> MeteredKindRow:
    time_s, energy_j, time_ratio, energy_ratio, database_energy_j = (
        total_if_known(getattr(row, column) for row in rows)
        for column in ("time_s", "energy_j", "time_ratio", "energy_ratio", "database_energy_j")
    )
    return MeteredKindRow(
        layer_class=name,
        layers=len(rows),
        time_s=time_s,
        energy_j=energy_j,
        power_w=None if energy_j is None or not time_s else energy_j / time_s,
        time_ratio=None if time_ratio is None else min(1.0, time_ratio),
        energy_ratio=None if energy_ratio is None else min(1.0, energy_ratio),
        database_energy_j=database_energy_j,
    )
