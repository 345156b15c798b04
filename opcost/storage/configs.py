"""The YAML files that people write: one ``summary.yml`` per model, or a ``grid.yml``, and the operator whitelist.

Lists in a ``summary.yml`` make several cases of it (``config_cases``).

All mistakes of all files are reported together, one line each, with file, line and remedy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from opcost.errors import UserError
from opcost.measuring.conditions import CONTIGUOUS, TORCH_DEFAULT
from opcost.operators.grids import AnyGrid, TupleList, place_of
from opcost.operators.model_inputs import DescribedInputs
from opcost.operators.model_names import GRID, TORCHVISION, ModelName
from opcost.operators.tuples import DEFAULT_SEED, PlainValue
from opcost.operators.user_code import UserCode
from opcost.printable import printable
from opcost.storage.code_files import find_code
from opcost.storage.config_cases import cases_of, list_mistakes, lists_of
from opcost.storage.config_nodes import (
    Document,
    Mistake,
    described,
    document_of,
    doubled,
    line_of,
    read_document,
    user_error,
)
from opcost.storage.config_schema import (
    INPUT_SIZE_EXAMPLE,
    WHITELIST_EXAMPLE,
    Schema,
    Summary,
    Whitelist,
    meant_keys,
    plain_values,
    read_values,
)
from opcost.storage.config_trees import arguments_in, inputs_in
from opcost.storage.files import replace_file
from opcost.storage.grid_files import GRID_NAME, read_grid

SUMMARY_NAME = "summary.yml"
HELP = "docs/usage.md shows an example under 'Configs'"
INPUTS_HELP = "describe its inputs in a summary.yml (docs/usage.md shows it under 'Arguments and inputs')"
SUMMARY_EXAMPLE = f"model_name: resnet18 ({HELP})"

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
"""Names of cases that need no quotes. They have a suffix, so none is a word such as ``true``."""


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
        """The folder for files about the case."""
        return self.own_folder or self.path.parent

    @property
    def config_name(self) -> str:
        """The name of the config's folder, which stands for all its cases."""
        return self.path.parent.name

    @property
    def main_key(self) -> str:
        """The key that says what is counted."""
        return "model_name" if self.grid is None else self.grid.key

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of the first input, batch first; empty if it is unknown."""
        return self.input_size or (() if self.inputs is None else self.inputs.shape)

    @property
    def batch_size(self) -> int | None:
        """The number of samples of a run, None if it is unknown."""
        return self.shape[0] if self.shape else None

    def option(self, key: str) -> str | None:
        """Return the option that gave a key, None if the file did."""
        return self.given_by(key) if self.given_by else None

    def where(self, key: str) -> str:
        """Return the place of a key, for a message: ``measurements/x/summary.yml:3: precision``."""
        return self.option(key) or f"{self.path}:{self.lines.get(key, 1)}: {key}"


def load_config(
    path: Path, own_folder: Path, check: Callable[[ModelConfig], list[str]] | None = None
) -> list[ModelConfig]:
    """Return the cases in a ``summary.yml``, in the order of its lists; one if there are no lists, or if it is a grid.

    Args:
        path: the file.
        own_folder: the folder for files about the model. If there are lists, each case has a folder in it.
        check: returns one line for each further mistake in a case with a valid ``model_name``. Of other keys with a
            mistake, this case has the default, and no ``input_size``.

    Raises:
        UserError: with one line for each mistake.
    """
    _refuse_name(path)
    if path.name == GRID_NAME:
        return [_load_grid(path, own_folder, check)]
    document, values, mistakes = _read_summary(path)
    places = _places(document)
    lists = tuple(lists_of(values))
    code, code_mistakes = _code_of(document, values)
    mistakes += code_mistakes
    configs = [
        ModelConfig(
            name=case.name,
            path=path,
            model_name=values.get("model_name", ""),
            weights_name=_weights_name(values, path.parent),
            input_size=case.input_size,
            done=_is_done(values["done"], case.name),
            precision=case.precision,
            memory_format=case.memory_format,
            seed=values["seed"],
            composites=tuple(values["composites"]),
            arguments=values["arguments"],
            inputs=values["inputs"],
            code=code,
            own_folder=own_folder / case.name if lists else own_folder,
            lines=places,
            lists=lists,
        )
        for case in cases_of(path.parent.name, values)
    ]
    # Cases may share a mistake.
    further = dict.fromkeys(printable(line) for one in configs if check and one.model_name for line in check(one))
    if mistakes or further:
        raise UserError(*user_error(path, mistakes).lines, *further)
    return configs


def _refuse_name(path: Path) -> None:
    """Raise a UserError if the folder's name, which tables and commands to copy have, cannot stand in them."""
    name = path.parent.name
    if not name.isprintable() or name.startswith("-"):
        problem = "the folder's name begins with a dash or has characters that cannot be printed; rename the folder"
        raise UserError(f"{printable(str(path))}: {problem}")


