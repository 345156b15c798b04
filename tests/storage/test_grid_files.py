"""The file grid.yml: its values, its mistakes, and its ``done``."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.errors import UserError
from opcost.operators.grids import MAXIMUM_POINTS, Grid, GridTensor
from opcost.storage.configs import ModelConfig, load_config, set_done
from opcost.storage.grid_files import GRID_NAME, SHARES, read_grid
from opcost.storage.model_folders import ModelFolders, load_configs

CONV = """\
operator: torch.nn.Conv2d   # a comment that stays
sizes: {batch: [1, 32], side: 14}
parameters: {in_channels: [64, 128], out_channels: 128, kernel_size: [1, [1, 3]], padding: same, bias: false}
inputs: [[batch, in_channels, side, side]]
dtypes: [float32, bfloat16]
zeros: {inputs: [0, 0.5], weights: 0.9}
"""


def written(folder: Path, text: str, name: str = "conv_grid") -> Path:
    path = folder / name / GRID_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def loaded(folder: Path, text: str) -> ModelConfig:
    path = written(folder, text)
    (config,) = load_config(path, path.parent)
    return config


def mistakes_of(folder: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        loaded(folder, text)
    assert all(line.startswith(str(folder / "conv_grid" / GRID_NAME)) for line in caught.value.lines)
    return caught.value.lines


def changed(old: str, new: str) -> str:
    assert old in CONV
    return CONV.replace(old, new)


def test_a_file_describes_a_grid(tmp_path: Path) -> None:
    config = loaded(tmp_path, CONV)
    assert config.grid == Grid(
        operator="torch.nn.Conv2d",
        inputs=(GridTensor(("batch", "in_channels", "side", "side")),),
        parameters=(
            ("in_channels", (64, 128)),
            ("out_channels", (128,)),
            ("kernel_size", (1, (1, 3))),
            ("padding", ("same",)),
            ("bias", (False,)),
        ),
        sizes=(("batch", (1, 32)), ("side", (14,))),
        dtypes=("float32", "bfloat16"),
        input_zeros=(0.0, 0.5),
        weight_zeros=(0.9,),
    )
    assert (config.name, config.model_name, config.done) == ("conv_grid", "grid:torch.nn.Conv2d", False)
    assert (config.precision, config.batch_size, config.lists) == ("torch-default", None, ())


def test_all_but_operator_and_inputs_may_be_left_out(tmp_path: Path) -> None:
    config = loaded(tmp_path, "operator: torch.nn.ReLU\ninputs: [[8, 16]]\n")
    assert config.grid == Grid("torch.nn.ReLU", (GridTensor((8, 16)),))


def test_a_tensor_may_have_a_dtype_of_its_own(tmp_path: Path) -> None:
    text = "operator: torch.nn.Embedding\ninputs: [{shape: [8, 16], dtype: int64}]\nprecision: fp32\n"
    config = loaded(tmp_path, text)
    assert config.grid is not None
    assert config.grid.inputs == (GridTensor((8, 16), "int64"),)
    assert config.precision == "fp32"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("torch.nn.Conv2d", "mylib.Conv2d", 1, ("operator", "mylib.Conv2d", "torch.nn.Conv2d")),
        ("torch.nn.Conv2d", "Conv2d", 1, ("operator", "torch.nn.Conv2d")),
        ("operator:", "operater:", 1, ("operater", "did you mean operator?")),
        ("dtypes:", "dtype:", 5, ("dtype", "write dtypes: [")),
        ("[float32, bfloat16]", "[float33]", 5, ("dtypes", "float33", "float32")),
        ("[float32, bfloat16]", "[]", 5, ("dtypes", "list of 0")),
        ("sizes: {batch: [1, 32], side: 14}", "sizes: 14", 2, ("sizes", "14", "write sizes: {")),
        ("side: 14", "side: 0", 2, ("sizes", "side", "0", "whole numbers above 0")),
        ("side: 14", "side: 1.5", 2, ("sizes", "side", "1.5")),
        ("side: 14", "side: 14, unused: 3", 2, ("sizes", "unused", "remove it")),
        ("side: 14", "side: 14, padding: 1", 2, ("padding", "sizes and parameters", "rename")),
        ("kernel_size: [1, [1, 3]]", "kernel_size: []", 3, ("parameters", "kernel_size", "empty")),
        ("padding: same", "padding: {a: 1}", 3, ("parameters", "padding", "mapping")),
        ("[[batch, in_channels", "[[batch, in_chanels", 4, ("inputs", "in_chanels", "in_channels", "sizes")),
        ("side, side]]", "side, padding]]", 4, ("inputs", "padding", "'same'")),
        ("side, side]]", "side, -1]]", 4, ("inputs", "-1", "write inputs: [[")),
        ("[[batch, in_channels, side, side]]", "[batch]", 4, ("inputs", "shape", "write inputs: [[")),
        ("[[batch, in_channels, side, side]]", "[]", 4, ("inputs", "list of 0", "write inputs: [[")),
        ("[[batch, in_channels, side, side]]", "batch", 4, ("inputs", "'batch'", "write inputs: [[")),
        ("[[batch, in_channels, side, side]]", "[{size: [batch]}]", 4, ("inputs", "size", "shape and dtype")),
        ("[[batch, in_channels, side, side]]", "[{shape: [batch], dtype: int3}]", 4, ("inputs", "int3", "int32")),
        ("inputs: [0, 0.5]", "inputs: [0, 0.55]", 6, ("zeros", "inputs", "0.55", "tenths")),
        ("inputs: [0, 0.5]", "inputs: [true]", 6, ("zeros", "inputs", "True", "tenths")),
        ("inputs: [0, 0.5]", "input: [0, 0.5]", 6, ("zeros", "input", "inputs, weights")),
        ("{inputs: [0, 0.5], weights: 0.9}", "0.5", 6, ("zeros", "0.5", "write zeros: {")),
        ("side: 14", f"side: {list(range(1, MAXIMUM_POINTS))}", 1, ("tuples", str(MAXIMUM_POINTS), "shorten")),
        ("zeros:", "precision: bf16\nzeros:", 6, ("precision", "bf16", "tf32")),
        ("zeros:", "done: maybe\nzeros:", 6, ("done", "maybe")),
        ("zeros:", "device: cuda\nzeros:", 6, ("device", "command line")),
    ],
)
def test_a_mistake_is_one_line_with_file_key_and_remedy(
    tmp_path: Path, old: str, new: str, line: int, words: tuple[str, ...]
) -> None:
    found = mistakes_of(tmp_path, changed(old, new))
    (text,) = [one for one in found if f"{GRID_NAME}:{line}: " in one]
    assert [word for word in words if word not in text] == []
    assert "; " in text


def test_missing_keys_are_named(tmp_path: Path) -> None:
    assert [line.split(": ")[1] for line in mistakes_of(tmp_path, "done: false\n")] == ["inputs", "operator"]


def test_a_folder_has_one_config(tmp_path: Path) -> None:
    path = written(tmp_path, CONV)
    path.with_name("summary.yml").write_text("model_name: resnet18\ninput_size: [1, 3, 32, 32]\n")
    with pytest.raises(UserError, match=r"summary\.yml.*move one"):
        load_configs(tmp_path, ["conv_grid"])


def test_a_grid_is_named_as_a_model_is(tmp_path: Path) -> None:
    path = written(tmp_path, CONV)
    model = tmp_path / "resnet18_1x3x32x32" / "summary.yml"
    model.parent.mkdir()
    model.write_text("model_name: resnet18\ninput_size: [1, 3, 32, 32]\n")
    for pattern in ("conv_grid", "conv*", str(path), str(path.parent)):
        assert [config.name for config in load_configs(tmp_path, [pattern])] == ["conv_grid"]
    assert [config.name for config in load_configs(tmp_path, [])] == ["conv_grid", "resnet18_1x3x32x32"]
    assert [config.name for config in ModelFolders(tmp_path).readable()] == ["resnet18_1x3x32x32"]


def test_the_users_grid_comes_before_a_shipped_config(tmp_path: Path) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    written(shipped, CONV)
    assert ModelFolders(own, shipped).path_of("conv_grid") == shipped / "conv_grid" / GRID_NAME
    path = written(own, CONV)
    assert ModelFolders(own, shipped).path_of("conv_grid") == path


@pytest.mark.parametrize("text", [CONV, f"{CONV}done: false\n", f"{CONV}done: no   # not yet\n"])
def test_done_is_set_and_every_other_byte_stays(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    assert set_done(path, "conv_grid")
    assert not set_done(path, "conv_grid")
    assert load_config(path, path.parent)[0].done
    assert path.read_text().startswith(CONV)
    assert "# not yet" not in text or "# not yet" in path.read_text()


NUMBERS = st.lists(st.integers(1, 2**40), min_size=1, max_size=5, unique=True)
ZEROS = st.lists(st.sampled_from(SHARES), min_size=1, unique=True)


@given(sizes=NUMBERS, kernels=NUMBERS, inputs=ZEROS, weights=ZEROS)
def test_values_are_read_as_they_are_written(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    kernels: list[int],
    inputs: list[float],
    weights: list[float],
) -> None:
    text = (
        f"operator: torch.nn.MaxPool2d\nsizes: {{side: {sizes}}}\nparameters: {{kernel_size: {kernels}}}\n"
        f"inputs: [[side, kernel_size]]\nzeros: {{inputs: {inputs}, weights: {weights}}}\n"
    )
    found = read_grid(written(tmp_path_factory.mktemp("grids"), text))
    assert [line for line in found.mistakes if "shorten" not in line[1]] == []
    assert dict(found.grid.sizes)["side"] == tuple(sizes)
    assert dict(found.grid.parameters)["kernel_size"] == tuple(kernels)
    assert (found.grid.input_zeros, found.grid.weight_zeros) == (tuple(inputs), tuple(weights))


@given(st.text(max_size=200))
def test_any_text_is_a_grid_or_a_mistake(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("texts")
    path = folder / "conv_grid" / GRID_NAME
    path.parent.mkdir()
    path.write_bytes(f"operator: torch.nn.ReLU\ninputs: {text}".encode(errors="surrogatepass"))
    lines: tuple[str, ...] = ()
    try:
        load_config(path, path.parent)
    except UserError as error:
        lines = error.lines
    assert all("\n" not in line for line in lines)
