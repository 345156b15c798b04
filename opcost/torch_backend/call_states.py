"""Calls of an operator in the state of a model: far data and code are evicted, then near inputs are written.

Trials on an H200 found what a call meets in a model (``docs/log/states.md``): what was written just before is in the
cache, other data and weights come from memory, and so does the code of kernels that do not run all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import nn

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import is_gpu
from opcost.measuring.workload import Call, Calls
from opcost.operators.reuse import CallState
from opcost.torch_backend.passes import running_calls
from opcost.torch_backend.repeated_calls import Layer, ObservingMode, Operation, device_memory, storage_of
from opcost.torch_backend.values import distinct_tensors

EVICTING_RATIO = 2.6
"""Bytes to read and write to evict all data, as a multiple of the cache's size."""

CPU_CACHE_BYTES = 2**20
"""The assumed cache of a CPU, on which calls in a state are only tried."""

MULTIPROCESSORS = 144
"""Kernels that evict code have at least so many blocks: one for each multiprocessor."""


class Eviction:
    """Work that fills a device's cache with other data, and the caches of its multiprocessors with other code."""

    def __init__(self, device: str) -> None:
        cache_bytes = device_memory(device).cache_bytes if is_gpu(device) else CPU_CACHE_BYTES
        self._read = torch.zeros(int(EVICTING_RATIO * cache_bytes) // 8, device=device)
        self._written = torch.empty_like(self._read)
        self.kernels = _kernels(device)

    def data(self) -> None:
        torch.add(self._read, 1, out=self._written)

    def code(self) -> None:
        for kernel in self.kernels:
            kernel()


@cache
def eviction(device: str) -> Eviction:
    """Return the eviction of a device, whose memory all operators share."""
    return Eviction(device)


def _kernels(device: str) -> list[Call]:
    """Return calls of kernels of many kinds, each of some microseconds on all multiprocessors."""
    found: list[Call] = []
    for dtype in (torch.bfloat16, torch.float16, torch.float32):

        def drawn(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.randn(shape, device=device, dtype=dtype)

        for rows, inner, columns in ((2048, 64, 1024), (512, 128, 4096)):
            found.append(partial(torch.mm, drawn(rows, inner), drawn(inner, columns)))
        if dtype is torch.float16:
            continue
        images = drawn(16, 32, 28, 28)
        found += [partial(F.conv2d, images, drawn(64, 32, width, width), padding=width // 2) for width in (1, 3, 5)]
        found.append(partial(F.conv2d, images, drawn(32, 1, 3, 3), groups=32))
        tokens, heads = drawn(2 * MULTIPROCESSORS, 1024), drawn(4, 8, 256, 64)
        found += [partial(F.layer_norm, tokens, (1024,)), partial(torch.softmax, tokens, -1), partial(F.gelu, tokens)]
        found.append(partial(torch.cumsum, tokens, -1))
        found.append(partial(F.group_norm, images, 8))
        found.append(partial(F.scaled_dot_product_attention, heads, heads, heads))
    return found


def calls_in_state(layer: Layer, state: CallState, evict: Eviction) -> Calls:
    """Return calls of a layer after an eviction, with all but the call as their overhead.

    Inputs that it writes into are restored before each call. Raises CannotMeasureError: the state is that of another
    number of tensors.
    """
    inputs = distinct_tensors(layer.args, layer.kwargs)
    if len(inputs) != len(state.far_inputs):
        raise CannotMeasureError(f"its state is that of {len(state.far_inputs)} inputs, not of {len(inputs)}")
    far = {id(one) for one, is_far in zip(inputs, state.far_inputs, strict=True) if is_far}
    weights = (
        [] if not isinstance(layer.function, nn.Module) else [*layer.function.parameters(), *layer.function.buffers()]
    )
    near = [*(one for one in inputs if id(one) not in far), *([] if state.far_weights else weights)]
    writers = {storage_of(one): _writer(one) for one in inputs + weights}
    written = _written_storages(layer) & writers.keys()
    near_storages = {storage_of(one) for one in near}
    before: Sequence[Call] = [writers[one] for one in written - near_storages]
    after: Sequence[Call] = [writers[one] for one in near_storages]

    def prepare() -> None:
        for write in before:
            write()
        if state.far_code:
            evict.code()
        evict.data()
        for write in after:
            write()

    def prepare_and_call() -> object:
        prepare()
        return layer.call()

    return Calls(prepare_and_call, overhead=prepare)


def _writer(tensor: torch.Tensor) -> Callable[[], object]:
    """Return a call that writes all memory of a tensor again with its present values, by a kernel."""
    with torch.no_grad():
        content = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        # Wider elements are written faster.
        content = content.view(torch.int32) if content.numel() % 4 == 0 else content
        # A copy would not be a kernel.
        return partial(torch.add, content.clone(), 0, out=content)


def _written_storages(layer: Layer) -> set[int]:
    """Return the storages that a call writes into."""
    found: set[int] = set()

    def run(operation: Operation) -> object:
        found.update(map(storage_of, operation.written))
        return operation.run()

    with running_calls(), ObservingMode(run):
        layer.call()
    return found
