"""Operators measured to within 1 % and, right after that, in long loops -> a CSV file, to which later runs add

The operators are drawn at random from the rows of a database, of all lengths and many kinds. The short measurement is
made on the same board right before the long loop. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/fast_vs_reference.py --database run --output fast_vs_reference.csv
         PYTHONPATH=. python benchmarks/fast_vs_reference.py --evaluate fast_vs_reference.csv
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
from agreement import LONG, LONGEST, SAME_BUILD, SUSTAINED, report
from agreement import SHORT as SHORT_LOOP
from growing_csv import append, growing_parser, known
from operators_in_turn import drawn, usual_cases

from opcost.errors import CannotMeasureError
from opcost.measuring.evaluation import with_repeatability
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import SHORT_WARM_UP_S, MeasurementProtocol, protocol_for
from opcost.measuring.record import Measurement, leaves_clocks_low, may_be_throttled
from opcost.measuring.setting import USUAL
from opcost.operators.cases import Case
from opcost.running.apparatus import Apparatus, open_apparatus
from opcost.running.qualification import qualified
from opcost.storage.database import Database

SHORT = protocol_for(is_gpu=True, relative_error=0.01)
AT_FULL_CLOCKS = replace(SHORT, at_full_clocks=True)
SHORT_LOOPS = 20
"""How many loops, each ended before clocks go down, stand in for a long one in which they would."""

IDLE_S = 0.3
"""How long a device is idle before a throttled loop is tried again: loads of 720 to 763 W then run at full clocks for
0.3 s and more (H100)."""

FEWEST_LOOPS = 5
"""Of these, without which there is no reference: clocks went down in the others."""


def text(case: Case) -> str:
    """Return how the file names an operator."""
    return f"{case.operator} {case.input_data}"


def duty_cycle(measurement: Measurement) -> float:
    """Return for what share of the time an operator ran: less than 1 if the power limit held it down."""
    return measurement.duty_cycle or 1.0


def timed(apparatus: Apparatus, case: Case) -> tuple[Measurement, float]:
    """Measure an operator as block 2 does; return how long that took, too, in s, with all around it."""
    begin_s = time.perf_counter()
    return apparatus.measure(case, USUAL, SHORT, "fast"), time.perf_counter() - begin_s


def on_one_build(
    apparatus: Apparatus, case: Case, share: float, protocols: Sequence[MeasurementProtocol]
) -> list[Measurement]:
    """Measure an operator that is built once, so that it stays where it is in memory, in several loops."""
    with apparatus.workload(case, USUAL, share) as workload:
        found = []
        for number, protocol in enumerate(protocols):
            asked = replace(protocol, duty_cycle=share)
            found.append(measure(workload, apparatus.instruments(f"loop-{number}"), asked))
            if asked.at_full_clocks and share == 1 and may_be_throttled(found[-1]):
                idle(apparatus)
                found[-1] = measure(workload, apparatus.instruments(f"loop-{number}-again"), asked)
            if leaves_clocks_low(found[-1]):
                apparatus.rest.begin()
                apparatus.rest.end()
        return found


def idle(apparatus: Apparatus) -> None:
    """Keep the device idle before a load above the power limit is tried again."""
    for observer in apparatus.observers:
        observer.before_start()
    apparatus.pause(IDLE_S)


def mean_of(loops: Sequence[Measurement]) -> Measurement:
    """Return the mean of the loops that were not slowed down, as one of their total length.

    Raises:
        CannotMeasureError: too few were not.
    """
    good = [loop for loop in loops if not may_be_throttled(loop)]
    if len(good) < FEWEST_LOOPS:
        raise CannotMeasureError(f"only {len(good)} of {len(loops)} short loops ran at full clocks")
    names = ["time_s", "energy_j", "energy_at_reference_j", "temperature_c"]
    table = pd.DataFrame([asdict(loop) for loop in good])[[*names, "loop_time_s"]].astype(float)
    means = {name: _if_known(table[name].mean()) for name in names}
    errors = {
        f"{name.removesuffix(unit)}_standard_error{unit}": _if_known(table[name].sem())
        for name, unit in zip(names, ("_s", "_j", "_j"), strict=False)
    }
    notes = f"mean of {len(good)} short loops"
    return replace(good[0], **means, **errors, loop_time_s=float(table["loop_time_s"].sum()), notes=notes)


def _if_known(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def compared(apparatus: Apparatus, case: Case, reference_s: float, long_s: float | None) -> dict[str, object]:
    """Measure an operator as block 2 does; then, built once more, in the same short loop, a long and a longer one.

    Operators in a duty cycle have one in all of these. For those that are throttled only if the load lasts, the
    reference is many short loops. An operator that has no reference gets a row with the reason.
    """
    fast, wall_s = timed(apparatus, case)
    share = duty_cycle(fast)
    loops: dict[str, Measurement | None] = dict.fromkeys((SAME_BUILD, LONG, LONGEST, SUSTAINED))
    left_out = ""
    try:
        long_loops = [MeasurementProtocol(SHORT_WARM_UP_S, loop_s) for loop_s in (reference_s, long_s) if loop_s]
        same, slow, *longest = on_one_build(apparatus, case, share, [AT_FULL_CLOCKS, *long_loops])
        loops |= {SAME_BUILD: same, LONG: slow, LONGEST: longest[0] if longest else None}
        if share == 1 and may_be_throttled(slow):
            loops |= {LONG: None, LONGEST: None, SUSTAINED: slow}
            mean = mean_of(on_one_build(apparatus, case, share, [AT_FULL_CLOCKS] * SHORT_LOOPS))
            # All of these loops share a build, whose error the scatter of the loops does not show.
            loops[LONG] = with_repeatability(mean, apparatus.known.repeatability)
    except CannotMeasureError as error:
        left_out = str(error)
    conditions, circumstances = apparatus.conditions(USUAL), apparatus.circumstances(SHORT)
    return {
        "operator": text(case),
        "wall_s": wall_s,
        **row_of(fast, loops),
        "device_product": conditions.device_product,
        "device_uuid": circumstances.device_uuid,
        "left_out": left_out,
    }


def row_of(fast: Measurement, loops: Mapping[str, Measurement | None]) -> dict[str, object]:
    """Return the cells of the loops of one operator."""
    slow = loops[LONG]
    is_checked = slow is not None and slow.check_power_w is not None and slow.power_w is not None
    figures_of = [figures(name, measurement) for name, measurement in ({SHORT_LOOP: fast} | dict(loops)).items()]
    return {
        **{column: value for cells in figures_of for column, value in cells.items()},
        "power_readings": fast.power_readings,
        "duty_cycle": fast.duty_cycle,
        "power_capped_ratio": fast.power_capped_ratio,
        "power_capped_reference_ratio": getattr(slow, "power_capped_ratio", None),
        "check_power_ratio_reference": slow.check_power_w / slow.power_w if is_checked else None,
        "check_meter_reference": getattr(slow, "check_meter", None),
        "flags": flags_text(fast),
        "flags_reference": flags_text(slow),
    }


def flags_text(measurement: Measurement | None) -> str:
    """Return a measurement's flags as a cell."""
    return "" if measurement is None else "|".join(flag.value for flag in measurement.flags)


