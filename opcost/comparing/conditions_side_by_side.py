"""One model under two conditions side by side: its operators of both, joined without their form, and what is saved.

Two calls match if they are the n-th calls, in each run, of the same operator with the same parameters and sizes. Only
floating-point dtypes and memory layouts may differ: those of tensors, of weights, and those that a function is given;
and the text of a user's code.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, TypeAlias, TypeVar

from opcost.columns import ABOVE_0, COUNT, FROM_0, SIGNED, Column, Columns, grouped, one_of
from opcost.comparing.comparison import NO_RESULT_RATIO, Remark, RemarkKind, flagged, throttled
from opcost.comparing.model_result import ModelResult
from opcost.estimates import (
    NORMAL_QUANTILE,
    Estimate,
    estimate_fields,
    ratio_if_known,
    sum_of_independent,
    total_if_known,
    value_of,
)
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import REFERENCE_TEMPERATURE_C, MeasurementRow, is_above_limit, time_of
from opcost.measuring.setting import ChosenConditions
from opcost.operators.counts import INPUTS, OPERATOR, PARAMETERS, TRAINING_MODE
from opcost.operators.model_names import FINGERPRINT
from opcost.operators.tuples import Constant, OperatorTuple, PlainValue, Structure, TensorSpec
from opcost.summing.summation import EnergyBasis, common_basis, temperature_error_j

One = TypeVar("One")
Both: TypeAlias = tuple[One, One]
"""One of these conditions, and one of the others."""

WEIGHT_FORM = frozenset({"dtype", "memory_format"})
"""The parameters of a module that say how its weights are stored."""

VERSION_FIELDS = {"torch_version": "torch", "driver_version": "driver"}
"""Fields of ``Conditions`` that name a side, and what stands before their values."""

ANY_FLOATING = "floating"
"""Stands for any floating-point dtype."""

TORCH_CONSTANT = "torch."
"""The prefix of constants that are dtypes or memory formats."""


class Standing(str, Enum):
    """The conditions under which a call exists, and whether its cost is known."""

    BOTH = "both"
    THESE_ONLY = "only these"
    OTHERS_ONLY = "only the others"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Calls:
    """Calls of one operator tuple in one run, with the row that gives the cost of each, None if none is measured."""

    operator: OperatorTuple
    number: int
    row: MeasurementRow | None


@dataclass(frozen=True)
class Pair:
    """Calls under these conditions and as many under others, None where they do not exist. One is not None."""

    these: Calls | None
    others: Calls | None

    @property
    def standing(self) -> Standing:
        """Where the calls exist; ``NOT_MEASURED`` if one of both sides has no row."""
        if any(side is not None and side.row is None for side in (self.these, self.others)):
            return Standing.NOT_MEASURED
        if self.these is None or self.others is None:
            return Standing.OTHERS_ONLY if self.these is None else Standing.THESE_ONLY
        return Standing.BOTH

    @property
    def operator(self) -> OperatorTuple:
        """The operator tuple of these conditions, or of the others if there is none."""
        side = self.these or self.others
        assert side is not None
        return side.operator


@dataclass(frozen=True)
class Sides(Columns):
    """The cost of calls in one run of a model, and of the matching calls under the other conditions.

    Saved is the cost under the other conditions minus that under these, negative if these cost more. A ratio is a share
    of the cost under the other conditions. Costs more: by more than the 95 % interval of the difference.
    """

    calls: Annotated[int, Column("calls in one run", COUNT)]
    other_calls: Annotated[int, Column("calls in one run under the other conditions", COUNT)]
    time_s: Annotated[float | None, Column("time of all calls", FROM_0)]
    other_time_s: Annotated[float | None, Column("the same under the other conditions", FROM_0)]
    energy_j: Annotated[float | None, Column("energy of all calls", FROM_0)]
    other_energy_j: Annotated[float | None, Column("the same under the other conditions", FROM_0)]
    power_w: Annotated[float | None, Column("mean power: energy / time", ABOVE_0)]
    other_power_w: Annotated[float | None, Column("the same under the other conditions", ABOVE_0)]
    saved_time_s: Annotated[float | None, Column("saved time", SIGNED)]
    saved_time_standard_error_s: Annotated[float | None, Column("standard error of the saved time", FROM_0)]
    saved_time_ratio: Annotated[float | None, Column("saved time / time under the other conditions")]
    saved_time_standard_error_ratio: Annotated[float | None, Column("standard error of that ratio", FROM_0)]
    saved_energy_j: Annotated[float | None, Column("saved energy", SIGNED)]
    saved_energy_standard_error_j: Annotated[float | None, Column("standard error of the saved energy", FROM_0)]
    saved_energy_ratio: Annotated[float | None, Column("saved energy / energy under the other conditions")]
    saved_energy_standard_error_ratio: Annotated[float | None, Column("standard error of that ratio", FROM_0)]
    saved_energy_per_sample_j: Annotated[float | None, Column("saved energy / batch size", SIGNED)]
    costs_more_time: Annotated[bool | None, Column("whether these conditions cost more time")]
    costs_more_energy: Annotated[bool | None, Column("whether these conditions cost more energy")]

    @property
    def costs_more(self) -> bool:
        """Whether these conditions cost more: in energy if it is known, else in time."""
        return bool(self.costs_more_time if self.costs_more_energy is None else self.costs_more_energy)

    @property
    def rank(self) -> tuple[bool, float]:
        """A key that sorts calls that cost more first, the largest difference first; then the largest saved cost."""
        saved = self.saved_time_s if self.saved_energy_j is None else self.saved_energy_j
        return not self.costs_more, math.inf if saved is None else saved if self.costs_more else -saved


STANDING = Column("conditions under which the calls exist", one_of(*(one.value for one in Standing)))


@dataclass(frozen=True)
class KindSides(Columns):
    """A kind of operator under both conditions. Calls that exist under one of both only are a kind of their own."""

    operator: Annotated[str, Column("name of the operators, such as `Conv2d`")]
    standing: Annotated[str, STANDING]
    costs: Sides


@dataclass(frozen=True)
class OperatorSides(Columns):
    """An operator tuple, and the one that takes its place under the other conditions, with the costs of their calls."""

    standing: Annotated[str, STANDING]
    key: Annotated[str | None, Column("hash of the operator tuple; empty: only under the other conditions")]
    other_key: Annotated[str | None, Column("hash of the tuple of the other conditions; empty: only under these")]
    operator: Annotated[str, OPERATOR]
    parameters: Annotated[str, PARAMETERS]
    inputs: Annotated[str, INPUTS]
    other_inputs: Annotated[str | None, Column("the inputs under the other conditions")]
    training_mode: Annotated[str | None, TRAINING_MODE]
    costs: Sides


@dataclass(frozen=True)
class SideBySide:
    """A model under its own conditions, and under others that it is compared with.

    ``labels`` are both sides in the words in which they differ: ``bf16`` and ``fp32``. ``chosen`` and ``other_chosen``
    are the conditions that a config can choose; all conditions differ in the precision, and in the device or versions
    that were asked for. The boards are those of the wholes. ``whole`` is None if it is not measured on one of both
    sides.
    ``sum`` is, without cache correction, of all operators that are measured wherever they exist, None if there is none.
    ``kinds`` and ``operators`` that cost more under these conditions come first, then those that save most.
    """

    name: str
    batch_size: int | None
    input_size: str
    labels: Both[str]
    chosen: ChosenConditions
    other_chosen: ChosenConditions
    device_uuid: str | None
    other_device_uuid: str | None
    reference_temperature_c: float | None
    whole: Sides | None
    sum: Sides | None
    kinds: tuple[KindSides, ...]
    operators: tuple[OperatorSides, ...]
    remarks: tuple[Remark, ...]
    conditions: Conditions
    other_conditions: Conditions


def labels_of(chosen: Both[ChosenConditions], conditions: Both[Conditions], rows: Both[str] = ("", "")) -> Both[str]:
    """Return both sides in the words in which they differ: the device, versions, chosen conditions, names of rows."""
    products = [one.device_product for one in conditions]
    is_one_product = products[0] == products[1]
    names = [name for name in VERSION_FIELDS if is_one_product and len({getattr(one, name) for one in conditions}) > 1]

    def label(own: int, other: int) -> str:
        device = "" if is_one_product else products[own].removeprefix("NVIDIA ")
        versions = (f"{VERSION_FIELDS[name]} {getattr(conditions[own], name)}" for name in names)
        return " ".join(filter(None, (device, *versions, chosen[own].label(chosen[other]), rows[own])))

    return label(0, 1), label(1, 0)


def calls_of(result: ModelResult) -> Iterator[Calls]:
    """Yield the calls of operators that compute something, in the order of their first calls."""
    parts = grouped(result.cost.parts, lambda part: (part.case.operator, part.case.phase))
    for count in result.counts.counts:
        own = parts.get((count.operator, count.phase), ())
        for part in own:
            yield Calls(count.operator, part.occurrences, part.row)
        if count.computes and not own:
            yield Calls(count.operator, count.occurrences, None)


def side_by_side(results: Both[ModelResult], chosen: Both[ChosenConditions], rows: Both[str] = ("", "")) -> SideBySide:
    """Return a model under two conditions, these and the others; ``rows`` are names of both sides' rows, if any.

    All energies are normalised if all rows can be.
    """
    these, others = results
    labels = labels_of(chosen, (these.of_model, others.of_model), rows)
    wholes = [one.whole for one in results if one.whole is not None]
    basis = common_basis([*wholes, *(part.row for one in results for part in one.cost.parts)])
    pairs, units = tuple(matched(calls_of(these), calls_of(others))), 1 if these.units is None else these.units.number
    known = [pair for pair in pairs if pair.standing is not Standing.NOT_MEASURED]
    whole = Pair(*(Calls(one.counts.model, 1, one.whole) for one in results))

    def of_groups(key: Callable[[Pair], tuple[str, object]]) -> list[tuple[Pair, Sides]]:
        """Return the costs of pairs with one key, beside the first of them; a key begins with the name to sort by."""
        found = [(name, own[0], sides_of(own, basis, units)) for (name, _), own in grouped(pairs, key).items()]
        return [(pair, costs) for name, pair, costs in sorted(found, key=lambda one: (*one[2].rank, one[0]))]

    return SideBySide(
        name=these.name,
        batch_size=these.batch_size,
        input_size="x".join(map(str, these.input_size)),
        labels=labels,
        chosen=chosen[0],
        other_chosen=chosen[1],
        device_uuid=these.board,
        other_device_uuid=others.board,
        reference_temperature_c=basis.temperature_c,
        whole=sides_of([whole], basis, units) if len(wholes) == 2 else None,
        sum=sides_of(known, basis, units) if known else None,
        kinds=tuple(
            KindSides(pair.operator.short_name, pair.standing.value, costs)
            for pair, costs in of_groups(lambda pair: (pair.operator.short_name, pair.standing))
        ),
        operators=tuple(
            OperatorSides(
                standing=pair.standing.value,
                key=None if pair.these is None else pair.these.operator.key,
                other_key=None if pair.others is None else pair.others.operator.key,
                operator=pair.operator.operator,
                parameters=pair.operator.parameters_text,
                inputs=pair.operator.inputs_text,
                other_inputs=None if pair.others is None else pair.others.operator.inputs_text,
                training_mode=pair.operator.mode,
                costs=costs,
            )
            for pair, costs in of_groups(
                lambda pair: (pair.operator.operator, tuple(one and one.operator for one in (pair.these, pair.others)))
            )
        ),
        remarks=tuple(_remarks(results, labels, pairs)),
        conditions=these.of_model,
        other_conditions=others.of_model,
    )


def _remarks(results: Both[ModelResult], labels: Both[str], pairs: Sequence[Pair]) -> Iterator[Remark]:
    these, others = results
    if these.conditions.device_product == others.conditions.device_product:
        yield from _boards(these, others, pairs)
    if len({one.whole.measurement.executed_as for one in results if one.whole is not None}) > 1:
        yield Remark(RemarkKind.TWO_EXECUTIONS)
    if missing := [pair for pair in pairs if pair.standing is Standing.NOT_MEASURED]:
        calls = sum(max(one.number for one in (pair.these, pair.others) if one is not None) for pair in missing)
        names = tuple(sorted({pair.operator.short_name for pair in missing}))
        yield Remark(RemarkKind.NOT_MEASURED, {"calls": calls, "operators": names})
    for label, result in zip(labels, results, strict=True):
        for one in _on_side(result):
            yield replace(one, figures={"conditions": label, **one.figures})


def _boards(these: ModelResult, others: ModelResult, pairs: Sequence[Pair]) -> Iterator[Remark]:
    """Remark on wholes of two boards, and on the share of the time of operators of two boards, of both conditions."""
    if these.whole is not None and others.whole is not None and these.board != others.board:
        yield Remark(RemarkKind.WHOLES_OF_TWO_BOARDS, {"board": these.board, "other_board": others.board})
    apart_s = total_s = 0.0
    for pair in pairs:
        if pair.standing is Standing.BOTH:
            calls = [(one.number, one.row) for one in (pair.these, pair.others) if one is not None and one.row]
            time_s = sum(number * row.measurement.time_s for number, row in calls)
            total_s += time_s
            apart_s += time_s if len({row.circumstances.device_uuid for _, row in calls}) > 1 else 0.0
    if apart_s:
        yield Remark(RemarkKind.OPERATORS_OF_TWO_BOARDS, {"time_ratio": apart_s / total_s})


def _on_side(result: ModelResult) -> Iterator[Remark]:
    if result.whole is None:
        yield Remark(RemarkKind.WHOLE_NOT_MEASURED)
    for remark in flagged(result):
        share = remark.figures.get("time_ratio", 1.0)
        if isinstance(share, float) and share >= NO_RESULT_RATIO:
            yield remark
    yield from throttled(result)
    power_w = ratio_if_known(value_of(result.cost.energy_j), value_of(result.cost.time_s))
    if is_above_limit(power_w, result.conditions.device_power_limit_w):
        yield Remark(RemarkKind.ABOVE_LIMIT)


def matched(these: Iterable[Calls], others: Iterable[Calls]) -> Iterator[Pair]:
    """Yield the calls of two runs, each in the order of their first calls, in pairs; then those of one run only."""
    groups: dict[OperatorTuple, tuple[deque[Calls], deque[Calls]]] = {}
    for side, calls in enumerate((these, others)):
        for one in calls:
            groups.setdefault(without_form(one.operator), (deque(), deque()))[side].append(one)
    for group in groups.values():
        ours, theirs = group
        while ours and theirs:
            number = min(ours[0].number, theirs[0].number)
            yield Pair(replace(ours[0], number=number), replace(theirs[0], number=number))
            for side_calls in group:
                first = side_calls.popleft()
                if first.number > number:
                    side_calls.appendleft(replace(first, number=first.number - number))
        yield from (Pair(one, None) for one in ours)
        yield from (Pair(None, one) for one in theirs)


def without_code(operator: OperatorTuple) -> OperatorTuple:
    """Return an operator tuple without the hash of a user's code, whose text may change."""
    return replace(operator, parameters=tuple(item for item in operator.parameters if item[0] != FINGERPRINT))


