"""Tables of comparisons of sums with whole models with their footnotes, and of kernels, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opcost.comparing.comparison import differing
from opcost.comparing.gap import METHOD_ERROR_RATIOS
from opcost.comparing.ranking import Doubt, doubts
from opcost.comparing.remarks import Remark, RemarkKind
from opcost.comparing.row import ComparisonRow
from opcost.estimates import Estimate
from opcost.invocation import command
from opcost.measuring.conditions import EAGER
from opcost.reporting.compared_models import QUANTITIES, compared_model
from opcost.reporting.tables import DOUBTFUL, doubt_mark, dry_run_note, print_origin, ratio_with_error, shared_facts
from opcost.reporting.terminal import Column, print_line, print_table
from opcost.stages.compare import ComparingReport
from opcost.summing.summation import WITHOUT_ENERGY
from opcost.units import UNKNOWN, millijoules, milliseconds, percent, ratio, some_of

if TYPE_CHECKING:
    # Only for types: these modules import torch, or are not needed.
    from opcost.stages.kernels import KernelsReport

COMPARISONS_SHOWN = 6
"""Comparisons that a footnote names."""

UNEXPLAINED = "unexplained by any known effect, so probably disturbed; measure again"
UNEXPLAINED_EAGER = (
    "unexplained: an eager run also takes Python's time between operators, which is in no sum; or it was disturbed"
)


@dataclass(frozen=True)
class Noted:
    """A comparison with its label, its remarks and the text of its conditions.

    ``remedy`` is the command that measures what is missing, None for the usual one.
    """

    label: str
    row: ComparisonRow
    remarks: Sequence[Remark]
    remedy: str | None = None
    conditions: str = ""

    @property
    def is_at_limit(self) -> bool:
        """Whether the model would draw more than the power limit at full clocks."""
        return bool(self.row.power_limit_time_s)

    def names(self, mark: str) -> tuple[str, str]:
        """Return the texts of the first column: the name, and below it the conditions with the numbers of footnotes."""
        return self.row.name, f"  {self.conditions} {mark}".rstrip()

    def is_doubtful(self, quantity: str) -> bool:
        """Return whether the sum is no result yet."""
        return bool(doubts(self.row, self.remarks, quantity))

    def ratio(self, estimate: Estimate | None, quantity: str) -> str:
        """Return a ratio with its standard error, or with a mark if the sum is no result yet."""
        if estimate is None:
            return UNKNOWN
        is_doubtful = self.is_doubtful(quantity)
        error_ratio = None if is_doubtful else estimate.standard_error
        return ratio_with_error(estimate.value, error_ratio) + doubt_mark(is_doubtful)


@dataclass(frozen=True)
class Footnote:
    """A footnote, and for each comparison that it holds for, by its number, the figures there; these may be empty."""

    text: str
    figures: Mapping[int, str]


def footnotes(compared: Sequence[Noted]) -> list[Footnote]:
    """Return the footnotes of all comparisons of a table, doubts first.

    Of remarks, there are those that change what a reader concludes; see ``all_in_words``.
    """
    found: list[tuple[int, str, str, int]] = []
    for number, one in enumerate(compared):
        found += [(order, text, figure, number) for order, text, figure in _notes(one)]
    texts: dict[str, dict[int, str]] = {}
    for _, text, figure, number in sorted(found, key=lambda note: note[0]):
        known = texts.setdefault(text, {})
        known[number] = f"{known[number]} + {figure}" if number in known else figure
    return [Footnote(text, figures) for text, figures in texts.items()]


def numbers_of(notes: Sequence[Footnote], comparison: int) -> str:
    """Return the numbers of a comparison's footnotes: ``[1,3]``; empty if there are none."""
    numbers = [str(number) for number, note in enumerate(notes, 1) if comparison in note.figures]
    return f"[{','.join(numbers)}]" if numbers else ""


def footnote_lines(notes: Sequence[Footnote], labels: Sequence[str]) -> list[str]:
    """Return a line for each footnote, with its number."""
    return [
        f"[{number}] {note.text[:1].upper()}{note.text[1:]}{_held(note, labels)}"
        for number, note in enumerate(notes, 1)
    ]


def all_in_words(row: ComparisonRow, remarks: Sequence[Remark]) -> list[str]:
    """Return all remarks on one comparison, its missing operators and its missing energy in words."""
    missing = [f"missing: {operator}" for operator in _missing(row)]
    energy = [f"no energy: {row.energy_missing_reason}"] if row.energy_missing_reason else []
    return [*missing, *map(str, remarks), *energy]


