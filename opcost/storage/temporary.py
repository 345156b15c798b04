"""The folder for temporary files. Standard library only, as the frame of each program is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from opcost.errors import UserError

NO_FOLDER = "no folder for temporary files can be written; make room in /tmp, or set TMPDIR to a folder with room"

JUST_MADE_S = 60.0
"""A folder that is so young may be about to be locked."""


def temporary_folder() -> Path:
    """Return the folder for temporary files.

    Raises:
        UserError: none can be written.
    """
    # Few commands need it, and it takes longer to import than the frame of a program.
    import tempfile

    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        raise UserError(NO_FOLDER) from None


@contextmanager
def held_folder(prefix: str) -> Iterator[Path]:
    """Make a temporary folder that is locked while this process lives; remove those that killed ones have left.

    Args:
        prefix: of the folder's name, of this kind of folders alone.
    """
    import fcntl
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
    """Remove a folder of this user unless a process holds it, or is about to.

    Raises:
        OSError: it does, or the folder is a link, or has gone.
    """
    import fcntl
    import shutil
    import time

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and time.time() - status.st_mtime > JUST_MADE_S:
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)
