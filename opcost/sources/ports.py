"""What a source of models is, and what it says of a model."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from opcost.operators.tuples import OperatorTuple, PlainValue

if TYPE_CHECKING:
    from torch import nn


class ConfiguredModel(Protocol):
    """A model as a config describes it, and where each key was read: ``storage.configs.ModelConfig`` is one.

    ``model_name`` begins with the source's name and a colon, but for torchvision's. ``weights_name`` None means random
    weights. ``input_size`` has the batch first.
    """

    @property
    def model_name(self) -> str: ...

    @property
    def weights_name(self) -> str | None: ...

    @property
    def input_size(self) -> tuple[int, ...]: ...

    def where(self, key: str) -> str: ...


@dataclass(frozen=True)
class PublishedFacts:
    """What is published of a model with its default weights, None where nothing is.

    ``multiply_adds`` are those of one sample; torchvision rounds them to thousandths of 10⁹.
    """

    multiply_adds: float | None
    parameters: int | None


@dataclass(frozen=True)
class ListedModel:
    """A model as its source lists it.

    ``task`` is what it is for. ``input_size`` is the published one, with the task's usual batch first.
    ``is_data_dependent`` says that what it runs depends on the values of its input, so that it must run for real.
    """

    name: str
    task: str
    input_size: tuple[int, ...]
    is_data_dependent: bool
    published: PublishedFacts


class ModelSource(Protocol):
    """Where some models come from. A module with these functions is a source."""

    def library(self) -> str:
        """Return what its models come from, with its version: ``torchvision 0.29.2``."""

    def names(self) -> list[str]:
        """Return the names of all models that it can build."""

    def listed(self, model_name: str) -> ListedModel:
        """Return what is known of a model before it is built.

        Raises:
            CannotMeasureError: there is no model of that name.
        """

    def mistakes(self, config: ConfiguredModel) -> list[str]:
        """Return one line for each thing in a config that does not fit this source: the file, the key, the remedy."""

    def build(self, operator: OperatorTuple, device: str) -> nn.Module:
        """Return the model that a tuple describes, in eval mode, on a device; ``meta`` takes no memory and no weights.

        Raises:
            CannotMeasureError: there is no model of that name.
            UserError: its weights cannot be had.
        """

    def input_values(self, operator: OperatorTuple) -> tuple[PlainValue, ...]:
        """Return the positional arguments in which a model takes the input that its tuple describes by one tensor."""


def suggestion(name: str, known: Sequence[str], otherwise: str) -> str:
    """Return a question for the known names that are like another one, or what to do otherwise."""
    close = difflib.get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(close)}?" if close else otherwise
