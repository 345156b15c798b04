"""The iterations of a loop whose layers are timed: which are marked, and what their marks say once they are over."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from torch import nn

from opcost.metering.layer_times import LayerTimes
from opcost.torch_backend.layer_marks import HostStopwatch, LayerMarks, MarkedIteration, Moment, in_backward
from opcost.torch_backend.observation import Forward, ObservedForward


class LayerLoop:
    """Times the layers of a model from ``open`` to ``close``.

    An iteration begins when the model is called, unless ``step`` has been called, which then ends each. Marks are read
    after the device has come to them, so that the loop never waits.
    """

    def __init__(self, model: nn.Module, stopwatch: HostStopwatch) -> None:
        self.marks = LayerMarks(model, stopwatch)
        self.times = LayerTimes(len(self.marks.paths))
        self.iterations = 0
        self.own_s = 0.0
        self.is_open = False
        self._stopwatch = stopwatch
        self._budget = MarkingBudget()
        self._observed = ObservedForward(model, self._around_model)
        self._is_by_steps = False
        self._is_in_iteration = False
        self._depth = 0
        self._begin_s = 0.0
        self._opening_s = 0.0
        self._is_undescribed = True
        self._begin: Moment | None = None
        self._unread: deque[tuple[int, Moment, Moment, MarkedIteration | None]] = deque()

    def open(self) -> None:
        self.is_open = True
        self._observed.install()

    def step(self) -> None:
        """End an iteration here. From the first call on, calls of the model do not begin iterations any more.

        Those before the first call are parts of one iteration.
        """
        if not self._is_by_steps:
            self._is_by_steps = True
            if self.marks.is_open:
                self.marks.close(self._stopwatch.mark())
            self._unread.clear()
            self.times = LayerTimes(len(self.marks.paths))
            self._budget = MarkingBudget()
            self._is_undescribed = True
            self.iterations = 0
        if self._is_in_iteration:
            self._end_iteration()

    def close(self, is_failed: bool = False) -> None:
        """Put the model back as it was, and end the last iteration; a failed one has no marks."""
        self.is_open = False
        self._observed.remove()
        if is_failed:
            self.marks.remove()
        if self._is_in_iteration:
            self._end_iteration()

    def read(self) -> None:
        """Read all marks that are over."""
        while self._unread and self._is_over(self._unread[0][2], self._unread[0][3]):
            number, begin, end, marked = self._unread.popleft()
            period_s = self._stopwatch.elapsed_s(begin, end)
            if number and not (marked is not None and marked.is_described):
                self.times.add_period(period_s, is_marked=marked is not None)
            if marked is None:
                self._stopwatch.release((begin,))
                continue
            if marked.is_whole:
                self.times.add(marked.spans(), is_first=marked.is_described)
            self._stopwatch.release(marked.moments[:-1])

    def _is_over(self, end: Moment, marked: MarkedIteration | None) -> bool:
        is_over = self._stopwatch.is_over
        return is_over(end) and (marked is None or all(map(is_over, marked.moments)))

    def _around_model(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._depth or not self.is_open or in_backward():
            # Not open: someone else's forward, which has stayed, calls this one.
            return self.marks.around_model(forward, args, kwargs)
        self._begin_iteration()
        self._depth += 1
        try:
            return self.marks.around_model(forward, args, kwargs)
        finally:
            self._depth -= 1

    def _begin_iteration(self) -> None:
        if not self._stopwatch.can_mark:
            # The marks of an iteration before it would be captured, too.
            self.marks.remove()
            return
        if self._is_in_iteration:
            if self._is_by_steps:
                return
            self._end_iteration()
        begin_s = time.perf_counter()
        if not self.iterations:
            self._begin_s = begin_s
        self._is_in_iteration = True
        if self._begin is None:
            self._begin = self._stopwatch.mark()
        if self._budget.wants(self.iterations, begin_s - self._begin_s):
            self.marks.open(self._begin, describes=self._is_undescribed)
            self._is_undescribed = False
        self._opening_s = time.perf_counter() - begin_s
        self.own_s += self._opening_s

    def _end_iteration(self) -> None:
        begin_s = time.perf_counter()
        self._is_in_iteration = False
        end, begin = self._stopwatch.mark(), self._begin
        marked = self.marks.close(end) if self.marks.is_open else None
        self._unread.append((self.iterations, begin, end, marked))
        self.iterations += 1
        self._begin = end
        self.read()
        if marked is not None:
            own_s, excess_s = float(marked.own_s.sum()), self.times.excess_s or 0.0
            self.own_s += own_s
            if not marked.is_described:
                closing_s = time.perf_counter() - begin_s
                self._budget.spend(max(self._opening_s + own_s + closing_s, excess_s))
        self.own_s += time.perf_counter() - begin_s


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
