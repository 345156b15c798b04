"""The folders that a command reads and writes: those that the user named, or the user's home beside the shipped ones.

Standard library only, so that a run's log can begin before anything is installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opcost.errors import UserError
from opcost.shipped import shipped_database, shipped_measurements

HOME_VARIABLE = "OPCOST_HOME"
HOME_FILE = Path("opcost", "home")
"""The file in the user's configuration folder whose one line is the home."""

DEFAULT_HOME = Path("opcost")
"""The home in the user's data folder if no other is named."""


@dataclass(frozen=True)
class UserFolders:
    """The folders that are written, and the shipped ones that are read as well.

    A shipped one is None if it is the same, unused, or not there.
    """

    measurements: Path
    database: Path
    shipped_measurements: Path | None = None
    shipped_database: Path | None = None


def user_folders(
    home: Path | None = None,
    measurements: Path | None = None,
    database: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> UserFolders:
    """Return the folders for these options.

    Args:
        home: the folder that has ``measurements`` and ``database``. Shipped files are read beside both.
        measurements: the only folder of models, instead of the home's and the shipped one.
        database: the only folder of tables, likewise.
        environment: the environment's variables, None for this process's.

    Raises:
        UserError: the file that names the home is damaged, or the variable has an unknown home.
    """
    base = home if home is not None else _home(os.environ if environment is None else environment)
    own_models, own_tables = measurements or base / "measurements", database or base / "database"
    return UserFolders(
        own_models,
        own_tables,
        _beside(own_models, shipped_measurements()) if measurements is None else None,
        _beside(own_tables, shipped_database()) if database is None else None,
    )


def _home(environment: Mapping[str, str]) -> Path:
    """Return the home that the environment or the file names, else the default one."""
    if environment.get(HOME_VARIABLE):
        return path_of(environment[HOME_VARIABLE])
    file = xdg_folder(environment, "XDG_CONFIG_HOME", ".config") / HOME_FILE
    if not file.exists():
        return xdg_folder(environment, "XDG_DATA_HOME", ".local/share") / DEFAULT_HOME
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({error}); make it readable, or delete it") from None
    if len(lines) != 1 or not Path(os.path.expanduser(lines[0])).is_absolute():
        raise UserError(f"{file}: not one line with an absolute path; write the path of the folder, or delete the file")
    return Path(os.path.expanduser(lines[0]))


def path_of(text: str) -> Path:
    """Return the path of a user's text, in which ``~`` and ``~name`` at the beginning are homes.

    Raises:
        UserError: there is no such home.
    """
    path = os.path.expanduser(text)
    if path.startswith("~"):
        raise UserError(f"{text}: no home of {text.partition('/')[0]} is known; write the whole path, or ./{text}")
    return Path(path)


def xdg_folder(environment: Mapping[str, str], variable: str, default: str) -> Path:
    """Return a folder of the XDG base directory specification, which ignores relative paths."""
    named = Path(environment.get(variable, ""))
    return named if named.is_absolute() else Path(environment.get("HOME") or Path.home()) / default


def _beside(own: Path, shipped: Path) -> Path | None:
    """Return a shipped folder that is read beside one's own; None if it is the same, or not there.

    A copy of the package alone has none.
    """
    is_same = os.path.realpath(own) == os.path.realpath(shipped)
    return None if is_same or not shipped.is_dir() else shipped
