"""A sweep on a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from opcost.columns import by_column
from opcost.comparing.sweep_sizes import UNPREDICTED, SweepSizeRow
from opcost.measuring.flags import CASTING_DOUBT
from opcost.measuring.record import IMPOSSIBLE_POWER_MEANING, has_impossible_power, is_doubtful
from opcost.reporting.layout import Column
from opcost.reporting.tables import print_origin, shared_facts
from opcost.reporting.terminal import Cells, print_line, print_records, print_table
from opcost.units import MILLI, UNKNOWN, duration, milli, number_of, percent, scaled, some_of, whole_watts

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
    from opcost.stages.sweep_results import SweepResult

NANO = 1e-9

PIECES = (
    *(Column("curve", "left"), Column("piece", "left"), Column("sizes"), Column("residual", drop=1)),
    Column("jump", drop=2),
)
LONGEST_REASON = 160


def print_plan(result: SweepResult) -> None:
    """Print how many repetitions are missing, and how long they take."""
    planned = f"{number_of(result.planned, 'repetition')} of {number_of(len(result.sizes), 'size')} to measure"
    known = f"{len(result.repetitions)} in the database"
    print_line(
        f"{result.name}: {planned}, {known}; about {duration(result.expected_s)} (dry run: nothing was measured)"
    )


def print_sweep(result: SweepResult) -> None:
    """Print a line for each size, then the sizes that failed or cannot be predicted, with the reason."""
    shown = [
        row for row in result.sizes if row.figures.time_s is not None or row.prediction.predicted_time_s is not None
    ]
    if shown:
        conditions = shown[0].conditions
        title = f"{result.name} on {conditions.device_product} ({conditions.execution}): {result.axis}"
        print_records(title, shown, _columns(result))
        if result.repetitions:
            print_line("± is the spread over repetitions; predicted figures differ from measured ones by this much.")
            # Those of sizes whose runs are long enough to be measured well.
            long = [row.figures for row in shown if (row.figures.time_s or 0.0) >= MILLI]
            spreads = ([one.time_spread_ratio for one in long], [one.energy_spread_ratio for one in long])
            largest = (max((one for one in known if one is not None), default=None) for known in spreads)
            time, energy = (percent(one, 2) for one in largest)
            print_line(f"Largest spread of a size of 1 ms or more: time {time}, energy {energy}.")
            _print_doubts(result)
        _print_pieces(result)
    if result.new == 0 and not result.failed:
        print_line("Nothing was left to measure: all repetitions are in the database.")
    _print_reasons("not measured", [(row, row.failure) for row in result.sizes])
    _print_reasons("no energy", [(row, row.figures.energy_missing_reason) for row in result.sizes])
    asked = [row for row in result.sizes if row.prediction != UNPREDICTED]
    _print_reasons("not predicted", [(row, row.prediction.prediction_missing_reason) for row in asked])
    print_origin(*shared_facts([row.conditions for row in shown]))


def _print_pieces(result: SweepResult) -> None:
    cells = [
        (
            line.quantity,
            line.kind,
            f"{line.first_size} to {line.last_size}",
            percent(line.residual_ratio),
            UNKNOWN if line.jump_ratio is None else percent(line.jump_ratio - 1),
        )
        for line in result.pieces
    ]
    if cells:
        print_table(f"{result.name}: fit by pieces", PIECES, cells)


def sweep_object(result: SweepResult) -> dict[str, Any]:
    """Return a sweep for JSON, in SI units."""
    return {
        "name": result.name,
        "axis": result.axis,
        "planned": result.planned,
        "expected_s": result.expected_s,
        "sizes": [by_column(row) for row in result.sizes],
        "pieces": [asdict(line) for line in result.pieces],
    }


def _columns(result: SweepResult) -> Cells[SweepSizeRow]:
    return (
        (Column(result.axis), lambda one: str(one.place.size)),
        (Column("runs", drop=5), lambda one: str(one.figures.repetitions) if one.figures.repetitions else UNKNOWN),
        (Column("ms/run"), lambda one: milli(one.figures.time_s)),
        (Column("± time", drop=4), lambda one: percent(one.figures.time_spread_ratio, 2)),
        (Column("mJ/run"), lambda one: milli(one.figures.energy_j)),
        (Column("± energy", drop=4), lambda one: percent(one.figures.energy_spread_ratio, 2)),
        (Column("W", drop=1), lambda one: whole_watts(one.figures.power_w)),
        (Column(f"ns/{result.unit}", drop=2), lambda one: scaled(one.figures.time_per_unit_s, NANO)),
        (Column(f"nJ/{result.unit}", drop=2), lambda one: scaled(one.figures.energy_per_unit_j, NANO)),
        (Column("predicted ms"), lambda one: milli(one.prediction.predicted_time_s)),
        (
            Column("90 % interval", drop=6),
            lambda one: _interval(one.prediction.predicted_time_lower_s, one.prediction.predicted_time_upper_s),
        ),
        (Column("time differs", drop=3), lambda one: _difference(one.prediction.predicted_time_s, one.figures.time_s)),
        (Column("predicted mJ"), lambda one: milli(one.prediction.predicted_energy_j)),
        (
            Column("90 % interval", drop=6),
            lambda one: _interval(one.prediction.predicted_energy_lower_j, one.prediction.predicted_energy_upper_j),
        ),
        (
            Column("energy differs", drop=3),
            lambda one: _difference(one.prediction.predicted_energy_j, one.figures.energy_j),
        ),
    )


def _print_doubts(result: SweepResult) -> None:
    """Print how many repetitions cast doubt, and why: they are left out, or count where a size has no others."""
    doubtful = [row for row in result.repetitions if is_doubtful(row)]
    left_out = len(result.repetitions) - sum(row.figures.repetitions for row in result.sizes)
    meanings = {flag.meaning for one in doubtful for flag in CASTING_DOUBT.intersection(one.measurement.flags)}
    why = some_of(sorted(meanings | {IMPOSSIBLE_POWER_MEANING for one in doubtful if has_impossible_power(one)}))
    if left_out:
        print_line(f"Without {number_of(left_out, 'doubtful repetition')} ({why}).")
    if len(doubtful) > left_out:
        counting = number_of(len(doubtful) - left_out, "doubtful repetition")
        print_line(f"With {counting}, because these sizes have no others ({why}).")


def _interval(lower: float | None, upper: float | None) -> str:
    return UNKNOWN if lower is None else f"{milli(lower)} to {milli(upper)}"


def _difference(predicted: float | None, measured: float | None) -> str:
    return UNKNOWN if predicted is None or measured is None else percent(predicted / measured - 1)


def _print_reasons(title: str, reasons: Sequence[tuple[SweepSizeRow, str | None]]) -> None:
    sizes: dict[str, list[str]] = {}
    for row, reason in reasons:
        if reason is not None:
            sizes.setdefault(reason, []).append(str(row.place.size))
    for reason, of_sizes in sizes.items():
        short = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
        print_line(f"{title} ({some_of(of_sizes)}): {short}")
