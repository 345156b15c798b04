"""Models that are objects of a Python program (``opcost.profile``), as a source: only that program can run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcost import __version__
from opcost.errors import CannotMeasureError
from opcost.operators.tuples import OperatorTuple
from opcost.sources.ports import ConfiguredModel, ListedModel

if TYPE_CHECKING:
    from opcost.torch_backend.ready_model import ReadyModel


def library() -> str:
    """Return the name and version of the library."""
    return f"opcost {__version__}"


def names() -> list[str]:
    """Return no names: none of these models can be built."""
    return []


def listed(model_name: str) -> ListedModel:
    """Return the facts of a model: none but its name is known."""
    return ListedModel(model_name, "object", (), True, is_foreign=True)


def mistakes(config: ConfiguredModel) -> list[str]:
    """Return no mistakes."""
    return []


def ready(operator: OperatorTuple, device: str) -> ReadyModel:
    """Raise an error.

    Raises:
        CannotMeasureError: the model is an object of another program.
    """
    raise CannotMeasureError(f"{operator.short_name} is an object of a Python program; call opcost.profile there")
