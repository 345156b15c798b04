"""What a user asks of a stage: which models, which device, which folders; and where each file is."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from opcost.config_files import ModelConfig, load_configs, load_whitelist
from opcost.errors import UserError
from opcost.operators import OperatorCounts, OperatorTuple, model_operator
from opcost.pickle_files import read_counts

BLOCK_0 = "general_pipeline_block0.py"
BLOCK_1 = "general_pipeline_block1.py"
FULL_MODEL_SCRIPT = "full_model_measurement.py"

WHITELIST = "operator_whitelist.yml"
OPERATOR_MEASUREMENTS = "operator_measurements.csv"
FULL_MODEL_MEASUREMENTS = "full_model_measurements.csv"
FAILURES = "failures.csv"
SUM_VS_FULL = "sum_vs_full.csv"


@dataclass(frozen=True)
class Request:
    """The arguments that all stages share. ``device`` is None for a GPU if there is one, else the CPU."""

    names: tuple[str, ...]
    measurements: Path
    database: Path
    device: str | None = None
    dry_run: bool = False

    @staticmethod
    def from_arguments(arguments: Namespace) -> Request:
        """Return the request that a pipeline script's command line makes."""
        return Request(
            tuple(arguments.names), arguments.measurements, arguments.database, arguments.device, arguments.dry_run
        )

    def configs(self) -> list[ModelConfig]:
        """Return the configs that are named, done or not; all if none is named.

        Raises:
            UserError: with one line for each mistake in any of them.
        """
        return load_configs(self.measurements, self.names)

    def open_configs(self) -> list[ModelConfig]:
        """Return the configs that are named, done or not; all that are not done if none is named."""
        return [config for config in self.configs() if self.names or not config.done]

    def whitelist(self) -> tuple[str, ...]:
        """Return the operator names of the whitelist."""
        return load_whitelist(self.measurements / WHITELIST)


def model_tuple(config: ModelConfig) -> OperatorTuple:
    """Return the tuple that describes a config's model as a whole."""
    return model_operator(config.model_name, config.weights_name, config.input_size)


def counts_file(config: ModelConfig) -> Path:
    """Return where block 0 puts a model's counts."""
    return config.path.parent / "operators.pkl"


def filtered_counts_file(config: ModelConfig) -> Path:
    """Return where block 1 puts a model's filtered counts."""
    return config.path.parent / "operators_filtered.pkl"


def read_all_counts(configs: list[ModelConfig]) -> list[OperatorCounts]:
    """Return the counts that block 0 made for these configs, all mistakes told at once."""
    return _read_all([(config, counts_file(config), BLOCK_0) for config in configs])


def read_all_filtered_counts(configs: list[ModelConfig]) -> list[OperatorCounts]:
    """Return the counts that block 1 made for these configs, all mistakes told at once."""
    return _read_all([(config, filtered_counts_file(config), BLOCK_1) for config in configs])


def _read_all(wanted: list[tuple[ModelConfig, Path, str]]) -> list[OperatorCounts]:
    found: list[OperatorCounts] = []
    mistakes: list[str] = []
    for config, path, made_by in wanted:
        try:
            found.append(_read_matching(config, path, made_by))
        except UserError as error:
            mistakes.extend(error.lines)
    if mistakes:
        raise UserError(*mistakes)
    return found


def _read_matching(config: ModelConfig, path: Path, made_by: str) -> OperatorCounts:
    counts = read_counts(path, made_by)
    if counts.model != model_tuple(config):
        remedy = f"run {BLOCK_0} {config.name}" + (f" and {made_by} {config.name}" if made_by != BLOCK_0 else "")
        raise UserError(f"{path}: made for {counts.model}, which is no longer what summary.yml says; {remedy}")
    return counts
