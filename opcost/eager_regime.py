"""What an eager run should take: the device's work, or the host's launches where these take longer.

A loop of one operator takes, call by call, the longer of the two. A model launches ahead while long kernels run, so
that launches of one operator hide behind kernels of another: it takes the longer of the two **sums**. Both follow from
operators alone, each measured eagerly and in a CUDA graph, which needs no launches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from opcost.conditions import EAGER, GRAPH
from opcost.measurement import MeasurementRow
from opcost.statistics import total_if_known, value_of
from opcost.summation import Measurements, ModelCost, Part, energy_of

LAUNCH_BOUND_RATIO = 1.5
"""An eager loop that takes so much longer than the graph waits for the host. Where it waits for the device it takes 1
to 4 us longer, for the gaps between kernels (H200)."""


@dataclass(frozen=True)
class EagerCost:
    """What the device needs for an eager run of a model's operators, gaps between kernels included, and the host.

    ``energy_j`` is what the whole should take then, as measured: the operators' energy in graphs, and for the rest of
    the time the power of a device that waits; None where it is not known.
    """

    device_time_s: float
    launch_time_s: float
    energy_j: float | None

    @property
    def time_s(self) -> float:
        """The longer of the two."""
        return max(self.device_time_s, self.launch_time_s)

    @property
    def is_launch_bound(self) -> bool:
        """Whether the whole waits for the host."""
        return self.launch_time_s > self.device_time_s


@dataclass(frozen=True)
class Twins:
    """Calls in an eager sum, and the row of the same operator in a CUDA graph."""

    part: Part
    graph: MeasurementRow

    @property
    def kind(self) -> str:
        """The name of the operator."""
        return self.part.subject.operator.short_name

    @property
    def eager_s(self) -> float:
        """A call's time in an eager loop."""
        return self.part.row.measurement.time_s

    @property
    def graph_s(self) -> float:
        """A call's time in a graph."""
        return self.graph.measurement.time_s

    @property
    def is_launch_bound(self) -> bool:
        """Whether the eager loop waits for the host."""
        return self.eager_s > LAUNCH_BOUND_RATIO * self.graph_s


def eager_cost(cost: ModelCost, measurements: Measurements) -> EagerCost | None:
    """Return what an eager run of summed operators should cost.

    None where the sum is of no eager runs, an operator has no row in a graph, or none waits for the host alone, so that
    nothing is known of launches. A launch takes what it takes for the kind of operator, whatever its size: the median
    of those whose loops wait for it; where none does, that of all kinds, but no more than the shortest loop of its
    kind.
    """
    twins = _twins(cost, measurements)
    waiting = [one for one in twins if one.is_launch_bound]
    if not waiting:
        return None
    gaps_s = [one.eager_s - one.graph_s for one in twins if not one.is_launch_bound]
    gap_s = max(median(gaps_s), 0.0) if gaps_s else 0.0
    usual_s = median(one.eager_s for one in waiting)
    launches_s = {kind: _launch_s([one for one in twins if one.kind == kind], usual_s) for kind in _kinds(twins)}
    device_s = math.fsum(
        one.part.occurrences * (one.graph_s + gap_s if one.is_launch_bound else one.eager_s) for one in twins
    )
    launch_s = math.fsum(one.part.occurrences * launches_s[one.kind] for one in twins)
    return EagerCost(device_s, launch_s, _energy_j(twins, waiting, max(device_s, launch_s)))


def _twins(cost: ModelCost, measurements: Measurements) -> list[Twins]:
    """Return all parts with their graphs; none where one lacks."""
    found = []
    for part in cost.parts:
        conditions = part.row.conditions
        graph = measurements.nearest(part.subject, replace(conditions, execution=GRAPH))
        if conditions.execution != EAGER or graph is None or graph.measurement.executed_as != GRAPH:
            return []
        found.append(Twins(part, graph))
    return found


def _kinds(twins: Iterable[Twins]) -> set[str]:
    return {one.kind for one in twins}


def _launch_s(twins: Sequence[Twins], usual_s: float) -> float:
    waiting_s = [one.eager_s for one in twins if one.is_launch_bound]
    return median(waiting_s) if waiting_s else min(usual_s, *(one.eager_s for one in twins))


def _energy_j(twins: Iterable[Twins], waiting: Sequence[Twins], time_s: float) -> float | None:
    """Return the energy in graphs, and for the rest of the time what a waiting device draws.

    That is known by what loops that wait take more, in energy and in time, than graphs.
    """
    is_alike = all(one.graph.input_data == one.part.row.input_data for one in twins)
    graphs_j = total_if_known(_calls_j(one) for one in twins)
    powers_w = [_waiting_w(one) for one in waiting]
    known_w = [power_w for power_w in powers_w if power_w is not None]
    if graphs_j is None or len(known_w) < len(powers_w) or not is_alike:
        return None
    graphs_s = math.fsum(one.part.occurrences * one.graph_s for one in twins)
    return graphs_j + max(time_s - graphs_s, 0.0) * max(median(known_w), 0.0)


def _calls_j(one: Twins) -> float | None:
    energy_j = _joules(one.graph)
    return None if energy_j is None else one.part.occurrences * energy_j


def _waiting_w(one: Twins) -> float | None:
    eager_j, graph_j = _joules(one.part.row), _joules(one.graph)
    if eager_j is None or graph_j is None:
        return None
    return (eager_j - graph_j) / (one.eager_s - one.graph_s)


def _joules(row: MeasurementRow) -> float | None:
    return value_of(energy_of(row))
