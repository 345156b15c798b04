"""Keeps a GPU at work while nothing is measured, so that it neither cools nor clocks down between two operators."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

import torch

from opcost.errors import CannotMeasureError
from opcost.measuring.calls import Calls
from opcost.measuring.observers import NOTHING, Finding, Observer
from opcost.measuring.ports import Workload
from opcost.torch_backend.workload import EagerWorkload, as_graph, refused_calls

ELEMENTS = 2**22
"""Of each of three fp32 tensors, 50 MB in all: what fits into an H200's cache draws some 500 W there, as operators do
on average, while more would draw nearly the 700 W at which clocks go down."""


class BackgroundLoad(Observer):
    """Runs a workload from ``resume`` to ``pause``, in a thread; it is made at the first ``resume``.

    As an observer it rests in loops, and goes on as soon as one has ended, also while its logs are cut.
    """

    def __init__(self, make_workload: Callable[[], Workload]) -> None:
        self._make_workload = make_workload
        self._workload: Workload | None = None
        self._wanted = threading.Event()
        self._is_closing = self._is_refused = False
        self._round = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def before_start(self) -> None:
        """Rest: the next loop has the device for itself."""
        self.pause()

    def after_finish(self) -> Finding:
        """Go on."""
        self.resume()
        return NOTHING

    def resume(self) -> None:
        """Keep the device at work from now on; where it has no room for that, let it idle."""
        if self._is_refused:
            return
        if self._workload is None:
            try:
                self._workload = self._make_workload()
            except CannotMeasureError as error:
                logging.getLogger(__name__).warning(
                    "the device idles between operators, and short loops measure it while it warms up: %s", error
                )
                self._is_refused = True
                return
            self._thread.start()
        self._wanted.set()

    def pause(self) -> None:
        """Stop, and return when what was started has ended."""
        self._wanted.clear()
        if self._workload is not None:
            with self._round:
                self._workload.finish()

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
    """Return a load for the background.

    Raises:
        CannotMeasureError: the device has no room for it.
    """
    with refused_calls(device):
        augend, addend, total = (torch.randn(ELEMENTS, device=device) for _ in range(3))
        return as_graph(EagerWorkload(Calls(partial(torch.add, augend, addend, out=total)), device))
