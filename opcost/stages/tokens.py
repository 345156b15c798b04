"""The cost of a token: prefills and decode steps of a language model over batches and contexts."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product
from pathlib import Path
from types import MappingProxyType

from opcost.comparing.predicted_run import Range
from opcost.errors import AttentionRefusedError, UserError
from opcost.estimates import ratio_if_known, total_if_known
from opcost.measuring.precisions import TORCH_DEFAULT
from opcost.operators.attention import ANY_BACKEND, IMPLEMENTATION, form_and_backend
from opcost.operators.counts import OperatorCount
from opcost.operators.generation import DECODE, GENERATING, PREFILL, generation_arguments
from opcost.operators.model_names import TRANSFORMERS
from opcost.operators.tuples import tensor_specs
from opcost.progress import Progress, reported
from opcost.running.request import RunRequest
from opcost.stages.predict import Prediction, PredictionRequest, config_and_counts, predictions
from opcost.stages.wanted_model import WantedModel
from opcost.storage.database import Database
from opcost.storage.language_models import LanguageModel
from opcost.units import milliseconds

PREFILL_BATCH = 1
"""A server reads prompts one by one, or joins parts of several."""

WEIGHT_PLACES: Mapping[str, int] = MappingProxyType({"addmm": 2, "linear": 1, "_grouped_mm": 1})
"""The place of the weights among the inputs of functions that take them."""


class WorkPart(str, Enum):
    """A part of the work of a language model."""

    ATTENTION = "attention"
    PRODUCTS = "products"
    REST = "rest"


@dataclass(frozen=True)
class Point:
    """A run: a prefill of a prompt of ``context`` tokens, or a decode step of which each text attends to as many.

    ``attention`` is a kind of ``operators.attention``; ``execution`` is None for the usual one.
    """

    mode: str
    batch: int
    context: int
    attention: str = ANY_BACKEND
    execution: str | None = None

    @property
    def tokens(self) -> int:
        """The tokens that a run reads or makes."""
        return self.batch * (self.context if self.mode == PREFILL else 1)

    def wanted(self, wish: TokenRequest) -> WantedModel:
        size, name = (self.batch, self.tokens // self.batch), f"{TRANSFORMERS}:{wish.model.class_name}"
        form, backend = form_and_backend(self.attention)
        model = WantedModel(name, size, wish.precision, attention=backend, arguments=wish.model.arguments)
        own = {} if form is None else {IMPLEMENTATION: form}
        return model.with_arguments({**generation_arguments(self.mode, self.context), **own})


@dataclass(frozen=True)
class TokenCost:
    """The cost of a point, of all its tokens together in s and J, with intervals of 90 %.

    The energy is None if it is unknown, and so are the shares of its parts then. ``weights_ratio`` and ``cache_ratio``
    are shares of the bytes that operators read and write. ``idle_ratio`` is the card's idle power times the time, over
    the energy; None if no qualification has that power. ``least_bytes`` of memory are needed for weights, the largest
    operator and the cache; ``is_too_much`` says whether the device has less. ``libraries`` are the versions that the
    model was counted and measured with. ``is_attention_known`` is False if attention has no row of its kind.
    """

    point: Point
    time_s: Range
    energy_j: Range | None
    is_measured: bool
    libraries: tuple[str | None, str | None]
    is_attention_known: bool
    outside_time_ratio: float
    time_ratios: Mapping[WorkPart, float]
    energy_ratios: Mapping[WorkPart, float] | None
    weights_ratio: float
    cache_ratio: float
    idle_ratio: float | None
    least_bytes: int
    is_too_much: bool

    @property
    def shares(self) -> Mapping[WorkPart, float]:
        """The shares of the parts in the energy, or in the time if the energy is unknown."""
        return self.energy_ratios or self.time_ratios

    @property
    def power_w(self) -> float | None:
        return None if self.energy_j is None else self.energy_j.value / self.time_s.value

    @property
    def energy_of_token_j(self) -> Range | None:
        return None if self.energy_j is None else self.energy_j.times(1 / self.point.tokens)

    @property
    def tokens_per_s(self) -> float:
        return self.point.tokens / self.time_s.value


@dataclass(frozen=True)
class RequestSize:
    """A request to a language model: the tokens of its prompt, and those that are made."""

    prompt: int
    made: int

    @property
    def lengths(self) -> tuple[int, int]:
        """The tokens that the first and the last step attend to."""
        return self.prompt, self.prompt + self.made


@dataclass(frozen=True)
class RequestCost:
    """The time in s and the energy in J of one request whose steps are made for a batch, with intervals of 90 %.

    The prompt is read alone. A step costs what the first and the last one cost in the mean, since the work of a step
    grows in proportion to the cache that it reads. The energy is None if it is unknown.
    """

    size: RequestSize
    batch: int
    attention: str
    execution: str | None
    time_s: Range
    energy_j: Range | None
    prefill_time_ratio: float
    prefill_energy_ratio: float | None


@dataclass(frozen=True)
class TokenRequest:
    """The grid: batches and contexts of decode steps; the same contexts are the prompts of prefills.

    ``requests`` are made of further points. All are of each kind of attention in each execution, None for the usual
    one, but for those ``refused``: mode, kind of attention, and the reason.
    """

    name: str
    model: LanguageModel
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    precision: str = TORCH_DEFAULT
    device: str | None = None
    executions: tuple[str | None, ...] = (None,)
    requests: tuple[RequestSize, ...] = ()
    attentions: tuple[str, ...] = (ANY_BACKEND,)
    refused: tuple[tuple[str, str, str], ...] = ()

    @property
    def kinds(self) -> list[tuple[str, str | None]]:
        """Each kind of attention in each execution."""
        return list(product(self.attentions, self.executions))

    @property
    def points(self) -> list[Point]:
        prompts = dict.fromkeys([*self.contexts, *(one.prompt for one in self.requests)])
        contexts = dict.fromkeys([*self.contexts, *(length for one in self.requests for length in one.lengths)])
        runs = [(PREFILL, PREFILL_BATCH, prompt) for prompt in prompts]
        runs += [(DECODE, batch, context) for batch in self.batches for context in contexts]
        points = [Point(*run, *kind) for run in runs for kind in self.kinds]
        return [one for one in points if not self.is_refused(one.attention, one.mode)]

    def is_refused(self, attention: str, *modes: str) -> bool:
        return any(kind == attention and mode in modes for mode, kind, _ in self.refused)


@dataclass(frozen=True)
class TokenReport:
    """The costs of all points of a model and of requests, on one device under the same conditions."""

    name: str
    costs: tuple[TokenCost, ...]
    requests: tuple[RequestCost, ...]
    device_product: str
    precision: str
    execution: str
    refused: tuple[tuple[str, str, str], ...]


def tokens(request: RunRequest, wish: TokenRequest, cache: Path, progress: Progress) -> TokenReport:
    """Return the costs of all points. Raises UserError: the model cannot be counted, or nothing is measured."""
    found: list[tuple[Point, Prediction]] = []
    asked = [PredictionRequest(point.wanted(wish), wish.device, point.execution) for point in wish.points]
    made = predictions(request, asked, cache, Progress())
    with reported(progress, len(wish.points)):
        for point in wish.points:
            kind = " ".join(one for one in (point.attention, point.execution) if one not in {ANY_BACKEND, None})
            progress.begin(f"{point.mode} {point.batch} x {point.context} {kind}".rstrip())
            found.append((point, next(made)))
            progress.finish(milliseconds(found[-1][1].time_s.value))
    conditions = found[0][1].result.conditions
    idle_w = idle_power_w(request.database, conditions.device_product)
    costs = {point: token_cost(point, one, idle_w) for point, one in found}
    return TokenReport(
        name=wish.name,
        costs=tuple(costs.values()),
        requests=tuple(
            request_cost(costs, size, batch, kind)
            for size, batch, kind in product(wish.requests, wish.batches, wish.kinds)
            if not wish.is_refused(kind[0], *GENERATING)
        ),
        device_product=conditions.device_product,
        precision=conditions.precision,
        execution=conditions.execution,
        refused=wish.refused,
    )


def without_refused(request: RunRequest, wish: TokenRequest) -> TokenRequest:
    """Return a grid without the modes that a kind of attention cannot run. Raises UserError: nothing is left.

    The smallest point of each is counted: the form of its calls is that of all.
    """
    refused = list[tuple[str, str, str]]()
    for mode, kind in product(GENERATING, wish.attentions):
        point = next(one for one in wish.points if (one.mode, one.attention) == (mode, kind))
        if form_and_backend(kind)[1] != ANY_BACKEND:
            try:
                config_and_counts(request, PredictionRequest(point.wanted(wish)), Progress())
            except AttentionRefusedError as error:
                refused.append((mode, kind, str(error)))
    left = replace(wish, refused=tuple(refused))
    if not left.points:
        raise UserError(*(f"{mode}, {kind}: {reason}" for mode, kind, reason in refused))
    return left


def idle_power_w(database: Database, product: str) -> float | None:
    """Return the median idle power of boards of a product, None if no qualification has one."""
    rows = database.meter_qualifications.rows()
    known = [row.idle_power_w for row in rows if row.device_product == product and row.idle_power_w is not None]
    return statistics.median(known) if known else None


def token_cost(point: Point, found: Prediction, idle_w: float | None) -> TokenCost:
    """Return the cost of a point; the parts are shares of the sum of its operators."""
    run = found.run
    pieces = [(part.count, part.time_s, part.energy_j) for part in found.result.cost.parts]
    pieces += [(one.count, one.time_s, one.energy_j) for one in run.calls]
    energies = _shares((part_of(count), energy_j) for count, _, energy_j in pieces)
    times = _shares((part_of(count), time_s) for count, time_s, _ in pieces)
    counts = {id(count): count for count, *_ in pieces}.values()
    in_all = sum(count.memory_bytes * count.occurrences for count in counts)
    weights = sum(_weight_bytes(count) * count.occurrences for count in counts)
    cached = sum(_cache_bytes(count) * count.occurrences for count in counts)
    least_bytes = found.memory.least_bytes + cached
    return TokenCost(
        point=point,
        time_s=found.time_s,
        energy_j=found.energy_j,
        is_measured=found.whole is not None,
        libraries=(found.result.counted_with, found.result.measured_with),
        is_attention_known=found.whole is not None
        or WorkPart.ATTENTION not in {part_of(one.count) for one in run.calls},
        outside_time_ratio=run.outside_time_ratio,
        time_ratios=times or {},
        energy_ratios=energies,
        weights_ratio=weights / in_all,
        cache_ratio=cached / in_all,
        idle_ratio=ratio_if_known(idle_w, found.power_w),
        least_bytes=least_bytes,
        is_too_much=least_bytes > found.memory.device_bytes,
    )


def request_cost(
    costs: Mapping[Point, TokenCost], size: RequestSize, batch: int, kind: tuple[str, str | None]
) -> RequestCost:
    """Return the cost of a request from those of its prefill, and of its first and last step."""
    prefill = costs[Point(PREFILL, PREFILL_BATCH, size.prompt, *kind)]
    steps = [costs[Point(DECODE, batch, length, *kind)] for length in size.lengths]
    time_s = Range.sum_of([prefill.time_s, *(step.time_s.times(size.made / 2) for step in steps)])
    energies = [prefill.energy_j, *(step.energy_of_token_j for step in steps)]
    known = [one for one in energies if one is not None]
    energy_j = None
    if len(known) == len(energies):
        energy_j = Range.sum_of([known[0], *(one.times(size.made / 2) for one in known[1:])])
    return RequestCost(
        size=size,
        batch=batch,
        attention=kind[0],
        execution=kind[1],
        time_s=time_s,
        energy_j=energy_j,
        prefill_time_ratio=prefill.time_s.value / time_s.value,
        prefill_energy_ratio=None if energy_j is None else known[0].value / energy_j.value,
    )


def part_of(count: OperatorCount) -> WorkPart:
    if "attention" in count.operator.short_name.lower():
        return WorkPart.ATTENTION
    return WorkPart.PRODUCTS if count.flop else WorkPart.REST


def _weight_bytes(count: OperatorCount) -> int:
    place = WEIGHT_PLACES.get(count.operator.short_name)
    if place is not None and count.operator.is_function:
        return sum(spec.memory_bytes for spec in tensor_specs(count.operator.inputs)[place : place + 1])
    # Of a table few rows are read.
    return min(count.weight_bytes or 0, count.memory_bytes)


def _cache_bytes(count: OperatorCount) -> int:
    """Return the bytes of keys and values that attention reads; of a prefill they are those of its own tokens."""
    if part_of(count) is not WorkPart.ATTENTION:
        return 0
    return sum(spec.memory_bytes for spec in tensor_specs(count.operator.inputs)[1:3])


def _shares(pieces: Iterable[tuple[WorkPart, float | None]]) -> dict[WorkPart, float] | None:
    found = list(pieces)
    in_all = total_if_known(value for _, value in found)
    if not in_all:
        return None
    return {part: sum(value or 0.0 for own, value in found if own is part) / in_all for part in WorkPart}
