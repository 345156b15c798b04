"""The second form of a ``grid.yml``: operator tuples that are written out, each as the line that tables show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, get_args

import yaml
from pydantic import Field

from opcost.errors import shortened
from opcost.measuring.conditions import TORCH_DEFAULT
from opcost.operators.grids import MAXIMUM_POINTS, TupleList, place_of
from opcost.operators.texts import parse_tuple
from opcost.operators.tuples import OperatorTuple, PlainValue, Structure
from opcost.storage.config_nodes import Document, Mistake, doubled, kind, line_of
from opcost.storage.config_schema import UNSUPPORTED_KEYS, Schema, read_values

LONGEST_TEXT = 4000
"""The most characters of a tuple."""

OPERATOR_PATTERN = r"^torch(vision)?(\.[A-Za-z_]\w*)+$"

TUPLE_EXAMPLE = "torch.nn.ReLU() on (float32[8, 64]) eval"

KNOWN_STRUCTURES = ("dict", "slice")
"""The structures that a text names completely. It has only the last part of the name of any other class."""

GridPrecision = Literal["torch-default", "fp32", "tf32"]

_OF_A_GRID = "it is a key of a grid of one operator; move it, or tuples, to another folder"


class MeasuredGrid(Schema):
    """The keys that both forms of a ``grid.yml`` have."""

    precision: GridPrecision = Field(
        default=TORCH_DEFAULT, description=f"precision: {' or '.join(get_args(GridPrecision))} (of products in float32)"
    )
    done: bool = Field(default=False, description="done: false (true or false, no quotes)")


class TuplesFile(MeasuredGrid):
    """A ``grid.yml`` with tuples."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {**UNSUPPORTED_KEYS, **dict.fromkeys("operator inputs parameters sizes dtypes zeros".split(), _OF_A_GRID)}
    )

    tuples: Annotated[list[Annotated[str, Field(max_length=LONGEST_TEXT)]], Field(min_length=1)] = Field(
        description=f"tuples: and, each on its own line, - {TUPLE_EXAMPLE}"
    )


def read_tuples(document: Document) -> tuple[dict[str, Any], TupleList, list[Mistake]]:
    """Return the values of the keys, the list of tuples, and all mistakes; with mistakes the list is empty."""
    values, mistakes = read_values(document, TuplesFile)
    _, node = document.entries[TupleList.key]
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    mistakes += doubled(items, f"{TupleList.key}: ")
    if len(items) > MAXIMUM_POINTS:
        text = f"{len(items)} tuples; a list may have {MAXIMUM_POINTS}; move some to a grid.yml in another folder"
        mistakes.append((line_of(node), f"{TupleList.key}: {text}"))
    found: list[OperatorTuple] = []
    for index, item in enumerate(items):
        if kind(item) == "str" and len(item.value) <= LONGEST_TEXT:
            try:
                found.append(_valid(item.value))
            except ValueError as error:
                mistakes.append((line_of(item), f"{place_of(index)}: {error}"))
    return values, TupleList(() if mistakes else tuple(found)), mistakes


def tuples_text(tuples: Iterable[OperatorTuple], comments: Iterable[str]) -> str:
    """Return the text of a ``grid.yml`` with tuples that are to be measured, behind lines of comments."""
    keys = {TupleList.key: [*map(str, tuples)], "done": False}
    lines = "".join(f"# {comment}\n" for comment in comments)
    return lines + yaml.safe_dump(keys, sort_keys=False, allow_unicode=True, width=LONGEST_TEXT + 100)


def is_listable(operator: OperatorTuple) -> bool:
    """Return whether a list can have a tuple: its text describes it completely."""
    text = str(operator)
    try:
        return len(text) <= LONGEST_TEXT and _valid(text) == operator
    except ValueError:
        return False


def _valid(text: str) -> OperatorTuple:
    """Return the tuple that a text describes.

    Raises:
        ValueError: it describes none that can be run; the message ends with the remedy.
    """
    try:
        operator = parse_tuple(text)
    except ValueError as error:
        raise ValueError(f"{error}; write it as tables show it, such as {TUPLE_EXAMPLE}") from None
    if not re.match(OPERATOR_PATTERN, operator.operator):
        name = shortened(operator.operator)
        raise ValueError(f"{name} is no operator of torch or torchvision; remove the tuple")
    values = [*operator.inputs, *(value for _, value in (*operator.parameters, *operator.keyword_inputs))]
    unknown = next((name for name in _structures(values) if name not in KNOWN_STRUCTURES), None)
    if unknown is not None:
        reason = f"its text has only the last part of the name of the class {shortened(unknown)}"
        raise ValueError(f"it cannot be run again, because {reason}; remove the tuple")
    return operator


def _structures(values: Iterable[PlainValue]) -> Iterator[str]:
    for value in values:
        if isinstance(value, Structure):
            yield value.kind
            yield from _structures(part for _, part in value.parts)
        elif isinstance(value, tuple):
            yield from _structures(value)
