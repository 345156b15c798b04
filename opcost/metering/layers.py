"""The layers of a metered loop: the time of each in marked iterations, and rows that add up to the meter's totals.

An iteration is a sequence of spans, each of one slot: a layer's forward, its backward, or none. The spans of an
iteration add up to its length.

Samples of power are means over 20 ms to 100 ms, so they cannot resolve layers of microseconds. The energy of the window
is divided in proportion to time x power. The powers of a layer's forward and backward are those of their operator
tuples in the database; all else has the mean of the known powers. Without any known power, shares of energy are shares
of time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import numpy as np

from opcost.columns import ABOVE_0, COUNT_FROM_1, FROM_0, SHARE, Column, Columns
from opcost.estimates import FloatArray, total_if_known

PERIODS_KEPT = 1000
LEAST_PERIODS = 3
"""The fewest marked and unmarked iterations whose medians are compared."""

NO_LAYER = -1
"""The slot of the time between layers."""

UNKNOWN_LAYER = -2
"""The slot of the backward of operations whose layer is unknown."""

BETWEEN: Final = "(between layers)"
"""The row of the time and energy that are attributed to no layer: optimizer, loss, data, gaps between iterations."""

UNKNOWN_OWNER: Final = "(unknown layer)"
"""The row of the backward of operations from before the iteration, or that one of several threads has made."""

MODEL: Final = "(model)"
"""The name of the model itself: what it calculates outside of its layers."""

OTHERS: Final = f"`{BETWEEN}`: no layer, `{UNKNOWN_OWNER}`: backward whose layer is unknown"


def forward_slot(layer: int) -> int:
    """Return the slot of a layer's forward."""
    return 2 * layer


def backward_slot(layer: int) -> int:
    """Return the slot of a layer's backward."""
    return 2 * layer + 1


def is_forward(slot: int) -> bool:
    """Return whether the slot of a layer is that of its forward."""
    return slot % 2 == 0


def slots_of(layers: int) -> int:
    """Return the number of slots, with those that count from the end."""
    return 2 * layers + 2


@dataclass(frozen=True, eq=False)
class MarkedSpans:
    """The spans of one iteration: the slot and the length of each.

    ``own_s`` is the host's time for marking in the spans of each slot, ``calls`` the number of each layer's forward
    calls.
    """

    slots: Sequence[int]
    times_s: Sequence[float]
    own_s: FloatArray
    calls: FloatArray


class LayerTimes:
    """Means over marked iterations. Iteration 0, which warms up, counts only if there is no other."""

    def __init__(self, layers: int) -> None:
        self._slots = slots_of(layers)
        self.marked = 0
        self.calls = np.zeros(layers)
        self._mean_s, self._squares, self._own_s = (np.zeros(self._slots) for _ in range(3))
        self._is_seen = np.zeros(self._slots, dtype=bool)
        self._is_warm = False
        self._periods_s: dict[bool, deque[float]] = {
            is_marked: deque(maxlen=PERIODS_KEPT) for is_marked in (False, True)
        }

    def add_period(self, period_s: float, is_marked: bool) -> None:
        self._periods_s[is_marked].append(period_s)

    def add(self, spans: MarkedSpans, is_first: bool) -> None:
        if is_first and self.marked:
            return
        if self.marked and not self._is_warm:
            self.marked = 0
            for sums in (self.calls, self._mean_s, self._squares, self._own_s):
                sums[:] = 0
            self._is_seen[:] = False
        self._is_warm = not is_first
        self.marked += 1
        slots = np.asarray(spans.slots, dtype=np.int64) % self._slots
        times_s = np.bincount(slots, spans.times_s, self._slots)
        self._is_seen[slots] = True
        step_s = times_s - self._mean_s
        self._mean_s += step_s / self.marked
        self._squares += step_s * (times_s - self._mean_s)
        self._own_s += (spans.own_s - self._own_s) / self.marked
        self.calls += (spans.calls - self.calls) / self.marked

    @property
    def excess_s(self) -> float | None:
        """By how much marked iterations take longer than others, by their medians; None of too few, never below 0."""
        marked, unmarked = self._periods_s[True], self._periods_s[False]
        if min(len(marked), len(unmarked)) < LEAST_PERIODS:
            return None
        return max(0.0, float(np.median(marked) - np.median(unmarked)))

    def time_s(self, slot: int) -> float | None:
        """Return a slot's time per iteration, without that of marking; None if it has no span.

        Marking takes time of the host. As much of it is subtracted as made the marked iterations longer: all where the
        host is what the loop waits for, nothing where the device works on meanwhile.
        """
        if not self._is_seen[slot]:
            return None
        own_s = float(self._own_s.sum())
        excess_ratio = min(1.0, (self.excess_s or 0.0) / own_s) if own_s > 0 else 0.0
        return max(0.0, float(self._mean_s[slot] - excess_ratio * self._own_s[slot]))

    def standard_error_s(self, slot: int) -> float | None:
        """Return the standard error of a slot's time over the marked iterations; None of fewer than two."""
        if self.marked < 2 or not self._is_seen[slot]:
            return None
        return float(np.sqrt(self._squares[slot] / (self.marked - 1) / self.marked))


@dataclass(frozen=True)
class KnownCost:
    """Time and energy of the calls of a layer's forward, or of its backward, in one iteration, by rows."""

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
    known_backward: KnownCost | None = None

    @property
    def time_s(self) -> float:
        return (self.forward_time_s or 0.0) + (self.backward_time_s or 0.0)


