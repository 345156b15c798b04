"""Tables and lines for people on a terminal: what a table is, how it fits a width, and what stands around it.

A column without any known value is left out. A table that is too wide first breaks its headings at spaces, then loses
columns, and at last has a block for each row. A word is a text between spaces, or a number with its unit:
``1.042 ± 0.002``, ``3 min 20 s``, ``98.1 %``. It is never broken in two, except one that is longer than the width.
All of it is Markdown instead, has no notes, or has more columns of an energy, as the ``Form`` of a command says.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from opcost.columns import by_column, columns_of
from opcost.invocation import command, command_line, is_program
from opcost.measuring.protocol import USUAL_OPTIONS
from opcost.operators.texts import parse_operator, short_form, short_inputs
from opcost.units import (
    UNKNOWN,
    gigaflop,
    megabytes,
    millijoules,
    milliseconds,
    percent,
    printable,
    significant,
    watts,
)
from opcost.version import __version__

if TYPE_CHECKING:
    # Only for types: the stages import torch.
    from opcost.comparing.conditions_side_by_side import OperatorSides
    from opcost.comparing.operator_costs import OperatorCost
    from opcost.measuring.conditions import Conditions
    from opcost.stages.info import DeviceInfo, Info
    from opcost.stages.make_configs import ConfigReport
    from opcost.stages.profile import ModelProfile, ProfiledOperator

T_contra = TypeVar("T_contra", contravariant=True)

ELLIPSIS = "…"
NEW_LINE = "\n"
LOG_WIDTH, PAGE_WIDTH = 160, 100
MINIMUM_WIDTH = 40

J_PER_KWH = 3.6e6

GAP = 2
"""Characters between two columns, and of the indentation of a block's lines."""

LINES_SHOWN = 15
"""The operators, and the kinds, that are shown unless another number is asked for."""

DOUBTFUL = "(!)"

READ_AS: Mapping[str, Callable[[Any], str]] = {
    "s": milliseconds,
    "J": millijoules,
    "W": watts,
    "1": partial(percent, digits=2),
}
"""The format of each unit; texts and counts are shown unchanged."""

# A token belongs to a plain number before it, possibly in parentheses or with a sign.
_NUMBER = re.compile(r"[^\w\s]*\d(?:[\d.,]*\d)?")
_OF_WORD_BEFORE = ("±", "%", DOUBTFUL)


def words(text: str) -> list[str]:
    return [word.strip() for word in _spaced_words(text)]


def _longest_word(text: str) -> int:
    return len(text) - len(text.lstrip()) + _longest(words(text))


