"""The running program, and commands as a user can paste them into the same shell.

Standard library only, so that scripts can import it before anything is installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

SCRIPTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "count": ("general_pipeline_block0.py",),
        "filter": ("general_pipeline_block1.py",),
        "measure": ("general_pipeline_block2.py",),
        "measure-models": ("full_model_measurement.py",),
        "compare": ("compare_sum_vs_full.py",),
        "advise": ("compare_sum_vs_full.py",),
        "power": ("power_logger.py",),
        "qualify": ("power_logger.py", "--qualify"),
    }
)
"""The script, with the arguments, that does the same as a subcommand.

The comparison does the work of ``advise`` if ``--coverage-target`` is among the arguments."""

WITHOUT_MODELS = ("--home", "--database")
FOLDERS = (*WITHOUT_MODELS, "--measurements")
"""Options that name folders. ``qualify`` reads no models."""


ALLOW_CODE = "--allow-code"
"""The option with which users' code may run."""

RUN_MODELS = frozenset({"count", "layers", "measure", "measure-models", "compare-kernels"})
"""The subcommands that have this option, besides ``profile``, and refuse a user's code without it."""


def command(name: str, *arguments: str, has_code: bool = False) -> str:
    """Return the command of a subcommand, with the folders of the running program.

    It is that of the subcommand's script if a script is running, else of ``opcost``.

    Args:
        name: of the subcommand.
        arguments: its models and options.
        has_code: whether any of the models is a user's code.
    """
    program = Path(sys.argv[0])
    allowed = [ALLOW_CODE] if has_code and name in RUN_MODELS else []
    words = [*arguments, *allowed, *_folders(WITHOUT_MODELS if name == "qualify" else FOLDERS)]
    if is_script() and name in SCRIPTS:
        script, *more = SCRIPTS[name]
        return joined([_python(), str(program.with_name(script)), *more, *words])
    return joined([*_opcost(), name, *words])


def _folders(options: Collection[str]) -> list[str]:
    """Return those of these options that the running program was called with, and their values."""
    if not is_script() and program_name() != "opcost":
        return []
    found = []
    for word, value in pairwise([*sys.argv[1:], ""]):
        if word in options and value:
            found += [word, value]
        elif word.partition("=")[0] in options and "=" in word:
            found.append(word)
    return found


def pip_install(*requirements: str) -> str:
    """Return the command that installs packages for the Python that is running."""
    return joined([_python(), "-m", "pip", "install", *requirements])


def command_line() -> str:
    """Return the command of this program without the paths of Python and of ``opcost``, for people who read it."""
    name = program_name()
    return joined([*([name] if name == "opcost" else ["python", f"{name}.py"]), *sys.argv[1:]])


def program_name() -> str:
    """Return the name of the running script without its suffix; ``opcost`` for ``python -m opcost``."""
    path = Path(sys.argv[0])
    return path.parent.name if path.stem == "__main__" else path.stem


def is_script() -> bool:
    """Return whether one of the top level's scripts is running."""
    return Path(sys.argv[0]).name in {script for script, *_ in SCRIPTS.values()}


def joined(words: Iterable[str]) -> str:
    """Return the command of these words as a shell takes it, each in quotes if it needs them."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Return a word as a shell reads it; bytes of characters that are not shown are escapes, as in bash and zsh."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = (one if one.isprintable() and one not in "'\\" else _escaped(one) for one in word)
    return f"$'{''.join(escaped)}'"


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def _opcost() -> list[str]:
    beside = Path(sys.executable).with_name("opcost")
    if not beside.exists():
        return [_python(), "-m", "opcost"]
    return [_as_typed(beside)]


def _python() -> str:
    return _as_typed(Path(sys.executable), "python", "python3")


def _as_typed(program: Path, *names: str) -> str:
    """Return the first of a program's names by which the shell finds it.

    If there is none, return its path, relative if it is below the current folder.
    """
    for name in names or (program.name,):
        found = shutil.which(name)
        if found is not None and Path(found).parent == program.parent:
            return name
    here = Path.cwd()
    return str(program.relative_to(here)) if program.is_relative_to(here) else str(program)
