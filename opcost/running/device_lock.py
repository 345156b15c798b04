"""A lock that allows one campaign per device: two would heat the device and count each other's energy.

It is a kernel's lock on a file in the temporary folder, so it ends with the process that holds it. Processes with
different temporary folders (``TMPDIR``, containers) do not see each other's locks.

All users have the same path for a device, so that their campaigns exclude each other, and any of them may put something
else there. The path is therefore used only if it is a plain file without another name.
"""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from opcost.errors import UserError
from opcost.storage.files import temporary_folder

NOTE_BYTES = 100
"""A process number with its time, and a number that outlives them, are never longer."""

NEITHER_FOLLOWED_NOR_WAITED_FOR = os.O_NOFOLLOW | os.O_NONBLOCK
"""A link could point to any file of this user, and the other end of a pipe may never be opened."""

_NOTE = re.compile(r"([0-9]+) ([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.+-]+)")
_NUMBER = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")


class DeviceBusyError(UserError):
    """Another campaign measures on a device; ``path`` is the file of its lock."""

    def __init__(self, line: str, path: Path) -> None:
        super().__init__(line)
        self.path = path

    def __reduce__(self) -> tuple[type[UserError], tuple[Any, ...]]:
        return DeviceBusyError, (self.lines[0], self.path)

    def wait(self) -> None:
        """Return when the lock is free."""
        with suppress(OSError):
            descriptor = os.open(self.path, os.O_RDONLY | NEITHER_FOLLOWED_NOR_WAITED_FOR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            finally:
                os.close(descriptor)


@contextmanager
def device_lock(name: str) -> Iterator[int]:
    """Lock a device for this campaign; ``name`` is the same for all campaigns on the device.

    It yields the descriptor of the lock, which holds until all processes that inherit it have closed it.

    Raises DeviceBusyError: another campaign holds it; UserError: its file cannot be made or locked.
    """
    path = lock_path(name)
    descriptor = None
    try:
        # The file stays. If it were deleted, one process could hold the old file while the next locks a new one.
        descriptor = _opened(path)
        status = os.fstat(descriptor)
        # The note is to be written into a file of the lock's own.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(errno.EINVAL, "no plain file, or one with several names")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        refusal = UserError(f"{path}: cannot be locked ({error.strerror}); remove it, or set TMPDIR to another folder")
        if descriptor is not None:
            if isinstance(error, BlockingIOError):
                note = _NOTE.fullmatch(_lines(descriptor)[0])
                # A killed process leaves its note, and another user may hold the lock without the right to change that.
                is_there = note is not None and Path("/proc", note[1]).exists()
                holder = f"process {note[1]} since {note[2]}" if note and is_there else "another process"
                remedy = "wait for it, as measure, profile and sweep do with --wait, or choose another device"
                refusal = DeviceBusyError(f"{name} is being measured by {holder}; {remedy}", path)
            os.close(descriptor)
        raise refusal from None
    parent = multiprocessing.parent_process()
    number = os.getpid() if parent is None or parent.pid is None else parent.pid
    try:
        written = f"{number} {datetime.now().astimezone().isoformat(' ', 'seconds')}"
        _write_lines(descriptor, written, _lines(descriptor)[1])
        yield descriptor
    finally:
        _write_lines(descriptor, "", _lines(descriptor)[1])
        os.close(descriptor)


def lock_path(name: str) -> Path:
    return temporary_folder() / f"opcost-{re.sub('[^A-Za-z0-9_-]', '-', name)}.lock"


def kept_number(descriptor: int) -> float | None:
    """Return the number that a former holder of the lock has kept in its file; None if there is none."""
    kept = _NUMBER.fullmatch(_lines(descriptor)[1])
    return float(kept[0]) if kept else None


def keep_number(descriptor: int, number: float | None) -> None:
    """Keep a number in a lock's file until another is kept, also if all holders are killed; None for none."""
    _write_lines(descriptor, _lines(descriptor)[0], "" if number is None else repr(number))


def _opened(path: Path) -> int:
    """Return a descriptor of the file. It may belong to another user, and is then only read, which the lock allows."""
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        # Others lock it, too, whatever the umask is.
        os.fchmod(descriptor, 0o644)
        return descriptor
    try:
        return os.open(path, os.O_RDWR | NEITHER_FOLLOWED_NOR_WAITED_FOR)
    except PermissionError:
        return os.open(path, os.O_RDONLY | NEITHER_FOLLOWED_NOR_WAITED_FOR)


def _lines(descriptor: int) -> tuple[str, str]:
    note, _, kept = os.pread(descriptor, NOTE_BYTES, 0).decode("ascii", "replace").partition("\n")
    return note, kept


def _write_lines(descriptor: int, note: str, kept: str) -> None:
    # The lock holds without them. A full disk or a read-only file refuses them.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{note}\n{kept}".rstrip("\n").encode(), 0)
