"""A training step as a model: gradients set to none, forward, loss, backward and optimiser, each in its phase."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from opcost.errors import CannotBuildError, KeyRemedy
from opcost.measuring.workload import Call, Calls
from opcost.operators.training import FUSED, LOSSES, OPTIONS, Training
from opcost.operators.tuples import META, Phase
from opcost.torch_backend.cost_counter import tensors_of
from opcost.torch_backend.passes import Context, gradients_recorded, in_phase, running_calls
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.repeated_calls import restored, storage_of
from opcost.torch_backend.values import is_dense

Loss: TypeAlias = Callable[[Any], Tensor]

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = MappingProxyType(
    {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
)


class TrainingStep(nn.Module):
    """A step of a model.

    ``loss`` is computed from what the model returns, in the phase of the forward. The optimiser is of the model's own
    parameters. Each forward is in a new ``context``, such as autocast, which keeps casts of weights until it ends.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer, context: Context = nullcontext
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.context = context
        self.has_run = False

    def forward(self, *inputs: Any, **keyword_inputs: Any) -> Tensor:
        loss = self.run_backward(*inputs, **keyword_inputs)
        self.run_optimizer()
        if not self.has_run:
            self.has_run = True
            check_loss(loss, "first")
        return loss.detach()

    def run_forward(self, *inputs: Any, **keyword_inputs: Any) -> Tensor:
        with gradients_recorded():
            self.optimizer.zero_grad(set_to_none=True)
            with in_phase(Phase.FORWARD), self.context():
                return self.loss(self.model(*inputs, **keyword_inputs))

    def run_backward(self, *inputs: Any, **keyword_inputs: Any) -> Tensor:
        """Run forward and backward."""
        loss = self.run_forward(*inputs, **keyword_inputs)
        with gradients_recorded(), in_phase(Phase.BACKWARD):
            loss.backward()
        return loss

    def run_optimizer(self) -> None:
        with gradients_recorded(), in_phase(Phase.OPTIMIZER):
            self.optimizer.step()


def check_loss(loss: Any, step: str) -> None:
    """Raise a CannotBuildError for NaN or infinity, whose steps have other values than others; no observer sees it."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        value = 0.0 if loss.is_meta else loss.item()
    if not math.isfinite(value):
        remedy = "give it inputs in the range that it is for, a smaller lr or another precision"
        raise CannotBuildError(f"the loss of its {step} step is {value}", remedy, "mode")


def as_step(
    ready: ReadyModel,
    loss: Loss,
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    context: Context = nullcontext,
) -> ReadyModel:
    """Return the step of a model that is ready, with an optimiser of its parameters that need gradients."""
    parameters = [one for one in ready.model.parameters() if one.requires_grad]
    if not parameters:
        raise CannotBuildError(
            "no parameter of the model needs gradients; there is nothing to train", KeyRemedy("mode")
        )
    try:
        step = TrainingStep(ready.model, loss, optimizer(parameters), context)
    except (ValueError, TypeError, RuntimeError) as error:
        raise CannotBuildError(f"its optimiser cannot be made: {error}", KeyRemedy("optimizer")) from error
    return replace(ready, model=step, computes_gradients=True, is_training=True)


def training_step(ready: ReadyModel, training: Training, device: str, context: Context = nullcontext) -> ReadyModel:
    """Return the training step of a model that is ready, in train mode, whose forward is in a ``context``.

    Raises CannotBuildError: there is nothing to train.
    """
    for pattern in training.frozen:
        named = [own for name, own in ready.model.named_parameters() if fnmatchcase(name, pattern)]
        if not named:
            raise CannotBuildError(f"no parameter of the model is named {pattern}", KeyRemedy("frozen"))
        for own in named:
            own.requires_grad_(False)
    ready.model.train()
    options = dict(OPTIONS[training.optimizer]) | dict(training.options)
    options["foreach"] = not options[FUSED]
    if training.optimizer != "sgd" and torch.device(device).type in ("cuda", META):
        # A CUDA graph cannot capture the others. Shapes stand for a GPU.
        options["capturable"] = True
    return as_step(ready, DrawnLoss(training.loss), partial(OPTIMIZERS[training.optimizer], **options), context)


DIVIDED_RATE = 2.0**-100
"""The rate that leaves parameters as they are, but for those that are 0, where torch divides by it."""


def calls_of(ready: ReadyModel, phase: Phase) -> Calls:
    """Return the calls of one phase of a training step, or of all. A backward has the forward before it as overhead.

    In all of them the parameters stay as they are, so that each call does the work of the first one. Raises
    CannotBuildError: the loss is NaN or infinite.
    """
    step = ready.model
    assert isinstance(step, TrainingStep)
    forward, backward = (
        partial(run, *ready.inputs, **ready.keyword_inputs) for run in (step.run_forward, step.run_backward)
    )
    whole = _at_rest(step, ready.run)
    # Now there are gradients and the optimiser's state. Gradients that are infinite make the next loss NaN.
    whole()
    check_loss(whole(), "next")
    if phase is Phase.FORWARD:
        return Calls(forward)
    if phase is Phase.BACKWARD:
        return Calls(backward, overhead=forward)
    if phase is Phase.OPTIMIZER:
        return _with_gradients(step)
    return Calls(whole)


def _with_gradients(step: TrainingStep) -> Calls:
    """Return calls of the optimiser. They find the same gradients: Nesterov's momentum adds to them in place."""
    update = _at_rest(step, step.run_optimizer)
    gradients = [one.grad for one in step.model.parameters() if one.grad is not None and is_dense(one.grad)]
    kept = [one.clone() for one in gradients]
    update()
    if all(map(torch.equal, gradients, kept)):
        return Calls(update)
    torch._foreach_copy_(gradients, kept)
    return restored(update, gradients)


