"""The parts of a row's key: the hashes of its operator tuple, its input data and its conditions, joined by hyphens.

``tuples.OperatorTuple.key``, ``cases.Case.key`` and ``conditions.measurement_key`` put keys together.
"""

from __future__ import annotations

SEPARATOR = "-"


def tuple_key(key: str) -> str:
    """Return the key of the operator tuple in the key of a row or of a case."""
    return key.partition(SEPARATOR)[0]


def case_key(key: str) -> str:
    """Return the key of the case, operator tuple and input data, in the key of a row."""
    return key.rpartition(SEPARATOR)[0]


def conditions_key(key: str) -> str:
    """Return the key of the conditions in the key of a row."""
    return key.rpartition(SEPARATOR)[2]
