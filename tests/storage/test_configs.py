"""Files that people write are read strictly: all mistakes at once, with line and remedy; lists make cases."""

import itertools
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from seeds import some_of
from written_configs import FOLDER_NAMES, SHIPPED, SWEEP, SWEPT, VALID, error_lines, names, one_mistake, write

from opcost.errors import UserError
from opcost.storage.configs import ModelConfig, ModelFolders, load_whitelist
from opcost.storage.schemas import case_name, without_size
from opcost.storage.yaml_files import MAXIMUM_BYTES, MISTAKES_SHOWN

PRECISIONS = ["torch-default", "fp32", "tf32", "bf16", "fp16", "amp-bf16"]
FORMATS = ["contiguous", "channels_last"]


SHIPPED_NAMES = (
    "resnet18_32x3x32x32 resnet18_32x3x224x224 resnet18_32x3x299x299 resnet34_32x3x56x56 resnet34_32x3x299x299 "
    "resnet50_32x3x224x224 resnet101_32x3x224x224 alexnet_32x3x224x224 vgg16_32x3x224x224 densenet121_32x3x224x224 "
    "inception_v3_32x3x299x299 efficientnet_b0_32x3x224x224 mobilenet_v3_large_32x3x224x224 "
    "convnext_base_32x3x224x224 convnext_base_32x3x384x384 vit_b_16_32x3x224x224 swin_t_32x3x224x224 "
    "regnet_y_8gf_32x3x224x224"
).split()

# Reading


def test_a_valid_file_becomes_a_config(tmp_path: Path) -> None:
    path = write(tmp_path, "small", VALID + "precision: fp32\n")
    assert ModelFolders(tmp_path).configs([]) == [
        ModelConfig("small", path, "resnet18", None, (32, 3, 224, 224), done=False, precision="fp32")
    ]


def test_a_file_that_says_little_is_random_weights_and_what_torch_does_unasked(tmp_path: Path) -> None:
    path = write(tmp_path, "x", "model_name: resnet18\ninput_size: [32, 3, 224, 224]\n")
    (config,) = ModelFolders(tmp_path).configs([])
    assert config == ModelConfig("x", path, "resnet18", None, (32, 3, 224, 224), False, "torch-default")


@pytest.mark.parametrize(
    "content",
    [
        VALID.replace("\n", "\r\n"),
        "\ufeff" + VALID,
        "---\n" + VALID + "...\n",
        "{\"model_name\": resnet18, weights_name: ~, input_size: [32, 3, 224, 224], 'done': no}",
        "model_name: resnet18\nweights_name:\ninput_size:\n- 32\n- 3\n- 224\n- +224\ndone:\n  off\n",
    ],
    ids=["crlf", "bom", "document marks", "flow", "block list"],
)
def test_other_spellings_of_the_same_file_are_read_alike(tmp_path: Path, content: str) -> None:
    path = write(tmp_path, "x", content)
    assert ModelFolders(tmp_path).configs([]) == [
        ModelConfig("x", path, "resnet18", None, (32, 3, 224, 224), done=False)
    ]


def test_a_quoted_word_that_yaml_takes_for_a_boolean_is_a_name(tmp_path: Path) -> None:
    write(tmp_path, "x", VALID.replace("null", '"NO"'))
    assert ModelFolders(tmp_path).configs([])[0].weights_name == "NO"


def errors_in(folder: Path, content: str) -> list[str]:
    write(folder, "x", content)
    return error_lines(folder)


