"""The cost of one model on a terminal and for programs: its operators, its layers, and its prediction."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from opcost.columns import Columns, by_column, columns_of, grouped
from opcost.comparing.layers import NO_LAYER, LayerRow, Layers
from opcost.comparing.predicted_run import PredictedCalls, Range, WidthReason
from opcost.comparing.ranking import FEWEST_WHOLES, SUM
from opcost.estimates import total_if_known
from opcost.invocation import command, command_line
from opcost.measuring.conditions import DEVICE_PRODUCT
from opcost.measuring.data_sheets import SHEETS
from opcost.measuring.record import MeasurementRow, is_doubtful, names_of, quality_flags
from opcost.operators.counts import MODEL
from opcost.operators.model_inputs import Unit
from opcost.operators.texts import parse_operator, short_form, short_inputs
from opcost.operators.training import INFERENCE
from opcost.prediction.learned_costs import FEWEST_SCORES
from opcost.reporting.comparison_tables import print_comparisons
from opcost.reporting.measurement_tables import print_units
from opcost.reporting.output import write_csv
from opcost.reporting.tables import (
    DOUBTFUL,
    LINES_SHOWN,
    OPERATOR_ON_INPUTS,
    Column,
    Table,
    doubt_mark,
    of_texts,
    print_commands,
    print_line,
    print_note,
    print_origin,
    print_priced,
    print_table,
    shared_facts,
    steps_of_list,
    work_in_words,
)
from opcost.units import (
    UNKNOWN,
    gigabytes,
    megabytes,
    milli,
    millijoules,
    milliseconds,
    number_of,
    percent,
    scaled,
    significant,
    some_of,
    whole_watts,
)

if TYPE_CHECKING:
    # Only for types: these modules import torch, or are not needed.
    from opcost.stages.model_layers import LayersReport
    from opcost.stages.predict import Prediction
    from opcost.stages.profile import CostOnDevice, ModelProfile, Profile, ProfiledOperator

# A profile: what a model's operators cost, or what they do and what the database knows


@dataclass(frozen=True)
class _Kind:
    name: str
    tuples: int
    calls: int
    flop: float | None
    memory_bytes: int


WORK: Table[ProfiledOperator | _Kind | LayerRow] = (
    Column("GFLOP", lambda one: scaled(one.flop, 1e9), drop=3),
    Column("MB", lambda one: scaled(one.memory_bytes, 1e6), drop=3),
)
OPERATORS: Table[ProfiledOperator] = (*OPERATOR_ON_INPUTS, Column("calls", lambda one: str(one.calls), drop=2))
COSTS: Table[ProfiledOperator] = (
    *OPERATORS,
    Column("ms/run", lambda one: milli(one.time_s)),
    Column("mJ/run", lambda one: milli(one.energy_j), energy_j=lambda one: one.energy_j),
    Column("time share", lambda one: percent(one.time_ratio), drop=1),
    Column("energy share", lambda one: percent(one.energy_ratio), drop=1),
    *WORK,
)
KINDS: Table[_Kind] = (
    Column("kind of operator", lambda one: one.name, "left"),
    Column("tuples", lambda one: str(one.tuples), drop=1),
    Column("calls", lambda one: str(one.calls), drop=1),
)


def print_profile(profile: Profile, words: Sequence[str], top: int | None = None, mode: str = INFERENCE) -> None:
    """Print a profile of the model that ``words`` name: the plan in a dry run, costs, or counts and what is known."""
    if profile.units and profile.request.dry_run:
        print_units(profile.units, dry_run=True)
        return
    if profile.units:
        if profile.failed:
            print_units(profile.units, dry_run=False)
        print_comparisons([model.comparison for model in profile.models if model.comparison is not None], dry_run=False)
        for model in profile.models:
            lines, shown = _largest(model, top)
            product = "" if model.conditions is None else f" on {model.conditions.device_product}"
            print_line("")
            print_table(f"{model.name}{product}: operators by time ({shown})", COSTS, lines)
            if unmeasured := sum(line.time_s is None for line in model.operators):
                tuples = number_of(unmeasured, "operator tuple")
                print_line(f"{tuples} without a row: the shares are those of the others.")
        return
    for model in profile.models:
        _print_kinds(model)
        lines, shown = _largest(model, top)
        print_table(f"Operators by FLOPs or bytes ({shown})", (*OPERATORS, *_work_of(model)), lines)
        _print_known(model)
    print_line("Nothing was measured.")
    steps = [
        (command("predict", *words, "--device", "H200"), "what it costs on an H200, predicted"),
        (command("profile", *words, "--device", "cpu", "--seconds", "0.5"), "measure on this CPU, with short loops"),
        (command("profile", *words, "--device", "H200", "--dry-run"), "the time that it takes on an H200"),
    ]
    # Other commands know a model by its config.
    names = [model.name for model in profile.models if model.known and model.config is not None]
    if names:
        of_mode = () if mode == INFERENCE else ("--mode", mode)
        steps.append((command("show", *names, *of_mode, "--operators"), "the operators on the devices above"))
    print_commands(steps)
    print_origin()


def profile_object(profile: Profile, report: Path | None) -> dict[str, Any]:
    path = None if report is None else str(report)
    return {"models": profile.models, "measurements": profile.units, "report": path}


def _largest(model: ModelProfile, top: int | None) -> tuple[Sequence[ProfiledOperator], str]:
    """Return the operators that are shown, and how many of them that is in words."""
    lines, number = model.operators[: LINES_SHOWN if top is None else top], len(model.operators)
    return lines, f"{len(lines)} of {number}" + (f"; --top {number} shows all" if len(lines) < number else "")


def _work_of(model: ModelProfile) -> Table[ProfiledOperator | _Kind]:
    def share_of_flop(one: ProfiledOperator | _Kind) -> str:
        is_known = one.flop is not None and model.flop and model.flop_missing_reason is None
        return percent(one.flop / model.flop if is_known else None)  # type: ignore[operator]

    return (
        *WORK,
        Column("share of FLOPs", share_of_flop, drop=1),
        Column("share of bytes", lambda one: percent(one.memory_bytes / model.memory_bytes), drop=1),
    )


def _print_kinds(model: ModelProfile) -> None:
    # In the order of the operators: the kind of the largest comes first.
    by_kind = grouped(model.operators, lambda line: line.operator.rpartition(".")[2])
    kinds = []
    for kind, lines in by_kind.items():
        flop, memory_bytes = total_if_known(line.flop for line in lines), sum(line.memory_bytes for line in lines)
        kinds.append(_Kind(kind, len(lines), sum(line.calls for line in lines), flop, memory_bytes))
    parameters = f"{significant(model.parameters / 1e6)} million parameters"
    title = f"{model.name}: {work_in_words(model)} and {parameters} in one run"
    print_table(title, (*KINDS, *_work_of(model)), kinds)
    if model.flop_missing_reason is not None:
        print_line(f"FLOPs incomplete: {model.flop_missing_reason}.")
    if model.missing_ratio is not None:
        names = some_of(model.missing_operations)
        print_line(f"{percent(model.missing_ratio)} of FLOPs or bytes are in no tuple: {names}.")


def _print_known(model: ModelProfile) -> None:
    if not model.known:
        print_line(f"{model.name}: the database has no row of it, of any device.", "")
        return

    def rest(one: CostOnDevice, value: float | None) -> str:
        return "0" if one.calls_ratio == 1 else milli(value)

    table: Table[CostOnDevice] = (
        Column("device", lambda one: one.conditions.device_product, "left"),
        Column("conditions", lambda one: f"{one.conditions.execution}, {one.conditions.precision}", "left", drop=3),
        Column("calls with rows", lambda one: percent(one.calls_ratio, 0)),
        Column("sum ms", lambda one: milli(one.sum_time_s)),
        Column("sum mJ", lambda one: milli(one.sum_energy_j)),
        Column("estimated rest ms", lambda one: rest(one, one.predicted_time_s), drop=1),
        Column("estimated rest mJ", lambda one: rest(one, one.predicted_energy_j), drop=1),
        Column("whole ms", lambda one: milli(one.whole_time_s), drop=2),
        Column("whole mJ", lambda one: milli(one.whole_energy_j), drop=2),
    )
    print_table(f"{model.name}: costs in the database, of one run", table, model.known)
    if any(one.predicted_time_s is not None for one in model.known):
        print_note("Estimated rest: calls without a row, predicted from FLOPs and bytes.", "")


# The layers of a model


@dataclass(frozen=True)
class LayerLine(Columns):
    """A layer of a model with its cost on a device; the device is empty if nothing is measured."""

    model: Annotated[str, MODEL]
    device_product: Annotated[str | None, DEVICE_PRODUCT]
    row: LayerRow


def rows_of(report: LayersReport, depth: int | None) -> tuple[LayerRow, ...]:
    """Return a row for each call, or for each layer to a depth."""
    return report.layers.rows if depth is None else report.layers.rows_to(depth)


def print_csv(report: LayersReport, depth: int | None) -> None:
    product = None if report.conditions is None else report.conditions.device_product
    lines = (by_column(LayerLine(report.name, product, row)) for row in rows_of(report, depth))
    write_csv(sys.stdout, [field.name for field in columns_of(LayerLine)], lines)


def layers_object(report: LayersReport, depth: int | None) -> dict[str, Any]:
    """Return the layers, and the sum that they add up to, as one object for JSON; figures are in SI units."""
    return {
        "name": report.name,
        "weights": report.weights,
        "counted_on": report.counted_on,
        "conditions": report.conditions,
        **asdict(report.costs),
        "are_means": report.layers.are_means,
        "is_counted_otherwise": report.differs,
        "other_devices": list(report.others),
        "layers": rows_of(report, depth),
    }


def layer_notes(report: LayersReport) -> list[str]:
    """Return the notes on a model's layers, each a line without a command."""
    costs = report.costs
    notes = []
    if costs.sum_time_s is not None:
        at = "" if costs.reference_temperature_c is None else f"; energies are at {costs.reference_temperature_c:g} °C"
        notes.append(f"Sum of operators: {_pair(costs.sum_time_s, costs.sum_energy_j)}. The layers add up to it{at}.")
        corrected = f"Corrected sum: {_pair(costs.corrected_time_s, costs.corrected_energy_j)}."
        whole = f"Whole model: {_pair(costs.whole_time_s, costs.whole_energy_j)}."
        is_corrected, is_whole = costs.corrected_time_s is not None, costs.whole_time_s is not None
        others = [corrected] * is_corrected + [whole] * is_whole + ["Layers are not corrected."] * is_corrected
        notes += [" ".join(others)] * bool(others)
    if report.layers.are_of_step:
        notes.append(f"Shares are of the step. {NO_LAYER}: backward of no layer's forward.")
    notes += missing_notes(report.layers)
    if report.layers.are_means:
        notes.append(
            "The model was counted on shapes, and some operators are measured on several kinds of input data: their "
            "calls have the mean."
        )
    if report.differs:
        notes.append(
            "The database has the model with other operators, from another version or device: its sum there is another."
        )
    if report.others:
        notes.append(f"There are rows of {', '.join(report.others)}, too: name the device.")
    return notes


