"""The configs that people write: one ``summary.yml`` per model, or a ``grid.yml``, and the operator whitelist.

Keys of a ``summary.yml`` that are lists make several cases of it: their product, each with a name. All mistakes of all
files are reported together. Programs change only what is done, and the names of the whitelist; every other byte stays.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

from opcost.errors import UserError, quoted
from opcost.measuring.conditions import CHANNELS_LAST, CONTIGUOUS
from opcost.measuring.precisions import AUTOCAST_DTYPES, DTYPES, TORCH_DEFAULT
from opcost.measuring.setting import ChosenConditions
from opcost.operators.attention import ANY_BACKEND
from opcost.operators.grids import AnyGrid, TupleList, place_of
from opcost.operators.model_inputs import DescribedInputs, Unit, Units
from opcost.operators.model_names import GRID, TORCHVISION, ModelName, UserCode
from opcost.operators.training import INFERENCE, TRAINING, Training
from opcost.operators.tuples import (
    ARGUMENTS,
    DEFAULT_SEED,
    FLOAT32,
    SIZE_IN_NAME,
    OperatorTuple,
    PlainValue,
    Structure,
    attending_by,
    model_operator,
    run_under,
    stored_as,
)
from opcost.progress import warn_left_out
from opcost.storage.code_files import find_code
from opcost.storage.files import UserFolders, replace_file
from opcost.storage.schemas import (
    OPERATOR_EXAMPLE,
    WHITELIST_EXAMPLE,
    GridFile,
    Summary,
    TuplesFile,
    Whitelist,
    described_inputs,
    without_size,
)
from opcost.storage.yaml_files import Document, Mistake, document_of, read_document, read_schema, user_error
from opcost.units import printable, some_of

SUMMARY_NAME, GRID_NAME = "summary.yml", "grid.yml"
HELP = "docs/usage.md shows an example under 'Configs'"
INPUTS_HELP = "describe its inputs in a summary.yml (docs/usage.md shows it under 'Arguments and inputs')"
SUMMARY_EXAMPLE = f"model_name: resnet18 ({HELP})"

LONGEST_FOLDER_BYTES = 255
"""The longest name of a folder on Linux. Each case has a folder."""


@dataclass(frozen=True)
class ModelConfig:
    """A case of a ``summary.yml``, which is a model at one input size, or a ``grid.yml``.

    ``name`` is the case's, without lists that of the folder. ``path`` is the file as the user named it. The
    ``model_name`` of a ``grid`` is the operator's behind ``grid:``, of a list ``grid:tuples``. A path in
    ``weights_name`` is absolute or begins with ``~``. ``input_size`` has the batch first; it is empty if there are
    ``inputs``, or the model comes with them. ``composites`` are besides those of all models. ``own_folder`` is the
    folder for files about the case, None for that of ``path``. ``given_by`` returns the option that gave a key, None
    for the file. ``tier`` says how soon a database is to hold it, 1 first.
    """

    name: str
    path: Path
    model_name: str
    weights_name: str | None
    input_size: tuple[int, ...]
    done: bool
    precision: str = TORCH_DEFAULT
    memory_format: str = CONTIGUOUS
    attention: str = ANY_BACKEND
    unit: Unit = Unit.SAMPLE
    seed: int = DEFAULT_SEED
    composites: tuple[str, ...] = ()
    arguments: tuple[tuple[str, PlainValue], ...] = ()
    inputs: DescribedInputs | None = None
    code: UserCode | None = None
    training: Training | None = None
    grid: AnyGrid | None = None
    tier: int | None = None
    own_folder: Path | None = field(default=None, compare=False, repr=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    lists: tuple[str, ...] = field(default=(), compare=False, repr=False)
    given_by: Callable[[str], str] | None = field(default=None, compare=False, repr=False)

    @property
    def mode(self) -> str:
        return INFERENCE if self.training is None else TRAINING

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

    @property
    def units(self) -> Units | None:
        """The units that costs of a run are divided by; None if the input has none, or is unknown."""
        number = self.unit.number_in(self.shape)
        return None if number is None else Units(number, self.unit)

    def option(self, key: str) -> str | None:
        return self.given_by(key) if self.given_by else None

    def where(self, key: str) -> str:
        """The place of a key, for a message: ``measurements/x/summary.yml:3: precision``."""
        return self.option(key) or f"{self.path}:{self.lines.get(key, 1)}: {key}"


def read_config(path: Path) -> tuple[Document, Summary | GridFile | TuplesFile | None, list[Mistake]]:
    """Return a file, its valid values (None without the keys that they need), and all mistakes."""
    if path.name != GRID_NAME:
        return _summary_in(read_document(path, SUMMARY_EXAMPLE))
    document = read_document(path, OPERATOR_EXAMPLE)
    if TupleList.key in document.values:
        return document, *read_schema(document, TuplesFile)
    return document, *read_schema(document, GridFile)


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
        whole = ModelConfig(
            name, path, f"{GRID}:{grid.name}", None, (), found.done, found.precision, grid=grid, tier=found.tier
        )
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
            input_size=case.input_size,
            # Names of cases that the lists had before have no effect.
            done=found.done if isinstance(found.done, bool) else name in found.done,
            precision=case.precision,
            memory_format=case.memory_format,
            attention=case.attention,
            unit=found.unit_of_costs,
            seed=found.seed,
            composites=tuple(found.composites),
            arguments=case.arguments,
            inputs=described_inputs(found.inputs),
            code=code,
            training=found.training,
            tier=found.tier,
            own_folder=own_folder / name if lists else own_folder,
            lines=_lines(document),
            lists=lists,
        )
        for name, case in found.cases(path.parent.name).items()
    ]


def _lines(document: Document) -> dict[str, int]:
    tuples = document.values.get(TupleList.key)
    items = range(len(tuples) if isinstance(tuples, list) else 0)
    of_items = {place_of(index): document.line((TupleList.key, index)) for index in items}
    return {key: document.line((key,)) for key in document.values} | of_items


def write_config(path: Path, text: str) -> None:
    """Write a new ``summary.yml``; a ``UserError`` if it could not be read, which would end other commands."""
    content = text.encode()
    try:
        _, _, mistakes = _summary_in(document_of(path, content, SUMMARY_EXAMPLE))
        if mistakes:
            raise user_error(path, mistakes)
    except UserError as error:
        raise UserError(*(f"not written, because it could not be read: {line}" for line in error.lines)) from None
    replace_file(path, content)


def load_whitelist(path: Path) -> tuple[str, ...]:
    """Return the operator names of ``operator_whitelist.yml``; a ``UserError`` has a line for each mistake."""
    found, mistakes = read_schema(read_document(path, WHITELIST_EXAMPLE), Whitelist)
    if mistakes or found is None:
        raise user_error(path, mistakes)
    return tuple(found.operators)


# Changes that keep every other byte

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
"""Names of cases that need no quotes. They have a suffix, so none is a word such as ``true``."""


def set_done(path: Path, case: str) -> bool:
    """Set ``done`` for a case in a ``summary.yml`` and keep every other byte; return whether that changed the file.

    Without lists (``case`` is the folder), and in a ``grid.yml``, ``done`` becomes ``true``. With lists the case's name
    is added to a list: a value that is added to the lists later is to be measured. Raises ``UserError`` if the file is
    not valid, does not have the case (any more), or cannot be written.
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
    """Set ``done`` to false for all cases in a ``summary.yml``, and keep every other byte; see ``set_done``."""
    document, found = _sound(path)
    if found.done:
        node = document.nodes["done",]
        is_block = isinstance(node, yaml.SequenceNode) and not node.flow_style
        # A list may begin in the column of the keys, but a word may not.
        _replace_text(document, node.start_mark.index, _end_of(document, node), " false" if is_block else "false")


