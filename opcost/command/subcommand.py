"""The parts of a subcommand of ``python -m opcost``."""

from __future__ import annotations

from argparse import Namespace, _SubParsersAction
from collections.abc import Callable
from dataclasses import dataclass

from opcost.command.options import OneOf, Option, Parser, add_options

PROGRAM = "python -m opcost"


@dataclass(frozen=True)
class Subcommand:
    """A subcommand: its name, description, arguments of an example, options, and function.

    The function takes the parsed arguments and returns an exit status. Its imports are inside it, so that ``--help``
    answers before anything is installed. ``before`` is the command that the example follows in a fresh clone.
    """

    name: str
    does: str
    example: str
    options: tuple[Option | OneOf, ...]
    run: Callable[[Namespace], int]
    before: str = ""

    def add_to(self, commands: _SubParsersAction[Parser]) -> None:
        """Add the subcommand's parser to the program's."""
        commands_shown = [self.before] * bool(self.before) + [f"{PROGRAM} {self.name} {self.example}".rstrip()]
        description = f"{self.does[0].upper()}{self.does[1:]}."
        parser = commands.add_parser(
            self.name, help=self.does, description=description, epilog="\n  ".join(["example:", *commands_shown])
        )
        add_options(parser, *self.options)
        parser.set_defaults(run=self.run)
