"""Parts of ``LayerwiseEnergy`` that need torch: models that it takes, marked iterations, and known costs of layers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch import nn

from opcost.columns import grouped
from opcost.errors import UserError
from opcost.measuring.conditions import WARM, device_type_of, lookup_key, usual_execution
from opcost.measuring.precisions import AUTOCAST_DTYPES, TORCH_DEFAULT
from opcost.measuring.record import MeasurementRow
from opcost.metering.layers import KnownCost, LayerTimes, is_forward
from opcost.operators.counts import of_operators, tuple_key
from opcost.operators.tuples import OperatorTuple, Phase
from opcost.running.devices import product_of
from opcost.storage.database import Database
from opcost.summing.summation import EnergyBasis, best_of_each_board
from opcost.torch_backend.layer_marks import (
    HostStopwatch,
    LayerMarks,
    MarkedIteration,
    Moment,
    in_backward,
    refuse_unobservable,
    stopwatch_of,
)
from opcost.torch_backend.ready_model import Forward, ObservedForward
from opcost.torch_backend.switches import DEFAULT_TF32_SWITCHES, TF32_SWITCHES, tf32_switches

BUDGET_RATIO = 0.01
"""The share of the loop's time that marks may take: half of the 2 % that are allowed in all."""

FORCED = (0, 2, 8, 26)
"""Iterations that are marked whatever it costs: with three behind the first, the cost of marks is known in short loops,
too. Later ones would take about 1 % of a launch-bound loop, beside the budget (``docs/log/meters.md``)."""

GOLDEN_RATIO = 0.618034
"""Multiples of it modulo one are spread evenly. They keep marks out of step with what a loop repeats."""

DIFFERENT_IN_TRAINING = ("BatchNorm", "InstanceNorm", "Dropout", "DropPath", "StochasticDepth", "RReLU", "Transformer")
"""Parts of names of classes that run other kernels in training than in eval mode."""


def check_model(model: nn.Module) -> None:
    """Check that the layers of a model can be observed. Raises UserError: it is no module, or compiled."""
    if not isinstance(model, nn.Module):
        raise UserError(f"LayerwiseEnergy: a {type(model).__name__}, not a torch.nn.Module; pass a module")
    refuse_unobservable(model)


def loop_around(model: nn.Module) -> tuple[str, LayerLoop]:
    """Return a model's torch device and the loop around it, not open. Raises UserError: it cannot be observed there."""
    check_model(model)
    devices = {tensor.device for tensors in (model.parameters(), model.buffers()) for tensor in tensors}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise UserError(f"LayerwiseEnergy: the model is on several devices ({names}); put it on one")
    device: Any = next(iter(devices), torch.device("cpu"))
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"LayerwiseEnergy: the model is on {device}; only cpu and cuda are metered")
    name = f"cuda:{device.index or 0}" if device.type == "cuda" else "cpu"
    return name, LayerLoop(model, stopwatch_of(name))


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
        """End an iteration. From the first call on, calls of the model begin none; those before it are parts of one."""
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
        while self._unread:
            number, begin, end, marked = self._unread[0]
            if not all(map(self._stopwatch.is_over, (end, *(() if marked is None else marked.moments)))):
                return
            self._unread.popleft()
            period_s = self._stopwatch.elapsed_s(begin, end)
            if number and not (marked is not None and marked.is_described):
                self.times.add_period(period_s, is_marked=marked is not None)
            if marked is None:
                self._stopwatch.release((begin,))
                continue
            if marked.is_whole:
                self.times.add(marked.spans(), is_first=marked.is_described)
            self._stopwatch.release(marked.moments[:-1])

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


class MarkingBudget:
    """Chooses iterations: as many as the budget allows, and a few in any case."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._cost_s = 0.0
        self._marked = 0

    def wants(self, iteration: int, elapsed_s: float) -> bool:
        if iteration in FORCED:
            return True
        jitter = (self._marked * GOLDEN_RATIO) % 1
        return self._marked > 0 and self.spent_s + (0.5 + jitter) * self._cost_s <= BUDGET_RATIO * elapsed_s

    def spend(self, cost_s: float) -> None:
        self._marked += 1
        self._cost_s = cost_s
        self.spent_s += cost_s


@dataclass(frozen=True)
class LoopState:
    """The device of a loop, and torch's precision in it as rows name it: they decide which rows are used."""

    device_type: str
    product: str
    precision: str
    matmul_tf32: bool
    cudnn_tf32: bool

    def is_of(self, row: MeasurementRow, operator: OperatorTuple) -> bool:
        """Return whether a row is of this product and a like precision. Versions may differ: rows weight shares."""
        own = row.conditions
        if own.device_product != self.product or own.cache != WARM:
            return False
        if own.execution != usual_execution(self.device_type):
            return False
        wanted = replace(own, precision=self.precision, matmul_tf32=self.matmul_tf32, cudnn_tf32=self.cudnn_tf32)
        return lookup_key(operator, wanted) == lookup_key(operator, own)


