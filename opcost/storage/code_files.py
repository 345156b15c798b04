"""The files of users' functions that build models. Nothing in them is executed here."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opcost.errors import LONGEST_SHOWN, CannotBuildError, UserError, shortened
from opcost.operators.model_names import NOT_THERE, PACKAGE_FILE, SUFFIX, ModelName, UserCode, fingerprint_of, is_own

MAXIMUM_BYTES = 2_000_000
MAXIMUM_WORDS = 120_000
MAXIMUM_DOTS = 300
"""The largest file that is read, the most words and signs in it, and the most dots of a name. Python's tree of a file
has 1 kB for each word, and its parser takes the square of a name's length."""

_WORD = re.compile(rb"[\w\x80-\xff]+|[^\w\s\x80-\xff]")
_DOTTED = re.compile(rb"(?:\.[\s\\]*[\w\x80-\xff]+[\s\\]*)+")

_MORE_NAMES = re.compile(rb"import\s*\*|\b(?:__getattr__|exec|globals|locals|modules|setattr|vars)\b")
"""Words by which a module may get names that its file does not have."""


def find_code(named: ModelName, folder: Path) -> UserCode:
    """Return the code of a model in a file, relative to ``folder``, or a module; a ``UserError`` without its place."""
    given = str(named.code)
    if not named.name.isidentifier():
        raise UserError(f"{named.name!r} is no name of a function; write FILE:FUNCTION, such as net.py:build")
    module = None if given.endswith(SUFFIX) or "/" in given else given
    files = _files_of(given, folder, module)
    try:
        texts = files.texts(module)
    except SyntaxError as error:
        text = f"{error.filename or files.path}:{error.lineno or 1}: {shortened(error.msg)}"
        raise UserError(f"{text}; fix the file") from None
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0] or "too deeply nested"
        raise UserError(f"{files.path}: it or a file that it imports cannot be read ({reason}); correct it") from None
    names = tuple(sorted(texts))
    path, root = str(files.path), str(files.root)
    return UserCode(path, root, named.name, given, names, fingerprint_of(texts), module)


def check_function(code: UserCode, arguments: Collection[str]) -> None:
    """Raise a ``CannotBuildError`` if the text of a file shows that it lacks the function, or this an argument.

    Required arguments may be missing. A name that the file may get in another way than by a plain statement is taken
    to be there.
    """
    content = _content_of(Path(code.path))
    body = ast.parse(content).body
    mentions = re.findall(rb"\b%s\b\s*(\(?)" % re.escape(code.function.encode()), content)
    if not (mentions or _MORE_NAMES.search(content)):
        raise code.no_function(NOT_THERE, [node.name for node in body if isinstance(node, ast.FunctionDef)])
    # Where the name stands without a call, the module may give it to something else.
    signature = _signature_in(body, code.function) if all(mentions) else None
    if signature is not None:
        code.check_arguments(signature, arguments, may_lack=True)


class _Text(str):
    """A default value, shown as it is written."""

    __repr__ = str.__str__


def _signature_in(body: Sequence[ast.stmt], name: str) -> inspect.Signature | None:
    """Return the signature of a plain function, None for anything else."""
    found = [node for node in body if getattr(node, "name", None) == name]
    if len(found) != 1 or not isinstance(found[0], ast.FunctionDef) or found[0].decorator_list:
        return None
    kinds, own = inspect.Parameter, found[0].args
    positional = [*own.posonlyargs, *own.args]
    defaults = [*[None] * (len(positional) - len(own.defaults)), *own.defaults, *own.kw_defaults]
    with_default = dict(zip((*positional, *own.kwonlyargs), defaults, strict=True))
    of_kinds: Mapping[Any, Sequence[ast.arg | None]] = {
        kinds.POSITIONAL_ONLY: own.posonlyargs,
        kinds.POSITIONAL_OR_KEYWORD: own.args,
        kinds.VAR_POSITIONAL: [own.vararg],
        kinds.KEYWORD_ONLY: own.kwonlyargs,
        kinds.VAR_KEYWORD: [own.kwarg],
    }
    parameters = []
    for kind, one in ((kind, one) for kind, ones in of_kinds.items() for one in ones if one is not None):
        default = with_default.get(one)
        parameters.append(kinds(one.arg, kind, default=kinds.empty if default is None else _Text(ast.unparse(default))))
    with suppress(ValueError):
        return inspect.Signature(parameters)
    # Python refuses two parameters of one name when it runs the file.
    return None


