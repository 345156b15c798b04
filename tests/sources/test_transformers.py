"""transformers as a source: inputs that follow from a size, and models that do not run on theirs."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

import transformers

from opcost.errors import CannotBuildError, CannotMeasureError
from opcost.operators.tuples import ARGUMENTS, OperatorTuple, Structure, TensorSpec, model_operator
from opcost.sources.models import resolve
from opcost.sources.transformers import listed

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
    assert listed("SiglipTextModel").input_size == (1, 128)
    assert TensorSpec((1, 128), "int64") in model("SiglipTextModel", (1, 128)).inputs
    assert capfd.readouterr().err == ""