def without_form(operator: OperatorTuple) -> OperatorTuple:
    """Return an operator tuple without the dtypes and memory layouts that conditions decide, and the hash of code."""

    def plain(value: PlainValue) -> PlainValue:
        if isinstance(value, TensorSpec):
            return replace(value, dtype=ANY_FLOATING if value.is_floating else value.dtype, strides=None)
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        if isinstance(value, Structure):
            return replace(value, parts=tuple((name, plain(part)) for name, part in value.parts))
        if isinstance(value, Constant) and value.name.startswith(TORCH_CONSTANT):
            return Constant(TORCH_CONSTANT)
        return value

    return replace(
        operator,
        parameters=tuple(
            item for item in without_code(operator).parameters if operator.is_function or item[0] not in WEIGHT_FORM
        ),
        inputs=tuple(map(plain, operator.inputs)),
        keyword_inputs=tuple((name, plain(value)) for name, value in operator.keyword_inputs),
    )


def sides_of(pairs: Sequence[Pair], basis: EnergyBasis, units: int) -> Sides:
    """Return the cost of all calls of these pairs under both conditions; a cost is None if one of its rows is unknown.

    Calls that exist under one of both only cost 0 under the other. ``units`` is their number in one run.
    """
    these, others = [one.these for one in pairs if one.these], [one.others for one in pairs if one.others]

    def kelvins_j_of(one: Calls | None) -> float:
        return 0.0 if one is None or one.row is None else basis.kelvins_j(one.number, one.row, REFERENCE_TEMPERATURE_C)

    time_s, other_time_s, saved_s, saved_time = _costs(these, others, time_of)
    energy_j, other_energy_j, saved_j, saved_energy = _costs(these, others, basis.energy_of)
    if saved_j is not None and basis is EnergyBasis.NORMALISED:
        kelvins_j = [kelvins_j_of(pair.others) - kelvins_j_of(pair.these) for pair in pairs]
        error_j = temperature_error_j(kelvins_j)
        saved_j = saved_j.with_error(error_j)
        saved_energy = saved_energy and saved_energy.with_error(error_j / other_energy_j if other_energy_j else 0.0)

    def is_more(saved: Estimate | None) -> bool | None:
        return None if saved is None else saved.value < -NORMAL_QUANTILE * saved.standard_error

    return Sides(
        calls=sum(one.number for one in these),
        other_calls=sum(one.number for one in others),
        time_s=time_s,
        other_time_s=other_time_s,
        energy_j=energy_j,
        other_energy_j=other_energy_j,
        power_w=ratio_if_known(energy_j, time_s),
        other_power_w=ratio_if_known(other_energy_j, other_time_s),
        **estimate_fields("saved_time", "s", saved_s),
        **estimate_fields("saved_time", "ratio", saved_time),
        **estimate_fields("saved_energy", "j", saved_j),
        **estimate_fields("saved_energy", "ratio", saved_energy),
        saved_energy_per_sample_j=ratio_if_known(value_of(saved_j), units),
        costs_more_time=is_more(saved_s),
        costs_more_energy=is_more(saved_j),
    )