def lacks_parameter(code: UserCode, name: str) -> bool:
    """Return whether a plain function's text shows that it has no such parameter; False for anything else."""
    try:
        check_function(code, [name])
    except CannotBuildError:
        return True
    return False


@dataclass(frozen=True)
class _Files:
    """A Python file, the folder from which it imports its own modules, and the names in folders that were listed."""

    path: Path
    root: Path
    listed: dict[str, frozenset[str]] = field(default_factory=dict)

    def texts(self, module: str | None) -> dict[str, bytes]:
        """Return the texts of the file, of a named module's packages, and of all files of the root that they import."""
        texts: dict[str, bytes] = {}
        pending = [self.path, *self._files_of(tuple(module.split(".")) if module else ())]
        while pending:
            path = pending.pop()
            name = path.relative_to(self.root).as_posix()
            if name not in texts:
                texts[name] = _content_of(path)
                pending.extend(self._imported(path, texts[name]))
        return texts

    def _imported(self, path: Path, text: bytes) -> Iterator[Path]:
        package = path.parent.relative_to(self.root).parts
        for node in ast.walk(ast.parse(text, filename=str(path))):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._files_of(tuple(alias.name.split(".")))
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else ()
                module = (*base, *(node.module.split(".") if node.module else ()))
                yield from self._files_of(module)
                for alias in node.names:
                    yield from self._files_of((alias.name,), "/".join(module))

    def _files_of(self, module: tuple[str, ...], package: str = "") -> Iterator[Path]:
        """Yield the files of a module and of its packages if they are the user's own."""
        # Many imports are cheap: each folder is listed once.
        place = "/".join(filter(None, (str(self.root).rstrip("/"), package)))
        for part in module:
            folder, place = place or "/", f"{place}/{part}"
            if folder not in self.listed:
                self.listed[folder] = frozenset(os.listdir(folder) if os.path.isdir(folder) else ())
            names = self.listed[folder]
            found = [f"{place}{SUFFIX}"] if f"{part}{SUFFIX}" in names else []
            found += [f"{place}/{PACKAGE_FILE}"] if part in names else []
            for path in found:
                if os.path.isfile(path) and is_own(path, str(self.root), str(self.path)):
                    yield Path(path)
            if part not in names:
                return


def _content_of(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAXIMUM_BYTES + 1)
    if len(content) > MAXIMUM_BYTES:
        raise UserError(f"{path}: is larger than {MAXIMUM_BYTES // 10**6} MB; keep data in other files")
    if sum(1 for _ in _WORD.finditer(content)) > MAXIMUM_WORDS:
        raise UserError(f"{path}: has more than {MAXIMUM_WORDS} words and signs; keep data in other files")
    if any(found[0].count(b".") > MAXIMUM_DOTS for found in _DOTTED.finditer(content)):
        raise UserError(f"{path}: has a name of more than {MAXIMUM_DOTS} dots; correct it")
    return content


def _files_of(given: str, folder: Path, module: str | None) -> _Files:
    if module is None:
        # Unlike methods of Path, these raise nothing for an unknown user's home or a link to itself.
        path = Path(os.path.realpath(folder / os.path.expanduser(given)))
        if not os.path.isfile(path):
            shown = str(path) if len(str(path)) <= LONGEST_SHOWN else f"...{str(path)[-LONGEST_SHOWN:]}"
            raise UserError(f"{shown}: no such file; correct the path before the colon")
        return _Files(path, path.parent)
    for root in [Path.cwd(), *(Path(entry).resolve() for entry in sys.path if entry)]:
        place = root.joinpath(*given.split("."))
        for path in (place.parent / f"{place.name}{SUFFIX}", place / PACKAGE_FILE):
            if path.is_file():
                return _Files(path, root)
    remedy = f"correct it, run the command in the folder that has {given.partition('.')[0]}, or add it to PYTHONPATH"
    raise UserError(f"no module {given} in {Path.cwd()} or where Python looks; {remedy}")
