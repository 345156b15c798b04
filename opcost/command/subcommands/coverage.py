"""``python -m opcost coverage``: do operator tuples carry all that torchvision's models compute and move? -> a page"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from opcost.command.log import command_line, log_run
from opcost.command.options import DEVICE, META, MODELS, VERBOSE, Option
from opcost.command.subcommand import Subcommand
from opcost.errors import UserError

OUTPUT = Option("--output", "write the page in Markdown (default: to stdout)", type=Path, metavar="FILE")


def coverage(arguments: Namespace) -> int:
    """Write the page; return 1 if a model could not be checked or its tuples lack something, else 0."""
    log_run(arguments.verbose)
    _check_output(arguments.output)

    from opcost.reporting.terminal import progress_on_stderr
    from opcost.stages.coverage import CoverageFailure, CoverageRow, check_coverage
    from opcost.stages.coverage_page import coverage_page, summary
    from opcost.storage.files import replace_file

    results = check_coverage(arguments.names, arguments.device, arguments.meta, progress_on_stderr())
    rows = [result for result in results if isinstance(result, CoverageRow)]
    failures = [result for result in results if isinstance(result, CoverageFailure)]
    text = coverage_page(rows, failures, command_line(), arguments.device)
    if arguments.output is None:
        print(text, end="")
    else:
        replace_file(arguments.output, text.encode())
        print(summary(rows))
    return 0 if not failures and all(row.is_complete for row in rows) else 1


def _check_output(path: Path | None) -> None:
    if path is not None and path.is_dir():
        raise UserError(f"--output {path}: is a folder; name a file")
    if path is not None and not path.parent.is_dir():
        raise UserError(f"--output {path}: there is no folder {path.parent}; make it first")


COVERAGE = Subcommand(
    name="coverage",
    does="check that the operator tuples of torchvision's models carry all that the models compute and move",
    example="'resnet*' --device cpu --output docs/coverage.md",
    options=(MODELS, DEVICE, META, OUTPUT, VERBOSE),
    run=coverage,
)
