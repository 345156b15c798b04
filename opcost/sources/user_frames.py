"""Exceptions of a user's code, shown with the user's own frames."""

from __future__ import annotations

import ast
import itertools
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO, cast

import torch

from opcost.errors import CannotBuildError, CannotMeasureError, DescriptionError, UserError, shortened
from opcost.invocation import pip_install
from opcost.operators.user_code import PACKAGE_FILE, UserCode
from opcost.torch_backend.workload import one_line

SHOWN_FRAMES = 5
"""The most frames of the user's code that an error shows, the innermost."""


CORRECT_MODEL = "correct the model or its inputs"
"""The remedy of an exception in a run."""


class _Lent:
    """A stream that who uses it cannot close."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Close nothing."""


@contextmanager
def lent_stderr() -> Iterator[None]:
    """Let a user's code write to stderr only, since stdout is for results; it can close or replace neither.

    The arguments of the program are as before, too: commands to copy have its folders.
    """
    lent, arguments = cast("TextIO", _Lent(sys.stderr)), list(sys.argv)
    try:
        with redirect_stdout(lent), redirect_stderr(lent):
            yield
    finally:
        sys.argv = arguments


@contextmanager
def own_frames(code: UserCode, remedy: str | None = None) -> Iterator[None]:
    """Convert an exception of the user's code to a ``CannotBuildError`` with the user's own frames.

    Errors of opcost are raised as they are, and so is a lack of memory. ``sys.exit`` is an exception like others, and
    so are those that are no ``Exception``, but interrupts.
    Output of the code goes to stderr, see ``lent_stderr``.

    Args:
        code: the user's.
        remedy: of an exception, None for the usual one.
    """
    try:
        with lent_stderr():
            yield
    except (CannotMeasureError, DescriptionError, UserError, torch.OutOfMemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        text = "\n".join([f"{code} raised {one_line(error)}", *_frames(code, error)])
        own = _remedy_of_import(code, error) if isinstance(error, ImportError) else None
        raise CannotBuildError(text, own or remedy) from error


def _remedy_of_import(code: UserCode, error: ImportError) -> str | None:
    """Return what to do about an import that has failed; None for the usual."""
    return _remedy_of_relative_import(code, error) or _remedy_of_missing(error)


def _remedy_of_missing(error: ImportError) -> str | None:
    """Return what to do if there is no package or module of a name; None if a package lacks a part."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None or "." in error.name:
        return None
    install = pip_install("PACKAGE")
    return f"correct the import, install the package that has it with {install}, or add its folder to PYTHONPATH"


def _remedy_of_relative_import(code: UserCode, error: ImportError) -> str | None:
    """Return what to do if a file that was named by its path has failed in a relative import; else None."""
    if code.module is not None:
        return None
    frame = traceback.extract_tb(error.__traceback__)[-1]
    level = next((node.level for node in _relative_imports(code.path) if node.lineno == frame.lineno), 0)
    if not level or frame.filename != code.path:
        return None
    path = Path(code.path)
    packages = [path.parents[up].name for up in reversed(range(_packages_of(path, level)))]
    module, root = ".".join([*packages, path.stem]), path.parents[len(packages)]
    return f"name the module, {module}:{code.function}, and run the command in {root}"


def _relative_imports(path: str) -> list[ast.ImportFrom]:
    tree = ast.parse(Path(path).read_bytes(), filename=path)
    return [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]


def _packages_of(path: Path, level: int) -> int:
    """Return the number of packages that a file is in, at least those that a relative import of a level needs."""
    inside = itertools.takewhile(lambda folder: (folder / PACKAGE_FILE).exists(), path.parents)
    return max(level, len(list(inside)))


def _frames(code: UserCode, error: BaseException) -> list[str]:
    found = [frame for frame in traceback.extract_tb(error.__traceback__) if code.is_own(frame.filename)]
    return [
        f"  {frame.filename}:{frame.lineno} in {frame.name}: {shortened(frame.line or '')}"
        for frame in found[-SHOWN_FRAMES:]
    ]