# Mistakes in one file


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("", 1, "is empty"),
        ("# nothing\n", 1, "is empty"),
        ("---\n", 1, "is empty"),
        ("\n- resnet18\n", 2, "a list of 1|write lines such as model_name: resnet18"),
        ("resnet18\n", 1, "the text 'resnet18'"),
        (VALID + "\tx: 1\n", 6, "not valid YAML: found character '\\t'"),
        (VALID.replace("done: ", "done:\t"), 5, "not valid YAML: found character '\\t'"),
        (VALID + "a: b: c\n", 6, "not valid YAML: mapping values are not allowed here; change it"),
        (VALID.replace("]", ""), 5, "not valid YAML: expected ',' or ']'|while parsing"),
        (VALID + "a: 'b\n", 7, "not valid YAML: found unexpected end of stream (while scanning a quoted"),
        (VALID + "a: \x07\n", 6, "not valid YAML: the character '\\x07' is not allowed; remove it"),
        (VALID + 'a: "\\UFFFFFFFF"\n', 6, "not valid YAML: a number or an escape is out of range"),
        (VALID + "a: " + "[" * 50_000, 6, "not valid YAML: nested deeper than 8 levels"),
        (VALID.encode() + b"# caf\xe9\n", 6, "not UTF-8"),
        (VALID.encode("utf-16"), 1, "not UTF-8"),
        (VALID + f"a: !{'m' * 999}!x y\n", 6, f"not valid YAML: found undefined tag handle '!{'m' * 160}"),
    ],
)
def test_a_text_that_is_no_mapping_is_one_line(tmp_path: Path, content: str | bytes, line: int, words: str) -> None:
    write(tmp_path, "x", content)
    one_mistake(tmp_path, line, words)


def test_a_file_of_just_64_kb_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, "x", VALID + "#" * (MAXIMUM_BYTES - len(VALID)))
    assert names(tmp_path) == ["x"]
    path.write_text(VALID + "#" * MAXIMUM_BYTES)
    (line,) = error_lines(tmp_path)
    assert "larger than 64 kB; keep only its keys" in line


def test_a_folder_without_its_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (line,) = error_lines(tmp_path)
    assert line.startswith("x/summary.yml: no such file; run in the root")


def test_the_folder_of_compiled_files_beside_a_program_is_no_model(tmp_path: Path) -> None:
    write(tmp_path, "x", VALID)
    (tmp_path / "__pycache__").mkdir()  # pip compiles networks.py, which is among the shipped configs
    assert names(tmp_path) == ["x"]


