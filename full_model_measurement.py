"""Measure time and energy of whole models -> database/full_model_measurements.csv

Example: python full_model_measurement.py resnet18_32x3x32x32 --seconds 3
The same as: opcost measure-models resnet18_32x3x32x32 --seconds 3
"""

from opcost.__main__ import start_program


def main() -> int:
    from opcost.command.program import subcommand

    return subcommand("measure-models").main()


if __name__ == "__main__":
    start_program(main)
