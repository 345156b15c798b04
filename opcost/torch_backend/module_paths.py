"""Paths of a model's modules, and the facts of those that call operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from opcost.operators.modules import SEPARATOR, CalledModule

LONGEST_PATH = 1000
"""The most characters of a path in a file of counts."""


def paths_of(model: nn.Module) -> dict[int, str]:
    """Return the path of each module by the module's ``id``; one that is there twice has its first path."""
    return {id(module): path for path, module in model.named_modules()}


def called_modules(model: nn.Module, callers: Collection[str]) -> Mapping[str, CalledModule]:
    """Return the modules with these paths, and the modules around them, by path in the order of ``named_modules``."""
    wanted = {"", *callers}
    for path in callers:
        names = path.split(SEPARATOR)
        wanted.update(SEPARATOR.join(names[:level]) for level in range(1, len(names)))
    return {path: _called(path, module) for path, module in model.named_modules() if path in wanted}


def _called(path: str, module: nn.Module) -> CalledModule:
    # Names of modules may have any characters.
    shown = "".join(character if character.isprintable() else "?" for character in path[:LONGEST_PATH])
    return CalledModule(shown, type(module).__name__, sum(weight.numel() for weight in module.parameters()))
