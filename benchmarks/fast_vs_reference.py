"""Operators measured to within 1 % and, right after that, in a long loop -> a CSV file, to which later runs add

The operators are those of some models that block 0 has counted, of as many kinds as there are. Nothing else may run on
the GPU.
Example: PYTHONPATH=. python benchmarks/fast_vs_reference.py --output fast_vs_reference.csv resnet50_32x3x224x224
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from opcost.apparatus import GPU_WARM_UP_S, Apparatus, open_apparatus, protocol_for
from opcost.config_files import load_configs
from opcost.errors import CannotMeasureError
from opcost.measurement import measure
from opcost.ports import MeasurementProtocol
from opcost.request import COUNTS
from opcost.stage_qualifying import qualified
from opcost.subjects import CAPTURED, Subject, subjects_of

PRECISION = "torch-default"
COLUMNS = (
    *("operator", "wall_s", "time_s", "time_reference_s", "energy_j", "energy_reference_j", "reference_duration_s"),
    *(
        "energy_as_measured_j",
        "energy_reference_as_measured_j",
        "loop_time_s",
        "temperature_c",
        "temperature_reference_c",
    ),
    *("power_capped_ratio", "power_capped_reference_ratio", "device_uuid", "notes"),
)


def subjects(names: list[str], seed: int) -> list[Subject]:
    """Return what the models measure, shuffled, and ordered so that any beginning has as many kinds as possible."""
    found: dict[Subject, None] = {}
    for config in load_configs(Path("measurements"), names):
        counts = COUNTS.read(config).counts
        found |= dict.fromkeys(subjects_of((count for count in counts if count.memory_bytes), CAPTURED))
    kinds: dict[str, list[Subject]] = {}
    shuffled = sorted(found, key=lambda subject: subject.key)
    random.Random(seed).shuffle(shuffled)
    for subject in shuffled:
        kinds.setdefault(subject.operator.short_name, []).append(subject)
    return [subject for row in zip_longest(*kinds.values()) for subject in row if subject is not None]


def pair(apparatus: Apparatus, subject: Subject, reference_s: float) -> dict[str, object]:
    """Measure an operator in a short loop, which is timed with all that it takes, and in a long one."""
    begin_s = time.perf_counter()
    short = protocol_for(apparatus.device, reference_s, relative_error=0.01)
    with apparatus.workload(subject) as workload:
        fast = measure(workload, apparatus.meter("fast"), apparatus.clock, short, apparatus.power_per_kelvin)
        wall_s = time.perf_counter() - begin_s
        long = MeasurementProtocol(GPU_WARM_UP_S, reference_s)
        slow = measure(workload, apparatus.meter("slow"), apparatus.clock, long, apparatus.power_per_kelvin)
    return {
        "operator": f"{subject.operator} {subject.input_data}",
        "wall_s": wall_s,
        "time_s": fast.time_s,
        "time_reference_s": slow.time_s,
        "energy_j": fast.energy_at_reference_j,
        "energy_reference_j": slow.energy_at_reference_j,
        "reference_duration_s": slow.loop_time_s,
        "energy_as_measured_j": fast.energy_j,
        "energy_reference_as_measured_j": slow.energy_j,
        "loop_time_s": fast.loop_time_s,
        "temperature_c": fast.temperature_c,
        "temperature_reference_c": slow.temperature_c,
        "power_capped_ratio": fast.power_capped_ratio,
        "power_capped_reference_ratio": slow.power_capped_ratio,
        "device_uuid": apparatus.circumstances(short).device_uuid,
        "notes": fast.notes,
    }


def known(path: Path) -> set[str]:
    """Return the operators that a file has already."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {row["operator"] for row in csv.DictReader(file)}


def pairs(apparatus: Apparatus, wanted: Iterable[Subject], reference_s: float) -> Iterator[dict[str, object]]:
    """Yield the rows of operators that can be measured."""
    with apparatus.precision(PRECISION):
        for subject in wanted:
            try:
                yield pair(apparatus, subject, reference_s)
            except CannotMeasureError as error:
                print(f"left out: {subject.operator}: {error}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--operators", type=int, default=60, help="how many the file is to have in the end")
    parser.add_argument("--reference-seconds", type=float, default=10.0)
    parser.add_argument("--limit-seconds", type=float, default=480.0, help="begin no operator after that")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    begin_s = time.monotonic()
    done = known(arguments.output)
    wanted = subjects(arguments.names, arguments.seed)[: arguments.operators]
    lacking = [subject for subject in wanted if f"{subject.operator} {subject.input_data}" not in done]
    is_new = not done
    with (
        tempfile.TemporaryDirectory() as folder,
        qualified(open_apparatus, "cuda", Path(folder), True) as apparatus,
        arguments.output.open("a", newline="") as file,
    ):
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            table.writeheader()
        for row in pairs(apparatus, lacking, arguments.reference_seconds):
            table.writerow(row)
            file.flush()
            print(row["operator"], file=sys.stderr)
            if time.monotonic() - begin_s > arguments.limit_seconds:
                break
    return 0


if __name__ == "__main__":
    sys.exit(main())
