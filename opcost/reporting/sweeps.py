"""Sweeps over the size of an input and over power caps: on a terminal, as JSON, as figures and as files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opcost.columns import by_column, columns_of, grouped
from opcost.comparing.sweep_sizes import BreakLine, Curve
from opcost.measuring.flags import CASTING_DOUBT
from opcost.measuring.record import IMPOSSIBLE_POWER_MEANING, MeasurementRow, has_impossible_power, is_doubtful
from opcost.measuring.sweep_record import UNPREDICTED, SweepKernelRow, SweepRepetitionRow, SweepSizeRow
from opcost.metering.cap_rows import CapPoint, Objective
from opcost.metering.power_caps import ABOVE_POWER_RATIO, free_cap_w, is_efficient, medians_of
from opcost.reporting.charts import matrix
from opcost.reporting.markup import Axis, Drawing, Panel, Series, curves, linear_axis, log_axis, svg_file, text
from opcost.reporting.output import cells_of, write_csv
from opcost.reporting.tables import Column, Table, print_line, print_origin, print_table, shared_facts
from opcost.storage.files import replace_file
from opcost.units import (
    MILLI,
    UNKNOWN,
    duration,
    milli,
    millijoules,
    milliseconds,
    number_of,
    percent,
    scaled,
    significant,
    some_of,
    watts,
    whole_watts,
)

if TYPE_CHECKING:
    # Only for types: the stages import torch, and pandas takes long.
    import pandas as pd

    from opcost.stages.power_cap import CapSweep
    from opcost.stages.sweep import SweepResult

MICRO, NANO = 1e-6, 1e-9

LONGEST_REASON = 160

SAME_RANKS = 0.99
"""The absolute correlation from which two columns order rows alike: each has the other's order."""

FEWEST_ROWS = 3

TITLES = {Objective.ENERGY: "J", Objective.EDP: "EDP, J s", Objective.ED2P: "ED²P, J s²"}
NEAR_LIMIT_RATIO = 0.97
"""Mean power over the limit from which a load is at it."""

PIECES: Table[BreakLine] = (
    Column("curve", lambda one: one.quantity, "left"),
    Column("piece", lambda one: one.kind, "left"),
    Column("sizes", lambda one: f"{one.first_size} to {one.last_size}"),
    Column("residual", lambda one: percent(one.residual_ratio), drop=1),
    Column("jump", lambda one: UNKNOWN if one.jump_ratio is None else percent(one.jump_ratio - 1), drop=2),
)
"""The pieces that a curve over sizes is fitted by, here and in the report."""


def print_plan(result: SweepResult) -> None:
    planned = f"{number_of(result.planned, 'repetition')} of {number_of(len(result.sizes), 'size')} to measure"
    known = f"{len(result.repetitions)} in the database"
    time = duration(result.expected_s)
    print_line(f"{result.name}: {planned}, {known}; about {time} (dry run: nothing was measured)")


def print_sweep(result: SweepResult) -> None:
    known = ((row, (row.figures.time_s, row.prediction.predicted_time_s)) for row in result.sizes)
    shown = [row for row, times_s in known if times_s != (None, None)]
    if shown:
        first = shown[0].conditions
        title = f"{result.name} on {first.device_product} ({first.execution}): {result.axis}"
        print_table(title, size_columns(result.axis, result.unit), shown)
        if result.repetitions:
            print_line("Spreads are over repetitions; predicted figures differ from measured ones by this much.")
            # Those of sizes whose runs are long enough to be measured well.
            long = [row.figures for row in shown if (row.figures.time_s or 0.0) >= MILLI]
            time, energy = (
                percent(max((one for one in spreads if one is not None), default=None), 2)
                for spreads in ([one.time_spread_ratio for one in long], [one.energy_spread_ratio for one in long])
            )
            print_line(f"Largest spread of a size of 1 ms or more: time {time}, energy {energy}.")
            doubtful = [row for row in result.repetitions if is_doubtful(row)]
            left_out = len(result.repetitions) - sum(row.figures.repetitions for row in result.sizes)
            meanings = {flag.meaning for one in doubtful for flag in CASTING_DOUBT.intersection(one.measurement.flags)}
            meanings |= {IMPOSSIBLE_POWER_MEANING for one in doubtful if has_impossible_power(one)}
            why = some_of(sorted(meanings))
            if left_out:
                print_line(f"Without {number_of(left_out, 'doubtful repetition')} ({why}).")
            if len(doubtful) > left_out:
                counting = number_of(len(doubtful) - left_out, "doubtful repetition")
                print_line(f"With {counting}, because these sizes have no others ({why}).")
        if result.pieces:
            print_table(f"{result.name}: fit by pieces", PIECES, result.pieces)
    if result.new == 0 and not result.failed:
        print_line("Nothing was left to measure: all repetitions are in the database.")
    _print_reasons("not measured", [(row, row.failure) for row in result.sizes])
    _print_reasons("no energy", [(row, row.figures.energy_missing_reason) for row in result.sizes])
    asked = [row for row in result.sizes if row.prediction != UNPREDICTED]
    _print_reasons("not predicted", [(row, row.prediction.prediction_missing_reason) for row in asked])
    print_origin(*shared_facts([row.conditions for row in shown]))


