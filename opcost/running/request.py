"""What a user asks of a stage: which models, which device, which folders; and where each file is."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from opcost.errors import UserError
from opcost.operators.counts import OperatorCounts
from opcost.operators.tuples import OperatorTuple, model_operator
from opcost.operators.whitelist import select
from opcost.storage.configs import ModelConfig, load_configs, load_whitelist
from opcost.storage.counts_file import read_counts
from opcost.storage.database import Database

BLOCK_0 = "general_pipeline_block0.py"
BLOCK_1 = "general_pipeline_block1.py"
FULL_MODEL_SCRIPT = "full_model_measurement.py"

WHITELIST = "operator_whitelist.yml"

Check: TypeAlias = Callable[[ModelConfig], list[str]]


@dataclass(frozen=True)
class Request:
    """The arguments that all stages share. ``device`` is None for a GPU if there is one, else the CPU.

    ``same_board`` says that rows of other boards do not count as measured.
    """

    names: tuple[str, ...]
    measurements: Path
    database: Database
    device: str | None = None
    dry_run: bool = False
    same_board: bool = False

    @staticmethod
    def from_arguments(arguments: Namespace) -> Request:
        """Return the request that a pipeline script's command line makes."""
        return Request(
            tuple(arguments.names),
            arguments.measurements,
            Database(arguments.database),
            arguments.device,
            arguments.dry_run,
            arguments.same_board,
        )

    def configs(self, check: Check | None = None) -> list[ModelConfig]:
        """Return the configs that are named, done or not; all if none is named.

        Args:
            check: returns a line for each further mistake in a config.

        Raises:
            UserError: with one line for each mistake in any of them.
        """
        return load_configs(self.measurements, self.names, check)

    def open_configs(self, check: Check | None = None) -> list[ModelConfig]:
        """Return the configs that are named, done or not; all that are not done if none is named."""
        return [config for config in self.configs(check) if self.names or not config.done]

    def whitelist(self) -> tuple[str, ...]:
        """Return the operator names of the whitelist."""
        return load_whitelist(self.measurements / WHITELIST)

    def whitelist_if_any(self) -> tuple[str, ...] | None:
        """Return the operator names of the whitelist, None if there is no such file."""
        return self.whitelist() if (self.measurements / WHITELIST).exists() else None


def model_tuple(config: ModelConfig) -> OperatorTuple:
    """Return the tuple that describes a config's model as a whole."""
    return model_operator(config.model_name, config.weights_name, config.input_size, config.seed)


@dataclass(frozen=True)
class CountsFile:
    """A kind of pickle that a model's folder may hold, and the script that writes it."""

    file_name: str
    made_by: str

    def path(self, config: ModelConfig) -> Path:
        """Return where the file of this kind is for a model."""
        return config.path.parent / self.file_name

    def read(self, config: ModelConfig) -> OperatorCounts:
        """Return a model's counts.

        Raises:
            UserError: they are missing, damaged, or of another model, input size or composites than the config's.
        """
        counts = read_counts(self.path(config), self.scripts(config.name, is_counted(config)))
        if counts.model == model_tuple(config) and counts.composites == config.composites:
            return counts
        remedy = f"run {self.scripts(config.name, counted_before=False)}"
        composites = f" with {', '.join(counts.composites) or 'no'} composites of its own"
        made_for = f"{counts.model}{'' if counts.composites == config.composites else composites}"
        raise UserError(f"{self.path(config)}: made for {made_for}, which is no longer what summary.yml says; {remedy}")

    def scripts(self, arguments: str, counted_before: bool) -> str:
        """Return the commands that make the file, with block 0 where it has not run."""
        scripts = dict.fromkeys([self.made_by] if counted_before else [BLOCK_0, self.made_by])
        return " and ".join(f"{script} {arguments}".strip() for script in scripts)


COUNTS = CountsFile("operators.pkl", BLOCK_0)
FILTERED_COUNTS = CountsFile("operators_filtered.pkl", BLOCK_1)


