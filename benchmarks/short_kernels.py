"""What short operators take in turn with others, over what each takes alone in a loop, in time and energy -> a CSV file

In turn run either copies of one operator, each on memory of its own, or different operators of the same model. Copies
find no data in the cache once they are together larger than it; different operators also run another kernel each time.
The operators are short ones of some models that block 0 has counted. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/short_kernels.py --output short_kernels.csv mobilenet_v3_large_32x3x224x224
         PYTHONPATH=. python benchmarks/short_kernels.py --evaluate short_kernels.csv
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean, stdev

import pandas as pd
from growing_csv import append, growing_parser, known, parsed
from operators_in_turn import counts_of, expected_s
from tables import markdown

from opcost.errors import CannotMeasureError
from opcost.measuring.calls import Call, Calls
from opcost.measuring.conditions import TORCH_DEFAULT
from opcost.measuring.ports import Workload
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import SHORT_WARM_UP_S, MeasurementProtocol
from opcost.measuring.record import Measurement
from opcost.operators.cases import CAPTURED, Case, cases_of
from opcost.operators.counts import OperatorCount
from opcost.running.apparatus import Apparatus, open_apparatus
from opcost.running.qualification import qualified
from opcost.running.workloads import Workloads
from opcost.storage.database import Database
from opcost.torch_backend.switches import precision
from opcost.torch_backend.workload import EagerWorkload, GraphWorkload, as_graph, operator_workload

DEVICE = "cuda"
LOOK = MeasurementProtocol(SHORT_WARM_UP_S, loop_s=1.0, relative_error=0.005)
COPIES, DIFFERENT = "copies", "different"
SEPARATOR = " | "
COPIES_SUFFIX = r" \| \d+ times$"
GROUPS = (2, 4, 8, 16, 32)
"""How many run in turn: two of them fit into the cache, thirty-two do not."""

SHORTEST_S, LONGEST_S = 0.3e-6, 40e-6
CACHE_BYTES = 50e6
"""Of an H200, roughly: to tell groups that fit into it from others."""


@dataclass(frozen=True)
class Member:
    """An operator in a group: how to call it, its bytes, and what a call takes alone in a loop, in s and J."""

    name: str
    calls: Calls
    memory_bytes: int
    alone_s: float
    alone_j: float


def short_operators(counts: Sequence[OperatorCount], seed: int) -> list[tuple[Case, int]]:
    """Return short operators and their bytes, shuffled by a seed."""
    chosen = [count for count in counts if SHORTEST_S <= expected_s(count) <= LONGEST_S]
    found = {case: count.memory_bytes for count in chosen for case in cases_of([count], CAPTURED)}
    ordered = sorted(found.items(), key=lambda item: item[0].key)
    random.Random(seed).shuffle(ordered)
    return ordered


def in_graphs(apparatus: Apparatus, eager: EagerWorkload) -> GraphWorkload | EagerWorkload:
    """Capture some calls while nothing else runs."""
    if isinstance(apparatus.workload, Workloads):
        apparatus.workload.pause_background()
    return as_graph(eager)


def looked_at(apparatus: Apparatus, workload: Workload) -> Measurement:
    """Measure something for a moment."""
    return measure(workload, apparatus.instruments("short"), LOOK)


def energy_j(measurement: Measurement) -> float:
    """Return an energy at the reference temperature; as measured where that is not known, NaN without a meter."""
    found = measurement.energy_at_reference_j or measurement.energy_j
    return math.nan if found is None else found


def member(case: Case, memory_bytes: int, apparatus: Apparatus) -> Member | None:
    """Build an operator and measure it alone; None where it runs in no graph, or cannot be made on other memory."""
    eager = operator_workload(case.operator, DEVICE, case.input_data)
    graph = in_graphs(apparatus, eager)
    if graph.execution == eager.execution or eager.calls.relocated is None or eager.calls.period != 1:
        return None
    alone = looked_at(apparatus, graph)
    name = f"{case.operator} {case.input_data}"
    return Member(name, eager.calls, memory_bytes, alone.time_s, energy_j(alone))


def in_turn(calls: Sequence[Call], apparatus: Apparatus) -> tuple[float, float]:
    """Return what one round of some calls takes in a graph, in s and J."""
    workload = in_graphs(apparatus, EagerWorkload(Calls(partial(_call_each, calls), len(calls)), DEVICE))
    measured = looked_at(apparatus, workload)
    return len(calls) * measured.time_s, len(calls) * energy_j(measured)


def _call_each(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def copies_of(one: Member, number: int) -> list[Call]:
    """Return an operator's call and further ones on memory of their own."""
    assert one.calls.relocated is not None
    return [one.calls.cycle, *(one.calls.relocated() for _ in range(number - 1))]


def groups(members: Sequence[Member]) -> Iterator[tuple[str, list[Member]]]:
    """Yield what runs in turn: neighbours, by size and as shuffled, and copies of each operator in all numbers.

    By size, so that there are groups of many that fit into the cache together: what they take longer is for being
    different.
    """
    seen = set()
    by_size = sorted(members, key=lambda one: one.memory_bytes)
    for order, size in product((by_size, members), GROUPS):
        for first in range(0, len(order) - size + 1, size):
            group = list(order[first : first + size])
            if name_of(DIFFERENT, group) not in seen:
                seen.add(name_of(DIFFERENT, group))
                yield DIFFERENT, group
    for size in GROUPS:
        for one in members:
            yield COPIES, [one] * size


