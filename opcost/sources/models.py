"""A whole model with its inputs, ready to run or to be counted on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from opcost.errors import CannotMeasureError
from opcost.operators.tuples import META, OperatorTuple, seed_of
from opcost.sources.ports import ListedModel, ModelSource
from opcost.sources.registry import source_of
from opcost.torch_backend.inputs import DrawnInputs
from opcost.torch_backend.passes import INFERENCE
from opcost.torch_backend.workload import one_line


@dataclass(frozen=True)
class ResolvedModel:
    """The model that a tuple describes, found in its source: it can be built as often as needed."""

    operator: OperatorTuple
    source: ModelSource
    listed: ListedModel

    def counting_device(self, device: str, on_meta: bool) -> str:
        """Return where it is counted: on the meta device if that is asked for and no data decide what it runs."""
        return META if on_meta and not self.listed.is_data_dependent else device

    def with_inputs(self, device: str) -> tuple[nn.Module, tuple[Any, ...]]:
        """Return it in eval mode and its seeded normal inputs, on a device.

        The input is drawn on the CPU, so that models whose work depends on it do the same on every device.

        Raises:
            CannotMeasureError: it does not fit onto the device.
        """
        try:
            inputs = DrawnInputs(device, seed_of(self.operator), drawn_on="cpu")
            return self.source.build(self.operator, device), inputs.values(self.source.input_values(self.operator))
        except RuntimeError as error:
            raise CannotMeasureError(one_line(error)) from error

    def ready_to_count(self, device: str) -> tuple[nn.Module, tuple[Any, ...]]:
        """Return what ``with_inputs`` does; detectors have run once, which sets things up that later runs find.

        Raises:
            CannotMeasureError: it does not fit onto the device.
        """
        model, inputs = self.with_inputs(device)
        if self.listed.is_data_dependent:
            INFERENCE.run_once(model, inputs)
        return model, inputs


def resolve(operator: OperatorTuple) -> ResolvedModel:
    """Return the model that a tuple describes.

    Raises:
        CannotMeasureError: no source has it, or not in this version.
    """
    source = source_of(operator)
    return ResolvedModel(operator, source, source.listed(operator.short_name))