def sweep_object(result: SweepResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "axis": result.axis,
        "planned": result.planned,
        "expected_s": result.expected_s,
        "sizes": [by_column(row) for row in result.sizes],
        "pieces": [asdict(line) for line in result.pieces],
    }


def size_columns(axis: str, unit: str) -> Table[SweepSizeRow]:
    """Return the columns of a sweep over an axis, whose cost is also that of a unit."""

    def interval(quantity: str, one: SweepSizeRow) -> str:
        *_, lower, upper = _costs(one)[quantity]
        return UNKNOWN if lower is None else f"{milli(lower)} to {milli(upper)}"

    def difference(quantity: str, one: SweepSizeRow) -> str:
        measured, predicted, *_ = _costs(one)[quantity]
        return UNKNOWN if predicted is None or measured is None else percent(predicted / measured - 1)

    return (
        Column(axis, lambda one: str(one.place.size)),
        Column("runs", lambda one: str(one.figures.repetitions) if one.figures.repetitions else UNKNOWN, drop=5),
        Column("ms/run", lambda one: milli(one.figures.time_s)),
        Column("time spread", lambda one: percent(one.figures.time_spread_ratio, 2), drop=4),
        Column("mJ/run", lambda one: milli(one.figures.energy_j)),
        Column("energy spread", lambda one: percent(one.figures.energy_spread_ratio, 2), drop=4),
        Column("W", lambda one: whole_watts(one.figures.power_w), drop=1),
        Column(f"ns/{unit}", lambda one: scaled(one.figures.time_per_unit_s, NANO), drop=2),
        Column(f"nJ/{unit}", lambda one: scaled(one.figures.energy_per_unit_j, NANO), drop=2),
        Column("predicted ms", lambda one: milli(one.prediction.predicted_time_s)),
        Column("90 % interval", partial(interval, "time"), drop=6),
        Column("time differs", partial(difference, "time"), drop=3),
        Column("predicted mJ", lambda one: milli(one.prediction.predicted_energy_j)),
        Column("90 % interval", partial(interval, "energy"), drop=6),
        Column("energy differs", partial(difference, "energy"), drop=3),
        Column(f"predicted nJ/{unit}", lambda one: scaled(_costs(one)["energy per unit"][1], NANO), drop=7),
    )


def _print_reasons(title: str, reasons: Sequence[tuple[SweepSizeRow, str | None]]) -> None:
    known = [(reason, str(row.place.size)) for row, reason in reasons if reason is not None]
    for reason, found in grouped(known, lambda one: one[0]).items():
        short = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
        print_line(f"{title} ({some_of([size for _, size in found])}): {short}")


# The files and figures of a sweep


def write_tables(result: SweepResult, folder: Path) -> list[Path]:
    """Write sizes, repetitions, kernels, pieces and correlations as CSV files without checksums; return the files."""
    found = spearman(result.repetitions or result.sizes)
    numbered = enumerate(same_information(found), start=1)
    groups = ({"group": number, "column": name} for number, names in numbered for name in names)

    def of_rows(kind: Any, rows: Iterable[Any]) -> str:
        return _csv([field.name for field in columns_of(kind)], map(cells_of, rows))

    contents = {
        "sizes": of_rows(SweepSizeRow, result.sizes),
        "repetitions": of_rows(SweepRepetitionRow, result.repetitions),
        "kernels": of_rows(SweepKernelRow, result.kernels),
        "pieces": _csv([field.name for field in fields(BreakLine)], map(asdict, result.pieces)),
        "correlations": found.to_csv(lineterminator="\n", index_label="column"),
        "correlation_groups": _csv(["group", "column"], groups),
    }
    return [_written(folder / f"{name}.csv", text.encode()) for name, text in contents.items()]