def _load_grid(path: Path, own_folder: Path, check: Callable[[ModelConfig], list[str]] | None) -> ModelConfig:
    found = read_grid(path)
    mistakes = found.mistakes
    if (path.parent / SUMMARY_NAME).exists():
        mistakes.append((1, f"beside a {SUMMARY_NAME}, which describes a model; move one to another folder"))
    config = ModelConfig(
        name=path.parent.name,
        path=path,
        model_name=f"{GRID}:{found.grid.name}",
        weights_name=None,
        input_size=(),
        done=found.values["done"],
        precision=found.values["precision"],
        grid=found.grid,
        own_folder=own_folder,
        lines=_places(found.document),
    )
    further = check(config) if check else []
    if mistakes or further:
        raise UserError(*user_error(path, mistakes).lines, *further)
    return config


def _places(document: Document) -> dict[str, int]:
    """Return the lines of the keys, and of each tuple of a list."""
    _, tuples = document.entries.get(TupleList.key, (None, None))
    items = tuples.value if isinstance(tuples, yaml.SequenceNode) else []
    of_items = {place_of(index): line_of(item) for index, item in enumerate(items)}
    return {key: line_of(node) for key, (node, _) in document.entries.items()} | of_items


def set_done(path: Path, case: str) -> bool:
    """Set ``done`` for a case in a ``summary.yml`` and keep every other byte; return whether that changed the file.

    Without lists, and in a ``grid.yml``, ``done`` becomes ``true``. With lists the case's name is added to a list of
    names; it does not become ``true`` with the last case, so that a value that is added to the lists later is measured.
    Without the key, the line is added.

    The file is replaced in one step, and its mode is kept.

    Args:
        path: the file.
        case: the case's name, without lists that of the folder.

    Raises:
        UserError: the file is not valid or does not have the case (it may have been edited since it was loaded), or it
            cannot be written.
    """
    document, values, mistakes = _read_config(path)
    if mistakes:
        raise user_error(path, mistakes)
    cases = [path.parent.name] if path.name == GRID_NAME else [one.name for one in cases_of(path.parent.name, values)]
    if case not in cases:
        raise UserError(f"{path}: its lists have no case {case} any more; run the command again")
    if _is_done(values["done"], case):
        return False
    value = f"[{_yaml_text(case)}]" if lists_of(values) else "true"
    if "done" not in document.entries:
        _add_entry(document, f"done: {value}")
        return True
    _, node = document.entries["done"]
    if isinstance(node, yaml.SequenceNode):
        _add_item(document, node, _yaml_text(case))
    else:
        _replace_text(document, (node.start_mark.index, node.end_mark.index), value)
    return True


def clear_done(path: Path) -> None:
    """Set ``done`` to false for all cases in a ``summary.yml``, and keep every byte outside its value.

    Raises:
        UserError: the file is not valid, or it cannot be written.
    """
    document, values, mistakes = _read_summary(path)
    if mistakes:
        raise user_error(path, mistakes)
    if values["done"]:
        _, node = document.entries["done"]
        is_block = isinstance(node, yaml.SequenceNode) and not node.flow_style
        # A list may begin in the column of the keys, but a word may not.
        _replace_text(document, (node.start_mark.index, _end_of(document, node)), " false" if is_block else "false")


