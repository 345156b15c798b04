"""The files of users' functions that build models. Nothing in them is executed here."""

from __future__ import annotations

import sys
from pathlib import Path

from opcost.errors import UserError
from opcost.operators.model_names import ModelName
from opcost.operators.user_code import UserCode


def find_code(named: ModelName, folder: Path) -> UserCode:
    """Return the code of a model whose source is a file.

    Args:
        named: the model's name.
        folder: the folder to which a relative path refers. Modules are looked for in the working folder, then where
            Python looks for them.

    Raises:
        UserError: there is no such file, or it is not Python; without the place of the name.
    """
    given = str(named.code)
    if not named.name.isidentifier():
        raise UserError(f"{named.name!r} is no name of a function; write FILE:FUNCTION, such as net.py:build")
    code = _in_file(given, named.name, folder) if _is_path(given) else _in_module(given, named.name)
    try:
        code.parameters  # noqa: B018 (it reads the files)
    except SyntaxError as error:
        text = f"{error.filename or code.path}:{error.lineno or 1}: {error.msg}"
        raise UserError(f"{text}; fix the file") from None
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0] or "too deeply nested"
        raise UserError(f"{code.path}: it or a file that it imports cannot be read ({reason}); correct it") from None
    return code


def _is_path(given: str) -> bool:
    return given.endswith(".py") or "/" in given


def _in_file(given: str, function: str, folder: Path) -> UserCode:
    path = (folder / Path(given).expanduser()).resolve()
    if not path.is_file():
        raise UserError(f"{path}: no such file; correct the path before the colon")
    return UserCode(path, path.parent, function, given)


def _in_module(given: str, function: str) -> UserCode:
    parts = given.split(".")
    roots = [Path.cwd(), *(Path(entry).resolve() for entry in sys.path if entry)]
    for root in roots:
        place = root.joinpath(*parts)
        for path in (place.parent / f"{place.name}.py", place / "__init__.py"):
            if path.is_file():
                return UserCode(path, root, function, given, given)
    raise UserError(
        f"no module {given} in {Path.cwd()} or where Python looks; correct it, or write the path of the file"
    )
