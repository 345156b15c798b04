"""timm as a source of models (``port.ModelSource``). Architectures only: nothing is downloaded."""

from __future__ import annotations

import timm
import torch

from opcost.errors import UnknownModelError, suggestion
from opcost.operators.tuples import OperatorTuple
from opcost.sources.arguments import (
    arguments_of,
    building,
    reserved_mistakes,
    seeded,
    size_mistakes,
    weights_file,
    weights_mistakes,
)
from opcost.sources.port import ConfiguredModel, ListedModel
from opcost.torch_backend.inputs import model_inputs
from opcost.torch_backend.ready_model import ReadyModel, stored_like

BATCH_SIZE = 32

LOADING = ("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir")
"""Arguments of timm by which it loads weights, or downloads them."""


def names() -> list[str]:
    """Return the names of all architectures."""
    return list(timm.list_models())


def listed(model_name: str) -> ListedModel:
    """Return timm's facts of an architecture; a CannotMeasureError if this version has none of this name."""
    if not timm.is_model(model_name):
        question = suggestion(model_name, names(), "")
        raise UnknownModelError(f"this version of timm has no model {model_name!r}", question)
    known = timm.get_pretrained_cfg(model_name)
    size = (3, 224, 224) if known is None else known.input_size
    return ListedModel(model_name, "classification", (BATCH_SIZE, *size), False, is_foreign=True)


def mistakes(config: ConfiguredModel) -> list[str]:
    """Return one line for each mistake in a known model's config: another number of dimensions, missing weights."""
    usual = listed(config.model_name.partition(":")[2]).input_size
    sizes = size_mistakes(config, usual, len(config.input_size))
    return [*weights_mistakes(config), *reserved_mistakes(config, LOADING), *sizes]


def ready(operator: OperatorTuple, device: str) -> ReadyModel:
    """Return a model in eval mode with its inputs; a CannotBuildError if arguments or local weights do not fit."""
    arguments = arguments_of(operator, device)
    weights = weights_file(operator)
    if weights is not None:
        arguments["checkpoint_path"] = str(weights)
    with building(operator.short_name), seeded(operator), torch.device(device):
        model = timm.create_model(operator.short_name, pretrained=False, **arguments)
    return ReadyModel(stored_like(model.eval().to(device), operator), *model_inputs(operator, device, {}))
