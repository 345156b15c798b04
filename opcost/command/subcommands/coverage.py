"""``opcost coverage``: the shares of FLOPs and bytes of models in operator tuples -> a page"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from opcost.command.log import log_run
from opcost.command.option_types import user_path
from opcost.command.options import DEVICE, META, MODELS, VERBOSE, Option
from opcost.command.subcommand import Subcommand
from opcost.errors import UserError
from opcost.invocation import command_line

OUTPUT = Option("--output", "write the page in Markdown (default: to stdout)", type=user_path, metavar="FILE")


def coverage(arguments: Namespace) -> int:
    """Write the page; return 1 if a model could not be checked or its tuples are incomplete, else 0."""
    log_run(arguments.verbose)
    _check_output(arguments.output)

    from opcost.reporting.coverage_page import coverage_page, summary
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.stages.coverage import check_coverage
    from opcost.storage.files import replace_file

    report = check_coverage(arguments.names, arguments.device, arguments.meta, progress_on_stderr())
    text = coverage_page(report, command_line())
    if arguments.output is None:
        print(text, end="")
    else:
        replace_file(arguments.output, text.encode())
        print(summary(report.rows))
    return int(not report.is_complete)


def _check_output(path: Path | None) -> None:
    if path is not None and path.is_dir():
        raise UserError(f"--output {path}: this is a folder; name a file")
    if path is not None and not path.parent.is_dir():
        raise UserError(f"--output {path}: there is no folder {path.parent}; make it first")


COVERAGE = Subcommand(
    name="coverage",
    does="check that the operator tuples of models have all of the models' FLOPs and bytes",
    example="'resnet*' --device cpu",
    options=(MODELS, DEVICE, META, OUTPUT, VERBOSE),
    run=coverage,
)
