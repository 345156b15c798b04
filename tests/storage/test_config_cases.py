"""Lists in a config make cases: the product of the lists, each with a name, a folder and a ``done`` of its own."""

from __future__ import annotations

import itertools
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from opcost.errors import UserError
from opcost.storage.config_cases import case_name, without_size
from opcost.storage.configs import ModelConfig, set_done
from opcost.storage.model_folders import ModelFolders, load_configs
from opcost.storage.user_folders import user_folders

SHIPPED = Path(__file__).parents[2] / "measurements"
PRECISIONS = ["torch-default", "fp32", "tf32", "bf16", "fp16", "amp-bf16"]
FORMATS = ["contiguous", "channels_last"]
SWEEP = """\
# A sweep.
model_name: resnet18
input_size: [32, 3, 64, 64] # the first number is replaced
batch: [1, 8]
precision: [tf32, bf16]
done: false # yet
"""
SWEPT = ["r_1x3x64x64_tf32", "r_1x3x64x64_bf16", "r_8x3x64x64_tf32", "r_8x3x64x64_bf16"]


def write(measurements: Path, name: str, content: str) -> Path:
    path = measurements / name / "summary.yml"
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode())
    return path


def names(measurements: Path, *patterns: str) -> list[str]:
    return [config.name for config in load_configs(measurements, patterns)]


def error_lines(measurements: Path, *patterns: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        load_configs(measurements, patterns)
    return [line.removeprefix(f"{measurements}/") for line in caught.value.lines]


# Expansion


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
        ("x", (None, None, None), "x"),
    ],
)
def test_a_case_is_named_by_its_folder_and_the_values_that_vary(folder: str, values: Any, expected: str) -> None:
    assert case_name(folder, *values) == expected


def test_a_config_becomes_the_product_of_its_lists_in_their_order(tmp_path: Path) -> None:
    path = write(tmp_path, "r", SWEEP)
    configs = load_configs(tmp_path, [])
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
    found = load_configs(SHIPPED, [])
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
FOLDERS = st.sampled_from(["x", "resnet50_32x3x224x224", "resnext50_32x4d", "a b", "it's", "été", "0xa", "a[1]", "no"])


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
        configs = load_configs(Path(measurements), [])
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


# Names on the command line


@pytest.fixture
def sweeps(tmp_path: Path) -> Path:
    write(tmp_path, "r", SWEEP)
    write(tmp_path, "vgg16_32x3x64x64", SWEEP.replace("batch: [1, 8]\n", ""))
    write(tmp_path, "s_8x3x64x64", "model_name: a\ninput_size: [8, 3, 64, 64]\n")
    return tmp_path


VGGS = ["vgg16_32x3x64x64_tf32", "vgg16_32x3x64x64_bf16"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((), [*SWEPT, "s_8x3x64x64", *VGGS]),
        (("r",), SWEPT),
        (("r_8x3x64x64_bf16",), SWEPT[3:]),
        (("r_8x3x64x64_bf16", "r_1x3x64x64_bf16"), [SWEPT[1], SWEPT[3]]),
        (("r_8*",), SWEPT[2:]),
        (("*bf16",), [SWEPT[1], SWEPT[3], VGGS[1]]),
        (("*8x3x64x64*",), [*SWEPT[2:], "s_8x3x64x64"]),
        (("vgg16",), VGGS),
        (("vgg16_32x3x64x64",), VGGS),
        (("vgg16_32x3x64x64_tf32", "s"), ["s_8x3x64x64", VGGS[0]]),
        (("r", "r_8x3x64x64_bf16"), SWEPT),
        (("{here}/r",), SWEPT),
        (("{here}/r/summary.yml",), SWEPT),
        (("{here}/r/r_8x3x64x64_bf16/",), SWEPT[3:]),
        (("{here}/*/*_bf16",), [SWEPT[1], SWEPT[3], VGGS[1]]),
    ],
)
def test_a_folders_name_means_all_its_cases_and_a_cases_name_that_case(
    sweeps: Path, patterns: tuple[str, ...], expected: list[str]
) -> None:
    assert names(sweeps, *(pattern.format(here=sweeps) for pattern in patterns)) == expected


def test_a_case_with_the_name_of_its_own_folder_is_named_by_its_path(tmp_path: Path) -> None:
    write(tmp_path, "r_8x3x64x64", SWEEP.replace("precision: [tf32, bf16]\n", ""))
    assert names(tmp_path, "r_8x3x64x64") == ["r_1x3x64x64", "r_8x3x64x64"]
    assert names(tmp_path, f"{tmp_path}/r_8x3x64x64/r_8x3x64x64") == ["r_8x3x64x64"]


def test_a_misspelt_case_is_a_mistake_that_names_close_ones(sweeps: Path) -> None:
    (line,) = error_lines(sweeps, "r_8x3x64x64_bf61")
    assert "'r_8x3x64x64_bf61'; did you mean r_8x3x64x64_bf16" in line


def test_a_config_that_is_not_chosen_may_have_a_mistake_in_its_lists(sweeps: Path) -> None:
    write(sweeps, "r_broken", "precision: [")
    assert names(sweeps, "r_1*") == SWEPT[:2]


