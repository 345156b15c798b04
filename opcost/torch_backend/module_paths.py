"""Paths of a model's modules, and the facts of those that call operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from opcost.operators.modules import CalledModule, at_level, levels_of
from opcost.operators.short_forms import joined_sizes
from opcost.operators.tuples import TensorSpec
from opcost.torch_backend.flops import tensors_of
from opcost.torch_backend.values import packed_tensors

LONGEST_PATH = 1000
"""The most characters of a path in a file of counts."""

MOST_SIZES = 4
"""The most sizes of a module's tensors; a model may hand on a list of many."""


def paths_of(model: nn.Module) -> dict[int, str]:
    """Return the path of each module by the module's ``id``; one that is there twice has its first path."""
    return {id(module): path for path, module in model.named_modules()}


def number_of_weights(module: nn.Module) -> int:
    """Return the number of a module's parameters and packed weights, those of its children included."""
    attributes = (value for part in module.modules() for value in vars(part).values())
    weights = {id(value): value for value in attributes if isinstance(value, torch.ScriptObject)}
    packed = (tensor for value in weights.values() for tensor in packed_tensors(value))
    return sum(weight.numel() for weight in (*module.parameters(), *packed))


@dataclass(frozen=True)
class CallSizes:
    """The sizes of the tensors that a module gets and returns in a call."""

    inputs: str
    outputs: str

    @staticmethod
    def of(arguments: Any, result: Any) -> CallSizes:
        return CallSizes(_sizes(arguments), _sizes(result))


def _sizes(values: Any) -> str:
    tensors = list({id(tensor): tensor for tensor in tensors_of(values)}.values())
    sized = (one for one in tensors[:MOST_SIZES] if not one.is_nested)
    specs = [TensorSpec(tuple(one.shape), str(one.dtype).removeprefix("torch.")) for one in sized]
    more = ["..."] if len(tensors) > MOST_SIZES else []
    return ", ".join([*filter(None, [joined_sizes(specs)]), *more])


def called_modules(
    model: nn.Module, callers: Collection[str], sizes: Mapping[str, CallSizes]
) -> Mapping[str, CalledModule]:
    """Return the modules with these paths, and the modules around them, by path in the order of ``named_modules``.

    Args:
        model: the model.
        callers: the paths of modules that are or call operators.
        sizes: those of the first call of each module that is no operator, by path.
    """
    wanted = {"", *callers}
    for path in callers:
        wanted.update(at_level(path, level) for level in range(1, levels_of(path)))
    modules = dict(model.named_modules())
    # A name that has a dot stands for modules that are not there.
    order = [*(path for path in modules if path in wanted), *sorted(wanted - modules.keys())]
    return {path: _called(path, modules.get(path, NO_MODULE), sizes.get(path)) for path in order}


NO_MODULE = nn.Module()


def _called(path: str, module: nn.Module, sizes: CallSizes | None) -> CalledModule:
    return CalledModule(
        path=_shown(path),
        class_name=_shown(type(module).__name__),
        weights=number_of_weights(module),
        input_sizes=None if sizes is None else sizes.inputs,
        output_sizes=None if sizes is None else sizes.outputs,
    )


def _shown(name: str) -> str:
    """Return a module's path, or its class's name, as counts take it: names may have any characters."""
    return "".join(character if character.isprintable() else "?" for character in name[:LONGEST_PATH])