SIZE = "[32, 3, 224, 224]"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (SIZE, '[32, "3", 224, 224]', 4, "input_size: item 2 is the text '3'; write input_size: [32, 3"),
        (SIZE, "[32, True]", 4, "input_size: item 2 is True, in YAML a boolean"),
        (SIZE, "[32, 1:30]", 4, "input_size: item 2|1:30, in YAML a number"),
        (SIZE, "[32, 3.0]", 4, "item 2 is 3.0, in YAML a number"),
        (SIZE, "[0, 3]", 4, "item 1 is 0, in YAML a number"),
        (SIZE, "[32, [3]]", 4, "item 2 is a list of 1"),
        (SIZE, "[32]", 4, "input_size: the value is a list of 1"),
        (SIZE, "[1, 1, 1, 1, 1, 1, 1]", 4, "a list of 7"),
        (SIZE, "32x3", 4, "input_size: the value is the text '32x3'"),
        (SIZE, "[" + "1" * 5000 + ", 3]", 4, "item 1|1111..."),
        (SIZE, "[[32, 3, 224, 224], [8, 0]]", 4, "input_size: item 2: item 2 is 0"),
        (SIZE, "[[32, 3], [8]]", 4, "input_size: item 2 is a list of 1"),
        (SIZE, "\n- [32, 3, 224, 224]\n- [8, 3, 224, 224]\nbatch: [1, 8]", 6, "input_size: item 2|also as item 1"),
        (
            SIZE,
            f"{[[1, n] for n in range(1, 101)]}\nbatch: {list(range(1, 12))}",
            5,
            "batch, input_size|1100 cases|1000",
        ),
        (f"input_size: {SIZE}\n", "", 1, "input_size: missing; write input_size: [32, 3"),
        ("input_size", "inputsize", 4, "inputsize: unknown key; did you mean input_size?"),
        ("model_name", "model", 2, "model: unknown key; did you mean model_name?"),
        ("null", "NO", 3, 'weights_name: the value is NO, in YAML a boolean; put quotes round it ("NO")'),
        ("null", "2024-99-99", 3, "weights_name: the value is 2024-99-99, in YAML a date|in quotes ('2024-99-99')"),
        ("resnet18", "18", 2, 'model_name: the value is 18, in YAML a number; put quotes round it ("18")'),
        ("null", "None", 3, "weights_name: the value is the text 'None'; write weights_name: null"),
        ("resnet18", "", 2, "model_name: the value is empty; write model_name: resnet18"),
        ("resnet18", "r" * 201, 2, f"the text '{'r' * 60}...'"),
        ("false", f"false\ncomposites: [{'A' * 201}]", 6, f"composites: item 1 is the text '{'A' * 60}...'"),
        ("resnet18", "res net", 2, "the text 'res net'"),
        ("resnet18", "[resnet18]", 2, "a list of 1"),
        ("false", '"true"', 5, "done: the value is the text 'true'; write done: false"),
        ("false", "", 5, "done: the value is empty"),
        ("false", "[x]", 5, "done: a list of cases|write done: false"),
        ("false", "[x_fp32, 1]\nprecision: [fp32]", 5, "done: item 2 is 1"),
        ("false", "false\nprecision: on", 6, "precision: the value is on, in YAML a boolean; write one of torch"),
        ("done", "precision: [fp32, fp23]\ndone", 5, "precision: item 2 is the text 'fp23'; write one of"),
        ("false", "false\nmemory_format: nhwc", 6, "the text 'nhwc'|contiguous or channels_last"),
        (
            "false",
            "false\nmode: eval",
            6,
            "mode: the value is the text 'eval'; write one of inference, training, prefill or decode",
        ),
        ("false", "false\nloss: mse", 6, "loss: it is of a training step; write mode: training, too"),
        ("done", "mode: training\noptimizer: rmsprop\ndone", 6, "optimizer: its name is 'rmsprop', not sgd or adam or"),
        ("done", "mode: training\noptimizer: {lr: 1}\ndone", 6, "optimizer: its name is '', not sgd or adam or adamw"),
        ("done", "mode: training\noptimizer: {name: sgd, betas: 1}\ndone", 6, "sgd has no option betas; it has lr, "),
        ("done", "mode: training\noptimizer: {name: sgd, lr: fast}\ndone", 6, "lr is fast; write a number from 0 up"),
        ("done", "mode: training\noptimizer: {name: adam, fused: 1}\ndone", 6, "fused is 1; write true or false"),
        (
            "done",
            "mode: training\noptimizer: {name: sgd, nesterov: true, momentum: 0}\ndone",
            6,
            "nesterov needs a mome",
        ),
        ("done", "mode: training\nprecision: fp16\noptimizer: adam\ndone", 6, "fp16 has no number as small as the eps"),
        # It would need a scaler of gradients.
        ("done", "mode: training\nprecision: amp-fp16\ndone", 6, "the text 'amp-fp16'; write one of|or amp-bf16"),
        ("false", "false\nseed: -1", 6, "seed: the value is -1"),
        ("false", "false\ncomposites: [a.B]", 6, "composites: item 1 is the text 'a.B'"),
        ("false", 'false\n"done": true', 6, "done: given twice, in lines 5 and 6; keep one"),
        ("done", "donne", 5, "donne: unknown key; did you mean done?"),
        ("done", "on: 1\ndone", 5, "on: unknown key; the keys are model_name, weights_name, input_size, batch, done, "),
        ("done", "? [a]\n: b\ndone", 5, "a list of 1 is no key"),
        ("done", "<<: {done: true}\ndone", 5, "<<|no key"),
        ("done", "training: true\ndone", 5, "training: unknown key; write mode: training"),
        ("done", "Batch: 8\ndone", 5, "Batch: unknown key; did you mean batch?"),
        ("done", "batch_size: 8\ndone", 5, "batch_size: unknown key; the batch is the first number of input_size"),
        ("done", "batch: 8\ndone", 5, "batch: the value is 8"),
        ("done", "batch:\n- 1\n- 0\ndone", 7, "batch: item 2 is 0"),
        ("done", "batch: [1, 8, +1]\ndone", 5, "batch: item 3: 1: given twice, also as item 1"),
        ("done", "device: cpu\ndone", 5, "device: unknown key; this is an option of the command line"),
        ("resnet18", f"&{'m' * 99} resnet18", 2, f"the anchor &'{'m' * 60}...' is not allowed; remove it"),
        ("null", f"*{'m' * 99}", 3, f"the alias *'{'m' * 60}...' is not allowed; write the value itself"),
        ("[32", "!!python/tuple [32", 4, "the tag tag:yaml.org,2002:python/tuple is not allowed; remove it"),
        ("done", "!x done: 1\ndone", 5, "the tag !x is not allowed; remove it"),
        ("null", '"\\uD800"', 3, "'\\ud800' has half a character; write the character itself"),
        ("false\n", "false\n---\na: 1\n", 6, "a second document begins here; keep only one"),
    ],
)
def test_a_mistake_is_one_line_with_line_number_and_remedy(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    content = VALID.replace(old, new, 1)
    assert content != VALID
    write(tmp_path, "x", content)
    one_mistake(tmp_path, line, words)


def test_mistakes_in_one_file_are_reported_at_once_in_the_order_of_lines(tmp_path: Path) -> None:
    content = "done: 1\nmodel_name: NO\nweights: null\ndone: true\ninput_size: [32, '3']\n" + "\n" * 10 + "a: 1\n"
    assert [line.split("; ")[0] for line in errors_in(tmp_path, content)] == [
        "x/summary.yml:1: done: the value is 1, in YAML a number",
        "x/summary.yml:2: model_name: the value is NO, in YAML a boolean",
        "x/summary.yml:3: weights: unknown key",
        "x/summary.yml:4: done: given twice, in lines 1 and 4",
        "x/summary.yml:5: input_size: item 2 is the text '3'",
        "x/summary.yml:16: a: unknown key",
    ]


@pytest.mark.parametrize(
    "content",
    [
        "model_name: resnet18\ncomposites:\n" + "- 1\n" * 12_000,
        "model_name: resnet18\ninput_size:\n" + "- [a, a, a, a]\n" * 4000,
        "model_name: resnet18\n" + "".join(f"k{number}: 1\n" for number in range(5000)),
        "model_name: resnet18\n" + "done: true\n" * 5000,
        "model_name: resnet18\ndone: [\n" + "&a x,\n" * 9000 + "]\n",
        "model_name: resnet18\narguments:\n" + "".join(f"  a b{number}: 1\n" for number in range(3000)),
    ],
)
def test_of_many_mistakes_in_a_file_the_first_ones_are_reported_and_the_others_counted(
    tmp_path: Path, content: str
) -> None:
    *lines, last = errors_in(tmp_path, content)
    assert len(lines) == MISTAKES_SHOWN
    found = re.fullmatch(r"x/summary.yml:(\d+): (\d+) more mistakes from here on; fix the first ones", last)
    assert found is not None
    assert int(found[1]) >= int(lines[-1].split(":")[1])
    assert int(found[2]) > 2900


@pytest.mark.parametrize("more", [0, 1])
def test_as_many_mistakes_as_are_shown_are_all_reported(tmp_path: Path, more: int) -> None:
    lines = errors_in(tmp_path, VALID + "".join(f"k{number}: 1\n" for number in range(MISTAKES_SHOWN + more)))
    assert [": unknown key; " in line for line in lines] == [True] * MISTAKES_SHOWN + [False] * more
    assert not more or ": 1 more mistake from " in lines[-1]


def test_mistakes_of_all_files_and_patterns_are_reported_at_once(tmp_path: Path) -> None:
    write(tmp_path, "b", VALID.replace("false", "maybe"))
    write(tmp_path, "a", VALID + "x: 1\nx: 2\n")
    write(tmp_path, "c", VALID)
    (tmp_path / "d").mkdir()
    lines = error_lines(tmp_path, "?", "zzz")
    assert [line.split(": ")[0] for line in lines] == [
        str(tmp_path),
        "a/summary.yml:6",
        "a/summary.yml:7",
        "b/summary.yml:5",
        "d/summary.yml",
    ]


def test_what_the_caller_checks_is_reported_with_the_mistakes_of_all_files(tmp_path: Path) -> None:
    write(tmp_path, "a", VALID.replace("resnet18", "resnet19"))
    write(tmp_path, "b", VALID.replace("false", "maybe"))
    write(tmp_path, "c", VALID.replace("resnet18", "vgg99"))
    write(tmp_path, "d", VALID)
    with pytest.raises(UserError) as caught:
        ModelFolders(tmp_path).configs([], known_models_only)
    assert [line.split("; ")[0] for line in caught.value.lines] == [
        f"{tmp_path}/a/summary.yml:2: model_name: unknown resnet19",
        f"{tmp_path}/b/summary.yml:5: done: the value is the text 'maybe'",
        f"{tmp_path}/c/summary.yml:2: model_name: unknown vgg99",
    ]


def test_a_file_with_a_mistake_is_checked_as_far_as_it_is_valid(tmp_path: Path) -> None:
    def seen(config: ModelConfig) -> list[str]:
        return [f"{config.model_name} {config.weights_name} {config.input_size}"]

    write(tmp_path, "a", "model_name: resnet19\nweights_name: no\ninput_size: [1, 3]\n")
    write(tmp_path, "b", "model_name: resnet20\nweights_name: FIRST\ninput_size: [1, x]\ntraining: true\n")
    write(tmp_path, "c", "model_name: 3\ninput_size: [1, 3]\n")
    with pytest.raises(UserError) as caught:
        ModelFolders(tmp_path).configs([], seen)
    assert [line.removeprefix(f"{tmp_path}/").partition(" the ")[0] for line in caught.value.lines] == [
        "a/summary.yml:2: weights_name:",
        "resnet19 None (1, 3)",
        "b/summary.yml:3: input_size: item 2 is",
        "b/summary.yml:4: training: unknown key; write mode: training",
        "resnet20 FIRST ()",
        "c/summary.yml:1: model_name:",
    ]


def test_configs_that_pass_the_callers_check_are_returned(tmp_path: Path) -> None:
    write(tmp_path, "a", VALID)
    assert ModelFolders(tmp_path).configs([], known_models_only) == ModelFolders(tmp_path).configs([])


def known_models_only(config: ModelConfig) -> list[str]:
    is_known = config.model_name == "resnet18"
    return [] if is_known else [f"{config.where('model_name')}: unknown {config.model_name}"]


SIGNS = [*("&a |*a |!x |<<|? |: |- |[|]|{|}|, |#|>|\"|'|---|...|\n|\t".split("|")), "|"]


@settings(max_examples=some_of(150, 50), deadline=None)
@given(
    st.binary(max_size=60)
    | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.lists(st.sampled_from([*VALID.splitlines(keepends=True), *SIGNS])).map(lambda pieces: "".join(pieces).encode())
)
@example(b'"\\uD800": 1')
@example(b'a: "\\UFFFFFFFF"')
@example(b"input_size: [0b_]")
@example(b"%YAML " + b"1" * 5000 + b".1\n---\na: 1\n")
def test_whatever_a_file_holds_it_is_a_config_or_lines_for_the_user(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), "x", content)
        for line in mistakes_or_none(Path(folder)):
            assert line.startswith(f"{folder}/x/summary.yml:")
            assert len(line.splitlines()) == 1
            assert line.encode()


