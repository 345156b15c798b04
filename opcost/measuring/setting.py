"""Choices of a user or a config for a measurement: its settings, the conditions to compare, and the device.

Conditions are asked for as ``precision=fp32,memory_format=contiguous,device=H100``. A device is ``cpu``, ``cuda``,
``cuda:N``, or whole words of a product's name. Other rows are asked for as ``torch=2.10`` or ``database=DIR``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import product
from typing import Protocol, get_args

from opcost.errors import UserError
from opcost.measuring.conditions import (
    CONTIGUOUS,
    DEVICE_FIELDS,
    WARM,
    Conditions,
    MemoryFormat,
    device_type_of,
    is_device_name,
)
from opcost.measuring.precisions import TORCH_DEFAULT, Precision
from opcost.operators.attention import ANY_BACKEND, Backend
from opcost.operators.model_names import UserCode
from opcost.power.ports import AUTO


@dataclass(frozen=True)
class Setting:
    """The settings of a measurement besides its case and its protocol.

    ``execution`` is None for the device's default. ``cache`` applies to operators only. ``meter`` is one of
    ``METER_CHOICES``. ``code`` is a user's code that builds the model and may run.
    """

    precision: str = TORCH_DEFAULT
    execution: str | None = None
    cache: str = WARM
    meter: str = AUTO
    code: UserCode | None = None
    attention: str = ANY_BACKEND


USUAL = Setting()

VALUES: Mapping[str, tuple[str, ...]] = {
    "precision": get_args(Precision),
    "memory_format": get_args(MemoryFormat),
    "attention": get_args(Backend),
}
"""The keys that a config chooses, with the values of each."""

DEVICE, TORCH, DRIVER, BEFORE, DATABASE = OF_ROWS = "device", "torch", "driver", "before", "database"
"""The keys of other rows: a part of a product's name, two beginnings of versions, a date, and a database's folder."""

EXAMPLES: Mapping[str, str] = dict(zip(OF_ROWS, ("H100", "2.10", "570", "2026-11-20", "DIR"), strict=True))

FIELDS_OF: Mapping[str, tuple[str, ...]] = {
    TORCH: ("torch_version", "cuda_version", "cudnn_version"),
    DRIVER: ("driver_version",),
    DEVICE: ("device_product", *DEVICE_FIELDS),
}
"""The fields of ``Conditions`` that may differ from those of other rows, by the key whose value the first one has."""

DEVICES = "cpu, cuda, or cuda:N such as cuda:0"
"""The devices that measure."""

_MISSPELLED = re.compile(r"(cpu|cuda|gpu)[\W\d_]*", re.IGNORECASE)


@dataclass(frozen=True)
class ChosenConditions:
    """The conditions that a config chooses: a ``Precision``, a ``MemoryFormat``, and a ``Backend`` of attention.

    The text can be asked for.
    """

    precision: str = TORCH_DEFAULT
    memory_format: str = CONTIGUOUS
    attention: str = ANY_BACKEND

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.shown.items())

    @property
    def shown(self) -> dict[str, str]:
        """The values by name; without the back end of attention where none is chosen, which most models do not need."""
        usual = {"attention": ANY_BACKEND}
        return {name: value for name, value in asdict(self).items() if usual.get(name) != value}

    def label(self, other: ChosenConditions) -> str:
        """Return the values in which these differ from other conditions: ``bf16``, ``bf16 channels_last``."""
        return " ".join(value for name, value in asdict(self).items() if value != getattr(other, name))


_LIMIT = re.compile(r"\s*(time|energy)\s*>\s*([0-9]{1,4}(?:\.[0-9]{1,6})?)\s*%\s*")


@dataclass(frozen=True)
class Limit:
    """How much more of a quantity, ``time`` or ``energy``, a model may cost than the other one, as a ratio to that."""

    quantity: str
    ratio: float

    @staticmethod
    def of(text: str) -> Limit:
        """Return what a text such as ``energy > 5 %`` means. Raises ValueError: it is no such text."""
        found = _LIMIT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no limit; write 'energy > 5 %' or 'time > 2 %'")
        return Limit(found[1], float(found[2]) / 100)

    def __str__(self) -> str:
        return f"{self.quantity} > {100 * self.ratio:g} %"


ALL_CHOICES = tuple(ChosenConditions(*values) for values in product(*VALUES.values()))
"""All conditions that a config can choose."""


def parse_conditions(texts: Iterable[str]) -> dict[str, str]:
    """Return the conditions in texts by key; a ``ValueError`` begins with the text that has a mistake."""
    asked: dict[str, str] = {}
    keys = (*VALUES, *OF_ROWS)
    for text in texts:
        for one in text.split(","):
            key, _, value = (part.strip() for part in one.partition("="))
            known = VALUES.get(key, (value,))
            if key not in keys:
                meant = difflib.get_close_matches(key, keys, n=1) or keys
                raise ValueError(f"{text!r}: {key!r} is no condition; use {' or '.join(meant)}")
            if not value and key in EXAMPLES:
                raise ValueError(f"{text!r}: {key} has no name; write {key}={EXAMPLES[key]}")
            if key == BEFORE and not _is_date(value):
                raise ValueError(f"{text!r}: {value!r} is no date; write {key}={EXAMPLES[key]}")
            if value not in known:
                meant = difflib.get_close_matches(value, known, n=1) or known
                raise ValueError(f"{text!r}: {key} has no value {value!r}; use {' or '.join(meant)}")
            if asked.setdefault(key, value) != value:
                raise ValueError(f"{text!r}: {key} is {asked[key]} as well; name one of both")
    return asked


class Chosen(Protocol):
    """Conditions that a config, a command or a setting chooses."""

    @property
    def precision(self) -> str: ...

    @property
    def attention(self) -> str: ...


def are_chosen(conditions: Conditions, choice: Chosen) -> bool:
    """Return whether conditions are those that a config chooses. Its memory format is a part of its tuple."""
    return (conditions.precision, conditions.attention) == (choice.precision, choice.attention)


def _is_date(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).isoformat().startswith(text)
    except ValueError:
        return False


def is_meant(device: str | None, conditions: Conditions) -> bool:
    """Return whether a name means the device of some rows: None means all, ``cuda:N`` all GPUs."""
    if device is None:
        return True
    if is_device_name(device):
        return conditions.device_type == device_type_of(device)
    return is_part_of(device, conditions.device_product)


def is_part_of(name: str, product: str) -> bool:
    """Return whether a name is whole words of a product's name, in upper or lower case: H20 is no part of H200."""
    words = re.escape(name.casefold().strip())
    return re.search(rf"(?<![^\W_]){words}(?![^\W_])", product.casefold()) is not None


def is_version_of(begin: str, version: str | None) -> bool:
    """Return whether a version begins with these numbers: 2.1 is no beginning of 2.10."""
    return re.match(rf"{re.escape(begin)}(?![0-9])", version or "") is not None


def device_mistake(text: str) -> str | None:
    """Return why a text is neither a device's name nor a product's, such as ``gpu`` or ``cuda0``; None if it can be."""
    is_name = is_device_name(text) or (text.strip() and not _MISSPELLED.fullmatch(text))
    return None if is_name else not_a_device(text)


def not_a_device(text: str) -> str:
    """Return the message that a text is not the name of a device that measures."""
    meant = _MISSPELLED.fullmatch(text)
    question = "" if meant is None else f"; did you mean {'cpu' if meant[1].lower() == 'cpu' else 'cuda'}?"
    return f"{text!r} is not a device; use {DEVICES}{question}"


def refuse_unknown(device: str, products: Iterable[str]) -> None:
    """Raise a ``UserError`` for a name that means none of these products."""
    known = sorted(set(products))
    if not any(is_part_of(device, product) for product in known):
        remedy = f"there are rows of {', '.join(known)}" if known else "there are no rows of any device"
        raise UserError(f"--device {device}: no row of it; {remedy}")
