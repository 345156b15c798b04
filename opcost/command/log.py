"""The log of a run: messages on stderr, and in a file beside the tables that the run writes.

Standard library only, so that scripts can import it before anything is installed.
"""

from __future__ import annotations

import getpass
import itertools
import logging
import platform
import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opcost.invocation import command_line, program_name
from opcost.printable import printable
from opcost.progress import SHOWN

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
    """A new file for a run's messages, with times in UTC and without names of host and user."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, mode="x", encoding="utf-8", errors="backslashreplace")
        self.setFormatter(_Formatter())

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name for it)
        # If the disk is full, a lost row ends a run, a lost line of the log does not.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


class _Formatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime
        self._names = Names.here()

    def format(self, record: logging.LogRecord) -> str:
        return self._names.hidden_in(printable(super().format(record), kept=NEW_LINE))


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
    """Make a log for a run of a script, and remove the script's oldest logs."""
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
