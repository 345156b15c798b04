"""Repeated calls of an operator with a defined state of the device's cache, and their relocation in memory.

Warm: the cache holds everything that the previous call used. Cold: it holds the inputs but not the weights, because in
a model all other layers ran in between.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import nn

from opcost.measuring.calls import Calls
from opcost.measuring.conditions import WARM
from opcost.measuring.flags import Flag, joined_notes
from opcost.torch_backend.flops import tensors_of
from opcost.torch_backend.in_place import repeatable
from opcost.units import megabytes

EVICTING_RATIO = 2
"""Bytes to read to evict all data, as a multiple of the cache's size; not every cache evicts the oldest data first."""

MAXIMUM_COPIES = 512
MEMORY_SHARE = 0.25
"""The most copies of a layer's weights, and the largest share of the device's memory that they may take.

512 copies of 0.5 MB exceed twice a cache of 126 MB. With fewer copies calls come after an eviction, which makes short
ones too slow: a Linear of 10 us by 2 us to 9 us (``docs/log/cache.md``)."""

IN_PLACE = "in place: as warm"
NO_WEIGHTS = "no weights: as warm"

WEIGHTS_OF_FUNCTIONS: Mapping[object, int] = {
    **dict.fromkeys(
        (F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d), 1
    ),
    torch.addmm: 2,
}
"""Functions with weights, and the place of these among their arguments."""


@dataclass(frozen=True)
class Layer:
    """An operator with its weights and its inputs."""

    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]

    def call(self) -> object:
        return self.function(*self.args, **self.kwargs)

    @property
    def weights(self) -> list[torch.Tensor]:
        """A module's parameters and buffers, or the weights among a function's inputs."""
        if isinstance(self.function, nn.Module):
            return [*self.function.parameters(), *self.function.buffers()]
        return [value for value in self.args[self._weights_at] if isinstance(value, torch.Tensor)]

    @property
    def _weights_at(self) -> slice:
        """The place of the weights among a function's arguments, empty without any."""
        place = WEIGHTS_OF_FUNCTIONS.get(self.function, len(self.args))
        return slice(place, place + 1)

    @property
    def inputs(self) -> list[torch.Tensor]:
        """All tensors among the arguments except weights."""
        weights = set(map(id, self.weights))
        return [tensor for tensor in tensors_of((self.args, dict(self.kwargs))) if id(tensor) not in weights]

    def relocated(self) -> Layer:
        """Return the same layer in other memory, with equal values, layouts and shared storage."""
        return Layer(*copy.deepcopy((self.function, self.args, self.kwargs)))

    def copied(self) -> Layer:
        """Return a layer with the same inputs and a copy of the weights."""
        if isinstance(self.function, nn.Module):
            return replace(self, function=copy.deepcopy(self.function))
        args = list(self.args)
        args[self._weights_at] = [tensor.clone() for tensor in self.weights]
        return replace(self, args=tuple(args))


@dataclass(frozen=True)
class DeviceMemory:
    """The sizes of a device's last-level cache and of its memory, in bytes."""

    cache_bytes: int
    total_bytes: int


def device_memory(device: str) -> DeviceMemory:
    """Return the sizes of a GPU's L2 cache and of its memory."""
    properties = torch.cuda.get_device_properties(device)
    return DeviceMemory(int(properties.L2_cache_size), int(properties.total_memory))


def repeated(layer: Layer, cache: str, memory: Callable[[], DeviceMemory]) -> Calls:
    """Return repeated calls of a layer in a cache mode, one of ``CACHES``.

    They can be relocated, except for calls after an eviction, whose overhead is measured in one placement.

    Raises:
        CannotMeasureError: the layer cannot be repeated.
    """
    calls = _in_one_placement(layer, cache, memory)
    if calls.overhead is not None:
        return calls
    return replace(calls, relocated=lambda: _in_one_placement(layer.relocated(), cache, memory).cycle)


def _in_one_placement(layer: Layer, cache: str, memory: Callable[[], DeviceMemory]) -> Calls:
    again = repeatable(layer.call, tensors_of((layer.args, dict(layer.kwargs))))
    if cache == WARM:
        return again
    if Flag.MODIFIES_INPUT in again.flags:
        return _as_warm(again, IN_PLACE)
    return _cold(layer, memory())


def _as_warm(calls: Calls, reason: str) -> Calls:
    return replace(calls, flags=(*calls.flags, Flag.RAN_WARM), notes=joined_notes(calls.notes, reason))


def copies_beyond(memory: DeviceMemory, weights_bytes: int) -> int | None:
    """Return the number of copies of weights that exceed ``EVICTING_RATIO`` times the cache; None for too many."""
    copies = max(EVICTING_RATIO * memory.cache_bytes // weights_bytes + 1, 2)
    fit = copies <= MAXIMUM_COPIES and copies * weights_bytes <= MEMORY_SHARE * memory.total_bytes
    return copies if fit else None


def _cold(layer: Layer, memory: DeviceMemory) -> Calls:
    """Return calls without weights in the cache: of copies in turn, or after an eviction."""
    weights_bytes = sum(tensor.nbytes for tensor in layer.weights)
    if not weights_bytes:
        return _as_warm(Calls(layer.call), NO_WEIGHTS)
    copies = copies_beyond(memory, weights_bytes)
    if copies is None:
        return _after_eviction(layer, EVICTING_RATIO * memory.cache_bytes)
    *layers, last = layer, *(layer.copied() for _ in range(copies - 1))

    def in_turn() -> object:
        # Outputs are not kept, so that the next output reuses the memory, as in a loop of one layer.
        for each in layers:
            each.call()
        return last.call()

    return Calls(in_turn, copies)


def _after_eviction(layer: Layer, size_bytes: int) -> Calls:
    """Return a call after reading a buffer, which evicts the cache, and the inputs, which shall be in it."""
    evict = _reading([torch.zeros(size_bytes // 4, device=layer.weights[0].device), *layer.inputs])

    def evict_and_call() -> object:
        evict()
        return layer.call()

    notes = f"an eviction of {megabytes(size_bytes)} before each call subtracted"
    return Calls(evict_and_call, notes=notes, overhead=evict)


def _reading(tensors: Sequence[torch.Tensor]) -> Callable[[], object]:
    """Return a call that reads tensors and writes hardly anything, since written data would remain in the cache."""

    def read() -> None:
        for tensor in tensors:
            torch.sum(tensor)

    return read
