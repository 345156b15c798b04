"""Write a summary.yml for each model of torchvision at its published input size -> measurements/<name>/

Example: python make_configs.py 'efficientnet_*'
"""

from opcost.command.log import log_run
from opcost.command.options import Parser, add_folder, add_models, add_verbose
from opcost.command.run import run


def main() -> int:
    parser = Parser(description=__doc__)
    add_models(parser)
    add_folder(parser, "--measurements", "the models' folders")
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, no more")
    parser.add_argument("--json", action="store_true", help="print one JSON list with one object per model, no more")
    add_verbose(parser)
    arguments = parser.parse_args()
    log_run(arguments.verbose)

    from opcost.reporting.tables import print_configs, print_json
    from opcost.stages.make_configs import make_configs

    reports = make_configs(arguments.measurements, arguments.names, arguments.dry_run)
    print_json(reports) if arguments.json else print_configs(reports, arguments.dry_run)
    return 0


if __name__ == "__main__":
    run(main)
