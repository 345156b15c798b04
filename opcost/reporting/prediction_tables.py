"""A predicted cost on a terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opcost.comparing.predicted_run import PredictedCalls, Range
from opcost.measuring.record import time_of
from opcost.operators.short_forms import short_form
from opcost.reporting.layout import Column
from opcost.reporting.tables import print_origin, shared_facts
from opcost.reporting.terminal import print_commands, print_line, print_table
from opcost.units import UNKNOWN, milli, percent

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
    from opcost.stages.predict import Prediction

TUPLES_SHOWN = 5

COSTS = (Column("", "left"), Column("per run"), Column("90 % interval"), Column("per sample"))
CALLS = (
    *(Column("operator", "left", wraps=14), Column("on", "left", wraps=14), Column("calls", drop=2)),
    *(Column("ms/run"), Column("±"), Column("share of uncertainty")),
)


def print_prediction(found: Prediction) -> None:
    """Print time, energy and power of a run with their intervals, and the operators that are least certain."""
    run, conditions = found.run, found.conditions
    batch = f", batch {found.batch}" if found.batch else ""
    title = f"{found.name}{batch} on {conditions.device_product} ({conditions.execution}): predicted"
    rows = [
        ("time", *_costs(run.time_s, found.time_per_sample_s, "ms")),
        ("energy", *_costs(run.energy_j, found.energy_per_sample_j, "mJ")),
        ("power", UNKNOWN if run.power_w is None else f"{run.power_w:.0f} W", "", ""),
    ]
    print_table(title, COSTS, rows)
    if found.whole is not None:
        energy = milli(found.whole.measurement.energy_j)
        print_line(f"Measured: {milli(time_of(found.whole).value)} ms, {energy} mJ per run.")
    print_line(_sources(found))
    if run.interval_missing_reason is not None:
        print_line(f"Intervals are unknown: {run.interval_missing_reason}.")
    if not run.is_corrected:
        print_line("The cache correction is unknown for this device, so the sum of operators is not corrected.")
    if run.outside_time_ratio:
        print_line(f"Operators unlike all measured ones take {percent(run.outside_time_ratio)} of the time.")
    if run.calls:
        total = sum((one.error_s or 0.0) ** 2 for one in run.calls)
        cells = [_cells(one, total) for one in run.calls[:TUPLES_SHOWN]]
        print_table(f"Least certain operators ({len(cells)} of {len(run.calls)} predicted)", CALLS, cells)
    if found.written is not None:
        print_line(f"list of tuples to measure: {found.written}")
    elif run.calls:
        print_commands([("--measure-next 20", "write the least certain operators as a list for block 2")])
    print_origin(*shared_facts([conditions]))


def _costs(run: Range | None, sample: Range | None, unit: str) -> tuple[str, str, str]:
    if run is None:
        return UNKNOWN, "", ""
    per_sample = "" if sample is None else f"{milli(sample.value)} {unit}"
    if run.lower is None or run.upper is None:
        return f"{milli(run.value)} {unit}", UNKNOWN, per_sample
    return f"{milli(run.value)} {unit}", f"{milli(run.lower)} to {milli(run.upper)} {unit}", per_sample


def _sources(found: Prediction) -> str:
    run = found.run
    measured = f"Operators that were measured take {percent(run.measured_time_ratio)} of the time"
    if not run.calls:
        return f"{measured}: this is their sum, corrected."
    return f"{measured}; the others are predicted from {found.samples} measured operators."


def _cells(calls: PredictedCalls, total: float) -> tuple[str, ...]:
    form = short_form(calls.case.operator)
    return (
        form,
        calls.case.operator.inputs_text,
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
        "interval_missing_reason": run.interval_missing_reason,
        "samples": found.samples,
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
