"""Rows of power-cap sweeps: a measurement at a cap; objectives of caps. Standard library only, for the options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from opcost.columns import ABOVE_0, COUNT, COUNT_FROM_1, FROM_0, MOMENT, Column, Columns
from opcost.units import percent, short_uuid


class Objective(Enum):
    """The quantity that the proposed cap minimises: energy times time to some power."""

    ENERGY = "energy"
    EDP = "edp"
    ED2P = "ed2p"

    @property
    def delays(self) -> int:
        return list(Objective).index(self)

    def of(self, time_s: float, energy_j: float) -> float:
        """Return the quantity in J, J s or J s²."""
        return energy_j * time_s**self.delays


@dataclass(frozen=True)
class Wish:
    """The cap that is looked for: the least of an objective, or the least energy within a slowdown."""

    objective: Objective = Objective.ENERGY
    max_slowdown_ratio: float | None = None

    def __str__(self) -> str:
        if self.max_slowdown_ratio is None:
            return {"energy": "energy", "edp": "EDP", "ed2p": "ED²P"}[self.objective.value]
        return f"energy within a slowdown of {percent(self.max_slowdown_ratio)}"


@dataclass(frozen=True)
class CapPoint:
    """One measurement at a cap: time and energy of the same work."""

    cap_w: float
    time_s: float
    energy_j: float

    @property
    def power_w(self) -> float:
        return self.energy_j / self.time_s


@dataclass(frozen=True)
class PowerCapRow(Columns):
    """One measurement of a model or command at one power limit. ``found_limit_w`` is set again after the sweep."""

    sweep_started_at: Annotated[str, Column("begin of the sweep that it is of", MOMENT)]
    work: Annotated[str, Column("the model, or the command")]
    device: Annotated[str, Column("device: cuda:N")]
    device_uuid: Annotated[str, Column("beginning of the board's UUID", read=short_uuid)]
    order_seed: Annotated[int, Column("seed of the random order of the caps", COUNT)]
    place: Annotated[int, Column("place of the measurement in the sweep", COUNT_FROM_1)]
    found_limit_w: Annotated[float, Column("power limit before the sweep", ABOVE_0)]
    cap_w: Annotated[float, Column("power limit of this measurement", ABOVE_0)]
    time_s: Annotated[float, Column("an iteration of a model, or the command, by the wall clock", ABOVE_0)]
    energy_j: Annotated[float | None, Column("of the same, of the GPU's board, idle power included", ABOVE_0)]
    energy_standard_error_j: Annotated[float | None, Column("one standard error of that", FROM_0)]
    power_w: Annotated[float | None, Column("mean power", ABOVE_0)]
    energy_delay_product: Annotated[float | None, Column("energy times time", ABOVE_0, "J s")]
    energy_delay_squared_product: Annotated[float | None, Column("energy times the square of time", ABOVE_0, "J s^2")]
    energy_missing_reason: Annotated[str | None, Column("reason of an empty energy")]

    @property
    def point(self) -> CapPoint | None:
        return None if self.energy_j is None else CapPoint(self.cap_w, self.time_s, self.energy_j)


@dataclass(frozen=True)
class CapCost:
    """Time and energy of the work at a cap, by a meter; an energy of None has a reason."""

    time_s: float
    energy_j: float | None
    energy_standard_error_j: float | None = None
    missing_reason: str | None = None

    def row(self, place: int, cap_w: float, **of_sweep: Any) -> PowerCapRow:
        """Return the row of this cost; ``of_sweep`` are the columns that all rows of one sweep share."""
        time_s, energy_j = self.time_s, self.energy_j
        return PowerCapRow(
            **of_sweep,
            place=place,
            cap_w=cap_w,
            time_s=time_s,
            energy_j=energy_j,
            energy_standard_error_j=self.energy_standard_error_j,
            power_w=None if energy_j is None else energy_j / time_s,
            energy_delay_product=None if energy_j is None else Objective.EDP.of(time_s, energy_j),
            energy_delay_squared_product=None if energy_j is None else Objective.ED2P.of(time_s, energy_j),
            energy_missing_reason=self.missing_reason,
        )
