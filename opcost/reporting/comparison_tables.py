"""Comparisons on a terminal: sums with whole models and their footnotes, kernels, and models under two conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from opcost.comparing.comparison import Remark, RemarkKind, differing
from opcost.comparing.conditions_side_by_side import KindSides, OperatorSides, SideBySide, Sides, Standing
from opcost.comparing.corrections import METHOD_ERROR_RATIOS
from opcost.comparing.model_result import Doubt
from opcost.estimates import Estimate, estimate_of, total_if_known
from opcost.invocation import command
from opcost.measuring.conditions import CONTIGUOUS, EAGER
from opcost.measuring.precisions import DTYPES
from opcost.measuring.record import ComparisonRow, Costs
from opcost.operators.tuples import SIZE_IN_NAME
from opcost.reporting.charts import QUANTITIES, Compared, compared
from opcost.reporting.tables import (
    DOUBTFUL,
    LINES_SHOWN,
    Column,
    Table,
    doubt_mark,
    dry_run_note,
    keeping,
    print_line,
    print_note,
    print_origin,
    print_table,
    shared_facts,
    short_texts,
)
from opcost.stages.compare import ComparingReport, Excess
from opcost.summing.summation import WITHOUT_ENERGY
from opcost.units import UNKNOWN, milli, millijoules, milliseconds, percent, ratio, some_of, whole_watts

if TYPE_CHECKING:
    # Only for types: these modules import torch, or are not needed.
    from opcost.stages.verify import KernelsReport

COMPARISONS_SHOWN = 6
UNEXPLAINED = "unexplained by any known effect, so probably disturbed; measure again"
UNEXPLAINED_EAGER = (
    "unexplained: an eager run also takes Python's time between operators, which is in no sum; or it was disturbed"
)


def footnotes(found: Sequence[Compared]) -> tuple[list[str], list[str]]:
    """Return a line for each footnote of a table, doubts first, and each comparison's numbers of them: ``[1,3]`` or "".

    Of remarks, there are those that change what a reader concludes; see ``all_in_words``.
    """
    notes = [(*note, number) for number, one in enumerate(found) for note in _notes(one)]
    figures_of: dict[str, dict[int, str]] = {}
    for _, text, figure, number in sorted(notes, key=lambda note: note[0]):
        figures = figures_of.setdefault(text, {})
        figures[number] = f"{figures[number]} + {figure}" if number in figures else figure
    lines = [
        f"[{number}] {text[:1].upper()}{text[1:]}{_held(figures, found)}"
        for number, (text, figures) in enumerate(figures_of.items(), 1)
    ]
    marks = []
    for index in range(len(found)):
        numbers = [str(number) for number, figures in enumerate(figures_of.values(), 1) if index in figures]
        marks.append(f"[{','.join(numbers)}]" if numbers else "")
    return lines, marks


def all_in_words(row: ComparisonRow, remarks: Sequence[Remark]) -> list[str]:
    """Return all remarks on one comparison, its missing operators and its missing energy in words."""
    missing = [f"missing: {operator}" for operator in row.missing.split(" | ") if operator]
    energy = [f"no energy: {row.energy_missing_reason}"] if row.energy_missing_reason else []
    return [*missing, *map(str, remarks), *energy]


def _held(figures: Mapping[int, str], found: Sequence[Compared]) -> str:
    if len(found) == 1:
        return f": {figures[0]}" if figures[0] else ""
    if len(figures) == len(found) and not any(figures.values()):
        return " (all)"
    shown = [f"{found[number].name} {figure}".rstrip() for number, figure in figures.items()]
    more = len(shown) - COMPARISONS_SHOWN
    return f": {'; '.join(shown[:COMPARISONS_SHOWN])}" + (f"; {more} more" if more > 0 else "")


def _notes(one: Compared) -> Iterator[tuple[int, str, str]]:
    """Yield the footnotes of one comparison: their order, and the words for several comparisons and for this one."""
    row = one.row
    if row.missing_operators:
        costs = row.costs("time")
        share = costs.over_whole(costs.unmeasured)
        estimated = "" if share is None else f", estimated {percent(share)} of the time"
        number = f"{row.missing_operators} of {row.summed_operators + row.missing_operators}"
        missing = [operator for operator in row.missing.split(" | ") if operator]
        text = "operators without a row are missing from the sum, which is too small"
        text += f" ({one.remedy or command('measure')} measures them)"
        yield 0, text, f"{number}{estimated} ({some_of(missing)})"
    shares = [
        f"{percent(costs.over_whole(costs.unexplained))} of the {quantity}"
        for quantity, costs in ((quantity, row.costs(quantity)) for quantity, _ in QUANTITIES)
        if Doubt.UNEXPLAINED in one.doubts(quantity)
    ]
    if shares:
        is_longer = row.conditions.execution == EAGER and (row.unexplained_time_s or 0.0) > 0
        yield 1, UNEXPLAINED_EAGER if is_longer else UNEXPLAINED, ", ".join(shares)
    for remark in one.remarks:
        if remark.changes_conclusions:
            yield 2 + list(RemarkKind).index(remark.kind), *remark.words
    if row.energy_missing_reason:
        # The reason is that of several models, the operators without an energy are this one's.
        numbers, found, reason = row.energy_missing_reason.partition(WITHOUT_ENERGY)
        without, _, operators = numbers.partition(" of ")
        figure = numbers if found and without != operators else ""
        yield 2 + len(RemarkKind), f"no energy: {reason if found else numbers}", figure


def print_kernels(reports: Sequence[KernelsReport]) -> None:
    # Name, calls, time in the model and alone, and the share of the same kernels.
    rows: list[tuple[str, int, float, float | None, float | None]] = []
    for report in reports:
        sum_s = total_if_known(kind.alone_s for kind in report.kinds)
        calls = sum(kind.calls for kind in report.kinds)
        rows.append((report.name, calls, report.kernel_time_s, sum_s, report.same_kernels_ratio))
        for kind in report.kinds:
            same_ratio = kind.same_kernels_s / kind.in_model_s if kind.in_model_s else None
            rows.append((f"  {kind.operator}", kind.calls, kind.in_model_s, kind.alone_s, same_ratio))
    table: Table[tuple[str, int, float, float | None, float | None]] = (
        Column("model", lambda row: row[0], "left"),
        Column("calls", lambda row: str(row[1]), drop=1),
        Column("in the model", lambda row: milliseconds(row[2])),
        Column("alone", lambda row: milliseconds(row[3])),
        Column("alone / in model", lambda row: ratio(None if row[3] is None or not row[2] else row[3] / row[2])),
        Column("same kernels", lambda row: percent(row[4]), drop=2),
    )
    print_table("Kernel time of operators in one run of the model, and alone", table, rows)
    for report in reports:
        counted = f"{percent(report.counted_ratio)} of kernel time is inside counted calls"
        print_line(*(f"{report.name}: {line}" for line in (counted, *report.differences)))
    print_origin()


@dataclass(frozen=True)
class _Half:
    """The time or the energy of a comparison: one of its two successive rows; the first has the model's name."""

    one: Compared
    name: str
    quantity: str

    @property
    def costs(self) -> Costs:
        return self.one.row.costs(self.quantity)

    @property
    def is_doubtful(self) -> bool:
        """Whether the sum is no result yet."""
        return bool(self.one.doubts(self.quantity))

    def cost(self, value: float | None) -> str:
        return milliseconds(value) if self.quantity == "time" else millijoules(value)

    def share(self, value: float | None) -> str:
        return percent(self.costs.over_whole(value))

    def ratio(self, estimate: Estimate | None) -> str:
        """Return a ratio with its standard error, or with a mark if the sum is no result yet."""
        if estimate is None:
            return UNKNOWN
        error = DOUBTFUL if self.is_doubtful else f"± {ratio(estimate.standard_error)}"
        return f"{ratio(estimate.value)} {error}"


