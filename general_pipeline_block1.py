"""Block 1: keep the operator tuples that the whitelist names -> measurements/<name>/operators_filtered.pkl

Example: python general_pipeline_block1.py resnet18_32x3x32x32
The same as: opcost filter resnet18_32x3x32x32
"""

from opcost.__main__ import start_program


def main() -> int:
    from opcost.command.program import subcommand

    return subcommand("filter").main()


if __name__ == "__main__":
    start_program(main)
