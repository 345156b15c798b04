"""Costs of calls in the state of their model: measured times, and the energy that follows from the warm row.

A loop after evictions gives the time of a call, but not its energy: of short calls that is lost in the evictions'. The
energy in state is that of the warm row, the power of a waiting device for the time that the state adds, and the energy
of the bytes that come from memory, or go to it, because of the state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from opcost.estimates import Estimate, sum_of_independent
from opcost.measuring.conditions import STATE, Conditions
from opcost.measuring.flags import flags_of, joined_notes
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import Case, OperatorCount, OperatorCounts, used_bytes
from opcost.operators.input_roles import is_restored
from opcost.operators.reuse import NearLimits
from opcost.operators.tuples import distinct_specs


@dataclass(frozen=True)
class Added:
    """The time (s) that a state adds to a call, the bytes from and to memory, and the key of the warm row."""

    time_s: float
    read_bytes: float
    written_bytes: float
    warm_key: str


@dataclass(frozen=True)
class AddedEnergy:
    """The energy that states add to calls.

    ``waiting_w`` is the power of a device at full clocks that waits for data or code, ``read_j`` the energy of a byte
    from memory, ``written_j`` that of a byte to it.
    """

    waiting_w: Estimate
    read_j: Estimate
    written_j: Estimate

    def of(self, calls: Iterable[tuple[int, Added]]) -> Estimate:
        """Return the energy in J that states add to numbers of calls, all with the same errors of the constants."""
        amounts = [(number * one.time_s, number * one.read_bytes, number * one.written_bytes) for number, one in calls]
        constants = self.waiting_w, self.read_j, self.written_j
        parts = [each.times(math.fsum(own)) for each, own in zip(constants, zip(*amounts, strict=True), strict=False)]
        return sum_of_independent(parts)


@dataclass(frozen=True)
class CardCaches:
    """The reuse distances up to which a card's caches keep data and code; ``energy`` is None if it is unknown."""

    near: NearLimits
    energy: AddedEnergy | None = None


H200 = CardCaches(
    NearLimits(30 * 10**6, 3, 33 * 10**6, 56 * 10**6),
    AddedEnergy(Estimate(140.0, 30.0), Estimate(98e-12, 9e-12), Estimate(71e-12, 7e-12)),
)
"""By loops of calls on the same and on other data, on two boards (``docs/log/states.md``)."""

H100 = CardCaches(
    NearLimits(25 * 10**6, 3, 28 * 10**6, 47 * 10**6),
    AddedEnergy(Estimate(140.0, 60.0), Estimate(98e-12, 18e-12), Estimate(71e-12, 14e-12)),
)
"""The same chip with a smaller cache, untried: the figures of an H200 with twice their errors."""

OTHERS = CardCaches(H200.near)
CARDS: Mapping[str, CardCaches] = MappingProxyType({"NVIDIA H200": H200, "NVIDIA H100 80GB HBM3": H100})

UNKNOWN_ENERGY = f"the energy that a state adds is known for {', '.join(CARDS)} only"


def caches_of(conditions: Conditions) -> CardCaches:
    return CARDS.get(conditions.device_product, OTHERS)


def limits_of(conditions: Conditions) -> NearLimits | None:
    """Return the limits by which calls are divided into states, None under conditions where they have none."""
    return caches_of(conditions).near if conditions.cache == STATE else None