HALVES: Table[_Half] = (
    Column("model", lambda half: half.name, "left", wraps=32),
    Column("", lambda half: half.quantity, "left"),
)


def print_comparisons(reports: Sequence[ComparingReport], dry_run: bool) -> None:
    found = compared(reports)
    lines, marks = footnotes(found)
    if found:
        others = [one for report in reports for one in differing([row.conditions for row in report.comparisons])]
        halves = []
        for one, mark, other in zip(found, marks, others, strict=True):
            # The device, a GPU's execution, and the other conditions that differ.
            own = one.row.conditions
            execution = () if own.device_type == "cpu" else (own.execution,)
            words = ", ".join(dict.fromkeys((own.device_product, *execution, *other)))
            part = f" ({one.row.phase})" if one.row.phase.is_part else ""
            halves += [_Half(one, f"{one.row.name}{part}", "time"), _Half(one, f"  {words} {mark}".rstrip(), "energy")]
        _print_sums(halves, dry_run)
        limited: Table[_Half] = (Column("power limit", lambda half: half.share(half.costs.power_limit), drop=1),)
        missing: Table[_Half] = (Column("not measured", lambda half: half.share(half.costs.unmeasured)),)
        table: Table[_Half] = (
            *HALVES,
            Column("sum", lambda half: half.share(half.costs.summed), drop=3),
            Column("functions in it", lambda half: half.share(half.costs.functions), drop=4),
            Column("cache correction", lambda half: half.share(half.costs.correction), drop=1),
            *(limited if any(half.one.row.power_limit_time_s for half in halves) else ()),
            Column("dropped", lambda half: half.share(half.costs.dropped), drop=2),
            *(missing if any(half.one.row.missing_operators for half in halves) else ()),
            Column("unexplained", lambda half: half.share(half.costs.unexplained) + doubt_mark(half.is_doubtful)),
        )
        print_table("Parts of the whole model", table, halves, block=2)
        print_note("Dropped and unmeasured operators without a row are estimated from FLOPs and bytes.", "")
    print_line(*lines, hanging=4)
    for report in reports:
        if report.reason:
            print_line(f"{report.name}: {report.reason}", command=report.remedy or "")
    if found:
        day = max(one.row.compared_at for one in found).partition("T")[0]
        print_origin(*shared_facts([one.row.conditions for one in found]), day)


