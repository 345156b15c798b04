"""Whether a user's code has changed since its model was counted: then ``done`` in its config holds no longer."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from opcost.errors import UserError
from opcost.operators.model_names import FINGERPRINT
from opcost.operators.model_rows import ModelOperatorRow
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import OperatorTuple
from opcost.storage.configs import ModelConfig
from opcost.storage.counts_file import read_counts
from opcost.storage.table import CsvTable


def has_changed_code(config: ModelConfig, pickle: Path, table: CsvTable[ModelOperatorRow]) -> bool:
    """Return whether a model was counted with other code of the user's than the present one.

    Args:
        config: the model's.
        pickle: the model's counts, which need not exist.
        table: counts in the database, which are asked if there is no pickle.

    Raises UserError: the table is damaged.
    """
    if config.code is None:
        return False
    counted = {dict(model.parameters).get(FINGERPRINT) for model in _counted(config, pickle, table)}
    return bool(counted) and config.code.fingerprint not in counted


def _counted(config: ModelConfig, pickle: Path, table: CsvTable[ModelOperatorRow]) -> Iterable[OperatorTuple]:
    with suppress(UserError):
        return [read_counts(pickle, "").model]
    rows = (row for row in table.rows() if row.model == config.name and row.key.startswith(row.model_key))
    return [parse_operator(row.operator, row.parameters, row.inputs, row.training_mode) for row in rows]
