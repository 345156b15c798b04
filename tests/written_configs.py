"""Configs that tests write, and the lines of the mistakes in them."""

from pathlib import Path

import pytest

from opcost.errors import UserError
from opcost.storage.configs import ModelFolders

VALID = """\
# A model.
model_name: resnet18
weights_name: null
input_size: [32, 3, 224, 224]
done: false
"""
SWEEP = """\
# A sweep.
model_name: resnet18
input_size: [32, 3, 64, 64] # the first number is replaced
batch: [1, 8]
precision: [tf32, bf16]
done: false # yet
"""
SWEPT = ["r_1x3x64x64_tf32", "r_1x3x64x64_bf16", "r_8x3x64x64_tf32", "r_8x3x64x64_bf16"]
SHIPPED = Path(__file__).parents[1] / "measurements"
FOLDER_NAMES = ["x", "resnet50_32x3x224x224", "resnext50_32x4d", "a b", "it's", "été", "0xa", "a[1]", "no"]


def write(measurements: Path, name: str, content: str | bytes, file: str = "summary.yml") -> Path:
    path = measurements / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def names(measurements: Path, *patterns: str) -> list[str]:
    return [config.name for config in ModelFolders(measurements).configs(patterns)]


def error_lines(measurements: Path, *patterns: str) -> list[str]:
    """The error lines, which name the files, without the folder that all of them are in."""
    with pytest.raises(UserError) as caught:
        ModelFolders(measurements).configs(patterns)
    assert all(len(line.splitlines()) == 1 for line in caught.value.lines)
    return [line.removeprefix(f"{measurements}/") for line in caught.value.lines]


def one_mistake(measurements: Path, line: int, words: str) -> None:
    """Check that a file has one mistake on a line, which has these words, and a remedy."""
    (found,) = error_lines(measurements)
    assert f".yml:{line}: " in found
    assert ";" in found
    assert len(found) < 600
    assert [word for word in words.split("|") if word not in found] == [], found
