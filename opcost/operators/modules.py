"""The modules of a model that call operators, by their paths."""

from __future__ import annotations

from dataclasses import dataclass

SEPARATOR = "."
"""Stands between the names in a path."""


@dataclass(frozen=True)
class CalledModule:
    """A module of a model that calls operators, is one, or contains such modules.

    ``path`` is its name in ``named_modules``, such as ``layer1.0.conv1``; the model's own is empty. ``weights`` is the
    number of its parameters, those of its children included; each that is shared in it counts once. ``input_sizes`` and
    ``output_sizes`` are those of the tensors in its first call, as ``short_forms`` has them; None for a module that is
    an operator, whose tuple has them.
    """

    path: str
    class_name: str
    weights: int
    input_sizes: str | None = None
    output_sizes: str | None = None


def levels_of(path: str) -> int:
    """Return the number of names in a path: 0 for the model itself, 3 for ``layer1.0.conv1``."""
    return len(path.split(SEPARATOR)) if path else 0


def at_level(path: str, level: int) -> str:
    """Return the path of the module around a path that has so many names, or the path itself if it has no more."""
    return SEPARATOR.join(path.split(SEPARATOR)[:level])
