"""Changes of configs that keep every other byte: what is done, and the names of the whitelist."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from opcost.errors import UserError
from opcost.storage.configs import WHITELIST_EXAMPLE, Summary, load_whitelist, read_config
from opcost.storage.files import replace_file
from opcost.storage.grid_files import GridFile, TuplesFile
from opcost.storage.yaml_files import Document, read_document, user_error

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
"""Names of cases that need no quotes. They have a suffix, so none is a word such as ``true``."""


def set_done(path: Path, case: str) -> bool:
    """Set ``done`` for a case in a ``summary.yml`` and keep every other byte; return whether that changed the file.

    Without lists (``case`` is the folder), and in a ``grid.yml``, ``done`` becomes ``true``. With lists the case's name
    is added to a list of names; it does not become ``true`` with the last case, so that a value that is added to the
    lists later is measured. Without the key, the line is added. The file is replaced in one step, and its mode is kept.

    Raises ``UserError`` if the file is not valid, does not have the case (any more), or cannot be written.
    """
    document, found = _sound(path)
    folder, done = path.parent.name, found.done
    lists, cases = (found.lists, found.cases(folder)) if isinstance(found, Summary) else ({}, {})
    if case not in (cases or {folder}):
        raise UserError(f"{path}: its lists have no case {case} any more; run the command again")
    if done if isinstance(done, bool) else case in done:
        return False
    # A name may mean something else to YAML.
    name = case if _PLAIN.fullmatch(case) else "'" + case.replace("'", "''") + "'"
    value = f"[{name}]" if lists else "true"
    node = document.nodes.get(("done",))
    if node is None:
        # The key gets a line of its own if the others have lines of their own.
        keys = list(document.values)
        end, column = _end_of(document, document.nodes[keys[-1],]), document.keys[keys[0],].start_mark.column
        is_flow = document.text.startswith("{", document.nodes[()].start_mark.index)
        _add(document, end, f", done: {value}" if is_flow else f"{' ' * column}done: {value}", is_line=not is_flow)
    elif not isinstance(node, yaml.SequenceNode):
        _replace_text(document, node.start_mark.index, node.end_mark.index, value)
    elif not node.value:
        _add(document, node.start_mark.index + 1, name, is_line=False)
    elif node.flow_style:
        _add(document, _end_of(document, node.value[-1]), f", {name}", is_line=False)
    else:
        _add(document, _end_of(document, node), f"{' ' * node.start_mark.column}- {name}", is_line=True)
    return True


def clear_done(path: Path) -> None:
    """Set ``done`` to false for all cases in a ``summary.yml``, and keep every byte outside its value.

    Raises ``UserError`` if the file is not valid, or cannot be written.
    """
    document, found = _sound(path)
    if found.done:
        node = document.nodes["done",]
        is_block = isinstance(node, yaml.SequenceNode) and not node.flow_style
        # A list may begin in the column of the keys, but a word may not.
        _replace_text(document, node.start_mark.index, _end_of(document, node), " false" if is_block else "false")


def replace_whitelist(path: Path, names: Sequence[str]) -> None:
    """Replace the operator names in ``operator_whitelist.yml`` and keep the text before and after the list.

    Raises ``UserError`` if the file is not valid or cannot be written.
    """
    load_whitelist(path)
    document = read_document(path, WHITELIST_EXAMPLE)
    node = document.nodes["operators",]
    begin, end = node.start_mark.index, node.end_mark.index
    text = f"[{', '.join(names)}]"
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        # It ends with the line of its last item.
        last = document.text.find("\n", _end_of(document, node))
        end = len(document.text) if last < 0 else last + 1
        new_line = "\r\n" if "\r\n" in document.text else "\n"
        indent = " " * node.start_mark.column
        text = indent.join(f"- {name}{new_line}" for name in names)
    _replace_text(document, begin, end, text)


def _sound(path: Path) -> tuple[Document, Summary | GridFile | TuplesFile]:
    document, found, mistakes = read_config(path)
    if mistakes or found is None:
        raise user_error(path, mistakes)
    return document, found


def _add(document: Document, position: int, text: str, is_line: bool) -> None:
    """Add a text at a position, or as a new line behind that of the position."""
    if not is_line:
        # A comment may follow a quote or a bracket without a space.
        _replace_text(document, position, position, text + (" " if document.text.startswith("#", position) else ""))
        return
    new_line = "\r\n" if "\r\n" in document.text else "\n"
    following, end = document.text.find("\n", position) + 1, len(document.text)
    if following:
        _replace_text(document, following, following, text + new_line)
    else:
        _replace_text(document, end, end, new_line + text)


def _end_of(document: Document, node: yaml.Node) -> int:
    """Return the position behind a value. For PyYAML a block list, and a text behind ``|``, end where the next node
    begins.
    """
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        return _end_of(document, node.value[-1])
    end = int(node.end_mark.index)
    is_block = isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}
    return len(document.text[:end].rstrip()) if is_block else end


def _replace_text(document: Document, begin: int, end: int, text: str) -> None:
    """Replace a span of the file's text; the file is replaced in one step."""
    content = document.text[:begin] + text + document.text[end:]
    try:
        replace_file(document.path.resolve(), content.encode())
    except OSError as error:
        raise UserError(f"{document.path}: cannot be written ({error.strerror}); make its folder writable") from None
