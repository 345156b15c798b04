"""The YAML files that people write: one ``summary.yml`` per model and input size, and the operator whitelist.

PyYAML alone is too lenient for files that people edit: it keeps the last of two equal keys, reads ``NO`` as a boolean
and ``032`` as 26, and follows aliases. So a text is composed to nodes, which know their lines; the nodes are checked
and turned into plain values; pydantic holds the values against a schema; and each of its errors goes back to the line
of its node. All mistakes of all files come at once, one line each.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from opcost.atomic_file import replace_file
from opcost.errors import UserError

MAXIMUM_BYTES = 64_000
MAXIMUM_DEPTH = 8
SHOWN_CHARACTERS = 60
SUMMARY_NAME = "summary.yml"
HELP = "the README shows an example under 'Add a model'"


@dataclass(frozen=True)
class ModelConfig:
    """One model at one input size, as its ``summary.yml`` describes it.

    ``name`` is the folder's name, ``path`` the file as the user named it. ``weights_name`` None means random weights.
    ``input_size`` has the batch first and 2 to 6 positive numbers. ``precision`` is ``torch-default``, ``fp32`` or
    ``tf32``.
    """

    name: str
    path: Path
    model_name: str
    weights_name: str | None
    input_size: tuple[int, ...]
    done: bool
    precision: str = "torch-default"


def load_configs(measurements: Path, patterns: Sequence[str]) -> list[ModelConfig]:
    """Return the chosen models, sorted by name.

    ``patterns`` are names of folders in ``measurements``, or globs; none at all choose every folder. Folders whose
    name begins with a dot are ignored, and so are plain files.
    Raises UserError with one line for each mistake in any chosen file and for each pattern that matches nothing.
    """
    names, lines = _choose_names(measurements, patterns)
    configs = []
    for name in names:
        try:
            configs.append(_load_config(measurements / name / SUMMARY_NAME))
        except UserError as error:
            lines.extend(error.lines)
    if lines:
        raise UserError(*lines)
    return configs


def set_done(path: Path) -> bool:
    """Set ``done: true`` in a ``summary.yml`` and leave every other byte as it is; return whether that changed it.

    The file is replaced in one step, so that a reader or a kill never meets half a file; its mode is kept.
    Raises UserError if the file is not valid (it may have been edited since it was loaded) or cannot be written.
    """
    document = _read_document(path)
    if _validate(document, _Summary).done:
        return False
    _, node = document.entries["done"]
    text = document.text[: node.start_mark.index] + "true" + document.text[node.end_mark.index :]
    try:
        replace_file(path.resolve(), text.encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); make its folder writable") from None
    return True


def load_whitelist(path: Path) -> tuple[str, ...]:
    """Return the operator names of ``operator_whitelist.yml``, in the file's order.

    Raises UserError with one line for each mistake; a doubled name and an empty list are mistakes.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; write it with a line such as operators: [Conv2d, Linear]")
    document = _read_document(path)
    _, operators = document.entries.get("operators", (None, None))
    doubled = _doubled(operators.value, "operators: ") if isinstance(operators, yaml.SequenceNode) else []
    return tuple(_validate(replace(document, mistakes=[*document.mistakes, *doubled]), _Whitelist).operators)


class _Schema(BaseModel):
    """What a file may hold. A field's description and example become the remedy in an error line."""

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())


class _Summary(_Schema):
    model_name: str = Field(
        pattern=r"^\S+$", description="the model's name in torchvision", examples=["model_name: resnet18"]
    )
    weights_name: str | None = Field(
        pattern=r"^\S+$",
        description="random weights, or a name such as IMAGENET1K_V1",
        examples=["weights_name: null"],
    )
    input_size: list[Annotated[int, Field(gt=0)]] = Field(
        min_length=2,
        max_length=6,
        description="2 to 6 whole numbers above 0 in plain digits, batch first",
        examples=["input_size: [32, 3, 224, 224]"],
    )
    done: bool = Field(description="true or false, no quotes", examples=["done: false"])
    precision: Literal["torch-default", "fp32", "tf32"] = Field(
        default="torch-default", description="or fp32, or tf32", examples=["precision: torch-default"]
    )