def _costs(
    these: Iterable[Calls], others: Iterable[Calls], of_row: Callable[[MeasurementRow], Estimate | None]
) -> tuple[float | None, float | None, Estimate | None, Estimate | None]:
    """Return the cost of both sides, what these save, and its ratio to the others; None if one of its rows is unknown.

    Calls of one row share its error, also if the row is that of both conditions.
    """
    totals: list[float | None] = []
    shared: dict[tuple[str, str], tuple[Estimate, list[int]]] = {}
    for side, calls_of_side in enumerate((these, others)):
        costs: list[float | None] = []
        for calls in calls_of_side:
            cost = None if calls.row is None else of_row(calls.row)
            costs.append(None if cost is None else calls.number * cost.value)
            if cost is not None and calls.row is not None:
                key = calls.row.key, calls.row.measurement.started_at
                shared.setdefault(key, (cost, [0, 0]))[1][side] += calls.number
        totals.append(total_if_known(costs))
    own, other = totals
    if own is None or other is None:
        return own, other, None, None
    saved = sum_of_independent(cost.times(number[1] - number[0]) for cost, number in shared.values())
    if not other:
        return own, other, saved, None
    # saved / other = 1 - own / other, to first order.
    weighted = sum_of_independent(cost.times(number[1] * own / other - number[0]) for cost, number in shared.values())
    return own, other, saved, Estimate(saved.value / other, weighted.standard_error / other)
