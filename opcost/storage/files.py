"""Atomic replacement of a file: a reader finds the old content or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a temporary file beside ``path``, sync it to disk, and move it into place; the file's mode is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(temporary_name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), _mode_of(path))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777 if path.exists() else 0o644