def is_counted(config: ModelConfig) -> bool:
    """Return whether block 0 has counted a model."""
    return COUNTS.path(config).exists()


def counted(request: Request, configs: list[ModelConfig], kind: CountsFile) -> list[tuple[ModelConfig, OperatorCounts]]:
    """Return the configs with their counts.

    Where the user named models, each must have counts. Where none is named, those without, and those whose counts are
    wrong, are left out with a warning.

    Raises:
        UserError: with one line for each model whose counts are missing or wrong.
    """
    wanted = configs if request.names else [config for config in configs if kind.path(config).exists()]
    found: list[tuple[ModelConfig, OperatorCounts]] = []
    mistakes: list[str] = []
    for config in wanted:
        try:
            found.append((config, kind.read(config)))
        except UserError as error:
            mistakes.extend(error.lines)
    _leave_out(mistakes, unless=bool(request.names) or not found)
    if configs and not found:
        scripts = kind.scripts("", any(map(is_counted, configs)))
        raise UserError(f"{request.measurements}: no model has an {kind.file_name} yet; run {scripts} first")
    if len(wanted) < len(configs):
        text = "%d models have no %s yet and are left out; %s makes it"
        logging.getLogger(__name__).warning(text, len(configs) - len(wanted), kind.file_name, kind.made_by)
    return found


def _leave_out(mistakes: list[str], unless: bool) -> None:
    """Warn of models that are left out for a mistake, unless that is more than the user would want."""
    if mistakes and unless:
        raise UserError(*mistakes)
    for mistake in mistakes:
        logging.getLogger(__name__).warning("left out: %s", mistake)


@dataclass(frozen=True)
class SelectedModel:
    """A config with what the whitelist keeps of its counts, and what it drops, None where block 0's are not here."""

    config: ModelConfig
    kept: OperatorCounts
    dropped: OperatorCounts | None


def selected(
    request: Request, configs: list[ModelConfig], shipped: Mapping[str, OperatorCounts] | None = None
) -> list[SelectedModel]:
    """Return the configs with their filtered counts, if these are not empty (they would be done at once) and what the
    whitelist keeps.

    Where none is named, the others are left out with a warning.

    Args:
        request: which models.
        configs: theirs.
        shipped: counts by the config's name that stand for pickles; see ``shipped_counts``.

    Raises:
        UserError: with one line for each model that is named or, where no other is left, found.
    """
    found = _shipped(request, configs, shipped) if shipped else []
    pickled = [config for config in configs if not shipped or config.name not in shipped]
    if found and not (request.names or any(FILTERED_COUNTS.path(config).exists() for config in pickled)):
        return found
    return sorted([*found, *_pickled(request, pickled)], key=lambda model: model.config.name)


def _pickled(request: Request, configs: list[ModelConfig]) -> list[SelectedModel]:
    models = counted(request, configs, FILTERED_COUNTS)
    whitelist = request.whitelist() if any(COUNTS.path(config).exists() for config, _ in models) else ()
    found: list[SelectedModel] = []
    mistakes: list[str] = []
    for config, kept in models:
        path = FILTERED_COUNTS.path(config)
        selection = select(COUNTS.read(config), whitelist) if COUNTS.path(config).exists() else None
        if not kept.counts:
            mistakes.append(f"{path}: the whitelist keeps no operator; mend it and run {BLOCK_1} {config.name}")
        elif selection is not None and selection.kept != kept:
            mistakes.append(f"{path}: no longer what the whitelist keeps of operators.pkl; run {BLOCK_1} {config.name}")
        else:
            found.append(SelectedModel(config, kept, None if selection is None else selection.dropped))
    _leave_out(mistakes, unless=bool(request.names) or not found)
    return found


def _shipped(
    request: Request, configs: list[ModelConfig], shipped: Mapping[str, OperatorCounts]
) -> list[SelectedModel]:
    whitelist = request.whitelist()
    selections = [(config, select(shipped[config.name], whitelist)) for config in configs if config.name in shipped]
    return [SelectedModel(config, selection.kept, selection.dropped) for config, selection in selections]
