"""The program ``opcost``: ``command.program``."""

from typing import NoReturn

from opcost.command.start import start_program


def main() -> int:
    """Run the subcommand that the arguments name; return its exit status."""
    from opcost.command import program

    return program.main()


def start() -> NoReturn:
    """Run the program, and exit with its status."""
    start_program(main)


if __name__ == "__main__":
    start()
