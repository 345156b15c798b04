"""The registry of model sources. The library of a source is imported at its first use."""

from __future__ import annotations

import csv
import fnmatch
import importlib
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.resources import files
from io import StringIO
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from opcost.errors import CannotMeasureError, UnknownModelError, UserError, suggestion
from opcost.invocation import ALLOW_CODE, command, pip_install
from opcost.operators.grids import AnyGrid
from opcost.operators.model_names import FILE, OBJECT, SUFFIX, TORCHVISION, TRANSFORMERS, ModelName, UserCode
from opcost.operators.tuples import TORCHVISION_MODELS, OperatorTuple, model_operator
from opcost.sources.port import ConfiguredModel, ListedModel, ModelSource, PublishedFacts
from opcost.units import some_of

if TYPE_CHECKING:
    from opcost.torch_backend.ready_model import ReadyModel


def published_models() -> dict[str, ListedModel]:
    """Return the facts that torchvision publishes of its models, by name, for plans on machines without torch.

    ``published.csv`` is made of ``torchvision.listed`` by ``pytest tests/sources --renew-golden``.
    """
    text = files("opcost.sources").joinpath("published.csv").read_text(encoding="utf-8")
    models = {}
    for line in csv.DictReader(StringIO(text)):
        multiply_adds, parameters, top1 = line["multiply_adds"], line["parameters"], line["top1_percent"]
        facts = PublishedFacts(
            float(multiply_adds) if multiply_adds else None,
            int(parameters) if parameters else None,
            line["weights"] or None,
            float(top1) if top1 else None,
        )
        size = tuple(map(int, line["input_size"].split("x")))
        is_data_dependent = line["is_data_dependent"] == "1"
        models[line["name"]] = ListedModel(line["name"], line["task"], size, is_data_dependent, facts)
    return models


def _library_source(name: str) -> ModelSource:
    """Return a source of a library, which is imported now; ``CannotMeasureError`` if that is not installed."""
    try:
        return cast("ModelSource", importlib.import_module(f"opcost.sources.{name}"))
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise CannotMeasureError(f"{name} is not installed; install it with {pip_install(name)}") from error


SOURCES: Mapping[str, Callable[[], ModelSource]] = MappingProxyType(
    {name: partial(_library_source, name) for name in (TORCHVISION, "timm", TRANSFORMERS)}
)
"""Sources by the first component of their tuples' names: ``torchvision.models.resnet18``."""


class _Objects(ModelSource):
    """Models that are objects of a Python program (``opcost.profile``): only that program can run them."""

    def listed(self, model_name: str) -> ListedModel:
        return ListedModel(model_name, "object", (), True, is_foreign=True)

    def ready(self, operator: OperatorTuple, device: str) -> ReadyModel:
        raise CannotMeasureError(f"{operator.short_name} is an object of a Python program; call opcost.profile there")


def source_of(operator: OperatorTuple, code: UserCode | None = None) -> ModelSource:
    """Return a tuple's source; a CannotMeasureError if it is unknown or not installed, or its ``code`` may not run."""
    name = operator.operator.partition(".")[0]
    if name == FILE:
        if code is None:
            raise CannotMeasureError(f"{operator.short_name} is code of a user, which runs only with {ALLOW_CODE}")
        from opcost.sources.python_file import PythonFile

        return PythonFile(code)
    if name == OBJECT:
        return _Objects()
    if name not in SOURCES:
        # As a config or command names it.
        text = f"{name}:{operator.operator.partition('.')[2]}"
        mistake = f"unknown source of models {name}" if name else "no source of models before the colon"
        remedy = f"a file ends with .py, as in {name or 'net'}.py:{operator.short_name}"
        raise CannotMeasureError(f"{text}: {mistake}; {remedy}")
    return SOURCES[name]()


def check_config(config: ConfiguredModel) -> list[str]:
    """Return one line for each mistake in a config that its model's source finds."""
    named = ModelName.of(config.model_name)
    if named.is_file:
        return []
    operator = model_operator(config.model_name, config.weights_name, config.input_size)
    # It imports torch, which a plan for a product does without.
    from opcost.torch_backend.switches import reported_switches

    try:
        _refuse_dots(config.model_name)
        with reported_switches(config.model_name):
            source = source_of(operator)
            source.listed(operator.short_name)
    except CannotMeasureError as error:
        lists = command("make-configs", *_all_of(named.source), "--dry-run")
        known = f"opcost knows the models of {', '.join(SOURCES)}; {lists} lists them"
        is_unknown = isinstance(error, UnknownModelError) and not error.question
        question = _elsewhere(named.name) if is_unknown else ""
        return [f"{config.where('model_name')}: {error}{question} ({known})"]
    return source.mistakes(config)


def check_that_code_may_run(config: ConfiguredModel) -> list[str]:
    """Return a line if a config's model is a user's code, which needs an option to run, else those of its source."""
    if ModelName.of(config.model_name).is_file:
        text = f"{config.model_name} is Python code; if you trust it, run the command again with {ALLOW_CODE}"
        return [f"{config.where('model_name')}: {text}"]
    return check_config(config)