def in_state(row: MeasurementRow, warm: MeasurementRow, case: Case) -> tuple[MeasurementRow, Added]:
    """Return a row in state with the energy that follows from the warm row, and with what the state adds.

    The errors of the energy are those of both rows, without those of the card's constants, which all calls share.
    """
    measured, base, caches = row.measurement, warm.measurement, caches_of(row.conditions)
    far_s = measured.far_launches_s
    time_s = measured.time_s - (1 - case.far_launches_ratio) * (far_s or 0.0)
    counted = case.counted
    if counted is None:
        raise ValueError("the energy of a state needs what was counted of the call")
    moved = bytes_added(counted, case, caches.near, workspace_bytes_of(row, counted))
    added = Added(time_s - base.time_s, *moved, warm.key)

    def energy_j(warm_j: Estimate | None) -> Estimate | None:
        if warm_j is None or caches.energy is None:
            return None
        waiting_w = caches.energy.waiting_w.value
        found_j = warm_j.value + caches.energy.of([(1, added)]).value
        # No call draws less than a waiting device, or than in its loop if that draws less still.
        least_w = min(waiting_w, warm_j.value / base.time_s)
        error_j = math.hypot(warm_j.standard_error, waiting_w * measured.time_standard_error_s)
        return Estimate(max(found_j, least_w * time_s), error_j)

    time = Estimate(time_s, measured.time_standard_error_s)
    found = measured.with_figures(time, energy_j(base.energy), energy_j(base.energy_at_reference))
    energy = found.energy
    power_w = None if energy is None else energy.divided_by(found.time)
    completed = replace(
        found,
        energy_missing_reason=None if energy is not None else base.energy_missing_reason or UNKNOWN_ENERGY,
        far_launches_s=None if far_s is None else case.far_launches_ratio * far_s,
        power_w=None if power_w is None else power_w.value,
        power_standard_error_w=None if power_w is None else power_w.standard_error,
        power_readings=base.power_readings,
        meter=base.meter,
        temperature_c=base.temperature_c,
        power_capped_ratio=base.power_capped_ratio,
        flags=flags_of([*found.flags, *base.flags]),
        notes=joined_notes(found.notes, base.notes),
    )
    return replace(row, measurement=completed), added


def far_launches_ratio(counts: OperatorCounts, limits: NearLimits) -> float:
    """Return the share of a run's launches that come from memory: each part of its graph was read a whole run ago."""
    return limits.missed_ratio(used_bytes(counts))


def shared_error_j(calls: Iterable[tuple[int, Added]], conditions: Conditions) -> float:
    """Return the error in J that the card's constants give the energy of some calls together."""
    energy = caches_of(conditions).energy
    return 0.0 if energy is None else energy.of(calls).standard_error


def bytes_added(
    counted: OperatorCount, case: Case, limits: NearLimits, workspace_bytes: int = 0
) -> tuple[float, float]:
    """Return the bytes that a call in its state reads from memory beyond those of a warm loop, and of its writes.

    Both may be negative. In a loop all that the call touches passes between two uses of a byte. If the loop writes the
    input again before each call, from a copy, a byte of the input is met after half of both. A workspace stays in a
    cache as long as the results do, if the call itself leaves it there.
    """
    touched_bytes, changed_bytes = counted.touched_bytes + workspace_bytes, 0
    missed = changed_missed = limits.missed_ratio(touched_bytes)
    if is_restored(counted.operator):
        changed_bytes = min(counted.written_bytes, counted.input_bytes)
        missed = limits.missed_ratio(touched_bytes + changed_bytes)
        changed_missed = limits.missed_ratio(touched_bytes / 2 + changed_bytes)
    looped_bytes = changed_bytes * changed_missed + (counted.input_bytes - changed_bytes) * missed
    read_bytes = counted.input_bytes if case.read_bytes is None else case.read_bytes
    written_bytes = counted.written_bytes * (case.written_ratio - changed_missed)
    return read_bytes - looped_bytes, written_bytes + workspace_bytes * max(case.written_ratio - missed, 0.0)


def workspace_bytes_of(row: MeasurementRow, counted: OperatorCount) -> int:
    """Return the memory of one call beyond its inputs, weights and outputs, 0 if it is unknown.

    Libraries of products use what they allocate. Reductions may reserve more than they use: of other calls it is what
    was counted.
    """
    peak_bytes = row.measurement.call_memory_peak_bytes
    if not counted.flop:
        return counted.memory_bytes - counted.input_bytes - counted.written_bytes
    inputs = sum(spec.stored_bytes for spec in distinct_specs(counted.operator.arguments))
    outputs = 0 if counted.operator.is_in_place else counted.output_bytes
    return 0 if peak_bytes is None else max(peak_bytes - inputs - (counted.weight_bytes or 0) - outputs, 0)
