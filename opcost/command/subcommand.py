"""What a subcommand of ``python -m opcost`` is made of."""

from __future__ import annotations

from argparse import Namespace, _SubParsersAction
from collections.abc import Callable
from dataclasses import dataclass

from opcost.command.options import OneOf, Option, Parser, add_options

PROGRAM = "python -m opcost"


@dataclass(frozen=True)
class Subcommand:
    """A subcommand: its name, what it does, arguments of an example, its options, and a function for its work.

    The function takes the parsed arguments and returns an exit status. It imports what it needs when it is called, so
    that ``--help`` answers before anything is installed.
    """

    name: str
    does: str
    example: str
    options: tuple[Option | OneOf, ...]
    run: Callable[[Namespace], int]

    def add_to(self, commands: _SubParsersAction[Parser]) -> None:
        """Add a parser for it to those of the program."""
        example = f"{PROGRAM} {self.name} {self.example}".rstrip()
        description = f"{self.does[0].upper()}{self.does[1:]}."
        parser = commands.add_parser(
            self.name, help=self.does, description=description, epilog=f"example:\n  {example}"
        )
        add_options(parser, *self.options)
        parser.set_defaults(run=self.run)
