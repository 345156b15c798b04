"""Models by name: what torchvision knows, what it does not, and what comes out."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

from opcost.errors import UserError
from opcost.model_sources import build_model, check_model, is_model
from opcost.operators import OperatorTuple, model_operator

FILE = "measurements/x/summary.yml:3"
SIZE = (1, 3, 32, 32)


@dataclass(frozen=True)
class Named:
    model_name: str
    weights_name: str | None

    def where(self, _: str) -> str:
        return FILE


@pytest.mark.parametrize(
    "name",
    "resnet18 resnet34 resnet50 resnet101 alexnet vgg16 densenet121 inception_v3 efficientnet_b0 mobilenet_v3_large "
    "convnext_base vit_b_16 swin_t regnet_y_8gf".split(),
)
def test_the_models_that_come_with_the_project_are_known(name: str) -> None:
    assert check_model(Named(name, None)) == []
    assert check_model(Named(name, "IMAGENET1K_V1")) == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("resnet81", "resnet18"), ("resnet-18", "resnet18"), ("vit_b16", "vit_b_16"), ("swint", "swin_t")],
)
def test_a_mistyped_model_gets_a_suggestion(typed: str, meant: str) -> None:
    (line,) = check_model(Named(typed, None))
    assert line.startswith(f"{FILE}: model_name: torchvision has no model {typed!r}; did you mean ")
    assert meant in line


def test_a_name_like_no_other_gets_the_list() -> None:
    (line,) = check_model(Named("my_own_network", "WHATEVER"))
    assert line.endswith("; see torchvision.models.list_models()")


def test_weights_go_by_their_member_with_or_without_the_enum() -> None:
    assert check_model(Named("resnet50", "IMAGENET1K_V2")) == []
    assert check_model(Named("resnet50", "ResNet50_Weights.IMAGENET1K_V2")) == []


def test_mistyped_weights_are_answered_with_those_there_are() -> None:
    assert check_model(Named("resnet50", "IMAGENET1K_V3")) == [
        f"{FILE}: weights_name: resnet50 has no weights 'IMAGENET1K_V3'; it has: IMAGENET1K_V1, IMAGENET1K_V2"
    ]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (model_operator("resnet18", None, SIZE), True),
        (OperatorTuple("torchvision.models.no_such_model"), False),
        (OperatorTuple("torchvision.models.convnext.LayerNorm2d"), False),
        (OperatorTuple("torch.nn.Linear"), False),
    ],
    ids=str,
)
def test_a_whole_model_is_told_from_an_operator(operator: OperatorTuple, expected: bool) -> None:
    assert is_model(operator) is expected


@pytest.mark.parametrize("name", ["squeezenet1_0", "googlenet", "mobilenet_v3_small"])
def test_a_model_is_built_in_eval_mode_with_its_parameters(name: str) -> None:
    model = build_model(model_operator(name, None, SIZE), "cpu")
    stated = torchvision.models.get_model_weights(name).DEFAULT.meta["num_params"]
    with torch.inference_mode():
        assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)
    assert not any(module.training for module in model.modules())
    # GoogLeNet without pretrained weights has two more classifiers, which run in training only.
    assert sum(weight.numel() for weight in model.parameters()) >= stated


def test_random_weights_differ_from_zero() -> None:
    model = build_model(model_operator("googlenet", None, SIZE), "cpu")
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert all(weight.abs().max() > 0 for weight in weights)


@pytest.mark.parametrize("weights_name", ["IMAGENET1K_V2", "ResNet50_Weights.IMAGENET1K_V2"])
def test_named_weights_are_those_that_are_loaded(monkeypatch: pytest.MonkeyPatch, weights_name: str) -> None:
    asked: list[str] = []
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", downloads(asked))
    with pytest.raises(UserError, match="IMAGENET1K_V2 of resnet50 cannot be downloaded: .*no network"):
        build_model(model_operator("resnet50", weights_name, SIZE), "cpu")
    assert asked == [torchvision.models.ResNet50_Weights.IMAGENET1K_V2.url]


def downloads(asked: list[str]) -> Callable[..., Any]:
    def download(url: str, *_: object, **__: object) -> None:
        asked.append(url)
        raise urllib.error.URLError("no network")

    return download
