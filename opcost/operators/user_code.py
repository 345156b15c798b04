"""A user's function that builds a model: where it is, and what identifies it."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opcost.operators.tuples import PlainValue

CODE, FINGERPRINT = "code", "sha256"
"""The parameters of a whole model's tuple that identify the user's code: its name, and a hash of its text."""

FINGERPRINT_DIGITS = 16

PACKAGE_FOLDERS = ("site-packages", "dist-packages")
"""Folders of installed packages: a package there is code of its own, not of the others beside it."""


@dataclass(frozen=True)
class UserCode:
    """A function in a Python file.

    ``path`` is the file, ``root`` the folder from which it imports its own modules, and ``module`` its name there if
    the user named a module and not a file. ``given`` is the file or module as the user wrote it.
    """

    path: Path
    root: Path
    function: str
    given: str
    module: str | None = None

    def __str__(self) -> str:
        return f"{self.given}:{self.function}"

    @property
    def parameters(self) -> tuple[tuple[str, PlainValue], ...]:
        """The parameters that identify the code in a whole model's tuple: its name, and a hash of its text.

        The hash covers the file and the modules of the same root that it imports. It does not depend on the folder.

        Raises:
            OSError, SyntaxError, ValueError, RecursionError, MemoryError: a file cannot be read.
        """
        return (CODE, self.module or self.path.name), (FINGERPRINT, self._first_fingerprint)

    @cached_property
    def _first_fingerprint(self) -> str:
        """The hash when it was first asked for: a file that changes meanwhile changes no key of a running command."""
        return self.fingerprint()

    def is_own(self, path: Path) -> bool:
        """Return whether a file belongs to the user's code: it is in the root, and in no other installed package."""
        if not path.is_relative_to(self.root):
            return False
        parts = path.relative_to(self.root).parts
        if self.root.name in PACKAGE_FOLDERS:
            return parts[0] == self.path.relative_to(self.root).parts[0]
        return not any(name in parts for name in PACKAGE_FOLDERS)

    def fingerprint(self) -> str:
        """Return the hash of the files as they are now.

        Raises:
            OSError, SyntaxError, ValueError, RecursionError, MemoryError: a file cannot be read.
        """
        texts = {path.relative_to(self.root).as_posix(): path.read_bytes() for path in self._files()}
        digest = hashlib.sha256()
        for name, text in sorted(texts.items()):
            digest.update(f"{name}\n{len(text)}\n".encode() + text)
        return digest.hexdigest()[:FINGERPRINT_DIGITS]

    def modules(self) -> Iterator[tuple[str, Path]]:
        """Yield the name and the file of each module of the same root that the code imports."""
        for path in sorted(self._files() - {self.path}):
            parts = path.relative_to(self.root).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path

    def _files(self) -> set[Path]:
        """Return the file and those of the same root that it imports, directly or not. Nothing is executed."""
        found: set[Path] = set()
        # Importing a module runs its packages first.
        pending = [self.path, *self._files_of(tuple(self.module.split(".")) if self.module else ())]
        while pending:
            path = pending.pop()
            if path not in found:
                found.add(path)
                pending.extend(self._imported(path))
        return found

    def _imported(self, path: Path) -> Iterator[Path]:
        package = path.parent.relative_to(self.root).parts
        for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._files_of(tuple(alias.name.split(".")))
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else ()
                module = (*base, *(node.module.split(".") if node.module else ()))
                yield from self._files_of(module)
                for alias in node.names:
                    yield from self._files_of((*module, alias.name))

    def _files_of(self, module: tuple[str, ...]) -> Iterator[Path]:
        """Yield the files of a module and of its packages, if they are in the root."""
        for length in range(1, len(module) + 1):
            place = self.root.joinpath(*module[:length])
            for path in (place.parent / f"{place.name}.py", place / "__init__.py"):
                if self.is_own(path) and path.is_file():
                    yield path