def missing_notes(layers: Layers) -> list[str]:
    """Return the number of calls that compute something and have no row; none if there are none."""
    missing = sum(call.lacks_row for call in layers.calls)
    if not missing:
        return []
    computing = sum(call.count.computes for call in layers.calls)
    if missing == computing:
        return ["Nothing of the model is measured."]
    return [f"{number_of(missing, 'call')} of {computing} without a row: the shares are those of the others."]


def _pair(time_s: float | None, energy_j: float | None) -> str:
    return f"{milliseconds(time_s)}, {millijoules(energy_j)}"


WHOLE = "(model)"
FIGURES: Table[LayerRow] = (
    Column("parameters", lambda one: "" if one.weights is None else str(one.weights), drop=7),
    Column("ms", lambda one: milli(one.time_s)),
    Column("mJ", lambda one: milli(one.energy_j)),
    Column("time share", lambda one: percent(one.time_ratio), drop=2),
    Column("energy share", lambda one: percent(one.energy_ratio), drop=1),
    *WORK,
)
"""The figures of a layer, here and in the report's trees."""

STEP_FIGURES: Table[LayerRow] = (
    Column("forward ms", lambda one: milli(one.forward_time_s)),
    Column("backward ms", lambda one: milli(one.backward_time_s)),
    Column("forward mJ", lambda one: milli(one.forward_energy_j), drop=4),
    Column("backward mJ", lambda one: milli(one.backward_energy_j), drop=4),
    Column("saved", lambda one: megabytes(one.saved_bytes), drop=3),
    Column("forward time share", lambda one: percent(one.forward_time_ratio), drop=5),
    Column("backward time share", lambda one: percent(one.backward_time_ratio), drop=5),
    Column("forward energy share", lambda one: percent(one.forward_energy_ratio), drop=5),
    Column("backward energy share", lambda one: percent(one.backward_energy_ratio), drop=5),
)
"""The figures of a layer in the phases of a training step; shares are of the whole step."""


