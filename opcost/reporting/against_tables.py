"""Models under two conditions side by side on a terminal: first the operators that cost more, then all costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TypeVar

from opcost.comparing.conditions_side_by_side import KindSides, OperatorSides, Sides, Standing
from opcost.measuring.conditions import CONTIGUOUS, DTYPES
from opcost.operators.short_forms import short_form, short_inputs
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import SIZE_IN_NAME
from opcost.reporting.layout import keeping
from opcost.reporting.show_tables import LINES_SHOWN
from opcost.reporting.tables import print_origin, shared_facts
from opcost.reporting.terminal import Column, print_line, print_table
from opcost.stages.compare_against import AgainstReport
from opcost.units import milli, percent, whole_watts


def print_against(reports: Sequence[AgainstReport]) -> None:
    """Print each model: operators that cost more, whole and sum, kinds; of a single one also all other operators."""
    for report in reports:
        _print_more(report)
        _print_model(report)
        _print_kinds(report)
        if len(reports) == 1:
            _print_operators(report)
        for remark in report.remarks:
            print_line(f"{_short_name(report)}: {remark}", hanging=4)
        if report.remarks:
            print_line("")
    for line in _notes(reports):
        print_line(line)
    print_origin(*shared_facts([report.conditions for report in reports]))


def _print_more(report: AgainstReport) -> None:
    these, others = report.labels
    known = _measured(report.operators)
    more = [one for one in known if one.costs.costs_more]
    if more:
        title = f"{_title(report)}; operators that cost more in {these} {_shown(more, known)}"
        _print_costs(title, report, OPERATOR_COLUMNS, [(_operator_cells(one, report), one.costs) for one in more])
    elif known:
        print_line(f"{_short_name(report)}: no operator costs more in {these} than in {others}.\n")


def _print_operators(report: AgainstReport) -> None:
    known = _measured(report.operators)
    less = [one for one in known if not one.costs.costs_more]
    if less:
        title = f"{_short_name(report)}: other operators by saved energy {_shown(less, known)}"
        _print_costs(title, report, OPERATOR_COLUMNS, [(_operator_cells(one, report), one.costs) for one in less])


def _print_model(report: AgainstReport) -> None:
    summed, calls = (sum(_number(one.costs) for one in of) for of in (_measured(report.operators), report.operators))
    of_calls = "operators" if summed == calls else f"{summed} of {calls} calls"
    costs = (("whole model", report.whole), (f"sum of {of_calls}", report.sum))
    rows = [((name,), sides) for name, sides in costs if sides is not None]
    if rows:
        _print_costs(_title(report), report, (Column("", "left"),), rows, kept=PER_SAMPLE)


def _print_kinds(report: AgainstReport) -> None:
    columns = (Column("kind of operator", "left"), Column("calls", drop=3))
    names = [(_with_standing(kind.operator, kind.standing, report), kind.costs) for kind in _measured(report.kinds)]
    if names:
        title = f"{_short_name(report)}: kinds of operators, what costs more first"
        _print_costs(title, report, columns, [((name, str(_number(sides))), sides) for name, sides in names])


Line = TypeVar("Line", KindSides, OperatorSides)


def _measured(lines: Iterable[Line]) -> list[Line]:
    """Return those that are measured wherever they exist; a remark names the others."""
    return [one for one in lines if one.standing != Standing.NOT_MEASURED.value]


PER_SAMPLE = "saved mJ/sample"
OPERATOR_COLUMNS = (Column("operator", "left", wraps=16), Column("on", "left", wraps=14), Column("calls", drop=3))


def _print_costs(
    title: str,
    report: AgainstReport,
    names: Sequence[Column],
    rows: Iterable[tuple[Sequence[str], Sides]],
    kept: str | None = None,
) -> None:
    """Print a table of costs under both conditions, with the first columns given, and one that every width shows."""
    these, others = report.labels
    columns = (
        *names,
        *(Column(f"ms {these}", drop=2), Column(f"ms {others}", drop=2)),
        *(Column(f"mJ {these}"), Column(f"mJ {others}")),
        *(Column(f"W {these}", drop=5), Column(f"W {others}", drop=5)),
        *(Column("saved mJ"), Column("saved"), Column(PER_SAMPLE, drop=4), Column("saved time", drop=1)),
    )
    cells = [(*first, *_cells(sides)) for first, sides in rows]
    if print_table(title, keeping(columns, kept), cells[:LINES_SHOWN]):
        print_line("")


def _cells(sides: Sides) -> tuple[str, ...]:
    return (
        *(milli(sides.time_s), milli(sides.other_time_s), milli(sides.energy_j), milli(sides.other_energy_j)),
        *(whole_watts(sides.power_w), whole_watts(sides.other_power_w)),
        *(milli(sides.saved_energy_j, 3), percent(sides.saved_energy_ratio)),
        *(milli(sides.saved_energy_per_sample_j, 3), percent(sides.saved_time_ratio)),
    )


def _number(sides: Sides) -> int:
    return max(sides.calls, sides.other_calls)


def _operator_cells(one: OperatorSides, report: AgainstReport) -> tuple[str, ...]:
    operator = parse_operator(one.operator, one.parameters, one.inputs, one.training_mode)
    usual = DTYPES.get(report.chosen.precision)
    inputs = short_inputs(operator) if usual is None else short_inputs(operator).replace(f"{usual} ", "")
    return _with_standing(short_form(operator), one.standing, report), inputs, str(_number(one.costs))


def _with_standing(name: str, standing: str, report: AgainstReport) -> str:
    """Return the name of operators, with the conditions if they exist under one of both only."""
    these, others = report.labels
    words = {Standing.THESE_ONLY.value: f" (only in {these})", Standing.OTHERS_ONLY.value: f" (only in {others})"}
    return name + words.get(standing, "")


def _short_name(report: AgainstReport) -> str:
    return SIZE_IN_NAME.sub("", report.name)


def _title(report: AgainstReport) -> str:
    """Return the model, its input, the device, and the conditions; a shared memory format only if it is not usual."""
    these, others = report.labels
    shared = set(asdict(report.chosen).values()) & set(asdict(report.other_chosen).values()) - {CONTIGUOUS}
    batch, _, sample = report.input_size.partition("x")
    size = f"batch {batch}, {sample}" if batch else "batch unknown"
    facts = (report.conditions.device_product, report.conditions.execution, *shared)
    return f"{_short_name(report)} ({size}) on {', '.join(facts)}: {these} against {others}"


def _shown(found: Sequence[OperatorSides], all_operators: Sequence[OperatorSides]) -> str:
    number = len(found)
    if number <= LINES_SHOWN:
        return f"({number} of {len(all_operators)})"
    return f"({LINES_SHOWN} of {number}, of {len(all_operators)} in all; --json has them)"


def _notes(reports: Sequence[AgainstReport]) -> list[str]:
    lines = [
        "Saved: the cost under the conditions of --against minus that under the model's own; below 0 where these cost "
        "more.",
        "Costs more: by more than the 95 % interval of the saved energy; of the time if an energy is unknown.",
        "Operators are matched one to one: only dtypes and memory layouts may differ. Sums have no corrections.",
    ]
    temperatures = sorted({one.reference_temperature_c or 0.0 for one in reports})
    texts = [f"at {celsius:g} °C" if celsius else "as measured" for celsius in temperatures]
    boards = sorted({uuid[:8] for one in reports for uuid in (one.device_uuid, one.other_device_uuid) if uuid})
    return [*lines, f"Energies are total, {' or '.join(texts)}; boards {', '.join(boards) or 'unknown'}."]
