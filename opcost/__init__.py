"""opcost: time and energy of PyTorch operators on real hardware.

``from opcost import Database`` reads the tables in Python. Names are imported lazily, so that ``import opcost`` needs
the standard library only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opcost.operators.texts import parse_operator
    from opcost.operators.tuples import OperatorTuple
    from opcost.storage.database import Database
    from opcost.summing.index import best_rows

__all__ = ["Database", "OperatorTuple", "best_rows", "parse_operator"]
__version__ = "0.3.0"


def __getattr__(name: str) -> object:
    modules = {
        "Database": "opcost.storage.database",
        "OperatorTuple": "opcost.operators.tuples",
        "best_rows": "opcost.summing.index",
        "parse_operator": "opcost.operators.texts",
    }
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(modules[name]), name)
