"""Where models come from: torchvision, by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Sequence
from typing import Protocol

import torchvision
from torch import nn

from opcost.errors import UserError
from opcost.operators import TORCHVISION_MODELS, OperatorTuple

SLOW_INITIALISATION = frozenset({"googlenet", "inception_v3"})
"""These draw random weights from a truncated normal, which takes minutes, unless told not to."""


def is_model(operator: OperatorTuple) -> bool:
    """Return whether a tuple describes a whole model."""
    return operator.operator.startswith(TORCHVISION_MODELS) and operator.short_name in torchvision.models.list_models()


class NamedModel(Protocol):
    """A model by its names, and where each key was read: ``config_files.ModelConfig`` is one.

    ``model_name`` is as ``torchvision.models.list_models()`` spells it; ``weights_name`` a member of the model's
    weights enum, with or without the enum's name, None for random weights.
    """

    @property
    def model_name(self) -> str: ...

    @property
    def weights_name(self) -> str | None: ...

    def where(self, key: str) -> str: ...


def check_model(model: NamedModel) -> list[str]:
    """Return one line for each thing that torchvision does not know: the model, or its weights."""
    where, model_name, weights_name = model.where, model.model_name, model.weights_name
    known = torchvision.models.list_models()
    if model_name not in known:
        mistake = f"torchvision has no model {model_name!r}; {_suggestion(model_name, known)}"
        return [f"{where('model_name')}: model_name: {mistake}"]
    if weights_name is None:
        return []
    members = [weights.name for weights in torchvision.models.get_model_weights(model_name)]
    if weights_name.rpartition(".")[2] not in members:
        choice = ", ".join(members) or "none, so write null"
        mistake = f"{model_name} has no weights {weights_name!r}; it has: {choice}"
        return [f"{where('weights_name')}: weights_name: {mistake}"]
    return []


def build_model(operator: OperatorTuple, device: str) -> nn.Module:
    """Return the model that a tuple describes, in eval mode, on a device.

    Raises:
        UserError: its weights cannot be downloaded.
    """
    weights_name = dict(operator.parameters).get("weights")
    builder = torchvision.models.get_model_builder(operator.short_name)
    arguments: dict[str, object] = {"weights": None}
    if weights_name is not None:
        arguments["weights"] = torchvision.models.get_model_weights(operator.short_name)[str(weights_name)]
    if "weights_backbone" in inspect.signature(builder).parameters:
        # Its default would download a pretrained backbone.
        arguments["weights_backbone"] = None
    if weights_name is None and operator.short_name in SLOW_INITIALISATION:
        arguments["init_weights"] = False
    try:
        model: nn.Module = builder(**arguments)
    except OSError as error:
        raise UserError(f"the weights {weights_name} of {operator.short_name} cannot be downloaded: {error}") from error
    return model.eval().to(device)


def _suggestion(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(close)}?" if close else "see torchvision.models.list_models()"
