"""Small models of transformers and timm: all FLOPs and bytes in tuples, each tuple rebuilt, nothing downloaded."""

import importlib.util
import socket
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from simulated_apparatus import RecordedProgress
from torch import nn

from opcost.errors import CannotBuildError, CannotMeasureError, UserError
from opcost.operators.tuples import ARGUMENTS, OperatorTuple, Structure, TensorSpec, model_operator, stored_as
from opcost.running.expected_times import size_of
from opcost.running.request import RunRequest
from opcost.sources.models import resolve
from opcost.sources.registry import check_config, models_matching, with_usual_size
from opcost.sources.transformers import listed
from opcost.stages.count import CountFailure, CountReport, count_operators
from opcost.stages.make_configs import configs_of, make_configs
from opcost.stages.verify import check_coverage, rebuild_operators
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import INPUTS_HELP, ModelConfig, ModelFolders, model_tuple
from opcost.storage.database import Database
from opcost.torch_backend.alone import difference
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.ready_model import ReadyModel

transformers = pytest.importorskip("transformers")
timm = pytest.importorskip("timm")

LAYERS = "hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64"
TEXT = f"{LAYERS}, vocab_size: 99"
GPT = "n_embd: 32, n_layer: 2, n_head: 2, vocab_size: 99"
TWO_SIDED = (
    "d_model: 32, encoder_layers: 1, decoder_layers: 1, encoder_attention_heads: 2, decoder_attention_heads: 2, "
    "encoder_ffn_dim: 64, decoder_ffn_dim: 64, vocab_size: 99"
)
SPECIAL = "pad_token_id: 0, bos_token_id: 1, eos_token_id: 2, decoder_start_token_id: 1"
T5 = "d_model: 32, num_layers: 2, num_heads: 2, d_ff: 64, d_kv: 16, vocab_size: 99"
IDS = "dtype: int64, range: [0, 99]"

SMALL = {
    "transformers:BertModel": (TEXT, "input_size: [2, 8]"),
    "transformers:GPT2LMHeadModel": (GPT, "input_size: [2, 8]"),
    "transformers:OpenAIGPTModel": (GPT, "input_size: [2, 8]"),
    "transformers:XLNetModel": (
        "d_model: 32, n_layer: 2, n_head: 2, d_inner: 64, vocab_size: 99",
        "input_size: [2, 8]",
    ),
    "transformers:LlamaForCausalLM": (f"{TEXT}, num_key_value_heads: 1", "input_size: [2, 8]"),
    "transformers:Qwen3ForCausalLM": (f"{TEXT}, num_key_value_heads: 1, head_dim: 16", "input_size: [2, 8]"),
    "transformers:MambaModel": ("hidden_size: 32, num_hidden_layers: 1, vocab_size: 99", "input_size: [2, 8]"),
    "transformers:T5ForConditionalGeneration": (T5, "input_size: [2, 8]"),
    "transformers:BartModel": (TWO_SIDED, "input_size: [2, 8]"),
    "transformers:WhisperModel": (
        f"{TWO_SIDED}, max_source_positions: 20, {SPECIAL}",
        f"inputs: {{input_features: {{shape: [2, 80, 40]}}, decoder_input_ids: {{shape: [2, 4], {IDS}}}}}",
    ),
    "transformers:CLIPModel": (
        f"text_config: {{{TEXT}}}, vision_config: {{{LAYERS}, image_size: 32, patch_size: 16}}, projection_dim: 16",
        f"inputs: {{input_ids: {{shape: [2, 8], {IDS}}}, pixel_values: {{shape: [2, 3, 32, 32]}}}}",
    ),
    "transformers:SiglipModel": (
        f"text_config: {{{TEXT}, projection_size: 32}}, vision_config: {{{LAYERS}, image_size: 32, patch_size: 16}}",
        "input_size: [2, 8]",
    ),
    "transformers:ViTModel": (f"{LAYERS}, image_size: 32", "input_size: [2, 3, 32, 32]"),
    "transformers:Wav2Vec2Model": (
        f"{LAYERS}, conv_dim: [32, 32], conv_stride: [5, 2], conv_kernel: [10, 3], num_conv_pos_embeddings: 16, "
        "num_conv_pos_embedding_groups: 2",
        "inputs: {shape: [1, 800]}",
    ),
    "timm:vit_tiny_patch16_224": ("img_size: 32, depth: 2", "input_size: [1, 3, 32, 32]"),
    "timm:convnext_atto": ("depths: [1, 1, 1, 1]", "input_size: [1, 3, 32, 32]"),
    "timm:levit_128s": ("", "input_size: [1, 3, 224, 224]"),
}

