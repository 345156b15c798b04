"""Whole models with their inputs, ready to run or to be counted on a device."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from opcost.errors import CannotBuildError, CannotMeasureError
from opcost.operators.tuples import META, OperatorTuple, is_under_autocast, seed_of, tensor_specs
from opcost.sources.ports import ListedModel, ModelSource
from opcost.sources.registry import source_of
from opcost.torch_backend.capture import run_first
from opcost.torch_backend.inputs import DrawnInputs
from opcost.torch_backend.kept_switches import kept_switches, reported_switches
from opcost.torch_backend.passes import Context
from opcost.torch_backend.weight_form import store_weights
from opcost.torch_backend.workload import one_line


@dataclass(frozen=True)
class ResolvedModel:
    """A model that was found in its source and can be built any number of times."""

    operator: OperatorTuple
    source: ModelSource
    listed: ListedModel

    def counting_device(self, device: str, on_meta: bool) -> str:
        """Return the device to count it on: the meta device if requested, unless the model needs values or autocast.

        torch has no autocast on the meta device.
        """
        has_values = self.listed.is_data_dependent or is_under_autocast(self.operator)
        return META if on_meta and not has_values else device

    def with_inputs(self, device: str, context: Context = nullcontext) -> tuple[nn.Module, tuple[Any, ...]]:
        """Return the model in eval mode and its seeded standard normal inputs, on a device.

        The input is drawn on the CPU, so that data-dependent models do the same work on every device. A model that a
        user has registered has run once or twice in a ``context``, such as autocast. Switches of torch that it set are
        put back, with a warning.

        Raises:
            CannotBuildError: the function that builds the model, or a user's model itself, raises an error; or the
                model sets switches of torch in each run.
            CannotMeasureError: the model does not fit onto the device.
        """
        try:
            inputs = DrawnInputs(device, seed_of(self.operator), drawn_on="cpu")
            with reported_switches(self.listed.name):
                model = like_its_input(self.source.build(self.operator, device), self.operator)
            values = inputs.values(self.source.input_values(self.operator))
            if self.listed.is_foreign:
                self._try(model, values, context)
        except RuntimeError as error:
            raise CannotMeasureError(one_line(error)) from error
        return model, values

    def _try(self, model: nn.Module, inputs: tuple[Any, ...], context: Context) -> None:
        """Run a user's model, which may raise anything and set any switch."""
        with kept_switches() as changes:
            self._run_foreign(model, inputs, context)
        if changes:
            # Only the first run may import something.
            with kept_switches() as changes:
                self._run_foreign(model, inputs, context)
        if changes:
            text = f"{self.listed.name} sets switches of torch when it runs: {'; '.join(changes)}"
            raise CannotBuildError(text)

    def _run_foreign(self, model: nn.Module, inputs: tuple[Any, ...], context: Context) -> None:
        try:
            run_first(model, inputs, context)
        except RuntimeError:
            raise
        except Exception as error:
            size = list(inputs[0].shape)
            raise CannotBuildError(f"{self.listed.name} raised {one_line(error)} (on one tensor of {size})") from error

    def ready_to_count(self, device: str, context: Context = nullcontext) -> tuple[nn.Module, tuple[Any, ...]]:
        """Return the result of ``with_inputs``, after a first run in a ``context``: set-up is no part of the counts.

        Args:
            device: the device.
            context: returns a context manager for a run.

        Raises:
            CannotMeasureError: the model does not fit onto the device.
        """
        model, inputs = self.with_inputs(device, context)
        if not self.listed.is_foreign:
            run_first(model, inputs, context)
        return model, inputs


def like_its_input(model: nn.Module, operator: OperatorTuple) -> nn.Module:
    """Return a model with weights in the dtype and memory format of the input in its tuple."""
    (spec,) = tensor_specs(operator.inputs)
    return store_weights(model, getattr(torch, spec.dtype), spec.strides is not None)


def resolve(operator: OperatorTuple) -> ResolvedModel:
    """Return the model that a tuple describes.

    Raises:
        CannotMeasureError: no source has the model in this version.
    """
    with reported_switches(operator.short_name):
        source = source_of(operator)
        return ResolvedModel(operator, source, source.listed(operator.short_name))
