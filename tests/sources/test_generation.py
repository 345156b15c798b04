"""Prefills and decode steps of language models: configs, runs that repeat, and counts beside those by hand."""

from importlib import metadata
from pathlib import Path

import pytest
import torch

from opcost.errors import UserError
from opcost.operators.attention import FORMS as FORMS_OF_ATTENTION
from opcost.operators.counts import OperatorCounts
from opcost.operators.model_inputs import Unit
from opcost.operators.tuples import META, Structure
from opcost.sources.models import resolve
from opcost.sources.registry import check_config
from opcost.storage.configs import ModelConfig, load_config, model_tuple
from opcost.storage.language_models import public_models
from opcost.storage.schemas import tree_text
from opcost.torch_backend.capture import capture, repeatable
from opcost.torch_backend.switches import attending

pytest.importorskip("transformers")

SMALL = "{hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2}"
OF_8B = (
    "{hidden_size: 4096, intermediate_size: 14336, num_hidden_layers: 32, num_attention_heads: 32, "
    "num_key_value_heads: 8, vocab_size: 128256, max_position_embeddings: 131072}"
)


def configs_of(folder: Path, *lines: str, name: str = "LlamaForCausalLM", arguments: str = SMALL) -> list[ModelConfig]:
    path = folder / "llama" / "summary.yml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([f"model_name: transformers:{name}", f"arguments: {arguments}", "done: false", *lines]))
    return load_config(path, path.parent, check_config)


def counts_of(config: ModelConfig) -> OperatorCounts:
    return capture(resolve(model_tuple(config)).ready_to_count(META), model_tuple(config))


def test_a_decode_step_writes_the_last_position_of_its_cache_and_repeats(tmp_path: Path) -> None:
    (config,) = configs_of(tmp_path, "input_size: [3, 1]", "mode: decode", "context: 16")
    ready = repeatable(resolve(model_tuple(config)).with_inputs("cpu"))
    (cache,) = [value for value in ready.keyword_inputs.values() if not isinstance(value, torch.Tensor)]
    before = cache.layers[0].keys.clone()
    with torch.inference_mode():
        first, second = (ready.run().logits for _ in range(2))
    assert first.shape == (3, 1, 32000)
    assert torch.equal(first, second)
    assert torch.equal(before[:, :, :-1], cache.layers[0].keys[:, :, :-1])
    assert before.shape == (3, 2, 16, 16)
    assert before.std() > 0.5


def test_a_decode_step_returns_what_a_whole_run_returns_at_its_position(tmp_path: Path) -> None:
    (config,) = configs_of(tmp_path, "input_size: [2, 1]", "mode: decode", "context: 9")
    ready = resolve(model_tuple(config)).ready_to_count("cpu")
    (name,) = ready.keyword_inputs.keys() - {"input_ids"}
    cache, token = ready.keyword_inputs[name], ready.keyword_inputs["input_ids"]
    prompt = torch.randint(0, 32000, (2, 8), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        whole = ready.model(torch.cat([prompt, token], dim=1)).logits[:, -1]
        for layer in cache.layers:
            layer.cumulative_length.zero_()
        ready.model(input_ids=prompt, **{name: cache})
        step = ready.model(**ready.keyword_inputs).logits[:, -1]
    torch.testing.assert_close(step, whole, rtol=1e-4, atol=1e-4)


def test_a_prefill_computes_the_last_logits_only(tmp_path: Path) -> None:
    (config,) = configs_of(tmp_path, "input_size: [2, 8]", "mode: prefill")
    with torch.inference_mode():
        assert resolve(model_tuple(config)).ready_to_count("cpu").run().logits.shape == (2, 1, 32000)


def test_a_step_of_8b_has_the_flops_and_bytes_of_a_count_by_hand(tmp_path: Path) -> None:
    lines = "input_size: [32, 1]", "mode: decode", "context: 2048", "precision: bf16"
    (config,) = configs_of(tmp_path, *lines, arguments=OF_8B)
    counts = counts_of(config)
    # Weights but the table of tokens; products and attention; the cache, read once.
    weights = 32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336) + 4096 * 128256
    flop = 2 * 32 * (weights + 32 * 2 * 4096 * 2048)
    cache_bytes = 2 * 2 * 32 * 32 * 8 * 128 * 2048
    assert sum(one.flop * one.occurrences for one in counts.counts if one.flop) == pytest.approx(flop, rel=0.001)
    in_all = sum(one.memory_bytes * one.occurrences for one in counts.counts if one.computes)
    assert in_all == pytest.approx(2 * weights + cache_bytes, rel=0.05)


