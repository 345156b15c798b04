"""The configs that people write: one ``summary.yml`` per model, or a ``grid.yml``, and the operator whitelist.

Keys of a ``summary.yml`` that are lists make several cases of it: their product, each with a name. A config without
lists is one case with the name of its folder.

All mistakes of all files are reported together, one line each, with file, line and remedy.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Discriminator, Field, PositiveInt

from opcost.errors import UserError
from opcost.measuring.conditions import CONTIGUOUS, MemoryFormat
from opcost.measuring.precisions import TORCH_DEFAULT, Precision
from opcost.operators.grids import AnyGrid, TupleList, place_of
from opcost.operators.model_inputs import DescribedInputs
from opcost.operators.model_names import GRID, TORCHVISION, ModelName, UserCode
from opcost.operators.tuples import DEFAULT_SEED, SIZE_IN_NAME, PlainValue
from opcost.printable import is_one_line, printable
from opcost.storage.code_files import find_code
from opcost.storage.config_trees import (
    ARGUMENTS_EXAMPLE,
    INPUTS_EXAMPLE,
    Inputs,
    described_inputs,
    sorted_arguments,
)
from opcost.storage.files import replace_file
from opcost.storage.grid_files import (
    GRID_NAME,
    LONGEST_NAME,
    UNSUPPORTED_KEYS,
    GridFile,
    TuplesFile,
    read_grid,
    repeated,
)
from opcost.storage.yaml_files import (
    BY_LIST,
    ONE,
    SEVERAL,
    Document,
    Mistake,
    OneOrSeveral,
    Place,
    Schema,
    document_of,
    quoted,
    read_document,
    read_schema,
    user_error,
)

SUMMARY_NAME = "summary.yml"
HELP = "docs/usage.md shows an example under 'Configs'"
INPUTS_HELP = "describe its inputs in a summary.yml (docs/usage.md shows it under 'Arguments and inputs')"
SUMMARY_EXAMPLE = f"model_name: resnet18 ({HELP})"
WHITELIST_EXAMPLE = "operators: [Conv2d, Linear]"
INPUT_SIZE_EXAMPLE = "input_size: [32, 3, 224, 224] (2 to 6 whole numbers above 0 in plain digits, batch first)"

BATCH, INPUT_SIZE, PRECISION, MEMORY_FORMAT = LISTS = ("batch", "input_size", "precision", "memory_format")
"""The keys that may be lists."""

MAXIMUM_CASES = 1000
"""The most cases of a config. Lists in 64 kB can have a product of many millions."""

LONGEST_PATH = 4096
"""The most characters of a name that is a path: no file of Linux has a longer one."""

LONGEST_FOLDER_BYTES = 255
"""The longest name of a folder on Linux. Each case has a folder."""

_SIZE_AT_END = re.compile(rf"{SIZE_IN_NAME.pattern}\Z")


def _checked_name(name: str) -> str:
    """Refuse what is neither one word nor a path: folders have any names."""
    is_path = "/" in name or ModelName.of(name).is_file
    if not is_one_line(name) or (not is_path and (len(name) > LONGEST_NAME or re.search(r"\s", name))):
        raise ValueError
    return name


def _refuse_none(name: str) -> str:
    if name.lower() in {"none", "null", "~"}:
        raise ValueError
    return name


def _has_sizes(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(size, list) for size in value)


_Name = Annotated[str, Field(min_length=1, max_length=LONGEST_PATH), AfterValidator(_checked_name)]
_InputSize = Annotated[list[PositiveInt], Field(min_length=2, max_length=6)]


class Summary(Schema):
    """A ``summary.yml``."""

    unsupported: ClassVar[Mapping[str, str]] = UNSUPPORTED_KEYS

    model_name: _Name = Field(
        description="model_name: resnet18 (of torchvision; others: timm:NAME, transformers:CLASS, net.py:FUNCTION)"
    )
    weights_name: Annotated[_Name, AfterValidator(_refuse_none)] | None = Field(
        default=None, description="weights_name: null (random weights, or a name such as IMAGENET1K_V1)"
    )
    input_size: Annotated[
        Annotated[_InputSize, ONE] | Annotated[list[_InputSize], SEVERAL],
        Discriminator(lambda value: SEVERAL.tag if _has_sizes(value) else ONE.tag),
    ] = Field(default=[], description=INPUT_SIZE_EXAMPLE)
    batch: list[PositiveInt] = Field(
        default=[],
        min_length=1,
        description="batch: [1, 8, 32] (whole numbers above 0; one batch is the first number of input_size)",
    )
    done: Annotated[Annotated[bool, ONE] | Annotated[list[str], SEVERAL], BY_LIST] = Field(
        default=False, description="done: false (true or false, no quotes)"
    )
    precision: OneOrSeveral[Precision] = Field(default=TORCH_DEFAULT, description="precision: torch-default")
    memory_format: OneOrSeveral[MemoryFormat] = Field(default=CONTIGUOUS, description="memory_format: contiguous")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=DEFAULT_SEED, description="seed: 0 (a whole number from 0 up, for random weights and the input)"
    )
    arguments: dict[str, Any] | None = Field(default=None, description=ARGUMENTS_EXAMPLE)
    inputs: Inputs = Field(default=None, description=INPUTS_EXAMPLE)
    composites: list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=LONGEST_NAME)]] = Field(
        default=[], description="composites: [ShiftedWindowAttention] (class names without their modules)"
    )

    @property
    def lists(self) -> dict[str, list[Any]]:
        """The keys that are lists, in the order of ``LISTS``; one input size is no list."""
        found = {key: getattr(self, key) for key in LISTS}
        lists = {key: value for key, value in found.items() if isinstance(value, list) and value}
        return {key: value for key, value in lists.items() if key != INPUT_SIZE or _has_sizes(value)}

    def cases(self, folder: str) -> dict[str, tuple[tuple[int, ...], str, str]]:
        """Return the input size (batch first), precision and memory format of each case of a folder's config, by name.

        They are in the order of the lists; there are none if they are over ``MAXIMUM_CASES``. An input size with a
        mistake is empty.
        """
        lists = self.lists
        if math.prod(map(len, lists.values())) > MAXIMUM_CASES:
            return {}
        sizes, batches = lists.get(INPUT_SIZE, [self.input_size]), lists.get(BATCH, [None])
        precisions, formats = (lists.get(key, [getattr(self, key)]) for key in (PRECISION, MEMORY_FORMAT))
        found = {}
        for size, batch, precision, memory_format in itertools.product(sizes, batches, precisions, formats):
            full_size = tuple(size if batch is None else [batch, *size[1:]] if size else [])
            name = case_name(
                folder,
                full_size if BATCH in lists or INPUT_SIZE in lists else None,
                precision if PRECISION in lists else None,
                memory_format if MEMORY_FORMAT in lists else None,
            )
            found[name] = full_size, precision, memory_format
        return found

    def mistakes(self, given: set[str]) -> Iterator[tuple[Place, str]]:
        named = ModelName.of(self.model_name)
        if named.is_file and self.weights_name is not None:
            yield ("weights_name",), "a user's function loads its weights itself; write weights_name: null"
        if "inputs" in given:
            for key in {INPUT_SIZE, BATCH}.intersection(given):
                yield (key,), "given beside inputs; keep one of both"
        elif INPUT_SIZE not in given and (BATCH in given or not named.has_inputs):
            yield (INPUT_SIZE,), f"missing; write {INPUT_SIZE_EXAMPLE}"
        lists = self.lists
        number = math.prod(map(len, lists.values()))
        if number > MAXIMUM_CASES:
            text = f"{', '.join(lists)} give {number} cases; a config may have {MAXIMUM_CASES}; write several configs"
            yield (next(iter(lists)),), text
            return
        for key, items in lists.items():
            yield from repeated(
                key, (str(item[1:] if key == INPUT_SIZE and BATCH in lists else item) for item in items)
            )
        if isinstance(self.done, list) and not lists and self.model_fields_set.issuperset(given):
            yield ("done",), "a list of cases, which a config without lists does not have; write done: false"


class Whitelist(Schema):
    """An ``operator_whitelist.yml``."""

    operators: list[Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*|\*)$", max_length=LONGEST_NAME)]] = Field(
        min_length=1,
        description=f'{WHITELIST_EXAMPLE} (class names without their modules, at least one, or "*" for all)',
    )

    def mistakes(self, given: set[str]) -> Iterator[tuple[Place, str]]:
        return repeated("operators", self.operators)


def case_name(folder: str, input_size: Sequence[int] | None, precision: str | None, memory_format: str | None) -> str:
    """Return the name of a case: that of the folder, with the values that vary: ``resnet50_8x3x224x224_bf16``.

    A value is None if it is no list. If input sizes vary, an input size at the end of the folder's name is left out.
    """
    beginning = folder if input_size is None else without_size(folder)
    size = None if input_size is None else "x".join(map(str, input_size))
    return "_".join([beginning, *(part for part in (size, precision, memory_format) if part is not None)])


def without_size(folder: str) -> str:
    """Return a folder's name without an input size at its end. The names of all its cases begin with it."""
    return _SIZE_AT_END.sub("", folder)


