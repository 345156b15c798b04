"""The YAML files that people write: one ``summary.yml`` per model and input size, and the operator whitelist.

A file is parsed to nodes with line numbers and converted to plain values, which pydantic validates. Each error is
reported with the line of its node. All mistakes of all files are reported together, one line each.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from pydantic_core import ErrorDetails

from opcost.errors import UserError
from opcost.measuring.conditions import TORCH_DEFAULT, Precision
from opcost.operators.tuples import DEFAULT_SEED
from opcost.storage.config_nodes import (
    REFUSED,
    SHOWN_CHARACTERS,
    Document,
    Entries,
    Mistake,
    described,
    doubled,
    kind,
    line_of,
    read_document,
    shown,
    user_error,
)
from opcost.storage.files import replace_file

SUMMARY_NAME = "summary.yml"
HELP = "README.md shows an example under 'Measure another model or input size'"
SUMMARY_EXAMPLE = f"model_name: resnet18 ({HELP})"
WHITELIST_EXAMPLE = "operators: [Conv2d, Linear]"

LONGEST_NAME = 200
"""The most characters of a name, because messages quote names and are one line."""


@dataclass(frozen=True)
class ModelConfig:
    """One model at one input size, as described by its ``summary.yml``.

    ``name`` is the folder's name, ``path`` the file as the user named it. ``weights_name`` None means random weights.
    ``input_size`` has the batch first and 2 to 6 positive numbers. ``precision`` is ``torch-default``, ``fp32`` or
    ``tf32``. ``seed`` is the seed of random weights and of the input. ``composites`` are classes of modules that are
    counted as one operator each, besides ``operators.counts.COMPOSITES``. ``own_folder`` is the folder for
    files about the model, None for that of ``path``.
    """

    name: str
    path: Path
    model_name: str
    weights_name: str | None
    input_size: tuple[int, ...]
    done: bool
    precision: str = TORCH_DEFAULT
    seed: int = DEFAULT_SEED
    composites: tuple[str, ...] = ()
    own_folder: Path | None = field(default=None, compare=False, repr=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def folder(self) -> Path:
        """The folder for files about the model."""
        return self.own_folder or self.path.parent

    def where(self, key: str) -> str:
        """Return the file and line of a key, for a message: ``measurements/x/summary.yml:3``."""
        return f"{self.path}:{self.lines.get(key, 1)}"


def load_config(path: Path, own_folder: Path) -> ModelConfig:
    """Return the config in a ``summary.yml``.

    Args:
        path: the file.
        own_folder: the folder for files about the model.

    Raises:
        UserError: with one line for each mistake.
    """
    document = read_document(path, SUMMARY_EXAMPLE)
    summary = _validate(document, _Summary)
    values = summary.model_dump() | {
        "input_size": tuple(summary.input_size),
        "composites": tuple(summary.composites),
    }
    lines = {key: line_of(node) for key, (node, _) in document.entries.items()}
    return ModelConfig(path.parent.name, path, **values, own_folder=own_folder, lines=lines)


def set_done(path: Path) -> bool:
    """Set ``done: true`` in a ``summary.yml`` and keep every other byte; return whether that changed the file.

    The file is replaced in one step, and its mode is kept.

    Raises:
        UserError: the file is not valid (it may have been edited since it was loaded) or cannot be written.
    """
    document = read_document(path, SUMMARY_EXAMPLE)
    if _validate(document, _Summary).done:
        return False
    _, node = document.entries["done"]
    _replace_text(document, (node.start_mark.index, node.end_mark.index), "true")
    return True


def load_whitelist(path: Path) -> tuple[str, ...]:
    """Return the operator names of ``operator_whitelist.yml``, in the file's order.

    Raises:
        UserError: with one line for each mistake. Repeated names and an empty list are mistakes.
    """
    document = read_document(path, WHITELIST_EXAMPLE)
    _, operators = document.entries.get("operators", (None, None))
    names = operators.value if isinstance(operators, yaml.SequenceNode) else []
    return tuple(_validate(document, _Whitelist, doubled(names, "operators: ")).operators)


def replace_whitelist(path: Path, names: Sequence[str]) -> None:
    """Replace the operator names in ``operator_whitelist.yml`` and keep the text before and after the list.

    Raises:
        UserError: the file is not valid or cannot be written.
    """
    load_whitelist(path)
    document = read_document(path, WHITELIST_EXAMPLE)
    _, node = document.entries["operators"]
    begin, end = node.start_mark.index, node.end_mark.index
    text = f"[{', '.join(names)}]"
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        # For PyYAML a block list ends where the next node begins; here it ends with the line of its last item.
        last = document.text.find("\n", node.value[-1].end_mark.index)
        end = len(document.text) if last < 0 else last + 1
        new_line = "\r\n" if "\r\n" in document.text else "\n"
        indent = " " * node.start_mark.column
        text = indent.join(f"- {name}{new_line}" for name in names)
    _replace_text(document, (begin, end), text)


def _replace_text(document: Document, span: tuple[int, int], text: str) -> None:
    """Replace a span of the file's text; the file is replaced in one step."""
    begin, end = span
    content = document.text[:begin] + text + document.text[end:]
    try:
        replace_file(document.path.resolve(), content.encode())
    except OSError as error:
        raise UserError(f"{document.path}: cannot be written ({error.strerror}); make its folder writable") from None


