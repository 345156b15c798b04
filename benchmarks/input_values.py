"""Measure how time and energy of operators depend on the values of their inputs -> a CSV file

Example: PYTHONPATH=. python benchmarks/input_values.py --output docs/data/input_values.csv
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MeasurementProtocol
from opcost.operators.tuples import OperatorTuple
from opcost.operators.values import InputData, InputValues
from opcost.running.apparatus import Apparatus, open_apparatus
from opcost.storage.database import Database
from opcost.torch_backend.operators import function_tuple, module_tuple
from opcost.torch_backend.workload import operator_workload

PROTOCOL = MeasurementProtocol(warm_up_s=0.5, loop_s=1.2)
ZEROS_RATIOS = (0.0, 0.25, 0.5, 0.9, 1.0)
SPREAD_OCTAVES = (-12, 1, 2, 3, 4, 6)
MEANS = (1.0, 8.0, 64.0)
VALUES = (
    *(InputValues(zeros_ratio=ratio) for ratio in ZEROS_RATIOS),
    *(InputValues(spread=2.0**octave) for octave in SPREAD_OCTAVES),
    *(InputValues(mean=mean) for mean in MEANS),
    InputValues(mean=1.0, spread=0.0),
)
COLUMNS = (
    *("operator", "zeros_ratio", "mean", "spread"),
    *("time_s", "energy_j", "energy_standard_error_j"),
)


def operators() -> dict[str, OperatorTuple]:
    """Return operators of each kind, large enough that kernels and not launches take the time."""

    def image(channels: int, side: int) -> torch.Tensor:
        return torch.empty(128, channels, side, side, device="meta")

    def module(built: nn.Module, *inputs: torch.Tensor) -> OperatorTuple:
        return module_tuple(built.eval(), inputs, {})

    tokens = torch.empty(128, 197, 768, device="meta")
    heads = torch.empty(128, 12, 197, 64, device="meta")
    return {
        "Conv2d 3x3": module(nn.Conv2d(128, 128, 3, padding=1, bias=False), image(128, 28)),
        "Conv2d 1x1": module(nn.Conv2d(256, 64, 1, bias=False), image(256, 56)),
        "Conv2d depthwise": module(nn.Conv2d(128, 128, 7, padding=3, groups=128), image(128, 56)),
        "Linear": module(nn.Linear(768, 3072), tokens),
        "MultiheadAttention": module(nn.MultiheadAttention(768, 12, batch_first=True), tokens, tokens, tokens),
        "scaled_dot_product_attention": function_tuple(
            nn.functional.scaled_dot_product_attention, (heads, heads, heads), {}
        ),
        "BatchNorm2d": module(nn.BatchNorm2d(256), image(256, 56)),
        "LayerNorm": module(nn.LayerNorm(768), tokens),
        "ReLU": module(nn.ReLU(), image(256, 56)),
        "GELU": module(nn.GELU(), tokens),
        "SiLU": module(nn.SiLU(), image(256, 56)),
        "softmax": function_tuple(torch.softmax, (torch.empty(128, 12, 197, 197, device="meta"), -1), {}),
        "MaxPool2d": module(nn.MaxPool2d(3, stride=2, padding=1), image(64, 112)),
        "add": function_tuple(torch.add, (image(256, 56), image(256, 56)), {}),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        open_apparatus("cuda", Database(Path(folder))) as apparatus,
        arguments.output.open("w", newline="") as file,
    ):
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for name, operator in operators().items():
            for values in VALUES:
                table.writerow((name, *measured(apparatus, operator, values)))
                file.flush()
            print(name, file=sys.stderr)
    return 0


def measured(apparatus: Apparatus, operator: OperatorTuple, values: InputValues) -> tuple[object, ...]:
    """Return a row's figures for one kind of values."""
    workload = operator_workload(operator, apparatus.device, InputData((values,)))
    row = measure(workload, apparatus.instruments("values"), PROTOCOL)
    kind = (values.zeros_ratio, values.mean, values.spread)
    return (*kind, row.time_s, row.energy_j, row.energy_standard_error_j)


if __name__ == "__main__":
    sys.exit(main())
