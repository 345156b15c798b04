"""Exceptions of a user's code, shown with the user's own frames."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

import torch

from opcost.errors import CannotBuildError, UserError
from opcost.operators.user_code import UserCode
from opcost.torch_backend.workload import one_line

SHOWN_FRAMES = 5
"""The most frames of the user's code that an error shows, the innermost."""


@contextmanager
def own_frames(code: UserCode) -> Iterator[None]:
    """Convert an exception of the user's code to a ``CannotBuildError`` with the user's own frames.

    Errors of opcost are raised as they are, and so is a lack of memory. ``sys.exit`` is an exception like others.
    Output of the code goes to stderr: stdout is for results.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (CannotBuildError, UserError, torch.OutOfMemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise _explained(code, error) from error


def _explained(code: UserCode, error: Exception | SystemExit) -> CannotBuildError:
    """Return an exception of the user's code as an error with a line for each of the user's innermost frames."""
    return CannotBuildError("\n".join([f"{code} raised {one_line(error)}", *_frames(code, error)]))


def _frames(code: UserCode, error: BaseException) -> list[str]:
    found = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(code, frame.filename)]
    return [f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in found[-SHOWN_FRAMES:]]


def _is_own(code: UserCode, file_name: str) -> bool:
    return code.is_own(file_name)
