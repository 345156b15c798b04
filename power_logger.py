"""Log the power of a GPU (with nvidia-smi) or of the CPU (with RAPL) until Ctrl-C -> a CSV file

Example: python power_logger.py --device cuda:0 --output power.csv --seconds 60
With --plot FILE.csv: draw a log -> FILE.svg
With --qualify: qualify the meters of the GPU, which takes half a minute -> database/meter_qualifications.csv
The same as: opcost power --device cuda:0 --output power.csv --seconds 60
             opcost qualify --device cuda:0
"""

from opcost.__main__ import start_program


def main() -> int:
    from opcost.command.options import DATABASE, HOME, switch
    from opcost.command.program import subcommand
    from opcost.errors import UserError

    instead = switch("--qualify", "instead of logging, qualify the meters of a GPU that runs nothing else")
    arguments = subcommand("power").parser(instead, HOME, DATABASE).parse_args()
    if not arguments.qualify:
        return subcommand("power").run(arguments)
    if arguments.plot:
        raise UserError("--plot draws a log; leave --qualify out")
    if arguments.json:
        raise UserError("--json is for logs; leave --qualify out")
    if arguments.interval or arguments.output or arguments.seconds:
        raise UserError("--qualify has a fixed length; leave --interval, --output and --seconds out")
    return subcommand("qualify").run(arguments)


if __name__ == "__main__":
    start_program(main)
