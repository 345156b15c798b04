"""A model as ``opcost profile`` takes it, the config and counts that it has already, and commands for such models.

None of this imports torch.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from opcost.errors import CannotBuildError, UserError, shortened
from opcost.invocation import ALLOW_CODE, command
from opcost.measuring.conditions import CONTIGUOUS
from opcost.measuring.precisions import TORCH_DEFAULT
from opcost.measuring.protocol import FULL_LOOP_S
from opcost.measuring.setting import ChosenConditions
from opcost.operators.attention import ANY_BACKEND
from opcost.operators.counts import EVERYTHING, OperatorCounts
from opcost.operators.generation import DECODE_CONTEXT
from opcost.operators.model_names import ModelName, UserCode
from opcost.operators.training import INFERENCE, TRAINING, Training
from opcost.operators.tuples import PlainValue
from opcost.running.request import Request
from opcost.sources.registry import check_that_code_may_run, published_models
from opcost.storage.code_files import check_function, find_code
from opcost.storage.configs import WHITELIST, ModelConfig, ModelFolders, chosen_by
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS, is_counted
from opcost.storage.schemas import argument_in, case_name, tree_text, without_size
from opcost.units import some_of


def placed(code: UserCode) -> str:
    """Return a model's name for a config: a relative path would refer to the config's folder."""
    return f"{code.module or code.path}:{code.function}"


USUAL_KEYS: Mapping[str, object] = MappingProxyType({"seed": 0, "composites": (), "grid": None})
"""Keys that a profile leaves at their default, besides those that are fields of ``WantedModel``."""


@dataclass(frozen=True)
class WantedModel:
    """The model to profile, as the keys of a config: implements ``sources.port.ConfiguredModel``.

    ``input_size`` has the batch first; it is empty for the size that the model's source publishes, and if a user's
    function returns the inputs. ``arguments`` are those of the class or function that builds the model.
    """

    model_name: str
    input_size: tuple[int, ...] = ()
    precision: str = TORCH_DEFAULT
    memory_format: str = CONTIGUOUS
    attention: str = ANY_BACKEND
    weights_name: None = None
    inputs: None = None
    training: Training | None = None
    arguments: tuple[tuple[str, PlainValue], ...] = ()

    def where(self, key: str) -> str:
        return {"model_name": "MODEL", "arguments": "--argument"}.get(key, f"--{key.replace('_', '-')}")

    def option_for(self, key: str) -> str:
        """Return the argument that gives a key of the config, the model if its source gives the size."""
        return self.where("model_name" if key == "input_size" and not self.input_size else key)

    @property
    def given_keys(self) -> Mapping[str, str]:
        """The keys of its config that are not at their default, besides name, size and arguments: those of options."""
        usual = vars(ChosenConditions())
        changed = {key: own for key, default in usual.items() if (own := getattr(self, key)) != default}
        return changed if self.training is None else {**changed, **self.training.keys}

    @property
    def words(self) -> tuple[str, ...]:
        size = ("--input-size", "x".join(map(str, self.input_size))) if self.input_size else ()
        options = list(self.given_keys.items())
        options += [("arguments", f"{name}={tree_text(value)}") for name, value in self.arguments]
        given = [text for key, value in options for text in (self.where(key), value)]
        allowed = (ALLOW_CODE,) if ModelName.of(self.model_name).is_file else ()
        return (self.model_name, *size, *given, *allowed)

    @property
    def base_name(self) -> str:
        """The name of a folder for the model, without its size: ``my_net_build`` for ``my_net.py:build``."""
        named = ModelName.of(self.model_name)
        text = f"{Path(str(named.code)).name.removesuffix('.py')}_{named.name}" if named.is_file else self.model_name
        return re.sub(r"\W+", "_", text).strip("_")

    def with_arguments(self, further: Mapping[str, PlainValue]) -> WantedModel:
        """Return the model with further arguments, which replace its own of the same names."""
        return replace(self, arguments=tuple(sorted({**dict(self.arguments), **further}.items())))

    def code(self) -> UserCode | None:
        """Return the user's code, None for other models. Raises UserError: there is none, see ``check_function``."""
        named = ModelName.of(self.model_name)
        if not named.is_file:
            return None
        try:
            code = find_code(named, Path.cwd())
            check_function(code, dict(self.arguments))
            return code
        except CannotBuildError as error:
            raise UserError(f"{self.where(error.key or 'model_name')}: {error}") from None
        except UserError as error:
            raise UserError(*(f"{self.where('model_name')}: {line}" for line in error.lines)) from None

    @staticmethod
    def from_arguments(arguments: Namespace) -> WantedModel:
        """Return the model that a command line names.

        Raises UserError: an argument for building it cannot be read; or the model is code that may not run, or whose
        text shows a mistake, which is found before torch is imported.
        """
        wanted = WantedModel(
            arguments.model,
            arguments.input_size or (),
            arguments.precision,
            arguments.memory_format,
            arguments.attention,
            training=training_in(arguments),
            arguments=arguments_of(arguments.argument),
        )
        if ModelName.of(wanted.model_name).is_file:
            if not arguments.allow_code:
                raise UserError(*check_that_code_may_run(wanted))
            wanted.code()
        return wanted

    @staticmethod
    def of(config: ModelConfig) -> WantedModel | None:
        """Return the model whose profile uses this config, None if there is none: it has other keys.

        A file below the present folder has its relative path, as a user would type it.
        """
        code, step = config.code, config.training
        name = config.model_name if code is None else placed(code)
        how = config.precision, config.memory_format, config.attention
        training = None if step is None else Training(step.loss, step.optimizer)
        wanted = WantedModel(name, config.input_size, *how, training=training, arguments=config.arguments)
        if not wanted.is_described_by(config):
            return None
        if code is None or code.module is not None or not Path(code.path).is_relative_to(Path.cwd()):
            return wanted
        return replace(wanted, model_name=f"{Path(code.path).relative_to(Path.cwd())}:{code.function}")

    def is_described_by(self, config: ModelConfig) -> bool:
        # A key that configs get later is a field, too, or one of the usual keys.
        own = {**USUAL_KEYS, **vars(self)}
        # 1, 1.0 and True are equal in Python, but build different models.
        return all(repr(getattr(config, key)) == repr(value) for key, value in own.items())


