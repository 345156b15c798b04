"""Running a script: exit statuses, errors of one line, interrupts.

Everything here is standard library, so that ``--help`` answers at once and before anything is installed.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from opcost.errors import UserError
from opcost.progress import SHOWN

DEPENDENCIES = frozenset({"numpy", "pandas", "pydantic", "pynvml", "rich", "scipy", "torch", "torchvision", "yaml"})
"""The modules that ``make install`` installs: a missing one is a mistake of the user, not a bug."""


EXTRAS = {"matplotlib": "figures"}
"""Modules that not everybody needs, and the extra of ``pyproject.toml`` that installs them."""


USER_ERROR = 2


INTERRUPTED = 128 + signal.SIGINT


BROKEN_PIPE = 128 + signal.SIGPIPE
"""Exit statuses: the shell's 128 + the signal's number, for Ctrl-C and for output that nobody reads any more."""


FILE_SYSTEM_REFUSALS = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
    | {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG}
)
"""What a file system says no with, wherever a user's folder or file is in the way."""


NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What it says where there is none left; while a file is written, the error does not name the file."""


class Terminated(KeyboardInterrupt):
    """The system told the program to end: it cleans up as after Ctrl-C."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.status = 128 + signal_number


def run(main: Callable[[], int]) -> NoReturn:
    """Run a script's ``main`` and exit with the status that it returns.

    A ``UserError`` or a missing dependency becomes a line on stderr and status 2, Ctrl-C 130, SIGTERM 143, SIGHUP 129,
    and a reader of stdout that has gone (``| head``) 141. Any other exception is a bug and shows its traceback. How it
    ended is logged.
    """
    _interrupt_on(signal.SIGTERM, signal.SIGHUP)
    _accept_all_characters()
    log = logging.getLogger(__name__)
    try:
        status = _flushed(_status(main))
    except BaseException as error:
        log.info("ended by a bug", exc_info=error, extra={SHOWN: True})
        raise
    log.info("ended with status %s", status or 0)
    sys.exit(status)


def _status(main: Callable[[], int]) -> int | str | None:
    try:
        return main()
    except SystemExit as request:
        return request.code
    except UserError as error:
        return _complain(error, *error.lines)
    except KeyboardInterrupt as interrupt:
        return _interrupted(interrupt)
    except BrokenPipeError:
        if not _nobody_reads():
            raise
        return BROKEN_PIPE
    except (ModuleNotFoundError, OSError) as error:
        line = _message_for_user(error)
        if line is None:
            raise
        return _complain(error, line)


def _message_for_user(error: ModuleNotFoundError | OSError) -> str | None:
    """Return what the user can do about an error, None if it is a bug."""
    if isinstance(error, ModuleNotFoundError):
        remedy = "run 'make install' and use .venv/bin/python"
        if error.name in EXTRAS:
            remedy = f"run {sys.executable} -m pip install -e '.[{EXTRAS[error.name]}]'"
        is_ours = error.name not in DEPENDENCIES | EXTRAS.keys()
        return None if is_ours else f"{error.name} is not installed for {sys.executable}; {remedy}"
    if error.errno in NO_SPACE:
        remedy = "free some space, or name folders on another disk"
        return f"{os.strerror(error.errno).lower()} while a file was written; {remedy}"
    if error.errno not in FILE_SYSTEM_REFUSALS or error.filename is None:
        return None
    return f"{error.filename}: {error.strerror}; make it accessible, or name another place"


def _complain(error: Exception, *lines: str) -> int:
    for line in lines:
        print(f"error: {line}", file=sys.stderr)
    logging.getLogger(__name__).info("the traceback behind this error", exc_info=error)
    return USER_ERROR


def _interrupted(interrupt: KeyboardInterrupt) -> int:
    # After a hang-up there is no terminal left to print to.
    with suppress(OSError):
        print("interrupted: start the same command again to go on", file=sys.stderr)
    logging.getLogger(__name__).info("where it was interrupted", exc_info=interrupt)
    return interrupt.status if isinstance(interrupt, Terminated) else INTERRUPTED


def _flushed(status: int | str | None) -> int | str | None:
    """Write out what stdout still holds; where nobody reads it or the disk is full, drop it.

    Python's own attempt at the end would print noise.
    """
    try:
        print(end="", flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return status or BROKEN_PIPE
        line = _message_for_user(error)
        if line is None:
            raise
        return status or _complain(error, line)
    return status


def _accept_all_characters() -> None:
    """Let no character end the script: where the terminal's encoding lacks one, another is shown for it."""
    for stream in (sys.stdout, sys.stderr):
        # Python's choice for stderr is backslashreplace, which loses nothing of a file's name.
        if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
            stream.reconfigure(errors="replace")


def _nobody_reads() -> bool:
    """Tell whether the reader of stdout or stderr has gone; else a broken pipe is another pipe, and a bug."""
    poll = select.poll()
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            poll.register(stream, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _interrupt_on(*signals: signal.Signals) -> None:
    for number in signals:
        # nohup has SIGHUP ignored, and it stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise_terminated)


def _raise_terminated(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated(signal_number)
