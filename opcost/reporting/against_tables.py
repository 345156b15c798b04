"""Models under two conditions side by side on a terminal: first the operators that cost more, then all costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TypeVar

from opcost.comparing.conditions_side_by_side import KindSides, OperatorSides, Sides, Standing
from opcost.measuring.conditions import CONTIGUOUS
from opcost.measuring.precisions import DTYPES
from opcost.operators.short_forms import short_form, short_inputs
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import SIZE_IN_NAME
from opcost.reporting.layout import Column, keeping
from opcost.reporting.show_tables import LINES_SHOWN
from opcost.reporting.tables import print_origin, shared_facts
from opcost.reporting.terminal import Cells, print_line, print_table
from opcost.stages.compare import AgainstReport
from opcost.units import milli, percent, whole_watts

PER_SAMPLE = "saved mJ/sample"
OPERATOR_COLUMNS = (Column("operator", "left", wraps=16), Column("on", "left", wraps=14), Column("calls", drop=3))
KIND_COLUMNS = (Column("kind of operator", "left"), Column("calls", drop=3))

Line = TypeVar("Line", KindSides, OperatorSides)


def print_against(reports: Sequence[AgainstReport]) -> None:
    """Print each model: operators that cost more, whole and sum, kinds; of a single one also all other operators."""
    for report in reports:
        _print_report(report, with_all_operators=len(reports) == 1)
    temperatures = sorted({one.reference_temperature_c or 0.0 for one in reports})
    texts = [f"at {celsius:g} °C" if celsius else "as measured" for celsius in temperatures]
    boards = sorted({uuid[:8] for one in reports for uuid in (one.device_uuid, one.other_device_uuid) if uuid})
    for line in (
        "Saved: the cost under the conditions of --against minus that under the model's own; below 0 where these cost "
        "more.",
        "Costs more: by more than the 95 % interval of the saved energy; of the time if an energy is unknown.",
        "Operators are matched one to one: only dtypes and memory layouts may differ. Sums have no corrections.",
        f"Energies are total, {' or '.join(texts)}; boards {', '.join(boards) or 'unknown'}.",
    ):
        print_line(line)
    print_origin(*shared_facts([report.conditions for report in reports]))


def _print_report(report: AgainstReport, *, with_all_operators: bool) -> None:
    (these, others), name, title = report.labels, SIZE_IN_NAME.sub("", report.name), _title(report)
    known = _measured(report.operators)
    more, less = ([one for one in known if one.costs.costs_more == is_more] for is_more in (True, False))
    if more:
        _print_operators(f"{title}; operators that cost more in {these}", report, more, len(known))
    elif known:
        print_line(f"{name}: no operator costs more in {these} than in {others}.\n")
    summed, calls = (sum(_number(one.costs) for one in of) for of in (known, report.operators))
    of_calls = "operators" if summed == calls else f"{summed} of {calls} calls"
    both = (("whole model", report.whole), (f"sum of {of_calls}", report.sum))
    if rows := [((label,), sides) for label, sides in both if sides is not None]:
        _print_costs(title, report, (Column("", "left"),), rows, kept=PER_SAMPLE)
    if kinds := _measured(report.kinds):
        named = [((one.operator + _only_in(one, report), str(_number(one.costs))), one.costs) for one in kinds]
        _print_costs(f"{name}: kinds of operators, what costs more first", report, KIND_COLUMNS, named)
    if less and with_all_operators:
        _print_operators(f"{name}: other operators by saved energy", report, less, len(known))
    for remark in report.remarks:
        print_line(f"{name}: {remark}", hanging=4)
    if report.remarks:
        print_line("")


def _measured(lines: Iterable[Line]) -> list[Line]:
    """Return those that are measured wherever they exist; a remark names the others."""
    return [one for one in lines if one.standing != Standing.NOT_MEASURED.value]


def _number(sides: Sides) -> int:
    return max(sides.calls, sides.other_calls)


def _only_in(one: KindSides | OperatorSides, report: AgainstReport) -> str:
    """Return the conditions if operators exist under one of both only."""
    these, others = report.labels
    words = {Standing.THESE_ONLY.value: f" (only in {these})", Standing.OTHERS_ONLY.value: f" (only in {others})"}
    return words.get(one.standing, "")


def _print_operators(title: str, report: AgainstReport, found: Sequence[OperatorSides], all_operators: int) -> None:
    rows = []
    for one in found:
        operator = parse_operator(one.operator, one.parameters, one.inputs, one.training_mode)
        usual = DTYPES.get(report.chosen.precision)
        inputs = short_inputs(operator) if usual is None else short_inputs(operator).replace(f"{usual} ", "")
        rows.append(((short_form(operator) + _only_in(one, report), inputs, str(_number(one.costs))), one.costs))
    shown = f"{len(found)} of {all_operators}"
    if len(found) > LINES_SHOWN:
        shown = f"{LINES_SHOWN} of {len(found)}, of {all_operators} in all; --json has them"
    _print_costs(f"{title} ({shown})", report, OPERATOR_COLUMNS, rows)


def _print_costs(
    title: str,
    report: AgainstReport,
    names: Sequence[Column],
    rows: Sequence[tuple[tuple[str, ...], Sides]],
    kept: str | None = None,
) -> None:
    """Print a table of costs under both conditions, with the first columns given, and one that every width shows."""
    these, others = report.labels
    costs: Cells[Sides] = (
        (Column(f"ms {these}", drop=2), lambda one: milli(one.time_s)),
        (Column(f"ms {others}", drop=2), lambda one: milli(one.other_time_s)),
        (Column(f"mJ {these}"), lambda one: milli(one.energy_j)),
        (Column(f"mJ {others}"), lambda one: milli(one.other_energy_j)),
        (Column(f"W {these}", drop=5), lambda one: whole_watts(one.power_w)),
        (Column(f"W {others}", drop=5), lambda one: whole_watts(one.other_power_w)),
        (Column("saved mJ"), lambda one: milli(one.saved_energy_j, 3)),
        (Column("saved"), lambda one: percent(one.saved_energy_ratio)),
        (Column(PER_SAMPLE, drop=4), lambda one: milli(one.saved_energy_per_sample_j, 3)),
        (Column("saved time", drop=1), lambda one: percent(one.saved_time_ratio)),
    )
    columns = keeping([*names, *(column for column, _ in costs)], kept)
    cells = [[*first, *(write(sides) for _, write in costs)] for first, sides in rows[:LINES_SHOWN]]
    if print_table(title, columns, cells):
        print_line("")


def _title(report: AgainstReport) -> str:
    """Return the model, its input, the device, and the conditions; a shared memory format only if it is not usual."""
    these, others = report.labels
    shared = set(asdict(report.chosen).values()) & set(asdict(report.other_chosen).values()) - {CONTIGUOUS}
    batch, _, sample = report.input_size.partition("x")
    size = f"batch {batch}, {sample}" if batch else "batch unknown"
    facts = (report.conditions.device_product, report.conditions.execution, *shared)
    return f"{SIZE_IN_NAME.sub('', report.name)} ({size}) on {', '.join(facts)}: {these} against {others}"
