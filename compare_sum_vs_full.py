"""Compare the sum of each model's operators with the measured whole model -> database/sum_vs_full.csv

With --coverage-target: print which operators the whitelist needs to cover enough of each model.
Example: python compare_sum_vs_full.py resnet18_32x3x32x32
         python compare_sum_vs_full.py --coverage-target 0.9
The same as: opcost compare resnet18_32x3x32x32
             opcost advise --coverage-target 0.9
"""

from opcost.__main__ import start_program

COMPARISON_OPTIONS = ("against", "input_data", "cache", "counted", "figures", "report")


def main() -> int:
    from opcost.command.options import SCRIPT_TARGET, WRITE_WHITELIST
    from opcost.command.program import subcommand

    parser = subcommand("compare").parser(SCRIPT_TARGET, WRITE_WHITELIST)
    arguments = parser.parse_args()
    if arguments.coverage_target is not None:
        unused = [option for option in COMPARISON_OPTIONS if getattr(arguments, option) != parser.get_default(option)]
        if unused:
            parser.error(
                f"--coverage-target and --{unused[0].replace('_', '-')} exclude each other; leave one of them out"
            )
        return subcommand("advise").run(arguments)
    if arguments.write_whitelist:
        parser.error("--write-whitelist needs --coverage-target, such as 0.9")
    return subcommand("compare").run(arguments)


if __name__ == "__main__":
    start_program(main)