def load_whitelist(path: Path) -> tuple[str, ...]:
    """Return the operator names of ``operator_whitelist.yml``, in the file's order.

    Raises:
        UserError: with one line for each mistake. Repeated names and an empty list are mistakes.
    """
    document = read_document(path, WHITELIST_EXAMPLE)
    _, operators = document.entries.get("operators", (None, None))
    names = operators.value if isinstance(operators, yaml.SequenceNode) else []
    return tuple(_valid_values(document, Whitelist, doubled(names, "operators: "))["operators"])


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
        # It ends with the line of its last item.
        last = document.text.find("\n", _end_of(document, node))
        end = len(document.text) if last < 0 else last + 1
        new_line = "\r\n" if "\r\n" in document.text else "\n"
        indent = " " * node.start_mark.column
        text = indent.join(f"- {name}{new_line}" for name in names)
    _replace_text(document, (begin, end), text)


def _read_config(path: Path) -> tuple[Document, Mapping[str, Any], list[Mistake]]:
    """Return a ``grid.yml`` or a ``summary.yml``, its values and all mistakes."""
    if path.name != GRID_NAME:
        return _read_summary(path)
    found = read_grid(path)
    return found.document, found.values, found.mistakes


def write_config(path: Path, text: str) -> None:
    """Write a new ``summary.yml``, unless it could not be read: its mistake would end other models' commands.

    Raises:
        UserError: with one line for each mistake; then nothing is written.
    """
    content = text.encode()
    try:
        _, _, mistakes = _summary_in(document_of(path, content, SUMMARY_EXAMPLE))
        if mistakes:
            raise user_error(path, mistakes)
    except UserError as error:
        raise UserError(*(f"not written, because it could not be read: {line}" for line in error.lines)) from None
    replace_file(path, content)


def _read_summary(path: Path) -> tuple[Document, dict[str, Any], list[Mistake]]:
    """Return a ``summary.yml``, its values as ``read_values`` returns them, and all mistakes."""
    return _summary_in(read_document(path, SUMMARY_EXAMPLE))


def _summary_in(document: Document) -> tuple[Document, dict[str, Any], list[Mistake]]:
    values, mistakes = read_values(document, Summary)
    mistakes += list_mistakes(document.path.parent.name, document, values)
    mistakes += _tree_mistakes(document, values)
    if isinstance(values["done"], list) and not lists_of(plain_values(document)):
        _, node = document.entries["done"]
        remedy = f"write {Summary.model_fields['done'].description}"
        mistakes.append((line_of(node), f"done: the value is {described(node)}; {remedy}"))
    return document, values, mistakes


def _weights_name(values: Mapping[str, Any], folder: Path) -> str | None:
    """Return the name of weights. A path, which all sources but torchvision take, is absolute or begins with ``~``.

    Args:
        values: of the config.
        folder: of the config, to which a path may be relative.
    """
    name: str | None = values["weights_name"]
    takes_names = ModelName.of(str(values.get("model_name", ""))).source == TORCHVISION
    if name is None or takes_names or name.startswith("~"):
        return name
    return os.path.abspath(folder / name)


def _tree_mistakes(document: Document, values: dict[str, Any]) -> list[Mistake]:
    """Replace the values of ``arguments`` and ``inputs``, and return the mistakes in them and of missing sizes."""
    nodes = {key: node for key, (_, node) in document.entries.items()}
    values["arguments"], mistakes = arguments_in(nodes.get("arguments"))
    values["inputs"], further = inputs_in(nodes.get("inputs"))
    mistakes += further
    named = ModelName.of(str(values.get("model_name", "")))
    if named.is_file and values["weights_name"] is not None:
        text = "weights_name: a user's function loads its weights itself; write weights_name: null"
        mistakes.append((line_of(nodes["weights_name"]), text))
    if "inputs" in nodes:
        both = [key for key in ("input_size", "batch") if key in nodes]
        mistakes += [(line_of(nodes[key]), f"{key}: given beside inputs; keep one of both") for key in both]
    elif "input_size" not in nodes and not named.has_inputs and "input_size" not in meant_keys(nodes, Summary).values():
        mistakes.append((1, f"input_size: missing; write {INPUT_SIZE_EXAMPLE}"))
    if "batch" in nodes and "input_size" not in nodes and "inputs" not in nodes and named.has_inputs:
        mistakes.append((line_of(nodes["batch"]), f"batch: needs input_size; write {INPUT_SIZE_EXAMPLE}"))
    return mistakes


