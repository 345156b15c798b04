"""Operators measured to within 1 % and, right after that, in long loops -> a CSV file, to which later runs add

The operators are those of some models that block 0 has counted, of all lengths and many kinds. Nothing else may run on
the GPU.
Example: PYTHONPATH=. python benchmarks/fast_vs_reference.py --output fast_vs_reference.csv resnet50_32x3x224x224
         PYTHONPATH=. python benchmarks/fast_vs_reference.py --evaluate fast_vs_reference.csv
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
from agreement import report
from growing_csv import append, growing_parser, known, parsed
from operators_in_turn import by_length, counts_of

from opcost.errors import CannotMeasureError
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
            if leaves_clocks_low(found[-1]):
                apparatus.rest.begin()
                apparatus.rest.end()
        return found


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

    What runs in a duty cycle does so in all of these. Of what is slowed down only where it lasts many short loops are
    the reference.
    """
    fast, wall_s = timed(apparatus, case)
    share = duty_cycle(fast)
    long_loops = [MeasurementProtocol(SHORT_WARM_UP_S, loop_s) for loop_s in (reference_s, long_s) if loop_s]
    same, slow, *longest = on_one_build(apparatus, case, share, [AT_FULL_CLOCKS, *long_loops])
    sustained = None
    if share == 1 and may_be_throttled(slow):
        sustained = slow
        slow, longest = mean_of(on_one_build(apparatus, case, share, [AT_FULL_CLOCKS] * SHORT_LOOPS)), []
    is_checked = slow.check_power_w is not None and slow.power_w is not None
    return {
        "operator": text(case),
        "wall_s": wall_s,
        **figures("", fast),
        **figures("_same_build", same),
        **figures("_reference", slow),
        **figures("_long_reference", longest[0] if longest else None),
        **figures("_sustained", sustained),
        "power_readings": fast.power_readings,
        "power_capped_ratio": fast.power_capped_ratio,
        "power_capped_reference_ratio": slow.power_capped_ratio,
        "check_power_ratio_reference": slow.check_power_w / slow.power_w if is_checked else None,
        "check_meter_reference": slow.check_meter,
        "device_uuid": apparatus.circumstances(SHORT).device_uuid,
        "flags": "|".join(flag.value for flag in fast.flags),
        "flags_reference": "|".join(flag.value for flag in slow.flags),
    }


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
    """Measure the operators that a file lacks, each with the length of its longest loop if it has one."""
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
    parser = growing_parser(__doc__, "print how well the loops agree")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--operators", type=int, default=60, help="how many the file is to have in the end")
    parser.add_argument("--reference-seconds", type=float, default=10.0)
    parser.add_argument("--long-references", type=int, default=8, help="how many get a still longer loop")
    parser.add_argument("--long-reference-seconds", type=float, default=30.0)
    arguments = parsed(parser, report)
    if arguments is None:
        return 0
    cases = by_length(counts_of(arguments.names), arguments.seed)[: arguments.operators]
    longest_s = dict.fromkeys(cases[: arguments.long_references], arguments.long_reference_seconds)
    wanted = {case: longest_s.get(case) for case in cases}
    add_rows(arguments.output, arguments.database, wanted, arguments.reference_seconds, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
