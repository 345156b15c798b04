"""The model of a metered loop: what is refused, its device, and the conditions that its rows have."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from opcost.errors import UserError
from opcost.measuring.conditions import AUTOCAST_DTYPES, TORCH_DEFAULT, device_type_of
from opcost.running.devices import product_of
from opcost.running.layer_loop import LayerLoop
from opcost.running.layer_powers import LoopState
from opcost.torch_backend.layer_marks import refuse_unobservable, stopwatch_of
from opcost.torch_backend.switches import DEFAULT_TF32_SWITCHES, TF32_SWITCHES, tf32_switches


def check_model(model: nn.Module) -> None:
    """Check that the layers of a model can be observed. Raises UserError: it is no module, or compiled."""
    if not isinstance(model, nn.Module):
        raise UserError(f"LayerwiseEnergy: a {type(model).__name__}, not a torch.nn.Module; pass a module")
    refuse_unobservable(model)


def device_of(model: nn.Module) -> str:
    """Return the torch device of a model's weights and buffers, ``cpu`` without any.

    Raises UserError: there are several, or it is neither a CPU nor an NVIDIA GPU.
    """
    devices = {tensor.device for tensors in (model.parameters(), model.buffers()) for tensor in tensors}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise UserError(f"LayerwiseEnergy: the model is on several devices ({names}); put it on one")
    device: Any = next(iter(devices), torch.device("cpu"))
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"LayerwiseEnergy: the model is on {device}; only cpu and cuda are metered")
    return f"cuda:{device.index or 0}" if device.type == "cuda" else "cpu"


def loop_on(model: nn.Module, device: str) -> LayerLoop:
    """Return the loop around a model on a torch device, not open yet."""
    return LayerLoop(model, stopwatch_of(device))


def state_of(device: str, autocasts: Collection[tuple[torch.dtype | None, ...]]) -> LoopState | None:
    """Return what rows must have in common with a loop.

    Args:
        device: its torch device.
        autocasts: the dtypes of autocast on a CPU and on a GPU that its iterations had.

    Returns:
        None where autocast changes within the loop, or is in a dtype that no rows have.
    """
    if len(autocasts) != 1:
        return None
    device_type = device_type_of(device)
    switches = tf32_switches()
    precision = _precision(next(iter(autocasts))[0 if device_type == "cpu" else 1], switches)
    return None if precision is None else LoopState(device_type, product_of(device), precision, *switches)


def _precision(dtype: torch.dtype | None, switches: tuple[bool, bool]) -> str | None:
    if dtype is not None:
        name = str(dtype).removeprefix("torch.")
        return next((precision for precision, cast in AUTOCAST_DTYPES.items() if cast == name), None)
    names = {DEFAULT_TF32_SWITCHES: TORCH_DEFAULT, **{known: name for name, known in TF32_SWITCHES.items()}}
    # Rows in bf16 and fp16 are found by the dtypes of their tuples, whatever this name is.
    return names.get(switches)
