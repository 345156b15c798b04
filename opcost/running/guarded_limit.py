"""A power limit that is set for a while: whatever ends the process, the old one comes back."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from opcost.errors import UserError
from opcost.power.ports import LimitRange, NoRightError, PowerLimit, PowerLimitError
from opcost.running.device_lock import device_lock, keep_number, kept_number, lock_path
from opcost.running.limit_guardian import SAME_W, OpenPowerLimit, restored, start_guardian

CONSENT_OPTION = "--allow-power-limit"
CONSENT_VARIABLE = "OPCOST_ALLOW_POWER_LIMIT"

LONGEST_END_S = 10.0
"""The guardian's tries take 3 s."""


def check_consent(is_given: bool) -> None:
    """Refuse to set a limit unless the owner of the card has agreed, by an option or an environment variable.

    Raises UserError: neither is given.
    """
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
        return self._limit.range_w()

    def set_w(self, power_w: float) -> None:
        """Set the limit in W, and read it again.

        Raises UserError: the guardian has ended, this user may not set it, or the board keeps another one.
        """
        if self._guardian.poll() is not None:
            raise UserError(f"{self._limit.name}: the guardian of its power limit was ended; run the command again")
        _set(self._limit, power_w)


def set_for_good(open_limit: OpenPowerLimit, power_w: float | None) -> None:
    """Set a board's limit in W, or its default for None; no guardian brings the old one back. Call it with consent.

    Raises UserError: the limit cannot be set, or a sweep of the board's limit runs.
    """
    try:
        limit = open_limit()
        try:
            with device_lock(_lock_name(limit)) as lock:
                _set(limit, limit.range_w().default_w if power_w is None else power_w)
                keep_number(lock, None)
        finally:
            limit.close()
    except PowerLimitError as error:
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
    except PowerLimitError as error:
        raise UserError(f"the power limit cannot be read: {error}") from error
    try:
        with device_lock(_lock_name(limit)) as lock, _guarded(open_limit, limit, lock) as guarded:
            guarded.set_w(guarded.old_w)
            yield guarded
    finally:
        limit.close()


@contextmanager
def _guarded(open_limit: OpenPowerLimit, limit: PowerLimit, lock: int) -> Iterator[GuardedLimit]:
    try:
        # Under the lock: another run's cap may have been set before.
        old_w = limit.read_w()
        _check_not_left(limit, old_w, kept_number(lock))
        keep_number(lock, old_w)
        guardian = start_guardian(open_limit, lock)
    except PowerLimitError as error:
        raise UserError(f"{limit.name}: {error}") from error
    try:
        yield GuardedLimit(limit, old_w, guardian)
    finally:
        try:
            is_restored = restored(limit, old_w) == 0
            if is_restored:
                keep_number(lock, None)
        finally:
            status = _ended(guardian)
    if not is_restored and status != 0:
        raise UserError(f"{limit.name}: its old power limit of {old_w:g} W did not come back; see the line above")


def _check_not_left(limit: PowerLimit, present_w: float, found_w: float | None) -> None:
    """Refuse a limit that is not the one that a sweep found which never restored it: it may be a cap."""
    if found_w is not None and abs(found_w - present_w) > SAME_W:
        raise UserError(
            f"{limit.name}: its power limit of {present_w:g} W may be the cap of a killed sweep, which had found "
            f"{found_w:g} W; run: nvidia-smi -i {limit.name} -pl {found_w:g}; or, if {present_w:g} W is right, remove "
            f"{lock_path(_lock_name(limit))}"
        )


def _lock_name(limit: PowerLimit) -> str:
    return f"{limit.name}-power-limit"


def _set(limit: PowerLimit, power_w: float) -> None:
    """Set a limit in W, and read it again."""
    try:
        limit.set_w(power_w)
        found_w = limit.read_w()
    except NoRightError as error:
        remedy = "run as root, or ask who administers the machine"
        raise UserError(f"{limit.name}: no right to set its power limit ({error}); {remedy}") from error
    except PowerLimitError as error:
        raise UserError(f"{limit.name}: {power_w:g} W cannot be set: {error}") from error
    if abs(found_w - power_w) > SAME_W:
        raise UserError(f"{limit.name}: set to {power_w:g} W, it keeps {found_w:g} W; check `nvidia-smi -q`")


def _ended(guardian: subprocess.Popen[bytes]) -> int | None:
    """Close the pipe to a guardian; return its exit status, None if it has not ended in time."""
    for pipe in (guardian.stdin, guardian.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    try:
        return guardian.wait(LONGEST_END_S)
    except subprocess.TimeoutExpired:
        logging.getLogger(__name__).warning("the guardian of the power limit still runs (process %d)", guardian.pid)
        return None
