"""What a whole model's tuple says of how it is built: arguments, and weights in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from opcost.operators.tuples import ARGUMENTS, OperatorTuple, Structure
from opcost.sources.ports import ConfiguredModel
from opcost.torch_backend.values import real_value

WEIGHTS = "weights"


def arguments_of(operator: OperatorTuple, device: str) -> dict[str, Any]:
    """Return the keyword arguments of the function or class that builds a model."""
    return dict(real_value(dict(operator.parameters).get(ARGUMENTS, Structure("dict", ())), device, _no_tensor))


def weights_file(operator: OperatorTuple) -> Path | None:
    """Return the file or folder with a model's weights, None for random ones."""
    name = dict(operator.parameters).get(WEIGHTS)
    return None if name is None else Path(str(name)).expanduser()


def weights_mistakes(config: ConfiguredModel) -> list[str]:
    """Return a line if a config names weights that are no local file or folder: nothing is downloaded."""
    if config.weights_name is None or Path(config.weights_name).expanduser().exists():
        return []
    text = f"no file or folder {config.weights_name}; write null for random weights, or the path of local ones"
    return [f"{config.where('weights_name')}: weights_name: {text}"]


def _no_tensor(_: object) -> torch.Tensor:
    raise TypeError("arguments have no tensors")