def test_lists_of_contexts_are_cases_whose_costs_are_of_tokens(tmp_path: Path) -> None:
    lines = "input_size: [1, 1]", "batch: [1, 8]", "mode: decode", "context: [16, 32]"
    configs = configs_of(tmp_path, *lines)
    assert [one.name for one in configs] == [
        f"llama_{batch}x1_context{context}" for batch in (1, 8) for context in (16, 32)
    ]
    assert len({model_tuple(one).key for one in configs}) == 4
    assert [one.units.number for one in configs if one.units] == [1, 1, 8, 8]
    assert {one.unit for one in configs} == {Unit.TOKEN}


@pytest.mark.parametrize(
    ("name", "lines", "mistake"),
    [
        ("LlamaForCausalLM", ("input_size: [8, 1]", "mode: decode"), "mode: a decode step needs the length"),
        ("LlamaForCausalLM", ("input_size: [8, 1]", "context: 16"), "context: it is of a decode step"),
        ("LlamaForCausalLM", ("input_size: [8, 4]", "mode: decode", "context: 16"), "input_size: a decode step reads"),
        ("BertModel", ("input_size: [8, 16]", "mode: prefill"), "model_name: BertModel makes no text"),
        ("LlamaForCausalLM", ("input_size: [8, 1]", "mode: decode", "context: 4096"), "context: 4096 tokens, but"),
        ("LlamaForCausalLM", ("input_size: [8, 4096]", "mode: prefill"), "input_size: 4096 tokens, but"),
        ("LlamaForCausalLM", ("input_size: [8, 1]", "mode: decode", "context: []"), "context: "),
        (
            "LlamaForCausalLM",
            ("input_size: [8, 1]", "mode: decode", "context: 16", "precision: amp-bf16"),
            "precision: a cache has one dtype",
        ),
    ],
)
def test_mistakes_name_their_key(tmp_path: Path, name: str, lines: tuple[str, ...], mistake: str) -> None:
    with pytest.raises(UserError) as raised:
        configs_of(tmp_path, *lines, name=name, arguments="{hidden_size: 64}")
    assert mistake in str(raised.value)


def test_reserved_arguments_are_keys(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="arguments: prefill and decode_context are no arguments"):
        configs_of(tmp_path, "input_size: [8, 1]", arguments="{decode_context: 16}")


FORMS = {
    "copied": ("float32[3, 4, 1, 16]", "float32[3, 4, 16, 16]", True),
    "packed": ("float32[3, 2, 2, 16]", "float32[3, 2, 16, 16]", True),
    "unmasked": ("float32[3, 4, 1, 16]", "float32[3, 2, 16, 16]", False),
}


def of_form(folder: Path, form: str, *lines: str) -> ModelConfig:
    (config,) = configs_of(folder, *lines, arguments=SMALL.replace("{", f"{{attn_implementation: {form}, "))
    return config


