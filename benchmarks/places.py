"""How far an operator's time depends on where in memory it lies: built again in one place, and in several -> a table

The operators are short ones of some models that block 0 has counted, of as many kinds as there are. Nothing else may
run on the GPU.
Example: PYTHONPATH=. python benchmarks/places.py resnet50_32x3x224x224 swin_t_32x3x224x224
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from statistics import mean, stdev

from operators_in_turn import counts_of, in_turn
from tables import markdown

from opcost.command.options import Parser
from opcost.errors import CannotMeasureError
from opcost.measuring.calls import Calls
from opcost.measuring.conditions import GRAPH
from opcost.measuring.instruments import Instruments
from opcost.measuring.ports import Workload
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MeasurementProtocol
from opcost.meters.clock import SystemClock
from opcost.meters.opening import NoMeter
from opcost.operators.cases import Case
from opcost.power.ports import Clock
from opcost.torch_backend.workload import EagerWorkload, as_graph, operator_workload
from opcost.units import milliseconds

DEVICE = "cuda"
BUILDS = 8
LOOK = MeasurementProtocol(warm_up_s=0.05, loop_s=1.0, relative_error=0.01)
HEADER = ("operator", "one place", f"{BUILDS} builds", "several places", f"{BUILDS} builds", "several / one", "places")


def built(case: Case, in_places: bool) -> Workload:
    """Return an operator in graphs, in as many places as usual or in one."""
    calls: Calls = operator_workload(case.operator, DEVICE, case.input_data).calls
    return as_graph(EagerWorkload(calls if in_places else replace(calls, relocated=None), DEVICE))


def times_s(case: Case, in_places: bool, clock: Clock) -> Iterator[tuple[float, int]]:
    """Build an operator several times; yield the time of each build, and in how many places it runs.

    All builds are kept until the last is measured: memory that is given back would be used again.
    """
    kept = []
    for _ in range(BUILDS):
        workload = built(case, in_places)
        kept.append(workload)
        if workload.execution == GRAPH:
            yield measure(workload, Instruments(NoMeter("only times are wanted"), clock), LOOK).time_s, workload.places


def line(case: Case, clock: Clock) -> list[str] | None:
    """Return a line of the table; None for an operator that runs in one place, or in no graph."""
    several = list(times_s(case, True, clock))
    if not several or several[0][1] == 1:
        return None
    in_places = [time_s for time_s, _ in several]
    in_one = [time_s for time_s, _ in times_s(case, False, clock)]
    spreads = [f"±{stdev(found) / mean(found):.2%}" for found in (in_one, in_places)]
    ratio = f"{mean(in_places) / mean(in_one) - 1:+.2%}"
    one, several_text = (milliseconds(mean(found)) for found in (in_one, in_places))
    return [f"{case.operator}", one, spreads[0], several_text, spreads[1], ratio, str(several[0][1])]


def lines(cases: list[Case], number: int) -> Iterator[list[str]]:
    """Yield the lines of so many operators that run in several places."""
    clock, found = SystemClock(), 0
    for case in cases:
        try:
            cells = line(case, clock)
        except CannotMeasureError as error:
            print(f"left out: {case.operator}: {error}", file=sys.stderr)
            continue
        if cells is not None:
            yield cells
            found += 1
        if found == number:
            return


def main() -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--operators", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    cases = in_turn(counts_of(arguments.names), arguments.seed)
    print(markdown(HEADER, lines(cases, arguments.operators)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
