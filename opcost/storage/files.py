"""The user's folders; files that are replaced in one step, temporary and kept ones, and lines of any file.

``tempfile`` is imported late, because it takes longer than the frame of a program.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from glob import escape
from pathlib import Path

from opcost.errors import UserError
from opcost.shipped import shipped_database, shipped_measurements

HOME_VARIABLE = "OPCOST_HOME"
HOME_FILE = Path("opcost", "home")
"""The file in the user's configuration folder whose one line is the home."""

DEFAULT_HOME = Path("opcost")
"""The home in the user's data folder if no other is named."""

TEMPORARY = ".opcost-tmp"
"""The end of the name of a file that is being written."""

LONGEST_WRITE_S = 3600.0
"""A file that was not changed for so long is not being written: its process was killed."""

JUST_MADE_S = 60.0
"""A folder that is so young may be about to be locked."""

LARGEST_KEPT_BYTES = 200 * 10**6
"""The largest file that is read; larger ones were not written by ``keep``."""

LONGEST_LINE = 2**24
"""The most bytes of a line, more than the longest cells of a row need."""

TOO_LONG = "longer than any row"


@dataclass(frozen=True)
class UserFolders:
    """The folders that are written, and the shipped ones to read; None where these are the same, unused or missing."""

    measurements: Path
    database: Path
    shipped_measurements: Path | None = None
    shipped_database: Path | None = None


def user_folders(
    home: Path | None = None,
    measurements: Path | None = None,
    database: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> UserFolders:
    """Return the folders for these options.

    The ``home`` has ``measurements`` and ``database``; shipped files are read beside both. A folder that is named by
    itself is the only one. ``environment`` are variables, None for this process's. Raises UserError: the file that
    names the home is damaged, or the variable has an unknown home.
    """

    def beside(own: Path, shipped: Path) -> Path | None:
        # A copy of the package alone has no shipped folders.
        is_same = os.path.realpath(own) == os.path.realpath(shipped)
        return None if is_same or not shipped.is_dir() else shipped

    base = home if home is not None else _home(os.environ if environment is None else environment)
    own_models, own_tables = measurements or base / "measurements", database or base / "database"
    return UserFolders(
        own_models,
        own_tables,
        beside(own_models, shipped_measurements()) if measurements is None else None,
        beside(own_tables, shipped_database()) if database is None else None,
    )


def _home(environment: Mapping[str, str]) -> Path:
    if environment.get(HOME_VARIABLE):
        return path_of(environment[HOME_VARIABLE])
    file = xdg_folder(environment, "XDG_CONFIG_HOME", ".config") / HOME_FILE
    if not file.exists():
        return xdg_folder(environment, "XDG_DATA_HOME", ".local/share") / DEFAULT_HOME
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({error}); make it readable, or delete it") from None
    if len(lines) != 1 or not Path(os.path.expanduser(lines[0])).is_absolute():
        raise UserError(f"{file}: not one line with an absolute path; write the path of the folder, or delete the file")
    return Path(os.path.expanduser(lines[0]))


def path_of(text: str) -> Path:
    """Return the path of a user's text, in which ``~`` and ``~name`` are homes; a ``UserError`` for no such home."""
    path = os.path.expanduser(text)
    if path.startswith("~"):
        raise UserError(f"{text}: no home of {text.partition('/')[0]} is known; write the whole path, or ./{text}")
    return Path(path)


def xdg_folder(environment: Mapping[str, str], variable: str, default: str) -> Path:
    """Return a folder of the XDG base directory specification, which ignores relative paths."""
    named = Path(environment.get(variable, ""))
    return named if named.is_absolute() else Path(environment.get("HOME") or Path.home()) / default


def replace_file(path: Path, content: bytes) -> None:
    """Write a temporary file beside ``path``, sync it to disk, and move it into place; the file's mode is kept."""
    import tempfile

    path.parent.mkdir(parents=True, exist_ok=True)
    # Killed writers may have left a part of the file.
    for left in path.parent.glob(f".{escape(path.name)}.*{TEMPORARY}"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > LONGEST_WRITE_S:
                left.unlink()
    mode = path.stat().st_mode & 0o7777 if path.exists() else 0o644
    descriptor, temporary_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
    temporary = Path(temporary_name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_writable(folder: Path) -> None:
    """Make a folder, and a file in it that is gone at once; an ``OSError`` has the path."""
    import tempfile

    folder.mkdir(parents=True, exist_ok=True)
    tempfile.NamedTemporaryFile(dir=folder, suffix=TEMPORARY).close()


def temporary_folder() -> Path:
    """Return the folder for temporary files; a ``UserError`` if none can be written."""
    import tempfile

    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        raise UserError(
            "no folder for temporary files can be written; make room in /tmp, or set TMPDIR to a folder with room"
        ) from None


@contextmanager
def held_folder(prefix: str) -> Iterator[Path]:
    """Make a temporary folder, locked while this process lives; remove those of the prefix that have no process."""
    import tempfile

    for left in temporary_folder().glob(f"{prefix}*"):
        with suppress(OSError):
            _remove_unheld(left)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        descriptor = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(descriptor)


def _remove_unheld(folder: Path) -> None:
    """Remove a folder of this user; an ``OSError`` if a process holds it or is about to, or it is a link or gone."""
    import shutil

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and time.time() - status.st_mtime > JUST_MADE_S:
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Return the folder: ``$XDG_CACHE_HOME/opcost``, usually ``~/.cache/opcost``."""
    return xdg_folder(os.environ, "XDG_CACHE_HOME", ".cache") / "opcost"


def kept(name: str, folder: Path) -> bytes | None:
    """Return the content of a file, None if there is none or it cannot be read."""
    path = folder / name
    with suppress(OSError):
        if path.is_file() and path.stat().st_size <= LARGEST_KEPT_BYTES:
            return path.read_bytes()
    return None


def keep(name: str, content: bytes, folder: Path, replaced: str) -> None:
    """Write a file, if it can be written, and remove the others that match a pattern of names, such as ``a-*``."""
    with suppress(OSError):
        replace_file(folder / name, content)
        for path in folder.glob(replaced):
            if path.name != name:
                path.unlink(missing_ok=True)


def lines_of(path: Path) -> Iterator[str]:
    """Yield a file's lines without their ends; what is no UTF-8 is replaced; a ``ValueError`` for a too long line."""
    with path.open("rb") as file:
        for line in iter(partial(file.readline, LONGEST_LINE), b""):
            if len(line) == LONGEST_LINE:
                raise ValueError(TOO_LONG)
            yield line.decode(errors="replace").rstrip("\r\n")
