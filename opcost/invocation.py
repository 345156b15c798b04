"""The running program, and commands as a user can paste them into the same shell.

Standard library only, so that scripts can import it before anything is installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

SCRIPTS = frozenset(
    {
        *(f"general_pipeline_block{number}" for number in range(3)),
        *("full_model_measurement", "compare_sum_vs_full", "power_logger"),
    }
)
"""The scripts at the top level, without their suffix."""

WITHOUT_MODELS = ("--home", "--database")
FOLDERS = (*WITHOUT_MODELS, "--measurements")
"""Options that name folders. ``qualify`` reads no models."""

ALLOW_CODE = "--allow-code"
"""The option with which users' code may run."""

RUN_MODELS = frozenset({"count", "layers", "measure", "measure-models", "verify kernels"})
"""The commands that have this option, besides ``profile``, and refuse a user's code without it."""


def command(name: str, *arguments: str, has_code: bool = False) -> str:
    """Return a command of ``opcost`` with this program's folders. ``has_code``: one of its models is a user's code."""
    allowed = [ALLOW_CODE] if has_code and name in RUN_MODELS else []
    options = WITHOUT_MODELS if name == "qualify" else FOLDERS
    folders: list[str] = []
    for word, value in pairwise([*sys.argv[1:], ""] if is_program() else []):
        if word in options and value:
            folders += [word, value]
        elif word.partition("=")[0] in options and "=" in word:
            folders.append(word)
    return joined([*_opcost(), *name.split(), *arguments, *allowed, *folders])


def pip_install(*requirements: str) -> str:
    """Return the command that installs packages for the Python that is running; pipx and uv leave pip out."""
    from importlib.util import find_spec

    environment = Path(sys.prefix)
    if (environment / "pipx_metadata.json").exists():
        return joined(["pipx", "inject", environment.name, *requirements])
    if find_spec("pip") is None:
        return joined(["uv", "pip", "install", "--python", _python(), *requirements])
    return joined([_python(), "-m", "pip", "install", *requirements])


def command_line() -> str:
    """Return the command of this program without the paths of Python and of ``opcost``, for people who read it."""
    name = program_name()
    return joined([*([name] if name == "opcost" else ["python", f"{name}.py"]), *sys.argv[1:]])


def program_name() -> str:
    """Return the name of the running script without its suffix; ``opcost`` for ``python -m opcost``."""
    path = Path(sys.argv[0])
    return path.parent.name if path.stem == "__main__" else path.stem


def is_program() -> bool:
    """Return whether ``opcost`` or one of the top level's scripts is running, not a notebook."""
    return program_name() in {"opcost", *SCRIPTS}


def joined(words: Iterable[str]) -> str:
    """Return the command of these words as a shell takes it, each in quotes if it needs them."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Return a word as a shell reads it; bytes of characters that are not shown are escapes, as in bash and zsh."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = (
        one if one.isprintable() and one not in "'\\" else "".join(f"\\x{byte:02x}" for byte in os.fsencode(one))
        for one in word
    )
    return f"$'{''.join(escaped)}'"


def _opcost() -> list[str]:
    beside = Path(sys.executable).with_name("opcost")
    found = shutil.which("opcost")
    # It may be a link, as those of pipx and uv are.
    if found is not None and Path(found).resolve() == beside.resolve():
        return ["opcost"]
    return [_as_typed(beside)] if beside.exists() else [_python(), "-m", "opcost"]


def _python() -> str:
    return _as_typed(Path(sys.executable), "python", "python3")


def _as_typed(program: Path, *names: str) -> str:
    """Return a program's first name by which the shell finds it, else its path, relative below the current folder."""
    for name in names or (program.name,):
        found = shutil.which(name)
        if found is not None and Path(found).parent == program.parent:
            return name
    here = Path.cwd()
    return str(program.relative_to(here)) if program.is_relative_to(here) else str(program)
