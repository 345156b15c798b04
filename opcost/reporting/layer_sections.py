"""The report's section on layers: a tree of each model that unfolds, with the totals of what is inside each layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from opcost.comparing.layers import LayerNode, LayerRow, layers_of
from opcost.reporting.html import code, folded, paragraph
from opcost.reporting.layer_notes import missing_notes
from opcost.reporting.layer_tables import layer_in_words
from opcost.reporting.report_sections import Compared, counted_once
from opcost.stages.proposals import NO_PROPOSALS, Proposals
from opcost.units import UNKNOWN, milli, number_of, percent, significant, some_of

MOST_TREES = 20
"""The most models with a tree: a tree has some hundred layers."""

COLUMNS = (
    *(("ms", ""), ("time share", ""), ("mJ", ""), ("energy share", "medium")),
    *(("GFLOP", "wide"), ("MB", "wide"), ("parameters", "wide")),
)
"""Titles of the figures, each with the class that hides it on narrow screens."""


def layers(found: Sequence[Compared], proposals: Proposals = NO_PROPOSALS) -> str:
    """Return a tree for each model, in its usual execution, whose counts have paths."""
    usual = [found[index] for index in sorted(counted_once(found))]
    known = [one for one in usual if one.comparison.counts.modules]
    trees = "".join(map(_tree, known[:MOST_TREES]))
    return "".join(filter(None, (_caption(known), trees, _left_out(usual, known, proposals))))


def _caption(known: Sequence[Compared]) -> str:
    if not known:
        return ""
    return paragraph(
        "Layers are in the order of execution; a layer that unfolds has the totals of what is inside it. The layers of "
        "a model add up to its sum of operators, which is not corrected. Shares are those of this sum."
    )


def _tree(one: Compared) -> str:
    comparison = one.comparison
    own = layers_of(comparison.counts, comparison.cost)
    notes = "".join(map(paragraph, missing_notes(own)))
    heads = "".join(f'<span class="{name}">{escape(title)}</span>' for title, name in COLUMNS)
    head = f'<div class="layer head"><span>layer</span>{heads}</div>'
    return folded(one.label, f'{notes}<div class="layers">{head}{_node(own.tree, is_open=True)}</div>')


def _node(node: LayerNode, is_open: bool = False) -> str:
    row = f'<span class="layer">{"".join(_cells(node))}</span>'
    if not node.children:
        return f'<div class="leaf">{row}</div>'
    inside = "".join(map(_node, node.children))
    return f"<details{' open' if is_open else ''}><summary>{row}</summary>{inside}</details>"


def _cells(node: LayerNode) -> Iterator[str]:
    row = node.row
    words = layer_in_words(row)
    name = "" if node.name == row.layer else f"<b>{escape(node.name or 'model')}</b> "
    size = f' <small class="wide">{escape(row.input_sizes)}</small>' if row.input_sizes else ""
    times = f" ({number_of(row.calls, 'call')})" if row.calls > 1 and not node.children else ""
    reason = f' title="{escape(row.missing_reason)}"' if row.missing_reason else ""
    yield f"<span{reason}>{name}{escape(words)}{times}{size}</span>"
    for figure, (_, hides) in zip(_figures(row), COLUMNS, strict=True):
        yield f'<span class="{hides}">{figure}</span>'


def _figures(row: LayerRow) -> tuple[str, ...]:
    return (
        *(milli(row.time_s), percent(row.time_ratio), milli(row.energy_j), percent(row.energy_ratio)),
        UNKNOWN if row.flop is None else significant(row.flop / 1e9),
        *(significant(row.memory_bytes / 1e6), "" if row.weights is None else str(row.weights)),
    )


def _left_out(usual: Sequence[Compared], known: Sequence[Compared], proposals: Proposals) -> str:
    """Return what to do for the trees of the other models; empty if all have one."""
    texts = []
    more = list(dict.fromkeys(one.name for one in known[MOST_TREES:]))
    if more:
        named = code(proposals.command("report", more[:1])).html
        texts.append(f"The first {MOST_TREES} models have a tree. Name others: {named}.")
    without = list(dict.fromkeys(one.name for one in usual if not one.comparison.counts.modules))
    if without:
        names = f"{number_of(len(without), 'model')} ({escape(some_of(without))})"
        shown, counted = (code(proposals.command(step, without[:1])).html for step in ("layers", "count"))
        texts.append(
            f"No tree of {names}: the counts have no paths. {shown} shows the layers; after {counted} this report has "
            "them, too."
        )
    return "".join(f"<p>{text}</p>" for text in texts)
