"""The predicted cost of one run of a model: measured operators, predicted ones, and what corrects their sum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from enum import Enum
from operator import attrgetter
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from opcost.comparing.corrections import Piece, added_by_limit, loads_with
from opcost.comparing.model_result import Evidence, ModelResult
from opcost.comparing.ranking import SumErrors
from opcost.estimates import Estimate, total_if_known, value_of
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow, is_above_limit
from opcost.operators.counts import CAPTURED, EVERYTHING, Case, OperatorCount, OperatorCounts, cases_of_count, select
from opcost.operators.training import whole_case
from opcost.operators.tuples import META, Phase, tensor_specs
from opcost.operators.values import InputStatistics, InputValues
from opcost.prediction.learned_costs import ENERGY, TIME, LearnedCosts
from opcost.prediction.samples import kernel_of
from opcost.summing.summation import ModelCost, sum_beside

NORMAL_FACTOR = 1.645
"""The standard errors within which nine tenths of normally distributed errors are."""

OTHER_CONDITIONS_ERRORS: Mapping[str, float] = MappingProxyType({TIME: 0.52, ENERGY: 0.64})
"""Half the width of the interval of the logarithm that all predicted calls share where no operator was measured: the
largest quantile of 90 % of errors of models under conditions that were left out, each card and each precision in turn
(``docs/data/prediction/unseen_conditions.csv``, 2026-12-01)."""

LEAST_SHARE = 0.01
"""The share of the time from which operators are a reason for the width of an interval."""


@dataclass(frozen=True)
class Range:
    """A value, and the ends of its interval of 90 % (``intervals.COVERAGE``)."""

    value: float
    lower: float
    upper: float

    @staticmethod
    def of(estimate: Estimate) -> Range:
        half_width = NORMAL_FACTOR * estimate.standard_error
        return Range(estimate.value, estimate.value - half_width, estimate.value + half_width)

    def times(self, factor: float) -> Range:
        return Range(self.value * factor, self.lower * factor, self.upper * factor)

    @staticmethod
    def sum_of(parts: Sequence[Range]) -> Range:
        """Return a sum of costs whose errors have the same sign, as those of one model's runs may have."""
        return Range(*(math.fsum(ends) for ends in zip(*map(astuple, parts), strict=True)))

    def including(self, *values: float) -> Range:
        return Range(self.value, min(self.lower, *values), max(self.upper, *values)) if values else self

    def has(self, value: float) -> bool:
        return self.lower <= value <= self.upper


@dataclass(frozen=True)
class PredictedCalls:
    """All calls of one case that has no row: time in s and energy in J of all together; the energy is None if unknown.

    Deviations are of the logarithm. ``is_outside`` says whether no sample is like the call, ``is_new`` whether none is
    of its kind, and ``is_small`` whether it leaves multiprocessors without work. Errors of a ``group`` have the same
    sign.
    """

    case: Case
    count: OperatorCount
    group: str
    occurrences: int
    time_s: float
    energy_j: float | None
    time_deviation: float
    energy_deviation: float | None
    is_outside: bool
    is_new: bool
    is_small: bool

    @property
    def error_s(self) -> float:
        return self.time_s * self.time_deviation


class WidthReason(str, Enum):
    """A reason why an interval is wide."""

    OUTSIDE = "outside"
    NEW_KINDS = "new_kinds"
    UNKNOWN_FLOP = "unknown_flop"
    SMALL_CALLS = "small_calls"
    OTHER_CARD = "other_card"
    OTHER_CONDITIONS = "other_conditions"
    FEW_FAMILIES = "few_families"
    UNCORRECTED = "uncorrected"
    FEW_WHOLES = "few_wholes"
    ABOVE_LIMIT = "above_limit"


@dataclass(frozen=True)
class Widened:
    """Why an interval is wide, with the share of the time and the operators that it is about; None: the whole run."""

    reason: WidthReason
    time_ratio: float | None = None
    operators: tuple[str, ...] = ()


