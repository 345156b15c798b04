"""Grids of operator tuples: whether torch or torchvision has their operators."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from opcost.errors import CannotMeasureError
from opcost.operators.grids import AnyGrid
from opcost.sources.ports import suggestion


def mistakes(grid: AnyGrid, where: Callable[[str], str]) -> Iterator[str]:
    """Yield a line for each operator that there is not.

    Args:
        grid: or a list of tuples.
        where: returns the place of a key in the file, for a message.
    """
    # It imports torch, which a plan for a product does without.
    from opcost.torch_backend.operators import find_operator

    for place, name in grid.operators.items():
        try:
            find_operator(name)
        except CannotMeasureError:
            package, _, short_name = name.rpartition(".")
            known = [one for one in dir(sys.modules.get(package)) if not one.startswith("_")]
            remedy = suggestion(short_name, known, "write a module's class or a function on tensors, with its package")
            yield f"{where(place)}: this version of torch has no operator {name}; {remedy}"
