"""A user's function as a source of models (``ports.ModelSource``): ``net.py:build``.

The function returns a model, or a model and its example inputs, as ``ReadyModel.of`` reads them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from opcost.errors import CannotBuildError
from opcost.operators.tuples import OperatorTuple
from opcost.operators.user_code import UserCode
from opcost.sources.arguments import arguments_of, seeded
from opcost.sources.ports import ConfiguredModel, ListedModel, suggestion
from opcost.sources.user_frames import own_frames
from opcost.sources.user_modules import module_of
from opcost.torch_backend.inputs import model_inputs
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.weight_form import stored_like, tensor_stored_like
from opcost.units import some_of


def facts_of(function: str) -> ListedModel:
    """Return what is known of a model without running its code: the name of its function."""
    return ListedModel(function, "", (), False, is_foreign=True)


@dataclass(frozen=True)
class PythonFile:
    """The source of one model: a user's function, which may run."""

    code: UserCode

    def library(self) -> str:
        """Return the file's name."""
        return self.code.path

    def names(self) -> list[str]:
        """Return the name of the function."""
        return [self.code.function]

    def listed(self, model_name: str) -> ListedModel:
        """Return what is known of the model without running code."""
        return facts_of(model_name)

    def mistakes(self, config: ConfiguredModel) -> list[str]:
        """Return no mistakes: those of the code show when it runs."""
        return []

    def ready(self, operator: OperatorTuple, device: str) -> ReadyModel:
        """Return the model that the function builds, in eval mode, with its inputs, on a device.

        Raises:
            CannotBuildError: the function raises an error or returns no module, or there are no inputs.
        """
        with seeded(operator), own_frames(self.code):
            result = self._called(arguments_of(operator, device))
            model, examples = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
            if not isinstance(model, nn.Module):
                kind = type(model).__name__
                raise CannotBuildError(
                    f"{self.code} returned {kind} instead of a torch.nn.Module, or of one and its inputs"
                )
            # Both may be the user's, and return nothing.
            model.eval()
            model.to(device)
        model = stored_like(model, operator)
        if operator.inputs or operator.keyword_inputs:
            return ReadyModel(model, *model_inputs(operator, device, {}), self.code.fingerprint)
        if examples is None:
            text = f"{self.code} returned no example inputs beside the model"
            raise CannotBuildError(text, remedy="return both, or give an input size")
        # On meta, tensors have shapes only.
        given = replace(ReadyModel.of(model, examples), fingerprint=self.code.fingerprint)
        return given.with_tensors(lambda tensor: tensor_stored_like(tensor.to(device), operator))

    def _called(self, arguments: Mapping[str, Any]) -> Any:
        function = self._function()
        parameters = _parameters_of(function)
        if parameters is not None:
            try:
                parameters.bind(**arguments)
            except TypeError as error:
                names = ", ".join(map(str, parameters.parameters.values())) or "none"
                raise CannotBuildError(f"{self.code}: {error}", f"its arguments are {names}", "arguments") from error
        return function(**arguments)

    def _function(self) -> Callable[..., Any]:
        module, name = module_of(self.code), self.code.function
        found = getattr(module, name, None)
        if not callable(found):
            text = f"{name} is {'a value and no function' if hasattr(module, name) else 'not there'}"
            functions = [own for own, value in vars(module).items() if _is_of(module, value)]
            others = f"the file has {some_of(functions) or 'no function'}"
            raise CannotBuildError(f"{self.code}: {text}", suggestion(name, functions, others))
        return found  # type: ignore[no-any-return]


def _is_of(module: ModuleType, value: object) -> bool:
    """Return whether a value is a function of a module, and not imported there."""
    return isinstance(value, FunctionType) and value.__module__ == module.__name__


def _parameters_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the parameters of a function or class, None if Python does not know them."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def register_operations(code: UserCode) -> None:
    """Import a user's file, which may register operations of its own (``torch.library``).

    Raises:
        CannotBuildError: the file raises an error.
    """
    with own_frames(code):
        module_of(code)
