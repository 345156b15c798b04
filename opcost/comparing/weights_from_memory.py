"""Products with a matrix, each measured with its weights in the cache and from memory.

In a loop of itself a Linear finds its weights in the cache. In a model they come from memory, because all other layers
ran in between. How much longer that takes depends on the kernel, from nothing to three quarters of the call for one
matrix (``docs/log/cache.md``). So each such operator is measured both ways, and corrected by its own difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from opcost.comparing.cache_chain_rows import Excess, is_corrected
from opcost.comparing.cache_chains import STREAM_BYTES
from opcost.measuring.conditions import COLD, Conditions
from opcost.measuring.flags import Flag
from opcost.measuring.record import (
    MeasurementRow,
    does_other_work,
    is_doubtful,
    may_be_throttled,
    ran_as_requested,
    time_of,
)
from opcost.operators.cases import Case, cases_of_count
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import DTYPE, FLOAT32, OperatorTuple, TensorSpec
from opcost.summing.energy import common_basis
from opcost.summing.index import Measurements

LEAST_BYTES, MOST_BYTES = 2**19, 2**27
"""The smallest and the largest matrix that are measured both ways. The smallest whose calls were found to take longer
has 512 x 512 elements of 16 bits (``docs/data/weights_in_caches.csv``). Of more than 134 MB a loop finds next to
nothing in a cache."""

WEIGHT_PLACES = {"linear": 1, "addmm": 2}
"""Functions that multiply by one matrix, with the place of the matrix among their floating-point inputs."""


def matrix_bytes(operator: OperatorTuple) -> int | None:
    """Return the bytes of the weights of a product with one matrix, such as a Linear; None for other operators."""
    name, tensors = operator.short_name.lower(), operator.floating_inputs
    if operator.is_function:
        place = WEIGHT_PLACES.get(name, len(tensors))
        return tensors[place].floating_bytes if place < len(tensors) else None
    parameters = dict(operator.parameters)
    inputs, outputs = parameters.get("in_features"), parameters.get("out_features")
    if name != "linear" or not isinstance(inputs, int) or not isinstance(outputs, int):
        return None
    return TensorSpec((inputs, outputs), str(parameters.get(DTYPE, FLOAT32))).floating_bytes


def cases_from_memory(counts: OperatorCounts, input_data: str) -> tuple[Case, ...]:
    """Return the cases of a model to measure with weights from memory: of each such operator the one with most calls.

    A model that moves no more than the chains' stream has none, because its weights may stay in caches.
    """
    if counts.total_memory_bytes <= STREAM_BYTES:
        return ()
    return tuple(
        max(cases_of_count(count, input_data), key=lambda found: found[1])[0]
        for count in counts.counts
        if count.computes and LEAST_BYTES <= (matrix_bytes(count.operator) or 0) <= MOST_BYTES
    )


def excesses_from_memory(
    counts: Iterable[OperatorCount], measurements: Measurements, conditions: Conditions
) -> Mapping[OperatorTuple, Excess]:
    """Return how much longer a call of each operator takes with weights from memory than in the cache.

    Operators that were not measured both ways on one board, on the same input data and at full clocks are left out.
    ``conditions`` are those of the rows with weights in the cache.
    """
    if not is_corrected(conditions):
        return {}
    cold = replace(conditions, cache=COLD)
    found = {}
    for count in counts:
        if matrix_bytes(count.operator) is None:
            continue
        pairs = [
            (warm, from_memory)
            for from_memory in filter(_is_full_speed, measurements.all_under(count.operator, cold))
            for warm in filter(_is_full_speed, measurements.all_under(count.operator, conditions))
            if warm.input_data == from_memory.input_data
            and warm.circumstances.device_uuid == from_memory.circumstances.device_uuid
            # Without its energy a pair would take that of the whole correction.
            and (warm.measurement.energy_j is None or from_memory.measurement.energy_j is not None)
        ]
        if pairs:
            calls = Counter({str(data): number for data, number in count.captured_data.items()})
            # Of equals the last: that of the preferred board.
            warm, from_memory = max(reversed(pairs), key=lambda pair: calls[pair[0].input_data])
            basis = common_basis([warm, from_memory])
            warm_j, cold_j = basis.energy_of(warm), basis.energy_of(from_memory)
            energy_j = None if warm_j is None or cold_j is None else cold_j.less(warm_j)
            found[count.operator] = Excess(time_of(from_memory).less(time_of(warm)), energy_j)
    return found


def _is_full_speed(row: MeasurementRow) -> bool:
    """Return whether a row ran as requested, at full clocks, as counted, and without a flag that casts doubt on it."""
    measured = row.measurement
    is_refused = is_doubtful(row) or may_be_throttled(measured) or Flag.RAN_WARM in measured.flags
    return ran_as_requested(row) and not is_refused and not does_other_work(measured)