def _print_sums(halves: Sequence[_Half], dry_run: bool) -> None:
    table: Table[_Half] = (
        *HALVES,
        Column("whole model", lambda half: half.cost(half.costs.whole)),
        Column("sum of operators", lambda half: half.cost(half.costs.summed), drop=1),
        Column("sum / whole", lambda half: half.ratio(half.one.ratio(half.quantity))),
        Column("corrected", lambda half: half.ratio(half.one.corrected_ratio(half.quantity))),
    )
    title = "Sum of operators and whole model" + dry_run_note(dry_run, "nothing was written")
    print_table(title, table, halves, block=2)
    print_note("± is one standard error; another board may differ by more.")
    if any(half.is_doubtful for half in halves):
        print_line(
            f"{DOUBTFUL} No result yet, for the reasons in the footnotes, so ± does not hold.",
            "Measure again, without other programs on the device.",
        )
    rows = [half.one.row for half in halves]
    for celsius in sorted({row.reference_temperature_c or 0 for row in rows} - {0}):
        print_note(f"Energies are normalised to {celsius:g} °C, if all energies of a model can be.")
    if any(row.correction_time_s is not None for row in rows):
        others = " and the power limit's part" if any(row.power_limit_time_s for row in rows) else ""
        error = " and ".join(f"{percent(error)} in {quantity}" for quantity, error in METHOD_ERROR_RATIOS.items())
        own = f"± with the method's own error, {error}"
        print_note(f"Corrected: the sum plus the cache correction{others}, over the whole model; {own}.")
    print_line("")


# Models under two conditions: first the operators that cost more, then all costs

PER_SAMPLE = "saved mJ/sample"


@dataclass(frozen=True)
class _Line:
    """A cost under both conditions: of an operator on its inputs, a kind of operators, or all of a model."""

    sides: Sides
    name: str
    inputs: str = ""


NAMED: Table[_Line] = (Column("", lambda one: one.name, "left"),)
CALLS: Table[_Line] = (Column("calls", lambda one: str(_number(one.sides)), drop=3),)
KINDS: Table[_Line] = (Column("kind of operator", lambda one: one.name, "left"), *CALLS)
OPERATORS: Table[_Line] = (
    Column("operator", lambda one: one.name, "left", wraps=16),
    Column("on", lambda one: one.inputs, "left", wraps=14),
    *CALLS,
)

Line = TypeVar("Line", KindSides, OperatorSides)


