"""A lock that allows one campaign per device: two would heat the device and count each other's energy.

It is a kernel's lock on a file in the temporary folder, so it ends with the process that holds it. Processes with
different temporary folders (``TMPDIR``, containers) do not see each other's locks.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from opcost.errors import UserError

NOTE_BYTES = 100
"""A process number with its time is never longer."""

_NOTE = re.compile(r"([0-9]+) ([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.+-]+)")


@contextmanager
def device_lock(name: str) -> Iterator[None]:
    """Lock a device for this campaign; ``name`` is the same for all campaigns on the device.

    Raises:
        UserError: another campaign holds it, or its file cannot be locked.
    """
    # The file stays. If it were deleted, one process could hold the old file while the next locks a new one.
    path = Path(tempfile.gettempdir()) / f"opcost-{re.sub('[^A-Za-z0-9_-]', '-', name)}.lock"
    descriptor = _locked(path, name)
    try:
        _write_note(descriptor, f"{_started_by()} {datetime.now().astimezone().isoformat(' ', 'seconds')}")
        yield
    finally:
        _write_note(descriptor, "")
        os.close(descriptor)


def _started_by() -> int:
    """Return the number of the process that the user started: this one, or its parent."""
    parent = multiprocessing.parent_process()
    return os.getpid() if parent is None or parent.pid is None else parent.pid


def _locked(path: Path, name: str) -> int:
    """Return a descriptor of the file, which holds the lock until it is closed."""
    descriptor = None
    try:
        descriptor = _opened(path)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        line = f"{path}: cannot be locked ({error.strerror}); remove it, or set TMPDIR to another folder"
        if descriptor is not None:
            if isinstance(error, BlockingIOError):
                line = f"{name} is being measured by {_holder(descriptor)}; wait for it, or choose another device"
            os.close(descriptor)
        raise UserError(line) from None
    return descriptor


def _opened(path: Path) -> int:
    """Return a descriptor of the file. It may belong to another user; a new one is writable for all.

    A link is an error: it could point to any file of this user.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _made(path)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


def _made(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        # Another process was faster. Without O_CREAT, which Linux refuses in /tmp for files of other users.
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    os.fchmod(descriptor, 0o666)
    return descriptor


def _write_note(descriptor: int, note: str) -> None:
    # The lock holds without the note. A full disk or a read-only file refuses it.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note.encode(), 0)


def _holder(descriptor: int) -> str:
    note = _NOTE.fullmatch(os.pread(descriptor, NOTE_BYTES, 0).decode("ascii", "replace"))
    return f"process {note[1]} since {note[2]}" if note else "another process"
