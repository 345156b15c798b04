"""Check that the operator tuples of torchvision's models carry all that the models compute and move -> a page

Example: python coverage_table.py 'resnet*' --device cpu --output docs/coverage.md
"""

import shlex
import sys
from pathlib import Path

from opcost.command.log import log_run
from opcost.command.options import Parser, add_device, add_models, add_verbose
from opcost.command.run import run
from opcost.errors import UserError


def main() -> int:
    parser = Parser(description=__doc__)
    add_models(parser)
    add_device(parser)
    meta_help = "run on shapes only, but for detectors, whose work depends on data"
    parser.add_argument("--meta", action="store_true", help=meta_help)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the page in Markdown (default: to stdout)")
    add_verbose(parser)
    arguments = parser.parse_args()
    log_run(arguments.verbose)
    if arguments.output is not None and arguments.output.is_dir():
        raise UserError(f"--output {arguments.output}: is a folder; name a file")
    if arguments.output is not None and not arguments.output.parent.is_dir():
        raise UserError(f"--output {arguments.output}: there is no folder {arguments.output.parent}; make it first")

    from opcost.reporting.terminal import progress_on_stderr
    from opcost.stages.coverage import CoverageFailure, CoverageRow, check_coverage
    from opcost.stages.coverage_page import coverage_page, summary
    from opcost.storage.files import replace_file

    results = check_coverage(arguments.names, arguments.device, arguments.meta, progress_on_stderr())
    rows = [result for result in results if isinstance(result, CoverageRow)]
    command = shlex.join(["python", Path(sys.argv[0]).name, *sys.argv[1:]])
    failures = [result for result in results if isinstance(result, CoverageFailure)]
    text = coverage_page(rows, failures, command, arguments.device)
    if arguments.output is None:
        print(text, end="")
    else:
        replace_file(arguments.output, text.encode())
        print(summary(rows))
    return 0 if not failures and all(row.is_complete for row in rows) else 1


if __name__ == "__main__":
    run(main)
