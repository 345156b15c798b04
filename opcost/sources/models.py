"""A whole model with its inputs, ready to run or to be counted on a device."""

from __future__ import annotations

from typing import Any

from torch import nn

from opcost.errors import CannotMeasureError
from opcost.operators.tuples import META, OperatorTuple, seed_of
from opcost.sources.torchvision import build_model, input_values, is_data_dependent
from opcost.torch_backend.inputs import DrawnInputs
from opcost.torch_backend.passes import INFERENCE
from opcost.torch_backend.workload import one_line


def model_and_inputs(operator: OperatorTuple, device: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return the model that a tuple describes, in eval mode, and its seeded normal inputs, on a device.

    The input is drawn on the CPU, so that models whose work depends on it do the same on every device.

    Raises:
        CannotMeasureError: it does not fit onto the device, or this version of torchvision has no such model.
    """
    try:
        inputs = DrawnInputs(device, seed_of(operator), drawn_on="cpu")
        return build_model(operator, device), inputs.values(input_values(operator))
    except RuntimeError as error:
        raise CannotMeasureError(one_line(error)) from error


def counting_device(model_name: str, device: str, on_meta: bool) -> str:
    """Return where a model is counted: on the meta device if that is asked for and no data decide what it runs."""
    return META if on_meta and not is_data_dependent(model_name) else device


def model_to_count(operator: OperatorTuple, device: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a model and its inputs as ``model_and_inputs`` does, ready to be counted.

    Detectors have run once: they set things up in their first run that later ones find.

    Raises:
        CannotMeasureError: what ``model_and_inputs`` raises.
    """
    model, inputs = model_and_inputs(operator, device)
    if is_data_dependent(operator.short_name):
        INFERENCE.run_once(model, inputs)
    return model, inputs
