"""The file grid.yml: the values of a grid or of a list of tuples, its mistakes, and its ``done``."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_configs import error_lines, names, write

from opcost.errors import UserError
from opcost.operators.grids import MAXIMUM_POINTS, Grid, GridTensor, TupleList
from opcost.operators.texts import parse_tuple
from opcost.storage.configs import GRID_NAME, ModelConfig, ModelFolders, load_config, set_done
from opcost.storage.schemas import LONGEST_TEXT, SHARES, tuples_text

GOLDEN = Path(__file__).parents[1] / "golden" / "operator_texts.txt"

CONV = """\
operator: torch.nn.Conv2d   # a comment that stays
sizes: {batch: [1, 32], side: 14}
parameters: {in_channels: [64, 128], out_channels: 128, kernel_size: [1, [1, 3]], padding: same, bias: false}
inputs: [[batch, in_channels, side, side]]
dtypes: [float32, bfloat16]
zeros: {inputs: [0, 0.5], weights: 0.9}
"""
RELU = "torch.nn.ReLU() on (float32[8, 64]) eval"
CONVOLUTION = (
    "torch.nn.Conv2d(in_channels=3, out_channels=64, kernel_size=7) on (float32[2, 3, 56, 56]:channels_last) eval"
)
ADD = "torch.Tensor.add on (float32[8, 64]#0, float32[8, 64]#0)"
SLICE = "torch.Tensor.__getitem__ on (float32[8, 64], slice(start=None, stop=4, step=None))"
LIST = f"""\
tuples: # a comment that stays
  - {RELU}
  - {CONVOLUTION}
  - "{ADD}"
