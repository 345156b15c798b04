"""Atomic replacement of a file: a reader finds the old content or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from glob import escape
from pathlib import Path

TEMPORARY = ".opcost-tmp"
"""The end of the name of a file that is being written."""

LONGEST_WRITE_S = 3600.0
"""A file that was not changed for so long is not being written: its process was killed."""


def replace_file(path: Path, content: bytes) -> None:
    """Write a temporary file beside ``path``, sync it to disk, and move it into place; the file's mode is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(path)
    descriptor, temporary_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
    temporary = Path(temporary_name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), _mode_of(path))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_writable(folder: Path) -> None:
    """Make a folder, and a file in it that is gone at once.

    Raises:
        OSError: that of the file system, with the path.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.NamedTemporaryFile(dir=folder, suffix=TEMPORARY).close()


def _remove_left(path: Path) -> None:
    """Remove what killed writers of a file have left beside it."""
    for left in path.parent.glob(f".{escape(path.name)}.*{TEMPORARY}"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > LONGEST_WRITE_S:
                left.unlink()


def _mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777 if path.exists() else 0o644
