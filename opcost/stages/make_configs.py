"""Configs for the models of a source: a ``summary.yml`` with the published input size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import yaml

from opcost.operators.tuples import DEFAULT_SEED
from opcost.sources.registry import models_matching, with_usual_size
from opcost.storage.configs import write_config
from opcost.storage.model_folders import ModelFolders

TEMPLATE = """\
# One model at one input size. docs/usage.md explains the keys under "Configs".
# Programs change only "done": they set it to true when the measurement is complete.
model_name: {model_name}
weights_name: null # null: random weights
{size}done: false
"""

SIZE_LINE = "input_size: {input_size} # batch first\n"

SEED_LINE = "seed: {seed} # of random weights and input: the operators of this model depend on them\n"

NO_KEYS: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True)
class ConfigReport:
    """A model's config: its path, and whether it was made now or existed already."""

    name: str
    path: str
    made: bool


def make_configs(folders: ModelFolders, patterns: Sequence[str], dry_run: bool = False) -> list[ConfigReport]:
    """Write the missing configs; existing ones are not changed.

    ``patterns`` are names of models or globs; if there are none, all models are meant. Raises UserError: a pattern
    matches no model, or no model has a usual input size.
    """
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
    model_name: str, input_size: Sequence[int], is_data_dependent: bool, more: Mapping[str, object] = NO_KEYS
) -> str:
    """Return the text of a config with random weights.

    The input size is empty if a user's function returns the inputs. The seed is written if the model's work depends on
    it (``is_data_dependent``). ``more`` are further keys with their values, in plain YAML.
    """
    size = SIZE_LINE.format(input_size=list(input_size)) if input_size else ""
    # In quotes if it is a path that is no plain text in YAML.
    name = yaml.safe_dump(model_name, allow_unicode=True, width=2**31).removesuffix("\n").removesuffix("\n...")
    text = TEMPLATE.format(model_name=name, size=size)
    text += SEED_LINE.format(seed=DEFAULT_SEED) if is_data_dependent else ""
    return text + "".join(f"{key}: {value}\n" for key, value in more.items())