def print_layers(report: LayersReport, depth: int | None) -> None:
    rows = rows_of(report, depth)
    sizes: Table[LayerRow] = (
        Column("input", lambda one: one.input_sizes or "", "left", drop=4, wraps=12),
        Column("output", lambda one: one.output_sizes or "", "left", drop=6, wraps=12),
    )
    calls: Table[LayerRow] = (Column("calls", lambda one: str(one.calls), drop=5),)
    is_step, (weights, *costs) = report.layers.are_of_step, FIGURES
    table: Table[LayerRow] = (
        Column("path", lambda one: one.path or WHOLE, "left", wraps=12),
        Column("layer", layer_in_words, "left", wraps=14),
        *(sizes if any(row.input_sizes is not None for row in rows) else ()),
        *(() if depth is None and not is_step else calls),
        weights,
        *(STEP_FIGURES if is_step else ()),
        *costs,
    )
    conditions = report.conditions
    where = "" if conditions is None else f" on {conditions.device_product} ({conditions.execution})"
    what = number_of(len(rows), "call" if depth is None and not is_step else "layer")
    step = ", a training step" if is_step else ""
    title = f"{report.name}{where}{step}: {what} in order of execution"
    print_table(title, table, rows)
    print_note(*layer_notes(report), warnings=missing_notes(report.layers))
    if report.measuring is not None:
        print_commands([(report.measuring, "measure what has no row")])
    print_origin(*([] if conditions is None else shared_facts([conditions])))