def state_of(device: str, autocasts: Collection[tuple[torch.dtype | None, ...]]) -> LoopState | None:
    """Return what rows share with a loop on a torch device; None: its ``autocasts`` change, or no row has them."""
    if len(autocasts) != 1:
        return None
    device_type, switches = device_type_of(device), tf32_switches()
    dtype = next(iter(autocasts))[0 if device_type == "cpu" else 1]
    if dtype is None:
        # Rows in bf16 and fp16 are found by the dtypes of their tuples, whatever this name is.
        names = {DEFAULT_TF32_SWITCHES: TORCH_DEFAULT, **{known: name for name, known in TF32_SWITCHES.items()}}
        precision = names.get(switches)
    else:
        cast_as = str(dtype).removeprefix("torch.")
        precision = next((precision for precision, cast in AUTOCAST_DTYPES.items() if cast == cast_as), None)
    return None if precision is None else LoopState(device_type, product_of(device), precision, *switches)


def known_costs(
    calls: Mapping[int, Mapping[OperatorTuple, int]], state: LoopState, database: Database
) -> dict[int, KnownCost]:
    """Return the cost of each slot, all of whose ``calls`` (number by tuple) have rows with energy."""
    measured = {
        (operator, is_forward(slot)): measured_as(operator, is_forward(slot))
        for slot, of_slot in calls.items()
        for operator in of_slot
    }
    wanted = {operator for found in measured.values() for operator, _ in found}
    if not wanted:
        return {}
    rows = grouped(
        database.operator_measurements.rows(of_operators(wanted)), lambda row: (tuple_key(row.key), row.phase)
    )
    costs = {
        call: next(filter(None, (_cost(one, rows.get((one.key, phase), ()), state) for one, phase in found)), None)
        for call, found in measured.items()
    }
    known = {}
    for slot, of_slot in calls.items():
        time_s = energy_j = 0.0
        for operator, number in of_slot.items():
            cost = costs[operator, is_forward(slot)]
            if cost is None:
                break
            time_s += number * cost.time_s
            energy_j += number * cost.energy_j
        else:
            known[slot] = KnownCost(time_s, energy_j)
    return known


def measured_as(operator: OperatorTuple, in_forward: bool = True) -> list[tuple[OperatorTuple, Phase]]:
    """Return the tuples, with their phases, whose rows have the kernels of a call, the best first.

    In training that is the call in a forward of a training step, else the tuple in eval mode if it runs the same.
    """
    if not in_forward:
        return [(operator, Phase.BACKWARD)]
    if operator.mode != "train":
        return [(operator, Phase.INFERENCE)]
    is_different = any(part in operator.short_name for part in DIFFERENT_IN_TRAINING)
    has_twin = not (is_different or dict(operator.parameters).get("dropout"))
    in_eval = [(replace(operator, mode="eval"), Phase.INFERENCE)] if has_twin else []
    return [(operator, Phase.FORWARD), *in_eval]


def _cost(operator: OperatorTuple, rows: Iterable[MeasurementRow], state: LoopState) -> KnownCost | None:
    """Return the median cost under an operator's newest conditions: values of a loop's tensors are not looked at."""
    fitting = [row for row in rows if state.is_of(row, operator) and EnergyBasis.MEASURED.is_known(row)]
    if not fitting:
        return None
    newest = max(fitting, key=lambda row: row.measurement.started_at).conditions
    best = best_of_each_board([row for row in fitting if row.conditions == newest], with_parts=True)
    costs = [(row.measurement.time_s, row.measurement.energy_j) for row in best]
    energies_j = [energy_j for _, energy_j in costs if energy_j is not None]
    return KnownCost(median(time_s for time_s, _ in costs), median(energies_j)) if energies_j else None
