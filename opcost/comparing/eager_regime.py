"""Expected time and energy of an eager run: that of the device or that of the launches, whichever is longer.

In a loop of one operator, each call takes the longer of the two. A model launches kernels ahead while long ones run,
so it takes the longer of the two **sums**. Both are derived from operators that were measured eagerly and in CUDA
graphs, which need no launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from opcost.estimates import total_if_known, value_of
from opcost.measuring.conditions import EAGER, GRAPH
from opcost.summing.index import Measurements
from opcost.summing.summation import ModelCost

LONG_RATIO = 1.1
"""Largest ratio of eager time to graph time of a loop that is bound by the device. The difference is the gap between
two eager kernels: 1 to 4 us for kernels of 40 us and more (H200)."""

LAUNCH_BOUND_RATIO = 1.25
"""Smallest ratio of a loop's eager time to graph time plus gap at which it is launch-bound. Its eager time is then the
time of a launch."""


@dataclass(frozen=True)
class EagerCost:
    """Expected times of the device and of the launches in an eager run of the summed operators.

    ``device_time_s`` includes gaps between kernels. ``energy_j`` is the operators' energy in graphs plus, for the rest
    of the time, the power of a device that waits for launches; None if unknown. ``assumed_ratio`` is the share of the
    launch time that is of kinds without a launch-bound loop.
    """

    device_time_s: float
    launch_time_s: float
    energy_j: float | None
    assumed_ratio: float

    @property
    def time_s(self) -> float:
        return max(self.device_time_s, self.launch_time_s)

    @property
    def is_launch_bound(self) -> bool:
        return self.launch_time_s > self.device_time_s


@dataclass(frozen=True)
class Twins:
    """Calls in an eager sum, and the same operator in a CUDA graph: times and energies (None if unknown) of one call.

    ``is_alike`` says whether both were measured on the same input data.
    """

    kind: str
    calls: int
    eager_s: float
    graph_s: float
    eager_j: float | None
    graph_j: float | None
    is_alike: bool


def eager_cost(cost: ModelCost, measurements: Measurements) -> EagerCost | None:
    """Return the expected cost of an eager run of summed operators.

    It is None if the sum is not of eager runs, an operator has no row in a graph, or no loop is launch-bound.

    The launch time of a kind of operator is the median of its launch-bound loops. A kind without any has the median
    over all kinds, but at most its shortest loop. The device time of a call is its eager time if that is well above the
    launch time, else its time in a graph plus one gap (an operator of several kernels has several gaps).
    """
    twins = _twins(cost, measurements)
    gaps_s = [one.eager_s - one.graph_s for one in twins if one.eager_s <= LONG_RATIO * one.graph_s]
    gap_s = max(median(gaps_s), 0.0) if gaps_s else 0.0
    waiting = [one for one in twins if one.eager_s > LAUNCH_BOUND_RATIO * (one.graph_s + gap_s)]
    if not waiting:
        return None

    def launch_s(kind: str) -> float:
        known_s = [one.eager_s for one in waiting if one.kind == kind]
        shortest_s = min(one.eager_s for one in twins if one.kind == kind)
        return median(known_s) if known_s else min(median(one.eager_s for one in waiting), shortest_s)

    def on_device_s(one: Twins) -> float:
        is_longer = one.eager_s > LAUNCH_BOUND_RATIO * launches_s[one.kind]
        return one.eager_s if is_longer else min(one.eager_s, one.graph_s + gap_s)

    launches_s = {kind: launch_s(kind) for kind in {one.kind for one in twins}}
    device_s = math.fsum(one.calls * on_device_s(one) for one in twins)
    known = {one.kind for one in waiting}
    all_launches_s = math.fsum(one.calls * launches_s[one.kind] for one in twins)
    assumed_s = math.fsum(one.calls * launches_s[one.kind] for one in twins if one.kind not in known)
    energy_j = _energy_j(twins, waiting, max(device_s, all_launches_s))
    return EagerCost(device_s, all_launches_s, energy_j, assumed_s / all_launches_s)


def _twins(cost: ModelCost, measurements: Measurements) -> list[Twins]:
    """Return all parts with their rows in graphs; an empty list if one is missing."""
    found = []
    for part in cost.parts:
        conditions = part.row.conditions
        graph = measurements.nearest(part.case, replace(conditions, execution=GRAPH))
        if conditions.execution != EAGER or graph is None or graph.measurement.executed_as != GRAPH:
            return []
        eager, energy_of = part.row, part.basis.energy_of
        found.append(
            Twins(
                kind=part.case.operator.short_name,
                calls=part.occurrences,
                eager_s=eager.measurement.time_s,
                graph_s=graph.measurement.time_s,
                eager_j=value_of(energy_of(eager)),
                graph_j=value_of(energy_of(graph)),
                is_alike=graph.input_data == eager.input_data,
            )
        )
    return found


def _energy_j(twins: Sequence[Twins], waiting: Sequence[Twins], time_s: float) -> float | None:
    """Return the energy in graphs plus the energy of a waiting device for the rest of the time.

    The power of a waiting device is the additional energy of launch-bound loops over their additional time.
    """
    graphs_j = total_if_known(None if one.graph_j is None else one.calls * one.graph_j for one in twins)
    known_w = [
        (one.eager_j - one.graph_j) / (one.eager_s - one.graph_s)
        for one in waiting
        if one.eager_j is not None and one.graph_j is not None
    ]
    if graphs_j is None or len(known_w) < len(waiting) or not all(one.is_alike for one in twins):
        return None
    graphs_s = math.fsum(one.calls * one.graph_s for one in twins)
    return graphs_j + max(time_s - graphs_s, 0.0) * max(median(known_w), 0.0)