def mistakes_or_none(measurements: Path) -> tuple[str, ...]:
    try:
        ModelFolders(measurements).configs([])
    except UserError as error:
        return error.lines or ("an error without lines",)
    return ()


# Cases


@pytest.mark.parametrize(
    ("folder", "values", "expected"),
    [
        ("resnet50", ((8, 3, 224, 224), None, None), "resnet50_8x3x224x224"),
        ("resnet50_32x3x224x224", ((8, 3, 224, 224), None, None), "resnet50_8x3x224x224"),
        ("resnet50_32x3x224x224", (None, "bf16", None), "resnet50_32x3x224x224_bf16"),
        ("resnext50_32x4d", ((8, 3, 224, 224), None, None), "resnext50_32x4d_8x3x224x224"),
        ("a_2x3x4_b", ((8, 3, 64, 64), None, None), "a_2x3x4_b_8x3x64x64"),
        ("a_2x3x4.old", ((8, 3, 64, 64), None, None), "a_2x3x4.old_8x3x64x64"),
        ("a_2x3x4.old_1x3x32x32", ((8, 3, 64, 64), None, None), "a_2x3x4.old_8x3x64x64"),
        ("x", ((1, 3, 64, 64), "amp-bf16", "channels_last"), "x_1x3x64x64_amp-bf16_channels_last"),
        ("x", (None, None, "contiguous"), "x_contiguous"),
        ("x", (None, "bf16", None, "flash"), "x_bf16_flash"),
        ("x", (None, None, None), "x"),
    ],
)
def test_a_case_is_named_by_its_folder_and_the_values_that_vary(folder: str, values: Any, expected: str) -> None:
    size, *others = values
    assert case_name(folder, size, None, *filter(None, others)) == expected


