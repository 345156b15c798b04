"""Names of models: their source, and the tuples of whole models of each source."""

import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from opcost.operators.model_names import ModelName, UserCode, is_own
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
from opcost.storage.code_files import find_code


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


# A user's code is identified by the text of its file and of what it imports beside it. Nothing is executed


RAISES = "raise RuntimeError('this file was executed')\n"


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    """A file, a module and a package beside it, and files that it does not import."""
    folder = tmp_path / "nets"
    (folder / "package" / "inner").mkdir(parents=True)
    texts = {
        "net.py": "import torch, layers\nfrom package.inner import deep as d\ndef build():\n    import late\n",
        "layers.py": "import net\n",
        "late.py": "",
        "package/__init__.py": "from . import near\n",
        "package/near.py": "",
        "package/inner/__init__.py": "from ..sideways import x\n",
        "package/inner/deep.py": "",
        "package/sideways.py": "",
        "package/unused.py": "",
        "other.py": "",
    }
    for name, text in texts.items():
        (folder / name).write_text(text + RAISES)
    return folder


def code_of(folder: Path, name: str = "net.py:build") -> UserCode:
    return find_code(ModelName.of(name), folder)


def test_the_fingerprint_is_of_the_text_and_not_of_the_place(nets: Path) -> None:
    before = code_of(nets).parameters
    moved = Path(shutil.move(nets, nets.with_name("elsewhere")))
    assert code_of(moved).parameters == before
    assert dict(before)["code"] == "net.py"
    assert len(str(dict(before)["sha256"])) == 16


@pytest.mark.parametrize(
    "name",
    "net.py layers.py late.py package/__init__.py package/near.py package/inner/deep.py package/sideways.py".split(),
)
def test_the_fingerprint_changes_with_each_file_that_is_imported(nets: Path, name: str) -> None:
    before = code_of(nets).parameters
    (nets / name).write_text("x = 1\n" + (nets / name).read_text())
    assert code_of(nets).parameters != before


@pytest.mark.parametrize("name", ["other.py", "package/unused.py", "notes.txt"])
def test_the_fingerprint_does_not_change_with_other_files(nets: Path, name: str) -> None:
    before = code_of(nets).parameters
    (nets / name).write_text("x = 1\n")
    assert code_of(nets).parameters == before


def test_the_fingerprint_of_a_running_command_stays(nets: Path) -> None:
    code = code_of(nets)
    before = code.parameters
    (nets / "net.py").write_text("def build(): pass\n")
    assert code.parameters == pickle.loads(pickle.dumps(code)).parameters == before
    assert code_of(nets).parameters != before


def test_a_module_has_the_fingerprint_of_its_packages_too(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(nets)
    code = code_of(Path("/"), "package.inner.deep:build")
    before = code.parameters
    assert (code.path, code.root) == (f"{nets}/package/inner/deep.py", str(nets))
    assert dict(before)["code"] == "package.inner.deep"
    (nets / "package" / "__init__.py").write_text("")
    assert code_of(Path("/"), "package.inner.deep:build").parameters != before


def test_an_installed_package_is_its_own_code_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "site-packages"
    for name, text in (("mine/net.py", "import mine.layers, theirs"), ("mine/layers.py", ""), ("theirs.py", "")):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    monkeypatch.syspath_prepend(place)
    code = code_of(tmp_path, "mine.net:build")
    assert dict(code.modules()) == {"mine.layers": f"{place}/mine/layers.py"}
    assert not code.is_own(f"{place}/theirs.py")
    assert not is_own(f"{place}/theirs.py", str(tmp_path), f"{tmp_path}/net.py")
