"""Types of options: each turns a text into a value or raises ``ArgumentTypeError``. Standard library only."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from opcost.errors import UserError
from opcost.measuring.conditions import EXECUTIONS, is_device_name
from opcost.measuring.setting import Limit, device_mistake, not_a_device
from opcost.operators.attention import form_and_backend
from opcost.operators.sweep_axes import Axis, AxisKind
from opcost.storage.files import path_of

SWEEP = "opcost sweep MODEL --no-measure --device H200"

MAXIMUM_S = 86_400.0
"""A day: no loop needs longer, and timers overflow at times that a float still holds."""


def device_name(text: str) -> str:
    """Return a device's name unchanged, if it is ``cpu``, ``cuda`` or ``cuda:N``."""
    if not is_device_name(text):
        raise argparse.ArgumentTypeError(not_a_device(text))
    return text


def device_or_product(text: str) -> str:
    """Return a device's name, or a part of a product's, unchanged."""
    mistake = device_mistake(text)
    if mistake is not None:
        raise argparse.ArgumentTypeError(mistake)
    return text


def devices_or_products(text: str) -> str:
    """Return one or several devices' or products' names with commas, unchanged."""
    for part in text.split(","):
        device_or_product(part.strip())
    return text


def gpu_numbers(text: str) -> tuple[str, ...]:
    """Return the numbers of GPUs with commas between them, or the one word ``all``."""
    if not re.fullmatch(r"all|[0-9]{1,3}(,[0-9]{1,3})*", text):
        raise argparse.ArgumentTypeError(f"{text!r} names no GPUs; use all, or numbers such as 0,2")
    return tuple(text.split(","))


def positive_seconds(text: str) -> float:
    """Return a time above 0 and up to ``MAXIMUM_S``, in s."""
    remedy = f"use a number above 0 and up to {MAXIMUM_S:.0f} (one day), such as 30 or 0.5"
    return _number(text, lambda time_s: 0 < time_s <= MAXIMUM_S, f"a time in seconds; {remedy}")


def _count(text: str, least: int, example: int) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", text) or int(text) < least:
        remedy = f"use a whole number from {least}, such as {example}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a count; {remedy}")
    return int(text)


count, count_from_0 = partial(_count, least=1, example=10), partial(_count, least=0, example=2)


def one_batch(text: str) -> int:
    """Return a number of samples, one only: a sweep has several."""
    if "," in text:
        raise argparse.ArgumentTypeError(f"{text!r} is several batches, which are a sweep: {SWEEP} --batch {text}")
    return count(text)


def counts(text: str) -> tuple[int, ...]:
    """Return whole numbers above 0 with commas between them, each once, in their order."""
    return tuple(dict.fromkeys(count(part.strip()) for part in text.split(",")))


def attentions(text: str) -> tuple[str, ...]:
    """Return kinds of attention with commas between them, each once."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    try:
        for one in names:
            form_and_backend(one)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return names


def executions(text: str) -> tuple[str, ...]:
    """Return ``graph``, ``eager`` or both, with a comma between them."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not set(names) <= set(EXECUTIONS):
        raise argparse.ArgumentTypeError(f"{text!r} is no execution; use {', '.join(EXECUTIONS)}, or both")
    return names


def requests(text: str) -> tuple[tuple[int, int], ...]:
    """Return the tokens of prompts and those that are made, such as 512:256, with commas between them."""
    found = [part.strip().split(":") for part in text.split(",")]
    if any(len(one) != len(("prompt", "made")) for one in found):
        raise argparse.ArgumentTypeError(f"{text!r} is no request; use the tokens of a prompt and those made: 512:256")
    return tuple(dict.fromkeys((count(prompt), count(made)) for prompt, made in found))


def input_size(text: str) -> tuple[int, ...]:
    """Return the size of an input, batch first."""
    if not re.fullmatch(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8}){1,5}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an input size; use a text such as 8x3x224x224, batch first")
    return tuple(map(int, text.split("x")))


def limit(text: str) -> Limit:
    try:
        return Limit.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def axis(kind: AxisKind, text: str) -> Axis:
    try:
        return Axis.parse(kind, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def ratio(text: str) -> float:
    """Return a number above 0 and below 1."""
    return _number(text, lambda value: 0 < value < 1, "a ratio; use a number between 0 and 1, such as 0.01 or 0.9")


def rate(text: str) -> float:
    """Return a number above 0 and below a million."""
    return _number(text, lambda value: 0 < value < 1e6, "a rate; use a number above 0, such as 400 or 0.30")


def factor(text: str) -> float:
    """Return a number from 1 to 100."""
    return _number(text, lambda value: 1 <= value <= 100, "a factor; use a number from 1 to 100, such as 2")


def _number(text: str, is_within: Callable[[float], bool], wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        # It is within no bounds.
        value = math.nan
    if not is_within(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
    return value


def user_path(text: str) -> Path:
    """Return a path, in which ``~`` is the user's home."""
    try:
        return path_of(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def html_file(text: str) -> Path:
    """Return the path of an HTML file in a folder that exists."""
    file = user_path(text)
    if file.suffix not in (".html", ".htm") or file.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of an HTML file; use one that ends in .html")
    if not file.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {file.parent}; make it, or name another")
    return file


def folder(text: str) -> Path:
    """Return the path of a folder, which need not exist."""
    if not text:
        raise argparse.ArgumentTypeError("'' is not the name of a folder; use . for the current one")
    named = user_path(text)
    if named.exists() and not named.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a file; name a folder")
    return named
