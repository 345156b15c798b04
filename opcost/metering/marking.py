"""Which iterations of a loop are marked, so that marks cost a small share of its time."""

from __future__ import annotations

BUDGET_RATIO = 0.01
"""The share of the loop's time that marks may take: half of the 2 % that are allowed in all."""

FORCED = (0, 2, 8, 26)
"""Iterations that are marked whatever it costs: with three behind the first, the cost of marks is known in short loops,
too. Later ones would take about 1 % of a launch-bound loop, beside the budget (``docs/log/meters.md``)."""

GOLDEN_RATIO = 0.618034
"""Multiples of it modulo one are spread evenly. They keep marks out of step with what a loop repeats."""


class MarkingBudget:
    """Chooses iterations: as many as the budget allows, and a few in any case."""

    def __init__(self, budget_ratio: float = BUDGET_RATIO) -> None:
        self.spent_s = 0.0
        self._budget_ratio = budget_ratio
        self._cost_s = 0.0
        self._marked = 0

    def wants(self, iteration: int, elapsed_s: float) -> bool:
        """Return whether an iteration is to be marked.

        Args:
            iteration: its number, from 0.
            elapsed_s: the time since the begin of iteration 0.
        """
        if iteration in FORCED:
            return True
        jitter = (self._marked * GOLDEN_RATIO) % 1
        return self._marked > 0 and self.spent_s + (0.5 + jitter) * self._cost_s <= self._budget_ratio * elapsed_s

    def spend(self, cost_s: float) -> None:
        self._marked += 1
        self._cost_s = cost_s
        self.spent_s += cost_s
