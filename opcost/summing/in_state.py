"""Costs of calls in the state of their model: measured times, and the energy that follows from the warm row.

A loop after evictions gives the time of a call, but not its energy: of short calls that is lost in the evictions'. The
energy in state is that of the warm row, the power of a waiting device for the time that the state adds, and the energy
of the bytes that come from memory because of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from opcost.estimates import Estimate, sum_of_independent
from opcost.measuring.conditions import STATE, Conditions
from opcost.measuring.flags import flags_of, joined_notes
from opcost.measuring.record import Measurement, MeasurementRow
from opcost.operators.counts import Case
from opcost.operators.reuse import NearLimits, parse_state
from opcost.operators.tuples import distinct_specs


@dataclass(frozen=True)
class CardCaches:
    """How a card's caches act on calls.

    Data are near up to a reuse distance of ``near.data_bytes``; a loop keeps ``kept_bytes`` in the cache, half of twice
    as many, and nothing of more. ``waiting_w`` is the power of a device at full clocks that waits for data or code,
    ``byte_j`` the energy of a byte from memory.
    """

    near: NearLimits
    kept_bytes: float
    waiting_w: Estimate
    byte_j: Estimate


H200 = CardCaches(NearLimits(16 * 10**6, 8), 40e6, Estimate(150.0, 30.0), Estimate(95e-12, 20e-12))
"""By thirteen operators in a model and alone (``docs/log/states.md``)."""

CARDS: Mapping[str, CardCaches] = MappingProxyType({"NVIDIA H200": H200})


def caches_of(conditions: Conditions) -> CardCaches:
    """Return the caches of a card; those of an H200 for unknown ones."""
    return CARDS.get(conditions.device_product, H200)


def limits_of(conditions: Conditions) -> NearLimits | None:
    """Return the limits by which calls are divided into states, None under conditions where they have none."""
    return caches_of(conditions).near if conditions.cache == STATE else None


def with_energy(row: MeasurementRow, warm: MeasurementRow | None, case: Case) -> MeasurementRow:
    """Return a row in state with the energy that follows from the warm row, if there is one."""
    if warm is None or not case.state:
        return row
    measured, caches = row.measurement, caches_of(row.conditions)
    added_s = measured.time.less(warm.measurement.time)
    added_j = [caches.waiting_w.multiplied_by(added_s), caches.byte_j.times(bytes_from_memory(case, caches))]

    def in_state(warm_j: Estimate | None) -> Estimate | None:
        found = None if warm_j is None else sum_of_independent([warm_j, *added_j])
        return found if found is not None and found.value > 0 else None

    found = measured.with_figures(
        measured.time, in_state(warm.measurement.energy), in_state(warm.measurement.energy_at_reference)
    )
    return replace(row, measurement=_with_power(found, warm.measurement))


def bytes_from_memory(case: Case, caches: CardCaches) -> float:
    """Return the bytes that a call in its state reads from memory, and in a warm loop from the cache."""
    state, specs = parse_state(case.state), distinct_specs(case.operator.arguments)
    inputs_bytes = sum(spec.memory_bytes for spec in specs)
    far_bytes = sum(spec.memory_bytes for spec, is_far in zip(specs, state.far_inputs, strict=True) if is_far)
    moved_bytes = inputs_bytes if case.counted is None else case.counted.memory_bytes
    if state.far_weights and case.counted is not None:
        outputs_bytes = sum(spec.memory_bytes for spec in distinct_specs([case.counted.outputs]))
        far_bytes += max(moved_bytes - inputs_bytes - outputs_bytes, 0)
    kept_ratio = 2 - moved_bytes / caches.kept_bytes
    return far_bytes * min(max(kept_ratio, 0.0), 1.0)


def _with_power(measured: Measurement, warm: Measurement) -> Measurement:
    energy_j = measured.energy
    power_w = None if energy_j is None else energy_j.divided_by(measured.time)
    return replace(
        measured,
        energy_missing_reason=warm.energy_missing_reason if energy_j is None else None,
        power_w=None if power_w is None else power_w.value,
        power_standard_error_w=None if power_w is None else power_w.standard_error,
        power_readings=warm.power_readings,
        meter=warm.meter,
        temperature_c=warm.temperature_c,
        power_capped_ratio=warm.power_capped_ratio,
        flags=flags_of([*measured.flags, *warm.flags]),
        notes=joined_notes(measured.notes, warm.notes),
    )
