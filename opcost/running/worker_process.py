"""A child process that answers questions; a crash ends the child and not this process."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import resource_tracker, util
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias, cast

from opcost.errors import CannotMeasureError, UserError

Answering: TypeAlias = Callable[[Any], Any]
"""Answers one question; question and answer can be pickled."""

ReportStep: TypeAlias = Callable[[str], None]
"""Reports to the parent which step of an answer begins, or goes on."""

OpenAnswering: TypeAlias = Callable[..., AbstractContextManager[Answering]]
"""Opens a function that answers; its keyword ``report_step``, a ``ReportStep``, is for answers of several steps."""

ANSWER, STEP, ERROR, FAULT, LOG = "answer", "step", "error", "fault", "log"
"""The kinds of messages of a child."""

WITHOUT_WORKING_FOLDER = "import sys; sys.path[:] = filter(None, sys.path); "
"""Python code before anything else in a child; ``sys`` is built in."""

PASSED_ON = (UserError, CannotMeasureError)
"""Errors that are answers: they are raised in the parent."""

OPENING = "opening"
"""The step before the first question."""

POLL_S = 5.0
"""The longest single poll. If the machine slept or Ctrl-Z stopped all, at most this much counts as the child's
silence."""

_STARTING = threading.Lock()
"""Several threads may start or kill a child: one at a time changes how ``multiprocessing`` does it."""

CLOSING_DEADLINE_S = 10.0
"""The time in which a child may close its resources; then it is killed."""


class ChildFaultError(Exception):
    """The child ended during a question. The message is the reason; ``is_killed`` if a signal of others ended it."""

    def __init__(self, reason: str, is_killed: bool = False) -> None:
        super().__init__(reason)
        self.is_killed = is_killed


class ChildProcess:
    """A child process that answers questions from ``__enter__`` to ``__exit__``.

    The child ends when this process ends, for whatever reason. A child that has ended may be entered again. Its log
    records are logged here. ``step_times_s`` adds up the time of each step of all answers, in s.

    ``open_answering`` is called in the child and opens the function that answers. It is pickled, so it is a function of
    a module, possibly with arguments (``functools.partial``). ``opening_s`` is the longest silence meanwhile in
    s, None for any time. The child runs on ``cores``, None for those of this process.
    """

    def __init__(
        self, open_answering: OpenAnswering, opening_s: float | None = None, cores: Sequence[int] | None = None
    ) -> None:
        self._open_answering = open_answering
        self._opening_s = opening_s
        self._cores = cores
        self.step_times_s: defaultdict[str, float] = defaultdict(float)
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._is_killed = False

    def __enter__(self) -> ChildProcess:
        """Start the process, and return when it is ready.

        Raises UserError, CannotMeasureError: its opening raised this; ChildFaultError: anything else ended it.
        """
        # Not forked: torch's threads and CUDA do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, self._open_answering, logging.getLogger().level, self._cores)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        try:
            with _STARTING:
                if self._is_killed:
                    raise ChildFaultError("killed")
                _start(self._process)
            theirs.close()
            self._receive({} if self._opening_s is None else {OPENING: self._opening_s})
        except BaseException:
            self._end(at_once=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(at_once=kind is not None)

    def kill(self) -> None:
        """Kill the child, and start none any more; a thread that waits for one gets a ``ChildFaultError``."""
        # Another thread may be starting it, or may close it meanwhile.
        with _STARTING, suppress(ValueError):
            self._is_killed = True
            process = self._process
            if process is not None and process.pid is not None:
                process.kill()

    def ask(self, question: object, limits_s: Mapping[str, float] | None = None) -> Any:
        """Return the answer to a question, any value that can be pickled.

        ``limits_s`` are the longest silences of the child in each step. It is in the first step until it reports
        another. A step that is not named may last for any time.

        Raises UserError, CannotMeasureError: the answer raised this; ChildFaultError: anything else ended the process,
        or it was silent for too long.
        """
        if self._connection is None:
            raise ChildFaultError("already ended")
        try:
            self._connection.send(question)
        except OSError as error:
            raise self._fault() from error
        return self._receive(limits_s or {})

    def _receive(self, limits_s: Mapping[str, float]) -> Any:
        step, begin_s = next(iter(limits_s), ""), time.monotonic()
        while True:
            try:
                kind, content = self._message(step, limits_s.get(step))
            finally:
                last_s, begin_s = begin_s, time.monotonic()
                self.step_times_s[step] += begin_s - last_s
            if kind == STEP:
                step = content
            elif kind == LOG:
                logging.getLogger(content.name).handle(content)
            elif kind == ANSWER:
                return content
            elif kind == ERROR:
                raise content
            else:
                raise self._fault(content)

    def _message(self, step: str, limit_s: float | None) -> tuple[str, Any]:
        assert self._connection is not None
        left_s = limit_s
        try:
            while not self._connection.poll(None if left_s is None else min(left_s, POLL_S)):
                left_s = max(0.0, (left_s or 0.0) - POLL_S)
                if not left_s:
                    self._end(at_once=True)
                    raise ChildFaultError(f"silent for {limit_s:g} s while {step}")
            message: tuple[str, Any] = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._fault() from error
        return message

    def _fault(self, reason: str | None = None) -> ChildFaultError:
        """End the process if it still runs, and return the error that says how it ended."""
        if self._process is not None:
            self._process.join(CLOSING_DEADLINE_S)
        code = None if self._process is None else self._process.exitcode
        is_killed = reason is None and code in (-signal.SIGKILL, -signal.SIGTERM)
        self._end(at_once=True)
        if reason is None:
            is_signal = code is not None and code < 0
            reason = f"ended by {signal.Signals(-code).name}" if is_signal and code else f"ended with status {code}"
        return ChildFaultError(reason, is_killed)

    def _end(self, at_once: bool) -> None:
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            # The child closes its resources when the connection ends.
            connection.close()
        if process is None or process.pid is None:
            return
        if not at_once:
            process.join(CLOSING_DEADLINE_S)
        process.kill()
        process.join()
        process.close()


def _start(process: BaseProcess) -> None:
    """Start a process that SIGINT does not reach: it inherits the blocked signal, and ``_serve`` ignores it.

    A SIGINT to this process is delivered after the start.
    """
    with _without_working_folder(), _interrupts_kept():
        # If ``process.start`` started the tracker, it would unblock SIGINT (bpo-33613).
        resource_tracker.ensure_running()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def _without_working_folder() -> Iterator[None]:
    """Start processes of ``multiprocessing`` without the working folder on their path.

    Python puts it first there for ``-c``, so a ``signal.py`` or ``pickle.py`` in it would run. The child then gets this
    process's path. ``PYTHONSAFEPATH`` does the same from Python 3.11 on.
    """
    before: Any = util.spawnv_passfds

    def start(path: Any, arguments: list[str], passed: Any) -> Any:
        program = arguments.index("-c") + 1
        arguments[program] = WITHOUT_WORKING_FOLDER + arguments[program]
        return before(path, arguments, passed)

    util.spawnv_passfds = cast(Any, start)
    try:
        yield
    finally:
        util.spawnv_passfds = before


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Defer SIGINT to the end, whichever thread receives it: Python's handlers run in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: kept.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if kept:
            signal.raise_signal(signal.SIGINT)


class _ConnectionHandler(logging.Handler):
    """Sends log records to the parent."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        # Arguments and tracebacks may not be picklable; their text is.
        text = self.format(record)
        plain = logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, text, None, None)
        with suppress(OSError):
            self._connection.send((LOG, plain))


def _serve(connection: Connection, open_answering: OpenAnswering, log_level: int, cores: Sequence[int] | None) -> None:
    """Answer until the connection closes; records below a level are not logged."""
    if cores is not None:
        os.sched_setaffinity(0, cores)
    # Ctrl-C reaches all processes of a terminal; the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    def report_step(step: str) -> None:
        # If the parent has gone, this process ends soon.
        with suppress(OSError):
            connection.send((STEP, step))

    threading.Thread(target=end_with_parent, daemon=True).start()
    root = logging.getLogger()
    root.addHandler(_ConnectionHandler(connection))
    root.setLevel(log_level)
    try:
        with open_answering(report_step=report_step) as answering:
            connection.send((ANSWER, None))
            while True:
                try:
                    question = connection.recv()
                except (EOFError, OSError):
                    break
                try:
                    answer = (ANSWER, answering(question))
                except PASSED_ON as error:
                    answer = (ERROR, error)
                connection.send(answer)
    except PASSED_ON as error:
        connection.send((ERROR, error))
    except Exception as error:
        logging.getLogger(__name__).warning("the measuring process ends:\n%s", traceback.format_exc().rstrip())
        with suppress(OSError):
            connection.send((FAULT, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"))
