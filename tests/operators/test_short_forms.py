"""Short forms of operator tuples, as tables show them."""

from __future__ import annotations

import pytest

from opcost.operators.short_forms import short_form, short_inputs
from opcost.operators.texts import parse_operator


@pytest.mark.parametrize(
    ("operator", "parameters", "inputs", "form", "on"),
    [
        (
            "torch.nn.Conv2d",
            "in_channels=3, out_channels=64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False",
            "float32[32, 3, 224, 224]",
            "Conv2d 3→64, kernel 7x7, stride 2x2",
            "32x3x224x224",
        ),
        ("torch.nn.LayerNorm", "normalized_shape=(96,)", "float32[2, 96]", "LayerNorm 96", "2x96"),
        ("torch.nn.ReLU", "inplace=True", "bfloat16[2, 96]", "ReLU", "bfloat16 2x96"),
        ("torch.Tensor.add", "", "float32[4], float32[4]", "add", "4, 4"),
        ("torch.stack", "", "(float32[4], float32[4], float32[4], float32[4])", "stack", "4, 4, 4, 4"),
        ("torch.stack", "", f"({', '.join(['float32[8, 2]'] * 64)}, float32[4])", "stack", "64 times 8x2, 4"),
        ("torch.Tensor.mul", "", "float32[4]#0, float32[4]#0", "mul", "4"),
        ("torch.Tensor.mul", "", "float32[], 2.0", "mul", "scalar"),
        ("torch.Tensor.mul", "", "float32[2, 3]:strides(1, 2), 2.0", "mul", "2x3 strided"),
        ("torch.Tensor.mul", "", "float32[2, 3, 4, 5]:channels_last, 2.0", "mul", "2x3x4x5 channels_last"),
    ],
)
def test_the_parameters_and_sizes_that_decide_the_cost_are_shown(
    operator: str, parameters: str, inputs: str, form: str, on: str
) -> None:
    mode = "eval" if "nn" in operator else None
    described = parse_operator(operator, parameters, inputs, mode)
    assert (short_form(described), short_inputs(described)) == (form, on)
