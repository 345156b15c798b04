"""Devices as users name them: ``cpu``, ``cuda``, ``cuda:N``, or a part of a product's name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from opcost.errors import UserError
from opcost.measuring.conditions import Conditions, device_type_of, is_device_name

_MISSPELLED = re.compile(r"(cpu|cuda|gpu)[\W\d_]*", re.IGNORECASE)

DEVICES = "cpu, cuda, or cuda:N such as cuda:0"
"""The devices that measure."""


def is_meant(device: str | None, conditions: Conditions) -> bool:
    """Return whether a name means the device of some rows; None means all.

    ``cuda:N`` means all GPUs: rows do not have the index of the GPU.
    """
    if device is None:
        return True
    if is_device_name(device):
        return conditions.device_type == device_type_of(device)
    return is_part_of(device, conditions.device_product)


def is_part_of(name: str, product: str) -> bool:
    """Return whether a name is whole words of a product's name, in upper or lower case: H20 is no part of H200."""
    words = re.escape(name.casefold().strip())
    return re.search(rf"(?<![^\W_]){words}(?![^\W_])", product.casefold()) is not None


def device_mistake(text: str) -> str | None:
    """Return why a text is neither a device's name nor a product's, such as ``gpu`` or ``cuda0``; None if it can be."""
    if is_device_name(text) or (text.strip() and not _MISSPELLED.fullmatch(text)):
        return None
    return not_a_device(text)


def not_a_device(text: str) -> str:
    """Return the message that a text is not the name of a device that measures."""
    meant = _MISSPELLED.fullmatch(text)
    question = "" if meant is None else f"; did you mean {'cpu' if meant[1].lower() == 'cpu' else 'cuda'}?"
    return f"{text!r} is not a device; use {DEVICES}{question}"


def refuse_unknown(device: str, products: Iterable[str]) -> None:
    """Refuse a name that means none of these products.

    Raises:
        UserError: it does not.
    """
    known = sorted(set(products))
    if not any(is_part_of(device, product) for product in known):
        remedy = f"there are rows of {', '.join(known)}" if known else "there are no rows of any device"
        raise UserError(f"--device {device}: no row of it; {remedy}")
