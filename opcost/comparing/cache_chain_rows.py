"""Rows of cache chains: the additional cost of a call in a chain, from the measurements of the chain and its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from opcost.estimates import Estimate, standard_error_of, sum_of_independent, value_of
from opcost.measuring.comparison_record import ChainRow, Excess
from opcost.measuring.conditions import GRAPH, WARM, Conditions, precision_dtype
from opcost.measuring.flags import joined_notes, meanings
from opcost.measuring.protocol import RETRIES
from opcost.measuring.record import (
    IMPOSSIBLE_POWER,
    MeasurementRow,
    has_impossible_power,
    is_flagged,
    may_be_throttled,
    time_of,
)
from opcost.operators.cache_chains import (
    BLOCKS,
    KINDS,
    SIDES,
    SIXTEEN_BITS,
    STREAM_ELEMENTS,
    Chain,
    chains_of,
    layer_chains,
    streams_of,
)
from opcost.operators.tuples import FLOAT32
from opcost.summing.summation import common_basis, temperature_error_j


def pooled(excesses: Sequence[Excess], pool: Callable[[Sequence[Estimate]], Estimate]) -> Excess:
    """Pool times and energies; the energy is None if any is."""
    energies_j = [excess.energy_j for excess in excesses if excess.energy_j is not None]
    is_known = len(energies_j) == len(excesses)
    return Excess(pool([excess.time_s for excess in excesses]), pool(energies_j) if is_known else None)


def excess_of_call(
    whole: MeasurementRow, before: MeasurementRow, own: Sequence[MeasurementRow], blocks: int = BLOCKS
) -> Excess:
    """Return the mean additional cost of a call in a chain over a call in a loop of itself.

    Other calls in the chain cancel, because a chain of them alone is subtracted (``before``, see ``Chain.subtracted``).
    ``own`` has the row of each operator of a block that is not in it; equal operators have equal rows.
    """
    calls = blocks * len(own)
    parts = [(1, before), *((blocks * own.count(row), row) for row in dict.fromkeys(own))]
    basis = common_basis([whole, before, *own])
    time_s = time_of(whole).less(sum_of_independent(time_of(row).times(n) for n, row in parts))
    whole_j = basis.energy_of(whole)
    energies_j = [energy.times(n) for n, row in parts if (energy := basis.energy_of(row)) is not None]
    if whole_j is None or len(energies_j) < len(parts):
        return Excess(time_s.times(1 / calls), None)
    kelvins_j = (basis.kelvins_j(number, row, whole.measurement.temperature_c) for number, row in parts)
    energy_j = whole_j.less(sum_of_independent(energies_j)).with_error(temperature_error_j(kelvins_j))
    return Excess(time_s, energy_j).times(1 / calls)


def chain_row(chain: Chain, whole: MeasurementRow, found: Excess) -> ChainRow:
    """Return the row of a measured chain."""
    notes = joined_notes(meanings(whole.measurement.flags), whole.measurement.notes)
    row = refused_row(chain, notes, whole.conditions, whole.measurement.ended_at)
    return replace(
        row,
        time_s=value_of(found.time_s),
        time_standard_error_s=standard_error_of(found.time_s),
        energy_j=value_of(found.energy_j),
        energy_standard_error_j=standard_error_of(found.energy_j),
        device_uuid=whole.circumstances.device_uuid,
    )


def refused_row(chain: Chain, notes: str, conditions: Conditions, at: str) -> ChainRow:
    """Return the row of a chain that could not be measured, or whose measurement is refused: ``notes`` say why."""
    unknown = dict.fromkeys(("time_s", "time_standard_error_s", "energy_j", "energy_standard_error_j", "device_uuid"))
    return ChainRow(
        kind=chain.kind,
        memory_bytes=chain.memory_bytes,
        calls=chain.calls,
        **unknown,
        measured_at=at,
        notes=notes,
        design=chain.design,
        conditions=conditions,
    )


def refusal(row: MeasurementRow) -> str:
    """Return the reason why a row cannot be used for cache corrections; empty if it can."""
    measured = row.measurement
    if measured.executed_as != GRAPH:
        return f"{row.operator} did not run in a CUDA graph: {measured.notes}"
    impossible = IMPOSSIBLE_POWER if has_impossible_power(row) else ""
    is_refused = is_flagged(measured) or may_be_throttled(measured) or impossible
    return f"{row.operator}: {joined_notes(meanings(measured.flags), impossible, measured.notes)}" if is_refused else ""


def is_corrected(conditions: Conditions) -> bool:
    """Return whether sums under these conditions need a cache correction: in graphs, with warm caches.

    Eager runs are launch-bound so often that cache effects are negligible.
    """
    return conditions.execution == GRAPH and conditions.cache == WARM


def missing_chains(rows: Iterable[ChainRow], dtype: str = FLOAT32) -> list[Chain]:
    """Return the chains in a dtype, in this order, that were neither measured nor refused ``RETRIES.runs`` times."""
    attempts = Counter(((row.kind, row.memory_bytes, row.design), row.time_s is None) for row in rows)
    done = {key for (key, was_refused), times in attempts.items() if times >= RETRIES.runs or not was_refused}
    streams = ((side, stream) for side in SIDES for stream in streams_of(side))
    chains = [chain for side, stream in streams for chain in chains_of(side, BLOCKS, stream, dtype)]
    chains += layer_chains(dtype)
    return [chain for chain in chains if (chain.kind, chain.memory_bytes, chain.design) not in done]


def missing_sides(rows: Iterable[ChainRow], dtype: str = FLOAT32) -> list[int]:
    """Return the sides of missing chains on images in a dtype behind the full stream."""
    on_images = [chain for chain in missing_chains(rows, dtype) if chain.kind in KINDS]
    return list(dict.fromkeys(chain.side for chain in on_images if chain.stream_elements == STREAM_ELEMENTS))


def of_the_same_card(rows: Iterable[ChainRow], conditions: Conditions) -> list[ChainRow]:
    """Return the rows of the same card with the same software."""
    versions = ("driver_version", "torch_version", "cuda_version", "cudnn_version")
    card = attrgetter("device_product", *versions, "execution")
    return [row for row in rows if card(row.conditions) == card(conditions)]


def chain_dtype(precision: str) -> str:
    """Return the dtype of the chains by which sums in a precision are corrected.

    Chains in bfloat16 stand for all 16-bit dtypes: what a call finds in caches depends on its bytes.
    """
    return FLOAT32 if precision_dtype(precision) == FLOAT32 else SIXTEEN_BITS
