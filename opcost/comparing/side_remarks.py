"""Remarks on a model under two conditions side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from opcost.comparing.conditions_side_by_side import Calls, Pair, Side, SideBySide, Standing
from opcost.comparing.ranking import FLAGGED_RATIO
from opcost.comparing.remark_rules import flagged, throttled
from opcost.comparing.remarks import Remark, RemarkKind
from opcost.measuring.throttling import is_above_limit


def side_remarks(found: SideBySide) -> tuple[Remark, ...]:
    """Return the remarks on a model under two conditions."""
    sides = (found.these, found.others)
    is_one_device = found.these.conditions.device_product == found.others.conditions.device_product
    return (
        *(_boards(found) if is_one_device else ()),
        *_executions(sides),
        *_not_measured(found.pairs),
        *(replace(one, figures={"conditions": side.label, **one.figures}) for side in sides for one in _on_side(side)),
    )


def _boards(found: SideBySide) -> Iterator[Remark]:
    if found.these.whole is not None and found.others.whole is not None:
        board, other = found.these.board, found.others.board
        if board != other:
            yield Remark(RemarkKind.WHOLES_OF_TWO_BOARDS, {"board": board, "other_board": other})
    in_both = [pair for pair in found.pairs if pair.standing is Standing.BOTH]
    apart_s = sum(_time_s(pair) for pair in in_both if len({_board(pair.these), _board(pair.others)}) > 1)
    if apart_s:
        yield Remark(RemarkKind.OPERATORS_OF_TWO_BOARDS, {"time_ratio": apart_s / sum(map(_time_s, in_both))})


def _board(calls: Calls | None) -> str | None:
    return None if calls is None or calls.row is None else calls.row.circumstances.device_uuid


def _time_s(pair: Pair) -> float:
    """Return the time of a pair under both conditions."""
    sides = (one for one in (pair.these, pair.others) if one is not None and one.row is not None)
    return sum(one.number * one.row.measurement.time_s for one in sides if one.row is not None)


def _executions(sides: Iterable[Side]) -> Iterator[Remark]:
    if len({one.whole.measurement.executed_as for one in sides if one.whole is not None}) > 1:
        yield Remark(RemarkKind.TWO_EXECUTIONS)


def _not_measured(pairs: Iterable[Pair]) -> Iterator[Remark]:
    missing = [pair for pair in pairs if pair.standing is Standing.NOT_MEASURED]
    if missing:
        calls = sum(max(one.number for one in (pair.these, pair.others) if one is not None) for pair in missing)
        names = tuple(sorted({pair.operator.short_name for pair in missing}))
        yield Remark(RemarkKind.NOT_MEASURED, {"calls": calls, "operators": names})


def _on_side(side: Side) -> Iterator[Remark]:
    if side.whole is None:
        yield Remark(RemarkKind.WHOLE_NOT_MEASURED)
    for remark in flagged(side.whole, side.cost):
        share = remark.figures.get("time_ratio", 1.0)
        if isinstance(share, float) and share >= FLAGGED_RATIO:
            yield remark
    yield from throttled(side.whole, side.cost)
    time_s, energy_j = side.cost.time_s, side.cost.energy_j
    power_w = None if time_s is None or energy_j is None else energy_j.value / time_s.value
    if is_above_limit(power_w, side.conditions.device_power_limit_w):
        yield Remark(RemarkKind.ABOVE_LIMIT)
