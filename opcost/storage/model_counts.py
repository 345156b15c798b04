"""The files of counts in a model's folder: which there are, who writes them, and whether they are of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opcost.errors import UserError
from opcost.invocation import command
from opcost.operators.counts import OperatorCounts
from opcost.operators.model_names import FINGERPRINT
from opcost.operators.model_rows import ModelOperatorRow
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import OperatorTuple
from opcost.storage.configs import ModelConfig, model_tuple
from opcost.storage.counts_file import read_counts
from opcost.storage.table import CsvTable


@dataclass(frozen=True)
class CountsFile:
    """A kind of pickle in a model's folder, the subcommand that writes it, and the state of a model that has it."""

    file_name: str
    made_by: str
    state: str

    def path(self, config: ModelConfig) -> Path:
        return config.folder / self.file_name

    def read(self, config: ModelConfig) -> OperatorCounts:
        """Return a model's counts. Raises UserError: they are missing, damaged, or not those of the config."""
        has_code = config.code is not None
        counts = read_counts(self.path(config), self.commands([config.name], is_counted(config), has_code))
        if counts.model == model_tuple(config) and counts.composites == config.composites:
            return counts
        if config.grid is not None:
            change = f"made for another {config.path.name}, which has changed since"
        elif config.code is not None:
            is_same_code = dict(counts.model.parameters).get(FINGERPRINT) == config.code.fingerprint
            changed = "summary.yml" if is_same_code else config.code.named_files
            change = f"{changed} has changed since it was counted"
        else:
            composites = f" (composites: {', '.join(counts.composites) or 'none'})"
            made_for = f"{counts.model}{'' if counts.composites == config.composites else composites}"
            change = f"made for {made_for}, but summary.yml has changed since"
        remedy = f"run {self.commands([config.name], counted_before=False, has_code=has_code)}"
        raise UserError(f"{self.path(config)}: {change}; {remedy}")

    def commands(self, names: Sequence[str], counted_before: bool, has_code: bool) -> str:
        """Return the commands that write these models' files, with block 0 unless it has run."""
        steps = dict.fromkeys([self.made_by] if counted_before else [COUNTS.made_by, self.made_by])
        return " and ".join(command(step, *names, has_code=has_code) for step in steps)


COUNTS = CountsFile("operators.pkl", "count", "counted")
FILTERED_COUNTS = CountsFile("operators_filtered.pkl", "filter", "filtered")


def is_counted(config: ModelConfig) -> bool:
    return COUNTS.path(config).exists()


def has_changed_code(config: ModelConfig, table: CsvTable[ModelOperatorRow]) -> bool:
    """Return whether a model was counted with other code of the user's. Raises UserError: the table is damaged."""
    if config.code is None:
        return False
    models: list[OperatorTuple] = []
    try:
        models.append(read_counts(COUNTS.path(config), "").model)
    except UserError:
        rows = (row for row in table.rows() if row.model == config.name and row.key.startswith(row.model_key))
        models += [parse_operator(row.operator, row.parameters, row.inputs, row.training_mode) for row in rows]
    fingerprints = {dict(model.parameters).get(FINGERPRINT) for model in models}
    return bool(models) and config.code.fingerprint not in fingerprints
