"""Block 0: run each model once and count its operator tuples -> measurements/<name>/operators.pkl

Example: python general_pipeline_block0.py resnet18_32x3x32x32
The same as: opcost count resnet18_32x3x32x32
"""

from opcost.__main__ import start_program


def main() -> int:
    from opcost.command.program import subcommand

    return subcommand("count").main()


if __name__ == "__main__":
    start_program(main)
