"""Configs of the models to profile: an existing one with the same content, else a new one in the user's folder."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from opcost.errors import CannotMeasureError, UserError
from opcost.invocation import command
from opcost.measuring.conditions import CONTIGUOUS, TORCH_DEFAULT
from opcost.operators.model_names import TORCHVISION, ModelName
from opcost.operators.tuples import PlainValue, Structure, model_operator
from opcost.running.request import COUNTS, Request
from opcost.sources.ports import ListedModel
from opcost.sources.python_file import facts_of
from opcost.sources.registry import check_config, check_that_code_may_run, source_of
from opcost.stages.make_configs import config_text
from opcost.storage.code_files import find_code
from opcost.storage.config_cases import case_name
from opcost.storage.config_trees import arguments_in, tree_text
from opcost.storage.configs import ModelConfig
from opcost.storage.files import replace_file
from opcost.storage.model_folders import ModelFolders, is_glob


def option_of(key: str) -> str:
    """Return the argument of the command line that gives a key."""
    return {"model_name": "MODEL", "arguments": "--argument"}.get(key, f"--{key.replace('_', '-')}")


@dataclass(frozen=True)
class WantedModel:
    """The model to profile, as the keys of a config: implements ``sources.ports.ConfiguredModel``.

    ``input_size`` has the batch first; it is empty for the size that the model's source publishes, and if a user's
    function returns the inputs. ``arguments`` are those of the class or function that builds the model.
    """

    model_name: str
    input_size: tuple[int, ...] = ()
    precision: str = TORCH_DEFAULT
    memory_format: str = CONTIGUOUS
    weights_name: None = None
    inputs: None = None
    arguments: tuple[tuple[str, PlainValue], ...] = ()

    def where(self, key: str) -> str:
        """Return the argument that gives a key."""
        return option_of(key)

    @property
    def further_keys(self) -> Mapping[str, object]:
        """The keys besides name and size, with their values. Those of a config are to be equal, whether given or not.

        A key that configs get later is added here, and to ``USUAL_KEYS``.
        """
        return {"precision": self.precision, "memory_format": self.memory_format, "arguments": self.arguments}

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of a command that profiles this model."""
        size = ("--input-size", "x".join(map(str, self.input_size))) if self.input_size else ()
        keys = WantedModel(self.model_name).further_keys
        changed = [(key, value) for key, value in self.further_keys.items() if value != keys[key]]
        options = [text for key, value in changed if key != "arguments" for text in (option_of(key), str(value))]
        arguments = [f"{name}={tree_text(value)}" for name, value in self.arguments]
        given = [text for argument in arguments for text in (option_of("arguments"), argument)]
        allowed = ("--allow-code",) if ModelName.of(self.model_name).is_file else ()
        return (self.model_name, *size, *options, *given, *allowed)

    @property
    def base_name(self) -> str:
        """The name of a folder for the model, without its size: ``my_net_build`` for ``my_net.py:build``."""
        named = ModelName.of(self.model_name)
        text = f"{Path(str(named.code)).name.removesuffix('.py')}_{named.name}" if named.is_file else self.model_name
        return re.sub(r"\W+", "_", text).strip("_")

    def is_described_by(self, config: ModelConfig) -> bool:
        """Return whether a config, with all of its keys, describes this model."""
        own = {"model_name": self.model_name, "input_size": self.input_size, **USUAL_KEYS, **self.further_keys}
        # 1, 1.0 and True are equal in Python, but build different models.
        return all(repr(getattr(config, key)) == repr(value) for key, value in own.items())


USUAL_KEYS: Mapping[str, object] = {"weights_name": None, "seed": 0, "composites": (), "inputs": None}
"""Keys that a profile leaves at their default."""


@dataclass(frozen=True)
class ProfileConfig:
    """The config of a profile, whether it was written for it, and whether it lasts longer than the command."""

    config: ModelConfig
    is_new: bool
    is_kept: bool = True

    def remove_if_new(self) -> None:
        """Remove a config that was written for a model that cannot be counted; an earlier one stays."""
        if self.is_new:
            with suppress(OSError):
                self.config.path.unlink()
                self.config.path.parent.rmdir()


def configs_of(folders: ModelFolders, wanted: Sequence[WantedModel], allow_code: bool = False) -> list[ProfileConfig]:
    """Return the config of each model; those that do not exist are written to the user's own folder.

    Raises:
        UserError: with one line for each mistake in a name, size or other key; then nothing is written.
    """
    complete = [_complete(folders, one, allow_code) for one in wanted]
    known = _known(folders)
    return [_config_of(folders, one, listed, known) for one, listed in dict.fromkeys(complete)]


