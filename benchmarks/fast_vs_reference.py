"""Operators measured to within 1 % and, right after that, in a long loop -> a CSV file, to which later runs add

The operators are those of some models that block 0 has counted, of all lengths and many kinds. Nothing else may run on
the GPU.
Example: PYTHONPATH=. python benchmarks/fast_vs_reference.py --output fast_vs_reference.csv resnet50_32x3x224x224
         PYTHONPATH=. python benchmarks/fast_vs_reference.py --evaluate fast_vs_reference.csv
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pandas as pd
from agreement import AT_THE_LIMIT, report
from growing_csv import append, growing_parser, known
from operators_in_turn import by_length, counts_of

from opcost.apparatus import Apparatus, open_apparatus
from opcost.errors import CannotMeasureError
from opcost.measurement import Measurement
from opcost.ports import GPU_WARM_UP_S, MeasurementProtocol, protocol_for
from opcost.procedure import REST_S
from opcost.stage_qualifying import qualified
from opcost.subjects import Subject

PRECISION = "torch-default"
REPETITIONS = 3


def text(subject: Subject) -> str:
    """Return how the file names an operator."""
    return f"{subject.operator} {subject.input_data}"


def is_at_the_limit(measurement: Measurement) -> bool:
    """Return whether the power limit slows an operator down, or would if it lasted."""
    return AT_THE_LIMIT in measurement.notes


def compared(apparatus: Apparatus, subject: Subject, reference_s: float, long_s: float | None) -> dict[str, object]:
    """Measure an operator in a short loop, which is timed with all that it takes, in a long one and a longer one.

    At the power limit a long loop is slowed down: there the short one is repeated, too.
    """

    def result(name: str, protocol: MeasurementProtocol) -> Measurement:
        return apparatus.measure(subject, PRECISION, protocol, name)

    begin_s = time.perf_counter()
    short = protocol_for(is_gpu=True, relative_error=0.01)
    fast = result("fast", short)
    wall_s = time.perf_counter() - begin_s
    slow = result("slow", MeasurementProtocol(GPU_WARM_UP_S, reference_s))
    longest = None if long_s is None else result("longest", MeasurementProtocol(GPU_WARM_UP_S, long_s))
    again = [
        result("again", replace(short, rest_s=REST_S))
        for _ in range(REPETITIONS if is_at_the_limit(fast) or is_at_the_limit(slow) else 0)
    ]
    energies_j = [one.energy_at_reference_j for one in again if one.energy_at_reference_j is not None]
    is_checked = slow.check_power_w is not None and slow.power_w is not None
    return {
        "operator": text(subject),
        "wall_s": wall_s,
        "time_s": fast.time_s,
        "time_reference_s": slow.time_s,
        "time_long_reference_s": longest and longest.time_s,
        "energy_j": fast.energy_at_reference_j,
        "energy_reference_j": slow.energy_at_reference_j,
        "energy_long_reference_j": longest and longest.energy_at_reference_j,
        "time_repeated_s": mean(one.time_s for one in again) if again else None,
        "energy_repeated_j": mean(energies_j) if energies_j else None,
        "reference_duration_s": slow.loop_time_s,
        "long_reference_duration_s": longest and longest.loop_time_s,
        "energy_as_measured_j": fast.energy_j,
        "energy_reference_as_measured_j": slow.energy_j,
        "loop_time_s": fast.loop_time_s,
        "temperature_c": fast.temperature_c,
        "temperature_reference_c": slow.temperature_c,
        "power_capped_ratio": fast.power_capped_ratio,
        "power_capped_reference_ratio": slow.power_capped_ratio,
        "check_power_ratio_reference": slow.check_power_w / slow.power_w if is_checked else None,
        "check_meter_reference": slow.check_meter,
        "device_uuid": apparatus.circumstances(short).device_uuid,
        "notes": fast.notes,
    }


def add_rows(
    path: Path, database: Path, wanted: dict[Subject, float | None], reference_s: float, limit_s: float
) -> None:
    """Measure the operators that a file lacks, each with the length of its longest loop if it has one."""
    begin_s = time.monotonic()
    done = known(path, "operator")
    with qualified(open_apparatus, "cuda", database, True) as apparatus:
        for subject in (subject for subject in wanted if text(subject) not in done):
            if time.monotonic() - begin_s > limit_s:
                break
            try:
                append(path, compared(apparatus, subject, reference_s, wanted[subject]))
                print(text(subject), file=sys.stderr)
            except CannotMeasureError as error:
                print(f"left out: {subject.operator}: {error}", file=sys.stderr)


def main() -> int:
    parser = growing_parser(__doc__, "tell how far the loops agree")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--operators", type=int, default=60, help="how many the file is to have in the end")
    parser.add_argument("--reference-seconds", type=float, default=10.0)
    parser.add_argument("--long-references", type=int, default=8, help="how many get a still longer loop")
    parser.add_argument("--long-reference-seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    if arguments.evaluate:
        print(report(pd.read_csv(arguments.evaluate)))
        return 0
    if not arguments.names:
        parser.error("--output: name the models whose operators are wanted")
    subjects = by_length(counts_of(arguments.names), arguments.seed)[: arguments.operators]
    longest_s = dict.fromkeys(subjects[: arguments.long_references], arguments.long_reference_seconds)
    wanted = {subject: longest_s.get(subject) for subject in subjects}
    add_rows(arguments.output, arguments.database, wanted, arguments.reference_seconds, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
