"""Results of the qualification of a device's meters, applied to their traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opcost.measuring.meter_quality import STEADY_ONLY, MeterQuality
from opcost.power.meter_names import AUTO, short_name
from opcost.power.trace import PowerSource, PowerTrace, joined, no_trace

LONGER_READINGS = 2.0
"""Ratio of update periods, now and in the qualification, from which the noise found there does not apply."""


@dataclass(frozen=True)
class KnownMeters:
    """Results of the qualification of a device's meters.

    ``found`` holds results by the meter's name. ``chosen`` is the short name of the only meter that energies may be
    taken from, or ``AUTO`` for the best meter that has one.
    """

    found: Mapping[str, MeterQuality] = field(default_factory=dict)
    chosen: str = AUTO

    @property
    def are_unknown(self) -> bool:
        return not self.found and self.chosen == AUTO

    def is_chosen(self, trace: PowerTrace) -> bool:
        return short_name(trace.source.name) == self.chosen

    def rank(self, trace: PowerTrace) -> int:
        """Return the sort key of a trace: the chosen meter, then good, unknown and wrong meters."""
        quality = self.found.get(trace.source.name)
        if self.is_chosen(trace):
            return 0
        if quality is None:
            return 2
        return 1 if quality.is_right_when_steady else 3

    def source(self, source: PowerSource) -> PowerSource:
        """Return the properties of a meter, updated by its qualification."""
        quality = self.found.get(source.name)
        if quality is None:
            return source
        source = replace(
            source,
            rise_time_s=max(source.rise_time_s, quality.rise_time_s or 0.0),
            averaging_time_s=max(source.averaging_time_s, quality.averaging_time_s or 0.0),
            is_wrong=not quality.is_right_when_steady,
            is_for_steady_loads=quality.verdict == STEADY_ONLY,
        )
        if source.update_period_s > LONGER_READINGS * (quality.update_period_s or 0.0):
            # Campaigns read the energy counter more rarely, so the noise of the qualification does not apply.
            return source
        correlation_time_s, noise_ratio = quality.correlation_time_s or 0.0, quality.noise_ratio or 0.0
        return replace(source, correlation_time_s=correlation_time_s, noise_ratio=noise_ratio)


def known_trace(trace: PowerTrace, meters: KnownMeters) -> PowerTrace:
    """Return a trace and its checks with the known properties of their meters, sorted by rank.

    If a meter is chosen by name, its trace comes first and no other meter stands in for it.
    """
    if meters.are_unknown:
        return trace
    apart = (replace(trace, checks=()), *trace.checks)
    traces = [replace(logged, source=meters.source(logged.source)) for logged in apart]
    if meters.chosen != AUTO and not any(map(meters.is_chosen, traces)):
        nothing = no_trace(f"the meter {meters.chosen} logged nothing", PowerSource(meters.chosen, 0.0, 0.0))
        traces.insert(0, nothing)
    return replace(joined(traces, meters.rank), checks_stand_in=meters.chosen == AUTO)