precision: fp32
"""


def written(folder: Path, text: str) -> Path:
    return write(folder, "conv_grid", text, GRID_NAME)


def loaded(folder: Path, text: str) -> ModelConfig:
    path = written(folder, text)
    (config,) = load_config(path, path.parent)
    return config


def mistakes_of(folder: Path, text: str) -> list[str]:
    written(folder, text)
    return error_lines(folder, "conv_grid")


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
        ("operator:", "operater:", 1, ("operater", "did you mean operator?")),
        ("dtypes:", "dtype:", 5, ("dtype", "write dtypes: [")),
        ("[float32, bfloat16]", "[float33]", 5, ("dtypes", "float33", "float32")),
        ("sizes: {batch: [1, 32], side: 14}", "sizes: 14", 2, ("sizes", "14", "write sizes: {")),
        ("side: 14", "side: 0", 2, ("sizes", "side", "0", "whole numbers above 0")),
        ("side: 14", "side: 14, unused: 3", 2, ("sizes", "unused", "remove it")),
        ("side: 14", "side: 14, padding: 1", 2, ("padding", "sizes and parameters", "rename")),
        ("kernel_size: [1, [1, 3]]", "kernel_size: []", 3, ("parameters", "kernel_size", "empty")),
        ("padding: same", "padding: {a: 1}", 3, ("parameters", "padding", "mapping")),
        ("[[batch, in_channels", "[[batch, in_chanels", 4, ("inputs", "in_chanels", "in_channels", "sizes")),
        ("side, side]]", "side, padding]]", 4, ("inputs", "padding", "'same'")),
        ("side, side]]", "side, -1]]", 4, ("inputs: item 1: item 4 is -1", "write inputs: [[")),
        ("[[batch, in_channels, side, side]]", "[]", 4, ("inputs", "list of 0", "write inputs: [[")),
        ("[[batch, in_channels, side, side]]", "[{size: [batch]}]", 4, ("inputs: item 1: size: unknown key", "dtype")),
        ("[[batch, in_channels, side, side]]", "[{shape: [batch], dtype: int3}]", 4, ("inputs", "int3", "int32")),
        ("inputs: [0, 0.5]", "inputs: [0, 0.55]", 6, ("zeros", "inputs", "0.55", "tenths")),
        ("inputs: [0, 0.5]", "input: [0, 0.5]", 6, ("zeros: input: unknown key", "inputs: [", "weights")),
        ("side: 14", f"side: {list(range(1, MAXIMUM_POINTS))}", 1, ("tuples", str(MAXIMUM_POINTS), "shorten")),
        ("zeros:", "precision: bf16\nzeros:", 6, ("precision", "bf16", "tf32")),
        (RELU, "torch.nn.ReLU() on float32[8, 64] eval", 2, ("item 1", "is not the text", "write it as tables")),
        (RELU, "torch.nn.ReLU on (float32[8, 64]) eval", 2, ("item 1", "in other words torch.nn.ReLU() on")),
        (RELU, f"torch.nn.ReLU() on ({'(' * 99}{')' * 99}) eval", 2, ("item 1", "nested", "write it as tables")),
        (RELU, "timm.layers.Mlp() on (float32[8, 64]) eval", 2, ("item 1", "timm.layers.Mlp", "remove the tuple")),
        (RELU, "torch.nn.ReLU() on (ImageList(a=1)) eval", 2, ("item 1", "class ImageList", "remove the tuple")),
        (RELU, "torch.nn.ReLU() on ((1, Mine(a=1))) eval", 2, ("item 1", "class Mine", "remove the tuple")),
        (RELU, "3", 2, ("item 1", "a number", "write tuples")),
        (RELU, RELU + " " * 9 + "x" * LONGEST_TEXT, 2, ("item 1", "write tuples")),
        (CONVOLUTION, RELU, 3, ("item 2", "given twice, also as item 1", "keep one")),
        (LIST, "tuples: []\n", 1, ("a list of 0", "write tuples")),
        (LIST, f"tuple:\n- {RELU}\n", 1, ("tuple: unknown key", "did you mean tuples?")),
        (
            "precision: fp32",
            "operator: torch.nn.ReLU\nprecision: fp32",
            5,
            ("operator: unknown key", "move it, or tuples,"),
        ),
        ("precision: fp32", "dtypes: float32\nprecision: fp32", 5, ("dtypes: unknown key", "move it, or tuples,")),
        ("fp32", "bf16", 5, ("precision: the value", "bf16", "tf32")),
        (ADD, "\x1b", 4, ("is not allowed",)),
        ("zeros:", "device: cuda\nzeros:", 6, ("device", "command line")),
    ],
)
def test_a_mistake_is_one_line_with_file_key_and_remedy(
    tmp_path: Path, old: str, new: str, line: int, words: tuple[str, ...]
) -> None:
    assert old in CONV + LIST
    found = mistakes_of(tmp_path, (CONV if old in CONV else LIST).replace(old, new, 1))
    text = next(one for one in found if f"{GRID_NAME}:{line}: " in one and words[0] in one)
    assert [word for word in words if word not in text] == []
    assert "; " in text
    assert len(text) < 600


def test_missing_keys_are_named(tmp_path: Path) -> None:
    assert [line.split(": ")[1] for line in mistakes_of(tmp_path, "done: false\n")] == ["inputs", "operator"]


def test_a_folder_has_one_config(tmp_path: Path) -> None:
    path = written(tmp_path, CONV)
    path.with_name("summary.yml").write_text("model_name: resnet18\ninput_size: [1, 3, 32, 32]\n")
    with pytest.raises(UserError, match=r"summary\.yml.*move one"):
        ModelFolders(tmp_path).configs(["conv_grid"])


def test_a_grid_is_named_as_a_model_is(tmp_path: Path) -> None:
    path = written(tmp_path, CONV)
    write(tmp_path, "resnet18_1x3x32x32", "model_name: resnet18\ninput_size: [1, 3, 32, 32]\n")
    for pattern in ("conv_grid", "conv*", str(path), str(path.parent)):
        assert names(tmp_path, pattern) == ["conv_grid"]
    assert names(tmp_path) == ["conv_grid", "resnet18_1x3x32x32"]
    assert [config.name for config in ModelFolders(tmp_path).readable()] == ["resnet18_1x3x32x32"]


def test_the_users_grid_comes_before_a_shipped_config(tmp_path: Path) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    written(shipped, CONV)
    assert ModelFolders(own, shipped).path_of("conv_grid") == shipped / "conv_grid" / GRID_NAME
    path = written(own, CONV)
    assert ModelFolders(own, shipped).path_of("conv_grid") == path


@pytest.mark.parametrize("text", [CONV, f"{CONV}done: false\n", f"{CONV}done: no   # not yet\n", LIST])
def test_done_is_set_and_every_other_byte_stays(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    assert set_done(path, "conv_grid")
    assert not set_done(path, "conv_grid")
    assert load_config(path, path.parent)[0].done
    assert path.read_text().startswith(LIST if text == LIST else CONV)
    assert "# not yet" not in text or "# not yet" in path.read_text()


def test_a_file_has_tuples_as_tables_show_them(tmp_path: Path) -> None:
    config = loaded(tmp_path, LIST)
    assert config.grid == TupleList(tuple(map(parse_tuple, (RELU, CONVOLUTION, ADD))))
    assert (config.name, config.model_name, config.done) == ("conv_grid", "grid:tuples", False)
    assert (config.precision, config.batch_size) == ("fp32", None)


def test_structures_that_a_text_names_completely_are_read(tmp_path: Path) -> None:
    assert loaded(tmp_path, f"tuples:\n- {SLICE}\n").grid == TupleList((parse_tuple(SLICE),))


def test_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    text = LIST.replace(RELU, "x").replace(CONVOLUTION, "y").replace("fp32", "z")
    assert [line.split(":")[1] for line in mistakes_of(tmp_path, text)] == ["2", "3", "5"]


def test_a_list_is_limited(tmp_path: Path) -> None:
    items = "".join(f"- torch.nn.ReLU() on (float32[{side}]) eval\n" for side in range(MAXIMUM_POINTS))
    assert loaded(tmp_path, f"tuples:\n{items}").grid is not None
    (line,) = mistakes_of(tmp_path, f"tuples:\n{items}- {RELU}\n")
    assert f"a list of {MAXIMUM_POINTS + 1}; write" in line
    assert f"at most {MAXIMUM_POINTS} in a file" in line


def test_the_text_of_real_tuples_is_read_back(tmp_path: Path) -> None:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    tuples = [parse_tuple(line.split("  ", 1)[1]) for line in lines]
    runnable = [one for one in tuples if "(tensors=" not in str(one) and one.operator.startswith("torch")]
    assert len(runnable) > 10
    assert loaded(tmp_path, tuples_text(runnable, ["Why."])).grid == TupleList(tuple(runnable))


NUMBERS = st.lists(st.integers(1, 2**40), min_size=1, max_size=2, unique=True)
ZEROS = st.lists(st.sampled_from(SHARES), min_size=1, unique=True)


@given(sizes=NUMBERS, kernels=NUMBERS, inputs=ZEROS, weights=ZEROS)
def test_values_are_read_as_they_are_written(
    sizes: list[int], kernels: list[int], inputs: list[float], weights: list[float]
) -> None:
    text = (
        f"operator: torch.nn.MaxPool2d\nsizes: {{side: {sizes}}}\nparameters: {{kernel_size: {kernels}}}\n"
        f"inputs: [[side, kernel_size]]\nzeros: {{inputs: {inputs}, weights: {weights}}}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        grid = loaded(Path(folder), text).grid
    assert isinstance(grid, Grid)
    assert dict(grid.sizes)["side"] == tuple(sizes)
    assert dict(grid.parameters)["kernel_size"] == tuple(kernels)
    assert (grid.input_zeros, grid.weight_zeros) == (tuple(inputs), tuple(weights))


@given(st.sampled_from(["operator: torch.nn.ReLU\ninputs: ", "tuples:\n- torch.nn.ReLU("]), st.text(max_size=200))
def test_any_text_is_a_grid_or_a_mistake(beginning: str, text: str) -> None:
    lines: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), "conv_grid", f"{beginning}{text}".encode(errors="surrogatepass"), GRID_NAME)
        try:
            load_config(path, path.parent)
        except UserError as error:
            lines = error.lines
    assert all("\n" not in line for line in lines)
