"""A background load for a GPU between measurements, so that its temperature and clocks stay up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch

from opcost.errors import CannotMeasureError
from opcost.measuring.calls import Calls
from opcost.measuring.observers import NOTHING, Finding, Observer
from opcost.measuring.ports import Workload
from opcost.torch_backend.workload import EagerWorkload, as_graph, refused_calls

ELEMENTS = 2**22
"""Elements of each of three fp32 tensors, 50 MB in total. They fit into an H200's cache and draw about 500 W, as much
as operators on average. Larger tensors draw almost 700 W, the power limit."""


class BackgroundLoad(Observer):
    """Runs a workload in a thread from ``resume`` to ``pause``. The workload is built at the first ``resume``.

    As an observer it pauses during loops.
    """

    def __init__(self, make_workload: Callable[[], Workload]) -> None:
        self._make_workload = make_workload
        self._workload: Workload | None = None
        self._wanted = threading.Event()
        self._is_closing = self._is_refused = False
        self._round = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def before_start(self) -> None:
        self.pause()

    def after_finish(self) -> Finding:
        self.resume()
        return NOTHING

    def resume(self) -> None:
        """Start the load, or leave the device idle if it has not enough memory."""
        if self._is_refused:
            return
        if self._workload is None:
            try:
                self._workload = self._make_workload()
            except CannotMeasureError as error:
                logging.getLogger(__name__).warning(
                    "no background load between operators, so short loops may begin on a cool device: %s", error
                )
                self._is_refused = True
                return
            self._thread.start()
        self._wanted.set()

    def pause(self) -> None:
        """Stop the load and wait until the device is idle."""
        self._wanted.clear()
        if self._workload is not None:
            with self._round:
                self._workload.finish()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause until the end of the context."""
        try:
            self.pause()
            yield
        finally:
            self.resume()

    def close(self) -> None:
        """End the thread."""
        self._is_closing = True
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        assert self._workload is not None
        while self._wanted.wait() and not self._is_closing:
            with self._round:
                if self._wanted.is_set():
                    self._workload.run(1)


def additions(device: str) -> Workload:
    """Return additions as a background load.

    Raises:
        CannotMeasureError: the device has not enough memory.
    """
    with refused_calls(device):
        augend, addend, total = (torch.randn(ELEMENTS, device=device) for _ in range(3))
        return as_graph(EagerWorkload(Calls(partial(torch.add, augend, addend, out=total)), device))
