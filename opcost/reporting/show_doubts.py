"""Marks and notes of costs and sums that are no result yet."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.comparing.ranking_row import SUM, RankingRow
from opcost.reporting.tables import DOUBTFUL
from opcost.units import percent


def is_cost_doubtful(row: RankingRow) -> bool:
    """Return whether the cost of a model is no result yet."""
    is_of_sum = row.source == SUM and row.is_sum_flagged
    return row.is_whole_flagged or row.is_unexplained or row.is_above_power_limit or is_of_sum


def is_sum_doubtful(row: RankingRow) -> bool:
    """Return whether the sum, and so the largest kinds, the roof and the saving, is no result yet."""
    return row.is_sum_flagged or row.is_missing or row.is_unexplained


def doubt_lines(rows: Sequence[RankingRow]) -> list[str]:
    """Return a line for each reason why costs or sums of these models are no result yet."""
    reasons = {
        "the whole model's measurement is flagged; measure again": [row.name for row in rows if row.is_whole_flagged],
        "flagged operators have 5 % or more of the summed time; measure them again": [
            row.name for row in rows if row.is_sum_flagged
        ],
        "sum and whole model differ by 25 % or more, so one of them is no result yet": [
            row.name for row in rows if row.is_unexplained
        ],
        "the sum draws more than the power limit, at which a run is throttled: it takes longer than the sum": [
            row.name for row in rows if row.is_above_power_limit
        ],
        "operators are missing from the sum; below 95 %, kinds, roof and saving are unknown": [
            f"{row.name} ({percent(row.memory_bytes_ratio)} of bytes measured)" for row in rows if row.is_missing
        ],
    }
    lines = [f"{DOUBTFUL} {', '.join(names)}: {reason}." for reason, names in reasons.items() if names]
    by_time = [row.name for row in rows if is_by_time(row)]
    if by_time:
        models = "" if len(by_time) == len(rows) else f" of {', '.join(by_time)}"
        lines.append(f"Not all energies of operators{models} are known: shares and order are those of time.")
    return lines


def is_by_time(row: RankingRow) -> bool:
    """Return whether operators have shares of the time, and its order, because an energy is unknown."""
    return row.sum_time_s is not None and row.sum_energy_j is None