def row(kind: str, group: Sequence[Member], apparatus: Apparatus) -> dict[str, object]:
    """Measure a group in turn."""
    calls = copies_of(group[0], len(group)) if kind == COPIES else [one.calls.cycle for one in group]
    in_turn_s, in_turn_j = in_turn(calls, apparatus)
    return {
        "group": name_of(kind, group),
        "kind": kind,
        "calls": len(group),
        "alone_s": sum(one.alone_s for one in group),
        "in_turn_s": in_turn_s,
        "alone_j": sum(one.alone_j for one in group),
        "in_turn_j": in_turn_j,
        "memory_bytes": sum(one.memory_bytes for one in group),
    }


def name_of(kind: str, group: Sequence[Member]) -> str:
    """Return how the file names a group."""
    names = [group[0].name, f"{len(group)} times"] if kind == COPIES else [one.name for one in group]
    return SEPARATOR.join(names)


def measured(wanted: Sequence[tuple[Case, int]], number: int, apparatus: Apparatus) -> list[Member]:
    """Build operators until there are as many as wanted; those that cannot be built are left out."""
    found: list[Member] = []
    for case, memory_bytes in wanted:
        if len(found) == number:
            break
        try:
            one = member(case, memory_bytes, apparatus)
        except CannotMeasureError as error:
            print(f"left out: {case.operator}: {error}", file=sys.stderr)
            continue
        if one is not None:
            found.append(one)
    return found


def add_rows(path: Path, members: Sequence[Member], apparatus: Apparatus, limit_s: float) -> None:
    """Measure the groups that a file lacks, until a time is up."""
    begin_s, done = time.monotonic(), known(path, "group")
    for kind, group in groups(members):
        if time.monotonic() - begin_s > limit_s:
            break
        if name_of(kind, group) in done:
            continue
        try:
            append(path, row(kind, group, apparatus))
        except CannotMeasureError as error:
            print(f"left out: {name_of(kind, group)}: {error}", file=sys.stderr)


def report(table: pd.DataFrame) -> str:
    """Return by how much calls take longer in turn, by kind and number, in Markdown."""
    table = table.assign(excess_s=(table["in_turn_s"] - table["alone_s"]) / table["calls"])
    energies = table.reindex(columns=["alone_j", "in_turn_j"])
    excess_j = (energies["in_turn_j"] - energies["alone_j"]) / table["calls"]
    ratio = table["in_turn_s"] / table["alone_s"] - 1
    is_larger = table["memory_bytes"] > CACHE_BYTES
    cells = []
    for (kind, calls, larger), rows in table.groupby([table["kind"], table["calls"], is_larger]):
        chosen = rows["excess_s"]
        cells.append(
            [
                f"{calls} {kind}, {'beyond' if larger else 'within'} the cache",
                str(len(rows)),
                *(f"{1e6 * chosen.quantile(at):+.2f} us" for at in (0.05, 0.5, 0.95)),
                f"{ratio[rows.index].median():+.1%}",
                _microjoules(excess_j[rows.index].median()),
            ]
        )
    told = markdown(
        ("a call in turn, over alone", "groups", "5 %", "median", "95 %", "median ratio", "median energy"), cells
    )
    return f"{told}\n\n{_beside_copies(table)}"


def _microjoules(energy_j: float) -> str:
    return "" if math.isnan(energy_j) else f"{1e6 * energy_j:+.0f} uJ"


def _beside_copies(table: pd.DataFrame) -> str:
    """Return by how much calls of different operators take longer than copies of the same ones, in Markdown.

    ``excess_s`` is by how much a call takes longer in turn. Both are beyond the cache, so that what is left is for
    being different. Groups are left out of which an operator has no copies beyond the cache.
    """
    beyond = table["memory_bytes"] > CACHE_BYTES
    copies = table[(table["kind"] == COPIES) & beyond].sort_values("calls")
    names = copies["group"].str.replace(COPIES_SUFFIX, "", regex=True)
    of_copies_s = dict(zip(names, copies["excess_s"], strict=True))
    rows: dict[int, list[float]] = {}
    for _, one in table[(table["kind"] == DIFFERENT) & beyond].iterrows():
        members = str(one["group"]).split(SEPARATOR)
        if all(name in of_copies_s for name in members):
            mean_s = sum(of_copies_s[name] for name in members) / len(members)
            rows.setdefault(int(one["calls"]), []).append(float(one["excess_s"]) - mean_s)
    header = ("a call among different ones, over their copies", "groups", "mean", "standard error")
    return markdown(header, (_mean_cells(calls, found_s) for calls, found_s in sorted(rows.items())))


def _mean_cells(calls: int, found_s: Sequence[float]) -> tuple[str, str, str, str]:
    error = f"{1e6 * stdev(found_s) / len(found_s) ** 0.5:.2f} us" if len(found_s) > 1 else ""
    return f"{calls} different, beyond the cache", str(len(found_s)), f"{1e6 * mean(found_s):+.2f} us", error


def main() -> int:
    parser = growing_parser(__doc__, "tell how much longer calls take in turn")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--operators", type=int, default=32)
    arguments = parsed(parser, report)
    if arguments is None:
        return 0
    wanted = short_operators(counts_of(arguments.names), arguments.seed)
    with (
        qualified(open_apparatus, DEVICE, Database(arguments.database), True) as apparatus,
        precision(TORCH_DEFAULT),
    ):
        members = measured(wanted, arguments.operators, apparatus)
        add_rows(arguments.output, members, apparatus, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
