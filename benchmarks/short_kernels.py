"""What short operators take in turn with others, over what each takes alone in a loop -> a CSV file

In turn run either copies of one operator, each on memory of its own, or different operators of the same model. Copies
find no data in the cache once they are together larger than it; different operators also run another kernel each time.
The operators are short ones of some models that block 0 has counted. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/short_kernels.py --output short_kernels.csv mobilenet_v3_large_32x3x224x224
         PYTHONPATH=. python benchmarks/short_kernels.py --evaluate short_kernels.csv
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
from growing_csv import append, growing_parser, known, parsed
from operators_in_turn import counts_of, expected_s
from tables import markdown

from opcost.calls import Call, Calls
from opcost.errors import CannotMeasureError
from opcost.meters import NoMeter
from opcost.operators import OperatorCount
from opcost.ports import Clock, MeasurementProtocol
from opcost.procedure import measure
from opcost.subjects import CAPTURED, Subject, subjects_of
from opcost.system_clock import SystemClock
from opcost.torch_workload import EagerWorkload, as_graph, operator_workload

DEVICE = "cuda"
LOOK = MeasurementProtocol(warm_up_s=0.05, loop_s=1.0, relative_error=0.005)
COPIES, DIFFERENT = "copies", "different"
GROUPS = (2, 4, 8, 16, 32)
"""How many run in turn: two of them fit into the cache, thirty-two do not."""

SHORTEST_S, LONGEST_S = 0.3e-6, 40e-6
CACHE_BYTES = 50e6
"""Of an H200, roughly: to tell groups that fit into it from others."""


@dataclass(frozen=True)
class Member:
    """An operator in a group: how to call it, its bytes, and what a call takes alone in a loop, in s."""

    name: str
    calls: Calls
    memory_bytes: int
    alone_s: float


def short_operators(counts: Sequence[OperatorCount], seed: int) -> list[tuple[Subject, int]]:
    """Return short operators and their bytes, shuffled by a seed."""
    chosen = [count for count in counts if SHORTEST_S <= expected_s(count) <= LONGEST_S]
    found = {subject: count.memory_bytes for count in chosen for subject in subjects_of([count], CAPTURED)}
    ordered = sorted(found.items(), key=lambda item: item[0].key)
    random.Random(seed).shuffle(ordered)
    return ordered


def member(subject: Subject, memory_bytes: int, clock: Clock) -> Member | None:
    """Build an operator and measure it alone; None where it runs in no graph, or cannot be made on other memory."""
    eager = operator_workload(subject.operator, DEVICE, subject.input_data)
    graph = as_graph(eager)
    if graph.execution == eager.execution or eager.calls.relocated is None or eager.calls.period != 1:
        return None
    alone = measure(graph, NoMeter("only times are wanted"), clock, LOOK)
    return Member(f"{subject.operator} {subject.input_data}", eager.calls, memory_bytes, alone.time_s)


def in_turn_s(calls: Sequence[Call], clock: Clock) -> float:
    """Return what one round of some calls takes in a graph, in s."""
    workload = as_graph(EagerWorkload(Calls(partial(_call_each, calls), len(calls)), DEVICE))
    return len(calls) * measure(workload, NoMeter("only times are wanted"), clock, LOOK).time_s


def _call_each(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def copies_of(one: Member, number: int) -> list[Call]:
    """Return an operator's call and further ones on memory of their own."""
    assert one.calls.relocated is not None
    return [one.calls.cycle, *(one.calls.relocated() for _ in range(number - 1))]


def groups(members: Sequence[Member]) -> Iterator[tuple[str, list[Member]]]:
    """Yield what runs in turn: copies of each operator in all numbers, and neighbours of the shuffled ones."""
    for size in GROUPS:
        for first in range(0, len(members) - size + 1, size):
            yield DIFFERENT, list(members[first : first + size])
    for size in GROUPS:
        for one in members:
            yield COPIES, [one] * size


def row(kind: str, group: Sequence[Member], clock: Clock) -> dict[str, object]:
    """Measure a group in turn."""
    calls = copies_of(group[0], len(group)) if kind == COPIES else [one.calls.cycle for one in group]
    return {
        "group": name_of(kind, group),
        "kind": kind,
        "calls": len(group),
        "alone_s": sum(one.alone_s for one in group),
        "in_turn_s": in_turn_s(calls, clock),
        "memory_bytes": sum(one.memory_bytes for one in group),
    }


def name_of(kind: str, group: Sequence[Member]) -> str:
    """Return how the file names a group."""
    names = [group[0].name, f"{len(group)} times"] if kind == COPIES else [one.name for one in group]
    return " | ".join(names)


def measured(wanted: Sequence[tuple[Subject, int]], number: int, clock: Clock) -> list[Member]:
    """Build operators until there are as many as wanted; those that cannot be built are left out."""
    found: list[Member] = []
    for subject, memory_bytes in wanted:
        if len(found) == number:
            break
        try:
            one = member(subject, memory_bytes, clock)
        except CannotMeasureError as error:
            print(f"left out: {subject.operator}: {error}", file=sys.stderr)
            continue
        if one is not None:
            found.append(one)
    return found


def add_rows(path: Path, names: list[str], number: int, seed: int, limit_s: float) -> None:
    """Measure the groups that a file lacks, until a time is up."""
    begin_s, clock = time.monotonic(), SystemClock()
    members = measured(short_operators(counts_of(names), seed), number, clock)
    done = known(path, "group")
    for kind, group in groups(members):
        if time.monotonic() - begin_s > limit_s:
            break
        if name_of(kind, group) in done:
            continue
        try:
            append(path, row(kind, group, clock))
        except CannotMeasureError as error:
            print(f"left out: {name_of(kind, group)}: {error}", file=sys.stderr)


def report(table: pd.DataFrame) -> str:
    """Return by how much calls take longer in turn, by kind and number, in Markdown."""
    excess_s = (table["in_turn_s"] - table["alone_s"]) / table["calls"]
    ratio = table["in_turn_s"] / table["alone_s"] - 1
    is_larger = table["memory_bytes"] > CACHE_BYTES
    cells = []
    for (kind, calls, larger), rows in table.groupby([table["kind"], table["calls"], is_larger]):
        chosen = excess_s[rows.index]
        cells.append(
            [
                f"{calls} {kind}, {'beyond' if larger else 'within'} the cache",
                str(len(rows)),
                *(f"{1e6 * chosen.quantile(at):+.2f} us" for at in (0.05, 0.5, 0.95)),
                f"{ratio[rows.index].median():+.1%}",
            ]
        )
    return markdown(("a call in turn, over alone", "groups", "5 %", "median", "95 %", "median ratio"), cells)


def main() -> int:
    parser = growing_parser(__doc__, "tell how much longer calls take in turn")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--operators", type=int, default=32)
    arguments = parsed(parser, report)
    if arguments is None:
        return 0
    add_rows(arguments.output, arguments.names, arguments.operators, arguments.seed, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