def _code_of(document: Document, values: Mapping[str, Any]) -> tuple[UserCode | None, list[Mistake]]:
    """Return where a model's code is if it is a user's function, and the mistake if there is none."""
    named = ModelName.of(str(values.get("model_name", "")))
    if not named.is_file:
        return None, []
    try:
        return find_code(named, document.path.parent), []
    except UserError as error:
        line = line_of(document.entries["model_name"][0])
        return None, [(line, f"model_name: {text}") for text in error.lines]


def _is_done(done: bool | Sequence[str], case: str) -> bool:
    """Return whether a case is done; names of cases that the lists had before have no effect."""
    return done if isinstance(done, bool) else case in done


def _yaml_text(name: str) -> str:
    """Return a case's name as an item of a YAML list, in quotes if it may mean something else."""
    return name if _PLAIN.fullmatch(name) else "'" + name.replace("'", "''") + "'"


def _add_entry(document: Document, text: str) -> None:
    """Add a key with its value to the file, in a line of its own if the others have lines of their own."""
    first, last = (pick(document.entries.values(), key=lambda entry: entry[0].start_mark.index) for pick in (min, max))
    end = _end_of(document, last[1])
    if document.is_flow:
        _insert(document, end, f", {text}")
    else:
        _insert_line(document, end, " " * first[0].start_mark.column + text)


def _add_item(document: Document, node: yaml.SequenceNode, item: str) -> None:
    """Add an item to a list, in a line of its own if the list has no brackets."""
    if not node.value:
        _insert(document, node.start_mark.index + 1, item)
    elif node.flow_style:
        _insert(document, _end_of(document, node.value[-1]), f", {item}")
    else:
        _insert_line(document, _end_of(document, node), f"{' ' * node.start_mark.column}- {item}")


def _insert(document: Document, position: int, text: str) -> None:
    # A comment may follow a quote or a bracket without a space.
    space = " " if document.text.startswith("#", position) else ""
    _replace_text(document, (position, position), text + space)


def _insert_line(document: Document, position: int, line: str) -> None:
    """Insert a line behind that of a position."""
    new_line = "\r\n" if "\r\n" in document.text else "\n"
    following = document.text.find("\n", position) + 1
    if following:
        _replace_text(document, (following, following), line + new_line)
    else:
        _replace_text(document, (len(document.text),) * 2, new_line + line)


def _end_of(document: Document, node: yaml.Node) -> int:
    """Return the position behind a value.

    For PyYAML a block list, and a text behind ``|`` or ``>``, end where the next node begins.
    """
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        return _end_of(document, node.value[-1])
    end = int(node.end_mark.index)
    is_block = isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}
    return len(document.text[:end].rstrip()) if is_block else end


def _replace_text(document: Document, span: tuple[int, int], text: str) -> None:
    """Replace a span of the file's text; the file is replaced in one step."""
    begin, end = span
    content = document.text[:begin] + text + document.text[end:]
    try:
        replace_file(document.path.resolve(), content.encode())
    except OSError as error:
        raise UserError(f"{document.path}: cannot be written ({error.strerror}); make its folder writable") from None


def _valid_values(document: Document, schema: type[Schema], mistakes: Iterable[Mistake] = ()) -> dict[str, Any]:
    """Return a file's values.

    Raises:
        UserError: with ``mistakes``, those of the document, and those that the schema finds.
    """
    values, found = read_values(document, schema, mistakes)
    if found:
        raise user_error(document.path, found)
    return values