@dataclass(frozen=True)
class PredictedRun:
    """The predicted cost of one run; the energy is None if it is unknown.

    ``calls`` are those without a row, the most uncertain first. The ratios are shares of the time of all operators:
    of those that were measured, and of predicted ones that no sample is like. ``widened`` has the reasons why the
    intervals are wide. ``result`` has what is measured. ``start`` is that of the ``Knowledge``.
    """

    time_s: Range
    energy_j: Range | None
    measured_time_ratio: float
    outside_time_ratio: float
    calls: tuple[PredictedCalls, ...]
    result: ModelResult
    widened: tuple[Widened, ...] = ()
    start: Conditions | None = None

    @property
    def is_corrected(self) -> bool:
        return all(one.reason is not WidthReason.UNCORRECTED for one in self.widened)

    @property
    def is_above_limit(self) -> bool:
        """Whether a run would draw more than the power limit, so that it takes longer than this."""
        return any(one.reason is WidthReason.ABOVE_LIMIT for one in self.widened)

    @property
    def power_w(self) -> float | None:
        return None if self.energy_j is None else self.energy_j.value / self.time_s.value


ErrorsOfRuns: TypeAlias = Mapping[Phase, Mapping[bool, SumErrors]]
"""The errors of sums of inference passes and of training steps, by whether they have a cache correction."""


@dataclass(frozen=True)
class Knowledge:
    """Learned costs, and the errors of sums of measured operators.

    ``start`` are the conditions whose rates were scaled by data sheets where no operator was measured, else None.
    """

    learned: LearnedCosts
    sum_errors: ErrorsOfRuns
    start: Conditions | None = None


def run_under(
    counts: OperatorCounts,
    rows: Evidence,
    conditions: Conditions,
    known: Knowledge,
    whole: MeasurementRow | None = None,
) -> PredictedRun:
    """Return the predicted cost of a run. The board of the measured ``whole`` is preferred.

    The counts are those of operators that compute something; those on shapes get the usual zeros.
    """
    counts = with_usual_zeros(counts)
    result = rows.result(select(counts, (EVERYTHING,)), [] if whole is None else [whole], conditions)
    how = attrgetter("device_type", "precision", "execution", "cache", "attention")
    missing, measurements = replace(counts, counts=result.cost.missing), rows.measurements
    own = {row.conditions for count in missing.counts for row in measurements.of_operator(count)}
    others = (one for one in own if one.device_product != conditions.device_product and how(one) == how(conditions))
    elsewhere = [sum_beside(None, missing, measurements, one) for one in others if known.start is None]
    return predicted_run(result, known, [one for one in elsewhere if one.parts])