def layer_in_words(row: LayerRow) -> str:
    """Return the class or function with the arguments that decide its cost: ``Conv2d 3→64, kernel 7``."""
    if row.operator is None or row.parameters is None:
        return row.layer
    form = short_form(parse_operator(row.operator, row.parameters, "", row.training_mode))
    return f"{row.layer}{form.removeprefix(row.operator.rpartition('.')[2])}"


# A predicted cost

MEASURED, PREDICTED = "measured", "predicted"
"""The sources of a cost besides ``SUM``."""

TUPLES_SHOWN, LISTED = 5, 20
"""The most operators that are shown, and that the next step lists."""

DEVICE_AND_PRECISION = ("device_product", "precision")

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
    WidthReason.OTHER_CONDITIONS: "no operator was measured under these conditions",
    WidthReason.ABOVE_LIMIT: "its operators draw more than the power limit, so that a run takes longer than this",
    WidthReason.UNCORRECTED: "the cache correction is unknown for this device, so the sum is not corrected",
    WidthReason.FEW_WHOLES: f"fewer than {FEWEST_WHOLES} wholes are measured here, so sums are taken to be off as on "
    "an H200",
}


def _interval(cost: Range | None) -> str:
    return UNKNOWN if cost is None else f"{milli(cost.lower)} to {milli(cost.upper)}"