class _Whitelist(_Schema):
    operators: list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]] = Field(
        min_length=1,
        description="class names without their modules, at least one",
        examples=["operators: [Conv2d, Linear]"],
    )


_SchemaType = TypeVar("_SchemaType", bound=_Schema)
_Mistake: TypeAlias = tuple[int, str]
"""A line, counted from 1, and what is wrong there with its remedy."""
_Entries: TypeAlias = "dict[str, tuple[yaml.Node, yaml.Node]]"
"""The nodes of the key and of the value, by key."""


@dataclass(frozen=True)
class _Document:
    """A file that is one YAML mapping, and the mistakes in it that are not a matter of the schema."""

    path: Path
    text: str
    entries: _Entries
    mistakes: list[_Mistake]


# Which folders


def _choose_names(measurements: Path, patterns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of the chosen folders, and an error line for each pattern that matches none."""
    folders = _folder_names(measurements)
    if not patterns:
        return folders, []
    chosen: set[str] = set()
    lines = []
    for pattern in patterns:
        matches = {name for name in folders if _matches(name, pattern.rstrip("/"))}
        chosen |= matches
        if not matches:
            lines.append(_no_match_line(measurements, pattern, folders))
    return sorted(chosen), lines


def _folder_names(measurements: Path) -> list[str]:
    if not measurements.is_dir():
        raise UserError(f"{measurements}: there is no such folder; name the folder with --measurements DIR")
    names = sorted(entry.name for entry in measurements.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise UserError(f"{measurements}: holds no folder with a model; add one ({HELP})")
    return names


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _no_match_line(measurements: Path, pattern: str, folders: list[str]) -> str:
    close = difflib.get_close_matches(pattern, folders)
    remedy = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(folders)}"
    return f"{measurements}: no folder matches {_quoted(pattern)}; {remedy}"


def _load_config(path: Path) -> ModelConfig:
    summary = _validate(_read_document(path), _Summary)
    return ModelConfig(
        name=path.parent.name,
        path=path,
        model_name=summary.model_name,
        weights_name=summary.weights_name,
        input_size=tuple(summary.input_size),
        done=summary.done,
        precision=summary.precision,
    )


# A file's text and nodes


def _read_document(path: Path) -> _Document:
    """Return a file's nodes; raises UserError with one line for what leaves no nodes to check."""
    text = _read_text(path)
    try:
        root, mistakes = _compose(text)
    except yaml.YAMLError as error:
        raise _user_error(path, [_syntax_mistake(error, text)]) from None
    if not isinstance(root, yaml.MappingNode):
        raise _user_error(path, [*mistakes, _shape_mistake(root)])
    entries, key_mistakes = _entries(root)
    return _Document(path, text, entries, [*mistakes, *key_mistakes])


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise UserError(f"{path}: there is no such file; write it ({HELP})")
        with path.open("rb") as file:
            content = file.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); make it readable") from None
    if len(content) > MAXIMUM_BYTES:
        raise UserError(f"{path}: is larger than {MAXIMUM_BYTES // 1000} kB; keep only its keys and short comments")
    return _decoded(path, content)


