"""Doubts of a comparison: why its sum is no result yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from opcost.comparing.remark_rules import NOTICEABLE_RATIO
from opcost.comparing.remarks import Remark, RemarkKind
from opcost.comparing.row import ComparisonRow

FLAGGED_RATIO = 0.05
"""Share of the summed time in flagged rows from which a sum is no result: a flagged row can be off by any factor."""

UNEXPLAINED_RATIO = 0.25
"""Magnitude of the unexplained share of a whole from which a sum is no result.

No known effect is as large: caches change a sum by up to 13 %, another board by up to 19 %, launches by up to 9 %.
"""


class Doubt(Enum):
    """A reason why a sum is no result yet."""

    FLAGGED = "flagged"
    MISSING = "missing"
    UNEXPLAINED = "unexplained"
    ABOVE_LIMIT = "above the power limit"


@dataclass(frozen=True)
class SumFacts:
    """Facts that can cast doubt on a sum. Ratios are None if they are unknown.

    ``flagged_ratio`` is the share of the summed time in flagged rows, ``missing_ratio`` the share of the model that is
    not in the sum (0 if no operator is missing), ``unexplained_ratio`` the unexplained share of the whole.
    ``is_above_limit`` says whether a sum that is the cost of a model draws more than the power limit.
    """

    is_whole_flagged: bool
    flagged_ratio: float
    missing_ratio: float | None
    unexplained_ratio: float | None
    is_above_limit: bool = False


def doubts_of(facts: SumFacts) -> tuple[Doubt, ...]:
    """Return the doubts of a sum."""
    missing, unexplained = facts.missing_ratio, facts.unexplained_ratio
    found = {
        Doubt.FLAGGED: facts.is_whole_flagged or facts.flagged_ratio >= FLAGGED_RATIO,
        Doubt.MISSING: missing is None or missing >= NOTICEABLE_RATIO,
        Doubt.UNEXPLAINED: unexplained is not None and abs(unexplained) >= UNEXPLAINED_RATIO,
        Doubt.ABOVE_LIMIT: facts.is_above_limit,
    }
    return tuple(doubt for doubt, is_found in found.items() if is_found)


def doubts(row: ComparisonRow, remarks: Sequence[Remark], quantity: str) -> tuple[Doubt, ...]:
    """Return the doubts of a sum of ``time`` or ``energy``; none if there is no sum, or no whole."""
    costs = row.costs(quantity)
    if costs.summed is None or costs.whole is None:
        return ()
    shares = (one.figures["time_ratio"] for one in remarks if one.kind is RemarkKind.FLAGGED_OPERATORS)
    facts = SumFacts(
        is_whole_flagged=any(one.kind is RemarkKind.FLAGGED_WHOLE for one in remarks),
        flagged_ratio=max((share for share in shares if isinstance(share, float)), default=0.0),
        missing_ratio=costs.over_whole(costs.unmeasured) if row.missing_operators else 0.0,
        unexplained_ratio=costs.over_whole(costs.unexplained),
    )
    return doubts_of(facts)
