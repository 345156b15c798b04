"""Short forms of operator tuples, and their columns: a number for each size, a cell for each parameter."""

import re

import pytest
from committed_tables import committed

from opcost.operators.texts import (
    PLACEHOLDERS,
    cells_of,
    in_order,
    parse_operator,
    parse_value,
    short_form,
    short_inputs,
)
from opcost.operators.tuples import OperatorTuple
from opcost.operators.values import NORMAL_DATA, ZEROS_DATA, InputData, Pattern, parse_input_data


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
        (
            "torch._foreach_add_",
            "",
            f"({', '.join(f'float32[{size}]' for size in range(1, 31))})",
            "_foreach_add_",
            f"{', '.join(map(str, range(1, 17)))} and 14 more",
        ),
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


def test_a_module_has_its_parameters_and_sizes():
    inputs = "float32[2, 3, 8, 9]:channels_last"
    conv = parse_operator(
        "torch.nn.Conv2d", "in_channels=3, kernel_size=(1, 7), padding_mode='reflect'", inputs, "eval"
    )
    assert cells_of(conv, ZEROS_DATA, parse_value("float32[2, 4, 8, 3]")) == {
        "parameter_in_channels": 3,
        "parameter_kernel_size": "(1, 7)",
        "parameter_padding_mode": "reflect",
        "input_0_dtype": "float32",
        "input_0_strides": "(216, 1, 27, 3)",
        **{f"input_0_size_{place}": size for place, size in enumerate((2, 3, 8, 9))},
        "input_0_zeros_ratio": 1.0,
        "output_0_dtype": "float32",
        **{f"output_0_size_{place}": size for place, size in enumerate((2, 4, 8, 3))},
    }


def test_a_function_has_those_arguments_that_are_more_than_tensors():
    inputs = "(float32[2]#0, float32[2]#0), None, (slice(start=0, stop=None, step=None), int64[3]), dim=-1"
    cells = cells_of(parse_operator("torch.any", "", inputs, None), NORMAL_DATA, None)
    assert {name: cell for name, cell in cells.items() if name.startswith("argument")} == {
        "argument_1": "None",
        "argument_2": "(slice(start=0, stop=None, step=None), int64[3])",
        "argument_dim": -1,
    }
    assert [cells[f"input_{number}_dtype"] for number in (0, 1)] == ["float32", "int64"]
    assert "input_2_dtype" not in cells


def lookup() -> OperatorTuple:
    return parse_operator("torch.nn.functional.embedding", "", "int64[32, 512], float32[1000, 8]", None)


def test_indices_have_their_role_and_the_pattern_that_is_drawn():
    usual, zipf = (cells_of(lookup(), InputData(patterns=patterns), None) for patterns in ((), (Pattern.ZIPF,)))
    assert (usual["input_0_role"], usual["input_0_pattern"]) == ("index", "random")
    assert zipf["input_0_pattern"] == "zipf"
    assert (zipf["input_1_zeros_ratio"], "input_0_zeros_ratio" in zipf) == (0.0, False)


def test_columns_are_ordered_by_their_numbers():
    names = ["output_0_dtype", "input_10_dtype", "input_9_size_0", "input_9_dtype", "argument_1", "parameter_size_9"]
    assert in_order([*names, *names]) == [*names[:3:-1], "input_9_dtype", "input_9_size_0", *names[1::-1]]


@pytest.mark.second_tier
def test_each_column_of_the_committed_rows_is_of_a_sort_that_is_declared():
    sorts = [re.sub("[A-Z]+", lambda found: {"NAME": r"\w+"}.get(found[0], r"\d+"), one.name) for one in PLACEHOLDERS]
    names = set()
    for row in committed().operator_measurements.rows():
        operator = parse_operator(row.operator, row.parameters, row.inputs, row.training_mode)
        names.update(cells_of(operator, parse_input_data(row.input_data), None))
    assert len(names) > 50
    assert [name for name in names if not any(re.fullmatch(sort, name) for sort in sorts)] == []