def figures(name: str, measurement: Measurement | None) -> dict[str, object]:
    """Return a measurement's cells; empty ones if there is none."""
    columns = {
        f"time{name}_s": "time_s",
        f"time{name}_standard_error_s": "time_standard_error_s",
        f"energy{name}_j": "energy_at_reference_j",
        f"energy{name}_standard_error_j": "energy_at_reference_standard_error_j",
        f"energy{name}_as_measured_j": "energy_j",
        f"temperature{name}_c": "temperature_c",
        f"{name.lstrip('_') or 'loop'}_duration_s": "loop_time_s",
    }
    return {column: getattr(measurement, field, None) for column, field in columns.items()}


def add_rows(path: Path, database: Path, wanted: dict[Case, float | None], reference_s: float, limit_s: float) -> None:
    """Measure the operators that a file does not have, each with the length of its longest loop if it has one."""
    begin_s = time.monotonic()
    done = known(path, "operator")
    with qualified(open_apparatus, "cuda", Database(database), True) as apparatus:
        for case in (case for case in wanted if text(case) not in done):
            if time.monotonic() - begin_s > limit_s:
                break
            try:
                append(path, compared(apparatus, case, reference_s, wanted[case]))
                print(text(case), file=sys.stderr)
            except CannotMeasureError as error:
                print(f"left out: {case.operator}: {error}", file=sys.stderr)


def main() -> int:
    parser = growing_parser(__doc__, "print how well the loops agree, card by card")
    drawn_from = "database from whose rows the operators are drawn (default: --database)"
    parser.add_argument("--drawn-from", type=Path, metavar="DIR", help=drawn_from)
    parser.add_argument("--operators", type=int, default=60, help="how many are drawn")
    parser.add_argument("--reference-seconds", type=float, default=10.0)
    parser.add_argument("--long-references", type=int, default=0, help="how many get a still longer loop")
    parser.add_argument("--long-reference-seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    if arguments.evaluate:
        print(report(pd.concat(map(pd.read_csv, arguments.evaluate), ignore_index=True)))
        return 0
    rows = Database(arguments.drawn_from or arguments.database).operator_measurements.rows()
    cases = drawn(usual_cases(rows), arguments.seed)[: arguments.operators]
    if not cases:
        parser.error("--drawn-from: no row of an operator in CUDA graphs; run block 2 first")
    longest_s = dict.fromkeys(cases[: arguments.long_references], arguments.long_reference_seconds)
    wanted = {case: longest_s.get(case) for case in cases}
    add_rows(arguments.output, arguments.database, wanted, arguments.reference_seconds, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
