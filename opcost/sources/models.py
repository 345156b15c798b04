"""Whole models with their inputs, ready to run or to be counted on a device."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from opcost.errors import CannotBuildError, CannotMeasureError
from opcost.operators.model_names import UserCode
from opcost.operators.training import training_of
from opcost.operators.tuples import META, OperatorTuple, is_under_autocast
from opcost.sources.port import ListedModel, ModelSource
from opcost.sources.python_file import CORRECT_MODEL, own_frames
from opcost.sources.registry import source_of
from opcost.torch_backend.capture import run_first
from opcost.torch_backend.passes import Context
from opcost.torch_backend.ready_model import REFUSALS, ReadyModel, check_form
from opcost.torch_backend.switches import kept_switches, reported_switches
from opcost.torch_backend.training_step import training_step
from opcost.torch_backend.workload import one_line


@dataclass(frozen=True)
class ResolvedModel:
    """A model that was found in its source and can be built any number of times; ``code`` is a user's."""

    operator: OperatorTuple
    source: ModelSource
    listed: ListedModel
    code: UserCode | None = None

    def counting_device(self, device: str, on_meta: bool) -> str:
        """The meta device if requested, unless the model needs values, or autocast, which is not there."""
        has_values = self.listed.is_data_dependent or is_under_autocast(self.operator)
        return META if on_meta and not has_values else device

    def with_inputs(self, device: str, context: Context = nullcontext) -> ReadyModel:
        """Return the model in eval mode with its inputs, or its training step, on a device.

        A model that may raise anything has run once or twice in a ``context``, such as autocast. Switches of torch that
        it set are put back, with a warning. Raises CannotBuildError: its function or the model raises an error, its
        weights are not as its tuple says, or it sets switches in each run. CannotMeasureError: it does not fit onto the
        device.
        """
        try:
            with reported_switches(self.listed.name):
                ready = self.source.ready(self.operator, device)
            check_form(ready, self.operator, str(self.code or self.listed.name))
            training = training_of(self.operator)
            if training is not None:
                ready = training_step(ready, training, device, context)
            if self.listed.is_foreign:
                for _ in range(2):
                    with kept_switches() as changes:
                        ready = self._run_foreign(ready, context)
                    # Only the first run may import something.
                    if not changes:
                        return ready
                text = f"{self.listed.name} sets switches of torch when it runs: {'; '.join(changes)}"
                raise CannotBuildError(text)
        except RuntimeError as error:
            raise CannotMeasureError(one_line(error)) from error
        return ready

    def _run_foreign(self, ready: ReadyModel, context: Context) -> ReadyModel:
        if self.code is not None:
            with own_frames(self.code, CORRECT_MODEL):
                return run_first(ready, context)
        try:
            return run_first(ready, context)
        except (RuntimeError, CannotMeasureError):
            raise
        except Exception as error:
            inputs = self.operator.inputs_text or "no inputs"
            raise CannotBuildError(f"{self.listed.name} raised {one_line(error)} (on {inputs})") from error

    def ready_to_count(self, device: str, context: Context = nullcontext) -> ReadyModel:
        """Return ``with_inputs`` after a first run, which sets it up; a CannotMeasureError if that fails."""
        ready = self.with_inputs(device, context)
        if self.listed.is_foreign:
            return ready
        try:
            return run_first(ready, context)
        except (CannotMeasureError, *REFUSALS):
            raise
        except Exception as error:
            raise CannotMeasureError(one_line(error)) from error


def resolve(operator: OperatorTuple, code: UserCode | None = None) -> ResolvedModel:
    """Return a tuple's model; a CannotMeasureError if no source has it, or the user's ``code`` may not run (None)."""
    with reported_switches(operator.short_name):
        source = source_of(operator, code)
        return ResolvedModel(operator, source, source.listed(operator.short_name), code)