def predicted_run(result: ModelResult, known: Knowledge, elsewhere: Sequence[ModelCost] = ()) -> PredictedRun:
    """Return the predicted cost of a model, of which operators are measured or not.

    Errors of measured operators, of predicted ones, of the corrections, of sums against wholes, and the differences
    between boards (in energy) are independent, so their squares add. The interval reaches to what the predicted
    operators take on other cards: ``elsewhere`` has the sums of their rows there, under otherwise the same conditions.
    """
    cost, conditions = result.cost, result.conditions
    cache = None if result.selection is None else result.cache_correction_of(result.counts.counts)
    learned, phase = known.learned, Phase.INFERENCE
    if result.selection is not None:
        phase = whole_case(result.counts.model).phase
    errors = known.sum_errors[phase][cache is not None]
    calls = _predicted_calls(cost.missing, learned)
    loads, limit = loads_with((one.time_s, one.energy_j, one.count) for one in calls), None
    if cache is not None and loads is not None:
        limit = added_by_limit(cost, Piece(cache.time_s.value, value_of(cache.energy_j)), conditions, loads)
    added = [one for one in (cache, limit) if one is not None]
    measured_s, predicted_s = value_of(cost.time_s) or 0.0, math.fsum(one.time_s for one in calls)
    estimates = [one for one in (cost.time_s, *(one.time_s for one in added)) if one is not None]
    time_s = _range(estimates, predicted_s, _half_width(calls, TIME, known), errors.time.high_ratio)
    energies = [one.energy_j for one in added] + ([cost.energy_j] if cost.parts else [])
    estimates_j = [one for one in energies if one is not None]
    predicted_j, energy_j = total_if_known(one.energy_j for one in calls), None
    if len(estimates_j) == len(energies) and predicted_j is not None:
        boards = NORMAL_FACTOR * learned.boards.deviation
        half_width = _half_width(calls, ENERGY, known)
        energy_j = _range(estimates_j, predicted_j, half_width, errors.energy.high_ratio, boards)

    run_s = measured_s + predicted_s

    def about(reason: WidthReason, own: Sequence[PredictedCalls]) -> Widened:
        """Return a reason with the share of the time of all operators and the names of its own, the longest first."""
        names = dict.fromkeys(one.count.operator.short_name for one in sorted(own, key=lambda one: -one.time_s))
        return Widened(reason, math.fsum(one.time_s for one in own) / run_s if run_s else 0.0, tuple(names))

    kinds = {
        WidthReason.NEW_KINDS: [one for one in calls if one.is_new],
        WidthReason.UNKNOWN_FLOP: [one for one in calls if one.count.flop is None],
        WidthReason.OUTSIDE: [one for one in calls if one.is_outside and not one.is_new and one.count.flop is not None],
        WidthReason.SMALL_CALLS: [one for one in calls if one.is_small],
    }
    widened = [about(reason, own) for reason, own in kinds.items() if own]
    widened = [one for one in widened if (one.time_ratio or 0.0) >= LEAST_SHARE]
    of_run = {
        WidthReason.OTHER_CONDITIONS: known.start is not None,
        WidthReason.FEW_FAMILIES: bool(calls) and not learned.sum_factors.keys() >= learned.deviations.keys(),
        WidthReason.UNCORRECTED: cache is None,
        WidthReason.FEW_WHOLES: errors.is_assumed,
    }
    widened += [Widened(reason) for reason, holds in of_run.items() if holds]
    for other in elsewhere:
        own = [one for one in calls if one.count in other.summed]
        there_s = time_s.value + (value_of(other.time_s) or 0.0) - math.fsum(one.time_s for one in own)
        if not time_s.has(there_s):
            widened.append(about(WidthReason.OTHER_CARD, own))
        time_s = time_s.including(there_s)
        if energy_j is not None and other.energy_j is not None:
            less_j = math.fsum(one.energy_j or 0.0 for one in own)
            energy_j = energy_j.including(energy_j.value + other.energy_j.value - less_j)
    board_limit_w = conditions.device_power_limit_w
    if energy_j is not None and board_limit_w is not None:
        ratio = energy_j.value / time_s.value / board_limit_w
        if is_above_limit(ratio, 1.0):
            widened.append(Widened(WidthReason.ABOVE_LIMIT))
            # Lower clocks make it longer by no more than they lower the power, and its energy no larger.
            time_s = replace(time_s, upper=time_s.upper * ratio)
            energy_j = replace(energy_j, lower=energy_j.lower / ratio)
    return PredictedRun(
        time_s=time_s,
        energy_j=energy_j,
        measured_time_ratio=measured_s / run_s if run_s else 0.0,
        outside_time_ratio=math.fsum(one.time_s for one in calls if one.is_outside) / run_s if run_s else 0.0,
        calls=tuple(sorted(calls, key=lambda one: -one.error_s)),
        result=result,
        widened=tuple(widened),
        start=known.start,
    )


def _range(estimates: Sequence[Estimate], predicted: float, half_width: float, *relative_errors: float) -> Range:
    """Return the sum of estimates and a predicted cost, with its interval.

    The predicted cost, with this half width of its interval in its unit, is off by a factor, which may be large.
    Relative errors are half widths that all of the sum shares.
    """
    value = math.fsum([*(one.value for one in estimates), predicted])
    own = [NORMAL_FACTOR * one.standard_error / value for one in estimates]

    def end(sign: int) -> float:
        factor = sign * half_width / predicted if predicted else 0.0
        moved = math.log1p(predicted * math.expm1(factor) / value)
        return value * math.exp(sign * math.hypot(moved, *own, *relative_errors))

    return Range(value, end(-1), end(1))


