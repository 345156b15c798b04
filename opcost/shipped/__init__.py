"""The rows and configs that opcost ships: read-only defaults.

In the repository ``opcost/shipped`` has links to the folders ``database`` and ``measurements`` and to the citation. A
wheel has copies of their tables, configs and whitelist.
"""

from __future__ import annotations

from pathlib import Path


def shipped_database() -> Path:
    """Return the folder of the shipped tables; in a checkout it is the repository's ``database``."""
    return _path("database")


def shipped_measurements() -> Path:
    """Return the folder of the shipped configs and whitelist; in a checkout it is the repository's ``measurements``."""
    return _path("measurements")


def citation() -> Path:
    """Return the file that says how to cite opcost and its rows."""
    return _path("CITATION.cff")


def _path(name: str) -> Path:
    return Path(__file__).with_name(name).resolve()