# Collisions


def test_a_case_must_not_have_the_name_of_another_folder(sweeps: Path) -> None:
    write(sweeps, "r_8x3x64x64_tf32", "model_name: a\ninput_size: [8, 3, 64, 64]\n")
    expected = (
        f"r/summary.yml:4: batch: {sweeps}/r_8x3x64x64_tf32/summary.yml also has the name of the case "
        "r_8x3x64x64_tf32; rename a folder"
    )
    assert error_lines(sweeps) == [expected]
    assert error_lines(sweeps, "r") == [expected]
    assert names(sweeps, "vgg16", "s") == ["s_8x3x64x64", *VGGS]
    assert [config.name for config in ModelFolders(sweeps).readable()] == ["r_8x3x64x64_tf32", "s_8x3x64x64", *VGGS]


def test_a_case_must_not_have_the_name_of_a_case_of_another_config(sweeps: Path) -> None:
    write(sweeps, "r_8x3x64x64", "model_name: a\ninput_size: [8, 3, 64, 64]\nprecision: [fp16, bf16]\n")
    line = "{}: {} also has the name of the case r_8x3x64x64_bf16; rename a folder"
    second = line.format("r_8x3x64x64/summary.yml:3: precision", f"{sweeps}/r/summary.yml")
    assert error_lines(sweeps) == [second]
    assert error_lines(sweeps, f"{sweeps}/r_8x3x64x64/*fp16") == [second]
    assert error_lines(sweeps, "r_1x3x64x64_tf32") == [
        line.format("r/summary.yml:4: batch", f"{sweeps}/r_8x3x64x64/summary.yml")
    ]


def test_a_case_may_have_the_name_of_its_own_folder(tmp_path: Path) -> None:
    write(tmp_path, "r_8x3x64x64", "model_name: a\ninput_size: [8, 3, 64, 64]\nbatch: [8]\n")
    assert names(tmp_path) == ["r_8x3x64x64"]


def test_a_users_case_must_not_have_the_name_of_a_shipped_model(tmp_path: Path) -> None:
    content = "model_name: resnet50\ninput_size: [32, 3, 224, 224]\nbatch: [8, 32]\n"
    write(tmp_path / "measurements", "resnet50", content)
    folders = ModelFolders.of(user_folders(home=tmp_path))
    with pytest.raises(UserError, match="also has the name of the case resnet50_32x3x224x224; rename a folder"):
        folders.configs(["resnet50"])
    (tmp_path / "measurements" / "resnet50").rename(tmp_path / "measurements" / "resnet50_32x3x224x224")
    assert [config.name for config in folders.configs(["resnet50"])] == [
        "resnet50_8x3x224x224",
        "resnet50_32x3x224x224",
    ]


def test_a_folder_whose_cases_could_have_no_folders_is_one_line(tmp_path: Path) -> None:
    write(tmp_path, "x" * 250, SWEEP)
    (line,) = error_lines(tmp_path)
    assert "batch: the folder's name" in line
    assert line.endswith("rename the folder")


# Setting done


def done_in(path: Path) -> list[str]:
    return [config.name for config in load_configs(path.parents[1], [path.parent.name]) if config.done]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SWEEP, SWEEP.replace("false", "[r_8x3x64x64_tf32]")),
        (SWEEP.replace("done: false # yet\n", ""), SWEEP.replace("done: false # yet", "done: [r_8x3x64x64_tf32]")),
        (
            SWEEP.replace("false", "[r_1x3x64x64_bf16]"),
            SWEEP.replace("false", "[r_1x3x64x64_bf16, r_8x3x64x64_tf32]"),
        ),
        (SWEEP.replace("false", "[]"), SWEEP.replace("false", "[r_8x3x64x64_tf32]")),
        (SWEEP.replace("false", "[# none\n ]"), SWEEP.replace("false", "[r_8x3x64x64_tf32 # none\n ]")),
        (
            SWEEP.replace("false", "[\n  'former'# case\n , ]"),
            SWEEP.replace("false", "[\n  'former', r_8x3x64x64_tf32 # case\n , ]"),
        ),
        (
            SWEEP.replace("done: false # yet", "done: # these\n  - r_1x3x64x64_bf16 # first\n  # end"),
            SWEEP.replace(
                "done: false # yet",
                "done: # these\n  - r_1x3x64x64_bf16 # first\n  - r_8x3x64x64_tf32\n  # end",
            ),
        ),
        (SWEEP.replace("false # yet\n", "\n- former"), SWEEP.replace("false # yet", "\n- former\n- r_8x3x64x64_tf32")),
        (
            "done:\n- >-\n  former\n\n" + SWEEP.replace("done: false # yet\n", ""),
            "done:\n- >-\n  former\n- r_8x3x64x64_tf32\n\n" + SWEEP.replace("done: false # yet\n", ""),
        ),
        (
            "{done: no, model_name: a, input_size: [[8, 3, 64, 64]], precision: [tf32]}",
            "{done: [r_8x3x64x64_tf32], model_name: a, input_size: [[8, 3, 64, 64]], precision: [tf32]}",
        ),
        (SWEEP.replace("\n", "\r\n"), SWEEP.replace("false", "[r_8x3x64x64_tf32]").replace("\n", "\r\n")),
    ],
    ids=[
        "false",
        "absent",
        "list",
        "empty",
        "comment in brackets",
        "comment behind a quote",
        "block",
        "no newline",
        "folded",
        "flow",
        "crlf",
    ],
)
def test_a_finished_case_is_added_and_every_other_byte_stays(tmp_path: Path, before: str, after: str) -> None:
    path = write(tmp_path, "r", before)
    former = done_in(path)
    assert set_done(path, "r_8x3x64x64_tf32")
    assert path.read_bytes().decode() == after.removesuffix("\n") + ("\n" if before.endswith("\n") else "")
    assert set(done_in(path)) == {*former, "r_8x3x64x64_tf32"}
    assert not set_done(path, "r_8x3x64x64_tf32")


