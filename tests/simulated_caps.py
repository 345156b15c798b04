"""Simulated cards under a power limit, with declared truth: clocks, voltage and memory make their curves.

    frequency f in steps of 15 MHz; voltage flat up to a knee, then linear
    time = max(cycles / f, memory time) + launch time
    energy = (idle + leakage * V) * time + switching * cycles * V**2 + memory energy

The card runs at the highest clock whose mean power is within the cap. None of this has the form of the fit.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from file_limit import RANGE, FileLimit

from opcost.metering.cap_rows import CapCost, CapPoint, Objective, Wish
from opcost.progress import Progress
from opcost.stages.power_cap import CapBoard, CapJob, CappedWork, CapSweep, CapSweepPlan

STEP_HZ = 15e6
LARGEST_LOSS_RATIO = 0.03


@dataclass
class SimulatedCard:
    """A card with a load on it. Loads wait for cycles, for memory or for launches; some never reach a cap."""

    seed: int
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        draw = random.Random(self.seed)
        self.chance = random.Random(self.seed + 10**6)
        highest_hz = draw.choice([1980e6, 1785e6, 1410e6])
        self.clocks_hz = np.arange(round(0.15 * highest_hz / STEP_HZ), round(highest_hz / STEP_HZ) + 1) * STEP_HZ
        knee, lowest_v = draw.uniform(0.4, 0.7), draw.uniform(0.62, 0.78)
        shares = self.clocks_hz / highest_hz
        voltage = lowest_v + (1 - lowest_v) * np.maximum(0.0, shares - knee) / (1 - knee)
        kind = draw.choice(["cycles", "cycles", "memory", "mixed", "launch", "light"])
        cycles_s = draw.uniform(2e-3, 5e-2)
        memory_s = cycles_s * {"memory": draw.uniform(1.1, 2.0), "mixed": draw.uniform(0.8, 1.1)}.get(kind, 0.3)
        launch_s = cycles_s * (draw.uniform(0.1, 0.6) if kind == "launch" else draw.uniform(0.0, 0.05))
        full_w = draw.uniform(90, 190) if kind == "light" else draw.uniform(380, 950)
        idle_w, leakage_w = draw.uniform(60, 85), draw.uniform(10, 50)
        self.times_s = np.maximum(cycles_s / shares, memory_s) + launch_s
        dynamic_j = max(0.05 * full_w, full_w - idle_w - leakage_w) * self.times_s[-1]
        memory_share = {"memory": 0.4, "mixed": 0.25}.get(kind, 0.1)
        constant_j, switching_j = memory_share * dynamic_j, (1 - memory_share) * dynamic_j
        self.energies_j = (idle_w + leakage_w * voltage) * self.times_s + constant_j + switching_j * voltage**2
        self.kind = kind
        self.time_noise, self.energy_noise = draw.uniform(0.005, 0.01), 0.01

    def truth(self, cap_w: float) -> CapPoint:
        """Return time and energy at a cap without noise."""
        within = np.flatnonzero(self.energies_j / self.times_s <= cap_w)
        place = int(within[-1]) if len(within) else 0
        return CapPoint(cap_w, float(self.times_s[place]), float(self.energies_j[place]))

    def measured(self, cap_w: float) -> CapPoint:
        """Return a measurement at a cap."""
        true = self.truth(cap_w)
        time_s = true.time_s * (1 + self.chance.gauss(0, self.time_noise))
        return CapPoint(cap_w, time_s, true.energy_j * (1 + self.chance.gauss(0, self.energy_noise)))

    def loss_ratio(self, cap_w: float, objective: Objective) -> float:
        """Return by how much the true value at a cap is above that of the best cap."""

        def value(cap_w: float) -> float:
            true = self.truth(cap_w)
            return objective.of(true.time_s, true.energy_j)

        return value(cap_w) / min(map(value, np.arange(RANGE.lowest_w, RANGE.highest_w + 1))) - 1


class SimulatedLimit:
    """Implements ``SettableLimit`` without a board."""

    old_w = RANGE.highest_w
    range_w = RANGE

    def __init__(self) -> None:
        self.set_caps_w: list[float] = []

    def set_w(self, power_w: float) -> None:
        assert RANGE.lowest_w <= power_w <= self.old_w
        self.set_caps_w.append(power_w)


@dataclass
class SimulatedWork:
    """Implements ``CapWork``: a load on a simulated card under the cap that was set last."""

    card: SimulatedCard
    limit: SimulatedLimit
    is_steady: bool = True
    name: str = "simulated"

    def measure(self) -> CapCost:
        point = self.card.measured(self.limit.set_caps_w[-1])
        return CapCost(point.time_s, point.energy_j, 0.01 * point.energy_j)


def swept(seed: int, wish: Wish, repetitions: int = 2, is_steady: bool = True) -> tuple[SimulatedCard, CapSweep]:
    """Sweep a simulated card by the usual course; return the card and the result."""
    card, limit = SimulatedCard(seed), SimulatedLimit()
    work = SimulatedWork(card, limit, is_steady)
    board = CapBoard("cuda:0", "GPU-simulated", FileLimit)  # type: ignore[arg-type]
    course = CapJob(board, CappedWork(limit, work), CapSweepPlan(wish, repetitions, seed), lambda _: None)
    return card, course.carry_out(Progress())


def losses(seeds: Sequence[int], objective: Objective, repetitions: int = 2) -> list[float]:
    """Return by how much the true value at each proposed cap is above that of the best cap."""
    found = []
    for seed in seeds:
        card, sweep = swept(seed, Wish(objective), repetitions)
        found.append(card.loss_ratio(sweep.proposal.cap_w, objective))
    return found
