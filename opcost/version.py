"""The version of opcost, which ``pyproject.toml`` reads and rows name, and those of other packages."""

from __future__ import annotations

__version__ = "0.3.0"


def version_of(package: str) -> str | None:
    """Return the version of an installed package, None without it."""
    # It takes 10 ms.
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