def test_true_means_all_cases_and_stays(tmp_path: Path) -> None:
    path = write(tmp_path, "r", SWEEP.replace("false", "true"))
    assert done_in(path) == SWEPT
    assert not any(set_done(path, name) for name in SWEPT)


def test_a_value_that_is_added_to_a_list_is_not_done(tmp_path: Path) -> None:
    path = write(tmp_path, "r", SWEEP)
    assert all(set_done(path, name) for name in SWEPT)
    path.write_text(path.read_text().replace("[1, 8]", "[1, 8, 32]"))
    assert done_in(path) == SWEPT
    assert len(load_configs(tmp_path, [])) == 6


def test_done_of_a_case_that_the_file_does_not_have_any_more_is_a_mistake(tmp_path: Path) -> None:
    path = write(tmp_path, "r", SWEEP)
    with pytest.raises(UserError, match="no case r_9x3x64x64_tf32 any more"):
        set_done(path, "r_9x3x64x64_tf32")
    assert path.read_text() == SWEEP


LINE_ENDS = st.sampled_from(["\n", "\r\n"])
COMMENTS = st.sampled_from(["", " # done: [a]", " # größer 𝄞"])


@st.composite
def files_with_lists(draw: st.DrawFn) -> tuple[str, str]:
    """The name of a folder, and a config with lists and some way to write ``done``, among comments."""
    folder = draw(FOLDERS)
    indent, comment = draw(st.sampled_from(["", "  "])), draw(COMMENTS)
    quotes = draw(st.sampled_from(["'{}'", '"{}"']))
    former = [quotes.format(name) for name in draw(st.lists(st.sampled_from(["a", "b_fp32", "c d"]), max_size=3))]
    done = draw(
        st.sampled_from(
            [
                [],
                [f"done: false{comment}"],
                [f"'done' :   no{comment}"],
                [f"done: [{', '.join(former)}]{comment}"],
                ["done: [", *(f"  {name},{comment}" for name in former), f" ]{comment}"],
                [f"done:{comment}", *(f"{indent}- {name}{comment}" for name in former or ["a"])],
                [f"done:{comment}", *(f"{indent}-   # here\n{indent}   {name}{comment}" for name in former or ["a"])],
            ]
        )
    )
    others = ["model_name: a", f"input_size: [1, 3, 8, 8]{comment}", "batch: [1, 8]", "precision:\n- fp32\n- bf16"]
    blocks = draw(st.permutations([*others, "\n".join(done)] if done else others))
    text = draw(st.sampled_from(["", "# top\n"])) + "\n".join(blocks) + draw(st.sampled_from(["", "\n", "\n\n# end\n"]))
    return folder, text.replace("\n", draw(LINE_ENDS))


@settings(max_examples=200)
@given(files_with_lists(), st.randoms(use_true_random=False))
def test_cases_are_done_one_by_one_and_every_other_byte_stays(file: tuple[str, str], random: Any) -> None:
    folder, text = file
    with tempfile.TemporaryDirectory() as measurements:
        path = write(Path(measurements), folder, text)
        order = [config.name for config in load_configs(Path(measurements), [])]
        random.shuffle(order)
        for number, name in enumerate(order, 1):
            before = path.read_bytes()
            assert set_done(path, name)
            after = path.read_bytes()
            assert set(done_in(path)) == set(order[:number])
            assert inserted(before, after, b"false", b"no").replace(b"''", b"'").count(name.encode()) == 1
            # Other programs read the same.
            assert name in yaml.safe_load(after)["done"]


def inserted(before: bytes, after: bytes, *replaced: bytes) -> bytes:
    """Return the bytes that were inserted at one position, where at most one of some words was; all others are kept."""
    begin = next((i for i, (one, two) in enumerate(zip(before, after, strict=False)) if one != two), len(before))
    for gone in (b"", *replaced):
        if before.startswith(gone, begin) and after[begin:].endswith(before[begin + len(gone) :]):
            return after[begin : len(after) - (len(before) - begin - len(gone))]
    raise AssertionError(f"{before!r} became {after!r}")
