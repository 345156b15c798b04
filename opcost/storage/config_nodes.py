"""YAML files as nodes with line numbers, for files that people edit and that may be hostile.

PyYAML is too lenient for them: it keeps the last of two equal keys, follows aliases and builds the types that tags
name. Here all of these are mistakes. A file without nodes raises a UserError at once. Other mistakes are kept with the
document, so that they can be reported together with those that a schema finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from opcost.errors import UserError
from opcost.printable import printable
from opcost.units import number_of

MAXIMUM_BYTES = 64_000
MAXIMUM_DEPTH = 8
SHOWN_CHARACTERS = 60
LONGEST_PROBLEM = 200
MISTAKES_SHOWN = 20
"""The most mistakes of a file that are reported one by one: 64 kB can have 12,000."""

REFUSED = "refused"
"""The tag of a node with a reported mistake, so that its value is not reported again."""

Mistake: TypeAlias = tuple[int, str]
"""A line number from 1, and the mistake there with its remedy."""

Entries: TypeAlias = dict[str, tuple[yaml.Node, yaml.Node]]
"""The nodes of the key and of the value, by key."""


@dataclass(frozen=True)
class Document:
    """A file that is one YAML mapping, with the mistakes in it that do not depend on a schema.

    ``is_flow`` says that the mapping is in braces.
    """

    path: Path
    text: str
    entries: Entries
    mistakes: list[Mistake]
    is_flow: bool


def read_document(path: Path, example: str) -> Document:
    """Return a file's nodes. If a key is repeated, its first value is kept.

    Args:
        path: the file.
        example: a valid line of such a file, for messages.

    Raises:
        UserError: the file cannot be read, is larger than ``MAXIMUM_BYTES``, is nested deeper than ``MAXIMUM_DEPTH``,
            or is no mapping in YAML.
    """
    return document_of(path, _content_of(path, example), example)


def document_of(path: Path, content: bytes, example: str) -> Document:
    """Return the nodes of a file with a content, whether it is written or not; see ``read_document``."""
    text = _text_of(path, content)
    try:
        root, mistakes = _compose(text)
    except (yaml.MarkedYAMLError, yaml.reader.ReaderError) as error:
        raise user_error(path, [_syntax_mistake(error, text, example)]) from None
    if not isinstance(root, yaml.MappingNode):
        raise user_error(path, [*mistakes, _shape_mistake(root, example)])
    entries: Entries = {}
    for key, value in root.value:
        if isinstance(key, yaml.ScalarNode) and kind(key) not in {"merge", REFUSED}:
            entries.setdefault(key.value, (key, value))
    return Document(path, text, entries, [*mistakes, *_key_mistakes(root)], bool(root.flow_style))


def doubled(nodes: Iterable[yaml.Node], subject: str = "") -> Iterator[Mistake]:
    """Yield a mistake for each repeated key or item."""
    firsts: dict[str, yaml.Node] = {}
    for node in nodes:
        if isinstance(node, yaml.ScalarNode) and node.tag != REFUSED:
            first = firsts.setdefault(node.value, node)
            if first is not node:
                lines = f"lines {line_of(first)} and {line_of(node)}"
                yield line_of(node), f"{subject}{shown(node.value)}: given twice, in {lines}; keep one"


def user_error(path: Path, mistakes: Iterable[Mistake]) -> UserError:
    """Return the error with a file's first mistakes, in the order of their lines, and the number of the others."""
    first, more = (found := sorted(set(mistakes)))[:MISTAKES_SHOWN], found[MISTAKES_SHOWN:]
    if more:
        text = f"{number_of(len(more), 'more mistake')} from here on; fix the first ones"
        first.append((more[0][0], text))
    return UserError(*(f"{path}:{line}: {printable(text)}" for line, text in first))


def kind(node: yaml.Node) -> str:
    """Return the last part of a node's tag: ``str``, ``int``, ``bool``, ``null``, ``float``, ``timestamp``, ..."""
    return node.tag.rpartition(":")[2]


def line_of(node: yaml.Node) -> int:
    """Return the line where a node begins, counted from 1."""
    return int(node.start_mark.line) + 1