def _decoded(path: Path, content: bytes) -> str:
    """Return the text with its byte order mark and line endings, so that it encodes to the same bytes again."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _user_error(path, [(line, "the text is not UTF-8; save the file as UTF-8")]) from None


class _PlainLoader(yaml.SafeLoader):
    """Composes nodes; anchors, aliases and tags are noted as mistakes, and what they stand for is refused.

    An alias can stand for a thousand nodes and a tag for any type: neither has a use in a file of five keys.
    """

    REFUSED = "refused"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.mistakes: list[_Mistake] = []
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.next_event()
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            self._note(event, f"the alias *{event.anchor} is not allowed; write the value itself")
            self.anchors[event.anchor] = yaml.ScalarNode(self.REFUSED, "", mark, mark)
            return super().compose_node(parent, index)
        if event.anchor is not None:
            self._note(event, f"the anchor &{event.anchor} is not allowed; remove it")
            event.anchor = None
        return self._compose_nested(parent, index, event)

    def next_event(self) -> Any:
        """Return the next event and leave it there."""
        return self.peek_event()  # type: ignore[no-untyped-call]

    def _compose_nested(self, parent: yaml.Node | None, index: int, event: Any) -> yaml.Node | None:
        if self._depth == MAXIMUM_DEPTH:
            problem = f"nested deeper than {MAXIMUM_DEPTH} levels"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None:
            self._refuse(node, event)
        return node

    def _refuse(self, node: yaml.Node, event: Any) -> None:
        """Note what a node may not be: tagged, or half of a surrogate pair, which no file can hold."""
        if event.tag is not None:
            self._note(event, f"the tag {_shown(event.tag)} is not allowed; remove it")
        elif isinstance(node, yaml.ScalarNode) and re.search("[\ud800-\udfff]", node.value):
            self._note(event, f"{_quoted(node.value)} has half a character; write the character itself")
        else:
            return
        node.tag = self.REFUSED

    def _note(self, event: Any, text: str) -> None:
        self.mistakes.append((_line(event.start_mark), text))


def _compose(text: str) -> tuple[yaml.Node | None, list[_Mistake]]:
    """Return the root of the first document (None if there is no content), and the mistakes met on the way."""
    loader = _PlainLoader(text)
    try:
        return _first_document(loader), loader.mistakes
    except (ValueError, OverflowError):
        problem = "a number or an escape is out of range"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=loader.get_mark()) from None


def _first_document(loader: _PlainLoader) -> yaml.Node | None:
    root = loader.get_node() if loader.check_node() else None
    if loader.check_node():
        line = _line(loader.next_event().start_mark)
        loader.mistakes.append((line, "a second document begins here; keep only one"))
    return root


def _syntax_mistake(error: yaml.YAMLError, text: str) -> _Mistake:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return line, f"not valid YAML: the character {chr(error.character)!r} is not allowed; remove it"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return 1, f"not valid YAML: {_quoted(str(error))}; mend it ({HELP})"
    problem, remedy = error.problem, f"mend it ({HELP})"
    if error.context is not None and error.context_mark is not None:
        problem = f"{problem} ({error.context} from line {_line(error.context_mark)})"
    if text[error.problem_mark.index :].startswith("\t"):
        remedy = "replace the tab by spaces"
    return _line(error.problem_mark), f"not valid YAML: {problem}; {remedy}"


def _shape_mistake(root: yaml.Node | None) -> _Mistake:
    if root is None or not root.value:
        return 1, f"the file is empty; write its keys ({HELP})"
    return _line(root.start_mark), f"the file is {_described(root)}; write lines such as key: value ({HELP})"


def _entries(root: yaml.MappingNode) -> tuple[_Entries, list[_Mistake]]:
    """Return the nodes by key, the first of doubled keys, and the mistakes in the keys."""
    entries: _Entries = {}
    mistakes = _doubled(key for key, _ in root.value)
    for key, value in root.value:
        if key.tag == _PlainLoader.REFUSED:
            continue
        if not isinstance(key, yaml.ScalarNode):
            mistakes.append((_line(key.start_mark), f"a key is {_described(key)}; write a plain word"))
        elif _kind(key) == "merge":
            mistakes.append((_line(key.start_mark), "the merge key << is not allowed; write the keys themselves"))
        else:
            entries.setdefault(key.value, (key, value))
    return entries, mistakes


def _doubled(nodes: Iterable[yaml.Node], prefix: str = "") -> list[_Mistake]:
    """Return a mistake for each key or item that was there before; PyYAML would say nothing."""
    firsts: dict[str, int] = {}
    mistakes = []
    for node in nodes:
        if isinstance(node, yaml.ScalarNode) and node.tag != _PlainLoader.REFUSED:
            line = _line(node.start_mark)
            if node.value in firsts:
                lines = f"lines {firsts[node.value]} and {line}"
                mistakes.append((line, f"{prefix}{_shown(node.value)}: given twice, in {lines}; keep one"))
            firsts.setdefault(node.value, line)
    return mistakes


# Nodes against a schema


def _validate(document: _Document, schema: type[_SchemaType]) -> _SchemaType:
    """Return the file's values; raises UserError with every mistake in the file, those of the document included."""
    values = {key: _value(value) for key, (_, value) in document.entries.items()}
    try:
        validated = schema.model_validate(values)
    except ValidationError as error:
        mistakes = _schema_mistakes(error.errors(), document.entries, schema)
        raise _user_error(document.path, [*document.mistakes, *mistakes]) from None
    if document.mistakes:
        raise _user_error(document.path, document.mistakes)
    return validated


