"""The registry of model sources. The library of a source is imported at its first use."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from opcost.errors import CannotMeasureError, UserError
from opcost.invocation import command
from opcost.operators.tuples import MODEL_PACKAGES, OBJECT, OperatorTuple, model_operator
from opcost.sources.ports import ConfiguredModel, ListedModel, ModelSource, suggestion


def _torchvision() -> ModelSource:
    from opcost.sources import torchvision

    return torchvision


SOURCES: Mapping[str, Callable[[], ModelSource]] = MappingProxyType({"torchvision": _torchvision})
"""Sources by the first component of their tuples' names: ``torchvision.models.resnet18``."""


def source_of(operator: OperatorTuple) -> ModelSource:
    """Return the source of the model that a tuple describes.

    Raises:
        CannotMeasureError: there is no such source.
    """
    name = operator.operator.partition(".")[0]
    if name == OBJECT:
        from opcost.sources import objects

        return objects
    if name not in SOURCES:
        raise CannotMeasureError(f"{operator.operator}: unknown source of models {name}")
    return SOURCES[name]()


def check_config(config: ConfiguredModel) -> list[str]:
    """Return one line for each mistake in a config that its model's source finds."""
    operator = model_operator(config.model_name, config.weights_name, config.input_size)
    lists = f"{command('make-configs', '--dry-run')} lists them"
    # It imports torch, which a plan for a product does without.
    from opcost.torch_backend.kept_switches import reported_switches

    try:
        _refuse_dots(config.model_name)
        with reported_switches(config.model_name):
            source = source_of(operator)
            source.listed(operator.short_name)
    except CannotMeasureError as error:
        known = f"opcost knows the models of {', '.join(SOURCES)}; {lists}"
        return [f"{config.where('model_name')}: model_name: {error} ({known})"]
    return source.mistakes(config)


def _refuse_dots(model_name: str) -> None:
    """Refuse a name with its package, or with the tag of another library: the names of all sources have no dots."""
    name = model_name.rpartition(":")[2]
    for package in MODEL_PACKAGES.values():
        if name.startswith(package):
            raise CannotMeasureError(f"a package is no part of the name; write {name.removeprefix(package)}")
    if "." in name:
        raise CannotMeasureError(f"no source has a model {name!r}")


def models_matching(patterns: Sequence[str]) -> list[ListedModel]:
    """Return the models whose names match any of these globs, all without globs, sorted by name.

    Raises:
        UserError: with one line for each pattern that matches no model.
    """
    sources = {name: source for load in SOURCES.values() for source in [load()] for name in source.names()}
    chosen = {pattern: fnmatch.filter(sources, pattern) for pattern in patterns or ["*"]}
    lines = [_no_match(pattern, list(sources)) for pattern, names in chosen.items() if not names]
    if lines:
        raise UserError(*lines)
    return [sources[name].listed(name) for name in sorted({name for names in chosen.values() for name in names})]


def _no_match(pattern: str, known: Sequence[str]) -> str:
    otherwise = f"{command('make-configs', '--dry-run')} shows all"
    return f"{' or '.join(SOURCES)} has no model {pattern!r}; {suggestion(pattern, known, otherwise)}"
