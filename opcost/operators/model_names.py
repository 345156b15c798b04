"""Names of models, as configs and commands write them."""

from __future__ import annotations

from dataclasses import dataclass

TORCHVISION = "torchvision"
FILE = "file"
OBJECT = "object"
"""The source of models that are objects of a Python program."""
GRID = "grid"
"""The source of grids of operator tuples, which are no models."""
SOURCES_OF_ANY_CASE = ("transformers", FILE, GRID)
"""Sources whose models are classes or functions of any name; those of the others have lower-case names."""

SOURCES_OF_TEXT = ("transformers",)
"""Sources whose models of two-dimensional inputs take texts."""


@dataclass(frozen=True)
class ModelName:
    """A model's name and its source.

    ``code`` is the Python file or the module of a user's function, whose source is ``file``; else None.
    """

    source: str
    name: str
    code: str | None = None

    @staticmethod
    def of(text: str) -> ModelName:
        """Return the name that a text means.

        ``resnet18`` is a model of torchvision. ``timm:resnet18`` has its source before the colon. ``net.py:build`` and
        ``package.module:build`` name a function in a Python file or in a module, which has a dot.
        """
        before, colon, name = text.rpartition(":")
        if not colon:
            return ModelName(TORCHVISION, name)
        if "." in before or "/" in before:
            return ModelName(FILE, name, before)
        return ModelName(before, name)

    @property
    def takes_tokens(self) -> bool:
        """Whether an input of two dimensions is a batch of texts, each of token ids."""
        return self.source in SOURCES_OF_TEXT

    @property
    def is_file(self) -> bool:
        return self.code is not None

    @property
    def has_inputs(self) -> bool:
        """Whether the model comes with inputs, so that a config need not describe them: a function's, or an object."""
        return self.is_file or self.source == OBJECT