def _source_of(found: Prediction) -> str:
    if found.whole is not None:
        return MEASURED
    return PREDICTED if found.run.calls else SUM


PARTS_OF_STEP: Table[Prediction] = (
    Column("part", lambda one: str(one.phase), "left"),
    Column("ms/run", lambda one: milli(one.time_s.value)),
    Column("90 % interval ms", lambda one: _interval(one.time_s), drop=1),
    Column("mJ/run", lambda one: UNKNOWN if one.energy_j is None else milli(one.energy_j.value)),
    Column("90 % interval mJ", lambda one: _interval(one.energy_j), drop=1),
    Column("W", lambda one: whole_watts(one.power_w), drop=2),
    Column("source", _source_of, "left", drop=3),
)


def print_prediction(found: Prediction) -> None:
    run, conditions = found.run, found.result.conditions
    batch = f", batch {found.result.batch_size}" if found.result.batch_size else ""
    how = f"{conditions.precision}, {conditions.execution}"
    sources = {MEASURED: "measured", SUM: "the sum of measured operators", PREDICTED: "predicted, not measured"}
    title = f"{found.result.name} on {conditions.device_product}{batch} ({how}): {sources[_source_of(found)]}"
    doubt = doubt_mark(run.is_above_limit if found.whole is None else is_doubtful(found.whole))
    rows = []
    for name, cost, unit in (("time", found.time_s, "ms"), ("energy", found.energy_j, "mJ")):
        sample = found.per_unit(cost)
        per_sample = "" if sample is None else f"{milli(sample.value)} {unit}"
        interval = "" if cost is None else f"{milli(cost.lower)} to {milli(cost.upper)} {unit}"
        rows.append((name, (UNKNOWN if cost is None else f"{milli(cost.value)} {unit}") + doubt, interval, per_sample))
    rows.append(("power", (UNKNOWN if found.power_w is None else f"{found.power_w:.0f} W") + doubt, "", ""))
    unit = Unit.SAMPLE if found.result.units is None else found.result.units.unit
    print_table(title, of_texts("", "per run", "90 % interval", f"per {unit}"), rows)
    if found.phases:
        print_table("Parts of the step", PARTS_OF_STEP, found.phases)
    sample_j = found.per_unit(found.energy_j)
    print_priced(None if sample_j is None else sample_j.value, unit)
    print_line(*_lines(found))
    if run.calls:
        total = sum(one.error_s**2 for one in run.calls)
        shown = run.calls[:TUPLES_SHOWN]
        table: Table[PredictedCalls] = (
            Column("operator", lambda one: short_form(one.case.operator), "left", wraps=14),
            Column("on", lambda one: short_inputs(one.case.operator), "left", wraps=14),
            Column("calls", lambda one: str(one.occurrences), drop=2),
            Column("ms/run", lambda one: milli(one.time_s)),
            # Of kinds without a row there is no error to be typical of.
            Column("typical error", lambda one: UNKNOWN if one.is_new else percent(one.time_deviation)),
            Column("share of uncertainty", lambda one: percent(one.error_s**2 / total) if total else UNKNOWN),
        )
        print_table(f"Least certain operators ({len(shown)} of {len(run.calls)} predicted)", table, shown)
    print_origin(*shared_facts([conditions]))
    steps = []
    if found.written is not None:
        print_line(f"written: {found.written}")
        name = Path(found.written).parent.name
        steps = steps_of_list(name, "measure them on the device, and predict again")
    elif run.calls:
        most = min(LISTED, len(run.calls))
        purpose = f"list the {number_of(most, 'least certain operator')}, to measure"
        steps = [(f"{command_line()} --measure-next {most}", purpose)]
    if steps:
        print_commands(steps, "Next steps")


