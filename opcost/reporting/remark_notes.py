"""Footnotes of comparisons: each kind of remark once, with the comparisons that it holds for and their figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opcost.comparing.doubts import Doubt, doubts
from opcost.comparing.remarks import Remark, RemarkKind
from opcost.comparing.row import ComparisonRow
from opcost.invocation import command
from opcost.measuring.conditions import EAGER
from opcost.reporting.compared_models import QUANTITIES
from opcost.summing.summation import WITHOUT_ENERGY
from opcost.units import percent, some_of

COMPARISONS_SHOWN = 6
"""Comparisons that a footnote names."""

UNEXPLAINED = "unexplained by any known effect, so probably disturbed; measure again"
UNEXPLAINED_EAGER = (
    "unexplained: an eager run also takes Python's time between operators, which is in no sum; or it was disturbed"
)


@dataclass(frozen=True)
class Noted:
    """A comparison with its label and its remarks, and the command that measures what is missing (None: the usual)."""

    label: str
    row: ComparisonRow
    remarks: Sequence[Remark]
    remedy: str | None = None


@dataclass(frozen=True)
class Footnote:
    """A footnote, and for each comparison that it holds for, by its number, the figures there; these may be empty."""

    text: str
    figures: Mapping[int, str]


def footnotes(compared: Sequence[Noted]) -> list[Footnote]:
    """Return the footnotes of all comparisons of a table, doubts first.

    Of remarks, there are those that change what a reader concludes; see ``all_in_words``.
    """
    found: list[tuple[int, str, str, int]] = []
    for number, one in enumerate(compared):
        found += [(order, text, figure, number) for order, text, figure in _notes(one)]
    texts: dict[str, dict[int, str]] = {}
    for _, text, figure, number in sorted(found, key=lambda note: note[0]):
        known = texts.setdefault(text, {})
        known[number] = f"{known[number]} + {figure}" if number in known else figure
    return [Footnote(text, figures) for text, figures in texts.items()]


def numbers_of(notes: Sequence[Footnote], comparison: int) -> str:
    """Return the numbers of a comparison's footnotes: ``[1,3]``; empty if there are none."""
    numbers = [str(number) for number, note in enumerate(notes, 1) if comparison in note.figures]
    return f"[{','.join(numbers)}]" if numbers else ""


def footnote_lines(notes: Sequence[Footnote], labels: Sequence[str]) -> list[str]:
    """Return a line for each footnote, with its number."""
    return [
        f"[{number}] {note.text[:1].upper()}{note.text[1:]}{_held(note, labels)}"
        for number, note in enumerate(notes, 1)
    ]


def all_in_words(row: ComparisonRow, remarks: Sequence[Remark]) -> list[str]:
    """Return all remarks on one comparison, its missing operators and its missing energy in words."""
    missing = [f"missing: {operator}" for operator in _missing(row)]
    energy = [f"no energy: {row.energy_missing_reason}"] if row.energy_missing_reason else []
    return [*missing, *map(str, remarks), *energy]


def _held(note: Footnote, labels: Sequence[str]) -> str:
    """Return the comparisons that a footnote holds for, with their figures."""
    if len(labels) == 1:
        return f": {note.figures[0]}" if note.figures[0] else ""
    if len(note.figures) == len(labels) and not any(note.figures.values()):
        return " (all)"
    shown = [f"{labels[number]} {figure}".rstrip() for number, figure in note.figures.items()]
    more = len(shown) - COMPARISONS_SHOWN
    return f": {'; '.join(shown[:COMPARISONS_SHOWN])}" + (f"; {more} more" if more > 0 else "")


def _notes(one: Noted) -> Iterator[tuple[int, str, str]]:
    """Yield the footnotes of one comparison: their order, and the words for several comparisons and for this one."""
    row = one.row
    if row.missing_operators:
        measuring = one.remedy or command("measure")
        text = f"operators without a row are missing from the sum, which is too small ({measuring} measures them)"
        yield 0, text, _missing_figure(row)
    if unexplained := _unexplained_figure(one):
        is_longer = row.conditions.execution == EAGER and (row.unexplained_time_s or 0.0) > 0
        yield 1, UNEXPLAINED_EAGER if is_longer else UNEXPLAINED, unexplained
    for remark in one.remarks:
        if remark.changes_conclusions:
            yield 2 + list(RemarkKind).index(remark.kind), *remark.words
    if row.energy_missing_reason:
        yield 2 + len(RemarkKind), *_without_energy(row.energy_missing_reason)


def _without_energy(text: str) -> tuple[str, str]:
    """Return the reason of a missing energy, which several models share, and the model's operators without one."""
    numbers, found, reason = text.partition(WITHOUT_ENERGY)
    without, _, operators = numbers.partition(" of ")
    return (f"no energy: {reason}", "" if without == operators else numbers) if found else (f"no energy: {text}", "")


def _missing_figure(row: ComparisonRow) -> str:
    operators = _missing(row)
    costs = row.costs("time")
    share = costs.over_whole(costs.unmeasured)
    estimated = "" if share is None else f", estimated {percent(share)} of the time"
    return (
        f"{row.missing_operators} of {row.summed_operators + row.missing_operators}{estimated} ({some_of(operators)})"
    )


def _unexplained_figure(one: Noted) -> str:
    costs = {quantity: one.row.costs(quantity) for quantity, _ in QUANTITIES}
    shares = [
        f"{percent(found.over_whole(found.unexplained))} of the {quantity}"
        for quantity, found in costs.items()
        if Doubt.UNEXPLAINED in doubts(one.row, one.remarks, quantity)
    ]
    return ", ".join(shares)


def _missing(row: ComparisonRow) -> list[str]:
    return [operator for operator in row.missing.split(" | ") if operator]
