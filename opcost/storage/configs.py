"""The YAML files that people write: one ``summary.yml`` per model and input size, and the operator whitelist.

All mistakes of all files are reported together, one line each, with file, line and remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from opcost.errors import UserError
from opcost.measuring.conditions import CONTIGUOUS, TORCH_DEFAULT
from opcost.operators.tuples import DEFAULT_SEED
from opcost.storage.config_nodes import (
    Document,
    Mistake,
    doubled,
    line_of,
    read_document,
    user_error,
)
from opcost.storage.config_schema import WHITELIST_EXAMPLE, Schema, Summary, Whitelist, read_values
from opcost.storage.files import replace_file

SUMMARY_NAME = "summary.yml"
HELP = "docs/usage.md shows an example under 'Configs'"
SUMMARY_EXAMPLE = f"model_name: resnet18 ({HELP})"


@dataclass(frozen=True)
class ModelConfig:
    """One model at one input size, as described by its ``summary.yml``.

    ``name`` is the folder's name, ``path`` the file as the user named it. ``weights_name`` None means random weights.
    ``input_size`` has the batch first and 2 to 6 positive numbers. ``precision`` is a ``Precision``,
    ``memory_format`` a ``MemoryFormat``. ``seed`` is the seed of random weights and of the input. ``composites`` are
    classes of modules that are counted as one operator each, besides ``operators.counts.COMPOSITES``. ``own_folder`` is
    the folder for files about the model, None for that of ``path``.
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
    own_folder: Path | None = field(default=None, compare=False, repr=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def folder(self) -> Path:
        """The folder for files about the model."""
        return self.own_folder or self.path.parent

    def where(self, key: str) -> str:
        """Return the file and line of a key, for a message: ``measurements/x/summary.yml:3``."""
        return f"{self.path}:{self.lines.get(key, 1)}"


def load_config(path: Path, own_folder: Path, check: Callable[[ModelConfig], list[str]] | None = None) -> ModelConfig:
    """Return the config in a ``summary.yml``.

    Args:
        path: the file.
        own_folder: the folder for files about the model.
        check: returns one line for each further mistake in a config with a valid ``model_name``. Of other keys with a
            mistake, this config has the default, and no ``input_size``.

    Raises:
        UserError: with one line for each mistake.
    """
    document = read_document(path, SUMMARY_EXAMPLE)
    values, mistakes = read_values(document, Summary)
    plain = {"model_name": "", **values}
    sizes = {key: tuple(values.get(key, ())) for key in ("input_size", "composites")}
    places = {key: line_of(node) for key, (node, _) in document.entries.items()}
    config = ModelConfig(path.parent.name, path, **(plain | sizes), own_folder=own_folder, lines=places)
    further = check(config) if check and config.model_name else []
    if mistakes or further:
        raise UserError(*user_error(path, mistakes).lines, *further)
    return config


def set_done(path: Path) -> bool:
    """Set ``done: true`` in a ``summary.yml`` and keep every other byte; return whether that changed the file.

    Without the key, the line is added.

    The file is replaced in one step, and its mode is kept.

    Raises:
        UserError: the file is not valid (it may have been edited since it was loaded) or cannot be written.
    """
    document = read_document(path, SUMMARY_EXAMPLE)
    if _valid_values(document, Summary)["done"]:
        return False
    if "done" in document.entries:
        _, node = document.entries["done"]
        _replace_text(document, (node.start_mark.index, node.end_mark.index), "true")
    else:
        _add_entry(document, "done: true")
    return True


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
        last = document.text.find("\n", _end_of(node))
        end = len(document.text) if last < 0 else last + 1
        new_line = "\r\n" if "\r\n" in document.text else "\n"
        indent = " " * node.start_mark.column
        text = indent.join(f"- {name}{new_line}" for name in names)
    _replace_text(document, (begin, end), text)


def _add_entry(document: Document, text: str) -> None:
    """Add a key with its value to the file, in a line of its own if the others have lines of their own."""
    first, last = (pick(document.entries.values(), key=lambda entry: entry[0].start_mark.index) for pick in (min, max))
    end = _end_of(last[1])
    if document.is_flow:
        _replace_text(document, (end, end), f", {text}")
        return
    new_line = "\r\n" if "\r\n" in document.text else "\n"
    following = document.text.find("\n", end) + 1
    line = " " * first[0].start_mark.column + text
    if following:
        _replace_text(document, (following, following), line + new_line)
    else:
        _replace_text(document, (len(document.text),) * 2, new_line + line)


def _end_of(node: yaml.Node) -> int:
    """Return the position behind a value. For PyYAML a block list ends where the next node begins."""
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        return _end_of(node.value[-1])
    return int(node.end_mark.index)


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
