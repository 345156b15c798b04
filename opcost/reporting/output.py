"""Output for programs: JSON and CSV. Standard library only, because power is logged before anything is installed."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from enum import EnumMeta
from typing import Any, TextIO, get_args

from opcost.columns import Field, cell_of, cell_values, columns_of


def print_json(found: Any) -> None:
    """Print reports, which are dataclasses or hold some, as JSON on stdout; figures are in SI units.

    Fields that their ``repr`` leaves out are left out.
    """

    def fields_of(one: Any) -> dict[str, Any]:
        return {field.name: getattr(one, field.name) for field in fields(one) if field.repr}

    # As it is made: the text of 100,000 parts takes 300 MB.
    json.dump(found, sys.stdout, indent=2, default=fields_of)
    print(flush=True)


def write_csv(file: TextIO, names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def cells_of(row: Any) -> Mapping[str, object]:
    """Return the values of a row by column, as cells hold them: a tuple is one text; None without items but flags."""
    cells = zip(columns_of(type(row)), cell_values(row), strict=True)
    return {field.name: _text(field, value) if isinstance(value, tuple) else value for field, value in cells}


def _text(field: Field, items: tuple[Any, ...]) -> str | None:
    is_set = isinstance(get_args(field.kind)[0], EnumMeta)
    return cell_of(items) if items or is_set else None