def prediction_line(found: Prediction) -> dict[str, object]:
    """Return the cost with plain values, for a data frame: intervals have a column for each end."""
    line: dict[str, object] = {}
    for name, value in prediction_object(found).items():
        if isinstance(value, Range):
            quantity, _, unit = name.rpartition("_")
            ends = {f"{quantity}_lower_{unit}": value.lower, f"{quantity}_upper_{unit}": value.upper}
            line |= {name: value.value, **ends}
        elif value is None or isinstance(value, str | int | float):
            line[name] = value
    return line


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
        reasons = [
            ABOUT_RUN[one.reason]
            if one.time_ratio is None
            else f"{percent(one.time_ratio)} of the time is in operators {ABOUT_OPERATORS[one.reason]} "
            f"({some_of(one.operators)})"
            for one in found.run.widened
        ]
        yield f"The {interval} is wide: {'; '.join(reasons)}."
    conditions, start = found.result.conditions, found.run.start
    if start is not None:
        products = dict.fromkeys([start.device_product, conditions.device_product])
        sources = " and ".join(SHEETS[name].source for name in products if name in SHEETS)
        yield (
            f"Rates are those of {start.device_product} in {start.precision}, times the ratio of data sheets "
            f"({sources}). The interval is from models that were predicted without any row of their card or precision. "
            "There are rows of two cards with one chip, and two cards are two: another chip may be further off."
        )
    if found.other_torch is not None:
        rows, here = conditions.torch_version, found.other_torch
        yield f"Rows are of torch {rows}, the nearest that there is to {here}, which is installed: kernels may differ."
    quantised = {short_form(one.case.operator) for one in found.run.calls if "quantized" in one.case.operator.operator}
    if quantised and conditions.device_type != "cpu":
        yield f"Quantised operations have no rows, and may not exist on a GPU: {some_of(sorted(quantised))}."
    memory = found.memory
    least, device = gigabytes(memory.least_bytes), gigabytes(memory.device_bytes)
    parts = "for weights and the largest operator"
    if found.phases:
        parts = "for weights, gradients and what the backward needs"
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
            more = run.value / whole.value - 1
            off = f"{'+' if more > 0 else ''}{percent(more)}"
            interval = f"{milli(run.lower)} to {milli(run.upper)} {unit}{outside}"
            texts.append(f"{milli(run.value)} {unit} ({off}; {interval})")
    return f"{'predicted' if found.run.calls else 'the sum of its operators'} {' and '.join(texts)}"


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


def _costs(found: Prediction) -> dict[str, Any]:
    costs = {"time_s": found.time_s, "energy_j": found.energy_j, "power_w": found.power_w}
    return {"source": _source_of(found), **costs}


def prediction_object(found: Prediction) -> dict[str, Any]:
    """Return the cost of a model for JSON, in SI units; ``predicted_run`` is the check of a measured whole."""
    run, whole, memory = found.run, found.whole, found.memory
    costs = ("time_s", "energy_j", "time_deviation", "energy_deviation", "is_outside", "is_new", "is_small")
    return {
        "name": found.result.name,
        "batch": found.result.batch_size,
        **_costs(found),
        "device_product": found.result.conditions.device_product,
        "precision": found.result.conditions.precision,
        "execution": found.result.conditions.execution,
        "energy_temperature_c": found.basis.temperature_c,
        "unit": None if found.result.units is None else found.result.units.unit,
        "time_per_sample_s": found.per_unit(found.time_s),
        "energy_per_sample_j": found.per_unit(found.energy_j),
        "predicted_run": {"time_s": run.time_s, "energy_j": run.energy_j, "power_w": run.power_w},
        "measured_time_ratio": run.measured_time_ratio,
        "outside_time_ratio": run.outside_time_ratio,
        "is_corrected": run.is_corrected,
        "is_above_power_limit": run.is_above_limit,
        "widened": run.widened,
        "rates_of": None if run.start is None else {name: getattr(run.start, name) for name in DEVICE_AND_PRECISION},
        "torch_version": found.result.conditions.torch_version,
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
        "phases": {str(one.phase): _costs(one) for one in found.phases},
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
