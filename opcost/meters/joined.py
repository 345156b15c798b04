"""Several meters that log one measurement together."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.power.ports import Meter
from opcost.power.trace import PowerTrace, joined


class JoinedMeter:
    """Meters of one device as one, the best first. The traces of the others are checks of the best one's."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = meters

    def start(self) -> None:
        for meter in self._meters:
            meter.start()

    def log(self) -> PowerTrace:
        return joined([meter.log() for meter in self._meters])

    def stop(self) -> PowerTrace:
        return joined([meter.stop() for meter in self._meters])