def export_tree(result: SweepResult, power_logs: Path, folder: Path) -> list[Path]:
    """Write ``input_<size>/run_<k>/`` with ``power_metrics.json`` and ``latency.csv``; return the folders of sizes.

    ``power_metrics.json`` has all that is known of a repetition, in SI units, null if unknown. ``latency.csv`` has the
    time of each iteration that was timed one by one. It is left out if its log is not among the power logs, as after a
    clone: logs are not in git.
    """
    for row in result.repetitions:
        run = folder / f"input_{row.place.size}" / f"run_{row.repetition}"
        known = by_column(row) | {"flags": [flag.value for flag in row.measurement.flags]}
        _written(run / "power_metrics.json", f"{json.dumps(known, indent=2)}\n".encode())
        log = None if row.iterations_log is None else power_logs / row.iterations_log
        if log is not None and log.is_file():
            replace_file(run / "latency.csv", log.read_bytes())
    return [folder / f"input_{size}" for size in dict.fromkeys(row.place.size for row in result.repetitions)]


def write_sweep_figures(result: SweepResult, folder: Path) -> list[Path]:
    """Draw curves over the size with the breaks of the fit, and correlations of columns; return the files, if any."""
    if not any(row.figures.time_s or row.prediction.predicted_time_s for row in result.sizes):
        return []
    files = []
    for scale, axis in (("linear", lambda values, label: linear_axis(values, label, has_zero=True)), ("log", log_axis)):
        names = (f"{result.axis} ({result.name})", result.unit)
        drawings, legend = size_curves(result.sizes, names, axis, result.curves)
        entries = {one.name: one.entry for one in legend}
        files.append(_written(folder / f"curves-{scale}.svg", svg_file(result.name, drawings, list(entries.values()))))
    found = spearman(result.repetitions or result.sizes)
    if len(found) > 1:
        label = "Spearman's rank correlation, from -1 (red) to 1 (blue)"
        drawing = matrix(list(found.columns), found.to_numpy().tolist(), label)
        files.append(_written(folder / "correlations.svg", svg_file(label, [drawing])))
    return files


def size_curves(
    rows: Sequence[SweepSizeRow], names: tuple[str, str], axis: Callable[..., Axis], fitted: Iterable[Curve] = ()
) -> tuple[list[Drawing], list[Series]]:
    """Return figures over the size with breaks, and their series; ``names`` are of the axis and of the unit."""
    breaks = {curve.quantity: [(below * above) ** 0.5 for below, above in curve.breaks] for curve in fitted}
    drawings, shown = [], []
    for quantity, label, scale in (
        ("time", "time of a run (ms)", MILLI),
        ("energy", "energy of a run (mJ)", MILLI),
        ("power", "power (W)", 1.0),
        ("energy per unit", f"energy per {names[1]} (µJ)", MICRO),
    ):
        costs = [(float(row.place.size), _costs(row)[quantity]) for row in rows]
        points = [(size, value / scale) for size, (value, *_) in costs if value is not None]
        known = [(size, value / scale) for size, (_, value, *_) in costs if value is not None]
        pairs = [(low, high) for _, (*_, low, high) in costs]
        bounds = [(low / scale, high / scale) for low, high in pairs if low is not None and high is not None]
        series = [
            Series("measured (median)", points, 0),
            Series("predicted", known, line="line1", bounds=bounds if len(bounds) == len(known) else ()),
        ]
        shown += [one for one in series if one.points]
        if points or known:
            values = [y for one in series for _, y in one.points]
            ends = [end for one in series for low_high in one.bounds for end in low_high]
            sizes = [x for one in series for x, _ in one.points]
            panel = Panel(axis(sizes, names[0]), axis([*values, *ends], label))
            at = [(size, "") for size in breaks.get(quantity, ())]
            drawings.append(curves(f"{quantity} over {names[0]}", panel, series, at))
    return drawings, shown


def _costs(row: SweepSizeRow) -> dict[str, tuple[float | None, ...]]:
    """Return the measured and the predicted value of each quantity, and the ends of the prediction's interval."""
    figures, predicted, units = row.figures, row.prediction, row.place.units_of_a_run
    time_s, energy_j = predicted.predicted_time_s, predicted.predicted_energy_j
    energies_j = energy_j, predicted.predicted_energy_lower_j, predicted.predicted_energy_upper_j
    per_unit_j = (value / units if units and value is not None else None for value in energies_j)
    power_w = None if energy_j is None or time_s is None else energy_j / time_s
    return {
        "time": (figures.time_s, time_s, predicted.predicted_time_lower_s, predicted.predicted_time_upper_s),
        "energy": (figures.energy_j, *energies_j),
        "power": (figures.power_w, power_w, None, None),
        "energy per unit": (figures.energy_per_unit_j, *per_unit_j),
    }


