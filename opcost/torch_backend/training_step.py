"""A training step as a model: gradients set to none, forward, loss, backward and optimiser, each in its phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from opcost.operators.tuples import Phase
from opcost.torch_backend.passes import gradients_recorded, in_phase
from opcost.torch_backend.ready_model import ReadyModel


class TrainingStep(nn.Module):
    """A step of a model.

    ``loss`` is computed from what the model returns, in the phase of the forward. The optimiser is of the model's own
    parameters.
    """

    def __init__(self, model: nn.Module, loss: Callable[[Any], torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.optimizer = optimizer

    def forward(self, *inputs: Any, **keyword_inputs: Any) -> torch.Tensor:
        with gradients_recorded():
            self.optimizer.zero_grad(set_to_none=True)
            with in_phase(Phase.FORWARD):
                loss = self.loss(self.model(*inputs, **keyword_inputs))
            with in_phase(Phase.BACKWARD):
                loss.backward()
            with in_phase(Phase.OPTIMIZER):
                self.optimizer.step()
        return loss.detach()


def as_step(
    ready: ReadyModel, loss: Callable[[Any], torch.Tensor], optimizer: Callable[[list[nn.Parameter]], Any]
) -> ReadyModel:
    """Return the step of a model that is ready, with an optimiser of its parameters that need gradients."""
    parameters = [one for one in ready.model.parameters() if one.requires_grad]
    step = TrainingStep(ready.model, loss, optimizer(parameters))
    return ReadyModel(step, ready.inputs, ready.keyword_inputs, ready.fingerprint, computes_gradients=True)
