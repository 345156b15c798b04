"""The folder for temporary files. Standard library only, as the frame of each program is."""

from __future__ import annotations

from pathlib import Path

from opcost.errors import UserError

NO_FOLDER = "no folder for temporary files can be written; make room in /tmp, or set TMPDIR to a folder with room"


def temporary_folder() -> Path:
    """Return the folder for temporary files.

    Raises:
        UserError: none can be written.
    """
    # Few commands need it, and it takes longer to import than the frame of a program.
    import tempfile

    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        raise UserError(NO_FOLDER) from None
