"""How much of what is random the tests run: a part in ``make check``, all with ``--all-seeds`` (``make test-all``).

Of inputs in large numbers ``make test`` runs a quarter of that part.

The bounds of a test hold for all seeds. Results of a part of them may be off by three standard errors of a sample that
is drawn without replacement, which are none where the part is all.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

VARIABLE, ALL, QUICK = "OPCOST_SEEDS", "all", "quick"
"""Set by ``--all-seeds`` or ``--quick``, for the tests' own processes too."""

PART = 100
STANDARD_ERRORS = 3.0


def some_of(everything: int, part: int = PART) -> int:
    """Return how many of all inputs to run."""
    which = os.environ.get(VARIABLE)
    return everything if which == ALL else min(part // 4 if which == QUICK else part, everything)


def some_seeds_of(everything: int) -> int:
    """Return how many of all seeds to run; few of them would say nothing of a coverage near 1."""
    return everything if os.environ.get(VARIABLE) == ALL else min(PART, everything)


@dataclass(frozen=True)
class Seeds:
    """The seeds of a simulation: those to run, and what follows for bounds that hold for ``everything``."""

    everything: int

    def __iter__(self) -> Iterator[int]:
        return iter(range(some_seeds_of(self.everything)))

    def at_least(self, share: float) -> float:
        """Return the least share among the seeds to run, where it is at least so much among all."""
        return share - self._error(math.sqrt(share * (1 - share)))

    def at_most(self, share: float) -> float:
        """Return the largest share among the seeds to run, where it is at most so much among all.

        Below 1, it excludes that all of the seeds to run hold: no bound is one that cannot be missed.
        """
        most = share + self._error(math.sqrt(share * (1 - share)))
        return most if share == 1 else min(most, 1 - 1 / some_seeds_of(self.everything))

    def mean_is(self, truth: float, values: Sequence[float], relative: float) -> bool:
        """Return whether the mean of values, one a seed, is the truth to within a share of it."""
        error = relative * abs(truth) + self._error(float(np.std(values)))
        return abs(float(np.mean(values)) - truth) <= error

    def _error(self, deviation: float) -> float:
        return STANDARD_ERRORS * deviation * math.sqrt(1 / some_seeds_of(self.everything) - 1 / self.everything)
