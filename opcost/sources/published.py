"""The facts that torchvision publishes of its models, for plans on machines without torch.

``published.csv`` is made of ``torchvision.listed`` by ``pytest tests/sources --renew-golden``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from importlib.resources import files
from io import StringIO

from opcost.sources.ports import ListedModel, PublishedFacts

FILE_NAME = "published.csv"
HEADER = ("name", "task", "input_size", "is_data_dependent", "multiply_adds", "parameters")


def published_models() -> dict[str, ListedModel]:
    """Return the facts of all models by their names."""
    text = files("opcost.sources").joinpath(FILE_NAME).read_text(encoding="utf-8")
    models = (_model(line) for line in csv.DictReader(StringIO(text)))
    return {model.name: model for model in models}


def text_of(models: Iterable[ListedModel]) -> str:
    """Return the content of the file for models with their facts."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for model in models:
        size, facts = "x".join(map(str, model.input_size)), model.published
        writer.writerow(
            (model.name, model.task, size, int(model.is_data_dependent), facts.multiply_adds, facts.parameters)
        )
    return text.getvalue()


def _model(line: dict[str, str]) -> ListedModel:
    multiply_adds, parameters = line["multiply_adds"], line["parameters"]
    facts = PublishedFacts(float(multiply_adds) if multiply_adds else None, int(parameters) if parameters else None)
    size = tuple(map(int, line["input_size"].split("x")))
    return ListedModel(line["name"], line["task"], size, line["is_data_dependent"] == "1", facts)