def training_in(arguments: Namespace) -> Training | None:
    """Return the training step of a command line, None at inference. Raises UserError: it has options of the other."""
    given = {key: value for key in ("loss", "optimizer") if (value := getattr(arguments, key, None))}
    # Not all commands have the option.
    if getattr(arguments, "mode", INFERENCE) == TRAINING:
        return Training(**given)
    for key in given:
        raise UserError(f"--{key}: it is of a training step; add --mode {TRAINING}, or leave it out")
    return None


def arguments_of(texts: Sequence[str]) -> tuple[tuple[str, PlainValue], ...]:
    """Return the arguments that texts such as ``num_hidden_layers=2`` name, each with a value in YAML.

    They are in the order of their names, as in configs: the config of a profile is found again in any order. Raises
    UserError: one of them is none.
    """
    found: dict[str, PlainValue] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        # As a config has it, where it is written to.
        argument = argument_in(f"arguments: {{{name}: {value}}}") if equals else None
        if argument is None:
            remedy = (
                "write NAME=VALUE, such as num_hidden_layers=2, in plain YAML of a few levels without anchors and tags"
            )
            raise UserError(f"--argument {shortened(text)}: cannot be read; {remedy}")
        found[argument[0]] = argument[1]
    return tuple(sorted(found.items()))


# The config that a model has already


def known_config(folders: ModelFolders, wanted: WantedModel, batch: int | None) -> ModelConfig | None:
    """Return the config with the name of a model, or the one in its usual folder that describes it; else None.

    A name without its size means a case if there is one of the wanted precision and memory format, or only one. A
    config that describes the model in another folder is not looked for. ``batch`` replaces that of the published or
    given input size; None leaves it. Raises UserError: the config of this name has a mistake, or several cases.
    """
    named = config_named(folders, wanted)
    if named is not None:
        return named if batch in (None, named.batch_size) else None
    name, plain = wanted.model_name, WantedModel(wanted.model_name)
    if ModelName.of(name).is_file:
        return None
    listed = published_models().get(name)
    size = wanted.input_size or (() if listed is None else listed.input_size)
    if size:
        complete = replace(wanted, input_size=(batch or size[0], *size[1:]))
        usual = usual_name(complete.base_name, complete)
        found = [config for config in cases_in(folders, usual) if complete.is_described_by(config)]
        return replace(found[0], given_by=wanted.option_for) if found else None
    if replace(wanted, **vars(ChosenConditions())) != plain:
        return None
    meant = [one for one in cases_in(folders, name) if folders.is_meant(one, name) and batch in (None, one.batch_size)]
    how = ChosenConditions(wanted.precision, wanted.memory_format, wanted.attention)
    alike = [one for one in meant if chosen_by(one) == how] or (meant if wanted == plain else [])
    return _only_case(alike, name, f"{wanted.where('model_name')}: ")


def _only_case(configs: Sequence[ModelConfig], name: str, place: str) -> ModelConfig | None:
    if len(configs) > 1:
        names = some_of([config.name for config in configs])
        raise UserError(f"{place}{name} has {len(configs)} cases; name one of them: {names}")
    return configs[0] if configs else None


def usual_name(base: str, model: WantedModel | ModelConfig) -> str:
    """Return the usual name of the folder of a model with its size; another model may have it."""
    others = (own for key, default in vars(ChosenConditions()).items() if (own := getattr(model, key)) != default)
    context = dict(model.arguments).get(DECODE_CONTEXT)
    of_step = context if isinstance(context, int) else None
    name = case_name(base, model.input_size or None, of_step, *others)
    return name if model.training is None else f"{name}_{TRAINING}"


