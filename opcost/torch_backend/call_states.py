"""Calls of an operator in the state of a model: far data and code are evicted, then near inputs are written.

Trials on an H200 found what a call meets in a model (``docs/log/states.md``): what was written just before is in the
cache, other data and weights come from memory, and so does the code of kernels that do not run all the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)

from opcost.columns import grouped
from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import device_type_of, is_gpu
from opcost.measuring.workload import Call, Calls
from opcost.operators.reuse import CallState, Place
from opcost.torch_backend.passes import running_calls
from opcost.torch_backend.repeated_calls import (
    Layer,
    ObservingMode,
    Operation,
    contents_of,
    memory_peak_bytes,
    repeated,
    restoring,
    storage_of,
    writer,
)
from opcost.torch_backend.values import distinct_tensors, own_tensors

EVICTING_RATIO = 2.6
"""Bytes to read and write to evict all data, as a multiple of the cache's size."""

CPU_CACHE_BYTES = 2**20
"""The assumed cache of a CPU, on which calls in a state are only tried."""

MOST_WRITERS = 8
"""The largest number of tensors that are written by a kernel each; optimisers have lists of hundreds."""

ROWS = 288
"""Twice as many rows of a kernel that evicts code as a GPU has multiprocessors, and somewhat more."""


class Eviction:
    """Work that fills a device's cache with other data, and the caches of its multiprocessors with other code.

    ``kernels`` are calls of many kinds of kernels, by the dtype of their inputs.
    """

    def __init__(self, device: str) -> None:
        self.cache_bytes = CPU_CACHE_BYTES
        if is_gpu(device):
            self.cache_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
        self._device_type = device_type_of(device)
        self._read = torch.zeros(int(EVICTING_RATIO * self.cache_bytes) // 8, device=device)
        self._written = torch.empty_like(self._read)
        dtypes = torch.bfloat16, torch.float32
        self.kernels: Mapping[torch.dtype, Sequence[Call]] = {dtype: _kernels(device, dtype) for dtype in dtypes}

    def data(self) -> None:
        torch.add(self._read, 1, out=self._written)

    def code(self, dtype: torch.dtype) -> None:
        """Run kernels of another dtype: those of this one may be the operator's own."""
        with torch.autocast(self._device_type, enabled=False):
            for call in self.kernels[torch.bfloat16 if dtype is torch.float32 else torch.float32]:
                call()


@cache
def eviction(device: str) -> Eviction:
    """Return the eviction of a device, whose memory all operators share."""
    return Eviction(device)


def _kernels(device: str, dtype: torch.dtype) -> list[Call]:
    """Return calls of kernels of many kinds, each of some microseconds on all multiprocessors.

    They touch little memory, so that code stays in the cache that it shares with data: products of 132 tiles of 128².
    """

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=dtype)

    found: list[Call] = [
        partial(torch.mm, drawn(rows, inner), drawn(inner, columns))
        for rows, inner, columns in ((1024, 64, 2176), (1152, 128, 1920))
    ]
    images, tokens, heads = drawn(16, 32, 28, 28), drawn(ROWS, 1024), drawn(4, 4, 512, 64)
    found += [partial(F.conv2d, images, drawn(64, 32, width, width), padding=width // 2) for width in (1, 3, 5)]
    found.append(partial(F.conv2d, images, drawn(32, 1, 3, 3), groups=32))
    found += [partial(F.layer_norm, tokens, (1024,)), partial(torch.softmax, tokens, -1), partial(F.gelu, tokens)]
    found += [partial(torch.cumsum, tokens, -1), partial(F.group_norm, images, 8)]
    found.append(partial(F.scaled_dot_product_attention, heads, heads, heads))
    return found


def calls_in_state(layer: Layer, state: CallState, evict: Eviction, twin: Call | None = None) -> Calls:
    """Return calls of a layer after an eviction, with all but the call as their overhead.

    Inputs that it writes into are restored before each call. A ``twin``, the same operator with other tensors, brings
    code that is half near into the cache of the data. Raises CannotMeasureError: the state is that of another number of
    tensors.
    """
    inputs, weights = distinct_tensors(layer.args, layer.kwargs), own_tensors(layer.function)
    if len(inputs) != len(state.inputs):
        raise CannotMeasureError(f"its state is that of {len(state.inputs)} inputs, not of {len(inputs)}")
    places = [Place.FAR if state.far_weights else Place.NEAR] * len(weights) + list(state.inputs)
    changed = written_storages(layer)
    # The inputs last.
    found = {storage_of(one): (one, at) for one, at in zip((*weights, *inputs), places, strict=True)}
    before = _writers([(one, True) for key, (one, at) in found.items() if at is Place.FAR and key in changed])
    after = _writers(
        [(one, at is Place.HALF or key in changed) for key, (one, at) in found.items() if at is not Place.FAR]
    )
    dtype = next((one.dtype for one in (*inputs, *weights) if one.is_floating_point()), torch.float32)
    device_type = next((one.device.type for one in (*inputs, *weights)), "cpu")
    if torch.is_autocast_enabled(device_type):
        dtype = torch.get_autocast_dtype(device_type)

    def prepare() -> None:
        if before or state.code is Place.FAR:
            # The next kernels shall cost the same behind the call and behind its inputs' writers.
            evict.data()
        for write in before:
            write()
        if state.code is Place.FAR:
            evict.code(dtype)
        evict.data()
        if state.code is Place.HALF and twin is not None:
            twin()
            evict.code(dtype)
        for write in after:
            write()

    def prepare_and_call() -> object:
        prepare()
        return layer.call()

    alone = repeated(layer, restores=True)
    with running_calls():
        # The first call allocates what its library keeps.
        alone.cycle()
        peak_bytes = memory_peak_bytes(alone.cycle, [*inputs, *weights])
    return Calls(prepare_and_call, overhead=prepare, alone=alone, call_memory_peak_bytes=peak_bytes)


def _writers(tensors: Sequence[tuple[torch.Tensor, bool]]) -> list[Call]:
    """Return calls that write tensors again, from copies or not: each by a kernel, those of a long list together."""
    if len(tensors) <= MOST_WRITERS:
        return [writer(tensor, copies) for tensor, copies in tensors]
    found: list[Call] = []
    copied = contents_of(tensor for tensor, copies in tensors if copies)
    own = contents_of(tensor for tensor, copies in tensors if not copies)
    for those in grouped(own, lambda one: (one.dtype, one.device)).values():
        found.append(partial(torch._foreach_add_, those, 0))
    if copied:
        found.append(restoring(copied, [one.clone() for one in copied]))
    return found


def written_storages(layer: Layer) -> set[int]:
    """Return the storages of inputs and weights that a call writes into, and restore them."""
    own = {storage_of(one): one for one in (*own_tensors(layer.function), *distinct_tensors(layer.args, layer.kwargs))}
    restoring: dict[int, Call] = {}

    def run(operation: Operation) -> object:
        # Before it is written for the first time.
        for one in own.keys() & map(storage_of, operation.written) - restoring.keys():
            restoring[one] = writer(own[one], copies=True)
        return operation.run()

    with running_calls():
        with ObservingMode(run):
            layer.call()
        for restore in restoring.values():
            restore()
    return set(restoring)
