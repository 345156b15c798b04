"""The guardian of a power limit: a process of its own session that brings the old limit back when its parent ends.

However the parent ends (SIGKILL, a crash, the end of its terminal), the pipe from it closes. The guardian then sets the
limit that it read at its start, reads it again, and exits with status 0 if it is that one. It sets nothing if the limit
is the old one already, so it needs no right where nothing was set. It inherits the parent's lock of the board, so
that no other run takes a cap for the old limit meanwhile.

The parent starts it by ``start_guardian``, and sends it how the limit is opened: a pickle through the pipe, which no
one else can write to. Nothing but the standard library and the board's own library is imported.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from opcost.power.ports import PowerLimit, PowerLimitError
from opcost.running.device_lock import keep_number

OpenPowerLimit: TypeAlias = Callable[[], PowerLimit]
"""Opens a board's limit, in this process or in another: it can be pickled."""

PROGRAM = """
import sys
sys.path[:] = sys.argv[1:]
from opcost.running.limit_guardian import serve
sys.exit(serve())
"""

POLL_MS = 200
"""How often the guardian looks whether its parent lives: a forked child of the parent may hold the pipe open."""

TRIES, BETWEEN_S = 10, 0.3
"""A driver may refuse for a moment, as while a GPU is reset."""

SAME_W = 0.6
"""A limit that was set may be read as one that differs by less: boards round to whole watts or less."""

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


def start_guardian(open_limit: OpenPowerLimit, lock: int) -> subprocess.Popen[bytes]:
    """Start a guardian; return when it has read the limit.

    Args:
        open_limit: opens the limit, in the guardian.
        lock: the descriptor of the board's lock, which it inherits. The limit that was found is kept in its file.

    Raises PowerLimitError: it did not start, or cannot read the limit.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        pass_fds=(lock,),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(pickle.dumps((open_limit, lock)))
        process.stdin.flush()
        answer = process.stdout.readline()
    except OSError:
        answer = b""
    except BaseException:
        process.stdin.close()
        process.wait()
        raise
    if answer != b"ready\n":
        process.kill()
        process.wait()
        raise PowerLimitError("its guardian process does not start; see its message above")
    return process


def serve() -> int:
    """Guard a limit until the parent ends; return 0 once the limit is the old one. SIGTERM restores it at once."""
    parent = os.getppid()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        open_limit, lock = pickle.load(sys.stdin.buffer)
    except EOFError:
        # The parent ended before it set anything.
        return 0
    try:
        limit = open_limit()
        old_w = limit.read_w()
    except PowerLimitError as error:
        _complain(str(error))
        return 1
    os.write(sys.stdout.fileno(), b"ready\n")
    _wait(parent, (sys.stdin.fileno(), reading))
    status = restored(limit, old_w)
    if status == 0:
        keep_number(lock, None)
    return status


def restored(limit: PowerLimit, old_w: float) -> int:
    """Set the old limit unless it is set; return 0 if it is read again, else complain and return 1."""
    reason = ""
    for number in range(TRIES):
        if number:
            time.sleep(BETWEEN_S)
        try:
            if limit.read_w() != old_w:
                limit.set_w(old_w)
            if abs(limit.read_w() - old_w) <= SAME_W:
                return 0
            reason = "the board keeps another one"
        except PowerLimitError as error:
            reason = str(error)
    _complain(f"its power limit is not the old one: {reason}; run: nvidia-smi -i {limit.name} -pl {old_w:g}")
    return 1


def _wait(parent: int, descriptors: Sequence[int]) -> None:
    """Return when the parent has ended or closed the pipe, or a signal came."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
    while not poll.poll(POLL_MS):
        if os.getppid() != parent:
            return


def _complain(text: str) -> None:
    try:
        os.write(sys.stderr.fileno(), f"error: power limit: {text}\n".encode())
    except OSError:
        # The terminal has gone.
        return
