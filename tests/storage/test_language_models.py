"""Language models by public names, and in files of their configuration."""

import json
from pathlib import Path

import pytest

from opcost.errors import UserError
from opcost.storage.language_models import LanguageModel, language_model, public_models

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_attention_heads": 4,
    "rope_scaling": {"rope_type": "llama3"},
    "sliding_window": None,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
    "transformers_version": "5.0.0",
}


def test_public_names_have_a_class_and_its_sizes_in_any_case() -> None:
    found = language_model("Llama-3.1-8B")
    assert found.class_name == "LlamaForCausalLM"
    assert dict(found.arguments)["num_key_value_heads"] == 8
    assert dict(found.arguments)["tie_word_embeddings"] is False
    assert "num_experts" not in dict(found.arguments)
    assert dict(language_model("qwen3-30b-a3b").arguments)["num_experts"] == 128
    assert all(list(one.arguments) == sorted(one.arguments) for one in public_models().values())


def test_a_class_is_itself() -> None:
    assert language_model("transformers:GPT2LMHeadModel") == LanguageModel("GPT2LMHeadModel", ())


def test_a_file_gives_what_decides_the_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    own = ("hidden_size", 64), ("num_attention_heads", 4), ("tie_word_embeddings", True)
    assert language_model(str(path)) == LanguageModel("LlamaForCausalLM", own)
    assert not caplog.records
    path.write_text(json.dumps({**CONFIG, "quantization_config": {"bits": 4}}))
    assert language_model(str(path)).arguments == own
    assert "quantization_config is left out" in caplog.text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("{", "is no JSON"),
        ("[1]", "architectures: it names no class"),
        ('{"architectures": []}', "architectures: it names no class"),
    ],
)
def test_a_wrong_file_is_named_with_a_remedy(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError) as raised:
        language_model(str(path))
    (line,) = raised.value.lines
    assert line.startswith(f"{path}: {problem}")
    assert "; " in line


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"no language model of this name is known; name one of llama-3\.2-1b, "):
        language_model("gpt-5")
