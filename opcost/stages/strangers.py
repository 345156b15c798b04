"""Proof of single operators: calls inserted at many places of a foreign model, beside their rows in that state.

The whole's growth for each inserted call is the operator's cost among other work: its inputs, its weights and its code
are far. An exact copy behind its original would prove nothing, since it finds them near.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

from opcost.columns import grouped
from opcost.errors import CannotMeasureError, UserError
from opcost.estimates import Estimate, combined, ratio_if_known, value_of
from opcost.measuring.conditions import STATE, WARM
from opcost.measuring.known_device import Repeatability
from opcost.measuring.precisions import AUTOCAST_DTYPES
from opcost.measuring.procedure import measure, measure_beside
from opcost.measuring.protocol import LONGEST_LOOP_S, SHORT_WARM_UP_S, MeasurementProtocol
from opcost.measuring.record import Measurement, is_at_power_limit, may_be_throttled
from opcost.measuring.setting import Setting
from opcost.measuring.workload import Calls
from opcost.operators.counts import CAPTURED, Case, as_counted, cases_of
from opcost.operators.model_names import UserCode
from opcost.operators.reuse import CallState, Place
from opcost.operators.tuples import distinct_specs
from opcost.progress import Progress, reported
from opcost.running.apparatus import Apparatus, open_apparatus
from opcost.running.bench import measured_rows
from opcost.running.qualification import qualified
from opcost.running.request import RunRequest, counted
from opcost.sources.models import resolve
from opcost.storage.configs import ModelConfig, model_tuple
from opcost.storage.model_counts import COUNTS
from opcost.summing.in_state import in_state
from opcost.torch_backend.call_states import eviction, written_storages
from opcost.torch_backend.capture import repeatable
from opcost.torch_backend.cost_counter import CostCounter, OperationCost, is_free, total
from opcost.torch_backend.passes import running_calls
from opcost.torch_backend.repeated_calls import Layer, ObservingMode, Operation
from opcost.torch_backend.switches import switched
from opcost.torch_backend.workload import EagerWorkload, as_graph, beside, operator_call, refused_calls
from opcost.units import millijoules, milliseconds, some_of

LARGEST_BYTES = 12 * 2**20
"""A larger stranger evicts its host's data, whose loss is not its own cost: a quarter of an H200's cache."""

EVERY, EVERY_FOR_ENERGY = 13, 5
"""A stranger is inserted behind every so many operations of its host; more of them have an energy that stands out."""

BETWEEN_RATIO = 2.0
"""The least bytes that a host moves between two strangers, over the size of the cache: they are to be far."""

ENERGY_FROM_S = 20e-6
"""Shorter calls add too little energy to a host."""

ENERGY_LOOP_S, ENERGY_PAIRS = 3.0, 2
TIME_PRECISION, LONGEST_TIMING_S = 0.005, 1.5


@dataclass(frozen=True)
class Cost:
    """Time in s and energy in J of a call, None if unknown."""

    time_s: Estimate | None = None
    energy_j: Estimate | None = None


@dataclass(frozen=True)
class Stranger:
    """An operator in a host: the growth of the host for each of its ``inserted`` calls, and what its rows say.

    ``reason`` says why something is unknown.
    """

    operator: str
    input_data: str
    host: str
    inserted: int
    growth: Cost
    in_state: Cost
    warm: Cost
    reason: str = ""

    @property
    def time_ratio(self) -> float | None:
        return ratio_if_known(value_of(self.in_state.time_s), value_of(self.growth.time_s))

    @property
    def energy_ratio(self) -> float | None:
        return ratio_if_known(value_of(self.in_state.energy_j), value_of(self.growth.energy_j))


def drawn_cases(cases: Iterable[Case], number: int, seed: int) -> list[Case]:
    """Return cases of all kinds of operators in turn, drawn by a seed, without large ones and those without work."""
    small = [one for one in cases if one.counted is None or 0 < one.counted.memory_bytes <= LARGEST_BYTES]
    chance = random.Random(seed)
    kinds = [chance.sample(group, len(group)) for group in grouped(small, lambda one: one.operator.short_name).values()]
    chance.shuffle(kinds)
    return [one for turn in zip_longest(*kinds) for one in turn if one is not None][:number]


def as_stranger(case: Case) -> Case:
    """Return a case in the state of a stranger: everything is far."""
    inputs = len(distinct_specs(case.operator.arguments))
    return replace(case, state=str(CallState((Place.FAR,) * inputs, not case.operator.is_function, Place.FAR)))


class Insertion(ObservingMode):
    """Makes a call behind every so many operations that compute; ``inserted`` counts them in the last run."""

    def __init__(self, call: Callable[[], object], every: int) -> None:
        super().__init__(self._run_and_insert)
        self.inserted = 0
        self._call, self._every, self._operations = call, every, 0

    def into(self, host: Callable[[], object]) -> object:
        self.inserted = self._operations = 0
        with self:
            return host()

    def _run_and_insert(self, operation: Operation) -> Any:
        result = operation.run()
        if not is_free(operation.function):
            self._operations += 1
            if self._operations % self._every == 0:
                self.inserted += 1
                self._call()
        return result


@dataclass(frozen=True)
class Host:
    """A model that runs on an apparatus, and the least operations between two strangers that leave them far."""

    name: str
    run: Callable[[], object]
    least: int


def verify_strangers(
    request: RunRequest, hosts: Sequence[str], number: int, seed: int, progress: Progress
) -> list[Stranger]:
    """Insert operators, drawn from counted models, into other models. Raises UserError: there is no GPU."""
    models = counted(request, request.models(request.check), COUNTS)
    host_configs = replace(request, names=tuple(hosts)).models(request.check)
    all_configs = (*host_configs, *(config for config, _ in models))
    amp = [config.name for config in all_configs if config.precision in AUTOCAST_DTYPES]
    if amp:
        raise UserError(f"{some_of(amp)}: autocast is off where operators are inserted; choose another precision")
    cases = [case for _, counts in models for case in as_counted(cases_of(counts.counts, CAPTURED), counts)]
    drawn, found = drawn_cases(dict.fromkeys(cases), number, seed), list[Stranger]()
    items = len(drawn) * len(host_configs)
    with reported(progress, items), qualified(open_apparatus, request.device, request.database, True) as apparatus:
        if not apparatus.is_gpu:
            raise UserError("--device cpu: strangers are measured on a GPU; name one with --device cuda")
        rows: dict[Case, tuple[Cost, Cost, str]] = {}
        for config in host_configs:
            with switched(config.precision, config.attention):
                host, doubt = _host(apparatus, config, request.code_of(config))
                for case in drawn:
                    progress.begin(f"{case.operator.short_name} in {host.name}")
                    if case not in rows:
                        rows[case] = _rows(apparatus, case, request.setting_of(config))
                    warm, far, reason = rows[case]
                    inserted, growth, why = (0, Cost(), "") if reason or doubt else _growth(apparatus, case, host)
                    names = str(case.operator), str(case.input_data), host.name
                    found.append(Stranger(*names, inserted, growth, far, warm, reason or doubt or why))
                    progress.finish(_line(found[-1]))
    return found


def _line(one: Stranger) -> str:
    """Return a result on one line: a run that is stopped has shown what it found."""
    if one.reason:
        return one.reason
    pairs = (one.growth, one.in_state, one.warm)
    times, energies = ([value_of(cost.time_s) for cost in pairs], [value_of(cost.energy_j) for cost in pairs])
    texts = [*map(milliseconds, times), *map(millijoules, energies)]
    return "host's growth {}, in state {}, warm {}; {}, {}, {}".format(*texts)


def _host(apparatus: Apparatus, config: ModelConfig, code: UserCode | None) -> tuple[Host, str]:
    """Return a host, and why it is none."""
    ready = repeatable(resolve(model_tuple(config), code).with_inputs(apparatus.device))
    if ready.carried.needs_kernels:
        return Host(config.name, ready.run, 1), "its host carries a state from run to run"
    costs: list[OperationCost] = []
    with running_calls(), CostCounter(costs.append):
        ready.run()
    moved_bytes = max(total(costs).memory_bytes, 1)
    least = math.ceil(BETWEEN_RATIO * eviction(apparatus.device).cache_bytes * len(costs) / moved_bytes)
    host = Host(config.name, ready.run, least)
    (alone,) = _metered(apparatus, [host.run], 1)
    is_limited = is_at_power_limit(alone[0]) or may_be_throttled(alone[0])
    return host, "its host draws the power limit, so that a stranger changes clocks" if is_limited else ""


def _rows(apparatus: Apparatus, case: Case, setting: Setting) -> tuple[Cost, Cost, str]:
    """Return the cost of a case warm and as a stranger, as rows have it."""
    protocol = MeasurementProtocol(SHORT_WARM_UP_S, LONGEST_LOOP_S, TIME_PRECISION)
    far = as_stranger(case)
    try:
        warm, *_ = measured_rows(apparatus, case, replace(setting, cache=WARM), protocol)
        row, *_ = measured_rows(apparatus, far, replace(setting, cache=STATE), protocol)
    except CannotMeasureError as error:
        return Cost(), Cost(), str(error)
    return _cost(warm.measurement), _cost(in_state(row, warm, far)[0].measurement), ""


def _cost(measured: Measurement) -> Cost:
    return Cost(measured.time, measured.energy)


def _growth(apparatus: Apparatus, case: Case, host: Host) -> tuple[int, Cost, str]:
    """Return how often a call was inserted, and what the host takes more for each."""
    for observer in apparatus.observers:
        observer.before_build()
    background = apparatus.background
    try:
        with nullcontext() if background is None else background.paused(), refused_calls(apparatus.device):
            layer = Layer(*operator_call(case.operator, apparatus.device, case.input_data))
            if written_storages(layer):
                return 0, Cost(), "it writes into its input, whose values would drift"
            insertion = Insertion(layer.call, max(EVERY, host.least))
            calls = Calls(partial(insertion.into, host.run), overhead=host.run)
            pair = beside(EagerWorkload(calls, apparatus.device))
            if not insertion.inserted:
                return 0, Cost(), "its host has too few operations"
            instruments = replace(apparatus.instruments("stranger"), observers=())
            timed = measure_beside(pair, instruments, TIME_PRECISION, LONGEST_TIMING_S)
            time_s = timed.time.times(1 / insertion.inserted)
            energy_j = None
            if time_s.value >= ENERGY_FROM_S:
                often = Insertion(layer.call, max(EVERY_FOR_ENERGY, host.least))
                alone, both = _metered(apparatus, [host.run, partial(often.into, host.run)], ENERGY_PAIRS)
                energy_j = _difference_j(alone, both, often.inserted)
            return insertion.inserted, Cost(time_s, energy_j), ""
    except CannotMeasureError as error:
        return 0, Cost(), str(error)


def _metered(apparatus: Apparatus, calls: Sequence[Callable[[], object]], times: int) -> tuple[list[Measurement], ...]:
    """Measure loops of calls in turn, forwards and backwards; return the measurements of each."""
    instruments = replace(apparatus.instruments("stranger"), observers=())
    # The differences of builds and runs are those of loops that are built again.
    instruments = replace(instruments, device=replace(instruments.device, repeatability=Repeatability()))
    loads = [as_graph(EagerWorkload(Calls(call), apparatus.device)) for call in calls]
    found: tuple[list[Measurement], ...] = tuple([] for _ in calls)
    protocol = MeasurementProtocol(3 * SHORT_WARM_UP_S, ENERGY_LOOP_S)
    for turn in range(times):
        pairs = list(zip(loads, found, strict=True))
        for load, measured in reversed(pairs) if turn % 2 else pairs:
            measured.append(measure(load, instruments, protocol))
    return found


def _difference_j(alone: Sequence[Measurement], both: Sequence[Measurement], inserted: int) -> Estimate | None:
    pairs = [(one.energy, other.energy) for one, other in zip(both, alone, strict=True)]
    differences = [one.less(other) for one, other in pairs if one is not None and other is not None]
    return combined(differences).times(1 / inserted) if len(differences) == len(pairs) else None