def config_named(folders: ModelFolders, wanted: WantedModel) -> ModelConfig | None:
    """Return the config that a model's name without options means, if any. Raises UserError: it has a mistake."""
    if wanted != WantedModel(wanted.model_name):
        return None
    configs = named_configs(folders, wanted.model_name)
    return _only_case(configs, wanted.model_name, f"{configs[0].path}: " if configs else "")


def named_configs(folders: ModelFolders, name: str) -> list[ModelConfig]:
    """Return the cases of the config with a name, or the case with it. Raises UserError: the config has a mistake."""
    try:
        is_folder = folders.wanted_name(name) in folders.names()
    except UserError:
        # There is no folder yet.
        return []
    if is_folder:
        return folders.configs([name])
    return [config for config in cases_in(folders, name) if folders.is_named(config, name)]


def cases_in(folders: ModelFolders, name: str) -> list[ModelConfig]:
    """Return the cases without a mistake of the folders that may have one of this name; none without folders."""
    case = folders.wanted_name(name).rpartition("/")[2]
    with suppress(UserError):
        return folders.read([folder for folder in folders.names() if case.startswith(without_size(folder))])[0]
    return []


def pickled(config: ModelConfig, shipped: OperatorCounts | None) -> OperatorCounts | None:
    """Return the counts of block 0 with paths, None if the model is to be run.

    Raises UserError: there are no others, and they are damaged, or of an earlier version, which kept no paths.
    """
    if not COUNTS.path(config).exists():
        return None
    try:
        counts = COUNTS.read(config)
    except UserError:
        if shipped is None:
            raise
        return None
    if not counts.modules and shipped is None:
        again = command(COUNTS.made_by, config.name, has_code=config.code is not None)
        raise UserError(f"{COUNTS.path(config)}: its calls have no paths, as in earlier versions; run {again}")
    return counts if counts.modules else None


# Commands that messages propose, and the state before a measurement


@dataclass(frozen=True)
class Preparation:
    """The whitelist before a measurement, with the names of operators that it drops.

    ``whitelist`` is the user's; ``shipped`` is the one to copy there first, None if it exists.
    """

    dropped: tuple[str, ...]
    whitelist: Path
    shipped: Path | None


def preparation_of(request: Request, names: Collection[str]) -> Preparation:
    """Return the state before the operators of these names are measured. Raises UserError: the whitelist is damaged."""
    kept = request.whitelist_if_any()
    dropped = () if kept is None or EVERYTHING in kept else tuple(sorted(set(names) - set(kept)))
    read, own = request.folders.whitelist, request.folders.own / WHITELIST
    return Preparation(dropped, own, None if read == own else read)


NOT_OF_PROFILE = ("--same-board",)
"""Options that ``opcost profile`` does not have; it always does what this one asks for."""

DURATIONS = ("--seconds", "--relative-error")


@dataclass(frozen=True)
class Proposals:
    """The models, by their names, for which commands need more.

    ``with_code`` are users' code. ``profiled`` are those that are counted and not filtered, as ``opcost profile``
    leaves them, with the words of its command. Blocks 0 and 1 have written pickles of ``counted`` and ``filtered``
    models: block 2 reads these, not the shipped counts.
    """

    with_code: frozenset[str] = frozenset()
    profiled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    filtered: frozenset[str] = frozenset()

    @staticmethod
    def of(configs: Iterable[ModelConfig], without_folder: Set[str] = frozenset()) -> Proposals:
        """Return the proposals for these models; only ``opcost profile`` takes those without a folder."""
        found = list(configs)
        counted = frozenset(one.name for one in found if is_counted(one))
        filtered = frozenset(one.name for one in found if FILTERED_COUNTS.path(one).exists())
        of_profile = without_folder | (counted - filtered)
        wanted = {one.name: WantedModel.of(one) for one in found if one.name in of_profile}
        profiled = {name: one.words for name, one in wanted.items() if one is not None}
        return Proposals(frozenset(one.name for one in found if one.code is not None), profiled, counted, filtered)

    def command(self, step: str, names: Sequence[str], *options: str) -> str:
        return command(step, *names, *options, has_code=not self.with_code.isdisjoint(names))

    def measuring(self, names: Sequence[str], *options: str) -> str:
        """Return the command that measures these models' operators. Block 2 needs what block 1 writes."""
        blocks = [name for name in names if name not in self.profiled]
        unfiltered = [name for name in blocks if name in self.counted - self.filtered]
        steps = [self.command("filter", unfiltered)] if unfiltered else []
        steps += [self.command("measure", blocks, *options)] if blocks else []
        return " && ".join([*steps, *self.profiling(names, *options)])

    def profiling(self, names: Iterable[str], *options: str) -> list[str]:
        """Return the commands that profile those prepared for nothing else, with the options of ``opcost measure``."""
        words = [option for option in options if option not in NOT_OF_PROFILE]
        words += [] if any(option in DURATIONS for option in options) else ["--seconds", f"{FULL_LOOP_S:g}"]
        return [command("profile", *self.profiled[name], *words) for name in names if name in self.profiled]


NO_PROPOSALS = Proposals()