BERT = "model_name: transformers:BertModel\narguments: {{{}}}\ninput_size: {}"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was to be downloaded")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A package that is not installed: neither it nor the source that needs it can be imported."""
    package = str(request.param)
    import opcost.sources

    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"opcost.sources.{package}", raising=False)
    monkeypatch.delattr(opcost.sources, package, raising=False)
    return package


def request(folder: Path) -> RunRequest:
    return RunRequest((), ModelFolders(folder / "measurements"), Database(folder / "database"), "cpu")


def config_of(folder: Path, text: str) -> ModelConfig:
    path = folder / "measurements" / "small" / "summary.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    (config,) = ModelFolders(folder / "measurements").configs([])
    return config


def counted(folder: Path, text: str, on_meta: bool = False) -> CountReport | CountFailure:
    config_of(folder, text)
    (report,) = count_operators(request(folder), RecordedProgress(), on_meta)
    return report


def failure_of(folder: Path, text: str) -> str:
    report = counted(folder, text, on_meta=True)
    assert isinstance(report, CountFailure)
    assert len(report.reason.splitlines()) == 1
    return report.reason.removeprefix(f"{folder}/measurements/small/summary.yml:")


@pytest.mark.parametrize("name", SMALL)
def test_tuples_have_all_flops_and_bytes_of_a_model_and_each_is_rebuilt(tmp_path: Path, name: str) -> None:
    arguments, inputs = SMALL[name]
    report = counted(tmp_path, f"model_name: {name}\narguments: {{{arguments}}}\n{inputs}")
    assert isinstance(report, CountReport), report
    # Means over calls of one tuple are rounded to whole numbers.
    assert report.counted_flops == pytest.approx(report.flops, rel=1e-6)
    assert report.counted_bytes == pytest.approx(report.bytes, rel=1e-6)
    assert report.outside == ()
    (rebuilt,) = rebuild_operators(request(tmp_path), RecordedProgress())
    assert (rebuilt.failures, rebuilt.rebuilt) == ((), rebuilt.operators)


@pytest.mark.parametrize("name", ["transformers:OpenAIGPTModel", "transformers:MambaModel", "timm:convnext_atto"])
def test_shapes_alone_give_the_same_operators(tmp_path: Path, name: str) -> None:
    arguments, inputs = SMALL[name]
    text = f"model_name: {name}\narguments: {{{arguments}}}\n{inputs}"
    on_meta, on_cpu = counted(tmp_path, text, on_meta=True), counted(tmp_path, text)
    assert isinstance(on_meta, CountReport)
    assert isinstance(on_cpu, CountReport)
    assert on_meta.counted_on == "meta"
    assert (on_meta.flops, on_meta.unique_tuples) == (on_cpu.flops, on_cpu.unique_tuples)


def test_token_ids_are_within_the_vocabulary_and_a_decoder_has_its_own(tmp_path: Path) -> None:
    config = config_of(tmp_path, f"model_name: transformers:T5Model\narguments: {{{T5}}}\ninput_size: [2, 64]")
    inputs = resolve(model_tuple(config)).with_inputs("cpu").keyword_inputs
    assert list(inputs) == ["input_ids", "decoder_input_ids"]
    assert all(0 <= ids.min() < 20 and 80 < ids.max() < 99 for ids in inputs.values())
    assert not torch.equal(*inputs.values())


