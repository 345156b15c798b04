"""The memory that a run of a model needs at least."""

from __future__ import annotations

from dataclasses import dataclass

from opcost.measuring.conditions import Conditions
from opcost.measuring.precisions import DTYPES
from opcost.operators.counts import OperatorCounts
from opcost.operators.training import training_of
from opcost.operators.tuples import FLOAT32, TensorSpec, distinct_specs


@dataclass(frozen=True)
class NeededMemory:
    """The least memory of a run in bytes, and that of the device.

    ``weights_bytes`` are those of all parameters, and in a training step of their gradients. ``activations_bytes`` are
    the inputs and outputs of the call that has most of them, or what a step saves for its backward if that is more.
    Other activations that are alive meanwhile, buffers, the optimiser's state, workspaces and the allocator's reserve
    come on top.
    """

    weights_bytes: int
    activations_bytes: int
    device_bytes: int

    @property
    def least_bytes(self) -> int:
        return self.weights_bytes + self.activations_bytes

    @property
    def is_too_much(self) -> bool:
        return self.least_bytes > self.device_bytes


def needed_memory(counts: OperatorCounts, conditions: Conditions) -> NeededMemory:
    """Return the least memory of a run; the precision of its conditions decides the width of the weights."""
    width = TensorSpec((1,), DTYPES.get(conditions.precision, FLOAT32)).floating_bytes
    weights_bytes, activations_bytes = counts.parameters * width, largest_activations_bytes(counts)
    training = training_of(counts.model)
    if training is not None:
        weights_bytes *= 1 if training.frozen else 2
        activations_bytes = max(activations_bytes, sum(module.saved_bytes or 0 for module in counts.modules))
    return NeededMemory(weights_bytes, activations_bytes, conditions.device_memory_bytes)


def largest_activations_bytes(counts: OperatorCounts) -> int:
    """Return the bytes of the inputs and outputs of the call that has most of them; 0 without calls."""
    largest = 0
    for count in counts.counts:
        tensors = list(count.operator.floating_inputs)
        # Outputs of operations in place are inputs.
        if not any(name.endswith("_") for name, _ in count.operations):
            tensors += distinct_specs([count.outputs])
        largest = max(largest, sum(tensor.floating_bytes for tensor in tensors))
    return largest