def _held(note: Footnote, labels: Sequence[str]) -> str:
    if len(labels) == 1:
        return f": {note.figures[0]}" if note.figures[0] else ""
    if len(note.figures) == len(labels) and not any(note.figures.values()):
        return " (all)"
    shown = [f"{labels[number]} {figure}".rstrip() for number, figure in note.figures.items()]
    more = len(shown) - COMPARISONS_SHOWN
    return f": {'; '.join(shown[:COMPARISONS_SHOWN])}" + (f"; {more} more" if more > 0 else "")


def _notes(one: Noted) -> Iterator[tuple[int, str, str]]:
    """Yield the footnotes of one comparison: their order, and the words for several comparisons and for this one."""
    row = one.row
    if row.missing_operators:
        measuring = one.remedy or command("measure")
        text = f"operators without a row are missing from the sum, which is too small ({measuring} measures them)"
        yield 0, text, _missing_figure(row)
    if unexplained := _unexplained_figure(one):
        is_longer = row.conditions.execution == EAGER and (row.unexplained_time_s or 0.0) > 0
        yield 1, UNEXPLAINED_EAGER if is_longer else UNEXPLAINED, unexplained
    for remark in one.remarks:
        if remark.changes_conclusions:
            yield 2 + list(RemarkKind).index(remark.kind), *remark.words
    if row.energy_missing_reason:
        # The reason is that of several models, the operators without an energy are this one's.
        numbers, found, reason = row.energy_missing_reason.partition(WITHOUT_ENERGY)
        without, _, operators = numbers.partition(" of ")
        figure = numbers if found and without != operators else ""
        yield 2 + len(RemarkKind), f"no energy: {reason if found else numbers}", figure


def _missing_figure(row: ComparisonRow) -> str:
    operators = _missing(row)
    costs = row.costs("time")
    share = costs.over_whole(costs.unmeasured)
    estimated = "" if share is None else f", estimated {percent(share)} of the time"
    return (
        f"{row.missing_operators} of {row.summed_operators + row.missing_operators}{estimated} ({some_of(operators)})"
    )


def _unexplained_figure(one: Noted) -> str:
    costs = {quantity: one.row.costs(quantity) for quantity, _ in QUANTITIES}
    shares = [
        f"{percent(found.over_whole(found.unexplained))} of the {quantity}"
        for quantity, found in costs.items()
        if Doubt.UNEXPLAINED in doubts(one.row, one.remarks, quantity)
    ]
    return ", ".join(shares)


def _missing(row: ComparisonRow) -> list[str]:
    return [operator for operator in row.missing.split(" | ") if operator]


def print_kernels(reports: Sequence[KernelsReport]) -> None:
    """Print the kernel time of each model, and of its tuples alone, and the differences."""
    columns = (
        Column("model", "left"),
        Column("calls", drop=1),
        Column("in the model"),
        Column("alone"),
        Column("alone / in model"),
        Column("same kernels", drop=2),
    )
    rows = []
    for report in reports:
        alone_s = [kind.alone_s for kind in report.kinds]
        sum_s = None if None in alone_s else sum(time_s for time_s in alone_s if time_s is not None)
        calls = sum(kind.calls for kind in report.kinds)
        rows.append(_kernel_cells(report.name, calls, report.kernel_time_s, sum_s, report.same_kernels_ratio))
        for kind in report.kinds:
            same_ratio = kind.same_kernels_s / kind.in_model_s if kind.in_model_s else None
            rows.append(_kernel_cells(f"  {kind.operator}", kind.calls, kind.in_model_s, kind.alone_s, same_ratio))
    print_table("Kernel time of operators in one run of the model, and alone", columns, rows)
    for report in reports:
        print_line(f"{report.name}: {percent(report.counted_ratio)} of kernel time is inside counted calls")
        for line in report.differences:
            print_line(f"{report.name}: {line}")
    print_origin()


def _kernel_cells(
    name: str, calls: int, in_model_s: float, alone_s: float | None, same_ratio: float | None
) -> tuple[str, ...]:
    time_ratio = None if alone_s is None or not in_model_s else alone_s / in_model_s
    return (name, str(calls), milliseconds(in_model_s), milliseconds(alone_s), ratio(time_ratio), percent(same_ratio))


