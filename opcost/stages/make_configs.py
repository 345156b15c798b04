"""Configs: one for each model of a source with its published input size, or one for a model to profile.

The latter is an existing one with the same content, else a new one in the user's folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from opcost.errors import CannotMeasureError, UserError
from opcost.invocation import command
from opcost.operators.generation import is_generating, keys_of
from opcost.operators.model_names import TORCHVISION, TRANSFORMERS, ModelName
from opcost.operators.tuples import DEFAULT_SEED, Structure, model_operator
from opcost.sources.port import ListedModel
from opcost.sources.registry import check_config, check_that_code_may_run, models_matching, source_of, with_usual_size
from opcost.stages.wanted_model import WantedModel, config_named, placed, usual_name
from opcost.storage.code_files import find_code
from opcost.storage.configs import INPUTS_HELP, SUMMARY_NAME, ModelConfig, ModelFolders, is_glob, write_config
from opcost.storage.files import replace_file
from opcost.storage.language_models import public_models
from opcost.storage.model_counts import COUNTS
from opcost.storage.schemas import mistake_of_precision, tree_text
from opcost.units import is_one_line

TEMPLATE = """\
# One model at one input size. docs/usage.md explains the keys under "Configs".
# Programs change only "done": they set it to true when the measurement is complete.
model_name: {model_name}
weights_name: null # null: random weights
{size}done: false
"""


@dataclass(frozen=True)
class ConfigReport:
    """A model's config: its path, and whether it was made now or existed already."""

    name: str
    path: str
    made: bool


def make_configs(folders: ModelFolders, patterns: Sequence[str], dry_run: bool = False) -> list[ConfigReport]:
    """Write the missing configs; a ``UserError`` for a pattern of names without a model, or without a usual size."""
    reports = []
    for model in with_usual_size(models_matching(patterns)):
        # A colon in a path means a host to programs such as rsync and scp.
        name = f"{model.name.replace(':', '_')}_{'x'.join(map(str, model.input_size))}"
        path = folders.path_of(name)
        is_missing = not path.exists()
        if is_missing and not dry_run:
            write_config(path, config_text(model.name, model.input_size, model.is_data_dependent))
        reports.append(ConfigReport(name, str(path), is_missing))
    return reports


def config_text(
    model_name: str, input_size: Sequence[int], is_data_dependent: bool, more: Mapping[str, object] | None = None
) -> str:
    """Return the text of a config with random weights, with the seed if work depends on it, and ``more`` plain keys."""
    size = f"input_size: {list(input_size)} # batch first\n" if input_size else ""
    # In quotes if it is a path that is no plain text in YAML.
    name = yaml.safe_dump(model_name, allow_unicode=True, width=2**31).removesuffix("\n").removesuffix("\n...")
    text = TEMPLATE.format(model_name=name, size=size)
    if is_data_dependent:
        text += f"seed: {DEFAULT_SEED} # of random weights and input: the operators of this model depend on them\n"
    return text + "".join(f"{key}: {value}\n" for key, value in (more or {}).items())


def configs_of(folders: ModelFolders, wanted: Sequence[WantedModel], allow_code: bool = False) -> list[ModelConfig]:
    """Return the config of each model, written if there is none; a ``UserError`` writes nothing."""
    return [config for config, _ in found_or_written(folders, wanted, allow_code)]


def found_or_written(
    folders: ModelFolders, wanted: Sequence[WantedModel], allow_code: bool = False
) -> list[tuple[ModelConfig, bool]]:
    """Return what ``configs_of`` does, each config with whether it was written by this call."""
    complete = [_complete(folders, one, allow_code) for one in wanted]
    known = own_first(folders)
    found = []
    for (model, listed), given in dict(zip(complete, wanted, strict=True)).items():
        existing = _existing(folders, model, known, given)
        config = _written(folders, model, listed, given) if existing is None else existing
        found.append((config, existing is None))
    return found


def _complete(folders: ModelFolders, wanted: WantedModel, allow_code: bool) -> tuple[WantedModel, ListedModel]:
    _refuse_unshown(wanted, wanted.model_name)
    if wanted.training is not None and (text := mistake_of_precision(wanted.training, wanted.precision)):
        raise UserError(f"{wanted.where('precision')}: {text}")
    language_model = wanted.model_name.rpartition("/")[2].lower()
    if language_model in public_models():
        costs = f"{command('tokens', language_model)} has what its tokens cost"
        raise UserError(f"{wanted.where('model_name')}: {wanted.model_name} is known as a language model only; {costs}")
    mistakes = check_config(wanted) if allow_code else check_that_code_may_run(wanted)
    if mistakes:
        config = _config_named(folders, wanted)
        raise UserError(*(mistakes if config is None else [_is_a_config(wanted, config)]))
    if (code := wanted.code()) is not None:
        # It imports torch.
        from opcost.sources.python_file import facts_of

        _refuse_unshown(wanted, code.path)
        return replace(wanted, model_name=placed(code)), facts_of(code.function)
    operator = model_operator(wanted.model_name, None, wanted.input_size)
    listed = source_of(operator).listed(operator.short_name)
    size = wanted.input_size or listed.input_size
    if not size:
        remedy = f"add --input-size 8x3x224x224, or {INPUTS_HELP}"
        raise UserError(f"{wanted.model_name}: its input size is not published; {remedy}")
    return replace(wanted, input_size=tuple(size)), listed


