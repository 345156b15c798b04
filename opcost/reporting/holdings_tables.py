"""Holdings of a database on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from opcost.columns import fields_of
from opcost.measuring.conditions import ADDED_FIELDS, Conditions, differing_fields
from opcost.reporting.layout import Column
from opcost.reporting.show_notes import condition_words
from opcost.reporting.tables import print_origin, shared_facts
from opcost.reporting.terminal import print_line, print_table
from opcost.stages.holdings import Holdings, PartialModel
from opcost.units import UNKNOWN, duration, number_of

IN_FIRST_COLUMN = frozenset({"device_type", "device_product", "precision", "matmul_tf32", "cudnn_tf32", "execution"})
"""Conditions that the first column and the title name in any case."""

COLUMNS = (
    Column("conditions", "left", wraps=24),
    Column("tuples"),
    Column("wholes", drop=1),
    Column("complete"),
    Column("in part"),
    Column("missing"),
    Column("to measure"),
)

MODELS_SHOWN = 3

NOTE = (
    "Complete: models of which each operator that computes something has a row. In part: models with some rows under "
    "the same conditions, the tuples that they lack, and the time to measure these, without starting."
)


def print_holdings(found: Sequence[Holdings], top: int | None = None) -> None:
    """Print a table for each device, and the models that are measured in part.

    ``top`` is the most models to name under each set of conditions; None for the usual number.
    """
    if not found:
        print_line("No row.")
        return
    for product, of_product in groupby(found, key=lambda one: one.conditions.device_product):
        held = list(of_product)
        labels = _labels([one.conditions for one in held])
        facts = [fact for fact in shared_facts([one.conditions for one in held]) if fact != product]
        title = f"Rows of {product}" + (f": {', '.join(facts)}" if facts else "")
        print_table(title, COLUMNS, [_cells(*each) for each in zip(labels, held, strict=True)])
        for label, one in zip(labels, held, strict=True):
            if one.partial:
                print_line(f"In part in {label}: {_in_part(one.partial, top or MODELS_SHOWN)}", hanging=2)
    print_line(NOTE)
    print_origin()


def _labels(conditions: Sequence[Conditions]) -> list[str]:
    """Return precision, execution, and the other conditions that differ; switches at torch's default are left out."""
    names = set(differing_fields(conditions)) - IN_FIRST_COLUMN
    fields = [field for field in fields_of(Conditions) if field.name in names]
    labels = []
    for one in conditions:
        shown = [each for each in fields if not (each.name in ADDED_FIELDS and getattr(one, each.name) is None)]
        labels.append(", ".join([one.precision, one.execution, *(condition_words(each, one) for each in shown)]))
    return labels


def _cells(label: str, one: Holdings) -> tuple[str, ...]:
    counts = [f"{count:,}" for count in (one.tuples, one.wholes, len(one.complete), len(one.partial))]
    rest = (f"{one.missing:,}", duration(one.expected_s)) if one.partial else (UNKNOWN, UNKNOWN)
    return (label, *counts, *rest)


def _in_part(models: Sequence[PartialModel], most: int) -> str:
    """Return the models that lack the fewest tuples, with the time to measure these, and the number of the others."""
    texts = [
        f"{one.name} lacks {one.missing} of {number_of(one.tuples, 'tuple')} ({duration(one.expected_s)})"
        for one in models[:most]
    ]
    more = len(models) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")
