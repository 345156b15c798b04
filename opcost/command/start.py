"""The start of each program, before anything else is imported."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable


def start_program(main: Callable[[], int]) -> NoReturn:
    """Run a program's ``main``, see ``run``; it imports what it needs.

    Until ``run`` handles interrupts, they end the program by their signal: nothing has begun, and an exception would
    show the traceback of an import.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    from opcost.command.run import run

    run(main)
