"""Parts of tensors that operations read and write: elements of tables by indices, none if only the form is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from opcost.operators.input_roles import WRITE_ONLY
from opcost.torch_backend.formulas import Given

Touched: TypeAlias = Callable[[Given, Any], int]
"""Returns the number of elements of a table that an operation touches, from its arguments and its result."""


def _of_result(_: Given, result: Any) -> int:
    return int(result.numel())


def _of_bags(given: Given, _: Any) -> int:
    return int(given["indices"].numel() * _table(given, "weight").shape[-1])


def _table(given: Given, argument: str) -> torch.Tensor:
    """Return a table; of packed weights it is the first tensor."""
    table: torch.Tensor = given[argument][0] if isinstance(given[argument], list) else given[argument]
    return table


def _of_source(name: str) -> Touched:
    return lambda given, _: int(given[name].numel())


def _of_rows(given: Given, _: Any) -> int:
    table = given["self"]
    rows = max(1, table.shape[given["dim"]]) if table.dim() else 1
    return int(given["index"].numel() * (table.numel() // rows))


def _of_places(given: Given, _: Any) -> int:
    """Return the elements at the places of ``index_put_``: indices are broadcast, other dimensions are whole.

    A mask may choose any number of places, so it counts as all.
    """
    table, indices = given["self"], given["indices"]
    if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
        return int(table.numel())
    places = torch.broadcast_shapes(*(index.shape for index in indices if index is not None))
    whole = [size for place, size in enumerate(table.shape) if place >= len(indices) or indices[place] is None]
    return math.prod((*places, *whole))


READ: Mapping[str, tuple[str, Touched]] = {
    **dict.fromkeys(("index_select", "gather", "take", "index", "_unsafe_index"), ("self", _of_result)),
    **dict.fromkeys(("embedding", "quantized::embedding_byte"), ("weight", _of_result)),
    **dict.fromkeys(
        ("_embedding_bag", "_embedding_bag_forward_only", "quantized::embedding_bag_byte"), ("weight", _of_bags)
    ),
}
"""Operations that read a part of a table, with the argument's name."""

WRITTEN: Mapping[str, Touched] = {
    **dict.fromkeys(("index_copy_", "index_add_", "index_reduce_", "index_fill_"), _of_rows),
    **dict.fromkeys(("scatter_", "scatter_add_", "scatter_reduce_"), _of_source("index")),
    "put_": _of_source("index"),
    **dict.fromkeys(("index_put_", "_index_put_impl_"), _of_places),
}
"""Operations that write a part of their first argument, in place."""

COMBINING = frozenset({"index_add_", "index_reduce_", "scatter_add_", "scatter_reduce_"})
"""Those that read what they write, too. ``index_put_`` and ``put_`` do if they accumulate, ``scatter_`` does if it
reduces."""


_BACKWARD = (
    "_adaptive_avg_pool{}d adaptive_max_pool{}d avg_pool{}d max_pool{}d_with_indices fractional_max_pool{}d "
    "reflection_pad{}d replication_pad{}d nll_loss nll_loss2d".split()
)

ASKED_FOR_FORM: Mapping[str, int] = {
    **dict.fromkeys((*WRITE_ONLY, "fill", "bernoulli.p", "new_zeros", "new_ones", "new_full"), 0),
    **dict.fromkeys((f"{name}_like" for name in "zeros ones full rand randn randint".split()), 0),
    **dict.fromkeys((f"{name.format(sides)}_backward" for name in _BACKWARD for sides in (1, 2, 3)), 1),
}
"""Operations that need only the form (shape, dtype, layout) of one tensor, and its place among their tensors: other
values in it change no result."""


@dataclass(frozen=True)
class Table:
    """A tensor of which an operation touches a part, with the bytes read and written; None if it writes elsewhere."""

    tensor: torch.Tensor
    read_bytes: int
    written_bytes: int | None = None


INDEXING = READ.keys() | WRITTEN.keys()
"""Operations that touch a part of a table; others read and write whole tensors."""


def table_of(name: str, given: Given, result: Any, size: Callable[[torch.Tensor], int]) -> Table:
    """Return the table that an operation of ``INDEXING`` touches in part.

    Args:
        name: of the operation, as in ``INDEXING``.
        given: its arguments by name, defaults included.
        result: its result.
        size: returns the bytes of a whole tensor.
    """
    argument, touched = READ[name] if name in READ else ("self", WRITTEN[name])
    table = _table(given, argument)
    part = min(size(table), touched(given, result) * table.element_size())
    if name in READ:
        return Table(table, part)
    is_combining = name in COMBINING or given.get("accumulate") or given.get("reduce") is not None
    return Table(table, part if is_combining else 0, part)
