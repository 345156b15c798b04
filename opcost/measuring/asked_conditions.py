"""Conditions that a config chooses, and others that a user asks for: ``precision=fp32,memory_format=contiguous``.

A user can ask for another device as well: ``device=H100``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from types import MappingProxyType
from typing import get_args

from opcost.measuring.conditions import CONTIGUOUS, TORCH_DEFAULT, MemoryFormat, Precision

VALUES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"precision": get_args(Precision), "memory_format": get_args(MemoryFormat)}
)
"""The keys that a config chooses, with the values of each."""

DEVICE = "device"
"""The key of another device: its value is a part of a product's name."""


@dataclass(frozen=True)
class ChosenConditions:
    """The conditions that a config chooses: a ``Precision`` and a ``MemoryFormat``. The text can be asked for."""

    precision: str = TORCH_DEFAULT
    memory_format: str = CONTIGUOUS

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in asdict(self).items())

    def label(self, other: ChosenConditions) -> str:
        """Return the values in which these differ from other conditions: ``bf16``, ``bf16 channels_last``."""
        differing = (value for name, value in asdict(self).items() if value != getattr(other, name))
        return " ".join(differing)


ALL_CHOICES = tuple(ChosenConditions(*values) for values in product(*VALUES.values()))
"""All conditions that a config can choose."""


def parse_conditions(texts: Iterable[str]) -> dict[str, str]:
    """Return the conditions that texts ask for, by key.

    Args:
        texts: each has one condition, or several separated by commas.

    Raises:
        ValueError: a key or a value is unknown, a key is repeated, or nothing is asked for. The message begins with
            the text and has no full stop.
    """
    asked: dict[str, str] = {}
    for text in texts:
        for one in text.split(","):
            key, _, value = (part.strip() for part in one.partition("="))
            if key not in (*VALUES, DEVICE):
                raise ValueError(f"{text!r}: {key!r} is no condition; use {_alternatives(key, (*VALUES, DEVICE))}")
            if key == DEVICE and not value:
                raise ValueError(f"{text!r}: device has no name; write device=H100")
            if key in VALUES and value not in VALUES[key]:
                raise ValueError(f"{text!r}: {key} has no value {value!r}; use {_alternatives(value, VALUES[key])}")
            if asked.get(key, value) != value:
                raise ValueError(f"{text!r}: {key} is {asked[key]} as well; name one of both")
            asked[key] = value
    return asked


def _alternatives(text: str, known: Iterable[str]) -> str:
    names = list(known)
    return " or ".join(difflib.get_close_matches(text, names, n=1) or names)
