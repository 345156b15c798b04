"""Configs of models that are found by their usual names, without torch."""

from dataclasses import replace
from pathlib import Path

import pytest

from opcost.errors import UserError
from opcost.stages.wanted_model import WantedModel, known_config
from opcost.storage.configs import ModelFolders

SHIPPED = Path(__file__).parents[2] / "measurements"


@pytest.fixture
def folders(tmp_path: Path) -> ModelFolders:
    return ModelFolders(tmp_path, SHIPPED)


@pytest.mark.parametrize(
    ("wanted", "batch", "name"),
    [
        (WantedModel("resnet50"), None, "resnet50_32x3x224x224"),
        (WantedModel("resnet50_32x3x224x224"), None, "resnet50_32x3x224x224"),
        (WantedModel("resnet50_32x3x224x224"), 32, "resnet50_32x3x224x224"),
        (WantedModel("resnet18", (32, 3, 32, 32)), None, "resnet18_32x3x32x32"),
        (WantedModel("resnet18", (8, 3, 32, 32)), 32, "resnet18_32x3x32x32"),
        (WantedModel("resnet50"), 64, None),
        (WantedModel("resnet50", precision="bf16"), None, "resnet50_32x3x224x224_bf16"),
        (WantedModel("resnet50", precision="fp16"), None, None),
        (WantedModel("resnet50_32x3x224x224"), 64, None),
        (WantedModel("no_such_model"), None, None),
        # The usual precision is meant, unless there is no other.
        (WantedModel("gpt2"), None, "gpt2_8x512_torch-default"),
        (WantedModel("gpt2", precision="bf16"), None, "gpt2_8x512_bf16"),
        (WantedModel("gpt2", precision="fp16"), None, None),
        (WantedModel("gpt2"), 4, None),
        (WantedModel("llama31_8b"), None, "llama31_8b_1x2048"),
        (WantedModel("bert_base_8x128_bf16", precision="bf16"), None, "bert_base_8x128_bf16"),
        (WantedModel("timm:resnet18"), None, None),
        (WantedModel("net.py:build"), None, None),
    ],
)
def test_a_shipped_config_is_found_by_its_model_or_name(
    folders: ModelFolders, wanted: WantedModel, batch: int | None, name: str | None
) -> None:
    found = known_config(folders, wanted, batch)
    assert (None if found is None else found.name) == name


def test_a_name_of_several_sizes_is_refused_with_their_names(folders: ModelFolders) -> None:
    with pytest.raises(UserError, match="MODEL: bert_base has 2 cases; name one of them: bert_base_8x128_torch-def"):
        known_config(folders, WantedModel("bert_base"), None)


def test_a_folder_of_the_usual_name_with_another_model_is_none(folders: ModelFolders) -> None:
    folder = folders.own / "resnet50_32x3x224x224"
    folder.mkdir()
    (folder / "summary.yml").write_text("model_name: resnet50\ninput_size: [32, 3, 224, 224]\nseed: 5\n")
    assert known_config(folders, WantedModel("resnet50", (32, 3, 224, 224)), None) is None


def test_a_case_of_a_config_with_lists_is_found_by_its_name(folders: ModelFolders) -> None:
    folder = folders.own / "batches"
    folder.mkdir()
    (folder / "summary.yml").write_text("model_name: resnet50\ninput_size: [1, 3, 224, 224]\nbatch: [2, 4]\n")
    found = known_config(folders, WantedModel("batches_4x3x224x224"), None)
    assert found is not None
    assert found.input_size == (4, 3, 224, 224)
    with pytest.raises(UserError, match="batches has 2 cases; name one of them"):
        known_config(folders, WantedModel("batches"), None)


def test_without_folders_there_is_none(folders: ModelFolders) -> None:
    assert known_config(replace(folders, shipped=None), WantedModel("resnet50"), None) is None
