"""The modules of users' files while their models are in use.

Two files may have the same name, and so may the modules beside them. Each file is imported as in a program of
its own: the modules that it imported from its folder leave ``sys.modules`` when another file's turn comes, and come
back with it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from opcost.errors import CannotBuildError
from opcost.operators.user_code import UserCode, fingerprint_of

OPCOST = __name__.partition(".")[0]


@dataclass(eq=False)
class _Imported:
    """A user's file that was imported: its module, its own modules by name, and the names that were there before."""

    code: UserCode
    module: ModuleType | None = None
    own: dict[str, ModuleType] = field(default_factory=dict)
    before: frozenset[str] = frozenset()

    def enter(self) -> None:
        """Make the file's modules those that ``import`` finds."""
        self.before = frozenset(sys.modules)
        sys.modules.update(self.own)
        sys.path.insert(0, self.code.root)
        importlib.invalidate_caches()

    def leave(self) -> None:
        """Keep the file's modules, and make them unknown to ``import``."""
        self.own = {name: module for name, module in sys.modules.items() if self._is_own(name, module)}
        for name in self.own:
            del sys.modules[name]
        if self.code.root in sys.path:
            sys.path.remove(self.code.root)

    def _is_own(self, name: str, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        is_new = name not in self.before and name.partition(".")[0] != OPCOST
        return is_new and file is not None and self.code.is_own(str(Path(file).resolve()))


_imported: dict[tuple[str, str | None, str], _Imported] = {}
"""The files that were imported, by path, name of the module, and content."""

_current: list[_Imported] = []
"""The file whose modules ``import`` finds, if any."""


def module_of(code: UserCode) -> ModuleType:
    """Import a user's file, or return the module if it was imported before with the same content.

    Its folder stays on the path, for what it imports when it runs, until another file is imported.

    Raises:
        CannotBuildError: the file has changed since, or a module of the same name as one of its own is another.
    """
    key = (code.path, code.module, code.fingerprint)
    imported = _imported.get(key) or _Imported(code)
    if _current != [imported]:
        for one in _current:
            one.leave()
        _current[:] = [imported]
        imported.enter()
    if imported.module is None:
        if _fingerprint(code) != code.fingerprint:
            text = f"{code.path} or a file that it imports has changed meanwhile"
            raise CannotBuildError(text, remedy="run the command again")
        with _without_bytecode():
            imported.module = _import(code)
        _check_names(code)
        _imported[key] = imported
    return imported.module


def _fingerprint(code: UserCode) -> str | None:
    """Return the hash of the code's files as they are now, None if one cannot be read."""
    try:
        return fingerprint_of({name: Path(code.root, name).read_bytes() for name in code.files})
    except OSError:
        return None


@contextmanager
def _without_bytecode() -> Iterator[None]:
    """Write no compiled files: Python takes them for current if a file of equal size was changed in the same second."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _check_names(code: UserCode) -> None:
    """Check that the code's own modules are those that Python found, and not others of the same names."""
    for name, path in code.modules():
        file = getattr(sys.modules.get(name), "__file__", None)
        if name in sys.modules and (file is None or Path(file).resolve() != Path(path).resolve()):
            text = f"{path}: Python has another module {name}, {file or 'built in'}"
            raise CannotBuildError(text, remedy="rename the file")


def _import(code: UserCode) -> ModuleType:
    if code.module is not None:
        module = importlib.import_module(code.module)
        found = getattr(module, "__file__", None)
        if found is None or Path(found).resolve() != Path(code.path).resolve():
            text = f"{code.module} is another module, {found}"
            raise CannotBuildError(text, remedy="write the path of the file instead")
        return module
    name = Path(code.path).stem
    spec = importlib.util.spec_from_file_location(name, code.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Under its own name, so that a module which it imports may import it, and its classes have a place.
    other = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        if other is not None:
            sys.modules[name] = other
    return module
