"""Inputs drawn for plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from opcost.input_values import NORMAL, NORMAL_DATA, InputData, InputStatistics, InputValues
from opcost.operators import DEFAULT_SEED, META, Constant, OperatorTuple, PlainValue, TensorSpec, tensor_specs
from opcost.torch_values import ELLIPSIS, real_value, stored_elements, tensors_within

INDEX_FUNCTIONS = frozenset({"__getitem__", "__setitem__"})
"""Functions whose second argument is an index: a tuple there means something else than a list."""

USUAL_BOUND = 2
"""Integers are drawn below this where nothing says what they count: valid in any dimension of a tensor but of one."""


USUAL_IMAGE_SIDE = 800.0
"""Pixels: the size to which torchvision's detectors scale images."""

SMALLEST_BOX = 16.0
"""Pixels. Detectors' smallest anchors are of 32."""

BOX_COLUMNS = 4


@dataclass(frozen=True)
class Kinds:
    """What the values of tensors are to be, by their identity.

    ``floating`` has the values of floating ones, normal if they are not there; ``bounds`` the number below which the
    integers of a tensor are, ``box_sides`` the side in pixels of the image in which a tensor's rows are boxes.
    """

    floating: Mapping[int, InputValues] = field(default_factory=dict)
    bounds: Mapping[int, int] = field(default_factory=dict)
    box_sides: Mapping[int, float] = field(default_factory=dict)


class DrawnInputs:
    """Draws seeded tensors of given shapes, dtypes and layouts for a device: floating values, or integers from 0 up.

    Specs with one identity give one tensor, as in the model. On the ``meta`` device there are only shapes.

    Args:
        device: where the tensors are.
        seed: decides the values.
        drawn_on: where they are drawn; the same seed gives other values on another device.
        kinds: what the values of tensors are to be.
    """

    def __init__(
        self,
        device: str,
        seed: int = DEFAULT_SEED,
        drawn_on: str | None = None,
        kinds: Kinds | None = None,
    ) -> None:
        self._device = device
        self._drawn_on = META if device == META else drawn_on or device
        self._generator = None if device == META else torch.Generator(device=self._drawn_on).manual_seed(seed)
        self._kinds = kinds or Kinds()
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
        if spec.identity in self._kinds.box_sides:
            return self._boxes(spec, self._kinds.box_sides[spec.identity])
        elements, strides = stored_elements(spec)
        dtype: torch.dtype = getattr(torch, spec.dtype)
        if dtype.is_floating_point or dtype.is_complex:
            buffer = self._floating(elements, dtype, self._kinds.floating.get(spec.identity, NORMAL))
        else:
            bound = self._kinds.bounds.get(spec.identity, USUAL_BOUND)
            buffer = torch.randint(bound, (elements,), device=self._drawn_on, generator=self._generator).to(dtype)
        return buffer.to(self._device).as_strided(spec.shape, strides)

    def _floating(self, elements: int, dtype: torch.dtype, values: InputValues) -> torch.Tensor:
        buffer = torch.randn(elements, dtype=dtype, device=self._drawn_on, generator=self._generator)
        if values == NORMAL:
            return buffer
        buffer = buffer * values.spread + values.mean
        chances = torch.rand(elements, device=self._drawn_on, generator=self._generator)
        return buffer.masked_fill(chances < values.zeros_ratio, 0.0)

    def _boxes(self, spec: TensorSpec, side: float) -> torch.Tensor:
        """Draw boxes (left, top, right, bottom; before them zero, the image's number, where there are five columns).

        Their centres are anywhere in the image, their heights and widths of any order of magnitude, as detectors'.
        """
        rows = spec.shape[0]
        drawn = torch.rand((4, rows), device=self._drawn_on, generator=self._generator)
        sizes = SMALLEST_BOX * (side / SMALLEST_BOX) ** drawn[2:]
        begins = (drawn[:2] * side - sizes / 2).clamp(0, side)
        ends = (drawn[:2] * side + sizes / 2).clamp(0, side)
        numbers = torch.zeros((spec.shape[1] - BOX_COLUMNS, rows), device=self._drawn_on)
        boxes = torch.cat([numbers, begins, ends]).t().contiguous()
        return boxes.to(device=self._device, dtype=getattr(torch, spec.dtype))


def operator_inputs(
    operator: OperatorTuple, device: str, data: InputData = NORMAL_DATA
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return positional and keyword arguments of a kind for an operator tuple, valid as indices where they are some.

    Raises:
        CannotMeasureError: they cannot be made again.
    """
    floating = {spec.identity: data.kind(index) for index, spec in enumerate(operator.floating_inputs)}
    kinds = Kinds(floating, dict(integer_bounds(operator)), dict(box_sides(operator)))
    inputs = DrawnInputs(device, kinds=kinds)
    args = inputs.values(operator.inputs)
    if operator.short_name in INDEX_FUNCTIONS and isinstance(args[1], list):
        args = (args[0], tuple(args[1]), *args[2:])
    return args, {name: inputs.value(value) for name, value in operator.keyword_inputs}


def input_statistics(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[InputStatistics, ...]:
    """Return what each distinct floating tensor of a call holds, in the order of the call's specs."""
    values = [*args, *(value for _, value in sorted(kwargs.items()))]
    tensors = {id(tensor): tensor for tensor in tensors_within(values) if tensor.is_floating_point()}
    return tuple(map(_statistics, tensors.values()))


def _statistics(tensor: torch.Tensor) -> InputStatistics:
    if not tensor.numel():
        return InputStatistics(zeros_ratio=0.0, mean=math.nan, spread=math.nan)
    spread, mean = torch.std_mean(tensor.float(), correction=0)
    zeros = tensor.numel() - torch.count_nonzero(tensor)
    return InputStatistics(zeros.item() / tensor.numel(), mean.item(), spread.item())


def box_sides(operator: OperatorTuple) -> Iterator[tuple[int, float]]:
    """Yield the identity of each tensor whose rows are boxes in an image, and the image's side in pixels."""
    if operator.short_name == "nms":
        yield tensor_specs(operator.inputs[:1])[0].identity, USUAL_IMAGE_SIDE
    elif operator.short_name == "roi_align":
        (scale,) = [value for value in operator.inputs[2:] if isinstance(value, float)] or [1.0]
        side = tensor_specs(operator.inputs[:1])[0].shape[-1] / scale
        yield tensor_specs(operator.inputs[1:2])[0].identity, side
    elif operator.short_name == "MultiScaleRoIAlign":
        _, boxes, image_sizes = operator.inputs
        side = min(size for image in _tuple(image_sizes) for size in _tuple(image) if isinstance(size, int))
        yield from ((spec.identity, side) for spec in tensor_specs([boxes]))


def integer_bounds(operator: OperatorTuple) -> Iterator[tuple[int, int]]:
    """Yield identity and bound of each integer tensor whose values must be below it: indices, token ids."""
    rows = dict(operator.parameters).get("num_embeddings")
    specs = tensor_specs(operator.inputs)
    if isinstance(rows, int):
        yield from ((spec.identity, rows) for spec in specs)
    elif operator.short_name in INDEX_FUNCTIONS:
        index = operator.inputs[1]
        yield from _index_bounds(specs[0].shape, _tuple(index))


def _tuple(value: PlainValue) -> tuple[PlainValue, ...]:
    return value if isinstance(value, tuple) else (value,)


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
