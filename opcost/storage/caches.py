"""Files that can be made again, in the user's cache folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from opcost.storage.files import replace_file
from opcost.storage.user_folders import xdg_folder

MAXIMUM_BYTES = 200 * 10**6
"""The largest file that is read; larger ones were not written by ``keep``."""


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder: ``$XDG_CACHE_HOME/opcost``, usually ``~/.cache/opcost``."""
    return xdg_folder(os.environ if environment is None else environment, "XDG_CACHE_HOME", ".cache") / "opcost"


def kept(name: str, folder: Path) -> bytes | None:
    """Return the content of a file, None if there is none or it cannot be read."""
    path = folder / name
    with suppress(OSError):
        if path.is_file() and path.stat().st_size <= MAXIMUM_BYTES:
            return path.read_bytes()
    return None


def keep(name: str, content: bytes, folder: Path, replaced: str) -> None:
    """Write a file, and remove the others that match a pattern; nothing happens if the folder cannot be written.

    Args:
        name: of the file.
        content: of the file.
        folder: made if it does not exist.
        replaced: a pattern of names, such as ``a-*``.
    """
    with suppress(OSError):
        replace_file(folder / name, content)
        for path in folder.glob(replaced):
            if path.name != name:
                path.unlink(missing_ok=True)
