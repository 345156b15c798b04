"""What an operator finds in the device's cache when it runs again and again: as in a loop, or more as in a model.

Warm: all that the call before used. Cold: its inputs, but no weights, since in a model all other layers ran in between.
Chained: as its input the output of a layer like itself, in a stack of such layers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import nn

from opcost.measuring.calls import Calls
from opcost.measuring.conditions import COLD, WARM
from opcost.measuring.flags import Flag, joined_notes
from opcost.torch_backend.flops import tensors_of
from opcost.torch_backend.in_place import repeatable
from opcost.torch_backend.passes import INFERENCE
from opcost.units import megabytes

EVICTING_RATIO = 2
"""Reading this many times the size of a cache leaves nothing of what was in it: not every cache drops the oldest."""

MAXIMUM_COPIES = 64
MEMORY_SHARE = 0.25
"""Copies of a layer's weights: how many, and how much of the device's memory they take at most."""

CHAIN_LENGTH = 8
"""Layers in a stack: few enough that values do not vanish, though torch initialises layers so that each halves them."""

IN_PLACE = "in place: as warm"
NO_WEIGHTS = "no weights: as warm"
NO_INPUT = "not chained: its output is no input of its own"
RUNS_AWAY = "not chained: its values run to zero or infinity"

FUNCTIONS_WITH_WEIGHTS = frozenset(
    {F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d}
)
"""Functions whose second argument is what a module would call its weights."""


@dataclass(frozen=True)
class Layer:
    """An operator with its weights and its inputs."""

    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]

    def call(self) -> object:
        """Run it on its inputs."""
        return self.function(*self.args, **self.kwargs)

    def on(self, value: object) -> object:
        """Run it with another first argument."""
        return self.function(value, *self.args[1:], **self.kwargs)

    @property
    def weights(self) -> list[torch.Tensor]:
        """Its parameters and buffers, or the weights among a function's inputs."""
        if isinstance(self.function, nn.Module):
            return [*self.function.parameters(), *self.function.buffers()]
        has_weights = self.function in FUNCTIONS_WITH_WEIGHTS
        return [value for value in self.args[1:2] if has_weights and isinstance(value, torch.Tensor)]

    @property
    def inputs(self) -> list[torch.Tensor]:
        """Its tensors that are no weights."""
        weights = set(map(id, self.weights))
        return [tensor for tensor in tensors_of((self.args, dict(self.kwargs))) if id(tensor) not in weights]

    def relocated(self) -> Layer:
        """Return the same in other memory: tensors with their values, inputs with layouts and what they share."""
        return Layer(*copy.deepcopy((self.function, self.args, self.kwargs)))

    def copied(self) -> Layer:
        """Return a layer with equal weights in memory of their own, and the same inputs."""
        if isinstance(self.function, nn.Module):
            return replace(self, function=copy.deepcopy(self.function))
        weights = self.weights
        return replace(self, args=(self.args[0], weights[0].clone(), *self.args[2:])) if weights else self


@dataclass(frozen=True)
class DeviceMemory:
    """The sizes of a device's last cache, and of its memory, in bytes."""

    cache_bytes: int
    total_bytes: int


def device_memory(device: str) -> DeviceMemory:
    """Return the sizes of a GPU's L2 cache and of its memory."""
    properties = torch.cuda.get_device_properties(device)
    return DeviceMemory(int(properties.L2_cache_size), int(properties.total_memory))


def repeated(layer: Layer, cache: str, memory: Callable[[], DeviceMemory]) -> Calls:
    """Return calls of a layer that find in the cache what a mode says, one of ``CACHES``.

    They can be made on other memory, but for those behind an eviction, whose overhead is measured in one place.

    Raises:
        CannotMeasureError: it cannot be made again and again.
    """
    calls = _in_one_place(layer, cache, memory)
    if calls.overhead is not None:
        return calls
    return replace(calls, relocated=lambda: _in_one_place(layer.relocated(), cache, memory).cycle)