def test_a_config_becomes_the_product_of_its_lists_in_their_order(tmp_path: Path) -> None:
    path = write(tmp_path, "r", SWEEP)
    configs = ModelFolders(tmp_path).configs([])
    assert configs == [
        ModelConfig(name, path, "resnet18", None, (batch, 3, 64, 64), False, precision)
        for name, (batch, precision) in zip(SWEPT, itertools.product((1, 8), ("tf32", "bf16")), strict=True)
    ]
    assert [config.folder for config in configs] == [tmp_path / "r" / name for name in SWEPT]
    assert {config.where("batch") for config in configs} == {f"{path}:4: batch"}


def test_the_files_of_shipped_cases_are_in_the_users_own_folder(tmp_path: Path) -> None:
    write(tmp_path / "shipped", "r", SWEEP)
    folders = ModelFolders(tmp_path / "own", tmp_path / "shipped")
    assert [config.folder for config in folders.configs([])] == [tmp_path / "own" / "r" / name for name in SWEPT]


def test_a_list_of_one_value_is_a_list(tmp_path: Path) -> None:
    write(tmp_path, "r_32x3x64x64", "model_name: a\ninput_size: [[1, 3, 32, 32]]\nmemory_format: [channels_last]\n")
    assert names(tmp_path) == ["r_1x3x32x32_channels_last"]


