"""The costs of a model's layers by rows of the database: of the operator tuples that their forwards are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType

from opcost.measuring.conditions import WARM, Conditions, usual_execution
from opcost.measuring.lookup import lookup_key
from opcost.measuring.record import MeasurementRow
from opcost.metering.layer_rows import KnownCost
from opcost.operators.cases import of_operators, tuple_key
from opcost.operators.tuples import OperatorTuple
from opcost.storage.database import Database
from opcost.summing.energy import EnergyBasis
from opcost.summing.index import best_of_each_board

DIFFERENT_IN_TRAINING = ("BatchNorm", "InstanceNorm", "Dropout", "DropPath", "StochasticDepth", "RReLU", "Transformer")
"""Parts of names of classes that run other kernels in training than in eval mode, of which alone there are rows."""


@dataclass(frozen=True)
class LoopState:
    """The device of a loop, and torch's precision in it as rows name it: they decide which rows are used."""

    device_type: str
    product: str
    precision: str
    matmul_tf32: bool
    cudnn_tf32: bool

    def is_of(self, row: MeasurementRow, operator: OperatorTuple) -> bool:
        """Return whether a row was measured on this product, in a precision that runs the operator in the same way.

        Versions of driver and torch may differ: the rows only weight shares of energy.
        """
        own = row.conditions
        if own.device_product != self.product or own.cache != WARM:
            return False
        if own.execution != usual_execution(self.device_type):
            return False
        wanted = replace(own, precision=self.precision, matmul_tf32=self.matmul_tf32, cudnn_tf32=self.cudnn_tf32)
        return lookup_key(operator, wanted) == lookup_key(operator, own)


NO_COSTS: Mapping[int, KnownCost] = MappingProxyType({})


def known_costs(
    calls: Mapping[int, Mapping[OperatorTuple, int]], state: LoopState, database: Database
) -> Mapping[int, KnownCost]:
    """Return the cost of the forward of each layer all of whose operator tuples have rows with energy.

    Of rows on several input data the median counts, because the values of a loop's tensors are not looked at.

    Args:
        calls: by layer, the calls of its operator tuples in one iteration.
        state: that of the loop.
        database: the rows.
    """
    tuples = {measured_as(operator) for of_layer in calls.values() for operator in of_layer}
    wanted = [operator for operator in tuples if operator is not None]
    if not wanted:
        return NO_COSTS
    rows: dict[str, list[MeasurementRow]] = {}
    for row in database.operator_measurements.rows(of_operators(wanted)):
        rows.setdefault(tuple_key(row.key), []).append(row)
    of_tuple = {operator: _cost(operator, rows.get(operator.key, ()), state) for operator in wanted}
    found = {layer: _total(of_layer, of_tuple) for layer, of_layer in calls.items()}
    return {layer: cost for layer, cost in found.items() if cost is not None}


def measured_as(operator: OperatorTuple) -> OperatorTuple | None:
    """Return the tuple in eval mode that runs the same kernels, None if there is none."""
    if operator.mode != "train":
        return operator
    if any(part in operator.short_name for part in DIFFERENT_IN_TRAINING):
        return None
    if dict(operator.parameters).get("dropout"):
        return None
    return replace(operator, mode="eval")


def _cost(operator: OperatorTuple, rows: Iterable[MeasurementRow], state: LoopState) -> KnownCost | None:
    fitting = [row for row in rows if state.is_of(row, operator) and EnergyBasis.MEASURED.is_known(row)]
    newest = _newest(fitting)
    costs = [(row.measurement.time_s, row.measurement.energy_j) for row in best_of_each_board(newest)]
    energies_j = [energy_j for _, energy_j in costs if energy_j is not None]
    if not energies_j:
        return None
    return KnownCost(median(time_s for time_s, _ in costs), median(energies_j))


def _newest(rows: Sequence[MeasurementRow]) -> list[MeasurementRow]:
    if not rows:
        return []
    conditions: Conditions = max(rows, key=lambda row: row.measurement.started_at).conditions
    return [row for row in rows if row.conditions == conditions]


def _total(calls: Mapping[OperatorTuple, int], costs: Mapping[OperatorTuple, KnownCost | None]) -> KnownCost | None:
    """Return the cost of all calls, None if that of any is unknown."""
    time_s = energy_j = 0.0
    for operator, number in calls.items():
        measured = measured_as(operator)
        cost = None if measured is None else costs[measured]
        if cost is None:
            return None
        time_s += number * cost.time_s
        energy_j += number * cost.energy_j
    return KnownCost(time_s, energy_j)
