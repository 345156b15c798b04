"""Names of models: their source, and the tuples of whole models of each source."""

from dataclasses import replace

import pytest

from opcost.operators.model_names import ModelName
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import (
    OperatorTuple,
    TensorSpec,
    model_operator,
    storage_form,
    stored_as,
    tensor_specs,
    with_tensors,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resnet18", ModelName("torchvision", "resnet18")),
        ("timm:vit_tiny_patch16_224", ModelName("timm", "vit_tiny_patch16_224")),
        ("transformers:BertModel", ModelName("transformers", "BertModel")),
        ("net.py:build", ModelName("file", "build", "net.py")),
        ("../nets/net.py:build", ModelName("file", "build", "../nets/net.py")),
        ("/nets/net:build", ModelName("file", "build", "/nets/net")),
        ("package.module:build", ModelName("file", "build", "package.module")),
        ("keras:resnet18", ModelName("keras", "resnet18")),
        (":resnet18", ModelName("", "resnet18")),
        ("net.py:", ModelName("file", "", "net.py")),
    ],
)
def test_a_name_has_its_source_before_the_colon(text: str, expected: ModelName) -> None:
    assert ModelName.of(text) == expected


def test_only_texts_of_transformers_are_token_ids() -> None:
    texts, images, others = (
        model_operator(name, None, size)
        for name, size in (
            ("transformers:BertModel", (2, 8)),
            ("transformers:ViTModel", (2, 3, 8, 8)),
            ("net.py:build", (2, 8)),
        )
    )
    assert texts.inputs == (TensorSpec((2, 8), "int64"),)
    assert images.inputs == (TensorSpec((2, 3, 8, 8), "float32"),)
    assert others.inputs == (TensorSpec((2, 8), "float32"),)


@pytest.mark.parametrize("name", ["resnet18", "timm:resnet18", "transformers:BertModel", "net.py:Build"])
def test_whole_models_are_known_by_their_names(name: str) -> None:
    assert model_operator(name, None, (2, 8)).is_model


@pytest.mark.parametrize(
    "operator", ["torch.nn.Linear", "timm.Layer", "transformers.models.BertModel", "torch.ops.file.x", "keras.net"]
)
def test_operators_are_no_whole_models(operator: str) -> None:
    assert not OperatorTuple(operator).is_model


@pytest.mark.parametrize("size", [(2, 3, 8, 8), (2, 8)])
def test_a_model_is_stored_as_its_inputs_or_as_a_parameter_says(size: tuple[int, ...]) -> None:
    model = model_operator("transformers:BertModel", None, size)
    assert storage_form(model) == ("float32", False)
    assert stored_as(model, "float32", False) == model
    stored = stored_as(model, "bfloat16", True)
    assert storage_form(stored) == ("bfloat16", True)
    parsed = parse_operator(stored.operator, stored.parameters_text, stored.inputs_text, stored.mode)
    assert (parsed, storage_form(parsed)) == (stored, ("bfloat16", True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("is_channels_last", [False, True])
@pytest.mark.parametrize(
    "inputs",
    [
        (TensorSpec((2, 8), "float64"), TensorSpec((2, 3, 8, 8), "float32", identity=1)),
        (TensorSpec((2, 3, 8, 8), "float16"),),
        (TensorSpec((2, 8, 3), "float32"),),
        (TensorSpec((2, 8), "int64"), TensorSpec((2, 3, 8, 8), "float32", identity=1)),
    ],
)
def test_the_tuple_says_how_weights_are_stored_and_inputs_keep_their_own_dtype(
    inputs: tuple[TensorSpec, ...], is_channels_last: bool, dtype: str
) -> None:
    model = replace(model_operator("net.py:build", None, ()), inputs=inputs)
    stored = stored_as(model, dtype, is_channels_last)
    assert [spec.dtype for spec in tensor_specs(stored.inputs)] == [
        dtype if spec.dtype == "float32" else spec.dtype for spec in inputs
    ]
    parsed = parse_operator(stored.operator, stored.parameters_text, stored.inputs_text, stored.mode)
    assert storage_form(parsed) == (dtype, is_channels_last)


def test_form_is_a_parameter_only_if_the_first_input_does_not_show_it() -> None:
    def form_of(*inputs: TensorSpec) -> dict[str, object]:
        model = replace(model_operator("net.py:build", None, ()), inputs=inputs)
        return dict(stored_as(model, "bfloat16", is_channels_last=True).parameters)

    image, text = TensorSpec((2, 3, 8, 8), "float32"), TensorSpec((2, 8), "float32")
    assert form_of(image) == {}
    assert form_of(text) == {"memory_format": "channels_last"}
    assert form_of(replace(image, dtype="float64")) == {"dtype": "bfloat16"}
    assert form_of() == {"dtype": "bfloat16", "memory_format": "channels_last"}


def test_a_change_reaches_nested_tensors_and_those_by_keyword() -> None:
    spec = TensorSpec((2,), "float32")
    operator = OperatorTuple("torch.cat", (), ((spec, 3, (spec,)),), (("out", spec),), None)
    changed = with_tensors(operator, lambda one: TensorSpec((5,), one.dtype))
    assert str(changed) == str(operator).replace("[2]", "[5]")
