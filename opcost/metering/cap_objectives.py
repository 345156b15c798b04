"""Objectives of power caps. Standard library only, for the options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from opcost.units import percent


class Objective(Enum):
    """The quantity that the proposed cap minimises: energy times time to some power."""

    ENERGY = "energy"
    EDP = "edp"
    ED2P = "ed2p"

    @property
    def delays(self) -> int:
        return {Objective.ENERGY: 0, Objective.EDP: 1, Objective.ED2P: 2}[self]

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