def layer_shares(times: LayerTimes, classes: Mapping[str, str], known: Mapping[int, KnownCost]) -> list[LayerShare]:
    """Return the layers that ran, in the order of ``named_modules``, as ``classes`` has them by path.

    ``known`` are costs by slot.
    """
    found = []
    for index, (path, layer_class) in enumerate(classes.items()):
        forward, backward = forward_slot(index), backward_slot(index)
        share = LayerShare(
            layer=path or MODEL,
            layer_class=layer_class,
            calls=float(times.calls[index]),
            forward_time_s=times.time_s(forward),
            backward_time_s=times.time_s(backward),
            forward_error_s=times.standard_error_s(forward),
            backward_error_s=times.standard_error_s(backward),
            known=known.get(forward),
            known_backward=known.get(backward),
        )
        if share.forward_time_s is not None or share.backward_time_s is not None:
            found.append(share)
    unknown_s, error_s = times.time_s(UNKNOWN_LAYER), times.standard_error_s(UNKNOWN_LAYER)
    if unknown_s is not None:
        found.append(LayerShare(UNKNOWN_OWNER, "", None, None, unknown_s, backward_error_s=error_s))
    return found


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
    database_power_w: Annotated[float | None, Column("the forward's power, by rows; empty: the mean divides", ABOVE_0)]
    database_backward_energy_j: Annotated[float | None, Column("of the backward's operator tuples, by rows", ABOVE_0)]
    database_backward_power_w: Annotated[
        float | None, Column("the backward's power, by rows; empty: the mean divides", ABOVE_0)
    ]
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

    If layers take more than the window, as marked iterations may, all are scaled to it, and the row between them is
    unknown. ``missing_reason`` says why the energy is unknown, if it is.
    """
    runs, energy_j = totals.iterations, totals.energy_j
    time_s, layers_s = totals.time_s / runs, math.fsum(layer.time_s for layer in layers)
    scale = min(1.0, time_s / layers_s) if layers_s > 0 else 1.0
    between = LayerShare(BETWEEN, "", None, max(0.0, time_s - scale * layers_s) / scale, None)
    passes = [
        ((layer.forward_time_s or 0.0, layer.known), (layer.backward_time_s or 0.0, layer.known_backward))
        for layer in (*layers, between)
    ]
    known = [(passed_s, cost.power_w) for both in passes for passed_s, cost in both if cost is not None]
    known_s = math.fsum(passed_s for passed_s, _ in known)
    mean_w = math.fsum(passed_s * power_w for passed_s, power_w in known) / known_s if known_s > 0 else 1.0
    # The weights of each share's forward and backward: time x power.
    weights = [[passed_s * (mean_w if cost is None else cost.power_w) for passed_s, cost in both] for both in passes]
    total = math.fsum(forward + backward for forward, backward in weights)
    rows = []
    for layer, (forward, backward) in zip((*layers, between), weights, strict=True):
        of_passes_j = None if energy_j is None else (energy_j * (forward / total), energy_j * (backward / total))
        rows.append(_row(totals, layer, scale, of_passes_j, missing_reason))
    if scale < 1.0:
        reason = f"layers of marked iterations took longer than a mean iteration, and are scaled by {scale:.4g}"
        unknown: dict[str, Any] = dict.fromkeys(
            ("time_s", "time_ratio", "energy_j", "energy_by_time_j", "energy_ratio", "power_w")
        )
        rows[-1] = replace(rows[-1], **unknown, energy_missing_reason=f"{BETWEEN} is unknown: {reason}")
    return rows


def _row(
    totals: LoopTotals,
    layer: LayerShare,
    scale: float,
    of_passes_j: tuple[float, float] | None,
    missing_reason: str | None,
) -> MeteredLayerRow:
    """Return the row of a layer with the energies of its forward and backward in all iterations."""
    is_between, runs = layer.layer == BETWEEN, totals.iterations
    forward_j, backward_j = of_passes_j or (None, None)
    time_s = scale * layer.time_s
    energy_j = None if of_passes_j is None else sum(of_passes_j) / runs
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
        database_backward_energy_j=layer.known_backward.energy_j if layer.known_backward else None,
        database_backward_power_w=layer.known_backward.power_w if layer.known_backward else None,
        energy_missing_reason=missing_reason if totals.energy_j is None else None,
        iterations=runs,
        marked_iterations=totals.marked,
    )


def kind_rows(rows: Iterable[MeteredLayerRow]) -> list[MeteredKindRow]:
    """Return the sums of layers by class, those that take most energy first; of time, where energy is unknown."""
    kinds: dict[str, list[MeteredLayerRow]] = {}
    for row in rows:
        kinds.setdefault(row.layer_class or row.layer, []).append(row)
    found = []
    for name, own in kinds.items():
        time_s, energy_j, time_ratio, energy_ratio, database_energy_j = (
            total_if_known(getattr(row, column) for row in own)
            for column in ("time_s", "energy_j", "time_ratio", "energy_ratio", "database_energy_j")
        )
        kind = MeteredKindRow(
            layer_class=name,
            layers=len(own),
            time_s=time_s,
            energy_j=energy_j,
            power_w=None if energy_j is None or not time_s else energy_j / time_s,
            time_ratio=None if time_ratio is None else min(1.0, time_ratio),
            energy_ratio=None if energy_ratio is None else min(1.0, energy_ratio),
            database_energy_j=database_energy_j,
        )
        found.append(kind)
    return sorted(
        found, key=lambda kind: (kind.time_s if kind.energy_j is None else kind.energy_j) or 0.0, reverse=True
    )
