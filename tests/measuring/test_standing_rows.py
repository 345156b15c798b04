"""Which conditions can touch an operator, by the dtypes of its tensors."""

from dataclasses import fields, replace

import pytest
from simulated_machine import SIMULATED_CONDITIONS

from opcost.measuring.conditions import Conditions, irrelevant_fields, lookup_key
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import OperatorTuple, model_operator, stored_as

TF32 = {"precision", "matmul_tf32", "cudnn_tf32"}
OF_BF16 = {"matmul_bf16_reduction"}
OF_FP16 = {"matmul_fp16_reduction", "matmul_fp16_accumulation"}
SDPA = {"sdpa_flash", "sdpa_memory_efficient", "sdpa_cudnn", "sdpa_math"}


def operator_of(name: str, inputs: str, parameters: str = "", mode: str | None = "eval") -> OperatorTuple:
    return parse_operator(name, parameters, inputs, mode)


def function_of(name: str, inputs: str) -> OperatorTuple:
    return operator_of(name, inputs, mode=None)


@pytest.mark.parametrize(
    ("operator", "irrelevant"),
    [
        (operator_of("torch.nn.Linear", "float32[2, 8]", "in_features=8, out_features=8"), OF_BF16 | OF_FP16),
        (operator_of("torch.nn.Linear", "bfloat16[2, 8]", "in_features=8, dtype='bfloat16'"), TF32 | OF_FP16),
        (operator_of("torch.nn.Linear", "float16[2, 8]", "in_features=8, dtype='float16'"), TF32 | OF_BF16),
        (operator_of("torch.nn.ReLU", "bfloat16[2, 8]"), TF32 | OF_FP16),
        # A norm may have weights in float32, which it does not multiply as a matrix.
        (operator_of("torch.nn.LayerNorm", "bfloat16[2, 8]", "normalized_shape=(8,)"), TF32 | OF_FP16),
        (function_of("torch.Tensor.matmul", "bfloat16[2, 8], bfloat16[8, 2]"), TF32 | OF_FP16),
        (function_of("torch.Tensor.add", "bfloat16[2, 8], float32[2, 8]"), OF_FP16),
        (function_of("torch.Tensor.__getitem__", "bfloat16[8], int64[2]"), TF32 | OF_FP16),
        (function_of("torch.Tensor.__getitem__", "int64[8], (bool[8],)"), TF32 | OF_BF16 | OF_FP16),
        (function_of("torch.cat", "(bfloat16[8], float16[8]), dim=0"), TF32),
        (function_of("torch.Tensor.to", "bfloat16[8], torch.float32"), OF_FP16),
        (function_of("torch.Tensor.to", "bfloat16[8], memory_format=torch.channels_last"), TF32 | OF_FP16),
        # An embedding's weights are float32 if no other dtype is named.
        (operator_of("torch.nn.Embedding", "int64[2]", "num_embeddings=8"), OF_BF16 | OF_FP16),
        (operator_of("torch.nn.Embedding", "int64[2]", "num_embeddings=8, dtype='bfloat16'"), TF32 | OF_FP16),
        (function_of("torch.Tensor.mul", "float64[8], float64[8]"), OF_BF16 | OF_FP16),
        (function_of("torch._int_mm", "int8[8, 8], int8[8, 8]"), OF_BF16 | OF_FP16),
        # Plain attention in 16 bits multiplies in float32.
        (function_of("torch.nn.functional.scaled_dot_product_attention", "bfloat16[2, 2, 8]"), set()),
        (operator_of("torch.nn.MultiheadAttention", "bfloat16[2, 8]", "embed_dim=8, dtype='bfloat16'"), set()),
        # Anything may be inside.
        (operator_of("torchvision.ops.misc.MLP", "bfloat16[2, 8]", "dtype='bfloat16'"), set()),
        (operator_of("my_package.Block", "bfloat16[2, 8]", "dtype='bfloat16'"), set()),
        (function_of("torch.arange", "8"), SDPA),
        (function_of("torch.ops.mine.block", "8"), set()),
    ],
    ids=lambda value: "" if isinstance(value, frozenset | set) else str(value),
)
def test_a_condition_that_cannot_touch_the_dtypes_is_irrelevant(operator: OperatorTuple, irrelevant: set[str]) -> None:
    attention = set() if irrelevant <= SDPA else SDPA
    assert irrelevant_fields(operator) == irrelevant | attention


def changed(name: str) -> Conditions:
    value = getattr(SIMULATED_CONDITIONS, name)
    others = {"precision": "tf32", "cpu_threads": 4, "execution": "graph", "cache": "cold"}
    if isinstance(value, bool):
        return replace(SIMULATED_CONDITIONS, **{name: not value})  # type: ignore[arg-type]
    other = others.get(name, False if name.startswith("matmul_") else value + 1 if isinstance(value, int) else "other")
    return replace(SIMULATED_CONDITIONS, **{name: 1.0 if name.endswith("_w") else other})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [field.name for field in fields(Conditions)])
def test_all_other_conditions_part_rows(name: str) -> None:
    bf16 = function_of("torch.Tensor.matmul", "bfloat16[2, 8], bfloat16[8, 2]")
    is_same = lookup_key(bf16, changed(name)) == lookup_key(bf16, SIMULATED_CONDITIONS)
    assert is_same == (name in TF32 | OF_FP16 | SDPA)
    # The key of a row has all conditions.
    assert changed(name).key != SIMULATED_CONDITIONS.key


@pytest.mark.parametrize("name", [field.name for field in fields(Conditions)])
def test_all_conditions_of_a_whole_model_part_rows(name: str) -> None:
    model = stored_as(model_operator("resnet18", None, (1, 3, 8, 8)), "bfloat16", is_channels_last=False)
    assert lookup_key(model, changed(name)) != lookup_key(model, SIMULATED_CONDITIONS)


@pytest.mark.parametrize("name", ["matmul_tf32", "cudnn_tf32", "matmul_fp16_reduction"])
def test_under_autocast_all_conditions_part_rows(name: str) -> None:
    """Autocast changes dtypes on the way: a softmax of bfloat16 runs in float32."""
    softmax = function_of("torch.nn.functional.softmax", "bfloat16[2, 8], dim=-1")
    under_autocast, other = (replace(one, precision="amp-bf16") for one in (SIMULATED_CONDITIONS, changed(name)))
    assert lookup_key(softmax, under_autocast) != lookup_key(softmax, other)
    assert lookup_key(softmax, under_autocast) != lookup_key(softmax, SIMULATED_CONDITIONS)
