"""The program ``opcost``, and the start of each script, before anything else is imported."""

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


def main() -> int:
    """Run the command that the arguments name; return its exit status."""
    from opcost.command import program

    return program.main()


def start() -> NoReturn:
    """Run the program, and exit with its status."""
    start_program(main)


if __name__ == "__main__":
    start()