def _in_one_place(layer: Layer, cache: str, memory: Callable[[], DeviceMemory]) -> Calls:
    again = repeatable(layer.call, tensors_of((layer.args, dict(layer.kwargs))))
    if cache == WARM:
        return again
    if Flag.MODIFIES_INPUT in again.flags:
        return _as_warm(again, IN_PLACE)
    return _cold(layer, memory()) if cache == COLD else _chained(layer)


def _as_warm(calls: Calls, reason: str) -> Calls:
    return replace(calls, flags=(*calls.flags, Flag.RAN_WARM), notes=joined_notes(calls.notes, reason))


def copies_beyond(memory: DeviceMemory, weights_bytes: int) -> int | None:
    """Return how many copies of weights are together beyond ``EVICTING_RATIO`` times the cache; None for too many."""
    copies = max(EVICTING_RATIO * memory.cache_bytes // weights_bytes + 1, 2)
    fit = copies <= MAXIMUM_COPIES and copies * weights_bytes <= MEMORY_SHARE * memory.total_bytes
    return copies if fit else None


def _cold(layer: Layer, memory: DeviceMemory) -> Calls:
    """Return calls that find no weights in the cache: those of copies in turn, or behind an eviction."""
    weights_bytes = sum(tensor.nbytes for tensor in layer.weights)
    if not weights_bytes:
        return _as_warm(Calls(layer.call), NO_WEIGHTS)
    copies = copies_beyond(memory, weights_bytes)
    if copies is None:
        return _behind_an_eviction(layer, EVICTING_RATIO * memory.cache_bytes)
    *layers, last = _copies(layer, copies)

    def in_turn() -> object:
        # No output is kept: the next one takes its place in memory, as in a loop of one layer.
        for each in layers:
            each.call()
        return last.call()

    return Calls(in_turn, copies)


def _behind_an_eviction(layer: Layer, size_bytes: int) -> Calls:
    """Return a call before which a buffer is read, and after it the inputs, which are to be in the cache."""
    evict = _reading([torch.zeros(size_bytes // 4, device=layer.weights[0].device), *layer.inputs])

    def behind() -> object:
        evict()
        return layer.call()

    return Calls(behind, notes=f"an eviction of {megabytes(size_bytes)} before each call subtracted", overhead=evict)


def _reading(tensors: Sequence[torch.Tensor]) -> Callable[[], object]:
    """Return a call that reads tensors and writes hardly anything: what was written would still have to be stored."""

    def read() -> None:
        for tensor in tensors:
            torch.sum(tensor)

    return read


def _chained(layer: Layer) -> Calls:
    """Return calls of layers in a stack, each on the output of the one before."""
    value = layer.args[0] if layer.args else None
    with INFERENCE.context():
        if not (isinstance(value, torch.Tensor) and _is_fed_once(layer, value) and _is_like(layer.call(), value)):
            return _as_warm(Calls(layer.call), NO_INPUT)
        layers = _copies(layer, CHAIN_LENGTH)

        def chain() -> object:
            output: object = value
            for each in layers:
                output = each.on(output)
            return output

        return _as_warm(Calls(layer.call), RUNS_AWAY) if _runs_away(value, chain()) else Calls(chain, CHAIN_LENGTH)


def _copies(layer: Layer, number: int) -> list[Layer]:
    return [layer, *(layer.copied() for _ in range(number - 1))]


def _is_fed_once(layer: Layer, value: torch.Tensor) -> bool:
    """Return whether a layer takes a tensor in one place only: elsewhere it would stay as it is."""
    return sum(tensor is value for tensor in layer.inputs) == 1


def _is_like(output: object, value: torch.Tensor) -> bool:
    """Return whether an output may stand for a floating input: shape, dtype and layout are equal."""
    return isinstance(output, torch.Tensor) and value.is_floating_point() and _form(output) == _form(value)


def _form(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.stride(), tensor.device


def _runs_away(value: torch.Tensor, output: object) -> bool:
    """Return whether values were sound before a chain and are all zeros, or not all finite, behind it."""
    return _is_sound(value) and not (isinstance(output, torch.Tensor) and _is_sound(output))


def _is_sound(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all()) and bool(tensor.any())