class _Schema(BaseModel):
    """The schema of a file. Error messages quote a field's description as the remedy."""

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())


def _refuse_none(name: str) -> str:
    if name.lower() in {"none", "null", "~"}:
        raise ValueError("a text instead of YAML's null")
    return name


_Name = Annotated[str, Field(pattern=r"^\S+$", max_length=LONGEST_NAME)]
_OperatorName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=LONGEST_NAME)]
_WhitelistedName = Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*|\*)$", max_length=LONGEST_NAME)]


class _Summary(_Schema):
    model_name: _Name = Field(description="model_name: resnet18 (the model's name in torchvision)")
    weights_name: Annotated[_Name, AfterValidator(_refuse_none)] | None = Field(
        description="weights_name: null (random weights, or a name such as IMAGENET1K_V1)"
    )
    input_size: list[PositiveInt] = Field(
        min_length=2,
        max_length=6,
        description="input_size: [32, 3, 224, 224] (2 to 6 whole numbers above 0 in plain digits, batch first)",
    )
    done: bool = Field(description="done: false (true or false, no quotes)")
    precision: Precision = Field(default=TORCH_DEFAULT, description="precision: torch-default (or fp32, or tf32)")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=DEFAULT_SEED, description="seed: 0 (a whole number from 0 up, for random weights and the input)"
    )
    composites: list[_OperatorName] = Field(
        default=[], description="composites: [ShiftedWindowAttention] (class names without their modules)"
    )


class _Whitelist(_Schema):
    operators: list[_WhitelistedName] = Field(
        min_length=1,
        description=f'{WHITELIST_EXAMPLE} (class names without their modules, at least one, or "*" for all)',
    )


_SchemaType = TypeVar("_SchemaType", bound=_Schema)


def _validate(document: Document, schema: type[_SchemaType], mistakes: Iterable[Mistake] = ()) -> _SchemaType:
    """Return the file's values.

    Raises:
        UserError: with ``mistakes``, those of the document, and those that the schema finds.
    """
    mistakes = [*document.mistakes, *mistakes]
    try:
        validated = schema.model_validate({key: _value(value) for key, (_, value) in document.entries.items()})
    except ValidationError as error:
        mistakes += _schema_mistakes(error.errors(), document.entries, schema)
    if mistakes:
        raise user_error(document.path, mistakes)
    return validated


def _value(node: yaml.Node) -> object:
    """Return the plain value of a node, or the node if no key accepts its value (a mapping, a date, 0x20, 1:30)."""
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    if kind(node) == "null":
        return None
    if kind(node) == "bool":
        return yaml.SafeLoader.bool_values[node.value.lower()]
    if kind(node) == "int" and re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,17})", node.value):
        return int(node.value)
    return node.value if kind(node) == "str" else node


def _schema_mistakes(errors: list[ErrorDetails], entries: Entries, schema: type[_Schema]) -> Iterator[Mistake]:
    """Yield pydantic's errors as mistakes. A misspelt key is reported once, not also as a missing key."""
    fields = schema.model_fields
    absent = [key for key in fields if key not in entries]
    meant = {key: difflib.get_close_matches(key, absent, n=1) for key in entries if key not in fields}
    for error in errors:
        key = str(error["loc"][0])
        if key in meant:
            remedy = f"did you mean {meant[key][0]}?" if meant[key] else f"the keys are {', '.join(fields)}"
            yield line_of(entries[key][0]), f"{shown(key)}: unknown key; {remedy}"
        elif key in entries:
            yield from _value_mistakes(error, entries[key][1], f"write {fields[key].description}")
        elif [key] not in meant.values():
            yield 1, f"{key}: missing; write {fields[key].description}"


def _value_mistakes(error: ErrorDetails, node: yaml.Node, remedy: str) -> Iterator[Mistake]:
    """Yield the mistake in a value or in an item of it, unless it was reported before."""
    key, *indexes = error["loc"]
    place = "the value"
    for index in indexes:
        node, place = node.value[index], f"item {int(index) + 1}"
    if error["type"] == "string_type" and isinstance(node, yaml.ScalarNode) and node.value:
        remedy = f'put quotes round it ("{node.value[:SHOWN_CHARACTERS]}") if it is a name, else {remedy}'
    if node.tag != REFUSED:
        yield line_of(node), f"{key}: {place} is {described(node)}; {remedy}"
