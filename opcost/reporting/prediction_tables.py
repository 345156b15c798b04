"""A predicted cost on a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.comparing.predicted_run import PredictedCalls, Range
from opcost.invocation import command, command_line
from opcost.measuring.protocol import USUAL_OPTIONS
from opcost.measuring.record import time_of
from opcost.operators.short_forms import short_form, short_inputs
from opcost.prediction.needed_memory import NeededMemory
from opcost.reporting.layout import Column
from opcost.reporting.tables import DOUBTFUL, doubt_mark, print_origin, shared_facts
from opcost.reporting.terminal import print_commands, print_line, print_table
from opcost.units import UNKNOWN, gigabytes, milli, number_of, percent

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
    from opcost.stages.predict import Prediction

TUPLES_SHOWN = 5

LISTED = 20
"""The most operators that the next step lists."""

COSTS = (Column("", "left"), Column("per run"), Column("90 % interval"), Column("per sample"))
CALLS = (
    *(Column("operator", "left", wraps=14), Column("on", "left", wraps=14), Column("calls", drop=2)),
    *(Column("ms/run"), Column("typical error"), Column("share of uncertainty")),
)


def print_prediction(found: Prediction) -> None:
    """Print time, energy and power of a run with their intervals, and the operators that are least certain."""
    run, conditions = found.run, found.conditions
    batch = f", batch {found.batch}" if found.batch else ""
    how = f"{conditions.precision}, {conditions.execution}"
    source = "predicted, not measured" if run.calls else "the sum of measured operators"
    title = f"{found.name} on {conditions.device_product}{batch} ({how}): {source}"
    rows = [
        ("time", *_costs(run.time_s, found.time_per_sample_s, "ms")),
        ("energy", *_costs(run.energy_j, found.energy_per_sample_j, "mJ")),
        ("power", UNKNOWN if run.power_w is None else f"{run.power_w:.0f} W", "", ""),
    ]
    doubt = doubt_mark(run.is_above_limit)
    print_table(title, COSTS, [(name, f"{cost}{doubt}", *others) for name, cost, *others in rows])
    for line in _lines(found):
        print_line(line)
    if run.calls:
        total = sum((one.error_s or 0.0) ** 2 for one in run.calls)
        cells = [_cells(one, total) for one in run.calls[:TUPLES_SHOWN]]
        print_table(f"Least certain operators ({len(cells)} of {len(run.calls)} predicted)", CALLS, cells)
    print_origin(*shared_facts([conditions]))
    _print_next_steps(found)


def _lines(found: Prediction) -> Iterator[str]:
    """Yield what there is to know about the figures, a line each."""
    run = found.run
    if found.whole is not None:
        energy = milli(found.whole.measurement.energy_j)
        yield f"The whole model was measured: {milli(time_of(found.whole).value)} ms and {energy} mJ per run."
    yield _sources(found)
    if run.interval_missing_reason is not None:
        mark = f"{DOUBTFUL} " if run.is_above_limit else ""
        yield f"{mark}Intervals are unknown: {run.interval_missing_reason}."
    if not run.is_corrected:
        yield "The cache correction is unknown for this device, so the sum of operators is not corrected."
    if run.outside_time_ratio:
        yield f"Operators unlike all measured ones take {percent(run.outside_time_ratio)} of the time."
    yield _memory(found.memory)


def _memory(memory: NeededMemory) -> str:
    least, device = gigabytes(memory.least_bytes), gigabytes(memory.device_bytes)
    parts = "for weights and the largest operator"
    if memory.is_too_much:
        return f"{DOUBTFUL} Out of memory: a run needs at least {least} {parts}, and the device has {device}."
    return f"A run needs at least {least} of {device} of memory, {parts}."


def _print_next_steps(found: Prediction) -> None:
    """Print the commands that measure what is least certain."""
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


def _costs(run: Range | None, sample: Range | None, unit: str) -> tuple[str, str, str]:
    if run is None:
        return UNKNOWN, "", ""
    per_sample = "" if sample is None else f"{milli(sample.value)} {unit}"
    if run.lower is None or run.upper is None:
        return f"{milli(run.value)} {unit}", UNKNOWN, per_sample
    return f"{milli(run.value)} {unit}", f"{milli(run.lower)} to {milli(run.upper)} {unit}", per_sample


def _sources(found: Prediction) -> str:
    run = found.run
    if not run.calls:
        return f"All of its operators were measured: this is their sum{', corrected' if run.is_corrected else ''}."
    predicted = f"predicted from {found.samples} measured ones"
    if not run.measured_time_ratio:
        return f"None of its operators was measured: all are {predicted}."
    return (
        f"Operators that were measured take {percent(run.measured_time_ratio)} of the time; the others are {predicted}."
    )


def _cells(calls: PredictedCalls, total: float) -> tuple[str, ...]:
    form = short_form(calls.case.operator)
    return (
        form,
        short_inputs(calls.case.operator),
        str(calls.occurrences),
        milli(calls.time_s),
        UNKNOWN if calls.time_deviation is None else percent(calls.time_deviation),
        UNKNOWN if calls.error_s is None or not total else percent(calls.error_s**2 / total),
    )


def prediction_object(found: Prediction) -> dict[str, Any]:
    """Return a prediction for JSON, in SI units."""
    run = found.run
    return {
        "name": found.name,
        "batch": found.batch,
        "source": "predicted",
        "device_product": found.conditions.device_product,
        "precision": found.conditions.precision,
        "execution": found.conditions.execution,
        "time_s": _range(run.time_s),
        "energy_j": _range(run.energy_j),
        "power_w": run.power_w,
        "time_per_sample_s": _range(found.time_per_sample_s),
        "energy_per_sample_j": _range(found.energy_per_sample_j),
        "measured_time_ratio": run.measured_time_ratio,
        "outside_time_ratio": run.outside_time_ratio,
        "is_corrected": run.is_corrected,
        "is_above_power_limit": run.is_above_limit,
        "interval_missing_reason": run.interval_missing_reason,
        "samples": found.samples,
        "memory": {
            "least_bytes": found.memory.least_bytes,
            "weights_bytes": found.memory.weights_bytes,
            "activations_bytes": found.memory.activations_bytes,
            "device_bytes": found.memory.device_bytes,
            "is_too_much": found.memory.is_too_much,
        },
        "measured_whole": None
        if found.whole is None
        else {"time_s": found.whole.measurement.time_s, "energy_j": found.whole.measurement.energy_j},
        "written": found.written,
        "predicted": [
            {
                "operator": str(one.case.operator),
                "calls": one.occurrences,
                "time_s": one.time_s,
                "energy_j": one.energy_j,
                "time_deviation": one.time_deviation,
                "energy_deviation": one.energy_deviation,
                "is_outside": one.is_outside,
            }
            for one in run.calls
        ],
    }


def _range(one: Range | None) -> dict[str, float | None] | None:
    return None if one is None else {"value": one.value, "lower": one.lower, "upper": one.upper}