def print_against(reports: Sequence[SideBySide]) -> None:
    """Print each model: operators that cost more, whole and sum, kinds; of a single one also all other operators."""
    for report in reports:
        (these, others), name = report.labels, SIZE_IN_NAME.sub("", report.name)
        batch, _, sample = report.input_size.partition("x")
        size = f"batch {batch}, {sample}" if batch else "batch unknown"
        # A shared memory format is named only if it is not usual.
        shared = set(report.chosen.shown.values()) & set(report.other_chosen.shown.values()) - {CONTIGUOUS}
        facts = ", ".join((report.conditions.device_product, report.conditions.execution, *shared))
        title = f"{name} ({size}) on {facts}: {these} against {others}"
        known = _measured(report.operators)
        more, less = ([one for one in known if one.costs.costs_more == is_more] for is_more in (True, False))
        if more:
            _print_operators(f"{title}; operators that cost more in {these}", report, more, len(known))
        elif known:
            print_line(f"{name}: no operator costs more in {these} than in {others}.\n")
        summed, calls = (sum(_number(one.costs) for one in of) for of in (known, report.operators))
        summed_part = "operators" if summed == calls else f"{summed} of {calls} calls"
        both = (("whole model", report.whole), (f"sum of {summed_part}", report.sum))
        if lines := [_Line(sides, label) for label, sides in both if sides is not None]:
            _print_costs(title, report, NAMED, lines, kept=PER_SAMPLE)
        if kinds := _measured(report.kinds):
            lines = [_Line(one.costs, one.operator + _only_in(one, report)) for one in kinds]
            _print_costs(f"{name}: kinds of operators, what costs more first", report, KINDS, lines)
        if less and (len(reports) == 1):
            _print_operators(f"{name}: other operators by saved energy", report, less, len(known))
        if report.remarks:
            print_line(*(f"{name}: {remark}" for remark in report.remarks), "", hanging=4)
    temperatures = sorted({one.reference_temperature_c or 0.0 for one in reports})
    texts = [f"at {celsius:g} °C" if celsius else "as measured" for celsius in temperatures]
    boards = sorted({uuid[:8] for one in reports for uuid in (one.device_uuid, one.other_device_uuid) if uuid})
    print_note(
        "Saved: the cost under the conditions of --against minus that under the model's own; below 0 where these cost "
        "more. ± is one standard error of the difference, which has the errors of both sides.",
        "Costs more: by more than the 95 % interval, 2 of ±; of the time if an energy is unknown.",
        "Operators are matched one to one: only dtypes and memory layouts may differ. Sums have no corrections.",
        f"Energies are total, {' or '.join(texts)}; boards {', '.join(boards) or 'unknown'}.",
    )
    print_origin(*shared_facts([one for report in reports for one in (report.conditions, report.other_conditions)]))


def excess_in_words(one: Excess) -> str:
    """Return a line such as ``resnet50: time 3.1 ± 0.6 % above that of torch 2.10.0, limit 2 %``."""
    more, others = _with_error(one.more), one.report.labels[1]
    return f"{one.report.name}: {one.limit.quantity} {more} above that of {others}, limit {100 * one.limit.ratio:g} %"


def _measured(lines: Iterable[Line]) -> list[Line]:
    return [one for one in lines if one.standing != Standing.NOT_MEASURED.value]


def _number(sides: Sides) -> int:
    return max(sides.calls, sides.other_calls)


def _only_in(one: KindSides | OperatorSides, report: SideBySide) -> str:
    these, others = report.labels
    words = {Standing.THESE_ONLY.value: f" (only in {these})", Standing.OTHERS_ONLY.value: f" (only in {others})"}
    return words.get(one.standing, "")


def _print_operators(title: str, report: SideBySide, found: Sequence[OperatorSides], all_operators: int) -> None:
    usual = DTYPES.get(report.chosen.precision)
    lines = []
    for one in found:
        name, inputs = short_texts(one)
        shown = inputs if usual is None else inputs.replace(f"{usual} ", "")
        lines.append(_Line(one.costs, name + _only_in(one, report), shown))
    number = f"{len(found)} of {all_operators}"
    if len(found) > LINES_SHOWN:
        number = f"{LINES_SHOWN} of {len(found)}, of {all_operators} in all; --json has them"
    _print_costs(f"{title} ({number})", report, OPERATORS, lines)


def _saved(sides: Sides, quantity: str) -> str:
    names = (f"saved_{quantity}_{of}ratio" for of in ("", "standard_error_"))
    saved = estimate_of(*(getattr(sides, name) for name in names))
    return UNKNOWN if saved is None else _with_error(saved)


def _with_error(share: Estimate) -> str:
    """Return a share with its standard error: ``12.3 ± 0.4 %``."""
    return f"{percent(share.value).removesuffix(' %')} ± {percent(share.standard_error)}"


def _print_costs(
    title: str, report: SideBySide, names: Table[_Line], lines: Sequence[_Line], kept: str | None = None
) -> None:
    these, others = report.labels
    table: Table[_Line] = (
        *names,
        Column(f"ms {these}", lambda one: milli(one.sides.time_s), drop=2),
        Column(f"ms {others}", lambda one: milli(one.sides.other_time_s), drop=2),
        Column(f"mJ {these}", lambda one: milli(one.sides.energy_j)),
        Column(f"mJ {others}", lambda one: milli(one.sides.other_energy_j)),
        Column(f"W {these}", lambda one: whole_watts(one.sides.power_w), drop=5),
        Column(f"W {others}", lambda one: whole_watts(one.sides.other_power_w), drop=5),
        Column("saved mJ", lambda one: milli(one.sides.saved_energy_j, 3)),
        Column("saved", lambda one: _saved(one.sides, "energy")),
        Column(PER_SAMPLE, lambda one: milli(one.sides.saved_energy_per_sample_j, 3), drop=4),
        Column("saved time", lambda one: _saved(one.sides, "time"), drop=1),
    )
    if print_table(title, keeping(table, kept), lines[:LINES_SHOWN]):
        print_line("")
