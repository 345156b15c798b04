"""The cost of tokens, learned from committed rows: the grid, the parts of the work, and the table."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from committed_models import known_database

import opcost
from opcost.errors import UserError
from opcost.measuring.precisions import TORCH_DEFAULT
from opcost.operators.generation import DECODE, PREFILL
from opcost.progress import Progress
from opcost.reporting.token_tables import print_tokens, token_lines, tokens_object
from opcost.running.request import RunRequest
from opcost.stages.predict import kept_costs
from opcost.stages.tokens import Point, RequestSize, TokenReport, TokenRequest, WorkPart, tokens, without_refused
from opcost.storage.configs import ModelFolders
from opcost.storage.language_models import LanguageModel

pytest.importorskip("transformers")
ROOT = Path(__file__).parents[2]

SMALL = LanguageModel(
    "LlamaForCausalLM",
    (
        ("hidden_size", 512),
        ("intermediate_size", 1024),
        ("num_attention_heads", 8),
        ("num_hidden_layers", 2),
        ("num_key_value_heads", 2),
        ("vocab_size", 4000),
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="module")
def request_of(folder: Path) -> RunRequest:
    return RunRequest((), ModelFolders(folder / "mine", ROOT / "measurements"), known_database(folder))


@pytest.fixture(scope="module")
def report(request_of: RunRequest, folder: Path) -> TokenReport:
    wish = TokenRequest("small", SMALL, (1, 64), (128, 1024), TORCH_DEFAULT, "H200", (None,))
    return tokens(request_of, wish, folder / "cache", Progress())


def test_prompts_are_read_one_by_one_and_steps_are_over_the_grid(report: TokenReport) -> None:
    prompts = [Point(PREFILL, 1, context) for context in (128, 1024)]
    steps = [Point(DECODE, batch, context) for batch in (1, 64) for context in (128, 1024)]
    assert [one.point for one in report.costs] == prompts + steps
    assert [one.point.tokens for one in report.costs] == [128, 1024, 1, 1, 64, 64]
    assert (report.device_product, report.execution) == ("NVIDIA H200", "graph")


def test_more_texts_share_the_weights_and_longer_ones_have_more_cache(report: TokenReport) -> None:
    short, long, many_short, many_long = (one for one in report.costs if one.point.mode == DECODE)
    assert many_short.tokens_per_s > 5 * short.tokens_per_s
    assert short.weights_ratio > 0.8 > many_long.weights_ratio
    assert many_long.cache_ratio > 2 * many_short.cache_ratio > 2 * short.cache_ratio
    assert long.time_s.value > short.time_s.value
    for one in report.costs:
        assert sum(one.time_ratios.values()) == pytest.approx(1)
        assert one.weights_ratio + one.cache_ratio < 1
        assert one.energy_ratios is not None
        assert one.energy_ratios[WorkPart.PRODUCTS] > 0


def test_a_request_is_its_prefill_and_the_mean_of_its_first_and_last_step_times_its_tokens(
    request_of: RunRequest, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = RequestSize(128, 896)
    wish = TokenRequest("small", SMALL, (1, 64), (128,), TORCH_DEFAULT, "H200", (None,), (size,))
    found = tokens(request_of, wish, folder / "cache", Progress())
    assert [one.point for one in found.costs] == [
        Point(PREFILL, 1, 128),
        *(Point(DECODE, batch, context) for batch in (1, 64) for context in (128, 1024)),
    ]
    prefill, alone_first, alone_last, first, last = (one for one in found.costs)
    alone, among = found.requests
    assert (alone.batch, among.batch, among.size) == (1, 64, size)
    assert among.time_s.value == pytest.approx(
        prefill.time_s.value + 448 * (first.time_s.value + last.time_s.value), rel=1e-12
    )
    assert alone.energy_j is not None
    assert among.energy_j is not None
    assert prefill.energy_j is not None
    made_j = [one.energy_j.value / one.point.batch for one in (alone_first, alone_last, first, last) if one.energy_j]
    assert alone.energy_j.value == pytest.approx(prefill.energy_j.value + 448 * sum(made_j[:2]), rel=1e-12)
    assert among.energy_j.value == pytest.approx(prefill.energy_j.value + 448 * sum(made_j[2:]), rel=1e-12)
    # Among others a token takes less energy, and longer.
    assert among.energy_j.value < alone.energy_j.value
    assert among.time_s.value > alone.time_s.value
    assert among.energy_j.lower < among.energy_j.value < among.energy_j.upper
    assert among.prefill_energy_ratio == pytest.approx(prefill.energy_j.value / among.energy_j.value)
    print_tokens(found)
    assert "One request" in capsys.readouterr().out
    assert tokens_object(found)["requests"][0]["size"] == {"prompt": 128, "made": 896}


def test_python_has_the_requests_of_the_command(
    request_of: RunRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **dict(SMALL.arguments)}))
    # The path of the module's cache.
    monkeypatch.setattr("opcost.api.cache_folder", lambda: folder / "cache")
    asked = {"precision": TORCH_DEFAULT, "device": "H200", "database": request_of.database.folder}
    frame = opcost.tokens(str(path), (1, 64), request=(128, 896), **asked)
    size = RequestSize(128, 896)
    wish = TokenRequest("small", SMALL, (1, 64), (), TORCH_DEFAULT, "H200", (None,), (size,))
    expected = tokens(request_of, wish, folder / "cache", Progress()).requests
    assert list(frame["energy_j"]) == [one.energy_j.value for one in expected if one.energy_j is not None]
    assert list(frame["time_s"]) == [one.time_s.value for one in expected]
    assert frame[["prompt", "made", "batch"]].to_numpy().tolist() == [[128, 896, 1], [128, 896, 64]]
    of_two = opcost.tokens(str(path), (1,), request=[(128, 896), (128, 128)], **asked)
    assert list(of_two["made"]) == [896, 128]


def test_kinds_of_attention_stand_beside_each_other_but_for_those_that_cannot_run(
    request_of: RunRequest, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = "copied", "copied:efficient", "efficient", "math"
    size = RequestSize(128, 128)
    grid = (1,), (128,), TORCH_DEFAULT, "H200", (None,)
    wish = without_refused(request_of, TokenRequest("small", SMALL, *grid, (size,), kinds))
    # In a prefill the heads of keys are fewer than those of queries.
    assert [(mode, kind) for mode, kind, _ in wish.refused] == [(PREFILL, "efficient")]
    found = tokens(request_of, wish, folder / "cache", Progress())
    assert [one.point.attention for one in found.costs if one.point.mode == PREFILL] == ["copied", kinds[1], "math"]
    steps = [one for one in found.costs if one.point == replace(one.point, mode=DECODE, context=128)]
    assert [one.point.attention for one in steps] == list(kinds)
    assert steps[3].cache_ratio < steps[2].cache_ratio
    assert not any(one.is_attention_known for one in found.costs)
    assert [one.attention for one in found.requests] == ["copied", kinds[1], "math"]
    print_tokens(found)
    text = capsys.readouterr().out
    assert "attention by" in text
    assert "has no row" in text
    assert tokens_object(found)["refused"][0][:2] == (PREFILL, "efficient")


def test_kinds_that_all_cannot_run_are_a_mistake_of_one_line_each(request_of: RunRequest) -> None:
    wish = TokenRequest("small", SMALL, (1,), (128,), TORCH_DEFAULT, "H200", (None,), (), ("flash",))
    with pytest.raises(UserError) as raised:
        without_refused(request_of, wish)
    prefill, step = raised.value.lines
    assert "--attention: attention flash alone cannot run a call of it on a GPU, because it is in float32" in prefill
    assert "because it has a mask; choose another" in step


def test_both_executions_are_points_of_their_own() -> None:
    wish = TokenRequest("small", SMALL, (8,), (16,), executions=("graph", "eager"))
    assert wish.points == [
        Point(PREFILL, 1, 16, execution="graph"),
        Point(PREFILL, 1, 16, execution="eager"),
        Point(DECODE, 8, 16, execution="graph"),
        Point(DECODE, 8, 16, execution="eager"),
    ]


def test_weights_of_functions_are_weights_too(request_of: RunRequest, folder: Path) -> None:
    model = LanguageModel("GPT2LMHeadModel", (("n_embd", 256), ("n_head", 4), ("n_layer", 2), ("vocab_size", 2000)))
    wish = TokenRequest("gpt2", model, (1,), (16,), TORCH_DEFAULT, "H200", (None,))
    step = tokens(request_of, wish, folder / "cache", Progress()).costs[-1]
    assert 0.9 < step.weights_ratio < 1


def test_configs_and_what_was_learned_are_read_once_for_all_points(
    request_of: RunRequest, folder: Path, report: TokenReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def recorded(function: Callable[..., object]) -> Callable[..., object]:
        return lambda *given: read.append(given) or function(*given)

    monkeypatch.setattr(ModelFolders, "sound_configs", recorded(ModelFolders.sound_configs))
    monkeypatch.setattr("opcost.stages.predict.kept_costs", recorded(kept_costs))
    wish = TokenRequest("small", SMALL, (1,), (128, 1024), TORCH_DEFAULT, "H200", (None,))
    assert tokens(request_of, wish, folder / "cache", Progress()).costs == report.costs[:4]
    assert len(read) == 2


def test_a_model_whose_cache_has_no_keys_is_refused(request_of: RunRequest, folder: Path) -> None:
    small = ("hidden_size", 32), ("num_hidden_layers", 1), ("vocab_size", 100)
    wish = TokenRequest("mamba", LanguageModel("MambaForCausalLM", small), (1,), (16,), TORCH_DEFAULT, "H200", (None,))
    with pytest.raises(UserError, match="LinearAttentionLayer has no keys and values"):
        tokens(request_of, wish, folder / "cache", Progress())


def test_the_table_and_the_object_have_each_point(report: TokenReport, capsys: pytest.CaptureFixture[str]) -> None:
    print_tokens(report)
    text = capsys.readouterr().out
    assert "Decode step, one token of each text: small on NVIDIA H200" in text
    assert text.count("predicted") >= 6
    found = tokens_object(report)
    assert [one["tokens"] for one in found["costs"]] == [128, 1024, 1, 1, 64, 64]
    one = found["costs"][-1]
    assert one["energy_of_token_j"].value * 64 == pytest.approx(one["energy_j"]["value"])
    lines = list(token_lines(report))
    assert [line["mode"] for line in lines] == [PREFILL] * 2 + [DECODE] * 4
    for line in lines:
        assert line["energy_of_token_lower_j"] < line["energy_of_token_j"] < line["energy_of_token_upper_j"]  # type: ignore[operator]