def wrapped(text: str, width: int, hanging: int = 0) -> list[str]:
    """Return a text as lines of at most ``width`` characters; later lines are indented by ``hanging``.

    A word that is longer than a line is broken at its separators, or else shortened in the middle.
    """
    if cell_len(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in _spaced_words(text):
        if line and cell_len(line + word) <= width:
            line += word
            continue
        if line:
            lines.append(line)
        *full, line = _broken(" " * hanging + word.lstrip() if lines else word, width, hanging)
        lines += full
    return [*lines, line]


def shortened(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters, with an ellipsis in its middle if it is longer."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    end = (width - 1) // 2
    begin = width - 1 - end
    last = set_cell_size(text[::-1], end).rstrip()[::-1]
    # A character of two columns may leave one column less.
    return f"{set_cell_size(text, begin).rstrip()}{ELLIPSIS}{last.lstrip()}"


def _spaced_words(text: str) -> list[str]:
    """Return the words of a text, each with the spaces before it. Several spaces end a word in any case."""
    found: list[str] = []
    last = ""
    for token in re.findall(r"\s*\S+", text):
        bare = token.strip()
        if token == f" {bare}" and found and (bare in _OF_WORD_BEFORE or last == "±" or _NUMBER.fullmatch(last)):
            found[-1] += token
        else:
            found.append(token)
        last = bare
    return found


def _broken(word: str, width: int, hanging: int) -> list[str]:
    if cell_len(word) <= width:
        return [word]
    lines, line = [], ""
    # Each part has the separators behind it.
    for part in re.findall(r".+?(?:[^\w\s]+|_+|$)", word, re.DOTALL):
        if line and cell_len(line + part) > width:
            lines.append(line)
            line = " " * hanging
        line += part
        if cell_len(line) > width:
            line = shortened(line, width)
    return [*lines, line]


@dataclass(frozen=True)
class Column(Generic[T_contra]):
    """A column of a table of records: its title, and the text of a record's cell.

    ``drop`` is 0 for a column that every width shows. Of the others, the highest go first if the table is too wide, of
    equals the last. ``wraps`` is 0, or the width down to which the cells, which are texts, are broken at spaces.
    ``energy_j`` is the energy in J of a record for what stands behind the title's slash, None if it is no energy.
    """

    title: str
    text: Callable[[T_contra], str]
    align: Literal["left", "right"] = "right"
    drop: int = 0
    wraps: int = 0
    energy_j: Callable[[T_contra], float | None] | None = None


@dataclass(frozen=True)
class Form:
    """How tables and lines are printed: in Markdown, without notes, with what energies emit and cost, or to a page."""

    page: Page | None = None
    markdown: bool = False
    quiet: bool = False
    carbon_intensity: float | None = None
    price: float | None = None

    @property
    def rates(self) -> tuple[tuple[str, str, float], ...]:
        """Emission and price of a million times an energy: name, unit, and amount for each J of that energy."""
        of_kwh = (("CO2e", "g ", self.carbon_intensity), ("price", "", self.price))
        return tuple((name, unit, 1e6 * rate / J_PER_KWH) for name, unit, rate in of_kwh if rate is not None)

    @property
    def assumption(self) -> str:
        carbon = None if self.carbon_intensity is None else f"{self.carbon_intensity:g} g CO2e per kWh"
        price = None if self.price is None else f"a price of {self.price:g} per kWh"
        return f"at {' and '.join(filter(None, (carbon, price)))}, for the device's energy alone"


_USUAL_FORM = Form()
_FORM: ContextVar[Form] = ContextVar("form", default=_USUAL_FORM)


@contextmanager
def printed_as(form: Form) -> Iterator[None]:
    """Print all tables and lines in this form meanwhile."""
    token = _FORM.set(form)
    try:
        yield
    finally:
        _FORM.reset(token)


def is_quiet() -> bool:
    """Return whether only results, and warnings of wrong figures, are printed."""
    return _FORM.get().quiet


Table: TypeAlias = Sequence[Column[T_contra]]
"""A table of records; the first column has their names."""


def of_texts(*titles: str) -> Table[Sequence[str]]:
    """Return a table whose records are the texts of their cells."""
    return [Column(title, itemgetter(place), "right" if place else "left") for place, title in enumerate(titles)]


def keeping(table: Table[T_contra], title: str | None) -> Table[T_contra]:
    """Return a table that never leaves out the column of this title, which records are sorted by."""
    return [replace(column, drop=0) if column.title == title else column for column in table]


Filled: TypeAlias = tuple[Column[Any], list[str]]
"""A column with the text of each row."""

Line: TypeAlias = tuple[str, bool]
"""A line of a table, and whether it is a heading."""


class Drawn(NamedTuple):
    """A table that fits: its columns, and the titles of those left out, for their width or without known values."""

    columns: list[Filled]
    lines: list[Line]
    left_out: tuple[str, ...]
    unknown: tuple[str, ...]


def drawn(columns: Sequence[Filled], width: int, block: int) -> Drawn:
    """Return a table that fits a width in characters; ``block`` successive rows belong together."""
    first, *others = columns
    known = [first, *(one for one in others if set(one[1]) != {UNKNOWN})]
    unknown = tuple(column.title for column, cells in others if set(cells) == {UNKNOWN})
    kept = list(known)
    while (widths := _widths(kept, width)) is None:
        index = max(range(len(kept)), key=lambda index: (kept[index][0].drop, index))
        if not kept[index][0].drop:
            break
        del kept[index]
    left_out = tuple(one[0].title for one in known if not any(one is shown for shown in kept))
    lines = _blocks(kept, width, block) if widths is None else _table(kept, widths)
    return Drawn(kept, list(lines), left_out, unknown)


def _least_width(one: Filled) -> int:
    column, cells = one
    width = _longest(cells)
    if column.wraps:
        width = max([min(width, column.wraps), *map(_longest_word, cells)])
    return max(width, _longest_word(column.title))


def _widths(columns: Sequence[Filled], width: int) -> list[int] | None:
    widths = list(map(_least_width, columns))
    left = width - _total(widths)
    if left < 0:
        return None
    # Texts get the room first, then headings.
    for index, (column, cells) in sorted(enumerate(columns), key=lambda numbered: numbered[1][0].wraps == 0):
        more = min(left, _longest([column.title, *cells]) - widths[index])
        widths[index] += more
        left -= more
    return widths


def _table(columns: Sequence[Filled], widths: Sequence[int]) -> Iterator[Line]:
    """Yield the headings, which end in one line, a rule, and the rows."""

    def joined(cells: Iterable[str]) -> str:
        padded = []
        for cell, width, (column, _) in zip(cells, widths, columns, strict=True):
            spaces = " " * (width - cell_len(cell))
            padded.append(cell + spaces if column.align == "left" else spaces + cell)
        return (" " * GAP).join(padded).rstrip()

    titles = [wrapped(column.title, width) for (column, _), width in zip(columns, widths, strict=True)]
    height = max(map(len, titles))
    for line in zip(*([""] * (height - len(title)) + title for title in titles), strict=True):
        yield joined(line), True
    yield "─" * _total(widths), False
    for row in zip(*(cells for _, cells in columns), strict=True):
        broken = [
            wrapped(cell, width, len(cell) - len(cell.lstrip())) if column.wraps else [cell]
            for (column, _), cell, width in zip(columns, row, widths, strict=True)
        ]
        for parts in zip_longest(*broken, fillvalue=""):
            yield joined(parts), False


def _blocks(columns: Sequence[Filled], width: int, block: int) -> Iterator[Line]:
    """Yield a block for each row, or for several that belong together: the names, and a line for each other column."""
    (_, names), *others = columns
    titles = [column.title for column, _ in others]
    rows = [tuple(cells[number] for _, cells in others) for number in range(len(names))]
    slots = [_longest(cell for row in rows[number::block] for cell in row) for number in range(block)]
    label = _longest(titles)
    are_beside = block > 1 and label + sum(slots) + GAP * (block + 1) <= width
    for begin in range(0, len(rows), block):
        for name in filter(None, names[begin : begin + block]):
            yield from ((line, True) for line in wrapped(name, width, GAP))
        own = rows[begin : begin + block]
        if are_beside:
            own = [tuple((" " * GAP).join(map(set_cell_size, cells, slots)) for cells in zip(*own, strict=True))]
        for row in own:
            for title, cell in zip(titles, row, strict=True):
                yield from ((line.rstrip(), False) for line in _value(title, cell, label, width))


def _value(title: str, cell: str, label: int, width: int) -> list[str]:
    """Return the lines of a value in a block: beside its title if its words fit there, else below."""
    if not cell.strip():
        return []
    room = width - label - 2 * GAP
    if _longest_word(cell) <= room:
        begin, *others = wrapped(cell, room)
        return [f"{'':{GAP}}{title:{label}}{'':{GAP}}{begin}", *(" " * (label + 2 * GAP) + line for line in others)]
    indented = ((title, GAP), (cell, 2 * GAP))
    return [" " * indent + line for text, indent in indented for line in wrapped(text, width - indent)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _longest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


@dataclass(frozen=True)
class Shown:
    """A table of a page under its title."""

    title: str
    drawn: Drawn


@dataclass(frozen=True)
class Page:
    """Tables and lines that are kept for a notebook, instead of printed; it has no commands of a shell.

    Tables fit ``width`` characters and have at most ``rows`` rows.
    """

    width: int
    rows: int
    parts: list[Shown | str] = field(default_factory=list)

    def keep(self, show: Callable[[], object]) -> Page:
        """Keep all that a function prints by the functions of this module; return this page."""
        with printed_as(Form(page=self)):
            show()
        return self

    def add(self, title: str, columns: Sequence[Filled], block: int) -> set[str]:
        number, most = len(columns[0][1]), self.rows - self.rows % block
        shown = drawn([(column, cells[:most]) for column, cells in columns], self.width, block)
        self.parts.append(Shown(title, shown))
        if number > most:
            self.parts.append(f"{most // block} of {number // block} rows; to_frame() or found has all.")
        self.parts.extend(_left_out(shown, "to_frame() or found has them"))
        return {*shown.left_out, *shown.unknown}

    def __str__(self) -> str:
        lines = []
        for part in self.parts:
            if isinstance(part, Shown):
                lines += [*wrapped(part.title, self.width), *(line for line, _ in part.drawn.lines), ""]
            else:
                lines += wrapped(part, self.width)
        return "\n".join(lines)


def _left_out(shown: Drawn, remedy: str) -> list[str]:
    left_out, unknown = ", ".join(shown.left_out), ", ".join(shown.unknown)
    notes = [f"Not shown at this width: {left_out}; {remedy}."] * bool(shown.left_out)
    return notes + [f"Without a known value: {unknown}."] * bool(shown.unknown)


def print_table(title: str, table: Table[T_contra], records: Sequence[T_contra], block: int = 1) -> set[str]:
    """Print a table on stdout that fits its width, and lines with the columns that it leaves out; return their titles.

    Without a terminal it has all columns with a known value. ``block`` successive records belong together. An energy
    has columns of what it emits and costs behind it, on request.
    """
    form = _FORM.get()
    if form.rates and any(column.energy_j for column in table):
        title, table = f"{title}; {form.assumption}", list(_with_rates(table, form))
    columns: list[Filled] = [(column, [column.text(one) for one in records]) for column in table]
    if form.page is not None:
        return form.page.add(title, columns, block)
    if form.markdown:
        return _print_markdown(title, columns)
    console, width = _stdout(), _width()
    if not _has_width():
        width = max(width, _total([_least_width(one) for one in columns]))
        console = Console(width=width)
    shown = drawn(columns, width, block)
    for line in wrapped(title, width):
        console.print(Text(line, "bold"))
    for text, is_heading in shown.lines:
        console.print(Text(text, "bold" if is_heading else ""), soft_wrap=True)
    print()
    for note in () if form.quiet else _left_out(shown, "a wider terminal or --json has them"):
        console.print(Text("\n".join(wrapped(note, width)), "dim"))
    return {*shown.left_out, *shown.unknown}


def _with_rates(table: Table[T_contra], form: Form) -> Iterator[Column[T_contra]]:
    def text(energy_j: Callable[[T_contra], float | None], rate: float, one: T_contra) -> str:
        return _priced(energy_j(one), rate)

    for column in table:
        yield column
        if column.energy_j is not None:
            unit = column.title.partition("/")[2]
            for name, unit_of_rate, rate in form.rates:
                title = f"{unit_of_rate}{name}/million {unit}s"
                yield Column(title, partial(text, column.energy_j, rate), drop=column.drop)


def _priced(energy_j: float | None, rate: float) -> str:
    return UNKNOWN if energy_j is None else significant(rate * energy_j)


def print_priced(energy_j: float | None, unit: str) -> None:
    """Print emission and price of the energy of a unit, such as a sample, on request."""
    form = _FORM.get()
    if form.rates:
        costs = " and ".join(
            f"{name} {_priced(energy_j, rate)} {of_rate}".strip() for name, of_rate, rate in form.rates
        )
        print_line(f"A million {unit}s: {costs}, {form.assumption}.")


def _print_markdown(title: str, columns: Sequence[Filled]) -> set[str]:
    known = [columns[0], *(one for one in columns[1:] if set(one[1]) != {UNKNOWN})]

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cell.strip().replace('|', chr(92) + '|') for cell in cells)} |"

    rules = ("---" if column.align == "left" else "--:" for column, _ in known)
    rows = zip(*(cells for _, cells in known), strict=True)
    print(f"**{title}**\n", line(column.title for column, _ in known), line(rules), *map(line, rows), "", sep="\n")
    return {column.title for column, _ in columns} - {column.title for column, _ in known}


def print_line(*texts: str, hanging: int = 0, command: str = "") -> None:
    """Print lines on stdout; if the width is known, wrapped at words, later parts of each indented by ``hanging``.

    A ``command`` at the end of a text is then on a line of its own if all does not fit on one. In Markdown each text is
    a paragraph.
    """
    form = _FORM.get()
    if form.markdown and form.page is None:
        print("".join(f"{printable(text).strip()}\n\n" for text in texts if text.strip()), end="")
        return
    for text in (printable(text, kept=NEW_LINE) for text in texts):
        if form.page is not None:
            form.page.parts.extend([text.strip()] * bool(text.strip()))
            continue
        lines = [text]
        if _has_width() and cell_len(text) > _width():
            before = text.removesuffix(command).rstrip()
            lines = [*wrapped(before, _width(), hanging), *([f"  {command}"] if command and before != text else [])]
        print("\n".join(lines))


def print_note(*texts: str, warnings: Iterable[str] = (), hanging: int = 0) -> None:
    """Print lines that explain figures, as ``print_line`` does; if notes are not wanted, only ``warnings`` in them."""
    kept = set(warnings)
    print_line(*(text for text in texts if text in kept or not is_quiet()), hanging=hanging)


def print_commands(commands: Sequence[tuple[str, str]], title: str = "") -> None:
    """Print commands that can be pasted, each with its purpose: behind it, or above it if one is too wide.

    If notes are not wanted, nothing is printed. In Markdown they are a block of code.
    """
    form = _FORM.get()
    if form.quiet or form.page is not None:
        return
    print_line(*[f"\n{title}:"] * bool(title))
    if form.markdown:
        print("```", *(f"{command}   # {purpose}" for command, purpose in commands), "```", "", sep="\n")
        return
    longest = max(len(command) for command, _ in commands)
    lines = [f"  {command:<{longest}}   # {purpose}" for command, purpose in commands]
    if _has_width() and max(map(cell_len, lines)) > _width():
        lines = [
            line
            for command, purpose in commands
            for line in (*(f"  # {part}" for part in wrapped(purpose, _width() - 4)), f"  {command}")
        ]
    print("\n".join(lines))


def steps_of_list(name: str, measuring: str) -> list[tuple[str, str]]:
    """Return the commands that measure a list of tuples, each with its purpose; the last one's is ``measuring``."""
    return [
        (command("count", name, "--meta"), "run each tuple on shapes"),
        (command("filter", name), "keep those of the whitelist"),
        (command("measure", name, *USUAL_OPTIONS), measuring),
    ]


def print_origin_line(command: str, facts: str) -> None:
    """Print a dim line with the command that made a table, and with facts; facts begin a line if one is too short."""
    form = _FORM.get()
    if form.page is not None:
        form.page.parts.append(f"{command} ({facts})" if facts else command)
        return
    if form.quiet or form.markdown:
        print_note(f"`{command}`{f' ({facts})' if facts else ''}")
        return
    width = _width() if _has_width() else len(command) + len(facts) + 3
    line = f"{command} ({facts})" if facts else command
    lines = [line] if len(line) <= width else [*wrapped(command, width, hanging=2), *wrapped(facts, width)]
    _stdout().print(Text("\n".join(lines), "dim"), soft_wrap=True)


def _stdout() -> Console:
    return Console() if _has_width() else Console(width=LOG_WIDTH)


def _has_width() -> bool:
    return sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()


def page_width() -> int:
    """Return the width of a terminal, and a usual one where there is none, as in a notebook."""
    return _width() if _has_width() else PAGE_WIDTH


def _width() -> int:
    return max(_stdout().width, MINIMUM_WIDTH)


def print_configs(reports: Sequence[ConfigReport], dry_run: bool) -> None:
    made = [report for report in reports if report.made]
    for report in reports if dry_run else made:
        state = "exists" if not report.made else "would be written" if dry_run else "written"
        print_line(f"{state}: {report.path}")
    counts = f"{len(made)} configs written, {len(reports) - len(made)} existed already"
    print_line(counts + dry_run_note(dry_run, "nothing was written"))


def print_files(label: str, paths: Sequence[Path]) -> None:
    """Print the names of files on stderr, in a line behind a label; nothing if there are none, or without notes."""
    if paths and not is_quiet():
        print(printable(f"{label}: {', '.join(map(str, paths))}"), file=sys.stderr)


def doubt_mark(is_doubtful: object) -> str:
    """Return the mark behind a name or a figure that is doubtful, empty if it is not."""
    return f" {DOUBTFUL}" if is_doubtful else ""


def print_origin(*facts: str) -> None:
    """Print what made the tables above: version, command, and facts such as the device; empty facts are left out."""
    # A notebook has no command.
    command = f": {command_line()}" if is_program() else ""
    print_origin_line(f"opcost {__version__}{command}", ", ".join(filter(None, facts)))


def shared_facts(conditions: Sequence[Conditions]) -> list[str]:
    """Return device, driver and torch of some rows, each only if all rows share it."""
    drivers = {f"driver {one.driver_version}" if one.driver_version else "" for one in conditions}
    facts = ({one.device_product for one in conditions}, drivers, {f"torch {one.torch_version}" for one in conditions})
    return [next(iter(fact)) for fact in facts if len(fact) == 1]


def dry_run_note(dry_run: bool, text: str) -> str:
    return f" (dry run: {text})" if dry_run else ""


def titled(kind: Any, dropped: Mapping[str, int] = MappingProxyType({})) -> list[Column[Any]]:
    """Return the columns of a row that have a title; ``dropped`` has those that are not shown at every width."""

    def written(name: str, unit: str, row: Any) -> str:
        value = by_column(row)[name]
        return UNKNOWN if value is None else READ_AS.get(unit, str)(value)

    titles = [(field, field.column.title) for field in columns_of(kind) if field.column.title]
    return [
        Column(title, partial(written, field.name, field.unit), "right" if number else "left", dropped.get(title, 0))
        for number, (field, title) in enumerate(titles)
    ]


def print_info(info: Info) -> None:
    versions, shipped, own = info.versions, info.shipped, info.own
    both = own.shipped_models_are_read and own.shipped_rows_are_read
    on = f" on {', '.join(shipped.devices)}" if shipped.devices else ""
    torch = f"{versions.torch}, torchvision {versions.torchvision}" if versions.torch else "not installed"

    def about(device: DeviceInfo) -> str:
        driver = f", driver {device.driver_version}" if device.driver_version else ""
        no_energy = f"no energy: {device.no_meter_reason}"
        meters = f"power meters: {', '.join(device.meters)}" if device.meters else no_energy
        return f"{device.product}{driver}; {meters}"

    lines = [
        ("opcost", versions.opcost),
        ("Python", f"{versions.python} ({versions.executable})"),
        ("torch", torch),
        ("CPU", about(info.cpu)),
        *[("GPU", about(gpu)) for gpu in info.gpus],
        *[("GPU", f"none ({info.no_gpu_reason})")] * (not info.gpus),
        ("shipped", f"{shipped.rows:,} rows of operators, {shipped.models} models{on}"),
        ("", f"{shipped.database}, {shipped.measurements}"),
        ("yours", f"{own.rows:,} rows of operators{'' if both else '; not all shipped files are read'}"),
        ("", f"{own.database}, {own.measurements}"),
    ]
    for label, text in lines:
        print_line(f"{label:<9}{text}", hanging=9)
    print_commands([(step.command, step.purpose) for step in info.next_steps], "Next steps")


def short_texts(one: OperatorCost | ProfiledOperator | OperatorSides) -> tuple[str, str]:
    operator = parse_operator(one.operator, one.parameters, one.inputs, one.training_mode)
    return short_form(operator), short_inputs(operator)


OPERATOR_ON_INPUTS: Table[OperatorCost | ProfiledOperator | OperatorSides] = (
    Column("operator", lambda one: short_texts(one)[0], "left", wraps=20),
    Column("on", lambda one: short_texts(one)[1], "left", wraps=14),
)


def work_in_words(model: ModelProfile) -> str:
    """Return the FLOPs and bytes of a run: ``4.1 GFLOP, 97 MB moved``."""
    least = "at least " if model.flop_missing_reason is not None else ""
    return f"{least}{gigaflop(model.flop)}, {megabytes(model.memory_bytes)} moved"
