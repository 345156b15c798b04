"""Models that have a config already, and the counts that block 0 wrote for them. None of this imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opcost.errors import UserError
from opcost.invocation import command
from opcost.measuring.conditions import CONTIGUOUS, TORCH_DEFAULT
from opcost.operators.counts import OperatorCounts
from opcost.operators.model_names import ModelName
from opcost.running.request import COUNTS
from opcost.sources.published import published_models
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import ModelConfig, case_name
from opcost.storage.model_folders import ModelFolders
from opcost.units import some_of


def known_config(folders: ModelFolders, wanted: WantedModel, batch: int | None) -> ModelConfig | None:
    """Return the config with the name of a model, or the one in its usual folder that describes it; else None.

    A name without its size means a case if there is one of the wanted precision and memory format, or only one. A
    config that describes the model in another folder is not looked for. ``batch`` replaces that of the published or
    given input size; None leaves it.

    Raises:
        UserError: the config of this name has a mistake, or several cases.
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
        found = [config for config in cases_in(folders, usual_name(complete)) if complete.is_described_by(config)]
        return replace(found[0], given_by=wanted.option_for) if found else None
    if replace(wanted, precision=plain.precision, memory_format=plain.memory_format) != plain:
        return None
    meant = [one for one in cases_in(folders, name) if folders.is_meant(one, name) and batch in (None, one.batch_size)]
    how = wanted.precision, wanted.memory_format
    alike = [one for one in meant if (one.precision, one.memory_format) == how] or (meant if wanted == plain else [])
    return _only_case(alike, name, f"{wanted.where('model_name')}: ")


def _only_case(configs: Sequence[ModelConfig], name: str, place: str) -> ModelConfig | None:
    if len(configs) > 1:
        names = some_of([config.name for config in configs])
        raise UserError(f"{place}{name} has {len(configs)} cases; name one of them: {names}")
    return configs[0] if configs else None


def usual_name(complete: WantedModel) -> str:
    """Return the usual name of the folder of a model with its size; another model may have it."""
    precision = None if complete.precision == TORCH_DEFAULT else complete.precision
    memory_format = None if complete.memory_format == CONTIGUOUS else complete.memory_format
    return case_name(complete.base_name, complete.input_size or None, precision, memory_format)


def config_named(folders: ModelFolders, wanted: WantedModel) -> ModelConfig | None:
    """Return the config that a model's name means, None if there is none, or if options say more than the name.

    Raises:
        UserError: the config has a mistake, or several cases.
    """
    if wanted != WantedModel(wanted.model_name):
        return None
    configs = named_configs(folders, wanted.model_name)
    return _only_case(configs, wanted.model_name, f"{configs[0].path}: " if configs else "")


def named_configs(folders: ModelFolders, name: str) -> list[ModelConfig]:
    """Return the cases of the config with a name, or the case with this name; none if there is neither.

    Raises:
        UserError: the config has a mistake.
    """
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
    try:
        return folders.read(folders.that_may_have(name))[0]
    except UserError:
        return []


def pickled(config: ModelConfig, shipped: OperatorCounts | None) -> OperatorCounts | None:
    """Return the counts of block 0 with paths, None if the model is to be run.

    Raises:
        UserError: there are no others, and they are damaged, or of an earlier version, which kept no paths.
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
