"""A command: what it is called, what it takes and what it does, for ``opcost`` and for the script of the same work."""

from __future__ import annotations

from argparse import Namespace, _SubParsersAction
from collections.abc import Callable
from dataclasses import dataclass

from opcost.command.options import OneOf, Option, Parser, add_options
from opcost.command.run import results_apart
from opcost.invocation import command
from opcost.storage.user_folders import UserFolders, user_folders


def folders_of(arguments: Namespace) -> UserFolders:
    """Return the folders that a command line names."""
    return user_folders(arguments.home, arguments.measurements, arguments.database)


@dataclass(frozen=True)
class Subcommand:
    """A subcommand of ``opcost``.

    ``does`` is its description without a full stop, ``example`` the arguments of an example, and ``before`` the
    subcommands, with arguments, that the example follows in a fresh clone. ``run`` takes the parsed arguments and
    returns an exit status. Its imports are inside it, so that ``--help`` answers before anything is installed.
    """

    name: str
    does: str
    example: str
    options: tuple[Option | OneOf, ...]
    run: Callable[[Namespace], int]
    before: tuple[tuple[str, str], ...] = ()

    def add_to(self, commands: _SubParsersAction[Parser]) -> None:
        """Add the subcommand's parser to the program's."""
        parser = commands.add_parser(
            self.name, help=self.does, prog=command(self.name), description=self._description, epilog=self._examples
        )
        add_options(parser, *self.options)
        parser.set_defaults(run=self.run)

    def parser(self, *more: Option | OneOf) -> Parser:
        """Return the parser of the script that does the same, with further options of the script alone."""
        parser = Parser(prog=command(self.name), description=self._description, epilog=self._examples)
        add_options(parser, *self.options, *more)
        return parser

    def main(self) -> int:
        """Run the script that does the same: parse its arguments and return the exit status."""
        arguments = self.parser().parse_args()
        with results_apart(arguments):
            return self.run(arguments)

    @property
    def _description(self) -> str:
        return f"{self.does[0].upper()}{self.does[1:]}."

    @property
    def _examples(self) -> str:
        examples = (*self.before, (self.name, self.example))
        lines = [f"{command(name)} {arguments}".rstrip() for name, arguments in examples]
        return "\n  ".join(["example:", *lines])
