"""Threads that a ``forward`` starts: the modes of torch belong to a thread, so that those of a run see none of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from multiprocessing.pool import ThreadPool
from typing import Any
from unittest.mock import patch

POOLS = ("concurrent.futures.thread", "multiprocessing.pool")
"""Modules whose threads outlive a call: the work that they get is inside of the context, not they."""

GIVES_WORK = (
    (ThreadPoolExecutor, "submit"),
    *((ThreadPool, name) for name in ("apply_async", "_map_async", "imap", "imap_unordered")),
)
"""The methods of pools that get a function as their first argument; others call these."""


@contextmanager
def inside_of(context: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Let all that other threads begin to do meanwhile run inside of contexts, each in its own."""
    start = threading.Thread.start

    def within(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with context():
                return function(*args, **kwargs)

        return called

    def started(thread: threading.Thread) -> None:
        if getattr(getattr(thread, "_target", None), "__module__", None) not in POOLS:
            thread.run = within(thread.run)  # type: ignore[method-assign]
        start(thread)

    def given(give: Callable[..., Any]) -> Callable[..., Any]:
        return lambda pool, function, /, *args, **kwargs: give(pool, within(function), *args, **kwargs)

    with ExitStack() as stack:
        stack.enter_context(patch.object(threading.Thread, "start", started))
        for pool, name in GIVES_WORK:
            stack.enter_context(patch.object(pool, name, given(getattr(pool, name))))
        yield
