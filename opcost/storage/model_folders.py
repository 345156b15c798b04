"""The folders of models: the user's own, where files are written, and the shipped ones, which are only read."""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from opcost.errors import UserError
from opcost.operators.tuples import SIZE_IN_NAME
from opcost.storage.config_nodes import quoted
from opcost.storage.configs import HELP, SUMMARY_NAME, ModelConfig, load_config
from opcost.storage.files import replace_file
from opcost.storage.user_folders import UserFolders
from opcost.units import some_of

_GLOB = re.compile(r"[*?\[]")

WHITELIST = "operator_whitelist.yml"

FOLDERS_SHOWN = 8
"""The most folders that a message lists."""


@dataclass(frozen=True)
class ModelFolders:
    """Folders of models, each with a ``summary.yml``, and a whitelist.

    ``own`` need not exist if there are ``shipped`` ones. A file in ``own`` replaces the shipped one of the same name.
    """

    own: Path
    shipped: Path | None = None

    @staticmethod
    def of(folders: UserFolders) -> ModelFolders:
        """Return the folders of a command."""
        return ModelFolders(folders.measurements, folders.shipped_measurements)

    def configs(
        self, patterns: Sequence[str], check: Callable[[ModelConfig], list[str]] | None = None
    ) -> list[ModelConfig]:
        """Return the chosen models, sorted by name.

        Plain files and folders whose names begin with a dot are ignored.

        Args:
            patterns: names of folders, with or without the input size, paths to them or to their ``summary.yml``, or
                globs; all folders if empty.
            check: returns one line for each further mistake in a config, see ``load_config``.

        Raises:
            UserError: with one line for each mistake in any chosen file and for each pattern that matches no folder.
        """
        names, lines = self._choose(patterns or ["*"])
        configs = []
        for name in names:
            try:
                configs.append(load_config(self.path_of(name), self.own / name, check))
            except UserError as error:
                lines.extend(error.lines)
        if lines:
            raise UserError(*lines)
        return configs

    def readable(self) -> list[ModelConfig]:
        """Return all models, sorted by name, without those whose config has a mistake, of which a warning is logged.

        Raises:
            UserError: there is no model, or all configs have a mistake.
        """
        configs: list[ModelConfig] = []
        lines: list[str] = []
        for name in self.names():
            try:
                configs.append(load_config(self.path_of(name), self.own / name))
            except UserError as error:
                lines.extend(error.lines)
        if not configs:
            raise UserError(*lines)
        for line in lines:
            logging.getLogger(__name__).warning("left out: %s", line)
        return configs

    def names(self) -> list[str]:
        """Return the names of all models' folders, sorted.

        Raises:
            UserError: there are none, or they cannot be listed.
        """
        names = set() if self.shipped is None else set(_folder_names(self.shipped))
        if self.shipped is None or self.own.is_dir():
            names.update(_folder_names(self.own))
        if not names:
            raise UserError(f"{self.own}: contains no model's folder; add one ({HELP})")
        return sorted(names)

    def matches(self, pattern: str) -> list[str]:
        """Return the names of the models' folders that a name or a glob means."""
        wanted = self.wanted_name(pattern)
        return [name for name in self.names() if _is_meant(name, wanted)]

    def path_of(self, name: str) -> Path:
        """Return the path of a model's ``summary.yml``."""
        return self._existing(Path(name, SUMMARY_NAME))

    @property
    def whitelist(self) -> Path:
        """The path of the whitelist."""
        return self._existing(Path(WHITELIST))

    def own_copy(self, path: Path) -> Path:
        """Return the path in ``own`` of one of these files: a copy of the shipped one, unless ``own`` has the file."""
        if self.shipped is None or not path.is_relative_to(self.shipped):
            return path
        copied = self.own / path.relative_to(self.shipped)
        if not copied.exists():
            replace_file(copied, path.read_bytes())
        return copied

    def wanted_name(self, pattern: str) -> str:
        """Return the folder's name or the glob of a pattern; of a path into these folders, its last part."""
        if "/" not in pattern:
            return pattern
        path = Path(pattern)
        folder = path.parent if path.name == SUMMARY_NAME else path
        real = {os.path.realpath(one) for one in (self.own, self.shipped) if one is not None}
        # The path as written comes first, because a model's folder may be a link.
        for reading in (folder, Path(os.path.realpath(folder))):
            if os.path.realpath(reading.parent) in real:
                return reading.name
        # A path elsewhere must not match a folder of the same name.
        return os.path.realpath(folder) if os.path.exists(folder) else str(folder)

    def _existing(self, path: Path) -> Path:
        """Return the path of a file in ``own``, or of the shipped one if there is none."""
        is_shipped = self.shipped is not None and not (self.own / path).exists() and (self.shipped / path).exists()
        return self.shipped / path if self.shipped is not None and is_shipped else self.own / path

    def _choose(self, patterns: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the names of the chosen folders, and an error line for each pattern that matches none."""
        folders = self.names()
        chosen: set[str] = set()
        lines = []
        for pattern in patterns:
            wanted = self.wanted_name(pattern)
            matches = [name for name in folders if _is_meant(name, wanted)]
            chosen.update(matches)
            if not matches:
                lines.append(self._no_match(pattern, wanted, folders))
        return sorted(chosen), lines

    def _no_match(self, pattern: str, wanted: str, folders: list[str]) -> str:
        if not pattern:
            return f"{self.own}: the model's name '' is empty; omit it for all models, or write a folder's name"
        begun = [f"'{wanted}*'"] if any(name.startswith(wanted) for name in folders) else []
        names = dict.fromkeys([*folders, *(SIZE_IN_NAME.sub("", name) for name in folders)])
        close = begun or difflib.get_close_matches(wanted, names)
        remedy = f"did you mean {', '.join(close)}?" if close else f"there are {some_of(folders, FOLDERS_SHOWN)}"
        where = self.own if self.shipped is None else f"{self.own} and the shipped models"
        return f"{where}: no folder matches {quoted(pattern)}; {remedy}"


def _is_meant(name: str, wanted: str) -> bool:
    """Return whether a folder's name, or the name without its input size, is the wanted one or matches the glob."""
    return any(wanted == text or fnmatchcase(text, wanted) for text in (name, SIZE_IN_NAME.sub("", name)))


def is_glob(pattern: str) -> bool:
    """Return whether a pattern may match several folders, and is no plain name."""
    return _GLOB.search(pattern) is not None


def load_configs(
    measurements: Path, patterns: Sequence[str], check: Callable[[ModelConfig], list[str]] | None = None
) -> list[ModelConfig]:
    """Return the chosen models of one folder, see ``ModelFolders.configs``."""
    return ModelFolders(measurements).configs(patterns, check)


def _folder_names(measurements: Path) -> list[str]:
    try:
        if not measurements.is_dir():
            raise UserError(f"{measurements}: no such folder; name the folder with --measurements DIR")
        return [entry.name for entry in measurements.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    except OSError as error:
        remedy = "make it readable, or name another folder with --measurements DIR"
        raise UserError(f"{measurements}: cannot be listed ({error.strerror}); {remedy}") from None
