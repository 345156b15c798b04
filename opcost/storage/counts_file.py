"""Files of operator counts: a pickle of plain data, followed by its SHA-256.

A pickle can run any code and take any amount of memory. A file is therefore read only if it is small, undamaged, made
of the opcodes that plain data needs, and names no classes but those of counts, with valid values.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

from opcost.errors import UserError
from opcost.operators.counts import OperatorCounts
from opcost.printable import printable
from opcost.storage.files import replace_file
from opcost.storage.pickle_reader import load
from opcost.storage.pickle_schema import FIELDS, checked_counts

SCHEMA = "opcost operator counts 4"
MAXIMUM_BYTES = 16_000_000
DIGEST_BYTES = hashlib.sha256().digest_size

LONGEST_REASON = 200
"""The most characters of a reason in a message, because it may quote the file."""

FORMER_MODULES = ("opcost.operators", "opcost.input_values")
"""The modules of the classes up to version 0.2, as named by older pickles."""

ADMITTED = {(module, cls.__qualname__): cls for cls in FIELDS for module in (cls.__module__, *FORMER_MODULES)}


def write_counts(path: Path, counts: OperatorCounts) -> None:
    """Write a model's operator counts; the file is replaced in one step.

    Raises:
        UserError: what would be written could not be read again, so an earlier file stays.
    """
    payload = pickle.dumps((SCHEMA, counts), protocol=4)
    content = payload + hashlib.sha256(payload).digest()
    try:
        _check_size(content)
        _counts_in(content)
    # A value of any kind may fail in any way.
    except Exception as error:
        reason = f"they could not be read again: {_one_line(str(error))}"
        remedy = "count a smaller model, or fewer steps of it"
        raise UserError(f"{path}: these counts were not written ({reason}); {remedy}") from error
    replace_file(path, content)


def read_counts(path: Path, made_by: str) -> OperatorCounts:
    """Read a model's operator counts.

    Args:
        path: the pickle.
        made_by: the script that writes it, for the remedy.

    Raises:
        UserError: the file is missing, damaged, of another version, or does not hold operator counts.
    """
    remedy = f"run {made_by} again"
    try:
        return _counts_in(_read(path))
    except _OtherVersionError:
        raise UserError(f"{path}: written by another version of opcost; {remedy}") from None
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run {made_by} first") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); fix that, or {remedy}") from None
    # A damaged pickle may raise almost any kind of error.
    except Exception as error:
        raise UserError(f"{path}: no operator counts ({_one_line(str(error))}); {remedy}") from error


def _one_line(reason: str) -> str:
    line = printable(reason[: LONGEST_REASON + 1])
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}..."


def _read(path: Path) -> bytes:
    # Reading a pipe or a device may never end.
    if path.exists() and not path.is_dir() and not path.is_file():
        raise pickle.UnpicklingError("it is not a regular file")
    with path.open("rb") as file:
        content = file.read(MAXIMUM_BYTES + 1)
    _check_size(content)
    return content


def _check_size(content: bytes) -> None:
    if len(content) > MAXIMUM_BYTES:
        raise pickle.UnpicklingError(f"it is larger than {MAXIMUM_BYTES} bytes")


class _OtherVersionError(Exception):
    """The file is sound, but of another schema."""


def _counts_in(content: bytes) -> OperatorCounts:
    """Return the operator counts in a file's content."""
    payload = _checked(content)
    loaded = load(payload, ADMITTED)
    if not isinstance(loaded, tuple) or len(loaded) != 2 or loaded[0] != SCHEMA:
        raise _OtherVersionError
    return checked_counts(loaded[1], len(payload))


def _checked(content: bytes) -> bytes:
    """Return the pickle of a file after checking its checksum."""
    payload, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        raise pickle.UnpicklingError("wrong checksum")
    return payload
