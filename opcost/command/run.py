"""The frame of each script: exit statuses, errors in one line, interrupts, and the log of a run.

Messages go to stderr, and to a file beside the tables that the run writes. Standard library only, for ``--help``.
"""

from __future__ import annotations

import _frozen_importlib
import errno
import gc
import getpass
import io
import itertools
import logging
import os
import platform
import re
import select
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO

from opcost.errors import UserError
from opcost.invocation import command_line, pip_install, program_name
from opcost.progress import SHOWN
from opcost.storage.files import temporary_folder
from opcost.units import printable, quotable

DEPENDENCIES = frozenset({"numpy", "pandas", "pydantic", "pynvml", "rich", "yaml"})
"""The modules that opcost always needs: a missing one is a user's mistake, not a bug."""

EXTRAS = {
    "argcomplete": "completion",
    "dask": "distributed",
    "distributed": "distributed",
    "pyarrow": "parquet",
    "scipy": "advise",
    "sklearn": "predict",
    "threadpoolctl": "predict",
    "timm": "timm",
    "torch": "torch",
    "torchvision": "torch",
    "transformers": "transformers",
}
"""Optional modules, and the extra of ``pyproject.toml`` that installs each."""

USER_ERROR = 2
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE
"""Exit statuses. As in a shell, 128 + the signal's number after Ctrl-C and after the reader of stdout has gone."""

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

FILE_SYSTEM_REFUSALS = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
    | {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG}
)
"""Errors of file systems that a user can remedy."""

FREE_SPACE = "free some space, or use folders on another disk"
NO_SPACE = {
    errno.ENOSPC: FREE_SPACE,
    errno.EDQUOT: FREE_SPACE,
    errno.EFBIG: "run 'ulimit -f unlimited', or use folders on another disk",
}
"""Errors of a full disk, of a quota and of a limit on the size of files, each with its remedy. While a file is written,
they do not name the file."""


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Collect no garbage meanwhile, nor what is left at the end: going through all rows takes a fifth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def run(main: Callable[[], int]) -> NoReturn:
    """Run a script's ``main`` and exit with the status that it returns.

    A ``UserError`` or a missing dependency becomes a line on stderr and status 2. The status is 130 after Ctrl-C, 143
    after SIGTERM, 129 after SIGHUP, and 141 if the reader of stdout has gone (``| head``). Any other exception is a bug
    and shows its traceback. The status is logged. While ``main`` imports a module, these signals end the program
    without a clean-up; after it has ended, also without a message.
    """
    log = logging.getLogger(__name__)
    try:
        status = _flushed(_status(main))
    except BaseException as error:
        log.info("ended by a bug", exc_info=error, extra={SHOWN: True})
        raise
    log.info("ended with status %s", status or 0)
    sys.exit(status)


@contextmanager
def results_apart(arguments: Namespace) -> Iterator[None]:
    """Keep stdout for results while a user's code may run: what it, C and programs write there goes to stderr.

    What threads of this code print once it has returned is among the results. Paths among the arguments become
    absolute: the code may change to another folder. Raises UserError: the code has closed the files of the program.
    """
    if getattr(arguments, "allow_code", False):
        paths = {name: value.absolute() for name, value in vars(arguments).items() if isinstance(value, Path)}
        vars(arguments).update(paths)
    stdout = sys.__stdout__
    if not getattr(arguments, "allow_code", False) or stdout is None or sys.stderr is None or sys.stdout is not stdout:
        yield
        return
    stdout.flush()
    streams = (stdout, sys.stderr)
    descriptors = [stream.fileno() for stream in streams]
    kept = list(map(os.dup, descriptors))
    os.dup2(descriptors[1], descriptors[0])
    try:
        with (
            open(kept[0], "w", encoding=stdout.encoding, errors=stdout.errors, closefd=False) as results,
            redirect_stdout(results),
        ):
            yield
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        text = "the model's code has closed files of the program, such as that of the results"
        raise UserError(f"{text}; leave out what closes files that it has not opened") from error
    finally:
        import ctypes

        with suppress(ValueError, OSError):
            stdout.flush()
        ctypes.CDLL(None).fflush(None)
        for copy, descriptor in zip(kept, descriptors, strict=True):
            with suppress(OSError):
                os.dup2(copy, descriptor)
                os.close(copy)
        # The code may have closed them, or put others in their place.
        sys.stdout, sys.stderr = map(_open_again, streams, descriptors)


