"""Operator counts in pickles of plain data, read through an unpickler that admits only the classes named here."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

from opcost.atomic_file import replace_file
from opcost.errors import UserError
from opcost.operators import OperatorCount, OperatorCounts, OperatorTuple, TensorSpec

SCHEMA = "opcost operator counts 1"
MAXIMUM_BYTES = 16_000_000

ADMITTED = {
    (cls.__module__, cls.__qualname__): cls for cls in (OperatorCount, OperatorCounts, OperatorTuple, TensorSpec)
}


def write_counts(path: Path, counts: OperatorCounts) -> None:
    """Write a model's operator counts; the file is replaced as a whole."""
    replace_file(path, pickle.dumps((SCHEMA, counts), protocol=4))


def read_counts(path: Path, made_by: str) -> OperatorCounts:
    """Read a model's operator counts.

    Args:
        path: the pickle.
        made_by: the script that writes it, for the remedy.

    Raises:
        UserError: the file is missing, damaged, of another version, or holds anything but operator counts.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: not there yet; run {made_by} first") from None
    try:
        if len(content) > MAXIMUM_BYTES:
            raise pickle.UnpicklingError(f"{len(content)} bytes are too many")
        schema, counts = _Unpickler(io.BytesIO(content)).load()
    # Damaged pickles raise nearly every kind of error.
    except Exception as error:
        raise UserError(f"{path}: no operator counts ({error}); run {made_by} again") from error
    if schema != SCHEMA or not isinstance(counts, OperatorCounts):
        raise UserError(f"{path}: written by another version of opcost; run {made_by} again")
    return counts


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return ADMITTED[module, name]
