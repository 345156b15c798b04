"""The version of opcost; ``pyproject.toml`` reads it, and rows name it."""

from __future__ import annotations

__version__ = "0.3.0"


def installed_version(package: str) -> str | None:
    # Importing it takes longer than most commands need.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
