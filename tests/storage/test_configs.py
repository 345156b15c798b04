"""Files that people write are read strictly: all mistakes are reported at once, with its line and a remedy."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opcost.errors import UserError
from opcost.printable import printable
from opcost.storage.config_nodes import MAXIMUM_BYTES, MISTAKES_SHOWN
from opcost.storage.configs import ModelConfig, clear_done, load_whitelist, replace_whitelist, set_done
from opcost.storage.model_folders import load_configs

SHIPPED = Path(__file__).parents[2] / "measurements"
SHIPPED_NAMES = [
    "resnet18_32x3x32x32",
    "resnet18_32x3x224x224",
    "resnet18_32x3x299x299",
    "resnet34_32x3x56x56",
    "resnet34_32x3x299x299",
    "resnet50_32x3x224x224",
    "resnet101_32x3x224x224",
    "alexnet_32x3x224x224",
    "vgg16_32x3x224x224",
    "densenet121_32x3x224x224",
    "inception_v3_32x3x299x299",
    "efficientnet_b0_32x3x224x224",
    "mobilenet_v3_large_32x3x224x224",
    "convnext_base_32x3x224x224",
    "convnext_base_32x3x384x384",
    "vit_b_16_32x3x224x224",
    "swin_t_32x3x224x224",
    "regnet_y_8gf_32x3x224x224",
]
VALID = """\
# A model.
model_name: resnet18
weights_name: null
input_size: [32, 3, 224, 224]
done: false
"""


def write(measurements: Path, name: str, content: str | bytes) -> Path:
    path = measurements / name / "summary.yml"
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def error_lines(measurements: Path, *patterns: str) -> list[str]:
    """The error lines, which name the files, without the folder that all of them are in."""
    with pytest.raises(UserError) as caught:
        load_configs(measurements, patterns)
    assert all(len(line.splitlines()) == 1 for line in caught.value.lines)
    return [line.removeprefix(f"{measurements}/") for line in caught.value.lines]


def errors_in(folder: Path, content: str | bytes) -> list[str]:
    write(folder, "x", content)
    return error_lines(folder)


def whitelist_errors(folder: Path, content: str) -> list[str]:
    path = folder / "operator_whitelist.yml"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        load_whitelist(path)
    return [line.removeprefix(f"{folder}/") for line in caught.value.lines]


# Reading


def test_a_valid_file_becomes_a_config(tmp_path: Path) -> None:
    path = write(tmp_path, "small", VALID + "precision: fp32\n")
    assert load_configs(tmp_path, []) == [
        ModelConfig("small", path, "resnet18", None, (32, 3, 224, 224), done=False, precision="fp32")
    ]


def test_weights_are_random_and_the_model_is_not_done_if_the_file_says_nothing(tmp_path: Path) -> None:
    write(tmp_path, "x", "model_name: resnet18\ninput_size: [32, 3, 224, 224]\n")
    write(tmp_path, "y", VALID)
    short, long = load_configs(tmp_path, [])
    assert (short.weights_name, short.done, short.input_size) == (long.weights_name, long.done, long.input_size)


def test_precision_is_what_torch_does_unasked_if_the_file_says_nothing(tmp_path: Path) -> None:
    write(tmp_path, "x", VALID)
    assert load_configs(tmp_path, [])[0].precision == "torch-default"


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
    assert load_configs(tmp_path, []) == [ModelConfig("x", path, "resnet18", None, (32, 3, 224, 224), done=False)]


def test_a_quoted_word_that_yaml_takes_for_a_boolean_is_a_name(tmp_path: Path) -> None:
    write(tmp_path, "x", VALID.replace("null", '"NO"'))
    assert load_configs(tmp_path, [])[0].weights_name == "NO"


# Choosing folders


def names(measurements: Path, *patterns: str) -> list[str]:
    return [config.name for config in load_configs(measurements, patterns)]


@pytest.fixture
def three_models(tmp_path: Path) -> Path:
    for name in ("vgg16", "resnet34", "resnet18"):
        write(tmp_path, name, VALID)
    write(tmp_path, ".hidden", "broken")
    (tmp_path / "operator_whitelist.yml").write_text("not a folder")
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((), ["resnet18", "resnet34", "vgg16"]),
        (("vgg16", "resnet18"), ["resnet18", "vgg16"]),
        (("resnet*", "*18"), ["resnet18", "resnet34"]),
        (("vgg16/",), ["vgg16"]),
    ],
)
def test_names_and_globs_choose_folders_in_order_of_name(
    three_models: Path, patterns: tuple[str, ...], expected: list[str]
) -> None:
    assert names(three_models, *patterns) == expected


NOT_SHOWN = ["a\x1b[31m", "a\u202eb", "a\nb", "a\tb", "a\xa0b", os.fsdecode(b"a\xff")]


@pytest.mark.parametrize("name", [*NOT_SHOWN, "-x", "--allow-code"])
def test_a_folder_whose_name_cannot_be_printed_or_is_an_option_is_a_mistake(three_models: Path, name: str) -> None:
    """It would colour a terminal, be no text in a table, or be an option in a command to copy."""
    shutil.copytree(three_models / "vgg16", three_models / name)
    shown = printable(f"{name}/summary.yml")
    what = "the folder's name begins with a dash or has characters that cannot be printed; rename the folder"
    assert error_lines(three_models, "*") == [f"{shown}: {what}"]
    assert names(three_models, "vgg16") == ["vgg16"]
    (line,) = error_lines(three_models, "qqq")
    assert line.isprintable()


def test_a_folder_whose_name_looks_like_a_glob_is_found_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, "a[1]", VALID)
    assert names(tmp_path, "a[1]") == ["a[1]"]


def test_files_that_are_not_chosen_may_be_broken(three_models: Path) -> None:
    write(three_models, "broken", "done: [")
    assert names(three_models, "vgg16") == ["vgg16"]


def test_patterns_that_match_nothing_name_close_folders_or_all_of_them(three_models: Path) -> None:
    assert error_lines(three_models, "resnet1", "vgg16", "q*") == [
        f"{three_models}: no folder matches 'resnet1'; did you mean 'resnet1*'?",
        f"{three_models}: no folder matches 'q*'; there are resnet18, resnet34, vgg16",
    ]


def test_of_many_folders_some_are_named(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path, f"resnet{number:02}", VALID)
    there_are = ", ".join(f"resnet{number:02}" for number in range(8))
    assert error_lines(tmp_path, "q*") == [f"{tmp_path}: no folder matches 'q*'; there are {there_are} and 4 more"]


@pytest.mark.parametrize(
    "pattern",
    [
        "m/vgg16",
        "m/vgg16/",
        "./m/vgg16",
        "m//vgg16/.",
        "m/vgg16/summary.yml",
        "./m/vgg16/summary.yml",
        "m/vgg*",
        "./m/vgg*/summary.yml",
        "m/../m/vgg16",
        "link/vgg16",
        "also_vgg16/",
        "{here}/m/vgg16",
        "vgg16/",
        "vgg16/summary.yml",
    ],
)
@pytest.mark.parametrize("measurements", ["m", "./m", "link", "{here}/m"])
def test_a_path_means_the_models_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measurements: str, pattern: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("vgg16", "resnet18"):
        write(tmp_path / "m", name, VALID)
    (tmp_path / "link").symlink_to("m")
    (tmp_path / "also_vgg16").symlink_to("m/vgg16")
    assert names(Path(measurements.format(here=tmp_path)), pattern.format(here=tmp_path)) == ["vgg16"]


def test_paths_are_those_seen_from_within_the_measurements_folder(
    three_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(three_models)
    assert names(Path(), "./vgg16", "resnet18/summary.yml") == ["resnet18", "vgg16"]
    monkeypatch.chdir(three_models / "vgg16")
    assert names(Path(".."), "./", "../resnet18/") == ["resnet18", "vgg16"]


def test_a_folder_that_is_a_link_is_chosen_by_its_own_name(three_models: Path) -> None:
    (three_models / "again").symlink_to("vgg16")
    assert names(three_models, f"{three_models}/again") == ["again"]


def test_a_folder_of_the_same_name_elsewhere_is_not_the_models(
    three_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "vgg16"
    elsewhere.mkdir()
    assert error_lines(three_models, f"{elsewhere}/") == [
        f"{three_models}: no folder matches '{elsewhere}/'; there are resnet18, resnet34, vgg16"
    ]


@pytest.mark.parametrize("pattern", ["/", "m/loop/x", "q" * 300 + "/", "q/" * 3000])
def test_a_path_that_leads_nowhere_is_one_line(
    three_models: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.chdir(three_models)
    Path("m").mkdir()
    Path("m/loop").symlink_to("loop")
    (line,) = error_lines(three_models, pattern)
    assert line.startswith(f"{three_models}: no folder matches ")


def test_the_empty_pattern_is_refused(three_models: Path) -> None:
    assert error_lines(three_models, "", "vgg16") == [
        f"{three_models}: the model's name '' is empty; omit it for all models, or write a folder's name"
    ]


def test_a_missing_measurements_folder_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    assert error_lines(missing) == [f"{missing}: no such folder; name the folder with --measurements DIR"]


def test_a_measurements_folder_that_may_not_be_listed_is_one_line(
    three_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_models.chmod(0)
    if os.geteuid() == 0:  # who may list everything
        monkeypatch.setattr(Path, "iterdir", refuse)
    (line,) = error_lines(three_models, "vgg16")
    three_models.chmod(0o700)
    assert line.startswith(f"{three_models}: cannot be listed (Permission denied); make it readable, or name another")


def refuse(path: Path) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def test_a_measurements_folder_without_models_is_a_mistake(tmp_path: Path) -> None:
    (line,) = error_lines(tmp_path)
    assert "contains no model's folder; add one" in line


def test_paths_are_reported_as_the_user_gave_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "measurements", "x", "")
    monkeypatch.chdir(tmp_path)
    (line,) = error_lines(Path("measurements/../measurements"))
    assert line.startswith("x/summary.yml:1: the file is empty; ")


# Mistakes in one file


@pytest.mark.parametrize(
    ("content", "beginning"),
    [
        ("", "x/summary.yml:1: the file is empty; write lines"),
        ("# nothing\n", "x/summary.yml:1: the file is empty; write lines"),
        ("---\n", "x/summary.yml:1: the file is empty; write lines"),
        ("\n- resnet18\n", "x/summary.yml:2: the file is a list of 1; write lines such as key: value"),
        ("resnet18\n", "x/summary.yml:1: the file is the text 'resnet18'; write lines such as key: value"),
        (
            VALID + "\tx: 1\n",
            "x/summary.yml:6: not valid YAML: found character '\\t' that cannot start any token; repl",
        ),
        (VALID.replace("done: ", "done:\t"), "x/summary.yml:5: not valid YAML: found character '\\t'"),
        (VALID + "a: b: c\n", "x/summary.yml:6: not valid YAML: mapping values are not allowed here; change it"),
        (VALID.replace("]", ""), "x/summary.yml:5: not valid YAML: expected ',' or ']', but got ':' (while parsing a "),
        (VALID + "a: 'b\n", "x/summary.yml:7: not valid YAML: found unexpected end of stream (while scanning a quoted"),
        (VALID + "a: \x07\n", "x/summary.yml:6: not valid YAML: the character '\\x07' is not allowed; remove it"),
        (
            VALID + 'a: "\\UFFFFFFFF"\n',
            "x/summary.yml:6: not valid YAML: a number or an escape is out of range; change",
        ),
        (VALID + "a: " + "[" * 50_000, "x/summary.yml:6: not valid YAML: nested deeper than 8 levels; change it"),
        (VALID.encode() + b"# caf\xe9\n", "x/summary.yml:6: the text is not UTF-8; save the file as UTF-8"),
        (VALID.encode("utf-16"), "x/summary.yml:1: the text is not UTF-8; save the file as UTF-8"),
        (
            VALID + f"a: !{'m' * 999}!x y\n",
            f"x/summary.yml:6: not valid YAML: found undefined tag handle '!{'m' * 160}",
        ),
        (VALID + "#" * MAXIMUM_BYTES, "x/summary.yml: is larger than 64 kB; keep only its keys and short comments"),
    ],
)
def test_a_text_that_is_no_mapping_is_one_line(tmp_path: Path, content: str | bytes, beginning: str) -> None:
    (line,) = errors_in(tmp_path, content)
    assert line.startswith(beginning)


def test_a_file_of_just_64_kb_is_read(tmp_path: Path) -> None:
    write(tmp_path, "x", VALID + "#" * (MAXIMUM_BYTES - len(VALID)))
    assert names(tmp_path) == ["x"]


def test_a_folder_without_its_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (line,) = error_lines(tmp_path)
    assert line.startswith("x/summary.yml: no such file; run in the root")


SIZE_REMEDY = "write input_size: [32, 3, 224, 224] (2 to 6 whole numbers above 0 in plain digits, batch first)"
NAME_REMEDY = "write model_name: resnet18 (of torchvision; others: timm:NAME, transformers:CLASS, net.py:FUNCTION)"
WEIGHTS_REMEDY = "write weights_name: null (random weights, or a name such as IMAGENET1K_V1)"
BATCH_REMEDY = "write batch: [1, 8, 32] (whole numbers above 0; one batch is the first number of input_size)"
DONE_REMEDY = "write done: false (true or false, no quotes)"
SEED_REMEDY = "write seed: 0 (a whole number from 0 up, for random weights and the input)"
COMPOSITES_REMEDY = "write composites: [ShiftedWindowAttention] (class names without their modules)"
PRECISION_REMEDY = "write precision: torch-default (or fp32, tf32, bf16, fp16, amp-bf16)"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[32, 3, 224, 224]", '[32, "3", 224, 224]', f"4: input_size: item 2 is the text '3'; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "[32, True]", f"4: input_size: item 2 is True, in YAML a boolean; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "\n- 32\n- 032", f"6: input_size: item 2 is 032, in YAML a number; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "[32, 1:30]", f"4: input_size: item 2 is 1:30, in YAML a number; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "[32, 2_0]", f"4: input_size: item 2 is 2_0, in YAML a number; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "[32, 0x_]", f"4: input_size: item 2 is 0x_, in YAML a number; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "[32, 3.0]", f"4: input_size: item 2 is 3.0, in YAML a number; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "[0, 3]", f"4: input_size: item 1 is 0, in YAML a number; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "[32, -3]", f"4: input_size: item 2 is -3, in YAML a number; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "[32, null]", f"4: input_size: item 2 is null; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "[32, [3]]", f"4: input_size: item 2 is a list of 1; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "[32]", f"4: input_size: the value is a list of 1; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "[1, 1, 1, 1, 1, 1, 1]", f"4: input_size: the value is a list of 7; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "32x3", f"4: input_size: the value is the text '32x3'; {SIZE_REMEDY}"),
        ("[32, 3, 224, 224]", "{a: 1}", f"4: input_size: the value is a mapping; {SIZE_REMEDY}"),
        (
            "null",
            "NO",
            "3: weights_name: the value is NO, in YAML a boolean; "
            f'put quotes round it ("NO") if it is a name, else {WEIGHTS_REMEDY}',
        ),
        (
            "null",
            "2024-99-99",
            "3: weights_name: the value is 2024-99-99, in YAML a date; "
            f'put quotes round it ("2024-99-99") if it is a name, else {WEIGHTS_REMEDY}',
        ),
        (
            "resnet18",
            "18",
            "2: model_name: the value is 18, in YAML a number; "
            f'put quotes round it ("18") if it is a name, else {NAME_REMEDY}',
        ),
        ("null", "None", f"3: weights_name: the value is the text 'None'; {WEIGHTS_REMEDY}"),
        ("null", "none", f"3: weights_name: the value is the text 'none'; {WEIGHTS_REMEDY}"),
        ("null", '"null"', f"3: weights_name: the value is the text 'null'; {WEIGHTS_REMEDY}"),
        ("null", "'~'", f"3: weights_name: the value is the text '~'; {WEIGHTS_REMEDY}"),
        ("resnet18", "", f"2: model_name: the value is empty; {NAME_REMEDY}"),
        ("resnet18", "r" * 201, f"2: model_name: the value is the text '{'r' * 60}...'; {NAME_REMEDY}"),
        (
            "false",
            f"false\ncomposites: [{'A' * 201}]",
            f"6: composites: item 1 is the text '{'A' * 60}...'; {COMPOSITES_REMEDY}",
        ),
        ("resnet18", f"&{'m' * 99} resnet18", f"2: the anchor &'{'m' * 60}...' is not allowed; remove it"),
        ("null", f"*{'m' * 99}", f"3: the alias *'{'m' * 60}...' is not allowed; write the value itself"),
        ("resnet18", "''", f"2: model_name: the value is the text ''; {NAME_REMEDY}"),
        ("resnet18", "res net", f"2: model_name: the value is the text 'res net'; {NAME_REMEDY}"),
        ("resnet18", "[resnet18]", f"2: model_name: the value is a list of 1; {NAME_REMEDY}"),
        ("false", '"true"', f"5: done: the value is the text 'true'; {DONE_REMEDY}"),
        ("false", "1e-3", f"5: done: the value is the text '1e-3'; {DONE_REMEDY}"),
        ("false", "0", f"5: done: the value is 0, in YAML a number; {DONE_REMEDY}"),
        ("false", "", f"5: done: the value is empty; {DONE_REMEDY}"),
        ("false", "false\nprecision: on", f"6: precision: the value is on, in YAML a boolean; {PRECISION_REMEDY}"),
        ("false", "false\nprecision: int8", f"6: precision: the value is the text 'int8'; {PRECISION_REMEDY}"),
        ("false", "false\nseed: -1", f"6: seed: the value is -1, in YAML a number; {SEED_REMEDY}"),
        ("false", "false\nseed: 0x1", f"6: seed: the value is 0x1, in YAML a number; {SEED_REMEDY}"),
        ("false", "false\ncomposites: A", f"6: composites: the value is the text 'A'; {COMPOSITES_REMEDY}"),
        ("false", "false\ncomposites: [a.B]", f"6: composites: item 1 is the text 'a.B'; {COMPOSITES_REMEDY}"),
        ("false", "false\ndone: true", "6: done: given twice, in lines 5 and 6; keep one"),
        ("false", 'false\n"done": true', "6: done: given twice, in lines 5 and 6; keep one"),
        ("done", "donne", "5: donne: unknown key; did you mean done?"),
        (
            "done",
            "on: 1\ndone",
            "5: on: unknown key; the keys are model_name, weights_name, input_size, batch, done, precision, "
            "memory_format, seed, arguments, inputs, composites",
        ),
        ("done", "? [a]\n: b\ndone", "5: a key is a list of 1; write a plain word"),
        (
            "false",
            "false\nmemory_format: nhwc",
            "6: memory_format: the value is the text 'nhwc'; "
            "write memory_format: contiguous (or channels_last, of weights and inputs)",
        ),
        ("done", "training: true\ndone", "5: training: unknown key; opcost measures inference only"),
        ("done", "Batch: 8\ndone", "5: Batch: unknown key; did you mean batch?"),
        (
            "done",
            "batch_size: 8\ndone",
            "5: batch_size: unknown key; the batch is the first number of input_size; several are written as "
            "batch: [1, 8, 32]",
        ),
        ("done", "batch: 8\ndone", f"5: batch: the value is 8, in YAML a number; {BATCH_REMEDY}"),
        ("done", "batch: []\ndone", f"5: batch: the value is a list of 0; {BATCH_REMEDY}"),
        ("done", "batch:\ndone", f"5: batch: the value is empty; {BATCH_REMEDY}"),
        ("done", "batch:\n- 1\n- 0\ndone", f"7: batch: item 2 is 0, in YAML a number; {BATCH_REMEDY}"),
        ("done", "batch: [1, 8, +1]\ndone", "5: batch: items 1 and 3 give the same case; remove one"),
        (
            "[32, 3, 224, 224]",
            "[[32, 3, 224, 224], [8, 0]]",
            f"4: input_size: item 2 of item 2 is 0, in YAML a number; {SIZE_REMEDY}",
        ),
        ("[32, 3, 224, 224]", "[[32, 3], [8]]", f"4: input_size: item 2 is a list of 1; {SIZE_REMEDY}"),
        (
            "[32, 3, 224, 224]",
            "\n- [32, 3, 224, 224]\n- [8, 3, 224, 224]\nbatch: [1, 8]",
            "6: input_size: items 1 and 2 give the same case; remove one",
        ),
        (
            "done",
            "precision: [fp32, fp23]\ndone",
            f"5: precision: item 2 is the text 'fp23'; {PRECISION_REMEDY}",
        ),
        ("done", "precision: []\ndone", f"5: precision: the value is a list of 0; {PRECISION_REMEDY}"),
        (
            "false",
            "[x_fp23]\nprecision: [fp23]",
            f"6: precision: item 1 is the text 'fp23'; {PRECISION_REMEDY}",
        ),
        ("done: false", "done: [x]", f"5: done: the value is a list of 1; {DONE_REMEDY}"),
        (
            "false",
            "[x_fp32, 1]\nprecision: [fp32]",
            f'5: done: item 2 is 1, in YAML a number; put quotes round it ("1") if it is a name, else {DONE_REMEDY}',
        ),
        (
            "[32, 3, 224, 224]",
            f"{[[1, number] for number in range(1, 101)]}\nbatch: {list(range(1, 12))}",
            "5: batch, input_size: 1100 cases; a config may have 1000; write several configs",
        ),
        ("done", "device: cpu\ndone", "5: device: unknown key; this is an option of the command line"),
        (
            "done",
            "dtype: bf16\ndone",
            "5: dtype: unknown key; write precision: one of torch-default, fp32, tf32, bf16, fp16, amp-bf16",
        ),
        ("input_size: [32, 3, 224, 224]\n", "", f"1: input_size: missing; {SIZE_REMEDY}"),
        ("resnet18", "&m resnet18", "2: the anchor &m is not allowed; remove it"),
        ("null", "*m", "3: the alias *m is not allowed; write the value itself"),
        ("[32", "!!python/tuple [32", "4: the tag tag:yaml.org,2002:python/tuple is not allowed; remove it"),
        ("done", "!x done: 1\ndone", "5: the tag !x is not allowed; remove it"),
        ("done", "<<: {done: true}\ndone", "5: the merge key << is not allowed; write the keys themselves"),
        ("null", '"\\uD800"', "3: '\\ud800' has half a character; write the character itself"),
        ("false\n", "false\n---\na: 1\n", "6: a second document begins here; keep only one"),
    ],
)
def test_a_mistake_is_one_line_with_line_number_and_remedy(tmp_path: Path, old: str, new: str, expected: str) -> None:
    content = VALID.replace(old, new, 1)
    assert content != VALID
    assert errors_in(tmp_path, content) == [f"x/summary.yml:{expected}"]


def test_a_number_too_long_for_python_is_cut_in_the_line(tmp_path: Path) -> None:
    (line,) = errors_in(tmp_path, VALID.replace("[32", "[" + "1" * 5000))
    assert line.startswith("x/summary.yml:4: input_size: item 1 is '1111")
    assert len(line) < 300


def test_five_mistakes_in_one_file_are_reported_at_once_in_the_order_of_lines(tmp_path: Path) -> None:
    content = "done: 1\nmodel_name: NO\nweights: null\ndone: true\ninput_size: [32, '3']\n"
    assert [line.split("; ")[0] for line in errors_in(tmp_path, content)] == [
        "x/summary.yml:1: done: the value is 1, in YAML a number",
        "x/summary.yml:2: model_name: the value is NO, in YAML a boolean",
        "x/summary.yml:3: weights: unknown key",
        "x/summary.yml:4: done: given twice, in lines 1 and 4",
        "x/summary.yml:5: input_size: item 2 is the text '3'",
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


def test_lines_are_sorted_as_numbers(tmp_path: Path) -> None:
    content = VALID.replace("resnet18", "1") + "\n" * 10 + "a: 1\n"
    assert [line.split(":")[1] for line in errors_in(tmp_path, content)] == ["2", "16"]


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
        load_configs(tmp_path, [], known_models_only)
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
        load_configs(tmp_path, [], seen)
    assert [line.removeprefix(f"{tmp_path}/").partition(": the ")[0] for line in caught.value.lines] == [
        "a/summary.yml:2: weights_name",
        "resnet19 None (1, 3)",
        f"b/summary.yml:3: input_size: item 2 is the text 'x'; {SIZE_REMEDY}",
        "b/summary.yml:4: training: unknown key; opcost measures inference only",
        "resnet20 FIRST ()",
        "c/summary.yml:1: model_name",
    ]


def test_configs_that_pass_the_callers_check_are_returned(tmp_path: Path) -> None:
    write(tmp_path, "a", VALID)
    assert load_configs(tmp_path, [], known_models_only) == load_configs(tmp_path, [])


def known_models_only(config: ModelConfig) -> list[str]:
    is_known = config.model_name == "resnet18"
    return [] if is_known else [f"{config.where('model_name')}: unknown {config.model_name}"]


def test_nested_aliases_do_not_explode(tmp_path: Path) -> None:
    levels = "".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9)}]\n" for i in range(1, 9))
    lines = errors_in(tmp_path, "k0: &k0 [x]\n" + levels)
    assert "x/summary.yml:2: the alias *k0 is not allowed; write the value itself" in lines


SIGNS = [
    "&a ",
    "*a ",
    "!x ",
    "<<",
    "? ",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "#",
    "|",
    ">",
    '"',
    "'",
    "---",
    "...",
    "\n",
    "\t",
]


@settings(max_examples=150, deadline=None)
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
        load_configs(measurements, [])
    except UserError as error:
        return error.lines or ("an error without lines",)
    return ()


# Setting done


def check_splice(before: bytes, token: bytes, after: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), "x", before + token + after)
        assert set_done(path, "x")
        assert path.read_bytes() == before + b"true" + after
        assert load_configs(Path(folder), [])[0].done
        assert not set_done(path, "x")


@pytest.mark.parametrize(
    ("before", "token", "after"),
    [
        (
            b"# done: false\r\n" + VALID.partition("false")[0].replace("\n", "\r\n").encode(),
            b"false",
            b" # why\r\n\r\n",
        ),
        (
            "\ufeff# größer 𝄞 done: false\ninput_size: [1, 3]\nmodel_name: done\n'done' :   ".encode(),
            b"no",
            " # ü\nweights_name: ~".encode(),
        ),
        (b'{"done":', b"False", b',"model_name":"a","weights_name":"false","input_size":[1,3]}'),
        (b"model_name: a\nweights_name: b\ninput_size: [1, 3]\ndone:\n  # here\n  ", b"off", b""),
        (b"? done\n: ", b"NO", b"\nmodel_name: a\nweights_name: b\ninput_size: [1, 3]\n...\n# done: false"),
    ],
    ids=["crlf", "bom and non-ascii", "flow", "own line", "explicit key"],
)
def test_done_changes_one_token_and_no_other_byte(before: bytes, token: bytes, after: bytes) -> None:
    check_splice(before, token, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"model_name: a\ninput_size: [1, 3]\n", b"model_name: a\ninput_size: [1, 3]\ndone: true\n"),
        (b"model_name: a\ninput_size: [1, 3]", b"model_name: a\ninput_size: [1, 3]\ndone: true"),
        (b"model_name: a\r\ninput_size: [1, 3]\r\n", b"model_name: a\r\ninput_size: [1, 3]\r\ndone: true\r\n"),
        (
            b"model_name: a\ninput_size: # size\n- 1\n- 3 # three\n\n# end\n",
            b"model_name: a\ninput_size: # size\n- 1\n- 3 # three\ndone: true\n\n# end\n",
        ),
        (
            b"  model_name: a\n  input_size: [1,\n 3]\n...\n",
            b"  model_name: a\n  input_size: [1,\n 3]\n  done: true\n...\n",
        ),
        (b"{input_size: [1, 3], model_name: a }\n", b"{input_size: [1, 3], model_name: a, done: true }\n"),
        (
            b"input_size: [1, 3]\nmodel_name: a\nweights_name:\n",
            b"input_size: [1, 3]\nmodel_name: a\nweights_name:\ndone: true\n",
        ),
        (
            "\ufeffinput_size: [1, 3]\nmodel_name: a # ü\n".encode(),
            "\ufeffinput_size: [1, 3]\nmodel_name: a # ü\ndone: true\n".encode(),
        ),
    ],
    ids=["lines", "no newline", "crlf", "block list", "indented", "flow", "empty value", "bom"],
)
def test_done_is_added_to_a_file_without_it_and_every_other_byte_stays(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    path = write(tmp_path, "x", before)
    assert set_done(path, "x")
    assert path.read_bytes() == after
    (config,) = load_configs(tmp_path, [])
    assert (config.done, config.model_name, config.input_size) == (True, "a", (1, 3))
    assert not set_done(path, "x")


COMMENT = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="\ufffe\uffff"), max_size=12
)
SPACES = st.integers(0, 3).map(" ".__mul__)
QUOTES = st.sampled_from(["", "'", '"'])
OTHER_LINES = ["model_name: done", 'weights_name: "false"', "input_size: [1, 3] # false", "precision: tf32"]


@st.composite
def noise(draw: st.DrawFn, line_end: str) -> str:
    """Comments and blank lines, which may themselves look like the line that is to change."""
    lines = draw(
        st.lists(st.tuples(SPACES, st.just("") | COMMENT.map("#".__add__) | st.just("# done: false")), max_size=2)
    )
    return "".join(indent + text + line_end for indent, text in lines)


@st.composite
def file_around_done(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    line_end = draw(st.sampled_from(["\n", "\r\n"]))
    others = [line + line_end + draw(noise(line_end)) for line in draw(st.permutations(OTHER_LINES))]
    place = draw(st.integers(0, len(others)))
    quote = draw(QUOTES)
    key = f"{quote}done{quote}{draw(SPACES)}: {draw(SPACES)}"
    rest = draw(SPACES) + draw(st.just("") | COMMENT.map(" #".__add__)) + line_end + draw(noise(line_end))
    before = draw(st.sampled_from(["", "\ufeff"])) + draw(noise(line_end)) + "".join(others[:place]) + key
    token = draw(st.sampled_from(["false", "False", "FALSE", "no", "Off"]))
    return before.encode(), token.encode(), (rest + "".join(others[place:])).encode()


@settings(max_examples=100, deadline=None)
@given(file_around_done())
def test_done_changes_one_token_whatever_stands_around_it(parts: tuple[bytes, bytes, bytes]) -> None:
    check_splice(*parts)


@pytest.mark.parametrize(
    ("done", "after"),
    [
        ("done: true # by hand", "done: false # by hand"),
        ("done: [x_2x3, x_4x3] # two", "done: false # two"),
        ("done:\n- x_2x3\n- x_4x3 # two", "done:\n false # two"),
        ("? done\n: yes", "? done\n: false"),
        ("done: false", "done: false"),
        ("seed: 0", "seed: 0"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_done_is_cleared_for_all_cases(tmp_path: Path, done: str, after: str, end: str) -> None:
    text = "model_name: a\n{}\ninput_size: [1, 3]\nbatch: [2, 4]\n"
    path = write(tmp_path, "x", text.format(done).replace("\n", end).encode())
    clear_done(path)
    assert path.read_bytes() == text.format(after).replace("\n", end).encode()
    assert [config.done for config in load_configs(tmp_path, [])] == [False, False]


def test_a_done_model_leaves_the_file_untouched(tmp_path: Path) -> None:
    path = write(tmp_path, "x", VALID.replace("false", "yes"))
    before = path.stat()
    assert set_done(path, "x") is False
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_mode_is_kept_and_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    path = write(tmp_path, "x", VALID)
    path.chmod(0o640)
    assert set_done(path, "x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_a_link_and_its_file_is_changed(tmp_path: Path) -> None:
    path = write(tmp_path, "x", VALID)
    (tmp_path / "y").mkdir()
    link = tmp_path / "y" / "summary.yml"
    link.symlink_to(path)
    assert set_done(link, "y")
    assert link.is_symlink()
    assert path.read_text() == VALID.replace("false", "true")


def test_a_file_that_became_invalid_meanwhile_is_not_touched(tmp_path: Path) -> None:
    path = write(tmp_path, "x", VALID + "done: false\n")
    with pytest.raises(UserError, match=r"summary\.yml:6: done: given twice, in lines 5 and 6"):
        set_done(path, "x")
    assert path.read_text() == VALID + "done: false\n"


# The whitelist


def test_the_whitelist_is_read_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "operator_whitelist.yml"
    path.write_text("operators: # these\n  - ReLU\n  - Conv2d\n")
    assert load_whitelist(path) == ("ReLU", "Conv2d")


def test_a_whitelist_may_keep_everything(tmp_path: Path) -> None:
    path = tmp_path / "operator_whitelist.yml"
    path.write_text('operators: ["*"]\n')
    assert load_whitelist(path) == ("*",)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# ours\noperators: # these\n  - ReLU\n  - Conv2d\n", "# ours\noperators: # these\n  - add_\n  - GELU\n"),
        ("operators: [ReLU, Conv2d] # few\n# end\n", "operators: [add_, GELU] # few\n# end\n"),
        ("operators:\n  - ReLU # old\n\n# end\n", "operators:\n  - add_\n  - GELU\n\n# end\n"),
        ("# a\r\noperators:\r\n- ReLU\r\n# b\r\n", "# a\r\noperators:\r\n- add_\r\n- GELU\r\n# b\r\n"),
        ("operators:\n- ReLU", "operators:\n- add_\n- GELU\n"),
    ],
)
def test_other_names_take_the_place_of_a_whitelists_own(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "operator_whitelist.yml"
    path.write_bytes(before.encode())
    replace_whitelist(path, ["add_", "GELU"])
    assert path.read_bytes() == after.encode()
    assert load_whitelist(path) == ("add_", "GELU")


def test_a_whitelist_with_a_mistake_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "operator_whitelist.yml"
    path.write_text("operators: []\n")
    with pytest.raises(UserError, match="a list of 0"):
        replace_whitelist(path, ["add_"])
    assert path.read_text() == "operators: []\n"


WHITELIST_LINE = "operators: [Conv2d, Linear]"
WHITELIST_REMEDY = f'write {WHITELIST_LINE} (class names without their modules, at least one, or "*" for all)'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", [f"1: the file is empty; write lines such as {WHITELIST_LINE}"]),
        ("- A\n", [f"1: the file is a list of 1; write lines such as key: value, here {WHITELIST_LINE}"]),
        ("operators: []\n", [f"1: operators: the value is a list of 0; {WHITELIST_REMEDY}"]),
        ("operators:\n", [f"1: operators: the value is empty; {WHITELIST_REMEDY}"]),
        ("operators: Conv2d\n", [f"1: operators: the value is the text 'Conv2d'; {WHITELIST_REMEDY}"]),
        ("operators: [torch.nn.ReLU]", [f"1: operators: item 1 is the text 'torch.nn.ReLU'; {WHITELIST_REMEDY}"]),
        (
            "operators:\n- NO\n- Conv2d\n- Conv2d\n",
            [
                "2: operators: item 1 is NO, in YAML a boolean; "
                f'put quotes round it ("NO") if it is a name, else {WHITELIST_REMEDY}',
                "4: operators: Conv2d: given twice, in lines 3 and 4; keep one",
            ],
        ),
        ("operators: [A, B]\nkeep: [C]\n", ["2: keep: unknown key; the keys are operators"]),
        ("operator: [A]\n", ["1: operator: unknown key; did you mean operators?"]),
    ],
)
def test_mistakes_in_the_whitelist_are_reported_with_their_lines(
    tmp_path: Path, content: str, expected: list[str]
) -> None:
    assert whitelist_errors(tmp_path, content) == [f"operator_whitelist.yml:{line}" for line in expected]


def test_a_missing_whitelist_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    remedy = r"with --measurements, or write it with a line such as operators: \[Conv2d, Linear\]"
    with pytest.raises(UserError, match=remedy):
        load_whitelist(tmp_path / "operator_whitelist.yml")


# The shipped configs


def test_the_shipped_models_are_valid_and_complete() -> None:
    assert set(SHIPPED_NAMES) <= set(names(SHIPPED))


def test_the_shipped_folder_names_say_what_is_in_them() -> None:
    """Users name folders of their own as they like."""
    shipped = [config for config in load_configs(SHIPPED, []) if re.search(r"_\d+(x\d+){3,}$", config.name)]
    assert len(shipped) >= len(SHIPPED_NAMES)
    for config in shipped:
        batches = "_batches" if config.lists else ""
        assert config.name == f"{config.model_name}{batches}_{'x'.join(map(str, config.input_size))}"


def test_the_shipped_whitelist_names_operators() -> None:
    """Which ones, users decide."""
    operators = load_whitelist(SHIPPED / "operator_whitelist.yml")
    assert "Conv2d" in operators
    assert all(name.isidentifier() for name in operators)