def test_each_shipped_config_is_one_case_with_the_name_and_folder_that_it_has_without_lists() -> None:
    found = ModelFolders(SHIPPED).configs([])
    assert {config.lists for config in found} == {(), ("batch",), ("precision",)}
    configs = [config for config in found if not config.lists]
    with_lists = {config.config_name for config in found if config.lists}
    assert [(config.name, config.folder) for config in configs] == [
        (path.parent.name, path.parent)
        for path in sorted(SHIPPED.glob("*/summary.yml"))
        if path.parent.name not in with_lists
    ]


SIZES = st.lists(st.lists(st.integers(1, 400), min_size=2, max_size=6), min_size=1, max_size=3, unique_by=tuple)
BATCHES = st.lists(st.integers(1, 512), min_size=1, max_size=4, unique=True)
FOLDERS = st.sampled_from(FOLDER_NAMES)


@st.composite
def list_values(draw: st.DrawFn) -> dict[str, Any]:
    """The keys of a config that may be lists, some of them absent, some one value."""
    batch = draw(st.none() | BATCHES)
    sizes = draw(SIZES)
    if batch is not None:
        sizes = list({tuple(size[1:]): size for size in sizes}.values())
    one_or_several = {
        key: draw(st.none() | st.sampled_from(known) | st.lists(st.sampled_from(known), min_size=1, unique=True))
        for key, known in (("precision", PRECISIONS), ("memory_format", FORMATS))
    }
    values = {"input_size": draw(st.sampled_from([sizes, sizes[0]])), "batch": batch, **one_or_several}
    return {key: value for key, value in values.items() if value is not None}


def is_list(key: str, value: Any) -> bool:
    return isinstance(value[0], list) if key == "input_size" else isinstance(value, list)