@dataclass(frozen=True)
class ModelConfig:
    """One model at one input size, as described by a ``summary.yml``: the file without lists, or one case of it.

    Or the ``grid`` or list of operator tuples that a ``grid.yml`` describes, which is no model. Its ``model_name`` is
    the operator's name behind ``grid:``, of a list ``grid:tuples``.

    ``name`` is the case's name, without lists that of the folder. ``path`` is the file as the user named it.
    ``weights_name`` None means random weights; a path is absolute or begins with ``~``. ``input_size`` has the batch
    first and 2 to 6 positive numbers. It is empty if ``inputs`` describes the inputs, or the model comes with them
    (``ModelName.has_inputs``).
    ``precision`` is a ``Precision``, ``memory_format`` a ``MemoryFormat``. ``seed`` is the seed of random weights and
    of the input. ``composites`` are classes of modules that are counted as one operator each, besides
    ``operators.counts.COMPOSITES``. ``arguments`` are those of the function or class that builds the model. ``inputs``
    are described ones, which replace ``input_size``. ``code`` is where a user's function is. ``own_folder`` is the
    folder for files about the case, None for that of ``path``. ``lists`` are the keys that are lists. ``given_by``
    returns the option that gave a key, None if the file did.
    """

    name: str
    path: Path
    model_name: str
    weights_name: str | None
    input_size: tuple[int, ...]
    done: bool
    precision: str = TORCH_DEFAULT
    memory_format: str = CONTIGUOUS
    seed: int = DEFAULT_SEED
    composites: tuple[str, ...] = ()
    arguments: tuple[tuple[str, PlainValue], ...] = ()
    inputs: DescribedInputs | None = None
    code: UserCode | None = None
    grid: AnyGrid | None = None
    own_folder: Path | None = field(default=None, compare=False, repr=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    lists: tuple[str, ...] = field(default=(), compare=False, repr=False)
    given_by: Callable[[str], str] | None = field(default=None, compare=False, repr=False)

    @property
    def folder(self) -> Path:
        return self.own_folder or self.path.parent

    @property
    def config_name(self) -> str:
        return self.path.parent.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of the first input, batch first; empty if it is unknown."""
        return self.input_size or (() if self.inputs is None else self.inputs.shape)

    @property
    def batch_size(self) -> int | None:
        return self.shape[0] if self.shape else None

    def option(self, key: str) -> str | None:
        return self.given_by(key) if self.given_by else None

    def where(self, key: str) -> str:
        """Return the place of a key, for a message: ``measurements/x/summary.yml:3: precision``."""
        return self.option(key) or f"{self.path}:{self.lines.get(key, 1)}: {key}"


def read_config(path: Path) -> tuple[Document, Summary | GridFile | TuplesFile | None, list[Mistake]]:
    """Return a ``grid.yml`` or a ``summary.yml``, its valid values (None without the keys that they need), and all
    mistakes.
    """
    return read_grid(path) if path.name == GRID_NAME else _summary_in(read_document(path, SUMMARY_EXAMPLE))


def _summary_in(document: Document) -> tuple[Document, Summary | None, list[Mistake]]:
    found, mistakes = read_schema(document, Summary)
    folder = document.path.parent.name
    if found and found.lists and any(len(name.encode()) > LONGEST_FOLDER_BYTES for name in found.cases(folder)):
        text = f"the folder's name {quoted(folder)} cannot begin names of cases; rename the folder"
        mistakes.append((1, f"{next(iter(found.lists))}: {text}"))
    return document, found, mistakes


def load_config(
    path: Path, own_folder: Path, check: Callable[[ModelConfig], list[str]] | None = None
) -> list[ModelConfig]:
    """Return the cases in a ``summary.yml``, in the order of its lists; one if there are no lists, or if it is a grid.

    ``own_folder`` is for files about the model; with lists, each case has a folder in it. ``check`` returns one line
    for each further mistake in a case with a valid ``model_name``. Of other keys with a mistake, this case has the
    default, and no ``input_size``. Raises UserError: with one line for each mistake.
    """
    name = path.parent.name
    if not name.isprintable() or name.startswith("-"):
        # Tables and commands to copy have it.
        problem = "the folder's name begins with a dash or has characters that cannot be printed; rename the folder"
        raise UserError(f"{printable(str(path))}: {problem}")
    document, found, mistakes = read_config(path)
    configs: list[ModelConfig] = []
    if isinstance(found, Summary):
        configs = _cases_of(document, found, own_folder, mistakes)
    elif found is not None:
        grid, lines = found.grid, _lines(document)
        whole = ModelConfig(name, path, f"{GRID}:{grid.name}", None, (), found.done, found.precision, grid=grid)
        configs = [replace(whole, own_folder=own_folder, lines=lines)]
    if path.name == GRID_NAME and path.with_name(SUMMARY_NAME).exists():
        mistakes.append((1, f"beside a {SUMMARY_NAME}, which describes a model; move one to another folder"))
    # Cases may share a mistake.
    further = dict.fromkeys(printable(line) for one in configs if check for line in check(one))
    if mistakes or further:
        raise UserError(*user_error(path, mistakes).lines, *further)
    return configs


def _cases_of(document: Document, found: Summary, own_folder: Path, mistakes: list[Mistake]) -> list[ModelConfig]:
    """Return the cases of a ``summary.yml``; a mistake in the user's code that it names is added to the others."""
    path, lists, named, code = document.path, tuple(found.lists), ModelName.of(found.model_name), None
    if named.is_file:
        try:
            code = find_code(named, path.parent)
        except UserError as error:
            mistakes += [(document.line(("model_name",)), f"model_name: {text}") for text in error.lines]
    weights = found.weights_name
    # All sources but torchvision take a path.
    if weights is not None and named.source != TORCHVISION and not weights.startswith("~"):
        weights = os.path.abspath(path.parent / weights)
    return [
        ModelConfig(
            name=name,
            path=path,
            model_name=found.model_name,
            weights_name=weights,
            input_size=input_size,
            # Names of cases that the lists had before have no effect.
            done=found.done if isinstance(found.done, bool) else name in found.done,
            precision=precision,
            memory_format=memory_format,
            seed=found.seed,
            composites=tuple(found.composites),
            arguments=sorted_arguments(found.arguments),
            inputs=described_inputs(found.inputs),
            code=code,
            own_folder=own_folder / name if lists else own_folder,
            lines=_lines(document),
            lists=lists,
        )
        for name, (input_size, precision, memory_format) in found.cases(path.parent.name).items()
    ]


def _lines(document: Document) -> dict[str, int]:
    tuples = document.values.get(TupleList.key)
    of_items = {
        place_of(index): document.line((TupleList.key, index))
        for index in range(len(tuples) if isinstance(tuples, list) else 0)
    }
    return {key: document.line((key,)) for key in document.values} | of_items


def write_config(path: Path, text: str) -> None:
    """Write a new ``summary.yml``, unless it could not be read: its mistake would end other models' commands.

    Raises ``UserError`` with one line for each mistake; then nothing is written.
    """
    content = text.encode()
    try:
        _, _, mistakes = _summary_in(document_of(path, content, SUMMARY_EXAMPLE))
        if mistakes:
            raise user_error(path, mistakes)
    except UserError as error:
        raise UserError(*(f"not written, because it could not be read: {line}" for line in error.lines)) from None
    replace_file(path, content)


def load_whitelist(path: Path) -> tuple[str, ...]:
    """Return the operator names of ``operator_whitelist.yml``, in the file's order.

    Raises ``UserError`` with one line for each mistake, such as a repeated name or an empty list.
    """
    found, mistakes = read_schema(read_document(path, WHITELIST_EXAMPLE), Whitelist)
    if mistakes or found is None:
        raise user_error(path, mistakes)
    return tuple(found.operators)