def _open_again(stream: TextIO, descriptor: int) -> TextIO:
    if not stream.closed:
        return stream
    return open(descriptor, "w", encoding=stream.encoding, errors=stream.errors, closefd=False)


def _status(main: Callable[[], int]) -> int | str | None:
    try:
        _on_interrupts(_interrupt)
        try:
            for stream in (sys.stdout, sys.stderr):
                # Characters that the terminal's encoding does not have are replaced, instead of raising an error.
                # Python's default for stderr is backslashreplace, which loses nothing of a file's name.
                if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
                    stream.reconfigure(errors="replace")
            return main()
        finally:
            # From now on they end the program: an interrupt of what follows would be an exception that no one handles.
            _on_interrupts(signal.SIG_DFL)
    except SystemExit as request:
        return request.code
    except UserError as error:
        return _complain(error, *error.lines)
    except KeyboardInterrupt as interrupt:
        return _interrupted(interrupt)
    except BrokenPipeError:
        # If the readers of stdout and stderr are there, the broken pipe is another one, and a bug.
        poll = select.poll()
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None:
                poll.register(stream, 0)
        if not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
            raise
        return BROKEN_PIPE
    except (ModuleNotFoundError, OSError) as error:
        line = _message_for_user(error)
        if line is None:
            raise
        return _complain(error, line)


def _message_for_user(error: ModuleNotFoundError | OSError) -> str | None:
    """Return the error with its remedy, None if it is a bug."""
    if isinstance(error, ModuleNotFoundError):
        return _message_for_module(error.name)
    if error.errno in NO_SPACE:
        return f"{os.strerror(error.errno).lower()} while writing a file; {NO_SPACE[error.errno]}"
    if error.errno == errno.ENOENT and error.filename is None:
        # A library may have asked for the working folder, or for that of temporary files.
        try:
            os.getcwd()
            temporary_folder()
        except FileNotFoundError:
            return "the working folder has been removed; change to another one and run the command again"
        except UserError as mistake:
            return str(mistake)
    if error.errno not in FILE_SYSTEM_REFUSALS or error.filename is None:
        return None
    return f"{error.filename}: {error.strerror}; make it accessible, or choose another path"


def _message_for_module(name: str | None) -> str | None:
    """Return the command that installs a missing module, None if neither opcost nor an extra declares it."""
    if name not in DEPENDENCIES | EXTRAS.keys():
        return None
    # pip takes an extra from the installed opcost, from wherever that came.
    requirement = f"opcost[{EXTRAS[name]}]" if name in EXTRAS else "opcost"
    from importlib.metadata import distributions

    # A build leaves metadata without this list of files in the repository, where Python may look first.
    is_installed = any(found.read_text("RECORD") is not None for found in distributions(name="opcost"))
    remedy = f"run {pip_install(requirement)}" if is_installed else "run 'make install' and use .venv/bin/python"
    return f"{name} is not installed for {sys.executable}; {remedy}"


def complain(*lines: str) -> None:
    """Print errors on stderr, a line each, in red where colour is on."""
    for line in lines:
        print(in_red(f"error: {quotable(line)}"), file=sys.stderr)


def in_red(text: str) -> str:
    """Return a text as stderr shows it: red on a terminal, unless ``NO_COLOR`` is set or the terminal is dumb."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    is_coloured = not is_plain and (os.environ.get("FORCE_COLOR") or (sys.stderr is not None and sys.stderr.isatty()))
    return f"\x1b[31m{text}\x1b[0m" if is_coloured else text


def _complain(error: Exception, *lines: str) -> int:
    complain(*lines)
    logging.getLogger(__name__).info("the traceback behind this error", exc_info=error)
    return USER_ERROR


def _interrupted(interrupt: KeyboardInterrupt) -> int:
    # After SIGHUP there is no terminal to print to.
    with suppress(OSError):
        print("interrupted; run the same command again to continue", file=sys.stderr)
    logging.getLogger(__name__).info("where it was interrupted", exc_info=interrupt)
    return next((128 + number for number in interrupt.args if number in INTERRUPTS), INTERRUPTED)


def _flushed(status: int | str | None) -> int | str | None:
    """Flush stdout; drop its content if the reader has gone or the disk is full.

    Python's own attempt at exit would print a traceback.
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


