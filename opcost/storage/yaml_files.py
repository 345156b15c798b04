"""YAML files that people edit and that may be hostile: plain values with the line of each, checked by a schema.

PyYAML is too lenient for them: it keeps the last of two equal keys, follows aliases and builds the types that tags
name. Here all of these are mistakes. All mistakes of a file are reported together, each with its line.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from opcost.errors import SHOWN_CHARACTERS, UserError, quoted, shortened
from opcost.units import number_of, printable

MAXIMUM_BYTES = 64_000
MAXIMUM_DEPTH = 8
MISTAKES_SHOWN = 20
"""The most mistakes of a file that are reported one by one: 64 kB can have 12,000."""

REFUSED = "refused"
"""The tag of a node with a reported mistake, so that its value is not reported again."""

Mistake: TypeAlias = tuple[int, str]
"""A line number from 1, and the mistake there with its remedy."""

Place: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")
_NOUNS = {"bool": "a boolean", "int": "a number", "float": "a number", "timestamp": "a date"}


@dataclass(frozen=True)
class Document:
    """A file that is one YAML mapping: its plain values, and the mistakes that do not depend on a schema.

    ``nodes`` are those of the values, ``keys`` those of their keys. ``refused`` keys have a mistake.
    """

    path: Path
    text: str
    values: dict[str, Any] = field(default_factory=dict)
    nodes: dict[Place, yaml.Node] = field(default_factory=dict)
    keys: dict[Place, yaml.Node] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    refused: set[str | int] = field(default_factory=set)

    def line(self, place: Place) -> int:
        """The line of a value; of a key in the file itself, that of the key; 1 if it is not there."""
        node = (self.keys if len(place) == 1 else self.nodes).get(place)
        return 1 if node is None else _line_of(node)

    def note(self, node: yaml.Node, place: Place, text: str) -> None:
        self.mistakes.append((_line_of(node), ": ".join([*_names(place), text])))
        self.refused.update(place[:1])

    def value(self, node: yaml.Node, place: Place = ()) -> Any:
        self.nodes[place] = node
        if node.tag == REFUSED:
            self.refused.update(place[:1])
            return None
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        return self._mapping(node, place) if isinstance(node, yaml.MappingNode) else self._scalar(node, place)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            inner = (*place, key.value)
            if key.tag == REFUSED:
                self.refused.update(place[:1])
            elif not isinstance(key, yaml.ScalarNode) or not _KEY.fullmatch(key.value):
                self.note(key, place, f"{described(key)} is no key; write a plain word")
            elif key.value in found:
                lines = f"lines {_line_of(self.keys[inner])} and {_line_of(key)}"
                self.note(key, place, f"{shown(key.value)}: given twice, in {lines}; keep one")
            else:
                self.keys[inner] = key
                found[key.value] = self.value(value, inner)
        return found

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        # The last part of the tag: str, int, bool, null, float, timestamp, ...
        kind, text = node.tag.rpartition(":")[2], node.value
        if kind == "null":
            return None
        if kind == "bool":
            return yaml.SafeLoader.bool_values[text.lower()]
        if kind == "int" and _INTEGER.fullmatch(text):
            return int(text)
        is_number = getattr(node, "style", None) is None and _NUMBER.fullmatch(text)
        if kind == "str" and not is_number:
            return text
        # PyYAML reads 1e-3 as a text.
        if kind in ("float", "str") and is_number and math.isfinite(float(text)):
            return float(text)
        remedy = f"write a number in digits, or a text in quotes ({quoted(text)})"
        return self.note(node, place, f"the value is {described(node)}; {remedy}")


def read_document(path: Path, example: str) -> Document:
    """Return a file's values; a ``UserError``, which shows an ``example`` of a line, if it is no mapping in YAML."""
    try:
        if not path.is_file():
            where = "run in the root of the repository, name another folder with --measurements"
            raise UserError(f"{path}: no such file; {where}, or write it with a line such as {example}")
        with path.open("rb") as file:
            content = file.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); make it readable") from None
    return document_of(path, content, example)


