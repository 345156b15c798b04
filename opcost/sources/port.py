"""The port of model sources: what a source gives, and what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from opcost.operators.model_inputs import DescribedInputs
from opcost.operators.tuples import OperatorTuple, PlainValue

if TYPE_CHECKING:
    from opcost.torch_backend.ready_model import ReadyModel


class ConfiguredModel(Protocol):
    """A model as described by a config or a command, such as ``storage.configs.ModelConfig``.

    ``input_size`` is empty if the config has another mistake there, or describes its ``inputs``. ``where`` returns the
    place of a key, for a message: file, line and key, or an option.
    """

    @property
    def model_name(self) -> str: ...

    @property
    def weights_name(self) -> str | None: ...

    @property
    def input_size(self) -> tuple[int, ...]: ...

    @property
    def arguments(self) -> tuple[tuple[str, PlainValue], ...]: ...

    @property
    def inputs(self) -> DescribedInputs | None: ...

    def where(self, key: str) -> str: ...


@dataclass(frozen=True)
class PublishedFacts:
    """Published facts with default ``weights``, None without; ``multiply_adds`` are of one sample, in steps of 10⁶.

    ``top1_percent`` is the accuracy on ImageNet-1K at the listed input size.
    """

    multiply_adds: float | None = None
    parameters: int | None = None
    weights: str | None = None
    top1_percent: float | None = None


@dataclass(frozen=True)
class ListedModel:
    """A model as listed by its source.

    ``task`` is its purpose, such as ``classification``. ``input_size`` is the published one, with the task's usual
    batch first. ``is_data_dependent`` says that its operations depend on the values of its input, so that it is not
    counted on shapes; ``is_foreign`` that it may raise anything, as a user's, or one of a library whose inputs no check
    covers.
    """

    name: str
    task: str
    input_size: tuple[int, ...]
    is_data_dependent: bool
    published: PublishedFacts = PublishedFacts()
    is_foreign: bool = False


class ModelSource(Protocol):
    """A source of models. A module with these functions is a source."""

    def names(self) -> list[str]:
        """Return the names of all models that it lists."""
        return []

    def listed(self, model_name: str) -> ListedModel:
        """Return a model's facts without building it; a CannotMeasureError if it is unknown or uncountable."""

    def mistakes(self, config: ConfiguredModel) -> list[str]:
        """Return one line for each mistake in a config of a listed model, with file, key and remedy."""
        return []

    def ready(self, operator: OperatorTuple, device: str) -> ReadyModel:
        """Return the model that a tuple describes, in eval mode, with its inputs, on a device.

        On ``meta`` it has no memory and no values. Inputs are drawn on the CPU, so that data-dependent models do the
        same work on every device. Raises CannotMeasureError: there is no model of that name. CannotBuildError: its
        function fails. UserError: its weights cannot be loaded.
        """
