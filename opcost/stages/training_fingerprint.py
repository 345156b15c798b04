"""A hash of all that learned costs depend on, so that what was learned is used again until one of these changes.

Only rows under the conditions are among it: a new row in another precision, on another card or in another execution
trains nothing again. Lines are hashed as they are, since parsing all takes as long as half of the reading.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import opcost
from opcost.comparing.cache_corrections import corrections_under
from opcost.measuring.conditions import Conditions
from opcost.prediction.features import feature_names
from opcost.storage.database import Database
from opcost.storage.table import CsvTable

LEARNING_VERSION = 6
"""The version of what is learned from the same rows. It grows with each change of methods or intervals."""


def training_fingerprint(database: Database, conditions: Conditions, models: Iterable[str] = ()) -> str:
    """Return 16 hexadecimal digits that depend on the rows under these conditions, and on the version.

    Args:
        database: with rows under any conditions.
        conditions: those that are learned.
        models: the keys of those whose wholes are learned from.

    Raises:
        UserError: the table of cache chains is damaged.
    """
    version = f"{opcost.__version__} {LEARNING_VERSION} {conditions.key} {feature_names()} {sorted(models)}"
    found = hashlib.sha256(version.encode())
    suffix = f"-{conditions.key}".encode()
    operators = set()
    for line in _lines(database.operator_measurements):
        key = line.partition(b",")[0]
        if key.endswith(suffix):
            operators.add(key.partition(b"-")[0])
            found.update(line)
    for line in _lines(database.full_model_measurements):
        if line.partition(b",")[0].endswith(suffix):
            found.update(line)
    for line in _lines(database.model_operators):
        # The second cell is the key of the model's operator.
        if line.partition(b",")[2].partition(b",")[0].partition(b"-")[0] in operators:
            found.update(line)
    found.update(repr(corrections_under(database.calls_in_chains.rows(), conditions)).encode())
    return found.hexdigest()[:16]


def _lines(table: CsvTable[Any]) -> Iterator[bytes]:
    for path in table.files:
        with path.open("rb") as file:
            yield from file
