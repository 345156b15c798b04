"""Learned costs as bytes: the arrays of a NumPy archive and a JSON text, behind a hash. Reading it runs no code."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from opcost.prediction.features import Card
from opcost.prediction.fitted import Forest, Scaling, Smooth
from opcost.prediction.intervals import Deviations, Surroundings
from opcost.prediction.learned_costs import Function, LearnedCosts
from opcost.prediction.samples import Boards

LARGEST_NARROW = np.iinfo(np.int32).max

STRUCTURE = "structure"
"""The name of the JSON text in an archive; arrays are named by their number."""

CLASSES: Mapping[str, type[Any]] = MappingProxyType(
    {
        one.__name__: one
        for one in (LearnedCosts, Function, Forest, Smooth, Scaling, Card, Boards, Surroundings, Deviations)
    }
)
"""The classes that an archive may have."""


REFUSALS = (LookupError, TypeError, AttributeError, OSError, EOFError, MemoryError, RecursionError, zipfile.BadZipFile)
"""Errors, besides ValueError, that NumPy and the constructors raise for an archive of another form."""


def to_bytes(value: object) -> bytes:
    """Return an archive of a value: numbers, texts, arrays, tuples, mappings and the dataclasses of ``CLASSES``."""
    arrays: list[np.ndarray[Any, Any]] = []
    text = json.dumps(_packed(value, arrays))
    file = io.BytesIO()
    named = {}
    for number, array in enumerate(arrays):
        is_narrow = array.dtype == np.int64 and array.size and max(abs(array.min()), array.max()) <= LARGEST_NARROW
        # Whole numbers take 32 bits if these hold them.
        named[str(number)] = array.astype(np.int32) if is_narrow else array
    np.savez(file, allow_pickle=False, **{STRUCTURE: np.frombuffer(text.encode(), np.uint8)}, **named)
    return signed(file.getvalue())


def signed(archive: bytes) -> bytes:
    """Return an archive behind its hash: other arrays or texts of the right form would fail in the midst of use."""
    return hashlib.sha256(archive).digest() + archive


def from_bytes(content: bytes) -> Any:
    """Return the value of an archive. Raises ValueError: it is damaged, or of another version."""
    own = content[hashlib.sha256().digest_size :]
    if signed(own) != content:
        raise ValueError("no archive of learned costs: its hash is another")
    try:
        with np.load(io.BytesIO(own), allow_pickle=False) as archive:
            if any(file.compress_type != zipfile.ZIP_STORED for file in archive.zip.infolist()):
                raise ValueError("no archive of learned costs: it is compressed, so that it may have any size")
            arrays = {name: archive[name] for name in archive.files if name != STRUCTURE}
            wide = {name: one.astype(np.int64) if one.dtype == np.int32 else one for name, one in arrays.items()}
            return _unpacked(json.loads(archive[STRUCTURE].tobytes()), wide)
    except REFUSALS as error:
        raise ValueError(f"no archive of learned costs: {error}") from error


def _packed(value: object, arrays: list[np.ndarray[Any, Any]]) -> object:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, Mapping):
        return {"items": [[_packed(key, arrays), _packed(one, arrays)] for key, one in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_packed(one, arrays) for one in value]}
    if is_dataclass(value) and type(value).__name__ in CLASSES:
        own = {field.name: _packed(getattr(value, field.name), arrays) for field in fields(value)}
        return {"class": type(value).__name__, "fields": own}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _unpacked(value: Any, arrays: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[str(value["array"])]
    if "items" in value:
        return {_unpacked(key, arrays): _unpacked(one, arrays) for key, one in value["items"]}
    if "tuple" in value:
        return tuple(_unpacked(one, arrays) for one in value["tuple"])
    own = {name: _unpacked(one, arrays) for name, one in value["fields"].items()}
    return CLASSES[value["class"]](**own)