def _refuse_unshown(wanted: WantedModel, name: str) -> None:
    if not is_one_line(name):
        text = f"{name!r} has characters that cannot be shown; rename the folder or the file"
        raise UserError(f"{wanted.where('model_name')}: {text}")


def _config_named(folders: ModelFolders, wanted: WantedModel) -> ModelConfig | None:
    name = wanted.model_name
    if ModelName.of(name).source != TORCHVISION or is_glob(name):
        return None
    operator = model_operator(name, None, ())
    try:
        source_of(operator).listed(operator.short_name)
    except CannotMeasureError:
        with suppress(UserError):
            return folders.configs([name])[0]
    return None


def _is_a_config(wanted: WantedModel, config: ModelConfig) -> str:
    """Return the line for a config's name: the commands that take it, or the profile of its model with its keys."""
    name, has_code = wanted.model_name, config.code is not None
    same = WantedModel.of(config)
    if name == config.name and not has_code and same is not None:
        remedy = f"run {command('profile', *same.words)}"
    else:
        whole = ((), ()) if config.grid is not None else (("--whole",), (("compare", name),))
        steps = (("count", name), ("filter", name), ("measure", name, *whole[0]), *whole[1])
        remedy = f"these take it: {' && '.join(command(*step, has_code=has_code) for step in steps)}"
    return f"{wanted.where('model_name')}: {name} is a config ({config.path}) and no model; {remedy}"


def own_first(folders: ModelFolders) -> list[ModelConfig]:
    """Return the cases without a mistake of all folders, those of the own folder first."""
    return sorted(folders.sound_configs(), key=lambda config: not config.path.is_relative_to(folders.own))


def _existing(
    folders: ModelFolders, wanted: WantedModel, known: Sequence[ModelConfig], given: WantedModel
) -> ModelConfig | None:
    for config in known:
        if wanted.is_described_by(config) and folders.configs([config.name]) == [config]:
            return replace(config, given_by=given.option_for)
    return None


def _written(folders: ModelFolders, wanted: WantedModel, listed: ListedModel, given: WantedModel) -> ModelConfig:
    """Write a config under the name that a case of one would have; with a number if another model's folder has it."""
    usual = usual_name(wanted.base_name, wanted)
    names = (usual if number == 1 else f"{usual}_{number}" for number in range(1, 1000))
    name = next(filter(folders.is_free, names))
    more, own = dict(wanted.given_keys), wanted.arguments
    if ModelName.of(wanted.model_name).source == TRANSFORMERS:
        more |= keys_of(own)
        own = tuple(one for one in own if not is_generating([one]))
    if own:
        more["arguments"] = tree_text(Structure("dict", own))
    text = config_text(wanted.model_name, wanted.input_size, listed.is_data_dependent, more)
    write_config(folders.own / name / SUMMARY_NAME, text)
    (config,) = folders.configs([name])
    return replace(config, given_by=given.option_for)


@contextmanager
def scratch_folder(folders: ModelFolders, wanted: Sequence[WantedModel]) -> Iterator[ModelFolders]:
    """Yield these folders with a temporary own one, which has the user's configs and counts of these models."""
    names = set()
    for one in wanted:
        named, name = ModelName.of(one.model_name), one.model_name
        # A config has the place of the file; that there is no such file is reported later.
        with suppress(UserError):
            name = placed(find_code(named, Path.cwd())) if named.is_file else name
        names.add(name)
    own = [one for one in own_first(folders) if one.model_name in names] if names else []
    with tempfile.TemporaryDirectory(prefix="opcost-") as folder:
        for path in [path for config in own for path in (config.path, COUNTS.path(config))]:
            if path.exists() and path.is_relative_to(folders.own):
                replace_file(Path(folder) / path.relative_to(folders.own), path.read_bytes())
        existing = folders.own.iterdir() if folders.own.is_dir() else ()
        yield replace(folders, own=Path(folder), taken=frozenset(path.name for path in existing))


def config_of(
    folders: ModelFolders, wanted: WantedModel, allow_code: bool, known: Sequence[ModelConfig] | None = None
) -> ModelConfig:
    """Return the config with the name of the model, else the one that describes the model, perhaps not written.

    ``known`` are those of ``own_first``, None to read them.
    """
    named = config_named(folders, wanted)
    if named is not None:
        return named
    model, listed = _complete(folders, wanted, allow_code)
    existing = _existing(folders, model, own_first(folders) if known is None else known, wanted)
    if existing is not None:
        return existing
    with scratch_folder(folders, []) as scratch:
        # No shipped config describes the model, so none is read again.
        taken = scratch.taken.union(folders.shipped_names())
        return _written(replace(scratch, shipped=None, taken=taken), model, listed, wanted)