def replace_whitelist(path: Path, names: Sequence[str]) -> None:
    """Replace the names in ``operator_whitelist.yml``, and keep the text around them; see ``set_done``."""
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
    """Return the position behind a value. For PyYAML block lists and block texts end where the next node begins."""
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        return _end_of(document, node.value[-1])
    end = int(node.end_mark.index)
    is_block = isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}
    return len(document.text[:end].rstrip()) if is_block else end


def _replace_text(document: Document, begin: int, end: int, text: str) -> None:
    content = document.text[:begin] + text + document.text[end:]
    try:
        replace_file(document.path.resolve(), content.encode())
    except OSError as error:
        raise UserError(f"{document.path}: cannot be written ({error.strerror}); make its folder writable") from None


# The folders of configs: the user's own, where files are written, and the shipped ones, which are only read

WHITELIST = "operator_whitelist.yml"

_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class ModelFolders:
    """Folders of models, each with a ``summary.yml``, or of grids, each with a ``grid.yml``, and a whitelist.

    ``own`` need not exist if there are ``shipped`` ones. A file in ``own`` replaces the shipped one of the same name.
    ``taken`` are names that no new folder may have, besides those of the folders.
    """

    own: Path
    shipped: Path | None = None
    taken: frozenset[str] = frozenset()
    _loaded: dict[tuple[Path, Path], list[ModelConfig]] | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(folders: UserFolders) -> ModelFolders:
        return ModelFolders(folders.measurements, folders.shipped_measurements)

    def read_once(self) -> ModelFolders:
        """Return the same folders for a command that changes no config: each is read at most once."""
        return self if self._loaded is not None else replace(self, _loaded={})

    def _load(self, folder: str, check: Callable[[ModelConfig], list[str]] | None = None) -> list[ModelConfig]:
        place, known = (self.path_of(folder), self.own / folder), self._loaded if check is None else None
        if known is None:
            return load_config(*place, check)
        if place not in known:
            known[place] = load_config(*place)
        return known[place]

    def configs(
        self, patterns: Sequence[str], check: Callable[[ModelConfig], list[str]] | None = None
    ) -> list[ModelConfig]:
        """Return the chosen cases: sorted by folder, those of a folder in the order of its lists.

        ``patterns`` are names of folders, for all their cases, or of cases, with or without the input size; paths to
        them or to a ``summary.yml`` or ``grid.yml``; or globs; all folders if empty. ``check``: see ``load_config``.
        Raises UserError: with one line for each mistake in any chosen file and for each pattern that matches nothing.
        """
        chosen, lines = self._choose(patterns or ["*"])
        configs, mistakes = self.read(list(chosen), check)
        if lines or mistakes:
            raise UserError(*lines, *mistakes)
        return [config for config in configs if any(_is_meant(one, config) for one in chosen[config.config_name])]

    def readable(self, with_grids: bool = False) -> list[ModelConfig]:
        """Return the cases of all models and warn of configs with a mistake; a ``UserError`` if none is left."""
        configs, lines = self.read(self.names())
        models = [config for config in configs if with_grids or config.grid is None]
        if not models:
            raise UserError(*(lines or [f"{self.own}: contains grids and no model; add one ({HELP})"]))
        for line in lines:
            warn_left_out(line)
        return models

    def read(
        self, folders: Sequence[str], check: Callable[[ModelConfig], list[str]] | None = None
    ) -> tuple[list[ModelConfig], list[str]]:
        """Return the cases of these folders, and a line for each mistake in others, such as another folder's name."""
        configs: list[ModelConfig] = []
        lines: list[str] = []
        for folder in folders:
            try:
                configs.extend(self._load(folder, check))
            except UserError as error:
                lines.extend(error.lines)
        collisions = self._collisions(configs)
        lines.extend(collisions.values())
        return [config for config in configs if config.config_name not in collisions], lines

    def sound_configs(self) -> list[ModelConfig]:
        with suppress(UserError):
            return self.read(self.names())[0]
        return []

    def names(self) -> list[str]:
        names = set(self.shipped_names())
        if self.shipped is None or self.own.is_dir():
            names.update(_folder_names(self.own))
        if not names:
            raise UserError(f"{self.own}: contains no model's folder; add one ({HELP})")
        return sorted(names)

    def shipped_names(self) -> list[str]:
        return [] if self.shipped is None else _folder_names(self.shipped)

    def is_free(self, name: str) -> bool:
        return name not in self.taken and not self.path_of(name).parent.exists()

    def has_any(self, pattern: str) -> bool:
        return bool(self._choose([pattern])[0])

    def is_meant(self, config: ModelConfig, pattern: str) -> bool:
        return _is_meant(self.wanted_name(pattern), config)

    def is_single(self, config: ModelConfig, pattern: str) -> bool:
        """Return whether a pattern means a case, and is neither a glob nor the name of the folder of several cases."""
        return not is_glob(pattern) and _means_case(self.wanted_name(pattern), config)

    def is_named(self, config: ModelConfig, pattern: str) -> bool:
        """Return whether a pattern is the whole name of a case or of its folder, or a path to one of them."""
        return self.wanted_name(pattern) in {config.name, config.config_name, f"{config.config_name}/{config.name}"}

    def path_of(self, name: str) -> Path:
        """Return the path of a model's ``summary.yml`` or of a ``grid.yml``; the user's own comes first."""
        folders = [self.own] if self.shipped is None else [self.own, self.shipped]
        # If a folder has both files, that is a mistake of the grid.
        paths = [folder / name / file for folder in folders for file in (GRID_NAME, SUMMARY_NAME)]
        return next((path for path in paths if path.exists()), paths[1])

    @property
    def whitelist(self) -> Path:
        shipped, own = self.shipped and self.shipped / WHITELIST, self.own / WHITELIST
        return shipped if shipped and shipped.exists() and not own.exists() else own

    def own_copy(self, path: Path) -> Path:
        """Return the path in ``own`` of one of these files: a copy of the shipped one, unless ``own`` has the file."""
        if self.shipped is None or not path.is_relative_to(self.shipped):
            return path
        copied = self.own / path.relative_to(self.shipped)
        if not copied.exists():
            replace_file(copied, path.read_bytes())
        return copied

    def wanted_name(self, pattern: str) -> str:
        """Return the name or the glob of a pattern; of a path into these folders ``FOLDER``, or ``FOLDER/CASE``."""
        if "/" not in pattern:
            return pattern
        path = Path(pattern)
        folder = path.parent if path.name in (SUMMARY_NAME, GRID_NAME) else path
        real = {os.path.realpath(one) for one in (self.own, self.shipped) if one is not None}
        # The path as written comes first, because a model's folder may be a link.
        for reading in (folder, Path(os.path.realpath(folder))):
            if os.path.realpath(reading.parent) in real:
                return reading.name
            if os.path.realpath(reading.parent.parent) in real:
                return f"{reading.parent.name}/{reading.name}"
        # A path elsewhere must not match a folder of the same name.
        return os.path.realpath(folder) if os.path.exists(folder) else str(folder)

    def _choose(self, patterns: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
        """Return the chosen folders with the names and globs that mean them, and a line for each other pattern."""
        chosen: dict[str, list[str]] = {}
        lines = []
        folders = self.names()
        for pattern in patterns:
            wanted, has_any = self.wanted_name(pattern), False
            begin = _GLOB.split(wanted)[0].rpartition("/")[2]
            for folder in folders:
                # Configs are read only if one of their cases may have a name that begins so.
                base = without_size(folder)
                may_be = begin.startswith(base) or base.startswith(begin)
                if _matches(folder, wanted) or (may_be and any(_is_meant(wanted, one) for one in self._listed(folder))):
                    chosen.setdefault(folder, []).append(wanted)
                    has_any = True
            if not has_any:
                lines.append(self._no_match(pattern, wanted, folders))
        return dict(sorted(chosen.items())), lines

    def _listed(self, folder: str) -> list[ModelConfig]:
        """Return the cases of a config with lists; none if it has no lists, or a mistake."""
        try:
            return [config for config in self._load(folder) if config.lists]
        except UserError:
            return []

    def _collisions(self, configs: Sequence[ModelConfig]) -> dict[str, str]:
        """Return an error line for each of these configs with a case whose name another folder or its case has."""
        listed = [config for config in configs if config.lists]
        owners = {folder: folder for folder in self.names()} if listed else {}
        for folder in sorted(owners.keys() - {config.config_name for config in configs}):
            if any(config.name.startswith(without_size(folder)) for config in listed):
                for other in self._listed(folder):
                    owners.setdefault(other.name, folder)
        lines: dict[str, str] = {}
        for config in listed:
            owner = owners.setdefault(config.name, config.config_name)
            if owner != config.config_name:
                text = f"{self.path_of(owner)} also has the name of the case {config.name}; rename a folder"
                lines.setdefault(config.config_name, f"{config.where(config.lists[0])}: {text}")
        return lines

    def _no_match(self, pattern: str, wanted: str, folders: list[str]) -> str:
        if not pattern:
            return f"{self.own}: the model's name '' is empty; omit it for all models, or write a folder's name"
        begun = [f"'{wanted}*'"] if any(name.startswith(wanted) for name in folders) else []
        cases = [
            case.name for folder in folders if wanted.startswith(without_size(folder)) for case in self._listed(folder)
        ]
        names = dict.fromkeys([*folders, *(SIZE_IN_NAME.sub("", name) for name in folders), *cases])
        close = begun or difflib.get_close_matches(wanted, names)
        remedy = f"did you mean {', '.join(close)}?" if close else f"there are {some_of(folders, 8)}"
        where = self.own if self.shipped is None else f"{self.own} and the shipped models"
        return f"{where}: no folder matches {quoted(pattern)}; {printable(remedy)}"


def _matches(name: str, wanted: str) -> bool:
    """Return whether a name, with or without its input size, is the wanted one or matches the glob."""
    return any(wanted == text or fnmatchcase(text, wanted) for text in (name, SIZE_IN_NAME.sub("", name)))


def is_glob(pattern: str) -> bool:
    """Return whether a pattern may match several folders, and is no plain name."""
    return _GLOB.search(pattern) is not None


def _is_meant(wanted: str, config: ModelConfig) -> bool:
    return _matches(config.config_name, wanted) or _means_case(wanted, config)


def _means_case(wanted: str, config: ModelConfig) -> bool:
    return _matches(f"{config.config_name}/{config.name}" if "/" in wanted else config.name, wanted)


def _folder_names(measurements: Path) -> list[str]:
    try:
        if not measurements.is_dir():
            raise UserError(f"{measurements}: no such folder; name the folder with --measurements DIR")
        names = [entry.name for entry in measurements.iterdir() if entry.is_dir()]
        return [name for name in names if not name.startswith((".", "__"))]
    except OSError as error:
        remedy = "make it readable, or name another folder with --measurements DIR"
        raise UserError(f"{measurements}: cannot be listed ({error.strerror}); {remedy}") from None


def chosen_by(config: ModelConfig) -> ChosenConditions:
    return ChosenConditions(config.precision, config.memory_format, config.attention)


def under(config: ModelConfig, chosen: ChosenConditions) -> ModelConfig:
    """Return a config with other conditions, which need not have a folder."""
    return replace(config, **vars(chosen))


def model_tuple(config: ModelConfig) -> OperatorTuple:
    """Return the tuple that describes a config's model as a whole, or its grid."""
    if config.grid is not None:
        return config.grid.model
    arguments = ((ARGUMENTS, Structure("dict", config.arguments)),) if config.arguments else ()
    further = (*(() if config.code is None else config.code.parameters), *arguments)
    model = model_operator(config.model_name, config.weights_name, config.input_size, config.seed, further)
    if config.inputs is not None:
        model = config.inputs.given_to(model)
    stored = stored_as(model, DTYPES.get(config.precision, FLOAT32), config.memory_format == CHANNELS_LAST)
    under = run_under(stored, AUTOCAST_DTYPES.get(config.precision))
    under = attending_by(under, None if config.attention == ANY_BACKEND else config.attention)
    return under if config.training is None else config.training.of(under)
