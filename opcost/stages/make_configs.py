"""Configs: one ``summary.yml`` for each model of torchvision at its published input size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opcost.operators.tuples import DEFAULT_SEED
from opcost.sources.torchvision import is_data_dependent, models_matching, published_input_size
from opcost.stages.config_templates import config_name, config_text
from opcost.storage.configs import SUMMARY_NAME
from opcost.storage.files import replace_file


@dataclass(frozen=True)
class ConfigReport:
    """A model's config: where it is, and whether it was made now or was there already."""

    name: str
    path: str
    made: bool


def make_configs(measurements: Path, patterns: Sequence[str], dry_run: bool = False) -> list[ConfigReport]:
    """Write the configs that are lacking; those that are there stay as they are.

    Args:
        measurements: the folder in which each model has its own.
        patterns: names of models or globs; none chooses all.
        dry_run: write nothing.

    Raises:
        UserError: a pattern matches no model.
    """
    return [_make_config(measurements, model_name, dry_run) for model_name in models_matching(patterns)]


def _make_config(measurements: Path, model_name: str, dry_run: bool) -> ConfigReport:
    input_size = published_input_size(model_name)
    name = config_name(model_name, input_size)
    path = measurements / name / SUMMARY_NAME
    is_lacking = not path.exists()
    if is_lacking and not dry_run:
        seed = DEFAULT_SEED if is_data_dependent(model_name) else None
        replace_file(path, config_text(model_name, input_size, seed).encode())
    return ConfigReport(name, str(path), is_lacking)
