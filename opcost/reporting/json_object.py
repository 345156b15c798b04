"""Output for programs: one JSON object. Standard library only, because power is logged before anything is installed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any


def print_json_object(report: Any) -> None:
    """Print a report, which is a dataclass, as one object on stdout; figures are in SI units."""
    print_object(asdict(report))


def print_object(found: Mapping[str, Any]) -> None:
    """Print one object on stdout."""
    print(json.dumps(found, indent=2), flush=True)
