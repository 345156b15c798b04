"""What each script prints: a table for people, or JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.reporting.terminal import print_line
from opcost.units import ratio

if TYPE_CHECKING:
    # Only for types: a comparison must not wait for torch, which the measuring stages import, nor block 1 for numpy.
    from opcost.stages.make_configs import ConfigReport

MOSTLY = 0.5
"""A share of measured time below which a verdict rests on estimates."""

OPERATORS_SHOWN = 12
"""Operators outside the whitelist that are named on the screen."""


def print_json(reports: Sequence[Any]) -> None:
    """Print one list with one object per report on stdout; figures are in SI units."""
    print(json.dumps([asdict(report) for report in reports], indent=2))


def print_configs(reports: Sequence[ConfigReport], dry_run: bool) -> None:
    """Print which configs were made, and how many were there already."""
    made = [report for report in reports if report.made]
    for report in made:
        print_line(f"{'would be written' if dry_run else 'written'}: {report.path}")
    print_line(f"{len(made)} written, {len(reports) - len(made)} there already" + _dry(dry_run, "nothing was written"))


def print_files(what: str, paths: Sequence[Path]) -> None:
    """Say on stderr what became of some files, in a line; nothing of none."""
    if paths:
        print(f"{what}: {', '.join(map(str, paths))}", file=sys.stderr)


def _with_error(value_ratio: float | None, error_ratio: float | None) -> str:
    return ratio(value_ratio) if error_ratio is None else f"{ratio(value_ratio)} ± {ratio(error_ratio)}"


def _dry(dry_run: bool, what: str) -> str:
    return f" (dry run: {what})" if dry_run else ""
