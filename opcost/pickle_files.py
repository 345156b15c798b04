"""Operator counts in pickles of plain data, followed by the SHA-256 of the pickle.

Reading a pickle can run anything and take any amount of memory. So a file is read only if it is small, undamaged, made
of the opcodes that plain data needs, and names no class but those listed here.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import pickletools
from pathlib import Path

from opcost.atomic_file import replace_file
from opcost.errors import UserError
from opcost.input_values import InputStatistics
from opcost.operators import Constant, OperatorCount, OperatorCounts, OperatorTuple, Structure, TensorSpec

SCHEMA = "opcost operator counts 4"
MAXIMUM_BYTES = 16_000_000
DIGEST_BYTES = hashlib.sha256().digest_size

ADMITTED = {
    (cls.__module__, cls.__qualname__): cls
    for cls in (Constant, InputStatistics, OperatorCount, OperatorCounts, OperatorTuple, Structure, TensorSpec)
}

ADMITTED_OPCODES = frozenset(
    "PROTO FRAME STOP MARK MEMOIZE BINGET LONG_BINGET STACK_GLOBAL NEWOBJ BUILD EMPTY_DICT SETITEM SETITEMS "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT "
    "SHORT_BINUNICODE BINUNICODE".split()
)
"""What protocol 4 writes for frozen dataclasses of plain data; none of these calls anything or takes memory unasked."""


def write_counts(path: Path, counts: OperatorCounts) -> None:
    """Write a model's operator counts; the file is replaced as a whole."""
    payload = pickle.dumps((SCHEMA, counts), protocol=4)
    replace_file(path, payload + hashlib.sha256(payload).digest())


def read_counts(path: Path, made_by: str) -> OperatorCounts:
    """Read a model's operator counts.

    Args:
        path: the pickle.
        made_by: the script that writes it, for the remedy.

    Raises:
        UserError: the file is missing, damaged, of another version, or holds anything but operator counts.
    """
    try:
        schema, counts = _load(_checked(_read(path)))
    except FileNotFoundError:
        raise UserError(f"{path}: not there yet; run {made_by} first") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); mend that, or run {made_by} again") from None
    # Damaged pickles raise nearly every kind of error.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: no operator counts ({reason}); run {made_by} again") from error
    if schema != SCHEMA or not isinstance(counts, OperatorCounts):
        raise UserError(f"{path}: written by another version of opcost; run {made_by} again")
    return counts


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAXIMUM_BYTES:
        raise pickle.UnpicklingError(f"{size} bytes are too many")
    return path.read_bytes()


def _checked(content: bytes) -> bytes:
    """Return the pickle of a file whose checksum is right and whose opcodes are admitted."""
    payload, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        raise pickle.UnpicklingError("its checksum is wrong")
    refused = {opcode.name for opcode, _, _ in pickletools.genops(payload)} - ADMITTED_OPCODES
    if refused:
        raise pickle.UnpicklingError(f"it uses {', '.join(sorted(refused))}")
    return payload


def _load(payload: bytes) -> tuple[object, object]:
    schema, counts = _Unpickler(io.BytesIO(payload)).load()
    return schema, counts


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return ADMITTED[module, name]
