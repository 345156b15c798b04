"""A grid.yml with tuples: its values, its mistakes, and its text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.errors import UserError
from opcost.operators.grids import MAXIMUM_POINTS, TupleList
from opcost.operators.texts import parse_tuple
from opcost.storage.configs import ModelConfig, load_config, set_done
from opcost.storage.grid_files import GRID_NAME
from opcost.storage.tuple_files import LONGEST_TEXT, tuples_text

GOLDEN = Path(__file__).parents[1] / "golden" / "operator_texts.txt"

RELU = "torch.nn.ReLU() on (float32[8, 64]) eval"
CONV = "torch.nn.Conv2d(in_channels=3, out_channels=64, kernel_size=7) on (float32[32, 3, 56, 56]:channels_last) eval"
ADD = "torch.Tensor.add on (float32[8, 64]#0, float32[8, 64]#0)"
SLICE = "torch.Tensor.__getitem__ on (float32[8, 64], slice(start=None, stop=4, step=None))"
LIST = f"""\
tuples: # a comment that stays
  - {RELU}
  - {CONV}
  - "{ADD}"
precision: fp32
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "drawn" / GRID_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str) -> ModelConfig:
    path = written(folder, text)
    (config,) = load_config(path, path.parent)
    return config


def mistakes_of(folder: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        loaded(folder, text)
    assert all(line.startswith(str(folder / "drawn" / GRID_NAME)) for line in caught.value.lines)
    return caught.value.lines


def test_a_file_has_tuples_as_tables_show_them(tmp_path: Path) -> None:
    config = loaded(tmp_path, LIST)
    assert config.grid == TupleList(tuple(map(parse_tuple, (RELU, CONV, ADD))))
    assert (config.name, config.model_name, config.main_key, config.done) == ("drawn", "grid:tuples", "tuples", False)
    assert (config.precision, config.batch_size) == ("fp32", None)


def test_structures_that_a_text_names_completely_are_read(tmp_path: Path) -> None:
    assert loaded(tmp_path, f"tuples:\n- {SLICE}\n").grid == TupleList((parse_tuple(SLICE),))


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (RELU, "torch.nn.ReLU() on float32[8, 64] eval", 2, ("item 1", "is not the text", "write it as tables")),
        (RELU, "torch.nn.ReLU() on (float32[8, 64) eval", 2, ("item 1", "not understood", "write it as tables")),
        (RELU, "torch.nn.ReLU on (float32[8, 64]) eval", 2, ("item 1", "in other words torch.nn.ReLU() on")),
        (RELU, f"torch.nn.ReLU() on ({'(' * 99}{')' * 99}) eval", 2, ("item 1", "nested", "write it as tables")),
        (RELU, "timm.layers.Mlp() on (float32[8, 64]) eval", 2, ("item 1", "timm.layers.Mlp", "remove the tuple")),
        (RELU, "torch.nn.ReLU() on (ImageList(a=1)) eval", 2, ("item 1", "class ImageList", "remove the tuple")),
        (RELU, "torch.nn.ReLU() on ((1, Mine(a=1))) eval", 2, ("item 1", "class Mine", "remove the tuple")),
        (RELU, "[torch.nn.ReLU]", 2, ("item 1", "a list of 1", "write tuples")),
        (RELU, "3", 2, ("item 1", "a number", "write tuples")),
        (RELU, RELU + " " * 9 + "x" * LONGEST_TEXT, 2, ("item 1", "write tuples")),
        (CONV, RELU, 3, ("given twice, in lines 2 and 3", "keep one")),
        (LIST, "tuples: []\n", 1, ("a list of 0", "write tuples")),
        (LIST, f"tuples: {RELU}\n", 1, ("the text", "write tuples")),
        ("precision", "operator: torch.nn.ReLU\nprecision", 5, ("operator: unknown key", "move it, or tuples,")),
        ("precision", "inputs: [[1]]\nprecision", 5, ("inputs: unknown key", "move it, or tuples,")),
        ("precision", "dtypes: float32\nprecision", 5, ("dtypes: unknown key", "move it, or tuples,")),
        ("precision", "precisions", 5, ("precisions", "did you mean precision?")),
        ("fp32", "bf16", 5, ("precision", "bf16", "tf32")),
        (ADD, "\x1b", 4, ("is not allowed",)),
    ],
)
def test_a_mistake_is_one_line_with_line_number_and_remedy(
    tmp_path: Path, old: str, new: str, line: int, words: tuple[str, ...]
) -> None:
    assert old in LIST
    found = mistakes_of(tmp_path, LIST.replace(old, new, 1))
    (text,) = [one for one in found if f"{GRID_NAME}:{line}: " in one]
    assert [word for word in words if word not in text] == []
    assert "\n" not in text
    assert len(text) < 600


def test_a_misspelt_key_is_named(tmp_path: Path) -> None:
    lines = mistakes_of(tmp_path, f"tuple:\n- {RELU}\n")
    assert any("grid.yml:1: tuple: unknown key; did you mean tuples?" in line for line in lines)


def test_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    text = LIST.replace(RELU, "x").replace(CONV, "y").replace("fp32", "z")
    assert [line.split(":")[1] for line in mistakes_of(tmp_path, text)] == ["2", "3", "5"]


def test_a_list_is_limited(tmp_path: Path) -> None:
    items = "".join(f"- torch.nn.ReLU() on (float32[{side}]) eval\n" for side in range(MAXIMUM_POINTS))
    assert loaded(tmp_path, f"tuples:\n{items}").grid is not None
    (line,) = mistakes_of(tmp_path, f"tuples:\n{items}- {RELU}\n")
    assert f"{MAXIMUM_POINTS + 1} tuples" in line
    assert f"may have {MAXIMUM_POINTS}; move some" in line


def test_done_is_set_and_every_other_byte_stays(tmp_path: Path) -> None:
    path = written(tmp_path, LIST)
    assert set_done(path, "drawn")
    assert path.read_text() == f"{LIST}done: true\n"
    assert load_config(path, path.parent)[0].done


def test_the_text_of_real_tuples_is_read_back(tmp_path: Path) -> None:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    tuples = [parse_tuple(line.split("  ", 1)[1]) for line in lines]
    runnable = [one for one in tuples if "(tensors=" not in str(one) and one.operator.startswith("torch")]
    assert len(runnable) > 10
    assert loaded(tmp_path, tuples_text(runnable, ["Why."])).grid == TupleList(tuple(runnable))


@given(st.text(max_size=200))
def test_any_text_is_a_list_or_a_mistake(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("texts") / "drawn" / GRID_NAME
    path.parent.mkdir()
    path.write_bytes(f"tuples:\n- torch.nn.ReLU({text}".encode(errors="surrogatepass"))
    lines: tuple[str, ...] = ()
    try:
        load_config(path, path.parent)
    except UserError as error:
        lines = error.lines
    assert all("\n" not in line for line in lines)