def _at_rest(step: TrainingStep, run: Call) -> Call:
    """Return a run that leaves the parameters as they are: the optimiser's rates are 0 while it lasts.

    Its kernels are the same ones, on the same gradients; its averages come to rest at those. Putting parameters back
    would add a kernel on each of them. Tuples are counted at the user's rates.
    """
    groups = step.optimizer.param_groups
    # A CUDA graph keeps the place of a rate in a tensor.
    rates = [
        torch.full_like(group["lr"], _resting(group)) if isinstance(group["lr"], Tensor) else _resting(group)
        for group in groups
    ]

    def run_at_rest() -> object:
        own = [group["lr"] for group in groups]
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        try:
            return run()
        finally:
            for group, rate in zip(groups, own, strict=True):
                group["lr"] = rate

    return run_at_rest


def _resting(group: Mapping[str, Any]) -> float:
    """Return 0, or nearly 0 where an optimiser of lists divides by it: values would all be infinite."""
    return DIVIDED_RATE if group.get("capturable") and not group.get(FUSED) else 0.0


def saved_bytes(ready: ReadyModel) -> dict[str, int]:
    """Return the memory that the calls of each module of a step save for its backward, in bytes by the module's path.

    Memory that several save is that of the first one. Weights and the step's inputs are there anyway, and what a
    checkpoint saves for itself is not seen.
    """
    step = ready.model
    assert isinstance(step, TrainingStep)
    # Memory that is released has no identifier of its own.
    step.optimizer.zero_grad(set_to_none=True)
    known, found, inside = set(map(storage_of, filter(is_dense, ready.held))), dict[str, int](), [""]

    def saved(tensor: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            if is_dense(tensor) and storage_of(tensor) not in known:
                known.add(storage_of(tensor))
                found[inside[-1]] = found.get(inside[-1], 0) + tensor.untyped_storage().nbytes()
            # The same tensor would be held by its own graph.
            return tensor.detach()

    def left(*_: Any) -> None:
        inside.pop()

    with ExitStack() as stack:
        for path, module in step.named_modules():
            # A scripted module takes no such hooks; its memory is that of the module around it.
            if isinstance(module, torch.jit.ScriptModule):
                continue
            before = module.register_forward_pre_hook(lambda *_, path=path: inside.append(path))
            after = module.register_forward_hook(left, always_call=True)
            stack.callback(before.remove)
            stack.callback(after.remove)
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(saved, lambda one: one))
        stack.enter_context(running_calls())
        step.run_forward(*ready.inputs, **ready.keyword_inputs)
    return found


class DrawnLoss(nn.Module):
    """A loss against targets that are drawn once, from the form of what the model returns."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.targets: Tensor | None = None

    def forward(self, outputs: Any) -> Tensor:
        if self.name == "own":
            loss = outputs if isinstance(outputs, Tensor) else getattr(outputs, "loss", None)
            loss = outputs.get("loss") if loss is None and isinstance(outputs, Mapping) else loss
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                raise CannotBuildError("the model returns no loss of its own", KeyRemedy("loss", LOSSES[:2]))
            return loss
        found = next((one for one in tensors_of(outputs) if one.is_floating_point() and one.requires_grad), None)
        if found is None:
            raise CannotBuildError("the model returns no tensor that needs gradients", KeyRemedy("loss"))
        if self.name == "mse":
            if self.targets is None:
                self.targets = torch.randn_like(found.detach())
            return nn.functional.mse_loss(found, self.targets)
        if found.dim() < 2:
            text = f"the model returns a tensor of {found.dim()} dimensions, which has no classes"
            raise CannotBuildError(text, KeyRemedy("loss", LOSSES[1:]))
        # Classes are the last dimension of texts, the second of images.
        logits = found.flatten(0, -2) if found.dim() == 3 else found
        if self.targets is None:
            size = (logits.shape[0], *logits.shape[2:])
            self.targets = torch.randint(logits.shape[1], size, device=logits.device)
        return nn.functional.cross_entropy(logits, self.targets)
