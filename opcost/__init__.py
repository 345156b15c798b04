"""opcost: time and energy of PyTorch operators on real hardware.

``opcost.show``, ``opcost.compare``, ``opcost.predict``, ``opcost.tokens``, ``opcost.sweep``, ``opcost.profile`` and
``opcost.layers`` return what the commands of these names print, as a table that is also a data frame
(``to_frame``). ``opcost.report`` writes a page, and ``opcost.load`` has the tables as data frames, ``opcost.Database``
as typed rows. ``opcost.EnergyMeter`` meters your own code, ``opcost.LayerwiseEnergy`` the layers of a loop, and in a
notebook ``%load_ext opcost`` brings ``%%energy`` for a cell. Names are imported lazily, so that ``import opcost``
needs the standard library only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from opcost.version import __version__ as __version__

if TYPE_CHECKING:
    from opcost.api import compare, layers, load, predict, profile, report, show, sweep, tokens
    from opcost.errors import UserError
    from opcost.notebook import load_ipython_extension
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
    "load_ipython_extension",
    "mark",
    "parse_operator",
    "predict",
    "profile",
    "report",
    "show",
    "sweep",
    "tokens",
]

if not TYPE_CHECKING:
    # Type checkers see the imports above, and report a name that is none of them.

    def __getattr__(name: str) -> object:
        modules = {
            "Database": "opcost.storage.database",
            "EnergyMeter": "opcost.running.energy_meter",
            "LayerwiseEnergy": "opcost.running.layerwise",
            "OperatorTuple": "opcost.operators.tuples",
            "UserError": "opcost.errors",
            "best_rows": "opcost.summing.summation",
            "load_ipython_extension": "opcost.notebook",
            "mark": "opcost.running.marks",
            "parse_operator": "opcost.operators.texts",
        }
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(modules.get(name, "opcost.api")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