def _all_of(source: str) -> list[str]:
    """Return the glob for all models of a source; torchvision's need none."""
    return [f"{source}:*"] if source in SOURCES and source != TORCHVISION else []


def _elsewhere(name: str) -> str:
    """Return a question with a model of timm or a class of transformers that a hub's name may mean, if any.

    ``google-bert/bert-base-uncased`` begins as ``BertModel`` does.
    """
    last = name.rpartition("/")[2].lower()
    words = re.split("[-_.]", last)
    known: dict[str, str] = {}
    for source in SOURCES.keys() - {TORCHVISION}:
        with suppress(CannotMeasureError):
            known |= {one.lower(): f"{source}:{one}" for one in SOURCES[source]().names()}
    longest_first = ("".join(words[:number]) + "model" for number in range(len(words), 0, -1))
    found = next((known[one] for one in (last, *longest_first) if one in known), "")
    sizes = " (in its usual size; --argument changes it)" if found.startswith(TRANSFORMERS) else ""
    return found and f"; did you mean {found}{sizes}?"


def _refuse_dots(model_name: str) -> None:
    """Refuse a name with its package, source or tag of another library: the names of all sources have no dots."""
    source, _, name = model_name.rpartition(":")
    if source == TORCHVISION:
        raise CannotMeasureError(f"{model_name}: torchvision's names have no source before them; write {name}")
    if name.startswith(TORCHVISION_MODELS):
        raise CannotMeasureError(f"a package is no part of the name; write {name.removeprefix(TORCHVISION_MODELS)}")
    if name.endswith(SUFFIX):
        raise CannotMeasureError(f"no source has a model {name!r}; name a function in it, as in {name}:build")
    if "." in name:
        raise UnknownModelError(f"no source has a model {name!r}")


def models_matching(patterns: Sequence[str]) -> list[ListedModel]:
    """Return the models whose names match any of these globs, all of torchvision without globs, sorted by name.

    A glob for another source begins with its name, as do the names of its models: ``timm:vit_*``. Models that a glob
    matches and that cannot be listed, such as those that need a further package, are left out with a warning. Raises
    UserError: with one line for each pattern that matches no model.
    """
    found: dict[str, ListedModel] = {}
    lines = []
    for pattern in patterns or ["*"]:
        prefix, colon, glob = pattern.removeprefix(f"{TORCHVISION}:").rpartition(":")
        named = prefix or TORCHVISION
        if named not in SOURCES:
            lines.append(f"{pattern!r}: unknown source of models {named}; opcost knows {', '.join(SOURCES)}")
            continue
        try:
            source = SOURCES[named]()
        except CannotMeasureError as error:
            lines.append(f"{pattern!r}: {error}")
            continue
        known = source.names()
        # A source may know more models by name than it lists.
        names = fnmatch.filter(known, glob) or ([] if set(glob) & set("*?[") else [glob])
        for name in names:
            try:
                model = source.listed(name)
                found[prefix + colon + name] = replace(model, name=prefix + colon + model.name)
            except CannotMeasureError as error:
                if name == glob and name not in known:
                    lines.append(_no_match(named, glob, known))
                elif name == glob:
                    lines.append(f"{pattern!r}: {error}")
                else:
                    logging.getLogger(__name__).warning("left out: %s", error)
        if not names:
            lines.append(_no_match(named, glob, known))
    if lines:
        raise UserError(*lines)
    return [found[name] for name in sorted(found)]


def with_usual_size(models: Sequence[ListedModel]) -> list[ListedModel]:
    """Return the models with a usual input size, and warn of the others; a ``UserError`` if none has one."""
    found = [model for model in models if model.input_size]
    names = some_of([model.name for model in models if not model.input_size])
    text = f"no usual input size: {names}; write a summary.yml with inputs"
    if not found:
        raise UserError(text)
    if names:
        logging.getLogger(__name__).warning("left out: %s", text)
    return found


def _no_match(source: str, pattern: str, known: Sequence[str]) -> str:
    otherwise = f"{command('make-configs', *_all_of(source), '--dry-run')} shows all"
    return f"{source} has no model {pattern!r}; {suggestion(pattern, known, otherwise)}"


def grid_mistakes(grid: AnyGrid, where: Callable[[str], str]) -> Iterator[str]:
    """Yield a line for each operator that there is not; ``where`` returns the place of a key in the file."""
    # It imports torch, which a plan for a product does without.
    from opcost.torch_backend.operators import find_operator

    for place, name in grid.operators.items():
        try:
            find_operator(name)
        except CannotMeasureError:
            package, _, short_name = name.rpartition(".")
            known = [one for one in dir(sys.modules.get(package)) if not one.startswith("_")]
            remedy = suggestion(short_name, known, "write a module's class or a function on tensors, with its package")
            yield f"{where(place)}: this version of torch has no operator {name}; {remedy}"
