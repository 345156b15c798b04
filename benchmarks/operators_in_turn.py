"""Draw measured operators at random: of all lengths and of many kinds"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable

from opcost.measuring.conditions import GRAPH, TORCH_DEFAULT, WARM
from opcost.measuring.flags import Flag
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import Case
from opcost.operators.texts import parse_operator
from opcost.operators.values import parse_input_data

SHORTEST_S = 1e-6
"""Shorter operators are of the first octave."""


def usual_cases(rows: Iterable[MeasurementRow]) -> dict[Case, float]:
    """Return the cases of rows in CUDA graphs with the usual setting, and the time of each in s."""
    return {
        case_of(row): row.measurement.time_s
        for row in rows
        if is_in_warm_graph(row) and row.conditions.precision == TORCH_DEFAULT
    }


def is_in_warm_graph(row: MeasurementRow) -> bool:
    """Return whether a row is of an operator that launches a kernel, in a CUDA graph with warm caches."""
    conditions, flags = row.conditions, row.measurement.flags
    return (conditions.execution, conditions.cache) == (GRAPH, WARM) and Flag.NO_KERNEL not in flags


def drawn(times_s: dict[Case, float], seed: int) -> list[Case]:
    """Return cases in an order that only the seed decides; any beginning has all lengths and many kinds.

    Each octave of lengths gives one case in turn, of the kind that came least often so far.
    """
    shuffled = sorted(times_s, key=lambda case: case.key)
    random.Random(seed).shuffle(shuffled)
    octaves: dict[int, list[Case]] = {}
    for case in shuffled:
        octaves.setdefault(int(math.log2(max(times_s[case] / SHORTEST_S, 1.0))), []).append(case)
    taken: Counter[str] = Counter()
    ordered = []
    while any(octaves.values()):
        for octave in sorted(key for key, members in octaves.items() if members):
            # Of several the first: they are shuffled.
            case = min(octaves[octave], key=lambda member: taken[member.operator.short_name])
            octaves[octave].remove(case)
            taken[case.operator.short_name] += 1
            ordered.append(case)
    return ordered


def case_of(row: MeasurementRow) -> Case:
    """Return the case of a row."""
    operator = parse_operator(row.operator, row.parameters, row.inputs, row.training_mode)
    return Case(operator, parse_input_data(row.input_data))
