"""Files of operator counts: a pickle of plain data, followed by its SHA-256.

A pickle can run any code and take any amount of memory, and restricting the imports of Python's unpickler does not make
it safe: a deeply nested key of a dict ends the process, and keys of equal hash take minutes. A file is therefore read
only if it is small, undamaged, and made of the opcodes that describe texts, numbers and tuples alone. None of them
refers to an earlier value, so that a file describes no more values than it has bytes.

The plain data are ``(SCHEMA, header, counts)``, see ``opcost.columns``: ``header`` names the fields of each class.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import pickletools
import re
from pathlib import Path
from pickle import UnpicklingError
from typing import NoReturn

from opcost.columns import form_of, header_of
from opcost.errors import LONGEST_SHOWN, UserError, shortened
from opcost.operators.counts import OperatorCounts
from opcost.storage.files import replace_file
from opcost.units import printable

SCHEMA = "opcost operator counts 5"
"""The form of the file. It stays where fields with a default are added."""

ANY_SCHEMA = re.compile(rb"opcost operator counts \d+")
SCHEMA_WITHIN_BYTES = 64
"""The bytes of a pickle in which its schema stands, which is its first text."""

MAXIMUM_BYTES = 16_000_000
DIGEST_BYTES = hashlib.sha256().digest_size

MAXIMUM_OPCODES = 500_000
"""Seven times as many as the largest model of torchvision has on shapes (ssd300_vgg16); they take half a second."""

LEAST_BYTES_PER_OPCODE = 2
"""Beyond ``MAXIMUM_OPCODES``. Counts of models of torchvision have 3.8 and more bytes for each opcode."""

MAXIMUM_DEPTH = 32
"""The deepest nesting of tuples; models of torchvision need 10."""

OPCODES = frozenset(
    "PROTO FRAME MARK TUPLE EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 "
    "BINFLOAT SHORT_BINUNICODE BINUNICODE STOP".split()
)
"""The opcodes that a file may have."""


def write_counts(path: Path, counts: OperatorCounts) -> None:
    """Write a model's operator counts; a ``UserError`` if they could not be read again, so an earlier file stays."""
    try:
        file = io.BytesIO()
        pickler = pickle.Pickler(file, protocol=4)
        # Without references to earlier values.
        pickler.fast = True
        pickler.dump((SCHEMA, header_of(OperatorCounts), form_of(OperatorCounts).write(counts)))
        payload = file.getvalue()
        content = payload + hashlib.sha256(payload).digest()
        _counts_in(content)
    # A value of any kind may fail in any way.
    except Exception as error:
        reason = f"they could not be read again: {_one_line(str(error))}"
        remedy = "count a smaller model, or fewer steps of it"
        raise UserError(f"{path}: these counts were not written ({reason}); {remedy}") from error
    replace_file(path, content)


def read_counts(path: Path, made_by: str) -> OperatorCounts:
    """Read a model's counts; a ``UserError`` names ``made_by``, the script to run, if the file does not hold any."""
    remedy = f"run {made_by} again"
    try:
        # Reading a pipe or a device may never end.
        if path.exists() and not path.is_dir() and not path.is_file():
            raise UnpicklingError("it is not a regular file")
        with path.open("rb") as file:
            return _counts_in(file.read(MAXIMUM_BYTES + 1))
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
    return shortened(printable(reason[: LONGEST_SHOWN + 1]))


class _OtherVersionError(Exception):
    """The file is sound, but of another schema."""


def _counts_in(content: bytes) -> OperatorCounts:
    if len(content) > MAXIMUM_BYTES:
        raise UnpicklingError(f"it is larger than {MAXIMUM_BYTES} bytes")
    payload, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        raise UnpicklingError("wrong checksum")
    schema = ANY_SCHEMA.search(payload[:SCHEMA_WITHIN_BYTES])
    if schema is not None and schema[0] != SCHEMA.encode():
        raise _OtherVersionError
    loaded = load(payload)
    if type(loaded) is not tuple or len(loaded) != 3 or loaded[0] != SCHEMA:
        raise UnpicklingError("it holds something else")
    _, header, data = loaded
    try:
        form = form_of(OperatorCounts, header)
    except LookupError:
        raise _OtherVersionError from None
    counts: OperatorCounts = form.read(data)
    return counts


def load(payload: bytes) -> object:
    """Return the plain data that a pickle describes; an ``UnpicklingError`` or ``ValueError`` for anything else."""
    for number, (opcode, _, position) in enumerate(pickletools.genops(payload), start=1):
        if opcode.name not in OPCODES:
            raise UnpicklingError(f"it uses {opcode.name}")
        # Not the payload's size: a large file of tiny opcodes is refused as early as a small one.
        if number > MAXIMUM_OPCODES and number * LEAST_BYTES_PER_OPCODE > (position or 0):
            raise UnpicklingError(f"it has more than {MAXIMUM_OPCODES} opcodes for its size")
    loaded: object = _Unpickler(io.BytesIO(payload)).load()
    level = [loaded]
    for _ in range(MAXIMUM_DEPTH):
        level = [part for value in level if type(value) is tuple for part in value]
    if level:
        raise UnpicklingError(f"it is nested deeper than {MAXIMUM_DEPTH} levels")
    return loaded


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnpicklingError(f"it refers to {module}.{name}")
