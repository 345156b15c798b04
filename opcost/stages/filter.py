"""Block 1: keep the operator tuples that the whitelist names."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from difflib import get_close_matches

from opcost.errors import UserError
from opcost.operators.counts import CAPTURED, Share, by_operator, cases_of, outside, select, share
from opcost.running.request import Request, counted
from opcost.storage.counts_file import write_counts
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS

SIMILAR_RATIO = 0.85
"""difflib's ratio from which two names are similar: Conv2dd and Conv2d have 0.92, Conv1d and Conv2d 0.83."""


@dataclass(frozen=True)
class OperatorShare:
    """The share of a model that all tuples of one operator have."""

    operator: str
    kept: bool
    unique_tuples: int
    share: Share


@dataclass(frozen=True)
class FilterReport:
    """The shares of a model that block 1 kept and dropped; ``measurements`` is the number of cases of kept tuples."""

    name: str
    unique_tuples: int
    kept_tuples: int
    measurements: int
    kept: Share
    dropped: Share
    outside: Share
    operators: tuple[OperatorShare, ...]


def filter_operators(request: Request, dry_run: bool = False) -> list[FilterReport]:
    """Filter each model's operator tuples by the whitelist, and write the kept ones to a pickle."""
    whitelist = request.whitelist()
    models = counted(request, request.configs(), COUNTS)
    present = {name for _, counts in models for name in by_operator(counts)}
    _check_spelling(request, whitelist, present)
    log = logging.getLogger(__name__)
    for name in sorted(set(whitelist) - present):
        for similar in get_close_matches(name, present - set(whitelist), n=1, cutoff=SIMILAR_RATIO):
            log.warning("%s in the whitelist matches no operator; did you mean %s?", name, similar)
    reports = []
    for config, counts in models:
        selection = select(counts, whitelist)
        if not selection.kept.counts:
            log.warning("%s: the whitelist keeps no operator", config.name)
        if not dry_run:
            write_counts(FILTERED_COUNTS.path(config), selection.kept)
        kept_names = {count.operator.short_name for count in selection.kept.counts}
        operators = (
            OperatorShare(operator, operator in kept_names, len(group), share(group, counts))
            for operator, group in by_operator(counts).items()
        )
        report = FilterReport(
            name=config.name,
            unique_tuples=len(counts.counts),
            kept_tuples=len(selection.kept.counts),
            measurements=len(cases_of(selection.kept.counts, CAPTURED)),
            kept=share(selection.kept.counts, counts),
            dropped=share(selection.dropped.counts, counts),
            outside=outside(counts),
            operators=tuple(operators),
        )
        reports.append(report)
    return reports


def _check_spelling(request: Request, whitelist: tuple[str, ...], present: set[str]) -> None:
    """Refuse names that differ from an operator's in case only, not counting the first letter (``ReLU``, ``relu``)."""

    def spelling(name: str) -> str:
        return name[:1] + name[1:].casefold()

    similar = {spelling(name): name for name in sorted(present)}
    mistakes = [
        f"{request.folders.whitelist}: {name} matches no operator; did you mean {similar[spelling(name)]}?"
        for name in whitelist
        if name not in present and similar.get(spelling(name), name) not in whitelist
    ]
    if mistakes:
        raise UserError(*mistakes)