def _half_width(calls: Sequence[PredictedCalls], cost: str, known: Knowledge) -> float:
    if not calls:
        return 0.0
    values = [
        (one.time_s, one.time_deviation) if cost == TIME else (one.energy_j or 0.0, one.energy_deviation or 0.0)
        for one in calls
    ]
    costs, deviations = np.array(values).T
    groups, is_small = [one.group for one in calls], np.array([one.is_small for one in calls])
    shared = 0.0 if known.start is None else OTHER_CONDITIONS_ERRORS[cost]
    return math.hypot(known.learned.half_width(cost, groups, costs, deviations, is_small), shared * float(costs.sum()))


def _predicted_calls(missing: Sequence[OperatorCount], learned: LearnedCosts) -> list[PredictedCalls]:
    computing = (count for count in missing if count.computes)
    cases = [(count, case, calls) for count in computing for case, calls in cases_of_count(count, CAPTURED)]
    if not cases:
        return []
    costs = learned.costs([(count, case.input_data) for count, case, _ in cases])

    def known(value: float) -> float | None:
        return float(value) if math.isfinite(value) else None

    # Those of unknown FLOPs are no better known than those of kinds without samples.
    deviations = {cost: one.unknown for cost, one in learned.deviations.items()}
    return [
        PredictedCalls(
            case=case,
            count=count,
            group=costs.groups[place],
            occurrences=calls,
            time_s=calls * float(costs.times_s[place]),
            energy_j=known(calls * float(costs.energies_j[place])),
            time_deviation=deviations[TIME] if count.flop is None else float(costs.time_deviations[place]),
            energy_deviation=deviations.get(ENERGY) if count.flop is None else known(costs.energy_deviations[place]),
            is_outside=bool(costs.is_outside[place]) or count.flop is None,
            is_new=bool(costs.is_new[place]),
            is_small=bool(costs.is_small[place]),
        )
        for place, (count, case, calls) in enumerate(cases)
    ]


# Zeros in the inputs of a model that was counted on shapes, by rules. A run on shapes has no values, but it has the
# calls in their order. The producer of an input is taken to be the latest call that returned as many elements: views
# between both are no calls. ``RULES`` have the share of zeros that operators return. Their figures are from runs on
# random images with values (``docs/log/prediction.md``, 2026-11-27).


class Effect(Enum):
    """The way in which an operator decides the share of zeros that it returns."""

    MAKES = "a share of its own"
    SCALES = "a multiple of its first input's share"
    JOINS = "the mean share of its inputs, by their elements"
    MULTIPLIES = "zero where any factor is"


@dataclass(frozen=True)
class ZerosRule:
    """The share of zeros that some operators return, by their short names; all others return none.

    ``ratio`` is the share that they make, or the factor. ``after`` are the producers of the first input, any if it is
    empty, and ``smallest_area`` is the least area of the kernel. ``source`` names the figures that it is from.
    """

    operators: frozenset[str]
    effect: Effect
    ratio: float
    source: str
    after: frozenset[str] = frozenset()
    smallest_area: int = 0


SUMS = frozenset({"add", "add_"})
RECTIFIERS = frozenset("ReLU relu relu_ ReLU6".split())

MAX_POOLS = frozenset({"MaxPool2d", "max_pool2d"})
COPYING = frozenset("Dropout dropout Identity Flatten flatten contiguous clone reshape roll pad Permute".split())

KEEPS_SIZE = frozenset({"AdaptiveAvgPool2d", "adaptive_avg_pool2d"})
"""Operators that have a share of zeros only where they return as many elements as they take: means of many values,
0.00 to 0.08 zeros in 9 models, and 0.23 in GoogLeNet."""

_KERNEL_3 = "kernel 3: 0 behind the first layer of 7 models, 0.20 in AlexNet, 0.25 to 0.43 in GoogLeNet"
_KERNEL_2 = "kernel 2: 0.31 in VGG-11, 0.38 in VGG-16-BN"
_MEANS = "0.46 and 0.47 in VGGs, whose sizes stay the same; of smaller outputs see KEEPS_SIZE"
_JOINED = "0.51 in GoogLeNet, 0.52 in ShuffleNet and SqueezeNet"

