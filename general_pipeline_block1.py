"""Block 1: keep the operator tuples that the whitelist names -> measurements/<name>/operators_filtered.pkl

Example: python general_pipeline_block1.py resnet18_32x3x32x32
The same as: opcost filter resnet18_32x3x32x32
"""

from opcost.command.start import start_program


def main() -> int:
    from opcost.command.subcommands.filter import FILTER

    return FILTER.main()


if __name__ == "__main__":
    start_program(main)
