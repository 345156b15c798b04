"""One config for each model of torchvision, and none that was there is touched."""

from pathlib import Path

import pytest

from opcost.errors import UserError
from opcost.sources.registry import check_config, models_matching
from opcost.stages.make_configs import make_configs
from opcost.storage.configs import ModelFolders

SHIPPED = Path(__file__).parents[2] / "measurements"


def test_every_model_gets_a_valid_config_of_its_published_size(tmp_path: Path) -> None:
    reports = make_configs(ModelFolders(tmp_path), [])
    configs = ModelFolders(tmp_path).configs([], check_config)
    assert [report.made for report in reports] == [True] * len(configs)
    assert sorted(config.model_name for config in configs) == [model.name for model in models_matching([])]
    assert all((config.weights_name, config.done, config.seed) == (None, False, 0) for config in configs)
    sizes = {config.model_name: config.input_size for config in configs}
    assert sizes["resnet50"] == (32, 3, 224, 224)
    assert sizes["vit_h_14"] == (32, 3, 518, 518)
    assert sizes["inception_v3"] == (32, 3, 299, 299)
    assert sizes["fcn_resnet50"] == (32, 3, 520, 520)
    assert sizes["swin3d_t"] == (8, 3, 16, 224, 224)
    assert sizes["r3d_18"] == (8, 3, 16, 112, 112)
    assert sizes["raft_small"] == (2, 3, 512, 512)
    assert sizes["maskrcnn_resnet50_fpn"] == (2, 3, 800, 800)
    assert sizes["ssd300_vgg16"] == (2, 3, 300, 300)
    assert "\nseed: 0 #" in (tmp_path / "ssd300_vgg16_2x3x300x300" / "summary.yml").read_text()
    assert "seed" not in (tmp_path / "resnet50_32x3x224x224" / "summary.yml").read_text()


def test_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    kept = tmp_path / "resnet18_32x3x224x224" / "summary.yml"
    kept.parent.mkdir()
    kept.write_text("mine\n")
    reports = make_configs(ModelFolders(tmp_path), ["resnet18", "resnet34"])
    assert make_configs(ModelFolders(tmp_path), ["torchvision:resnet18"], dry_run=True) == reports[:1]
    assert [(report.name, report.made) for report in reports] == [
        ("resnet18_32x3x224x224", False),
        ("resnet34_32x3x224x224", True),
    ]
    assert kept.read_text() == "mine\n"
    assert [report.made for report in make_configs(ModelFolders(tmp_path), ["resnet18", "resnet34"])] == [False, False]


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    (report,) = make_configs(ModelFolders(tmp_path), ["alexnet"], dry_run=True)
    assert report.made
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_not_there_is_a_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="torchvision has no model 'resnet81'; did you mean"):
        make_configs(ModelFolders(tmp_path), ["resnet81", "resnet18"])
    assert list(tmp_path.iterdir()) == []


def test_all_of_them_are_shipped() -> None:
    reports = make_configs(ModelFolders(SHIPPED), [], dry_run=True)
    assert [report.name for report in reports if report.made] == []
