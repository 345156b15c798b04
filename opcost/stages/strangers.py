"""Proof of single operators: calls inserted at many places of a foreign model, beside their rows in that state.

The whole's growth for each inserted call is the operator's cost among other work: its inputs, its weights and its code
are far. An exact copy behind its original would prove nothing, since it finds them near.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from opcost.columns import grouped
from opcost.errors import CannotMeasureError, UserError
from opcost.estimates import Estimate, combined
from opcost.measuring.conditions import STATE, WARM
from opcost.measuring.procedure import measure_beside
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement
from opcost.measuring.setting import Setting
from opcost.measuring.workload import Calls
from opcost.operators.counts import CAPTURED, Case, as_counted, cases_of
from opcost.operators.reuse import CallState
from opcost.operators.tuples import distinct_specs
from opcost.progress import Progress, reported
from opcost.running.apparatus import Apparatus, numbered, open_apparatus
from opcost.running.bench import measured_rows
from opcost.running.request import RunRequest, counted
from opcost.sources.models import resolve
from opcost.storage.configs import model_tuple
from opcost.storage.model_counts import COUNTS
from opcost.summing.in_state import in_state
from opcost.torch_backend.cost_counter import is_free
from opcost.torch_backend.passes import running_calls
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.repeated_calls import ObservingMode, Operation
from opcost.torch_backend.switches import autocast, precision
from opcost.torch_backend.workload import EagerWorkload, as_graph, beside, operator_call

LARGEST_BYTES = 12 * 2**20
"""A larger stranger evicts its host's data, whose loss is not its own cost: a quarter of an H200's cache."""

EVERY = 13
"""A stranger is inserted behind every so many operations of its host."""

ENERGY_FROM_S = 20e-6
"""Shorter calls add too little energy to a host."""

ENERGY_LOOP_S, ENERGY_PAIRS = 1.0, 2
TIME_PRECISION = 0.005


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
        return _ratio(self.in_state.time_s, self.growth.time_s)

    @property
    def energy_ratio(self) -> float | None:
        return _ratio(self.in_state.energy_j, self.growth.energy_j)


def _ratio(one: Estimate | None, other: Estimate | None) -> float | None:
    return None if one is None or other is None or not other.value else one.value / other.value


def drawn_cases(cases: Iterable[Case], number: int, seed: int) -> list[Case]:
    """Return cases of all kinds of operators in turn, drawn by a seed, without large ones and those without work."""
    small = [one for one in cases if one.counted is None or 0 < one.counted.memory_bytes <= LARGEST_BYTES]
    chance = random.Random(seed)
    kinds = [chance.sample(group, len(group)) for group in grouped(small, lambda one: one.operator.short_name).values()]
    chance.shuffle(kinds)
    longest = max(map(len, kinds), default=0)
    in_turn = [kind[place] for place in range(longest) for kind in kinds if place < len(kind)]
    return in_turn[:number]


def as_stranger(case: Case) -> Case:
    """Return a case in the state of a stranger: everything is far."""
    inputs = len(distinct_specs(case.operator.arguments))
    return replace(case, state=str(CallState((True,) * inputs, not case.operator.is_function, True)))


class Insertion(ObservingMode):
    """Makes a call behind every so many operations that compute; ``inserted`` counts them."""

    def __init__(self, call: Callable[[], object], every: int = EVERY) -> None:
        super().__init__(self._run_and_insert)
        self.inserted = 0
        self._call, self._every, self._operations = call, every, 0

    def _run_and_insert(self, operation: Operation) -> Any:
        result = operation.run()
        if not is_free(operation.function):
            self._operations += 1
            if self._operations % self._every == 0:
                self.inserted += 1
                self._call()
        return result


def verify_strangers(
    request: RunRequest, hosts: Sequence[str], number: int, seed: int, progress: Progress
) -> list[Stranger]:
    """Insert operators, drawn from counted models, into other models. Raises UserError: there is no GPU."""
    models = counted(request, request.models(request.check), COUNTS)
    host_configs = replace(request, names=tuple(hosts)).models(request.check)
    cases = [case for _, counts in models for case in as_counted(cases_of(counts.counts, CAPTURED), counts)]
    drawn = drawn_cases(dict.fromkeys(cases), number, seed)
    found: list[Stranger] = []
    with reported(progress, len(drawn) * len(host_configs)), open_apparatus(request.device, request.database) as one:
        if not one.is_gpu:
            raise UserError("--device cpu: strangers are measured on a GPU; name one with --device cuda")
        rows: dict[Case, tuple[Cost, Cost, str]] = {}
        for host in host_configs:
            setting = request.setting_of(host)
            with precision(host.precision):
                context = partial(autocast, host.precision, one.device)
                ready = resolve(model_tuple(host), request.code_of(host)).with_inputs(one.device, context)
                for case in drawn:
                    progress.begin(f"{case.operator.short_name} in {host.name}")
                    if case not in rows:
                        rows[case] = _rows(one, case, setting)
                    warm, in_state, reason = rows[case]
                    inserted, growth, why = _growth(one, case, ready, setting)
                    stranger = Stranger(
                        str(case.operator),
                        str(case.input_data),
                        host.name,
                        inserted,
                        growth,
                        in_state,
                        warm,
                        reason or why,
                    )
                    found.append(stranger)
                    progress.finish(stranger.reason or f"{stranger.time_ratio:.3f} of its growth in time")
            del ready
    return found


def _rows(apparatus: Apparatus, case: Case, setting: Setting) -> tuple[Cost, Cost, str]:
    """Return the cost of a case warm and as a stranger, as rows have it."""
    protocol = MeasurementProtocol(0.1, 2.0, TIME_PRECISION)
    far = as_stranger(case)
    try:
        warm, *_ = measured_rows(apparatus, case, replace(setting, cache=WARM), protocol)
        row, *_ = measured_rows(apparatus, far, replace(setting, cache=STATE), protocol)
    except CannotMeasureError as error:
        return Cost(), Cost(), str(error)
    return _cost(warm.measurement), _cost(in_state(row, warm, far)[0].measurement), ""


def _cost(measured: Measurement) -> Cost:
    return Cost(measured.time, measured.energy)


def _growth(apparatus: Apparatus, case: Case, ready: ReadyModel, setting: Setting) -> tuple[int, Cost, str]:
    """Return how often a call was inserted, and what the host takes more for each."""
    background = apparatus.background
    try:
        function, args, kwargs = operator_call(case.operator, apparatus.device, case.input_data)
        insertion = Insertion(lambda: function(*args, **kwargs))

        def with_strangers() -> object:
            with insertion:
                return ready.run()

        with running_calls():
            with_strangers()
        inserted = insertion.inserted
        if not inserted:
            return 0, Cost(), f"its host has less than {EVERY} operations"
        for observer in apparatus.observers:
            observer.before_build()
        if background is not None:
            background.pause()
        pair = beside(EagerWorkload(Calls(with_strangers, overhead=ready.run), apparatus.device))
        timed = measure_beside(pair, apparatus.instruments("stranger"), TIME_PRECISION)
        time_s = timed.time.times(1 / inserted)
        energy_j = (
            _energy_growth_j(apparatus, setting, with_strangers, ready) if time_s.value >= ENERGY_FROM_S else None
        )
        return inserted, Cost(time_s, None if energy_j is None else energy_j.times(1 / inserted)), ""
    except CannotMeasureError as error:
        return 0, Cost(), str(error)
    finally:
        if background is not None:
            background.resume()


def _energy_growth_j(
    apparatus: Apparatus, setting: Setting, with_strangers: Callable[[], object], ready: ReadyModel
) -> Estimate | None:
    names, protocol = numbered("stranger"), MeasurementProtocol(0.3, ENERGY_LOOP_S)
    loads = [as_graph(EagerWorkload(Calls(call), apparatus.device)) for call in (with_strangers, ready.run)]
    differences = []
    for _ in range(ENERGY_PAIRS):
        both, alone = (apparatus.measure_build(load, setting, names, protocol).energy for load in loads)
        if both is None or alone is None:
            return None
        differences.append(both.less(alone))
    return combined(differences)