def document_of(path: Path, content: bytes, example: str) -> Document:
    """Return the values of a file with a content, whether it is written or not; see ``read_document``."""
    if len(content) > MAXIMUM_BYTES:
        raise UserError(f"{path}: is larger than {MAXIMUM_BYTES // 1000} kB; keep only its keys and short comments")
    try:
        # With its byte order mark and line endings, so that it encodes to the same bytes.
        text = content.decode()
        root, mistakes = _compose(text)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise user_error(path, [(line, "the text is not UTF-8; save the file as UTF-8")]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"not valid YAML: the character {chr(error.character)!r} is not allowed; remove it"
        raise user_error(path, [(line, problem)]) from None
    except yaml.MarkedYAMLError as error:
        # PyYAML gives the position.
        mark: Any = error.problem_mark
        context = f" ({error.context} from line {error.context_mark.line + 1})" if error.context_mark else ""
        # It may quote a word of the file of any length.
        problem = shortened(str(error.problem))
        text = f"not valid YAML: {problem}{context}; change it to lines such as {example}, indented by spaces"
        raise user_error(path, [(mark.line + 1, text)]) from None
    if not isinstance(root, yaml.MappingNode) or not root.value:
        line = _line_of(root) if root and root.value else 1
        found = described(root) if root and root.value else "empty"
        mistakes.append((line, f"the file is {found}; write lines such as {example}"))
        raise user_error(path, mistakes)
    document = Document(path, text, mistakes=mistakes)
    document.values.update(document.value(root) or {})
    return document


def user_error(path: Path, mistakes: Iterable[Mistake]) -> UserError:
    """Return the error with a file's first mistakes, in the order of their lines, and the number of the others."""
    first, more = (found := sorted(set(mistakes)))[:MISTAKES_SHOWN], found[MISTAKES_SHOWN:]
    if more:
        text = f"{number_of(len(more), 'more mistake')} from here on; fix the first ones"
        first.append((more[0][0], text))
    return UserError(*(f"{path}:{line}: {printable(text)}" for line, text in first))


def described(node: yaml.Node) -> str:
    """Return a description of a node's value: ``the text '3'``, ``NO, in YAML a boolean``, ``empty``."""
    if isinstance(node, yaml.CollectionNode):
        return "a mapping" if isinstance(node, yaml.MappingNode) else f"a list of {len(node.value)}"
    kind = node.tag.rpartition(":")[2]
    if kind == "str":
        return f"the text {quoted(node.value)}"
    return (node.value or "empty") if kind == "null" else f"{shown(node.value)}, in YAML {_NOUNS.get(kind, 'no text')}"


def shown(text: str) -> str:
    """Return a plain word unchanged, any other text in quotes."""
    is_plain = text.isascii() and text.isprintable() and " " not in text and 0 < len(text) <= SHOWN_CHARACTERS
    return text if is_plain else quoted(text)


def _line_of(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _names(place: Iterable[str | int]) -> list[str]:
    return [f"item {part + 1}" if isinstance(part, int) else shown(part) for part in place]


class _PlainLoader(yaml.SafeLoader):
    """Composes nodes; anchors, tags (of any type) and aliases (of thousands of nodes) are mistakes."""

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
        found = []
        if isinstance(event, yaml.AliasEvent):
            found = [f"the alias *{shown(str(event.anchor))} is not allowed; write the value itself"]
            event = yaml.ScalarEvent(None, REFUSED, (False, False), "", event.start_mark, event.end_mark)
        else:
            if event.anchor is not None:
                found = [f"the anchor &{shown(event.anchor)} is not allowed; remove it"]
            if event.tag is not None:
                found.append(f"the tag {shown(event.tag)} is not allowed; remove it")
            elif isinstance(event, yaml.ScalarEvent) and re.search("[\ud800-\udfff]", event.value):
                found.append(f"{quoted(event.value)} has half a character; write the character itself")
            if found:
                event.anchor, event.tag = None, REFUSED
        self.mistakes += [(_line_of(event), text) for text in found]
        return event


def _compose(text: str) -> tuple[yaml.Node | None, list[Mistake]]:
    """Return the root of the first document (None if there is no content), and the mistakes found."""
    loader = _PlainLoader(text)
    try:
        root = loader.get_node() if loader.check_node() else None
        if loader.check_node():
            second = loader.peek_event()  # type: ignore[no-untyped-call]
            loader.mistakes.append((_line_of(second), "a second document begins here; keep only one"))
    except (ValueError, OverflowError):
        problem = "a number or an escape is out of range"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=loader.get_mark()) from None
    return root, loader.mistakes


# Schemas


class Schema(BaseModel):
    """The schema of a file; descriptions of fields are remedies, and ``unsupported`` keys (lower case) a reason."""

    unsupported: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())

    def mistakes(self, given: set[str]) -> Iterator[tuple[Place, str]]:
        """Yield the mistakes between keys, each with its place and remedy; ``given`` are the keys of the file."""
        yield from ()


