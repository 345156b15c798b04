"""A predicted cost on a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.comparing.predicted_run import PredictedCalls, Range, Widened, WidthReason
from opcost.comparing.ranking import FEWEST_WHOLES, SUM
from opcost.invocation import command, command_line
from opcost.measuring.protocol import USUAL_OPTIONS
from opcost.measuring.record import MeasurementRow, is_doubtful, names_of, quality_flags
from opcost.operators.short_forms import short_form, short_inputs
from opcost.prediction.intervals import FEWEST_SCORES
from opcost.reporting.layout import Column
from opcost.reporting.tables import DOUBTFUL, doubt_mark, print_origin, shared_facts
from opcost.reporting.terminal import Cells, print_commands, print_line, print_records, print_table
from opcost.units import UNKNOWN, gigabytes, milli, number_of, percent, some_of

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
    from opcost.stages.predict import Prediction

MEASURED, PREDICTED = "measured", "predicted"
"""The sources of a cost besides ``SUM``."""

TUPLES_SHOWN = 5

LISTED = 20
"""The most operators that the next step lists."""

COSTS = (Column("", "left"), Column("per run"), Column("90 % interval"), Column("per sample"))

ABOUT_OPERATORS = {
    WidthReason.NEW_KINDS: "of kinds without any row",
    WidthReason.UNKNOWN_FLOP: "of unknown FLOPs",
    WidthReason.OUTSIDE: "unlike all measured ones",
    WidthReason.SMALL_CALLS: "too small to fill the device, as of few samples",
    WidthReason.OTHER_CARD: "that take another time on another card",
}

ABOUT_RUN = {
    WidthReason.FEW_FAMILIES: f"wholes of fewer than {FEWEST_SCORES} families of models are measured, so it is that of "
    "single operators",
    WidthReason.ABOVE_LIMIT: "its operators draw more than the power limit, so that a run takes longer than this",
    WidthReason.UNCORRECTED: "the cache correction is unknown for this device, so the sum is not corrected",
    WidthReason.FEW_WHOLES: f"fewer than {FEWEST_WHOLES} wholes are measured here, so sums are taken to be off as on "
    "an H200",
}


def print_prediction(found: Prediction) -> None:
    """Print time, energy and power of a run with their intervals, and the operators that are least certain."""
    run, conditions = found.run, found.conditions
    batch = f", batch {found.batch}" if found.batch else ""
    how = f"{conditions.precision}, {conditions.execution}"
    source = {MEASURED: "measured", SUM: "the sum of measured operators", PREDICTED: "predicted, not measured"}[
        source_of(found)
    ]
    title = f"{found.name} on {conditions.device_product}{batch} ({how}): {source}"
    doubt = doubt_mark(run.is_above_limit if found.whole is None else is_doubtful(found.whole))
    rows = []
    for name, cost, unit in (("time", found.time_s, "ms"), ("energy", found.energy_j, "mJ")):
        sample = found.per_sample(cost)
        per_sample = "" if sample is None else f"{milli(sample.value)} {unit}"
        interval = "" if cost is None else f"{milli(cost.lower)} to {milli(cost.upper)} {unit}"
        rows.append((name, (UNKNOWN if cost is None else f"{milli(cost.value)} {unit}") + doubt, interval, per_sample))
    rows.append(("power", (UNKNOWN if found.power_w is None else f"{found.power_w:.0f} W") + doubt, "", ""))
    print_table(title, COSTS, rows)
    for line in _lines(found):
        print_line(line)
    if run.calls:
        total = sum(one.error_s**2 for one in run.calls)
        shown = run.calls[:TUPLES_SHOWN]
        columns: Cells[PredictedCalls] = (
            (Column("operator", "left", wraps=14), lambda one: short_form(one.case.operator)),
            (Column("on", "left", wraps=14), lambda one: short_inputs(one.case.operator)),
            (Column("calls", drop=2), lambda one: str(one.occurrences)),
            (Column("ms/run"), lambda one: milli(one.time_s)),
            # Of kinds without a row there is no error to be typical of.
            (Column("typical error"), lambda one: UNKNOWN if one.is_new else percent(one.time_deviation)),
            (Column("share of uncertainty"), lambda one: percent(one.error_s**2 / total) if total else UNKNOWN),
        )
        print_records(f"Least certain operators ({len(shown)} of {len(run.calls)} predicted)", shown, columns)
    print_origin(*shared_facts([conditions]))
    _print_next_steps(found)


def source_of(found: Prediction) -> str:
    """Return whether the cost is that of the measured whole, the sum of measured operators, or predicted."""
    if found.whole is not None:
        return MEASURED
    return PREDICTED if found.run.calls else SUM


def _lines(found: Prediction) -> Iterator[str]:
    celsius = found.basis.temperature_c
    basis = "as measured" if celsius is None else f"at {celsius:g} °C"
    if found.whole is None:
        yield f"The energy is {basis}."
        yield _sources(found)
    else:
        day, board = found.whole.measurement.ended_at[:10], found.whole.circumstances.device_uuid
        on = "" if board is None else f" on the board {board[:12]}"
        boards = len({row.circumstances.device_uuid for row in found.boards})
        interval = f"span {boards} boards" if boards > 1 else "are of this board; another may differ by more"
        yield f"The whole model was measured on {day}{on}; the energy is {basis}. Intervals {interval}."
        if is_doubtful(found.whole):
            yield f"{DOUBTFUL} The measurement is flagged ({', '.join(_flags(found.whole))}); measure again."
        yield f"Check: {_check(found)}. {_sources(found)}"
    if found.run.widened:
        interval = "interval" if found.whole is None else "predicted interval"
        yield f"The {interval} is wide: {'; '.join(map(_reason, found.run.widened))}."
    quantised = {short_form(one.case.operator) for one in found.run.calls if "quantized" in one.case.operator.operator}
    if quantised and found.conditions.device_type != "cpu":
        yield f"Quantised operations have no rows, and may not exist on a GPU: {some_of(sorted(quantised))}."
    memory = found.memory
    least, device = gigabytes(memory.least_bytes), gigabytes(memory.device_bytes)
    parts = "for weights and the largest operator"
    if memory.is_too_much:
        yield f"{DOUBTFUL} Out of memory: a run needs at least {least} {parts}, and the device has {device}."
    else:
        yield f"A run needs at least {least} of {device} of memory, {parts}."


def _flags(whole: MeasurementRow) -> tuple[str, ...]:
    return names_of(whole, quality_flags(whole.measurement))


def _check(found: Prediction) -> str:
    pairs = [(found.run.time_s, found.time_s, "ms"), (found.run.energy_j, found.energy_j, "mJ")]
    texts = []
    for run, whole, unit in pairs:
        if run is not None and whole is not None:
            outside = "" if run.has(whole.value) else f"; {DOUBTFUL} the measured one is outside"
            interval = f"{milli(run.lower)} to {milli(run.upper)} {unit}{outside}"
            more = run.value / whole.value - 1
            off = f"{'+' if more > 0 else ''}{percent(more)}"
            texts.append(f"{milli(run.value)} {unit} ({off}; {interval})")
    return f"{'predicted' if found.run.calls else 'the sum of its operators'} {' and '.join(texts)}"


def _reason(one: Widened) -> str:
    if one.time_ratio is None:
        return ABOUT_RUN[one.reason]
    operators = f"operators {ABOUT_OPERATORS[one.reason]} ({some_of(one.operators)})"
    return f"{percent(one.time_ratio)} of the time is in {operators}"


def _print_next_steps(found: Prediction) -> None:
    if found.written is not None:
        print_line(f"written: {found.written}")
        name = Path(found.written).parent.name
        steps = [
            (command("count", name, "--meta"), "run each tuple on shapes"),
            (command("filter", name), "keep those of the whitelist"),
            (command("measure", name, *USUAL_OPTIONS), "measure them on the device, and predict again"),
        ]
    elif found.run.calls:
        most = min(LISTED, len(found.run.calls))
        purpose = f"list the {number_of(most, 'least certain operator')}, to measure"
        steps = [(f"{command_line()} --measure-next {most}", purpose)]
    else:
        return
    print_line("\nNext steps:")
    print_commands(steps)


def _sources(found: Prediction) -> str:
    run = found.run
    if not run.calls:
        corrected = ", corrected" if run.is_corrected else ""
        return f"All of its operators were measured: this is their sum{corrected}."
    predicted = f"predicted from {found.samples} measured ones"
    if not run.measured_time_ratio:
        return f"None of its operators was measured: all are {predicted}."
    return (
        f"Operators that were measured take {percent(run.measured_time_ratio)} of the time; the others are {predicted}."
    )


def prediction_object(found: Prediction) -> dict[str, Any]:
    """Return the cost of a model for JSON, in SI units; ``predicted_run`` is the check of a measured whole."""
    run, whole, memory = found.run, found.whole, found.memory
    costs = ("time_s", "energy_j", "time_deviation", "energy_deviation", "is_outside", "is_new", "is_small")
    return {
        "name": found.name,
        "batch": found.batch,
        "source": source_of(found),
        "device_product": found.conditions.device_product,
        "precision": found.conditions.precision,
        "execution": found.conditions.execution,
        "time_s": _range(found.time_s),
        "energy_j": _range(found.energy_j),
        "energy_temperature_c": found.basis.temperature_c,
        "power_w": found.power_w,
        "time_per_sample_s": _range(found.per_sample(found.time_s)),
        "energy_per_sample_j": _range(found.per_sample(found.energy_j)),
        "predicted_run": {"time_s": _range(run.time_s), "energy_j": _range(run.energy_j), "power_w": run.power_w},
        "measured_time_ratio": run.measured_time_ratio,
        "outside_time_ratio": run.outside_time_ratio,
        "is_corrected": run.is_corrected,
        "is_above_power_limit": run.is_above_limit,
        "widened": [
            {"reason": one.reason.value, "time_ratio": one.time_ratio, "operators": list(one.operators)}
            for one in run.widened
        ],
        "samples": found.samples,
        "memory": {"least_bytes": memory.least_bytes, **asdict(memory), "is_too_much": memory.is_too_much},
        "measured_whole": None
        if whole is None
        else {
            "time_s": found.time_s.value,
            "energy_j": None if found.energy_j is None else found.energy_j.value,
            "measured_at": whole.measurement.ended_at,
            "device_uuid": whole.circumstances.device_uuid,
            "flags": list(_flags(whole)),
        },
        "written": found.written,
        "predicted": [
            {
                "operator": str(one.case.operator),
                "calls": one.occurrences,
                **{name: getattr(one, name) for name in costs},
            }
            for one in run.calls
        ],
    }


def _range(one: Range | None) -> dict[str, float] | None:
    return None if one is None else asdict(one)
