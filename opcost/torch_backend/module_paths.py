"""Paths of a model's modules, and the facts of those that call operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from opcost.operators.modules import CalledModule, at_level, levels_of

LONGEST_PATH = 1000
"""The most characters of a path in a file of counts."""


def paths_of(model: nn.Module) -> dict[int, str]:
    """Return the path of each module by the module's ``id``; one that is there twice has its first path."""
    return {id(module): path for path, module in model.named_modules()}


def called_modules(model: nn.Module, callers: Collection[str]) -> Mapping[str, CalledModule]:
    """Return the modules with these paths, and the modules around them, by path in the order of ``named_modules``."""
    wanted = {"", *callers}
    for path in callers:
        wanted.update(at_level(path, level) for level in range(1, levels_of(path)))
    modules = dict(model.named_modules())
    # A name that has a dot stands for modules that are not there.
    order = [*(path for path in modules if path in wanted), *sorted(wanted - modules.keys())]
    return {path: _called(path, modules.get(path, NO_MODULE)) for path in order}


NO_MODULE = nn.Module()


def _called(path: str, module: nn.Module) -> CalledModule:
    # Names of modules may have any characters.
    shown = "".join(character if character.isprintable() else "?" for character in path[:LONGEST_PATH])
    return CalledModule(shown, type(module).__name__, sum(weight.numel() for weight in module.parameters()))