def spearman(rows: Sequence[Any]) -> pd.DataFrame:
    """Return Spearman's rank correlation of numeric columns that vary; NaN for too few rows."""
    import pandas as pd

    found: pd.DataFrame = pd.DataFrame()
    if rows:
        names = [field.name for field in columns_of(type(rows[0])) if field.kind in (int, float)]
        frame = pd.DataFrame([by_column(row) for row in rows])[names].apply(pd.to_numeric)
        varied = [name for name in names if frame[name].nunique() > 1 and frame[name].notna().sum() >= FEWEST_ROWS]
        found = frame[varied].corr(method="spearman", min_periods=FEWEST_ROWS)
    return found


def same_information(found: pd.DataFrame) -> list[list[str]]:
    """Return groups of two or more columns, each of which orders rows as the group's first does, or in reverse."""
    names = [str(name) for name in found.columns]
    known = {name: dict(zip(names, column, strict=True)) for name, column in zip(names, found.to_numpy(), strict=True)}
    left, groups = names, []
    while left:
        first, *others = left
        alike = [name for name in others if abs(known[first][name]) >= SAME_RANKS]
        left = [name for name in others if name not in alike]
        if alike:
            groups.append([first, *alike])
    return groups


def _csv(names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    write_csv(text, names, rows)
    return text.getvalue()


def _written(path: Path, content: bytes) -> Path:
    replace_file(path, content)
    return path


# Power caps


@dataclass(frozen=True)
class CapPlan:
    """A sweep that is not run: caps are None where the board's limits are unknown, the duration where the work's is."""

    work: str
    device: str
    found_limit_w: float | None
    caps_w: Sequence[float] | None
    repetitions: int
    measurements: int
    expected_s: float | None
    known: MeasurementRow | None


def print_cap_sweep(sweep: CapSweep) -> None:
    points = medians_of(sweep.points)

    def cost(one: CapPoint, of: Callable[[float, float], float]) -> str:
        return significant(of(one.time_s, one.energy_j))

    table: Table[CapPoint] = (
        Column("cap", lambda one: f"{one.cap_w:g} W"),
        Column("runs", lambda one: str(sum(each.cap_w == one.cap_w for each in sweep.points)), drop=1),
        Column("s", lambda one: significant(one.time_s)),
        Column("W", lambda one: f"{one.power_w:.1f}"),
        *(
            Column(title, partial(cost, of=objective.of), drop=0 if objective is Objective.ENERGY else 2)
            for objective, title in TITLES.items()
        ),
        Column("Pareto", lambda one: "yes" if is_efficient(one, points) else "", drop=3),
    )
    print_table(f"{sweep.work}: time and energy under power caps", table, points)
    # The proposed cap with what the fit expects of it, and what a reader should know of the sweep.
    proposal, wish = sweep.proposal, sweep.wish
    found = f"{sweep.found_limit_w:g} W"
    if proposal.never_binds:
        print_line(f"The cap never binds: nothing to gain. {proposal.cap_w:g} W, the lowest cap, costs no time either.")
    elif not proposal.gains:
        print_line(f"Least {wish}: no cap is better than the limit of {found} by more than the meters' errors.")
    else:
        time, energy = (percent(one - 1) for one in (proposal.time_ratio, proposal.energy_ratio))
        print_line(f"Least {wish}: {proposal.cap_w:g} W (fit; against {found}: time {time}, energy {energy})")
    if not proposal.never_binds:
        print_line(f"Lowest cap that costs no time: {free_cap_w(sweep.fit):.0f} W.")
    drift = percent(sweep.drift_ratio)
    print_line(f"Drift from the first to the last run at {found}: {drift} of the time. {found} is set.")


def cap_sweep_object(sweep: CapSweep) -> dict[str, Any]:
    proposal = sweep.proposal
    return {
        "work": sweep.work,
        "wish": str(sweep.wish),
        "found_limit_w": sweep.found_limit_w,
        "proposed_cap_w": proposal.cap_w,
        "never_binds": proposal.never_binds,
        "time_ratio": proposal.time_ratio,
        "energy_ratio": proposal.energy_ratio,
        "free_cap_w": free_cap_w(sweep.fit),
        "drift_ratio": sweep.drift_ratio,
        "measurements": [by_column(row) for row in sweep.rows],
    }


def print_cap_plan(plan: CapPlan) -> None:
    caps = "eight caps between the board's limits, which are read there"
    if plan.caps_w is not None:
        caps = "caps of " + ", ".join(f"{cap:g}" for cap in plan.caps_w) + " W"
    if plan.repetitions > 1:
        caps += f", each {plan.repetitions} times"
    limit = "the limit that is found" if plan.found_limit_w is None else f"{plan.found_limit_w:g} W"
    takes = "" if plan.expected_s is None else f", about {duration(plan.expected_s)}"
    print_line(f"{plan.work} on {plan.device}: at most {plan.measurements} measurements{takes}")
    print_line(f"First, last and afterwards: {limit}.")
    print_line(f"Between, in random order: {caps}; then up to three near the optimum.")
    if plan.known is not None:
        # The row says how a model's power is without a cap.
        conditions, known = plan.known.conditions, plan.known.measurement
        limit_w, power_w = conditions.device_power_limit_w, known.power_w or 0.0
        limit = UNKNOWN if limit_w is None else f"{limit_w:g} W"
        costs = f"{milliseconds(known.time_s)}, {millijoules(known.energy_j)}"
        print_line(f"At a limit of {limit} on {conditions.device_product} it takes {costs} and {watts(power_w)}.")
        if limit_w is not None and power_w > NEAR_LIMIT_RATIO * limit_w:
            print_line("That is at the limit: every lower cap slows it.")
        else:
            print_line(f"Caps above {watts(ABOVE_POWER_RATIO * power_w)} do not slow it and are not measured.")
    print_line("Dry run: no limit was set, and nothing was measured.")


def plan_object(plan: CapPlan) -> dict[str, Any]:
    known = plan.known
    return {
        **{name: value for name, value in vars(plan).items() if name != "known"},
        "power_at_full_clocks_w": None if known is None else known.measurement.power_w,
        "full_clocks_limit_w": None if known is None else known.conditions.device_power_limit_w,
    }


def draw_cap_sweep(sweep: CapSweep, target: Path) -> Path:
    """Draw energy over time with the Pareto front, and both over the cap with the fit; return the file."""
    points, fit, best_w = medians_of(sweep.points), sweep.fit, sweep.proposal.cap_w
    front = sorted((point for point in points if is_efficient(point, points)), key=lambda point: point.time_s)
    costs = [
        Series(name, [(one.time_s, one.energy_j) for one in own], look, line, [f"{one.cap_w:g} W" for one in own])
        for name, own, look, line in (("measured cap", points, 7, ""), ("Pareto front", front, 0, "line0"))
    ]
    costs.append(Series(f"least {sweep.wish}", [(fit.time_s(best_w), fit.energy_j(best_w))], 3))
    places = [place for one in costs for place in one.points]
    times, energies = linear_axis([x for x, _ in places], "time (s)"), linear_axis([y for _, y in places], "energy (J)")
    found_w = sweep.found_limit_w
    caps = np.linspace(fit.lowest_w, fit.highest_w, 200)
    ratios = []
    fitted = ("time", fit.time_s, "time_s"), ("energy", fit.energy_j, "energy_j")
    for look, (name, of_fit, of_point) in enumerate(fitted):
        measured = [(one.cap_w, getattr(one, of_point) / of_fit(found_w)) for one in sweep.points]
        expected = [(cap, of_fit(cap) / of_fit(found_w)) for cap in caps]
        ratios += [Series(name, measured, look), Series(f"{name}, fit", expected, line=f"line{look}")]
    all_ratios = [place for one in ratios for place in one.points]
    watts = linear_axis([x for x, _ in all_ratios], "power cap (W)")
    over = linear_axis([y for _, y in all_ratios], f"ratio to {found_w:g} W")
    pareto = Panel(times, energies)
    at = ((one.cap_w, pareto.across(one.time_s), pareto.up(one.energy_j)) for one in front)
    names = [text(f"{cap_w:g} W", x + 6, y - 4, "small") for cap_w, x, y in at]
    drawings = [
        curves("energy over time", pareto, costs, (), *names),
        curves("time and energy over the cap", Panel(watts, over), ratios, [(best_w, f"{best_w:g} W")]),
    ]
    replace_file(target, svg_file(sweep.work, drawings, [one.entry for one in (*costs, *ratios)]))
    return target
