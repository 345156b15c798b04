"""Products with a matrix, each measured with its weights in the cache and from memory.

In a loop of itself a Linear finds its weights in the cache. In a model they come from memory, because all other layers
ran in between. How much longer that takes depends on the kernel: 0 % to 20 % of the call for matrices of one size
(``docs/log/cache.md``). So each such operator is measured both ways, and corrected by its own difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from opcost.comparing.cache_chain_rows import Excess, is_corrected
from opcost.estimates import Estimate
from opcost.measuring.conditions import COLD, Conditions
from opcost.measuring.flags import Flag
from opcost.measuring.record import MeasurementRow, is_flagged, ran_as_requested, time_of
from opcost.operators.cases import Case, cases_of_count
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import DTYPE, FLOAT32, OperatorTuple, TensorSpec
from opcost.summing.energy import common_basis
from opcost.summing.index import Measurements

LEAST_BYTES = 2**19
"""The smallest matrix that is measured both ways: 512 x 512 in 16 bits, the smallest whose calls were found to take
longer (``docs/data/weights_in_caches.csv``)."""

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


def cases_from_memory(counts: Iterable[OperatorCount], input_data: str) -> tuple[Case, ...]:
    """Return the cases to measure with weights from memory: of each such operator the one with most calls."""
    wanted = (count for count in counts if count.computes and (matrix_bytes(count.operator) or 0) >= LEAST_BYTES)
    return tuple(max(cases_of_count(count, input_data), key=lambda found: found[1])[0] for count in wanted)


def excesses_from_memory(
    counts: Iterable[OperatorCount], measurements: Measurements, conditions: Conditions
) -> Mapping[OperatorTuple, Excess]:
    """Return how much longer a call of each operator takes with weights from memory than in the cache.

    Operators that were not measured both ways on one board and the same input data are left out.

    Args:
        counts: of a model.
        measurements: the rows.
        conditions: those of the rows with weights in the cache.
    """
    if not is_corrected(conditions):
        return {}
    found = {}
    for count in counts:
        if matrix_bytes(count.operator) is None:
            continue
        for cold in measurements.under(count.operator, replace(conditions, cache=COLD)):
            excess = _excess(cold, measurements.under(count.operator, conditions))
            if excess is not None:
                found[count.operator] = excess
    return found


def _excess(cold: MeasurementRow, warm_rows: Iterable[MeasurementRow]) -> Excess | None:
    """Return the difference from the row that differs in nothing else, None without one."""
    for warm in warm_rows:
        is_same = warm.input_data == cold.input_data
        is_same_board = warm.circumstances.device_uuid == cold.circumstances.device_uuid
        if is_same and is_same_board and _is_from_memory(cold):
            basis = common_basis([warm, cold])
            return Excess(time_of(cold).less(time_of(warm)), _less(basis.energy_of(cold), basis.energy_of(warm)))
    return None


def _is_from_memory(row: MeasurementRow) -> bool:
    """Return whether the weights came from memory, and no flag casts doubt on the measurement."""
    return ran_as_requested(row) and not is_flagged(row.measurement) and Flag.RAN_WARM not in row.measurement.flags


def _less(one: Estimate | None, other: Estimate | None) -> Estimate | None:
    return None if one is None or other is None else one.less(other)
