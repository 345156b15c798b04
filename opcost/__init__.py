"""opcost: time and energy of PyTorch operators on real hardware.

``opcost.load``, ``opcost.show`` and ``opcost.compare`` return data frames, ``opcost.Database`` reads typed rows,
``opcost.profile`` measures a model, ``opcost.layers`` shows what its layers cost, and ``opcost.tokens`` what a token of
a language model costs. ``opcost.EnergyMeter`` meters your own code, and ``opcost.LayerwiseEnergy`` the layers of a
loop. Names are imported lazily, so that ``import opcost`` needs the standard library only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from opcost.version import __version__ as __version__

if TYPE_CHECKING:
    from opcost.api import compare, layers, load, profile, show, tokens
    from opcost.errors import UserError
    from opcost.operators.texts import parse_operator
    from opcost.operators.tuples import OperatorTuple
    from opcost.running.energy_meter import EnergyMeter
    from opcost.running.layerwise import LayerwiseEnergy
    from opcost.running.marks import mark
    from opcost.storage.database import Database
    from opcost.summing.summation import best_rows

__all__ = [
    "Database",
    "EnergyMeter",
    "LayerwiseEnergy",
    "OperatorTuple",
    "UserError",
    "best_rows",
    "compare",
    "layers",
    "load",
    "mark",
    "parse_operator",
    "profile",
    "show",
    "tokens",
]


def __getattr__(name: str) -> object:
    modules = {
        "Database": "opcost.storage.database",
        "EnergyMeter": "opcost.running.energy_meter",
        "LayerwiseEnergy": "opcost.running.layerwise",
        "OperatorTuple": "opcost.operators.tuples",
        "UserError": "opcost.errors",
        "best_rows": "opcost.summing.summation",
        "compare": "opcost.api",
        "layers": "opcost.api",
        "load": "opcost.api",
        "mark": "opcost.running.marks",
        "parse_operator": "opcost.operators.texts",
        "profile": "opcost.api",
        "show": "opcost.api",
        "tokens": "opcost.api",
    }
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(modules[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
