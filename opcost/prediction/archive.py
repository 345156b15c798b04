"""Learned costs as bytes: the arrays of a NumPy archive and a JSON text. Reading it runs no code."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from opcost.estimates import Estimate
from opcost.prediction.features import Card
from opcost.prediction.fitted import Constant, Forest, GaussianProcess, Mean, Neighbours, Polynomial, Scaling
from opcost.prediction.intervals import Deviations, Surroundings
from opcost.prediction.learned import KindFunctions
from opcost.prediction.learned_costs import LearnedCosts
from opcost.prediction.samples import Boards

STRUCTURE = "structure"
"""The name of the JSON text in an archive; arrays are named by their number."""

CLASSES: Mapping[str, type[Any]] = MappingProxyType(
    {
        one.__name__: one
        for one in (
            *(LearnedCosts, KindFunctions, Card, Boards, Surroundings, Deviations, Estimate),
            *(Constant, Mean, Forest, Scaling, GaussianProcess, Neighbours, Polynomial),
        )
    }
)
"""The classes that an archive may have."""


def to_bytes(value: object) -> bytes:
    """Return an archive of a value: numbers, texts, arrays, tuples, mappings and the dataclasses of ``CLASSES``."""
    arrays: list[np.ndarray[Any, Any]] = []
    text = json.dumps(_packed(value, arrays))
    file = io.BytesIO()
    named = {str(number): array for number, array in enumerate(arrays)}
    np.savez_compressed(file, allow_pickle=False, **{STRUCTURE: np.array(text)}, **named)
    return file.getvalue()


def from_bytes(content: bytes) -> Any:
    """Return the value of an archive.

    Raises:
        ValueError: it is damaged, or of another version.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return _unpacked(json.loads(str(archive[STRUCTURE][()])), archive)
    except (KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile, RecursionError) as error:
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


def _unpacked(value: Any, archive: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return archive[str(value["array"])]
    if "items" in value:
        return {_unpacked(key, archive): _unpacked(one, archive) for key, one in value["items"]}
    if "tuple" in value:
        return tuple(_unpacked(one, archive) for one in value["tuple"])
    own = {name: _unpacked(one, archive) for name, one in value["fields"].items()}
    return CLASSES[value["class"]](**own)
