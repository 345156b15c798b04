"""A model with the arguments of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map

from opcost.torch_backend.flops import Work, tensors_of
from opcost.torch_backend.model_state import ModelState
from opcost.torch_backend.passes import gradients_allowed

WITHOUT_STATE = (Tensor, int, float, complex, str, bytes, type(None))
"""Arguments that no call can change, but for a tensor's values."""


@dataclass(frozen=True)
class FirstRun:
    """The work of a model's first run, and its state before."""

    work: Work
    state: ModelState


@dataclass(frozen=True)
class ReadyModel:
    """A model on a device, with its positional arguments and those by keyword.

    ``fingerprint`` is the hash of the user's code that built it (``UserCode``), None for models of libraries. A model
    that ``computes_gradients`` in its ``forward``, such as forces from an energy, runs outside of inference mode.
    ``first`` is its first run, None if it has not run.
    """

    model: nn.Module
    inputs: tuple[Any, ...] = ()
    keyword_inputs: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str | None = None
    computes_gradients: bool = False
    first: FirstRun | None = None

    @staticmethod
    def of(model: nn.Module, examples: Any) -> ReadyModel:
        """Return a model with its example inputs, as users give them.

        A tuple or a list has the positional arguments, as in a config; a mapping whose keys are texts has those by
        keyword. Anything else, such as a tensor or a named tuple (a packed sequence), is the only argument.
        """
        if isinstance(examples, Mapping) and all(isinstance(name, str) for name in examples):
            return ReadyModel(model, (), dict(examples))
        are_several = isinstance(examples, (tuple, list)) and not hasattr(examples, "_fields")
        return ReadyModel(model, tuple(examples) if are_several else (examples,))

    @property
    def tensors(self) -> list[Tensor]:
        return tensors_of((self.inputs, dict(self.keyword_inputs)))

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> ReadyModel:
        """Return the model with each tensor among its inputs changed; one that is there twice stays one."""
        changed: dict[int, Tensor] = {}

        def leaf(value: Any) -> Any:
            if isinstance(value, PackedSequence):
                # Torch reads the sizes of its batches on the CPU.
                return PackedSequence(*(one if one is value.batch_sizes else leaf(one) for one in value))
            if not isinstance(value, Tensor):
                return value
            if id(value) not in changed:
                changed[id(value)] = change(value)
            return changed[id(value)]

        found = self.inputs, dict(self.keyword_inputs)
        inputs, keyword_inputs = tree_map(leaf, found, is_leaf=lambda value: isinstance(value, PackedSequence))
        return replace(self, inputs=inputs, keyword_inputs=keyword_inputs)

    def run(self) -> Any:
        """Run the model once and return its result. An argument with a state, such as a cache, is new in each run."""
        inputs, keyword_inputs = self._arguments()
        with gradients_allowed() if self.computes_gradients else nullcontext():
            return self.model(*inputs, **keyword_inputs)

    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a run: the same tensors, in new copies of objects that a run may change."""
        found = self.inputs, dict(self.keyword_inputs)
        if all(isinstance(value, WITHOUT_STATE) for value in (*found[0], *found[1].values())):
            return found
        return deepcopy(found, {id(tensor): tensor for tensor in held_tensors(found)})

    @property
    def device_type(self) -> str:
        """The type of the device: ``meta``, ``cpu`` or ``cuda``."""
        tensors = self.tensors or [*self.model.parameters()]
        return tensors[0].device.type if tensors else "cpu"


def held_tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors that a value holds, also in its attributes and in those of its parts."""
    seen: set[int] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, Mapping):
            pending.extend(one.values())
        elif isinstance(one, (list, tuple, set, frozenset)):
            pending.extend(one)
        elif not isinstance(one, type):
            pending.extend(getattr(one, "__dict__", {}).values())