def print_comparisons(reports: Sequence[ComparingReport], dry_run: bool) -> None:
    """Print the comparisons with a line for time and one for energy, the parts of each whole, and the footnotes."""
    compared = []
    for report in reports:
        conditions = [row.conditions for row in report.comparisons]
        of_report = zip(
            report.labels, report.comparisons, report.remarks, conditions, differing(conditions), strict=True
        )
        for label, row, remarks, own, others in of_report:
            # The device, a GPU's execution, and the other conditions that differ.
            execution = () if own.device_type == "cpu" else (own.execution,)
            words = ", ".join(dict.fromkeys((own.device_product, *execution, *others)))
            compared.append(Noted(label, row, remarks, report.remedy, words))
    notes = footnotes(compared)
    if compared:
        _print_sums(compared, notes, dry_run)
        _print_parts(compared, notes)
    for line in footnote_lines(notes, [one.label for one in compared]):
        print_line(line, hanging=4)
    for report in reports:
        if report.reason:
            print_line(f"{report.name}: {report.reason}", command=report.remedy or "")
    rows = [one.row for one in compared]
    if rows:
        day = max(row.compared_at for row in rows).partition("T")[0]
        print_origin(*shared_facts([row.conditions for row in rows]), day)


def _print_sums(compared: Sequence[Noted], notes: Sequence[Footnote], dry_run: bool) -> None:
    columns = (
        Column("model", "left", wraps=32),
        Column("", "left"),
        Column("whole model"),
        Column("sum of operators", drop=1),
        Column("sum / whole"),
        Column("corrected"),
    )
    rows = [cells for number, one in enumerate(compared) for cells in _sum_cells(one, numbers_of(notes, number))]
    print_table(
        "Sum of operators and whole model" + dry_run_note(dry_run, "nothing was written"), columns, rows, block=2
    )
    print_line("± is one standard error; another board may differ by more.")
    if any(one.is_doubtful(quantity) for one in compared for quantity, _ in QUANTITIES):
        print_line(f"{DOUBTFUL} No result yet, for the reasons in the footnotes; the standard error does not hold.")
    for celsius in sorted({one.row.reference_temperature_c or 0 for one in compared} - {0}):
        print_line(f"Energies are normalised to {celsius:g} °C, if all energies of a model can be.")
    if any(one.row.correction_time_s is not None for one in compared):
        others = " and the power limit's part" if any(one.is_at_limit for one in compared) else ""
        error = " and ".join(f"{percent(error)} in {quantity}" for quantity, error in METHOD_ERROR_RATIOS.items())
        print_line(
            f"Corrected: the sum plus the cache correction{others}, over the whole model; ± with the method's own "
            f"error, {error}."
        )
    print_line("")


def _sum_cells(one: Noted, mark: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    row = one.row
    model = compared_model(one.label, row, ())
    (name, conditions), ratios = (
        one.names(mark),
        [
            (one.ratio(model.ratio(quantity), quantity), one.ratio(model.corrected_ratio(quantity), quantity))
            for quantity, _ in QUANTITIES
        ],
    )
    return (
        (name, "time", milliseconds(row.full_time_s), milliseconds(row.time_s), *ratios[0]),
        (conditions, "energy", millijoules(row.full_energy_j), millijoules(row.energy_j), *ratios[1]),
    )


def _print_parts(compared: Sequence[Noted], notes: Sequence[Footnote]) -> None:
    are_shown = {
        "power limit": any(one.is_at_limit for one in compared),
        "not measured": any(one.row.missing_operators for one in compared),
    }
    columns = (
        Column("model", "left", wraps=32),
        Column("", "left"),
        Column("sum", drop=3),
        Column("functions in it", drop=4),
        Column("cache correction", drop=1),
        Column("power limit", drop=1),
        Column("dropped", drop=2),
        Column("not measured"),
        Column("unexplained"),
    )
    shown = [place for place, column in enumerate(columns) if are_shown.get(column.title, True)]
    rows = [cells for number, one in enumerate(compared) for cells in _part_cells(one, numbers_of(notes, number))]
    chosen = [[row[place] for place in shown] for row in rows]
    print_table("Parts of the whole model", [columns[place] for place in shown], chosen, block=2)
    print_line("Dropped and unmeasured operators without a row are estimated from FLOPs and bytes.")
    print_line("")


def _part_cells(one: Noted, mark: str) -> list[list[str]]:
    """Return the parts of the whole's time and energy, as shares of it: sum, functions in it, and the others."""
    cells = []
    for name, (quantity, _) in zip(one.names(mark), QUANTITIES, strict=True):
        costs = one.row.costs(quantity)
        others = (costs.functions, costs.correction, costs.power_limit, costs.dropped, costs.unmeasured)
        *shares, rest = (percent(costs.over_whole(part)) for part in (costs.summed, *others, costs.unexplained))
        cells.append([name, quantity, *shares, rest + doubt_mark(one.is_doubtful(quantity))])
    return cells
