"""The power limit of a board, set for a while: whatever ends the process, the old one comes back.

``guarded_limit`` locks the board and starts a **guardian**: a process of its own session, with the standard library and
the board's own alone. However its parent ends, the pipe from it closes. The guardian then sets the limit that it read
at its start, unless it is set, reads it again, and exits with status 0 if it is that one. It inherits the parent's lock
of the board, so that no other run takes a cap for the old limit meanwhile. How the limit is opened it gets as a pickle
through the pipe, which no one else can write to.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TypeAlias

from opcost.errors import UserError
from opcost.power.ports import GpuError, LimitRange, NoRightError, PowerLimit
from opcost.running.device_lock import device_lock, keep_number, kept_number, lock_path

CONSENT_OPTION = "--allow-power-limit"
CONSENT_VARIABLE = "OPCOST_ALLOW_POWER_LIMIT"

OpenPowerLimit: TypeAlias = Callable[[], PowerLimit]
"""Opens a board's limit, in this process or in another: it can be pickled."""

GUARDIAN = """
import sys
sys.path[:] = sys.argv[1:]
from opcost.running.power_limit import serve
sys.exit(serve())
"""

POLL_MS = 200
"""How often the guardian looks whether its parent lives: a forked child of the parent may hold the pipe open."""

TRIES, BETWEEN_S = 10, 0.3
"""A driver may refuse for a moment, as while a GPU is reset."""

LONGEST_END_S = 10.0
"""The guardian's tries take 3 s."""

SAME_W = 0.6
"""A limit that was set may be read as one that differs by less: boards round to whole watts or less."""

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


def check_consent(is_given: bool) -> None:
    """Raise UserError unless the owner of the card has agreed, by an option or an environment variable."""
    if not is_given and os.environ.get(CONSENT_VARIABLE) != "1":
        raise UserError(
            f"power limits are set only if the card's owner has agreed; then add {CONSENT_OPTION} or set "
            f"{CONSENT_VARIABLE}=1 (--dry-run shows what would be done)"
        )


class GuardedLimit:
    """A power limit that may be set as long as its guardian lives."""

    def __init__(self, limit: PowerLimit, old_w: float, guardian: subprocess.Popen[bytes]) -> None:
        self.old_w = old_w
        self._limit = limit
        self._guardian = guardian

    @property
    def range_w(self) -> LimitRange:
        return self._limit.limit_range_w()

    def set_w(self, power_w: float) -> None:
        """Set the limit in W. Raises UserError: the guardian has ended, no right, or the board keeps another one."""
        if self._guardian.poll() is not None:
            raise UserError(f"{self._limit.name}: the guardian of its power limit was ended; run the command again")
        _set(self._limit, power_w)


def set_for_good(open_limit: OpenPowerLimit, power_w: float | None) -> None:
    """Set a board's limit in W, or its default for None; no guardian brings the old one back. Call it with consent.

    Raises UserError: the limit cannot be set, or a sweep of the board's limit runs.
    """
    try:
        with closing(open_limit()) as limit, device_lock(_lock_name(limit)) as lock:
            _set(limit, limit.limit_range_w().default_w if power_w is None else power_w)
            keep_number(lock, None)
    except GpuError as error:
        raise UserError(f"the power limit cannot be set: {error}") from error


@contextmanager
def guarded_limit(open_limit: OpenPowerLimit) -> Iterator[GuardedLimit]:
    """Lock a board's power limit and start its guardian; at the end the old limit is set and read again.

    The right to set it is tried first, by setting the present limit: call it only with consent.

    Raises UserError: the limit cannot be read or set, another run holds it, it is that of a sweep that was killed with
    its guardian, or it is not the old one at the end.
    """
    try:
        limit = open_limit()
    except GpuError as error:
        raise UserError(f"the power limit cannot be read: {error}") from error
    with closing(limit), device_lock(_lock_name(limit)) as lock:
        try:
            # Under the lock: another run's cap may have been set before.
            old_w, found_w = limit.limit_w(), kept_number(lock)
            if found_w is not None and abs(found_w - old_w) > SAME_W:
                # A sweep found another limit and never restored it.
                raise UserError(
                    f"{limit.name}: its power limit of {old_w:g} W may be the cap of a killed sweep, which had found "
                    f"{found_w:g} W; run: {limit.limit_command(found_w)}; or, if {old_w:g} W is right, "
                    f"remove {lock_path(_lock_name(limit))}"
                )
            keep_number(lock, old_w)
            guardian = start_guardian(open_limit, lock)
        except GpuError as error:
            raise UserError(f"{limit.name}: {error}") from error
        guarded = GuardedLimit(limit, old_w, guardian)
        try:
            guarded.set_w(old_w)
            yield guarded
        finally:
            try:
                is_restored = restored(limit, old_w) == 0
                if is_restored:
                    keep_number(lock, None)
            finally:
                status = _ended(guardian)
        if not is_restored and status != 0:
            raise UserError(f"{limit.name}: its old power limit of {old_w:g} W did not come back; see the line above")


def _lock_name(limit: PowerLimit) -> str:
    return f"{limit.name}-power-limit"


def _set(limit: PowerLimit, power_w: float) -> None:
    """Raise UserError: the limit cannot be set, or the board keeps another one."""
    try:
        limit.set_limit_w(power_w)
        found_w = limit.limit_w()
    except NoRightError as error:
        remedy = "run as root, or ask who administers the machine"
        raise UserError(f"{limit.name}: no right to set its power limit ({error}); {remedy}") from error
    except GpuError as error:
        raise UserError(f"{limit.name}: {power_w:g} W cannot be set: {error}") from error
    if abs(found_w - power_w) > SAME_W:
        remedy = f"try: {limit.limit_command(power_w)}"
        raise UserError(f"{limit.name}: set to {power_w:g} W, it keeps {found_w:g} W; {remedy}")


def start_guardian(open_limit: OpenPowerLimit, lock: int) -> subprocess.Popen[bytes]:
    """Start a guardian; return when it has read the limit.

    It opens the limit itself, and inherits ``lock``, the descriptor of the board's lock, in whose file the limit that
    was found is kept. Raises GpuError: it did not start, or cannot read the limit.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", GUARDIAN, *sys.path],
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
        raise GpuError("its guardian process does not start; see its message above")
    return process


def _ended(guardian: subprocess.Popen[bytes]) -> int | None:
    for pipe in (guardian.stdin, guardian.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    try:
        return guardian.wait(LONGEST_END_S)
    except subprocess.TimeoutExpired:
        logging.getLogger(__name__).warning("the guardian of the power limit still runs (process %d)", guardian.pid)
        return None


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
        old_w = limit.limit_w()
    except GpuError as error:
        _complain(str(error))
        return 1
    os.write(sys.stdout.fileno(), b"ready\n")
    poll = select.poll()
    for descriptor in (sys.stdin.fileno(), reading):
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
    while not poll.poll(POLL_MS) and os.getppid() == parent:
        pass
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
            if limit.limit_w() != old_w:
                limit.set_limit_w(old_w)
            if abs(limit.limit_w() - old_w) <= SAME_W:
                return 0
            reason = "the board keeps another one"
        except GpuError as error:
            reason = str(error)
    _complain(f"its power limit is not the old one: {reason}; run: {limit.limit_command(old_w)}")
    return 1


def _complain(text: str) -> None:
    # The terminal may have gone.
    with suppress(OSError):
        os.write(sys.stderr.fileno(), f"error: power limit: {text}\n".encode())