def _value(node: yaml.Node) -> object:
    """Return the plain value of a node; what no key accepts (a mapping, a date, 0x20, 1:30) stays a node."""
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    kind = _kind(node)
    if kind == "null":
        return None
    if kind == "bool":
        return yaml.SafeLoader.bool_values[node.value.lower()]
    if kind == "int" and re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,17})", node.value):
        return int(node.value)
    return node.value if kind == "str" else node


def _schema_mistakes(errors: list[ErrorDetails], entries: _Entries, schema: type[_Schema]) -> list[_Mistake]:
    """Turn pydantic's errors into mistakes; a key that is missing because it is misspelt is one mistake, not two."""
    keys = list(schema.model_fields)
    absent = [key for key in keys if key not in entries]
    unknown = [str(error["loc"][0]) for error in errors if error["type"] == "extra_forbidden"]
    meant = {key: difflib.get_close_matches(key, absent, n=1) for key in unknown}
    misspelt = {key for close in meant.values() for key in close}
    mistakes = []
    for error in errors:
        key = str(error["loc"][0])
        if key in meant:
            remedy = f"did you mean {meant[key][0]}?" if meant[key] else f"the keys are {', '.join(keys)}"
            mistakes.append((_line(entries[key][0].start_mark), f"{_shown(key)}: unknown key; {remedy}"))
        elif key in entries:
            mistakes.extend(_value_mistakes(error, entries[key][1], schema))
        elif key not in misspelt:
            mistakes.append((1, f"{key}: missing; {_remedy(schema, key)}"))
    return mistakes


def _value_mistakes(error: ErrorDetails, node: yaml.Node, schema: type[_Schema]) -> list[_Mistake]:
    """Return the mistake in a value or an item of it; none if the node is refused already."""
    key, *indexes = error["loc"]
    subject = "the value"
    for index in indexes:
        node, subject = node.value[index], f"item {int(index) + 1}"
    if node.tag == _PlainLoader.REFUSED:
        return []
    remedy = _remedy(schema, str(key))
    if error["type"] == "string_type" and isinstance(node, yaml.ScalarNode) and node.value:
        remedy = f'put quotes round it ("{node.value[:SHOWN_CHARACTERS]}") if it is a name, else {remedy}'
    return [(_line(node.start_mark), f"{key}: {subject} is {_described(node)}; {remedy}")]


def _remedy(schema: type[_Schema], key: str) -> str:
    field = schema.model_fields[key]
    return f"write {(field.examples or [key])[0]} ({field.description})"


# Words and lines


def _kind(node: yaml.Node) -> str:
    """Return the last part of a node's tag: ``str``, ``int``, ``bool``, ``null``, ``float``, ``timestamp``, ..."""
    return node.tag.rpartition(":")[2]


def _described(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return f"a list of {len(node.value)}"
    kind = _kind(node)
    if kind == "str":
        return f"the text {_quoted(node.value)}"
    if kind == "null":
        return node.value or "empty"
    nouns = {"bool": "a boolean", "int": "a number", "float": "a number", "timestamp": "a date"}
    return f"{_shown(node.value)}, in YAML {nouns.get(kind, 'no text')}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "...")


def _shown(text: str) -> str:
    is_plain = text.isascii() and text.isprintable() and " " not in text and 0 < len(text) <= SHOWN_CHARACTERS
    return text if is_plain else _quoted(text)


def _line(mark: yaml.Mark | None) -> int:
    return 1 if mark is None else mark.line + 1


def _user_error(path: Path, mistakes: Sequence[_Mistake]) -> UserError:
    return UserError(*(f"{path}:{line}: {text}" for line, text in sorted(set(mistakes))))
