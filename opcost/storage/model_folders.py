"""The folders of models: the user's own, where files are written, and the shipped ones, which are only read."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from opcost.errors import UserError
from opcost.operators.tuples import SIZE_IN_NAME
from opcost.printable import printable
from opcost.progress import warn_left_out
from opcost.storage.configs import GRID_NAME, HELP, SUMMARY_NAME, ModelConfig, load_config
from opcost.storage.files import UserFolders, replace_file
from opcost.storage.schemas import without_size
from opcost.storage.yaml_files import quoted
from opcost.units import some_of

WHITELIST = "operator_whitelist.yml"

_GLOB = re.compile(r"[*?\[]")

FOLDERS_SHOWN = 8


@dataclass(frozen=True)
class ModelFolders:
    """Folders of models, each with a ``summary.yml``, or of grids, each with a ``grid.yml``, and a whitelist.

    ``own`` need not exist if there are ``shipped`` ones. A file in ``own`` replaces the shipped one of the same name.
    ``taken`` are names that no new folder may have, besides those of the folders.
    """

    own: Path
    shipped: Path | None = None
    taken: frozenset[str] = frozenset()

    @staticmethod
    def of(folders: UserFolders) -> ModelFolders:
        return ModelFolders(folders.measurements, folders.shipped_measurements)

    def configs(
        self, patterns: Sequence[str], check: Callable[[ModelConfig], list[str]] | None = None
    ) -> list[ModelConfig]:
        """Return the chosen cases: sorted by folder, those of a folder in the order of its lists.

        ``patterns`` are names of folders, for all their cases, or of cases, with or without the input size; paths to
        them or to a ``summary.yml`` or ``grid.yml``; or globs; all folders if empty. ``check``: see ``load_config``.
        Raises UserError: with one line for each mistake in any chosen file and for each pattern that matches nothing.
        """
        chosen, lines = self._choose(patterns or ["*"])
        configs, mistakes = self.read(list(chosen), check)
        if lines or mistakes:
            raise UserError(*lines, *mistakes)
        return [config for config in configs if any(_is_meant(one, config) for one in chosen[config.config_name])]

    def readable(self) -> list[ModelConfig]:
        """Return the cases of all models and warn of configs with a mistake; a ``UserError`` if none is left."""
        configs, lines = self.read(self.names())
        models = [config for config in configs if config.grid is None]
        if not models:
            raise UserError(*(lines or [f"{self.own}: contains grids and no model; add one ({HELP})"]))
        for line in lines:
            warn_left_out(line)
        return models

    def read(
        self, folders: Sequence[str], check: Callable[[ModelConfig], list[str]] | None = None
    ) -> tuple[list[ModelConfig], list[str]]:
        """Return the cases of these folders, and a line for each mistake in others, such as another folder's name."""
        configs: list[ModelConfig] = []
        lines: list[str] = []
        for folder in folders:
            try:
                configs.extend(load_config(self.path_of(folder), self.own / folder, check))
            except UserError as error:
                lines.extend(error.lines)
        collisions = self._collisions(configs)
        lines.extend(collisions.values())
        return [config for config in configs if config.config_name not in collisions], lines

    def sound_configs(self) -> list[ModelConfig]:
        with suppress(UserError):
            return self.read(self.names())[0]
        return []

    def names(self) -> list[str]:
        """Return the names of all models' folders, sorted; a ``UserError`` if none can be listed."""
        names = set() if self.shipped is None else set(_folder_names(self.shipped))
        if self.shipped is None or self.own.is_dir():
            names.update(_folder_names(self.own))
        if not names:
            raise UserError(f"{self.own}: contains no model's folder; add one ({HELP})")
        return sorted(names)

    def shipped_names(self) -> list[str]:
        return [] if self.shipped is None else _folder_names(self.shipped)

    def that_may_have(self, name: str) -> list[str]:
        """Return the folders that have this name, or may have a case of it; a ``UserError`` if there are none."""
        case = self.wanted_name(name).rpartition("/")[2]
        return [folder for folder in self.names() if case.startswith(without_size(folder))]

    def is_free(self, name: str) -> bool:
        """Return whether a new folder may have a name."""
        return name not in self.taken and not self.path_of(name).parent.exists()

    def has_any(self, pattern: str) -> bool:
        return bool(self._choose([pattern])[0])

    def is_meant(self, config: ModelConfig, pattern: str) -> bool:
        """Return whether a name or a glob means a case."""
        return _is_meant(self.wanted_name(pattern), config)

    def is_single(self, config: ModelConfig, pattern: str) -> bool:
        """Return whether a pattern means a case, and is neither a glob nor the name of the folder of several cases."""
        return not is_glob(pattern) and _means_case(self.wanted_name(pattern), config)

    def is_named(self, config: ModelConfig, pattern: str) -> bool:
        """Return whether a pattern is the whole name of a case or of its folder, or a path to one of them."""
        return self.wanted_name(pattern) in {config.name, config.config_name, f"{config.config_name}/{config.name}"}

    def path_of(self, name: str) -> Path:
        """Return the path of a model's ``summary.yml`` or of a ``grid.yml``; the user's own comes first."""
        folders = [self.own] if self.shipped is None else [self.own, self.shipped]
        # If a folder has both files, that is a mistake of the grid.
        paths = [folder / name / file for folder in folders for file in (GRID_NAME, SUMMARY_NAME)]
        return next((path for path in paths if path.exists()), paths[1])

    @property
    def whitelist(self) -> Path:
        shipped, own = self.shipped and self.shipped / WHITELIST, self.own / WHITELIST
        return shipped if shipped and shipped.exists() and not own.exists() else own

    def own_copy(self, path: Path) -> Path:
        """Return the path in ``own`` of one of these files: a copy of the shipped one, unless ``own`` has the file."""
        if self.shipped is None or not path.is_relative_to(self.shipped):
            return path
        copied = self.own / path.relative_to(self.shipped)
        if not copied.exists():
            replace_file(copied, path.read_bytes())
        return copied

    def wanted_name(self, pattern: str) -> str:
        """Return the name or the glob of a pattern; of a path into these folders ``FOLDER``, or ``FOLDER/CASE``."""
        if "/" not in pattern:
            return pattern
        path = Path(pattern)
        folder = path.parent if path.name in (SUMMARY_NAME, GRID_NAME) else path
        real = {os.path.realpath(one) for one in (self.own, self.shipped) if one is not None}
        # The path as written comes first, because a model's folder may be a link.
        for reading in (folder, Path(os.path.realpath(folder))):
            if os.path.realpath(reading.parent) in real:
                return reading.name
            if os.path.realpath(reading.parent.parent) in real:
                return f"{reading.parent.name}/{reading.name}"
        # A path elsewhere must not match a folder of the same name.
        return os.path.realpath(folder) if os.path.exists(folder) else str(folder)

    def _choose(self, patterns: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
        """Return the chosen folders with the names and globs that mean them, and a line for each other pattern."""
        chosen: dict[str, list[str]] = {}
        lines = []
        folders = self.names()
        for pattern in patterns:
            wanted, has_any = self.wanted_name(pattern), False
            begin = _GLOB.split(wanted)[0].rpartition("/")[2]
            for folder in folders:
                # Configs are read only if one of their cases may have a name that begins so.
                base = without_size(folder)
                may_be = begin.startswith(base) or base.startswith(begin)
                if _matches(folder, wanted) or (may_be and any(_is_meant(wanted, one) for one in self._listed(folder))):
                    chosen.setdefault(folder, []).append(wanted)
                    has_any = True
            if not has_any:
                lines.append(self._no_match(pattern, wanted, folders))
        return dict(sorted(chosen.items())), lines

    def _listed(self, folder: str) -> list[ModelConfig]:
        """Return the cases of a config with lists; none if it has no lists, or a mistake."""
        try:
            return [config for config in load_config(self.path_of(folder), self.own / folder) if config.lists]
        except UserError:
            return []

    def _collisions(self, configs: Sequence[ModelConfig]) -> dict[str, str]:
        """Return an error line for each of these configs with a case whose name another folder or its case has."""
        listed = [config for config in configs if config.lists]
        owners = {folder: folder for folder in self.names()} if listed else {}
        for folder in sorted(owners.keys() - {config.config_name for config in configs}):
            if any(config.name.startswith(without_size(folder)) for config in listed):
                for other in self._listed(folder):
                    owners.setdefault(other.name, folder)
        lines: dict[str, str] = {}
        for config in listed:
            owner = owners.setdefault(config.name, config.config_name)
            if owner != config.config_name:
                text = f"{self.path_of(owner)} also has the name of the case {config.name}; rename a folder"
                lines.setdefault(config.config_name, f"{config.where(config.lists[0])}: {text}")
        return lines

    def _no_match(self, pattern: str, wanted: str, folders: list[str]) -> str:
        if not pattern:
            return f"{self.own}: the model's name '' is empty; omit it for all models, or write a folder's name"
        begun = [f"'{wanted}*'"] if any(name.startswith(wanted) for name in folders) else []
        cases = [
            case.name for folder in folders if wanted.startswith(without_size(folder)) for case in self._listed(folder)
        ]
        names = dict.fromkeys([*folders, *(SIZE_IN_NAME.sub("", name) for name in folders), *cases])
        close = begun or difflib.get_close_matches(wanted, names)
        remedy = f"did you mean {', '.join(close)}?" if close else f"there are {some_of(folders, FOLDERS_SHOWN)}"
        where = self.own if self.shipped is None else f"{self.own} and the shipped models"
        return f"{where}: no folder matches {quoted(pattern)}; {printable(remedy)}"


def _matches(name: str, wanted: str) -> bool:
    """Return whether a name, with or without its input size, is the wanted one or matches the glob."""
    return any(wanted == text or fnmatchcase(text, wanted) for text in (name, SIZE_IN_NAME.sub("", name)))


def is_glob(pattern: str) -> bool:
    """Return whether a pattern may match several folders, and is no plain name."""
    return _GLOB.search(pattern) is not None


def _is_meant(wanted: str, config: ModelConfig) -> bool:
    return _matches(config.config_name, wanted) or _means_case(wanted, config)


def _means_case(wanted: str, config: ModelConfig) -> bool:
    """Return whether a name or a glob means a case, by its name or as ``FOLDER/CASE``."""
    return _matches(f"{config.config_name}/{config.name}" if "/" in wanted else config.name, wanted)


def _folder_names(measurements: Path) -> list[str]:
    try:
        if not measurements.is_dir():
            raise UserError(f"{measurements}: no such folder; name the folder with --measurements DIR")
        return [entry.name for entry in measurements.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    except OSError as error:
        remedy = "make it readable, or name another folder with --measurements DIR"
        raise UserError(f"{measurements}: cannot be listed ({error.strerror}); {remedy}") from None
