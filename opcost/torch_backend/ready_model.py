"""A model with the arguments of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from opcost.torch_backend.flops import tensors_of


@dataclass(frozen=True)
class ReadyModel:
    """A model on a device, with its positional arguments and those by keyword.

    ``fingerprint`` is the hash of the user's code that built it (``UserCode``), None for models of libraries.
    """

    model: nn.Module
    inputs: tuple[Any, ...] = ()
    keyword_inputs: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str | None = None

    def run(self) -> Any:
        """Run the model once and return its result."""
        return self.model(*self.inputs, **self.keyword_inputs)

    @property
    def device_type(self) -> str:
        """The type of the device: ``meta``, ``cpu`` or ``cuda``."""
        tensors = tensors_of((self.inputs, dict(self.keyword_inputs))) or [*self.model.parameters()]
        return tensors[0].device.type if tensors else "cpu"
