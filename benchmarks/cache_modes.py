"""Sums of operators beside the whole model, by what operators find in the cache: warm, cold, chained

Times only, in CUDA graphs, on the values that operators see in their model. The models are those that block 0 has
counted. Prints a Markdown table, and writes each kind of operator into a CSV file. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/cache_modes.py --output cache_modes.csv resnet50_32x3x224x224
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path

from opcost.apparatus import Apparatus, open_apparatus
from opcost.conditions import CACHES, CHAINED, COLD, GRAPH, WARM
from opcost.config_files import ModelConfig, load_configs
from opcost.errors import CannotMeasureError
from opcost.measurement import Measurement
from opcost.ports import MeasurementProtocol
from opcost.procedure import measure
from opcost.request import COUNTS, model_tuple
from opcost.subjects import CAPTURED, Subject, subjects_of
from opcost.torch_cache import AS_WARM
from opcost.units import percent, ratio

PRECISE = MeasurementProtocol(warm_up_s=0.1, loop_s=1.0, relative_error=0.005)
HEADER = (
    "model",
    "whole (ms)",
    *(f"sum {cache} / whole" for cache in CACHES),
    "share of time with weights",
    "share of time chained",
    "left out",
)


@dataclass(frozen=True)
class Timed:
    """All calls of one operator in a model, or of one kind of operators, in each mode.

    ``with_weights_s`` and ``chained_calls_s`` are the part of the warm time that did not run as warm when asked to be
    cold and chained; ``noise_s`` is the standard error of the cold time.
    """

    kind: str
    calls: int
    warm_s: float
    cold_s: float
    chained_s: float
    noise_s: float
    with_weights_s: float
    chained_calls_s: float


class OutOfTime(Exception):  # noqa: N818 (the user asked for it)
    """The time is up."""


class Bench:
    """A device in each of the modes; everything is measured once.

    Args:
        apparatuses: one for each mode.
        check_time: raises ``OutOfTime`` when nothing more is to begin.
    """

    def __init__(self, apparatuses: dict[str, Apparatus], check_time: Callable[[], None]) -> None:
        self._apparatuses = apparatuses
        self._check_time = check_time
        self._known: dict[tuple[Subject, str, str], Measurement] = {}

    def measured(self, subject: Subject, cache: str, precision: str) -> Measurement:
        """Return a subject's measurement in a mode."""
        place = (subject, cache, precision)
        if place not in self._known:
            self._check_time()
            apparatus = self._apparatuses[cache]
            with apparatus.precision(precision), apparatus.workload(subject) as workload:
                self._known[place] = measure(workload, apparatus.meters.meter("none"), apparatus.clock, PRECISE)
        return self._known[place]

    def timed(self, subject: Subject, calls: int, precision: str) -> Timed:
        """Return the times of an operator's calls."""
        warm, cold, chained = (self.measured(subject, cache, precision) for cache in (WARM, COLD, CHAINED))
        warm_s = calls * warm.time_s
        return Timed(
            kind=subject.operator.short_name,
            calls=calls,
            warm_s=warm_s,
            cold_s=calls * cold.time_s,
            chained_s=calls * chained.time_s,
            noise_s=calls * cold.time_standard_error_s,
            with_weights_s=warm_s * runs_otherwise(cold),
            chained_calls_s=warm_s * runs_otherwise(chained),
        )


def runs_otherwise(measurement: Measurement) -> bool:
    """Return whether an operator could be run as it was asked for, and not as warm."""
    return not any(note in measurement.notes for note in AS_WARM)


def operators_timed(bench: Bench, config: ModelConfig) -> Iterator[Timed | CannotMeasureError]:
    """Yield the times of each operator of a model that moves anything, or why there is none."""
    counts = [count for count in COUNTS.read(config).counts if count.memory_bytes]
    for subject, calls in subjects_of(counts, CAPTURED).items():
        try:
            yield bench.timed(subject, calls, config.precision)
        except CannotMeasureError as error:
            print(f"{config.name}: left out: {subject.operator}: {error}", file=sys.stderr)
            yield error


def total(kind: str, parts: list[Timed]) -> Timed:
    """Return the sum of some operators; the errors of their means are independent."""
    names = [field.name for field in fields(Timed) if field.name not in ("kind", "calls", "noise_s")]
    sums = {name: sum(getattr(part, name) for part in parts) for name in names}
    noise_s = sum(part.noise_s**2 for part in parts) ** 0.5
    return Timed(kind=kind, calls=sum(part.calls for part in parts), noise_s=noise_s, **sums)


def by_kind(parts: list[Timed]) -> list[Timed]:
    """Return the sum of each kind of operators, the slowest first."""
    kinds = {part.kind for part in parts}
    sums = [total(kind, [part for part in parts if part.kind == kind]) for kind in kinds]
    return sorted(sums, key=lambda each: -each.warm_s)


def cells(name: str, whole_s: float, summed: Timed, left_out: int) -> tuple[str, ...]:
    """Return a model's line of the table."""
    return (
        name,
        f"{whole_s * 1e3:.4g}",
        *(ratio(time_s / whole_s) for time_s in (summed.warm_s, summed.cold_s, summed.chained_s)),
        percent(summed.with_weights_s / summed.warm_s),
        percent(summed.chained_calls_s / summed.warm_s),
        str(left_out),
    )


def print_line(values: tuple[str, ...]) -> None:
    print(f"| {' | '.join(values)} |", flush=True)


def run_model(bench: Bench, config: ModelConfig, table: csv.DictWriter[str]) -> None:
    """Measure a model, print its line, and write its kinds of operators."""
    whole = bench.measured(Subject(model_tuple(config)), WARM, config.precision)
    found = list(operators_timed(bench, config))
    parts = [part for part in found if isinstance(part, Timed)]
    for kind in by_kind(parts):
        table.writerow({"model": config.name, "whole_s": whole.time_s, **vars(kind)})
    if parts:
        print_line(cells(config.name, whole.time_s, total("all", parts), len(found) - len(parts)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--limit-seconds", type=float, default=480.0, help="begin nothing after that")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    end_s = time.monotonic() + arguments.limit_seconds

    def check_time() -> None:
        if time.monotonic() > end_s:
            raise OutOfTime

    configs = load_configs(Path("measurements"), arguments.names)
    with ExitStack() as stack, arguments.output.open("w", newline="") as file:
        database = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        opened = {
            cache: stack.enter_context(open_apparatus(arguments.device, database, False, GRAPH, cache))
            for cache in CACHES
        }
        table = csv.DictWriter(
            file, ["model", "whole_s", *(field.name for field in fields(Timed))], lineterminator="\n"
        )
        table.writeheader()
        print_line(HEADER)
        print_line(("---",) * len(HEADER))
        bench = Bench(opened, check_time)
        for config in configs:
            try:
                run_model(bench, config, table)
            except OutOfTime:
                print(f"out of time at {config.name}", file=sys.stderr)
                break
            except CannotMeasureError as error:
                print(f"{config.name}: left out: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