@settings(max_examples=100)
@given(FOLDERS, list_values())
def test_the_cases_are_all_combinations_once_each_with_the_name_that_says_which(
    folder: str, values: dict[str, Any]
) -> None:
    lists = {key for key, value in values.items() if is_list(key, value)}
    with tempfile.TemporaryDirectory() as measurements:
        write(Path(measurements), folder, yaml.safe_dump({"model_name": "a", **values}, allow_unicode=True))
        configs = ModelFolders(Path(measurements)).configs([])
    sizes = values["input_size"] if "input_size" in lists else [values["input_size"]]
    if "batch" in lists:
        sizes = [[batch, *size[1:]] for size in sizes for batch in values["batch"]]
    precisions, formats = (
        values[key] if key in lists else [values.get(key, default)]
        for key, default in (("precision", "torch-default"), ("memory_format", "contiguous"))
    )
    combinations = [(tuple(size), *rest) for size in sizes for rest in itertools.product(precisions, formats)]
    assert [(one.input_size, one.precision, one.memory_format) for one in configs] == combinations
    assert len({config.name for config in configs}) == len(configs)
    assert len({config.folder for config in configs}) == len(configs)
    if not lists:
        assert [config.name for config in configs] == [folder]
    for config in configs:
        # The case follows from the name.
        rest = config.name.removeprefix(without_size(folder) if lists & {"batch", "input_size"} else folder)
        size, precision, memory_format = re.fullmatch(r"(_\d+(?:x\d+)+)?(_[a-z0-9-]+)??(_[a-z_]+)?", rest).groups()
        assert (size is None) == (not lists & {"batch", "input_size"})
        assert size in {None, f"_{'x'.join(map(str, config.input_size))}"}
        assert (precision or memory_format or "").lstrip("_") in {"", config.precision, config.memory_format}


# The whitelist


@pytest.mark.parametrize(
    ("content", "names"),
    [("operators: # these\n  - ReLU\n  - Conv2d\n", ("ReLU", "Conv2d")), ('operators: ["*"]\n', ("*",))],
)
def test_the_whitelist_is_read_in_its_order(tmp_path: Path, content: str, names: tuple[str, ...]) -> None:
    path = tmp_path / "operator_whitelist.yml"
    path.write_text(content)
    assert load_whitelist(path) == names


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "1: the file is empty; write lines such as operators: [Conv2d, Linear]"),
        ("- A\n", "1: the file is a list of 1; write lines such as operators:"),
        ("operators: []\n", "1: operators: the value is a list of 0; write operators:"),
        ("operators:\n", "1: operators: the value is empty; write operators:"),
        ("operators: Conv2d\n", "1: operators: the value is the text 'Conv2d'; write operators:"),
        ("operators: [torch.nn.ReLU]", "1: operators: item 1 is the text 'torch.nn.ReLU'; write operators:"),
        ("operators:\n- NO\n", '2: operators: item 1 is NO, in YAML a boolean; put quotes round it ("NO")'),
        ("operators:\n- A\n- A\n", "3: operators: item 2: A: given twice, also as item 1; keep one"),
        ("operators: [A, B]\nkeep: [C]\n", "2: keep: unknown key; the keys are operators"),
        ("operator: [A]\n", "1: operator: unknown key; did you mean operators?"),
    ],
)
def test_a_mistake_in_the_whitelist_is_reported_with_its_line(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "operator_whitelist.yml"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        load_whitelist(path)
    (line,) = caught.value.lines
    assert line.startswith(f"{path}:{expected}")


def test_a_missing_whitelist_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    remedy = r"with --measurements, or write it with a line such as operators: \[Conv2d, Linear\]"
    with pytest.raises(UserError, match=remedy):
        load_whitelist(tmp_path / "operator_whitelist.yml")


def test_the_shipped_models_are_valid_and_complete() -> None:
    assert set(SHIPPED_NAMES) <= set(names(SHIPPED))


def test_the_shipped_folder_names_say_what_is_in_them() -> None:
    """Users name folders of their own as they like."""
    shipped = [config for config in ModelFolders(SHIPPED).configs([]) if re.search(r"_\d+(x\d+){3,}$", config.name)]
    assert len(shipped) >= len(SHIPPED_NAMES)
    for config in shipped:
        batches = "_batches" if config.lists else ""
        assert config.name == f"{config.model_name}{batches}_{'x'.join(map(str, config.input_size))}"


def test_the_shipped_whitelist_names_operators() -> None:
    """Which ones, users decide."""
    operators = load_whitelist(SHIPPED / "operator_whitelist.yml")
    assert "Conv2d" in operators
    assert all(name.isidentifier() for name in operators)
