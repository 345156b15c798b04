"""Doubts of a comparison: why its sum is no result yet."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from opcost.comparing.remark_rules import NOTICEABLE_RATIO
from opcost.comparing.remarks import Remark, RemarkKind
from opcost.comparing.row import ComparisonRow

FLAGGED_RATIO = 0.05
"""Share of the summed time in flagged rows from which a sum is no result: a flagged row can be off by any factor."""

UNEXPLAINED_RATIO = 0.25
"""Magnitude of the unexplained share of a whole from which a sum is no result.

No known effect is as large: caches change a sum by up to 13 %, another board by up to 15 %, launches by up to 9 %.
"""


class Doubt(Enum):
    """A reason why a sum is no result yet."""

    FLAGGED = "flagged"
    MISSING = "missing"
    UNEXPLAINED = "unexplained"


def doubts(row: ComparisonRow, remarks: Sequence[Remark], quantity: str) -> tuple[Doubt, ...]:
    """Return the doubts of a sum of ``time`` or ``energy``; none if there is no sum, or no whole."""
    of_time = (row.time_s, row.full_time_s, row.unmeasured_time_s, row.unexplained_time_s)
    of_energy = (row.energy_j, row.full_energy_j, row.unmeasured_energy_j, row.unexplained_energy_j)
    summed, whole, unmeasured, unexplained = of_time if quantity == "time" else of_energy
    if summed is None or whole is None:
        return ()
    is_missing = row.missing_operators and (unmeasured is None or unmeasured >= NOTICEABLE_RATIO * whole)
    is_unexplained = unexplained is not None and abs(unexplained) >= UNEXPLAINED_RATIO * whole
    found = {
        Doubt.FLAGGED: any(map(_is_flagged, remarks)),
        Doubt.MISSING: is_missing,
        Doubt.UNEXPLAINED: is_unexplained,
    }
    return tuple(doubt for doubt, is_found in found.items() if is_found)


def _is_flagged(remark: Remark) -> bool:
    share = remark.figures.get("time_ratio")
    is_large = isinstance(share, float) and share >= FLAGGED_RATIO
    return remark.kind is RemarkKind.FLAGGED_WHOLE or (remark.kind is RemarkKind.FLAGGED_OPERATORS and is_large)