@pytest.mark.parametrize("lines", [("input_size: [3, 1]", "mode: decode", "context: 16"), ("input_size: [3, 8]",)])
def test_each_form_of_attention_returns_the_same(tmp_path: Path, lines: tuple[str, ...]) -> None:
    results = []
    for form in FORMS_OF_ATTENTION:
        ready = repeatable(resolve(model_tuple(of_form(tmp_path, form, *lines))).with_inputs("cpu"))
        with torch.inference_mode():
            results.append(ready.run().logits)
    for one in results[1:]:
        torch.testing.assert_close(one, results[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_attention_decides_its_calls(tmp_path: Path, form: str) -> None:
    counts = counts_of(of_form(tmp_path, form, "input_size: [3, 1]", "mode: decode", "context: 16"))
    (call,) = [one.operator for one in counts.counts if one.operator.short_name == "scaled_dot_product_attention"]
    query, key, is_masked = FORMS[form]
    assert tuple(map(str, call.inputs[:2])) == (query, key)
    assert (dict(call.keyword_inputs)["attn_mask"] is not None) == is_masked
    assert counts.library == f"transformers {metadata.version('transformers')}"


def test_a_back_end_alone_has_its_own_operations(tmp_path: Path) -> None:
    lines = "input_size: [3, 1]", "mode: decode", "context: 16", "attention: [torch-default, math]"
    any_one, math = configs_of(tmp_path, *lines)
    assert (any_one.name, math.name) == ("llama_torch-default", "llama_math")
    with attending("math"):
        products = counts_of(math)
    assert products.total_memory_bytes > counts_of(any_one).total_memory_bytes
    assert products.total_flop == counts_of(any_one).total_flop
    # Counts of both are kept beside each other.
    assert model_tuple(math).key != model_tuple(any_one).key


@pytest.mark.parametrize("context", [16, 32, 48])
def test_a_layer_with_a_window_runs_on_a_full_one(tmp_path: Path, context: int) -> None:
    arguments = SMALL.replace("{", "{sliding_window: 32, ")
    lines = "input_size: [2, 1]", "mode: decode", f"context: {context}"
    (config,) = configs_of(tmp_path, *lines, name="MistralForCausalLM", arguments=arguments)
    ready = repeatable(resolve(model_tuple(config)).with_inputs("cpu"))
    with torch.inference_mode():
        first, second = (ready.run().logits for _ in range(2))
    assert torch.equal(first, second)
    names = {one.operator.short_name for one in capture(ready, model_tuple(config)).counts}
    assert ("roll" in names) == (context > 32)


@pytest.mark.parametrize("name", public_models())
def test_public_models_are_described_by_their_classes(tmp_path: Path, name: str) -> None:
    model = public_models()[name]
    arguments = tree_text(Structure("dict", tuple(sorted({**dict(model.arguments), "num_hidden_layers": 1}.items()))))
    lines = "input_size: [2, 1]", "mode: decode", "context: 128", "precision: bf16"
    (config,) = configs_of(tmp_path, *lines, name=model.class_name, arguments=arguments)
    assert {"Linear", "scaled_dot_product_attention"} <= {one.operator.short_name for one in counts_of(config).counts}


def test_of_experts_as_many_as_rows_are_read(tmp_path: Path) -> None:
    model = public_models()["qwen3-30b-a3b"]
    arguments = tree_text(Structure("dict", tuple(sorted({**dict(model.arguments), "num_hidden_layers": 1}.items()))))
    lines = "input_size: [1, 1]", "mode: decode", "context: 128", "precision: bf16"
    (config,) = configs_of(tmp_path, *lines, name=model.class_name, arguments=arguments)
    products = [one for one in counts_of(config).counts if one.operator.short_name == "_grouped_mm"]
    # Two products, of the gate with what goes up and of what goes down, of 8 experts in 2 bytes.
    expected = 2 * 8 * 2048 * 3 * 768
    assert sum(one.memory_bytes * one.occurrences for one in products) == pytest.approx(expected, rel=0.01)


def test_models_of_other_libraries_are_no_language_models(tmp_path: Path) -> None:
    path = tmp_path / "summary.yml"
    path.write_text("model_name: resnet18\ninput_size: [8, 1]\nmode: decode\ncontext: 16\ndone: false\n")
    with pytest.raises(UserError, match="mode: models of transformers only are generated with"):
        load_config(path, tmp_path)
