"""Remarks on a model under two conditions side by side: kinds with figures, and their texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from opcost.comparing.conditions_side_by_side import Side, SideBySide
from opcost.comparing.doubts import FLAGGED_RATIO
from opcost.comparing.matched_calls import Calls, Pair, Standing
from opcost.comparing.remark_rules import NOTICEABLE_RATIO
from opcost.comparing.remarks import Figure, shown_texts
from opcost.measuring.record import MeasurementRow, does_other_work, is_doubtful, names_of, quality_flags
from opcost.measuring.throttling import is_above_limit


class SideRemarkKind(str, Enum):
    """The kinds of remarks on two sides."""

    WHOLE_NOT_MEASURED = "whole-not-measured"
    WHOLES_OF_TWO_BOARDS = "wholes-of-two-boards"
    OPERATORS_OF_TWO_BOARDS = "operators-of-two-boards"
    TWO_EXECUTIONS = "two-executions"
    NOT_MEASURED = "not-measured"
    FLAGGED_WHOLE = "flagged-whole"
    FLAGGED_OPERATORS = "flagged-operators"
    OTHER_WORK = "other-work"
    THROTTLED = "throttled"
    ABOVE_LIMIT = "above-limit"


@dataclass(frozen=True)
class SideRemark:
    """A remark: its kind and its figures by name, which ends with the unit as in ``remarks.Remark``."""

    kind: SideRemarkKind
    figures: Mapping[str, Figure] = field(default_factory=dict)


BOARDS_DIFFER = "an operator's energy differs by up to 19 % between boards"

TEXTS: Mapping[SideRemarkKind, str] = {
    SideRemarkKind.WHOLE_NOT_MEASURED: "the whole model is not measured in {conditions}",
    SideRemarkKind.WHOLES_OF_TWO_BOARDS: (
        f"whole models are of two boards, {{board}} and {{other_board}}: {BOARDS_DIFFER}"
    ),
    SideRemarkKind.OPERATORS_OF_TWO_BOARDS: (
        f"{{time_ratio}} of the time of operators in both conditions is of two boards: {BOARDS_DIFFER}"
    ),
    SideRemarkKind.TWO_EXECUTIONS: (
        "one whole model ran as a CUDA graph, the other eagerly, because a graph cannot capture it"
    ),
    SideRemarkKind.NOT_MEASURED: (
        "{calls} calls of {operators} are not measured in one of both conditions, and are not in the sum"
    ),
    SideRemarkKind.FLAGGED_WHOLE: "the whole model's measurement in {conditions} is flagged: {flags}",
    SideRemarkKind.FLAGGED_OPERATORS: (
        "{time_ratio} of the summed time in {conditions} is of flagged measurements; measure them again"
    ),
    SideRemarkKind.OTHER_WORK: (
        "{time_ratio} of the summed time in {conditions} is of operators that do other work alone than in the model"
    ),
    SideRemarkKind.THROTTLED: (
        "the whole model was throttled by the power limit for {time_ratio} of the time in {conditions}"
    ),
    SideRemarkKind.ABOVE_LIMIT: (
        "the sum in {conditions} draws more than the power limit: it has full clocks, and a run takes longer"
    ),
}
"""The text of each kind."""


def side_remarks(found: SideBySide) -> tuple[SideRemark, ...]:
    """Return the remarks on a model under two conditions."""
    sides = (found.these, found.others)
    is_one_device = found.these.conditions.device_product == found.others.conditions.device_product
    return (
        *(_boards_of_wholes(found) if is_one_device else ()),
        *(_boards_of_operators(found.pairs) if is_one_device else ()),
        *_executions(sides),
        *(remark for side in sides for remark in _whole_not_measured(side)),
        *_not_measured(found.pairs),
        *(remark for side in sides for remark in _flagged(side)),
        *(remark for side in sides for remark in _limited(side)),
    )


def worded(remark: SideRemark) -> str:
    """Return a remark as a sentence for people."""
    return TEXTS[remark.kind].format(**shown_texts(remark.figures))


def _boards_of_wholes(found: SideBySide) -> Iterator[SideRemark]:
    if found.these.whole is not None and found.others.whole is not None:
        board, other = (row.circumstances.device_uuid for row in (found.these.whole, found.others.whole))
        if board != other:
            yield SideRemark(SideRemarkKind.WHOLES_OF_TWO_BOARDS, {"board": board, "other_board": other})


def _boards_of_operators(pairs: Iterable[Pair]) -> Iterator[SideRemark]:
    in_both = [pair for pair in pairs if pair.standing is Standing.BOTH]
    time_s = sum(map(_time_s, in_both))
    apart_s = sum(_time_s(pair) for pair in in_both if len({_board(pair.these), _board(pair.others)}) > 1)
    if apart_s:
        yield SideRemark(SideRemarkKind.OPERATORS_OF_TWO_BOARDS, {"time_ratio": apart_s / time_s})


def _board(calls: Calls | None) -> str | None:
    return None if calls is None or calls.row is None else calls.row.circumstances.device_uuid


def _time_s(pair: Pair) -> float:
    """Return the time of a pair under both conditions."""
    sides = (one for one in (pair.these, pair.others) if one is not None and one.row is not None)
    return sum(one.number * one.row.measurement.time_s for one in sides if one.row is not None)


def _executions(sides: Iterable[Side]) -> Iterator[SideRemark]:
    if len({one.whole.measurement.executed_as for one in sides if one.whole is not None}) > 1:
        yield SideRemark(SideRemarkKind.TWO_EXECUTIONS)


def _whole_not_measured(side: Side) -> Iterator[SideRemark]:
    if side.whole is None:
        yield SideRemark(SideRemarkKind.WHOLE_NOT_MEASURED, {"conditions": side.label})


def _not_measured(pairs: Iterable[Pair]) -> Iterator[SideRemark]:
    missing = [pair for pair in pairs if pair.standing is Standing.NOT_MEASURED]
    if missing:
        calls = sum(max(one.number for one in (pair.these, pair.others) if one is not None) for pair in missing)
        names = tuple(sorted({pair.operator.short_name for pair in missing}))
        yield SideRemark(SideRemarkKind.NOT_MEASURED, {"calls": calls, "operators": names})


def _flagged(side: Side) -> Iterator[SideRemark]:
    if side.whole is not None and is_doubtful(side.whole):
        flags = names_of(side.whole, quality_flags(side.whole.measurement))
        yield SideRemark(SideRemarkKind.FLAGGED_WHOLE, {"conditions": side.label, "flags": flags})
    if side.cost.time_s is None:
        return
    for kind, is_meant in (
        (SideRemarkKind.FLAGGED_OPERATORS, is_doubtful),
        (SideRemarkKind.OTHER_WORK, lambda row: does_other_work(row.measurement)),
    ):
        share = sum(part.time_s for part in side.cost.parts if is_meant(part.row)) / side.cost.time_s.value
        if share >= FLAGGED_RATIO:
            yield SideRemark(kind, {"conditions": side.label, "time_ratio": share})


def _limited(side: Side) -> Iterator[SideRemark]:
    ratio = _capped_ratio(side.whole)
    if ratio >= NOTICEABLE_RATIO:
        yield SideRemark(SideRemarkKind.THROTTLED, {"conditions": side.label, "time_ratio": ratio})
    time_s, energy_j = side.cost.time_s, side.cost.energy_j
    power_w = None if time_s is None or energy_j is None else energy_j.value / time_s.value
    if is_above_limit(power_w, side.conditions.device_power_limit_w):
        yield SideRemark(SideRemarkKind.ABOVE_LIMIT, {"conditions": side.label})


def _capped_ratio(whole: MeasurementRow | None) -> float:
    """Return the share of a whole's loop that was throttled by the power limit, 0 if it is unknown."""
    return 0.0 if whole is None else whole.measurement.power_capped_ratio or 0.0
