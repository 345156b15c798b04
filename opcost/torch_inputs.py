"""Inputs drawn for tensor specs."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from opcost.errors import CannotMeasureError
from opcost.operators import PlainValue, TensorSpec, contiguous_strides

SEED = 0


class NormalInputs:
    """Draws seeded standard-normal tensors of given shapes, dtypes and layouts on a device.

    Specs with one identity give one tensor, as in the model.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._generator = torch.Generator(device=device).manual_seed(SEED)
        self._drawn: dict[int, torch.Tensor] = {}

    def values(self, values: Iterable[PlainValue]) -> tuple[object, ...]:
        """Return plain values with a tensor in place of each spec."""
        return tuple(self.value(value) for value in values)

    def value(self, value: PlainValue) -> object:
        """Return one plain value with a tensor in place of each spec in it."""
        if isinstance(value, tuple):
            return self.values(value)
        if not isinstance(value, TensorSpec):
            return value
        if value.identity not in self._drawn:
            self._drawn[value.identity] = self._draw(value)
        return self._drawn[value.identity]

    def _draw(self, spec: TensorSpec) -> torch.Tensor:
        dtype: torch.dtype = getattr(torch, spec.dtype)
        if not dtype.is_floating_point:
            raise CannotMeasureError(f"inputs of type {spec.dtype} cannot be drawn from a normal distribution")
        strides = contiguous_strides(spec.shape) if spec.strides is None else spec.strides
        reach = sum((size - 1) * stride for size, stride in zip(spec.shape, strides, strict=True))
        elements = reach + 1 if all(spec.shape) else 0
        buffer = torch.randn(elements, dtype=dtype, device=self._device, generator=self._generator)
        return buffer.as_strided(spec.shape, strides)
