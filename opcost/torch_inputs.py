"""Inputs drawn for plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from opcost.operators import DEFAULT_SEED, Constant, OperatorTuple, PlainValue, TensorSpec, tensor_specs
from opcost.torch_values import ELLIPSIS, real_value, stored_elements

META = "meta"

INDEX_FUNCTIONS = frozenset({"__getitem__", "__setitem__"})
"""Functions whose second argument is an index: a tuple there means something else than a list."""

USUAL_BOUND = 2
"""Integers are drawn below this where nothing says what they count: valid in any dimension of a tensor but of one."""


class NormalInputs:
    """Draws seeded tensors of given shapes, dtypes and layouts for a device: standard-normal, or integers from 0 up.

    Specs with one identity give one tensor, as in the model. On the ``meta`` device there are only shapes.

    Args:
        device: where the tensors are.
        seed: decides the values.
        drawn_on: where they are drawn; the same seed gives other values on another device.
        bounds: the number below which the integers of a tensor are, by its identity.
    """

    def __init__(
        self,
        device: str,
        seed: int = DEFAULT_SEED,
        drawn_on: str | None = None,
        bounds: dict[int, int] | None = None,
    ) -> None:
        self._device = device
        self._drawn_on = META if device == META else drawn_on or device
        self._generator = None if device == META else torch.Generator(device=self._drawn_on).manual_seed(seed)
        self._bounds = bounds or {}
        self._drawn: dict[int, torch.Tensor] = {}

    def values(self, values: Iterable[PlainValue]) -> tuple[object, ...]:
        """Return plain values with a tensor in place of each spec."""
        return tuple(self.value(value) for value in values)

    def value(self, value: PlainValue) -> object:
        """Return one plain value with a tensor in place of each spec in it.

        Raises:
            CannotMeasureError: it cannot be made again.
        """
        return real_value(value, self._device, self._tensor)

    def _tensor(self, spec: TensorSpec) -> torch.Tensor:
        if spec.identity not in self._drawn:
            self._drawn[spec.identity] = self._draw(spec)
        return self._drawn[spec.identity]

    def _draw(self, spec: TensorSpec) -> torch.Tensor:
        elements, strides = stored_elements(spec)
        dtype: torch.dtype = getattr(torch, spec.dtype)
        if dtype.is_floating_point or dtype.is_complex:
            buffer = torch.randn(elements, dtype=dtype, device=self._drawn_on, generator=self._generator)
        else:
            bound = self._bounds.get(spec.identity, USUAL_BOUND)
            buffer = torch.randint(bound, (elements,), device=self._drawn_on, generator=self._generator).to(dtype)
        return buffer.to(self._device).as_strided(spec.shape, strides)


def operator_inputs(operator: OperatorTuple, device: str) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return positional and keyword arguments for an operator tuple, valid as indices where they are some.

    Raises:
        CannotMeasureError: they cannot be made again.
    """
    inputs = NormalInputs(device, bounds=dict(integer_bounds(operator)))
    args = inputs.values(operator.inputs)
    if operator.short_name in INDEX_FUNCTIONS and isinstance(args[1], list):
        args = (args[0], tuple(args[1]), *args[2:])
    return args, {name: inputs.value(value) for name, value in operator.keyword_inputs}


def integer_bounds(operator: OperatorTuple) -> Iterator[tuple[int, int]]:
    """Yield identity and bound of each integer tensor whose values must be below it: indices, token ids."""
    rows = dict(operator.parameters).get("num_embeddings")
    specs = tensor_specs(operator.inputs)
    if isinstance(rows, int):
        yield from ((spec.identity, rows) for spec in specs)
    elif operator.short_name in INDEX_FUNCTIONS:
        index = operator.inputs[1]
        yield from _index_bounds(specs[0].shape, index if isinstance(index, tuple) else (index,))


def _index_bounds(shape: tuple[int, ...], index: tuple[PlainValue, ...]) -> Iterator[tuple[int, int]]:
    dimension = 0
    for position, item in enumerate(index):
        if item == Constant(ELLIPSIS):
            dimension = len(shape) - sum(map(_indexed_dimensions, index[position + 1 :]))
            continue
        if isinstance(item, TensorSpec) and item.dtype != "bool":
            yield item.identity, shape[dimension]
        dimension += _indexed_dimensions(item)


def _indexed_dimensions(item: PlainValue) -> int:
    """Return how many dimensions an item of an index takes up: none for None, all of a boolean mask's."""
    if isinstance(item, TensorSpec) and item.dtype == "bool":
        return len(item.shape)
    return 0 if item is None else 1