def test_weights_are_in_the_precision_of_the_config(tmp_path: Path) -> None:
    config = config_of(tmp_path, BERT.format(TEXT, [2, 8]) + "\nprecision: bf16")
    ready = resolve(model_tuple(config)).with_inputs("cpu")
    assert {weight.dtype for weight in ready.model.parameters()} == {torch.bfloat16}
    assert ready.keyword_inputs["input_ids"].dtype == torch.int64


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (BERT.format("", [1, 3, 4]), 3, "input_size: transformers:BertModel takes 2 numbers such as [1, 128], not 3"),
        (
            BERT.format("num_hidden_layer: 3", [1, 4]),
            2,
            "arguments: BertModel has no num_hidden_layer; did you mean num_hidden_layers?",
        ),
        (BERT.format("zzz: 3", [1, 4]), 2, "arguments: BertModel has no zzz; BertConfig has add_cross_attention"),
        (BERT.format("to_dict: 3", [1, 4]), 2, "arguments: BertModel has no to_dict; "),
        (
            "model_name: transformers:CLIPModel\narguments: {text_config: {hidden_sise: 3}}\ninput_size: [1, 4]",
            2,
            "arguments: CLIPModel has no text_config.hidden_sise; did you mean hidden_size?",
        ),
        (
            "model_name: transformers:Wav2Vec2Model\ninput_size: [1, 800]",
            2,
            "input_size: transformers:Wav2Vec2Model takes input_values; write inputs: {input_values: {shape: [...]}}",
        ),
        (
            "model_name: transformers:BertModle\ninput_size: [1, 4]",
            1,
            "model_name: this version of transformers has no model 'BertModle'; did you mean BertModel",
        ),
        (
            "model_name: timm:resnet19\ninput_size: [1, 3, 32, 32]",
            1,
            "model_name: this version of timm has no model 'resnet19'; did you mean resnet18",
        ),
        (
            "model_name: timm:resnet18\ninput_size: [1, 32]",
            2,
            "input_size: timm:resnet18 takes 4 numbers such as [32, 3, 224, 224], not 2",
        ),
        (
            "model_name: timm:resnet18\ninput_size: [1, 3, 32, 32]\narguments: {pretrained: true}",
            3,
            "arguments: pretrained is no argument here; write weights_name, or leave it out for random weights",
        ),
        (
            "model_name: timm:resnet18\ninput_size: [1, 3, 32, 32]\nweights_name: nowhere.pth",
            3,
            "weights_name: no file or folder {folder}/nowhere.pth; write null for random weights, or the path of ",
        ),
        ("model_name: keras:net\ninput_size: [1, 3]", 1, "model_name: keras:net: unknown source of models keras; "),
        ("model_name: :net\ninput_size: [1, 3]", 1, "model_name: :net: no source of models before the colon; "),
    ],
)
def test_a_mistake_in_a_config_is_one_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    (mistake,) = check_config(config_of(tmp_path, text))
    folder = f"{tmp_path}/measurements/small"
    assert mistake.startswith(f"{folder}/summary.yml:{line}: {words.replace('{folder}', folder)}")
    assert len(mistake.splitlines()) == 1


