"""A model with the arguments of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from opcost.torch_backend.flops import tensors_of
from opcost.torch_backend.passes import gradients_allowed


@dataclass(frozen=True)
class ReadyModel:
    """A model on a device, with its positional arguments and those by keyword.

    ``fingerprint`` is the hash of the user's code that built it (``UserCode``), None for models of libraries. A model
    that ``computes_gradients`` in its ``forward``, such as forces from an energy, runs outside of inference mode.
    """

    model: nn.Module
    inputs: tuple[Any, ...] = ()
    keyword_inputs: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str | None = None
    computes_gradients: bool = False

    @staticmethod
    def of(model: nn.Module, examples: Any) -> ReadyModel:
        """Return a model with its example inputs, as users give them.

        A tuple or a list has the positional arguments, as in a config; a mapping whose keys are texts has those by
        keyword. Anything else, such as a tensor, is the only argument.
        """
        if isinstance(examples, Mapping) and all(isinstance(name, str) for name in examples):
            return ReadyModel(model, (), dict(examples))
        return ReadyModel(model, tuple(examples) if isinstance(examples, (tuple, list)) else (examples,))

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the inputs, in order."""
        return tensors_of((self.inputs, dict(self.keyword_inputs)))

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> ReadyModel:
        """Return the model with each tensor among its inputs changed; one that is there twice stays one."""
        changed: dict[int, Tensor] = {}

        def leaf(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if id(value) not in changed:
                changed[id(value)] = change(value)
            return changed[id(value)]

        inputs, keyword_inputs = tree_map(leaf, (self.inputs, dict(self.keyword_inputs)))
        return replace(self, inputs=inputs, keyword_inputs=keyword_inputs)

    def run(self) -> Any:
        """Run the model once and return its result."""
        if not self.computes_gradients:
            return self.model(*self.inputs, **self.keyword_inputs)
        with gradients_allowed():
            return self.model(*self.inputs, **self.keyword_inputs)

    @property
    def device_type(self) -> str:
        """The type of the device: ``meta``, ``cpu`` or ``cuda``."""
        tensors = self.tensors or [*self.model.parameters()]
        return tensors[0].device.type if tensors else "cpu"
