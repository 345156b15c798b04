"""Block 2: measure time and energy of each operator tuple -> database/operator_measurements.csv

Example: python general_pipeline_block2.py resnet18_32x3x32x32 --seconds 3
The same as: opcost measure resnet18_32x3x32x32 --seconds 3
"""

from opcost.__main__ import start_program


def main() -> int:
    from opcost.command.program import subcommand

    return subcommand("measure").main()


if __name__ == "__main__":
    start_program(main)
