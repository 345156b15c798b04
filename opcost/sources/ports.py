"""The port of model sources, and the facts that a source lists of a model."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from io import StringIO
from typing import TYPE_CHECKING, Protocol

from opcost.operators.model_inputs import DescribedInputs
from opcost.operators.tuples import OperatorTuple, PlainValue

if TYPE_CHECKING:
    from opcost.torch_backend.ready_model import ReadyModel


class ConfiguredModel(Protocol):
    """A model as described by a config or a command, such as ``storage.configs.ModelConfig``.

    ``model_name`` has its source, see ``operators.model_names``. ``weights_name`` None means random weights.
    ``input_size`` has the batch first. It is empty if the config has another mistake there, or describes its
    ``inputs``. ``arguments`` are those of the function or class that builds the model. ``where`` returns the place of a
    key, for a message: file, line and key, or an option.
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
    """Published facts of a model with its default weights, None if there are none.

    ``multiply_adds`` are for one sample; torchvision rounds them to thousandths of 10⁹.
    """

    multiply_adds: float | None
    parameters: int | None


NOTHING_PUBLISHED = PublishedFacts(None, None)


@dataclass(frozen=True)
class ListedModel:
    """A model as listed by its source.

    ``task`` is its purpose, such as ``classification``. ``input_size`` is the published one, with the task's usual
    batch first. ``is_data_dependent`` says that its operations depend on the values of its input, so that it cannot be
    counted on the meta device. ``is_foreign`` says that it may raise anything when it runs: a model of a user, or of a
    library whose inputs no check covers.
    """

    name: str
    task: str
    input_size: tuple[int, ...]
    is_data_dependent: bool
    published: PublishedFacts = NOTHING_PUBLISHED
    is_foreign: bool = False


class ModelSource(Protocol):
    """A source of models. A module with these functions is a source."""

    def library(self) -> str:
        """Return the name and version of the library: ``torchvision 0.29.2``."""

    def names(self) -> list[str]:
        """Return the names of all models that it can build."""

    def listed(self, model_name: str) -> ListedModel:
        """Return the facts of a model, without building it.

        Raises CannotMeasureError: there is no model of that name, or models of its kind cannot be counted.
        """

    def mistakes(self, config: ConfiguredModel) -> list[str]:
        """Return one line for each mistake in a config of a listed model, with file, key and remedy."""

    def ready(self, operator: OperatorTuple, device: str) -> ReadyModel:
        """Return the model that a tuple describes, in eval mode, with its inputs, on a device.

        On ``meta`` it has no memory and no values. Inputs are drawn on the CPU, so that data-dependent models do the
        same work on every device.

        Raises:
            CannotMeasureError: there is no model of that name.
            CannotBuildError: the function that builds the model fails.
            UserError: its weights cannot be loaded.
        """


def suggestion(name: str, known: Sequence[str], otherwise: str) -> str:
    """Return a question with at most three known names that are similar to a name, or another remedy if none is.

    Names that begin with it come first, the shortest first.
    """
    longer = sorted((one for one in known if name and one.startswith(name)), key=lambda one: (len(one), one))
    close = list(dict.fromkeys([*longer, *difflib.get_close_matches(name, known, n=3)]))[:3]
    return f"did you mean {' or '.join(close)}?" if close else otherwise


def published_models() -> dict[str, ListedModel]:
    """Return the facts that torchvision publishes of its models, by name, for plans on machines without torch.

    ``published.csv`` is made of ``torchvision.listed`` by ``pytest tests/sources --renew-golden``.
    """
    text = files("opcost.sources").joinpath("published.csv").read_text(encoding="utf-8")
    models = {}
    for line in csv.DictReader(StringIO(text)):
        multiply_adds, parameters = line["multiply_adds"], line["parameters"]
        facts = PublishedFacts(float(multiply_adds) if multiply_adds else None, int(parameters) if parameters else None)
        size = tuple(map(int, line["input_size"].split("x")))
        is_data_dependent = line["is_data_dependent"] == "1"
        models[line["name"]] = ListedModel(line["name"], line["task"], size, is_data_dependent, facts)
    return models
