"""Costs of calls in the state of their model: measured times, and the energy that follows from the warm row.

A loop after evictions gives the time of a call, but not its energy: of short calls that is lost in the evictions'. The
energy in state is that of the warm row, the power of a waiting device for the time that the state adds, and the energy
of the bytes that come from memory because of the state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from opcost.estimates import Estimate
from opcost.measuring.conditions import STATE, Conditions
from opcost.measuring.flags import flags_of, joined_notes
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import Case
from opcost.operators.reuse import NearLimits, Place, parse_state
from opcost.operators.tuples import distinct_specs


@dataclass(frozen=True)
class CardCaches:
    """The effect of a card's caches on calls.

    Data and code are ``near`` up to these reuse distances. A loop keeps calls of up to ``kept_bytes`` in the cache, and
    nothing of twice as many. ``waiting_w`` is the power of a device at full clocks that waits for data or code,
    ``byte_j`` the energy of a byte from memory; both are None if unknown.
    """

    near: NearLimits
    kept_bytes: float
    waiting_w: Estimate | None = None
    byte_j: Estimate | None = None


H200 = CardCaches(NearLimits(30 * 10**6, 3), 40e6, Estimate(150.0, 30.0), Estimate(95e-12, 20e-12))
"""By thirteen operators in a model and alone (``docs/log/states.md``)."""

OTHERS = CardCaches(H200.near, H200.kept_bytes)
CARDS: Mapping[str, CardCaches] = MappingProxyType({"NVIDIA H200": H200})

UNKNOWN_ENERGY = f"the energy that a state adds is known for {', '.join(CARDS)} only"


def caches_of(conditions: Conditions) -> CardCaches:
    return CARDS.get(conditions.device_product, OTHERS)


def limits_of(conditions: Conditions) -> NearLimits | None:
    """Return the limits by which calls are divided into states, None under conditions where they have none."""
    return caches_of(conditions).near if conditions.cache == STATE else None


@dataclass(frozen=True)
class Added:
    """The time (s) and the bytes from memory that a state adds to a call, and the key of the warm row."""

    time_s: float
    memory_bytes: float
    warm_key: str


def in_state(row: MeasurementRow, warm: MeasurementRow, case: Case) -> tuple[MeasurementRow, Added]:
    """Return a row in state with the energy that follows from the warm row, and with what the state adds.

    The errors of the energy are those of both rows, without those of the card's constants, which all calls share.
    """
    measured, base, caches = row.measurement, warm.measurement, caches_of(row.conditions)
    added = Added(measured.time_s - base.time_s, bytes_from_memory(case, caches), warm.key)

    def energy_j(warm_j: Estimate | None) -> Estimate | None:
        if warm_j is None or caches.waiting_w is None or caches.byte_j is None:
            return None
        found_j = warm_j.value + caches.waiting_w.value * added.time_s + caches.byte_j.value * added.memory_bytes
        time_error_j = caches.waiting_w.value * measured.time_standard_error_s
        # No call takes less than nothing.
        return Estimate(found_j, math.hypot(warm_j.standard_error, time_error_j)) if found_j > 0 else warm_j

    found = measured.with_figures(measured.time, energy_j(base.energy), energy_j(base.energy_at_reference))
    energy = found.energy
    power_w = None if energy is None else energy.divided_by(found.time)
    completed = replace(
        found,
        energy_missing_reason=None if energy is not None else base.energy_missing_reason or UNKNOWN_ENERGY,
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


def shared_error_j(calls: Iterable[tuple[int, Added]], conditions: Conditions) -> float:
    """Return the error in J that the card's constants give the energy of some calls together."""
    caches, calls = caches_of(conditions), list(calls)
    if caches.waiting_w is None or caches.byte_j is None:
        return 0.0
    time_s = math.fsum(number * added.time_s for number, added in calls)
    memory_bytes = math.fsum(number * added.memory_bytes for number, added in calls)
    return math.hypot(caches.waiting_w.standard_error * time_s, caches.byte_j.standard_error * memory_bytes)


def bytes_from_memory(case: Case, caches: CardCaches) -> float:
    """Return the bytes that a call in its state reads from memory, and in a warm loop from the cache."""
    state, specs, counted = parse_state(case.state), distinct_specs(case.operator.arguments), case.counted
    far_bytes = sum(spec.memory_bytes for spec, place in zip(specs, state.inputs, strict=True) if place is Place.FAR)
    if counted is None:
        return far_bytes
    if state.far_weights:
        far_bytes += counted.weight_bytes or 0
    # Of a table a call may read a few rows.
    outputs_bytes = sum(spec.memory_bytes for spec in distinct_specs([counted.outputs]))
    far_bytes = min(far_bytes, max(counted.memory_bytes - outputs_bytes, 0))
    kept_ratio = 2 - counted.memory_bytes / caches.kept_bytes
    return far_bytes * min(max(kept_ratio, 0.0), 1.0)
