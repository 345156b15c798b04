"""A meter with what its qualification found: which trace comes first, how fast and noisy each is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opcost.measuring.qualification import STEADY_ONLY, MeterQuality
from opcost.power.meter_names import AUTO, short_name
from opcost.power.ports import Meter
from opcost.power.trace import PowerSource, PowerTrace, joined, no_trace

LONGER_READINGS = 2.0
"""A meter whose readings are this much further apart than in its qualification has another noise."""


class KnownMeter:
    """A meter with what its qualification has found: which of its traces comes first, how fast and noisy each is.

    Meters that were found wrong come last, and before them those that said nothing then. One that is chosen by name
    comes first, and no other stands in for it.
    """

    def __init__(self, meter: Meter, found: Mapping[str, MeterQuality], chosen: str = AUTO) -> None:
        self._meter = meter
        self._found = found
        self._chosen = chosen

    def start(self) -> None:
        """Begin a measurement."""
        self._meter.start()

    def log(self) -> PowerTrace:
        """Return the rows so far."""
        return self._known(self._meter.log())

    def stop(self) -> PowerTrace:
        """End the measurement and return its rows."""
        return self._known(self._meter.stop())

    def _known(self, trace: PowerTrace) -> PowerTrace:
        apart = (replace(trace, checks=()), *trace.checks)
        traces = [replace(logged, source=self._known_source(logged.source)) for logged in apart]
        if self._chosen != AUTO and not any(map(self._is_chosen, traces)):
            nothing = no_trace(f"the meter {self._chosen} logged nothing", PowerSource(self._chosen, 0.0, 0.0))
            traces.insert(0, nothing)
        return replace(joined(traces, self._rank), checks_stand_in=self._chosen == AUTO)

    def _rank(self, trace: PowerTrace) -> int:
        quality = self._found.get(trace.source.name)
        if self._is_chosen(trace):
            return 0
        if quality is None:
            return 2
        return 1 if quality.is_right_when_steady else 3

    def _is_chosen(self, trace: PowerTrace) -> bool:
        return short_name(trace.source.name) == self._chosen

    def _known_source(self, source: PowerSource) -> PowerSource:
        quality = self._found.get(source.name)
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
            # The noise was found in other readings: campaigns look at the counter more rarely.
            return source
        correlation_time_s, noise_ratio = quality.correlation_time_s or 0.0, quality.noise_ratio or 0.0
        return replace(source, correlation_time_s=correlation_time_s, noise_ratio=noise_ratio)