RULES = (
    ZerosRule(RECTIFIERS, Effect.MAKES, 0.35, "0.27 to 0.40 in two RegNets, three ResNets, a ResNeXt", after=SUMS),
    ZerosRule(RECTIFIERS, Effect.MAKES, 0.5, "0.48 to 0.55 in 17 models; shares of DenseNets are of joined outputs"),
    ZerosRule(MAX_POOLS, Effect.SCALES, 0.4, _KERNEL_3, smallest_area=5),
    ZerosRule(MAX_POOLS, Effect.SCALES, 0.7, _KERNEL_2),
    ZerosRule(COPYING, Effect.SCALES, 1.0, "they copy values"),
    ZerosRule(KEEPS_SIZE, Effect.SCALES, 1.0, _MEANS),
    ZerosRule(frozenset({"cat"}), Effect.JOINS, 1.0, _JOINED),
    ZerosRule(frozenset({"mul", "mul_"}), Effect.MULTIPLIES, 1.0, "0.50 in a RegNetY, whose gates have no zeros"),
)
"""The first rule that fits holds."""


def with_usual_zeros(counts: OperatorCounts) -> OperatorCounts:
    """Return counts on shapes with the values that the rules give; others, and those without places, as they are."""
    has_places = all(len(count.positions) == count.occurrences for count in counts.counts)
    if counts.device_type != META or counts.has_values or not has_places:
        return counts
    calls = sorted((position, place) for place, count in enumerate(counts.counts) for position in count.positions)
    statistics: list[list[tuple[InputStatistics, ...]]] = [[] for _ in counts.counts]
    # The latest tensors of each number of elements, and those that are rectified sums: the ends of residual blocks.
    latest: dict[int, _Made] = {}
    ends_of_blocks: dict[int, _Made] = {}
    for _, place in calls:
        count = counts.counts[place]
        name, sizes = count.operator.short_name, [spec.elements for spec in count.operator.floating_inputs]
        inputs = []
        for index, size in enumerate(sizes):
            # The second addend is what the block began with. Inputs of the model have no zeros.
            is_second = index > 0 and size == sizes[0] and name in SUMS
            inputs.append((ends_of_blocks if is_second else latest).get(size, _Made(0.0)))
        statistics[place].append(tuple(InputValues(one.zeros_ratio).statistics() for one in inputs))
        for spec in tensor_specs([count.outputs]):
            latest[spec.elements] = _Made(_returned(count, spec.elements, inputs), name)
            if name in RECTIFIERS and inputs and inputs[0].operator in SUMS:
                ends_of_blocks[spec.elements] = latest[spec.elements]
    found = (replace(count, statistics=tuple(own)) for count, own in zip(counts.counts, statistics, strict=True))
    return replace(counts, counts=tuple(found))


@dataclass(frozen=True)
class _Made:
    """A tensor's share of zeros, and the short name of the operator that made it."""

    zeros_ratio: float
    operator: str = ""


def _returned(count: OperatorCount, elements: int, inputs: Sequence[_Made]) -> float:
    maker, operator = inputs[0].operator if inputs else None, count.operator
    own = (rule for rule in RULES if operator.short_name in rule.operators)
    fitting = (rule for rule in own if math.prod(kernel_of(operator)) >= rule.smallest_area)
    rule = next((rule for rule in fitting if not rule.after or maker in rule.after), None)
    sizes = [spec.elements for spec in operator.floating_inputs]
    if rule is None or not inputs or (operator.short_name in KEEPS_SIZE and elements != sizes[0]):
        return 0.0
    if rule.effect is Effect.MAKES:
        return rule.ratio
    if rule.effect is Effect.SCALES:
        return rule.ratio * inputs[0].zeros_ratio
    if rule.effect is Effect.JOINS:
        zeros = math.fsum(size * one.zeros_ratio for size, one in zip(sizes, inputs, strict=True))
        return zeros / sum(sizes) if sum(sizes) else 0.0
    return 1.0 - math.prod(1.0 - one.zeros_ratio for one in inputs)
