"""Captures on a CUDA stream, and calls on it in which a synchronisation is an error."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from opcost.measuring.calls import Call
from opcost.torch_backend.pieces import CaptureRefusal, SynchronisationRefusal

ALLOW_SYNCHRONISATION = 0
RAISE_ON_SYNCHRONISATION = 2
"""Modes of ``torch.cuda.set_sync_debug_mode``: a synchronisation with the device is allowed, or raises an error."""


class GraphRecorder:
    """Captures CUDA graphs one after the other on a stream, with memory of one pool.

    The graphs must be replayed in the order of their capture.
    """

    device_type = "cuda"

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._pool = torch.cuda.graph_pool_handle()
        self._graph: torch.cuda.CUDAGraph | None = None

    def run_without_waiting(self, call: Call) -> object:
        """Make a call outside a capture and return its result.

        Raises:
            SynchronisationRefusal: it synchronises with the GPU; it has not run to its end.
        """
        try:
            with _synchronisation_mode(RAISE_ON_SYNCHRONISATION):
                return call()
        except RuntimeError as error:
            if "synchronizing CUDA operation" not in str(error):
                raise
            raise SynchronisationRefusal("it synchronises with the GPU") from error

    def run_waiting(self, call: Call) -> object:
        """Make a call that may synchronise, within ``run_without_waiting``, and return its result."""
        with _synchronisation_mode(ALLOW_SYNCHRONISATION):
            return call()

    def begin(self) -> None:
        # torch.cuda.graph() would synchronise and empty the cache, so that the GPU would idle and cool every time.
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def end(self) -> torch.cuda.CUDAGraph:
        """End a capture and return its graph."""
        graph = self._graph
        assert graph is not None
        graph.capture_end()
        self._graph = None
        return graph

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """End the capture in progress after an error; convert errors of captures. Calls do not notice it.

        Raises:
            CaptureRefusal: torch raised an error other than being out of memory.
        """
        try:
            with unnoticed_capture():
                yield
        except BaseException as error:
            self._abandon()
            if isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError):
                reason = str(error).partition("\n")[0]
                raise CaptureRefusal(f"a CUDA graph cannot capture it: {reason}") from error
            raise

    def _abandon(self) -> None:
        """End a failed capture, also in torch's allocator, which a failed end does not reset."""
        if self._graph is None:
            return
        with suppress(RuntimeError):
            self._graph.capture_end()
        self._graph = None
        # Some versions lack this function; in others the failed end has reset the allocator, and it raises.
        end_allocating = getattr(torch._C, "_cuda_endAllocateToPool", None)
        if end_allocating is not None:
            with suppress(RuntimeError):
                end_allocating(self._stream.device_index, self._pool)


@contextmanager
def unnoticed_capture() -> Iterator[None]:
    """While active, ``torch.cuda.is_current_stream_capturing`` says no, as in the run that was counted.

    In a capture transformers gives attention a mask that it leaves out otherwise, and with which models took up to five
    times as long (``docs/log/other_sources.md``).
    """
    before = torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = lambda: False
    try:
        yield
    finally:
        torch.cuda.is_current_stream_capturing = before


@contextmanager
def _synchronisation_mode(mode: int) -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # torch warns that it may miss a synchronisation; then the capture fails.
        warnings.simplefilter("ignore", UserWarning)
        torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