def test_the_models_of_another_source_are_listed_by_its_glob(tmp_path: Path) -> None:
    (mistake,) = check_config(config_of(tmp_path, "model_name: timm:zzzzz\ninput_size: [1, 3, 4, 4]"))
    assert "make-configs 'timm:*' --dry-run lists them" in mistake


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            BERT.format("num_hidden_layers: many", [1, 4]),
            "2: arguments: BertModel cannot be built: StrictDataclassFieldValidationError: Validation error for field "
            "'num_hidden_layers': TypeError: Field 'num_hidden_layers' expected int",
        ),
        (
            BERT.format("num_attention_heads: 7", [1, 4]),
            "2: arguments: BertModel cannot be built: ValueError: The hidden size (768) is not a multiple",
        ),
        (
            "model_name: timm:resnet18\ninput_size: [1, 3, 32, 32]\narguments: {nonsense: 3}",
            "3: arguments: resnet18 cannot be built: TypeError: ",
        ),
        (
            "model_name: timm:vit_tiny_patch16_224\ninput_size: [1, 3, 32, 32]",
            "2: input_size: vit_tiny_patch16_224 raised AssertionError: Input height (32) doesn't match model (224)",
        ),
        ("model_name: transformers:ClapModel\ninput_size: [1, 4]", "2: input_size: ClapModel raised AttributeError: "),
        (
            BERT.format("num_hidden_layers: 1", [1, 600]),
            "3: input_size: transformers:BertModel does not run on [1, 600] on meta (RuntimeError: ",
        ),
        (
            "model_name: transformers:BertModel\narguments: {num_hidden_layers: 1}\n"
            "inputs: {input_ids: {shape: [1, 600], dtype: int64}}",
            "3: inputs: transformers:BertModel does not run on its inputs (input_ids=int64[1, 600]) on meta (",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    assert failure_of(tmp_path, text).startswith(words)


def test_arguments_reach_models_of_torchvision(tmp_path: Path) -> None:
    text = "model_name: squeezenet1_1\ninput_size: [1, 3, 32, 32]\narguments: {num_classes: 10}"
    report = counted(tmp_path, text, on_meta=True)
    assert isinstance(report, CountReport)
    assert report.parameters == 1_235_496 - 990 * 513
    assert "2: arguments" not in failure_of(tmp_path, text.replace("num_classes", "classes"))
    (line,) = check_config(config_of(tmp_path, text.replace("num_classes", "weights")))
    assert "3: arguments: weights is no argument here" in line


@pytest.mark.parametrize("place", ["../../{}", "{folder}/{}", "~/{}"])
def test_local_weights_are_relative_to_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    torch.manual_seed(5)
    small = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    bert = transformers.BertModel(transformers.BertConfig(vocab_size=9, **small)).eval()
    bert.save_pretrained(tmp_path / "bert")
    net = timm.create_model("resnet18", num_classes=3).eval()
    torch.save(net.state_dict(), tmp_path / "net.pth")
    texts = {
        "bert": (bert, "model_name: transformers:BertModel\ninput_size: [1, 4]"),
        "net.pth": (net, "model_name: timm:resnet18\narguments: {num_classes: 3}\ninput_size: [1, 3, 32, 32]"),
    }
    for name, (model, text) in texts.items():
        config = config_of(tmp_path, f"{text}\nweights_name: {place.format(name, folder=tmp_path)}")
        assert check_config(config) == []
        assert dict(model_tuple(config).parameters)["weights"] in (f"~/{name}", f"{tmp_path}/{name}")
        built = resolve(model_tuple(config)).with_inputs("cpu").model
        for found, expected in zip(built.parameters(), model.parameters(), strict=True):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("inputs", ["{x: {shape: [1, 3, 32, 32]}}", "[{shape: [1, 3, 32, 32]}, 3]", "[3]"])
def test_a_model_of_torchvision_takes_one_tensor(tmp_path: Path, inputs: str) -> None:
    (line, *_) = check_config(config_of(tmp_path, f"model_name: resnet18\ninputs: {inputs}"))[::-1]
    assert line.endswith("2: inputs: resnet18 takes one tensor; write input_size, or inputs: {shape: [...]}")


@pytest.mark.parametrize("without_package", ["timm", "transformers"], indirect=True)
def test_a_missing_package_is_one_line_that_says_what_to_install(tmp_path: Path, without_package: str) -> None:
    config = config_of(tmp_path, f"model_name: {without_package}:resnet18\ninput_size: [1, 3, 32, 32]")
    (line,) = check_config(config)
    assert f"{without_package} is not installed; install it with " in line
    assert f"pip install {without_package}" in line
    with pytest.raises(UserError, match=f"{without_package} is not installed; install it with"):
        models_matching([f"{without_package}:*"])
    assert size_of(config, {}) is None


# Configs and coverage


def test_configs_are_made_for_models_with_a_usual_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folders = ModelFolders(tmp_path / "measurements")
    patterns = ["timm:vit_tiny_patch16_22[4]", "transformers:BertModel", "transformers:ViTModel"]
    names = [report.name for report in make_configs(folders, patterns)]
    assert names == [
        "timm_vit_tiny_patch16_224_32x3x224x224",
        "transformers_BertModel_1x128",
        "transformers_ViTModel_1x3x224x224",
    ]
    configs = ModelFolders(tmp_path / "measurements").configs([])
    assert [check_config(config) for config in configs] == [[], [], []]
    assert [config.model_name for config in configs] == [
        "timm:vit_tiny_patch16_224",
        "transformers:BertModel",
        "transformers:ViTModel",
    ]
    make_configs(folders, ["transformers:BertModel", "transformers:Wav2Vec2Model"])
    assert "left out: no usual input size: transformers:Wav2Vec2Model; write a summary.yml with inputs" in caplog.text
    with pytest.raises(UserError, match="no usual input size: transformers:Wav2Vec2Model; "):
        make_configs(folders, ["transformers:Wav2Vec2Model"])
    with pytest.raises(UserError, match="transformers has no model 'BertModle'; did you mean BertModel"):
        make_configs(folders, ["transformers:BertModle"])


def test_models_of_any_source_may_be_named_together() -> None:
    found = with_usual_size(models_matching(["resnet18", "timm:resnet18"]))
    assert [model.name for model in found] == ["resnet18", "timm:resnet18"]


def test_coverage_takes_models_of_any_source() -> None:
    report = check_coverage(["timm:mobilenetv3_small_050", "squeezenet1_1"], "cpu", True, RecordedProgress())
    assert report.failures == ()
    assert [row.model_name for row in report.rows] == ["squeezenet1_1", "timm:mobilenetv3_small_050"]
    assert report.is_complete
    assert any(library.startswith("timm ") for library in report.libraries)


# The networks of docs/examples: nothing of them is uncounted, and each operator runs alone as in its model


PATH = Path(__file__).parents[2] / "docs" / "examples" / "networks.py"


@pytest.fixture(scope="module")
def networks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("networks", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def smaller(model: nn.Module, inputs: Any, name: str) -> ReadyModel:
    """Return a network on a part of its input, which a CPU runs in a moment."""
    if name == "graph":
        nodes, edges = inputs
        return ReadyModel.of(model.eval(), (nodes[:500], edges[:, :2000] % 500))
    if name == "mamba":
        return ReadyModel.of(model.eval(), inputs[:2, :8])
    return ReadyModel.of(model.eval(), inputs[:2])


@pytest.mark.parametrize("name", ["lstm", "gru", "graph", "spectral", "forces", "mamba"])
def test_each_network_is_counted_and_rebuilt_wholly(networks: ModuleType, name: str) -> None:
    torch.manual_seed(0)
    ready = run_first(smaller(*getattr(networks, name)(), name))
    counts = capture(ready, OperatorTuple("file.network"))
    assert counts.outside == ()
    assert counts.flop_missing_reason is None
    assert counts.flop == counts.total_flop > 0
    assert counts.memory_bytes == counts.total_memory_bytes
    different = [count.operator.short_name for count in counts.counts if difference(count, "cpu") is not None]
    assert different == []


def test_a_layer_of_gates_has_the_flops_of_its_matrices(networks: ModuleType) -> None:
    ready = smaller(*networks.lstm(), "lstm")
    counts = capture(run_first(ready), OperatorTuple("file.network"))
    (layer,) = [count for count in counts.counts if count.operator.short_name == "LSTM"]
    steps = ready.tensors[0].numel()
    assert layer.flop == 2 * steps * 2 * 4 * 512 * (512 + 512)


# transformers as a source: inputs that follow from a size, and models that do not run on theirs

SMALL_TEXTS = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}


def model(name: str, size: tuple[int, ...], **arguments: int) -> OperatorTuple:
    further = ((ARGUMENTS, Structure("dict", tuple(arguments.items()))),)
    return model_operator(f"transformers:{name}", None, size, further=further)


def test_a_model_of_characters_needs_described_inputs() -> None:
    operator = model("CanineModel", (1, 16), **SMALL_TEXTS)
    with pytest.raises(CannotBuildError, match="CanineModel has no vocab_size; write inputs: "):
        resolve(operator).ready_to_count("cpu")


def test_an_error_while_a_model_is_built_is_a_mistake_in_its_config() -> None:
    # Its initial weights are divided by the number of layers minus one.
    operator = model("RwkvModel", (1, 16), vocab_size=8, hidden_size=8, num_hidden_layers=1)
    with pytest.raises(CannotBuildError, match="RwkvModel cannot be built: ZeroDivisionError"):
        resolve(operator).ready_to_count("cpu")


def test_an_error_in_a_models_own_code_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise AttributeError("'NoneType' object has no attribute 'shape'")

    monkeypatch.setattr(transformers.BertModel, "forward", failing)
    operator = model("BertModel", (1, 16), **SMALL_TEXTS)
    with pytest.raises(CannotMeasureError, match="AttributeError: 'NoneType' object has no attribute 'shape'"):
        resolve(operator).ready_to_count("cpu")


def test_the_librarys_advice_on_a_default_configuration_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    # Its end of a text is no token of its own vocabulary.
    assert listed("SiglipTextModel").input_size == (1, 64)
    assert TensorSpec((1, 128), "int64") in model("SiglipTextModel", (1, 128)).inputs
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "size", "inputs"),
    [
        ("CLIPModel", (1, 77), {"input_ids": (1, 77), "pixel_values": (1, 3, 224, 224)}),
        ("SiglipModel", (1, 64), {"input_ids": (1, 64), "pixel_values": (1, 3, 224, 224)}),
        ("WhisperModel", (1, 80, 3000), {"input_features": (1, 80, 3000), "decoder_input_ids": (1, 128)}),
        ("CLIPTextModel", (1, 77), {"input_ids": (1, 77)}),
    ],
)
def test_a_model_of_several_inputs_runs_at_its_usual_size(
    name: str, size: tuple[int, ...], inputs: dict[str, tuple[int, ...]]
) -> None:
    assert listed(name).input_size == size
    ready = resolve(model_operator(f"transformers:{name}", None, size)).ready_to_count("meta")
    assert {key: tuple(value.shape) for key, value in ready.keyword_inputs.items()} == inputs