def _on_interrupts(action: Callable[[int, FrameType | None], NoReturn] | signal.Handlers) -> None:
    for number in INTERRUPTS:
        # nohup ignores SIGHUP, and it stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, action)


def _interrupt(signal_number: int, frame: FrameType | None) -> NoReturn:
    """Raise the exception of an interrupt; within an import, end the program at once.

    Imports drop and replace exceptions (callbacks, ``__set_name__``, pydantic), or abort the program (torch).
    """
    interrupt = KeyboardInterrupt(signal_number)
    while frame is not None:
        if frame.f_globals is vars(_frozen_importlib):
            os._exit(_interrupted(interrupt))
        frame = frame.f_back
    raise interrupt


RUN_LOGS = "run_logs"
"""The folder of logs within a database."""

KEPT = 50
"""Logs of one script that are kept: the newest ones."""

NEW_LINE = "\n"

HIDDEN_HOST, HIDDEN_USER, HIDDEN_HOME = "<host>", "<user>", "~"


def log_run(verbose: bool, database: Path | None = None) -> None:
    """Log warnings to stderr from now on, and all messages to a file of this run in a database, if one is given.

    With ``verbose``, stderr gets all messages, too: steps, results, and tracebacks behind errors of one line. Raises
    OSError: the file cannot be made.
    """
    root = logging.getLogger()
    if not verbose and database is None:
        # Without a handler Python prints warnings itself.
        return
    root.setLevel(logging.INFO)
    root.addHandler(_OnStderr(verbose))
    if database is not None:
        root.addHandler(_run_log(database / RUN_LOGS, program_name()))
    logging.getLogger(__name__).info("begins: %s", command_line())


class _OnStderr(logging.Handler):
    """Prints messages to the current ``sys.stderr``, which a progress bar replaces.

    With ``verbose`` it prints messages of all levels, except those that the user sees anyway (``SHOWN``).
    """

    def __init__(self, verbose: bool) -> None:
        super().__init__(logging.INFO if verbose else logging.WARNING)
        if verbose:
            self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        # A reader that has gone is no error here: the script's own output reports it.
        if not getattr(record, SHOWN, False):
            with suppress(OSError):
                print(printable(self.format(record), kept=NEW_LINE), file=sys.stderr, flush=True)


class _File(logging.FileHandler):
    def __init__(self, path: Path) -> None:
        super().__init__(path, mode="x", encoding="utf-8", errors="backslashreplace")
        form = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
        form.converter = time.gmtime
        self.setFormatter(form)
        self._names = Names.here()

    def format(self, record: logging.LogRecord) -> str:
        return self._names.hidden_in(printable(super().format(record), kept=NEW_LINE))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name for it)
        # If the disk is full, a lost row ends a run, a lost line of the log does not.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


@dataclass(frozen=True)
class Names:
    """The user's home folder and name, and the host's name; empty if unknown."""

    home: str
    user: str
    host: str

    @staticmethod
    def here() -> Names:
        home = user = ""
        with suppress(RuntimeError):
            home = str(Path.home())
        # In a container a user may have no name.
        with suppress(OSError, KeyError, ImportError):
            user = getpass.getuser()
        return Names(home, user, platform.node())

    def hidden_in(self, text: str) -> str:
        """Return a text with placeholders for them. The user's name is replaced only as a folder's name."""
        if len(self.home) > 1:
            text = re.sub(rf"{re.escape(self.home)}(?![\w.-])", HIDDEN_HOME, text)
        if self.user:
            text = re.sub(rf"(?<=/){re.escape(self.user)}(?![\w.-])", HIDDEN_USER, text)
        if self.host:
            text = re.sub(rf"(?<![\w-]){re.escape(self.host)}(?![\w-])", HIDDEN_HOST, text)
        return text


def _run_log(folder: Path, script: str) -> logging.Handler:
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    log: logging.Handler | None = None
    # Several runs may begin within one second.
    endings = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    while log is None:
        with suppress(FileExistsError):
            log = _File(folder / f"{begin}-{script}{next(endings)}.log")
    pattern = re.compile(rf"\d{{8}}T\d{{6}}Z-{re.escape(script)}(-\d+)?\.log")
    logs = sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))
    for path in logs[:-KEPT]:
        # Another run of the script may have removed it.
        path.unlink(missing_ok=True)
    return log
