"""Threads that a ``forward`` starts: the modes of torch belong to a thread, so that those of a run see none of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

POOLS = ("concurrent.futures.thread", "multiprocessing.pool")
"""Modules whose threads outlive a call: the work that they get is inside of the context, not they."""


@contextmanager
def inside_of(context: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Let all that other threads begin to do meanwhile run inside of contexts, each in its own.

    Work for the threads of ``multiprocessing.pool`` is not seen.
    """
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

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

    def submitted(pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return submit(pool, within(function), *args, **kwargs)

    threading.Thread.start = started  # type: ignore[method-assign,assignment]
    ThreadPoolExecutor.submit = submitted  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
        ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]