def test_images_beside_texts_are_stored_as_the_weights_are() -> None:
    texts = {"text_config": Structure("dict", tuple(SMALL_TEXTS.items()))}
    images = {"vision_config": Structure("dict", (*SMALL_TEXTS.items(), ("image_size", 32), ("patch_size", 16)))}
    further = ((ARGUMENTS, Structure("dict", tuple({**texts, **images}.items()))),)
    operator = model_operator("transformers:CLIPModel", None, (2, 8), further=further)
    ready = resolve(stored_as(operator, "bfloat16", is_channels_last=True)).ready_to_count("cpu")
    image = ready.keyword_inputs["pixel_values"]
    assert (image.shape, image.dtype) == ((2, 3, 32, 32), torch.bfloat16)
    assert image.is_contiguous(memory_format=torch.channels_last)


def test_a_model_without_a_usual_size_is_refused_with_the_place_of_its_inputs(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"its input size is not published; add .*, or describe its inputs in a summary"
    ):
        configs_of(ModelFolders(tmp_path), [WantedModel("transformers:Blip2Model")])


def test_a_mistake_in_the_usual_inputs_is_not_said_of_an_option_that_was_not_given(tmp_path: Path) -> None:
    wanted = WantedModel("transformers:BlipForConditionalGeneration")
    (one,) = configs_of(ModelFolders(tmp_path / "own"), [wanted])
    assert one.where("input_size") == "MODEL"
    request = RunRequest((), ModelFolders(tmp_path / "own"), Database(tmp_path / "database"), "cpu")
    (failure,) = count_operators(request, RecordedProgress(), on_meta=True, configs=[one])
    assert isinstance(failure, CountFailure)
    assert failure.reason.startswith("MODEL: BlipForConditionalGeneration raised AttributeError: ")
    assert failure.reason.endswith(f"; correct its size, or {INPUTS_HELP}")
    given = replace(wanted, input_size=(1, 3, 224, 224))
    (one,) = configs_of(ModelFolders(tmp_path / "own"), [given])
    assert one.where("input_size") == "--input-size"
