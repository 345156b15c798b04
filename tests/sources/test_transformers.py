"""transformers as a source: inputs that follow from a size, and models that do not run on theirs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from simulated_apparatus import RecordedProgress

pytest.importorskip("transformers")

import transformers

from opcost.errors import CannotBuildError, CannotMeasureError, UserError
from opcost.operators.tuples import ARGUMENTS, OperatorTuple, Structure, TensorSpec, model_operator, stored_as
from opcost.running.request import Request
from opcost.sources.models import resolve
from opcost.sources.transformers import listed
from opcost.stages.count import CountFailure, count_operators
from opcost.stages.profile_configs import configs_of
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import INPUTS_HELP
from opcost.storage.database import Database
from opcost.storage.model_folders import ModelFolders

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
    assert one.config.where("input_size") == "MODEL"
    request = Request((), tmp_path / "own", Database(tmp_path / "database"), "cpu")
    (failure,) = count_operators(request, RecordedProgress(), on_meta=True, configs=[one.config])
    assert isinstance(failure, CountFailure)
    assert failure.reason.startswith("MODEL: BlipForConditionalGeneration raised AttributeError: ")
    assert failure.reason.endswith(f"; correct its size, or {INPUTS_HELP}")
    given = replace(wanted, input_size=(1, 3, 224, 224))
    (one,) = configs_of(ModelFolders(tmp_path / "own"), [given])
    assert one.config.where("input_size") == "--input-size"