def described(node: yaml.Node) -> str:
    """Return a description of a node's value: ``the text '3'``, ``NO, in YAML a boolean``, ``empty``."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return f"a list of {len(node.value)}"
    if kind(node) == "str":
        return f"the text {quoted(node.value)}"
    if kind(node) == "null":
        return node.value or "empty"
    nouns = {"bool": "a boolean", "int": "a number", "float": "a number", "timestamp": "a date"}
    return f"{shown(node.value)}, in YAML {nouns.get(kind(node), 'no text')}"


def quoted(text: str) -> str:
    """Return the text in quotes, on one line and cut after ``SHOWN_CHARACTERS``."""
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "...")


def shown(text: str) -> str:
    """Return a plain word unchanged, any other text in quotes."""
    is_plain = text.isascii() and text.isprintable() and " " not in text and 0 < len(text) <= SHOWN_CHARACTERS
    return text if is_plain else quoted(text)


def _content_of(path: Path, example: str) -> bytes:
    try:
        if not path.is_file():
            where = "run in the root of the repository, name another folder with --measurements"
            raise UserError(f"{path}: no such file; {where}, or write it with a line such as {example}")
        with path.open("rb") as file:
            return file.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); make it readable") from None


def _text_of(path: Path, content: bytes) -> str:
    """Return the text with its byte order mark and line endings, so that it encodes to the same bytes."""
    if len(content) > MAXIMUM_BYTES:
        raise UserError(f"{path}: is larger than {MAXIMUM_BYTES // 1000} kB; keep only its keys and short comments")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise user_error(path, [(line, "the text is not UTF-8; save the file as UTF-8")]) from None


class _PlainLoader(yaml.SafeLoader):
    """Composes nodes; anchors, aliases and tags are mistakes.

    An alias can stand for thousands of nodes and a tag for any type. A file of five keys needs neither.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.mistakes: list[Mistake] = []

    def parse_node(self, block: bool = False, indentless_sequence: bool = False) -> Any:
        """Return the event with which the next node begins. PyYAML calls this method once for each node."""
        event = super().parse_node(block, indentless_sequence)
        # The parser keeps one mark for each collection that is open.
        if len(self.marks) >= MAXIMUM_DEPTH:
            problem = f"nested deeper than {MAXIMUM_DEPTH} levels"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            self.note(event, f"the alias *{shown(str(event.anchor))} is not allowed; write the value itself")
            return yaml.ScalarEvent(None, REFUSED, (False, False), "", event.start_mark, event.end_mark)
        return self._plain(event)

    def _plain(self, event: Any) -> Any:
        """Return a node's event without its anchor, tagged as refused if it has a tag or half a surrogate pair."""
        if event.anchor is not None:
            self.note(event, f"the anchor &{shown(event.anchor)} is not allowed; remove it")
            event.anchor = None
        if event.tag is not None:
            self.note(event, f"the tag {shown(event.tag)} is not allowed; remove it")
            event.tag = REFUSED
        elif isinstance(event, yaml.ScalarEvent) and re.search("[\ud800-\udfff]", event.value):
            self.note(event, f"{quoted(event.value)} has half a character; write the character itself")
            event.tag = REFUSED
        return event

    def note(self, event: Any, text: str) -> None:
        self.mistakes.append((line_of(event), text))


def _compose(text: str) -> tuple[yaml.Node | None, list[Mistake]]:
    """Return the root of the first document (None if there is no content), and the mistakes found."""
    loader = _PlainLoader(text)
    try:
        root = loader.get_node() if loader.check_node() else None
        if loader.check_node():
            second = loader.peek_event()  # type: ignore[no-untyped-call]
            loader.note(second, "a second document begins here; keep only one")
    except (ValueError, OverflowError):
        problem = "a number or an escape is out of range"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=loader.get_mark()) from None
    return root, loader.mistakes


def _syntax_mistake(error: yaml.MarkedYAMLError | yaml.reader.ReaderError, text: str, example: str) -> Mistake:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return line, f"not valid YAML: the character {chr(error.character)!r} is not allowed; remove it"
    assert error.problem_mark is not None, "PyYAML gives the position"
    is_tab = text.startswith("\t", error.problem_mark.index)
    remedy = "replace the tab by spaces" if is_tab else f"change it to lines such as {example}"
    context = f" ({error.context} from line {error.context_mark.line + 1})" if error.context_mark else ""
    problem = str(error.problem)
    # It may quote a word of the file of any length.
    problem = problem if len(problem) <= LONGEST_PROBLEM else problem[:LONGEST_PROBLEM] + "..."
    return error.problem_mark.line + 1, f"not valid YAML: {problem}{context}; {remedy}"


def _shape_mistake(root: yaml.Node | None, example: str) -> Mistake:
    if root is None or not root.value:
        return 1, f"the file is empty; write lines such as {example}"
    remedy = f"write lines such as key: value, here {example}"
    return line_of(root), f"the file is {described(root)}; {remedy}"


def _key_mistakes(root: yaml.MappingNode) -> Iterator[Mistake]:
    yield from doubled(key for key, _ in root.value)
    for key, _ in root.value:
        if isinstance(key, yaml.CollectionNode) and key.tag != REFUSED:
            yield line_of(key), f"a key is {described(key)}; write a plain word"
        elif kind(key) == "merge":
            yield line_of(key), "the merge key << is not allowed; write the keys themselves"
