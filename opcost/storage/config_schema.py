"""The schemas of the files that people write, and their mistakes.

pydantic validates the plain values of a file's nodes. Each mistake is reported with the line of its node and a remedy.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, PositiveInt, Tag, ValidationError
from pydantic_core import ErrorDetails

from opcost.measuring.conditions import CONTIGUOUS, TORCH_DEFAULT, MemoryFormat, Precision
from opcost.operators.model_names import ModelName
from opcost.operators.tuples import DEFAULT_SEED
from opcost.printable import is_one_line
from opcost.storage.config_cases import has_sizes
from opcost.storage.config_nodes import (
    REFUSED,
    SHOWN_CHARACTERS,
    Document,
    Entries,
    Mistake,
    described,
    kind,
    line_of,
    shown,
)
from opcost.storage.config_trees import ARGUMENTS_EXAMPLE, INPUTS_EXAMPLE

WHITELIST_EXAMPLE = "operators: [Conv2d, Linear]"

INPUT_SIZE_EXAMPLE = "input_size: [32, 3, 224, 224] (2 to 6 whole numbers above 0 in plain digits, batch first)"

LONGEST_NAME = 200
"""The most characters of a name, because messages quote names and are one line."""

LONGEST_PATH = 4096
"""The most characters of a name that is a path: no file of Linux has a longer one."""

UNSUPPORTED_KEYS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys("training train mode backward loss optimizer".split(), "opcost measures inference only"),
        **dict.fromkeys(
            "dtype amp autocast half".split(),
            f"write precision: one of {', '.join(get_args(Precision))}",
        ),
        "quantized": "opcost does not measure quantized models",
        "batch_size": "the batch is the first number of input_size; several are written as batch: [1, 8, 32]",
        **dict.fromkeys("device execution cache seconds".split(), "this is an option of the command line"),
    }
)
"""Keys that users expect and opcost does not have, with the reason."""


class Schema(BaseModel):
    """The schema of a file. Error messages quote a field's description as the remedy.

    ``unsupported`` are keys that users expect and opcost does not have, in lower case, with the reason.
    """

    unsupported: ClassVar[Mapping[str, str]] = UNSUPPORTED_KEYS

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())


def _refuse_none(name: str) -> str:
    if name.lower() in {"none", "null", "~"}:
        raise ValueError("a text instead of YAML's null")
    return name


def _refuse_unprintable(name: str) -> str:
    if not is_one_line(name):
        raise ValueError("a character that cannot be shown")
    return name


def _refuse_words(name: str) -> str:
    """Refuse what is neither one word nor a path: folders have any names."""
    is_path = "/" in name or ModelName.of(name).is_file
    if not is_path and (len(name) > LONGEST_NAME or re.search(r"\s", name)):
        raise ValueError("more than a word")
    return name


_Name = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_PATH),
    AfterValidator(_refuse_unprintable),
    AfterValidator(_refuse_words),
]
_OperatorName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=LONGEST_NAME)]
_WhitelistedName = Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*|\*)$", max_length=LONGEST_NAME)]
_InputSize = Annotated[list[PositiveInt], Field(min_length=2, max_length=6)]

ONE, SEVERAL = "one", "several"


def one_or_several(value: object) -> str:
    """Return whether a value is ``ONE`` or a list of them."""
    return SEVERAL if isinstance(value, list) else ONE


def _one_or_several_sizes(value: object) -> str:
    return SEVERAL if has_sizes(value) else ONE


class Summary(Schema):
    """A ``summary.yml``."""

    model_name: _Name = Field(
        description="model_name: resnet18 (of torchvision; others: timm:NAME, transformers:CLASS, net.py:FUNCTION)"
    )
    weights_name: Annotated[_Name, AfterValidator(_refuse_none)] | None = Field(
        default=None, description="weights_name: null (random weights, or a name such as IMAGENET1K_V1)"
    )
    input_size: Annotated[
        Annotated[_InputSize, Tag(ONE)] | Annotated[list[_InputSize], Tag(SEVERAL)],
        Discriminator(_one_or_several_sizes),
    ] = Field(default=[], description=INPUT_SIZE_EXAMPLE)
    batch: list[PositiveInt] = Field(
        default=[],
        min_length=1,
        description="batch: [1, 8, 32] (whole numbers above 0; one batch is the first number of input_size)",
    )
    done: Annotated[Annotated[bool, Tag(ONE)] | Annotated[list[str], Tag(SEVERAL)], Discriminator(one_or_several)] = (
        Field(default=False, description="done: false (true or false, no quotes)")
    )
    precision: Annotated[
        Annotated[Precision, Tag(ONE)] | Annotated[list[Precision], Field(min_length=1), Tag(SEVERAL)],
        Discriminator(one_or_several),
    ] = Field(default=TORCH_DEFAULT, description=f"precision: torch-default (or {', '.join(get_args(Precision)[1:])})")
    memory_format: Annotated[
        Annotated[MemoryFormat, Tag(ONE)] | Annotated[list[MemoryFormat], Field(min_length=1), Tag(SEVERAL)],
        Discriminator(one_or_several),
    ] = Field(default=CONTIGUOUS, description="memory_format: contiguous (or channels_last, of weights and inputs)")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=DEFAULT_SEED, description="seed: 0 (a whole number from 0 up, for random weights and the input)"
    )
    arguments: Any = Field(default=None, description=ARGUMENTS_EXAMPLE)
    inputs: Any = Field(default=None, description=INPUTS_EXAMPLE)
    composites: list[_OperatorName] = Field(
        default=[], description="composites: [ShiftedWindowAttention] (class names without their modules)"
    )


class Whitelist(Schema):
    """An ``operator_whitelist.yml``."""

    operators: list[_WhitelistedName] = Field(
        min_length=1,
        description=f'{WHITELIST_EXAMPLE} (class names without their modules, at least one, or "*" for all)',
    )


def read_values(
    document: Document, schema: type[Schema], mistakes: Iterable[Mistake] = ()
) -> tuple[dict[str, Any], list[Mistake]]:
    """Return the values of the keys without a mistake, absent ones with their defaults, and all mistakes.

    Args:
        document: the file.
        schema: its keys.
        mistakes: further ones.
    """
    given = plain_values(document)
    found = [*document.mistakes, *mistakes]
    wrong: set[str] = set()
    try:
        schema.model_validate(given)
    except ValidationError as error:
        found += _schema_mistakes(error.errors(), document.entries, schema)
        wrong = {str(one["loc"][0]) for one in error.errors()}
    fields = schema.model_fields.items()
    defaults = {key: field.get_default() for key, field in fields if not field.is_required()}
    return defaults | {key: value for key, value in given.items() if key not in wrong}, found


def plain_values(document: Document) -> dict[str, Any]:
    """Return the value of each key, right or wrong; a node where no key accepts the value."""
    return {key: _value(value) for key, (_, value) in document.entries.items()}


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


def meant_keys(given: Collection[str], schema: type[Schema]) -> dict[str, str]:
    """Return the absent key that each unknown one probably means; it is then no missing key."""
    absent = [key for key in schema.model_fields if key not in given]
    unknown = [key for key in given if key not in schema.model_fields and key.lower() not in schema.unsupported]
    return {key: close for key in unknown for close in difflib.get_close_matches(key, absent, n=1)}


def _schema_mistakes(errors: list[ErrorDetails], entries: Entries, schema: type[Schema]) -> Iterator[Mistake]:
    """Yield pydantic's errors as mistakes. A misspelt key is reported once, not also as a missing key."""
    fields, meant = schema.model_fields, meant_keys(entries, schema)
    for error in errors:
        key = str(error["loc"][0])
        if key not in fields:
            otherwise = schema.unsupported.get(key.lower(), f"the keys are {', '.join(fields)}")
            remedy = f"did you mean {meant[key]}?" if key in meant else otherwise
            yield line_of(entries[key][0]), f"{shown(key)}: unknown key; {remedy}"
        elif key in entries:
            yield from _value_mistakes(error, entries[key][1], f"write {fields[key].description}")
        elif key not in meant.values():
            yield 1, f"{key}: missing; write {fields[key].description}"


def _value_mistakes(error: ErrorDetails, node: yaml.Node, remedy: str) -> Iterator[Mistake]:
    """Yield the mistake in a value or in an item of it, unless it was reported before."""
    key, *others = error["loc"]
    place = "the value"
    # The others are tags.
    for index in (one for one in others if isinstance(one, int)):
        node, place = node.value[index], f"item {index + 1}" + (f" of {place}" if place != "the value" else "")
    if error["type"] == "string_type" and isinstance(node, yaml.ScalarNode) and node.value:
        remedy = f'put quotes round it ("{node.value[:SHOWN_CHARACTERS]}") if it is a name, else {remedy}'
    if node.tag != REFUSED:
        yield line_of(node), f"{key}: {place} is {described(node)}; {remedy}"
