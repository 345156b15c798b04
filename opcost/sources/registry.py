"""All sources of models: which one has a model, and which models there are.

A source's library is imported when it is first used.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from opcost.errors import CannotMeasureError, UserError
from opcost.operators.tuples import OperatorTuple, model_operator
from opcost.sources.ports import ConfiguredModel, ListedModel, ModelSource, suggestion


def _torchvision() -> ModelSource:
    from opcost.sources import torchvision

    return torchvision


SOURCES: Mapping[str, Callable[[], ModelSource]] = MappingProxyType({"torchvision": _torchvision})
"""By the first component of the names of their tuples: ``torchvision.models.resnet18``."""


def source_of(operator: OperatorTuple) -> ModelSource:
    """Return the source of the model that a tuple describes.

    Raises:
        CannotMeasureError: there is no such source.
    """
    name = operator.operator.partition(".")[0]
    if name not in SOURCES:
        raise CannotMeasureError(f"{operator.operator}: there is no source of models {name}")
    return SOURCES[name]()


def check_config(config: ConfiguredModel) -> list[str]:
    """Return one line for each thing in a config that does not fit its model's source."""
    try:
        source = source_of(model_operator(config.model_name, config.weights_name, config.input_size))
    except CannotMeasureError as error:
        return [f"{config.where('model_name')}: model_name: {error}; there are: {', '.join(SOURCES)}"]
    return source.mistakes(config)


def models_matching(patterns: Sequence[str]) -> list[ListedModel]:
    """Return the models whose names match any of some globs, all if there is none, by name.

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
    otherwise = "python -m opcost make-configs --dry-run shows all"
    return f"{' or '.join(SOURCES)} has no model {pattern!r}; {suggestion(pattern, known, otherwise)}"
