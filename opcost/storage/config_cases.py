"""The cases of a config: the product of the keys that are lists, and the name of each case.

A config without lists is one case with the name of its folder.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opcost.operators.tuples import SIZE_IN_NAME
from opcost.storage.config_nodes import Document, Mistake, line_of, quoted

BATCH, INPUT_SIZE, PRECISION, MEMORY_FORMAT = LISTS = ("batch", "input_size", "precision", "memory_format")
"""The keys that may be lists."""

MAXIMUM_CASES = 1000
"""The most cases of a config. Lists in 64 kB can have a product of many millions."""

LONGEST_NAME_BYTES = 255
"""The longest name of a folder on Linux. Each case has a folder."""

_SIZE_AT_END = re.compile(rf"{SIZE_IN_NAME.pattern}\Z")


@dataclass(frozen=True)
class CaseValues:
    """The name of a case, and its value of each key that may be a list.

    ``input_size`` has the batch first. It is empty if the config has a mistake there.
    """

    name: str
    input_size: tuple[int, ...]
    precision: str
    memory_format: str


def case_name(folder: str, input_size: Sequence[int] | None, precision: str | None, memory_format: str | None) -> str:
    """Return the name of a case: that of the folder, with the values that vary: ``resnet50_8x3x224x224_bf16``.

    If input sizes vary, an input size at the end of the folder's name is left out.

    Args:
        folder: the name of the config's folder.
        input_size: batch first; None if neither ``batch`` nor ``input_size`` is a list.
        precision: None if it is no list.
        memory_format: None if it is no list.
    """
    beginning = folder if input_size is None else without_size(folder)
    size = None if input_size is None else "x".join(map(str, input_size))
    return "_".join([beginning, *(part for part in (size, precision, memory_format) if part is not None)])


def without_size(folder: str) -> str:
    """Return a folder's name without an input size at its end. The names of all its cases begin with it."""
    return _SIZE_AT_END.sub("", folder)


def lists_of(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the keys of a config that are lists, in the order of ``LISTS``; one input size is no list."""
    found = {key: values.get(key) for key in LISTS}
    lists = {key: value for key, value in found.items() if isinstance(value, list) and value}
    return {key: value for key, value in lists.items() if key != INPUT_SIZE or has_sizes(value)}


def has_sizes(value: object) -> bool:
    """Return whether the value of ``input_size`` is a list of sizes."""
    return isinstance(value, list) and bool(value) and all(isinstance(size, list) for size in value)


def cases_of(folder: str, values: Mapping[str, Any]) -> list[CaseValues]:
    """Return the cases of a config in the order of its lists; none if there are more than ``MAXIMUM_CASES``.

    Args:
        folder: the name of the config's folder.
        values: the values of its keys.
    """
    lists = lists_of(values)
    if _number(lists) > MAXIMUM_CASES:
        return []
    sizes, batches = lists.get(INPUT_SIZE, [values.get(INPUT_SIZE, [])]), lists.get(BATCH, [None])
    precisions, formats = (lists.get(key, [values[key]]) for key in (PRECISION, MEMORY_FORMAT))
    found = []
    for size, batch, precision, memory_format in itertools.product(sizes, batches, precisions, formats):
        full_size = tuple(size if batch is None else [batch, *size[1:]] if size else [])
        varying = (
            full_size if BATCH in lists or INPUT_SIZE in lists else None,
            precision if PRECISION in lists else None,
            memory_format if MEMORY_FORMAT in lists else None,
        )
        found.append(CaseValues(case_name(folder, *varying), full_size, precision, memory_format))
    return found


def list_mistakes(folder: str, document: Document, values: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the mistakes in a config's lists that its schema does not find."""
    lists = lists_of(values)
    if not lists:
        return
    if _number(lists) > MAXIMUM_CASES:
        remedy = f"a config may have {MAXIMUM_CASES}; write several configs"
        line = line_of(document.entries[next(iter(lists))][0])
        yield line, f"{', '.join(lists)}: {_number(lists)} cases; {remedy}"
        return
    for key, items in lists.items():
        distinct = [size[1:] for size in items] if key == INPUT_SIZE and BATCH in lists else items
        for index, item in enumerate(distinct):
            if (first := distinct.index(item)) < index:
                line = line_of(document.entries[key][1].value[index])
                yield line, f"{key}: items {first + 1} and {index + 1} give the same case; remove one"
    names = [case.name for case in cases_of(folder, values)]
    if any(len(name.encode()) > LONGEST_NAME_BYTES for name in names):
        yield (
            1,
            f"{next(iter(lists))}: the folder's name {quoted(folder)} cannot begin names of cases; rename the folder",
        )


def _number(lists: Mapping[str, Sequence[Any]]) -> int:
    return math.prod(map(len, lists.values()))
