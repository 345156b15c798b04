"""Output for programs: one JSON object. Standard library only, because power is logged before anything is installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any


def print_json_object(report: Any) -> None:
    """Print a report, which is a dataclass, as one object on stdout; figures are in SI units."""
    print_object(_fields_of(report))


def print_object(found: Mapping[str, Any]) -> None:
    """Print one object on stdout."""
    # As it is made: the text of 100,000 parts takes 300 MB.
    json.dump(found, sys.stdout, indent=2, default=_fields_of)
    print(flush=True)


def _fields_of(report: Any) -> dict[str, Any]:
    return {field.name: getattr(report, field.name) for field in fields(report)}
