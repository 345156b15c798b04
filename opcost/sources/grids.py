"""Grids of operator tuples: whether torch or torchvision has their operator."""

from __future__ import annotations

import sys

from opcost.errors import CannotMeasureError
from opcost.operators.model_names import GRID
from opcost.sources.ports import ConfiguredModel, suggestion


def mistakes(config: ConfiguredModel) -> list[str]:
    """Return a line if there is no operator of the name that a grid has."""
    # It imports torch, which a plan for a product does without.
    from opcost.torch_backend.operators import find_operator

    name = config.model_name.removeprefix(f"{GRID}:")
    try:
        find_operator(name)
    except CannotMeasureError:
        package, _, short_name = name.rpartition(".")
        known = [one for one in dir(sys.modules.get(package)) if not one.startswith("_")]
        remedy = suggestion(short_name, known, "write a module's class or a function on tensors, with its package")
        return [f"{config.where('operator')}: this version of torch has no operator {name}; {remedy}"]
    return []
