"""Compare the sum of each model's operators with the measured whole model -> database/sum_vs_full.csv

With --coverage-target: print which operators the whitelist needs to cover enough of each model.
Example: python compare_sum_vs_full.py resnet18_32x3x32x32
         python compare_sum_vs_full.py --coverage-target 0.9
The same as: opcost compare resnet18_32x3x32x32
             opcost advise --coverage-target 0.9
"""

from opcost.command.start import start_program

COMPARISON_OPTIONS = ("against", "input_data", "cache", "counted", "figures", "report")


def main() -> int:
    from opcost.command.option_types import ratio
    from opcost.command.options import WRITE_WHITELIST, Option
    from opcost.command.subcommands.advise import ADVISE
    from opcost.command.subcommands.compare import COMPARE

    target = Option(
        "--coverage-target",
        "instead of comparing, print whether the whitelist covers this share of each model's time and energy, such as "
        "0.9, and which operators to add; the exit status is 1 if a model misses the target",
        type=ratio,
        metavar="RATIO",
    )
    parser = COMPARE.parser(target, WRITE_WHITELIST)
    arguments = parser.parse_args()
    if arguments.coverage_target is not None:
        unused = [option for option in COMPARISON_OPTIONS if getattr(arguments, option) != parser.get_default(option)]
        if unused:
            parser.error(
                f"--coverage-target and --{unused[0].replace('_', '-')} exclude each other; leave one of them out"
            )
        return ADVISE.run(arguments)
    if arguments.write_whitelist:
        parser.error("--write-whitelist needs --coverage-target, such as 0.9")
    return COMPARE.run(arguments)


if __name__ == "__main__":
    start_program(main)