AnySchema = TypeVar("AnySchema", bound=Schema)
Value = TypeVar("Value")

ONE, SEVERAL = Tag("<one>"), Tag("<several>")
BY_LIST = Discriminator(lambda value: SEVERAL.tag if isinstance(value, list) else ONE.tag)
OneOrSeveral: TypeAlias = Annotated[
    Annotated[Value, ONE] | Annotated[list[Value], Field(min_length=1), SEVERAL], BY_LIST
]


def read_schema(document: Document, schema: type[AnySchema]) -> tuple[AnySchema | None, list[Mistake]]:
    """Return a file's values and all mistakes. A key with a mistake has its default; None if it has none."""
    known = schema.model_fields
    absent = [key for key in known if key not in document.values]
    unknown = [key for key in document.values if key not in known and key.lower() not in schema.unsupported]
    longer = {key: one for key in unknown for one in absent if one.startswith(f"{key}_")}
    meant = {key: close for key in unknown for close in difflib.get_close_matches(key, absent, n=1)} | longer
    given = {key: value for key, value in document.values.items() if key not in document.refused}
    mistakes = list(document.mistakes)
    try:
        found = schema.model_validate(given)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        # A misspelt key is reported once, not also as a missing one.
        known_places = [(key,) for key in (*document.refused, *meant.values())]
        mistakes += [_schema_mistake(one, document, schema, meant) for one in errors if one["loc"] not in known_places]
        wrong = {str(one["loc"][0]) for one in errors}
        try:
            found = schema.model_validate({key: value for key, value in given.items() if key not in wrong})
        except ValidationError:
            return None, mistakes
    further = found.mistakes({*document.values, *meant.values()})
    mistakes += [(document.line(place), ": ".join([*_names(place), text])) for place, text in further]
    return found, mistakes


def _schema_mistake(error: Any, document: Document, schema: type[Schema], meant: Mapping[str, str]) -> Mistake:
    """Return pydantic's error as a mistake at the value that it is about, or at the one that lacks a key."""
    place: Place = ()
    key = str(error["loc"][0])
    for part in error["loc"]:
        # The others are tags of unions.
        place = (*place, part) if (*place, part) in document.nodes else place
    line, names = document.line(place), ": ".join(_names(place))
    field_of_key = schema.model_fields.get(key)
    remedy = f"write {field_of_key.description if field_of_key else ''}"
    own = error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        return line, f"{': '.join(_names((*place, error['loc'][-1])))}: missing; {remedy}"
    if error["type"] == "extra_forbidden" and field_of_key is None:
        otherwise = schema.unsupported.get(key.lower(), f"the keys are {', '.join(schema.model_fields)}")
        return line, f"{names}: unknown key; {f'did you mean {meant[key]}?' if key in meant else otherwise}"
    if error["type"] == "extra_forbidden":
        return line, f"{names}: unknown key; {remedy}"
    if error["type"] == "value_error" and own:
        return line, f"{names}: {own}"
    node = document.nodes[place]
    if error["type"] == "literal_error":
        remedy = f"write one of {error['ctx']['expected']}".replace("'", "")
    if error["type"] == "string_type" and isinstance(node, yaml.ScalarNode) and node.value:
        remedy = f'put quotes round it ("{node.value[:SHOWN_CHARACTERS]}") if it is a name, else {remedy}'
    inner = ": ".join(_names(place[1:])) or "the value"
    return _line_of(node), f"{shown(key)}: {inner} is {described(node)}; {remedy}"