def _complete(folders: ModelFolders, wanted: WantedModel, allow_code: bool) -> tuple[WantedModel, ListedModel]:
    """Return the model with its size, and the facts of its source.

    Raises:
        UserError: the source has no such model, does not publish its size, or finds a mistake.
    """
    named = ModelName.of(wanted.model_name)
    mistakes = check_config(wanted) if allow_code else check_that_code_may_run(wanted)
    if mistakes:
        config = _config_named(folders, wanted)
        raise UserError(*(mistakes if config is None else [_is_a_config(wanted, config)]))
    if named.is_file:
        try:
            code = find_code(named, Path.cwd())
        except UserError as error:
            raise UserError(*(f"{wanted.where('model_name')}: {line}" for line in error.lines)) from None
        # A config refers to its own folder, a command to the present one.
        place = code.module or code.path
        return replace(wanted, model_name=f"{place}:{code.function}"), facts_of(code.function)
    operator = model_operator(wanted.model_name, None, wanted.input_size)
    listed = source_of(operator).listed(operator.short_name)
    size = wanted.input_size or listed.input_size
    if not size:
        raise UserError(f"{wanted.model_name}: its input size is not published; add --input-size 8x3x224x224")
    return replace(wanted, input_size=tuple(size)), listed


def _config_named(folders: ModelFolders, wanted: WantedModel) -> ModelConfig | None:
    """Return the config, or its first case, that a name means which torchvision does not know; else None."""
    name = wanted.model_name
    if ModelName.of(name).source != TORCHVISION or is_glob(name) or _is_listed(name):
        return None
    with suppress(UserError):
        return folders.configs([name])[0]
    return None


def _is_listed(name: str) -> bool:
    operator = model_operator(name, None, ())
    try:
        source_of(operator).listed(operator.short_name)
    except CannotMeasureError:
        return False
    return True


def _is_a_config(wanted: WantedModel, config: ModelConfig) -> str:
    """Return the line for a config's name: the commands that take it, or the profile of its model with its keys."""
    name, size = wanted.model_name, config.input_size
    form = config.precision, config.memory_format
    same = WantedModel(config.model_name, size, *form, arguments=config.arguments)
    if name == config.name and config.code is None and same.is_described_by(config):
        remedy = f"run {command('profile', *same.words)}"
    else:
        allowed = ("--allow-code",) if config.code is not None else ()
        steps = (("count", name, *allowed), ("filter", name), ("measure", name, "--whole", *allowed), ("compare", name))
        remedy = f"these take it: {' && '.join(command(*step) for step in steps)}"
    return f"{wanted.where('model_name')}: {name} is a config ({config.path}) and no model; {remedy}"


def _known(folders: ModelFolders) -> list[ModelConfig]:
    """Return the configs that have no mistake, those of the user's own folder first."""
    try:
        configs, _ = folders.read(folders.names())
    except UserError:
        # There is no folder yet.
        return []
    return sorted(configs, key=lambda config: not config.path.is_relative_to(folders.own))


def _config_of(
    folders: ModelFolders, wanted: WantedModel, listed: ListedModel, known: Sequence[ModelConfig]
) -> ProfileConfig:
    for config in known:
        if wanted.is_described_by(config) and folders.configs([config.name]) == [config]:
            return ProfileConfig(replace(config, given_by=option_of), is_new=False)
    name = _free_name(folders, wanted)
    usual = WantedModel(wanted.model_name).further_keys
    more = {key: value for key, value in wanted.further_keys.items() if value != usual[key]}
    if wanted.arguments:
        more["arguments"] = tree_text(Structure("dict", wanted.arguments))
    text = config_text(wanted.model_name, wanted.input_size, listed.is_data_dependent, more)
    replace_file(folders.own / name / "summary.yml", text.encode())
    (config,) = folders.configs([name])
    return ProfileConfig(replace(config, given_by=option_of), is_new=True)


def _free_name(folders: ModelFolders, wanted: WantedModel) -> str:
    """Return the name that a case of a config would have, with a number if a folder of another model has it."""
    precision = None if wanted.precision == TORCH_DEFAULT else wanted.precision
    memory_format = None if wanted.memory_format == CONTIGUOUS else wanted.memory_format
    name = case_name(wanted.base_name, wanted.input_size or None, precision, memory_format)
    names = (name if number == 1 else f"{name}_{number}" for number in range(1, 1000))
    return next(one for one in names if not folders.path_of(one).parent.exists())


def arguments_of(texts: Sequence[str]) -> tuple[tuple[str, PlainValue], ...]:
    """Return the arguments that texts such as ``num_hidden_layers=2`` name, each with a value in YAML.

    Raises:
        UserError: one of them is none.
    """
    found: dict[str, PlainValue] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            parts, mistakes = arguments_in(yaml.compose(f"{{{name}: {value}}}", Loader=yaml.SafeLoader))
        except yaml.YAMLError:
            parts, mistakes = (), [(1, "")]
        if not equals or mistakes or len(parts) != 1:
            raise UserError(f"--argument {text}: write NAME=VALUE, such as num_hidden_layers=2")
        found |= dict(parts)
    return tuple(found.items())


@contextmanager
def scratch_folder(request: Request, wanted: Sequence[WantedModel]) -> Iterator[Request]:
    """Yield the request with a temporary folder of models, which has the user's configs and counts of these models.

    All that is written to it is lost.
    """
    names = {one.model_name for one in wanted}
    own = [one for one in _known(request.folders) if one.model_name in names]
    with tempfile.TemporaryDirectory(prefix="opcost-") as folder:
        for path in [path for config in own for path in (config.path, COUNTS.path(config))]:
            if path.exists() and path.is_relative_to(request.measurements):
                replace_file(Path(folder) / path.relative_to(request.measurements), path.read_bytes())
        yield replace(request, measurements=Path(folder))
