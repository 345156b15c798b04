"""What a call takes longer where neither its code nor its weights are in the device's caches.

In a loop of itself an operator finds both there, in a model that moves more than the caches hold it does not. How much
that is, is measured on the card with small operators of many kinds in a chain, beside the same operators each in a
loop: no model takes part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opcost.conditions import Conditions
from opcost.measurement import MeasurementRow, energy_of, time_of
from opcost.statistics import Estimate, estimate_of, standard_error_of, sum_of_independent, value_of


@dataclass(frozen=True)
class ColdCallsRow:
    """Operators each in a loop, and all of them in a chain in which each finds nothing but its input in the caches.

    ``time_s`` and ``energy_j`` are what a call takes longer in the chain, errors one standard error; energies are at
    the reference temperature where all are known there, None where one is not known at all. ``calls`` are those of the
    chain, ``operators`` names it.
    """

    operators: str
    calls: int
    time_s: float
    time_standard_error_s: float
    energy_j: float | None
    energy_standard_error_j: float | None
    alone_time_s: float
    in_chain_time_s: float
    alone_energy_j: float | None
    in_chain_energy_j: float | None
    measured_at: str
    device_uuid: str | None
    conditions: Conditions


def cold_calls_row(alone: Sequence[MeasurementRow], chain: MeasurementRow) -> ColdCallsRow:
    """Return what calls take longer in a chain than in loops of their own.

    Args:
        alone: the rows of its operators, one for each call.
        chain: that of all of them together.
    """
    rows = [*alone, chain]
    at_reference = all(energy_of(row, at_reference=True) for row in rows)
    alone_s = sum_of_independent(map(time_of, alone))
    energies_j = [energy for row in alone if (energy := energy_of(row, at_reference)) is not None]
    alone_j = sum_of_independent(energies_j) if len(energies_j) == len(alone) else None
    chain_j = energy_of(chain, at_reference)
    longer_s = _per_call(time_of(chain), alone_s, len(alone))
    longer_j = None if alone_j is None or chain_j is None else _per_call(chain_j, alone_j, len(alone))
    return ColdCallsRow(
        operators=chain.operator,
        calls=len(alone),
        time_s=longer_s.value,
        time_standard_error_s=longer_s.standard_error,
        energy_j=value_of(longer_j),
        energy_standard_error_j=standard_error_of(longer_j),
        alone_time_s=alone_s.value,
        in_chain_time_s=chain.measurement.time_s,
        alone_energy_j=value_of(alone_j),
        in_chain_energy_j=value_of(chain_j),
        measured_at=chain.measurement.ended_at,
        device_uuid=chain.circumstances.device_uuid,
        conditions=chain.conditions,
    )


def _per_call(chain: Estimate, alone: Estimate, calls: int) -> Estimate:
    return sum_of_independent([chain, alone.times(-1)]).times(1 / calls)


@dataclass(frozen=True)
class ColdCalls:
    """What a call takes longer, in s and J; the energy is None where it is not known."""

    time_s: Estimate
    energy_j: Estimate | None


def cold_calls_under(rows: Iterable[ColdCallsRow], conditions: Conditions) -> ColdCalls | None:
    """Return the mean of what was found on cards of a kind with its software, in the same execution; None for nothing.

    Precision and cache mode of operators do not count: what is not in a cache takes as long for all of them.
    """
    found = [row for row in rows if _kind(row.conditions) == _kind(conditions)]
    if not found:
        return None
    times_s = [Estimate(row.time_s, row.time_standard_error_s) for row in found]
    energies_j = [estimate_of(row.energy_j, row.energy_standard_error_j) for row in found]
    known_j = [energy_j for energy_j in energies_j if energy_j is not None]
    return ColdCalls(_mean(times_s), _mean(known_j) if known_j else None)


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    return sum_of_independent(estimates).times(1 / len(estimates))


def _kind(conditions: Conditions) -> tuple[object, ...]:
    return (
        conditions.device_product,
        conditions.driver_version,
        conditions.torch_version,
        conditions.cuda_version,
        conditions.mode,
        conditions.execution,
    )
