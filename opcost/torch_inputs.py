"""Inputs drawn for tensor specs."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from opcost.errors import CannotMeasureError
from opcost.operators import DEFAULT_SEED, PlainValue, Structure, TensorSpec, contiguous_strides

META = "meta"


class NormalInputs:
    """Draws seeded standard-normal tensors of given shapes, dtypes and layouts for a device.

    Specs with one identity give one tensor, as in the model. On the ``meta`` device there are only shapes.

    Args:
        device: where the tensors are.
        seed: decides the values.
        drawn_on: where they are drawn; the same seed gives other values on another device.
    """

    def __init__(self, device: str, seed: int = DEFAULT_SEED, drawn_on: str | None = None) -> None:
        self._device = device
        self._drawn_on = META if device == META else drawn_on or device
        self._generator = None if device == META else torch.Generator(device=self._drawn_on).manual_seed(seed)
        self._drawn: dict[int, torch.Tensor] = {}

    def values(self, values: Iterable[PlainValue]) -> tuple[object, ...]:
        """Return plain values with a tensor in place of each spec."""
        return tuple(self.value(value) for value in values)

    def value(self, value: PlainValue) -> object:
        """Return one plain value with a tensor in place of each spec in it."""
        if isinstance(value, tuple):
            return self.values(value)
        if isinstance(value, Structure):
            raise CannotMeasureError(f"inputs of type {value.kind} cannot be made yet")
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
        buffer = torch.randn(elements, dtype=dtype, device=self._drawn_on, generator=self._generator)
        return buffer.to(self._device).as_strided(spec.shape, strides)
