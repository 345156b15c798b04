"""Rows of cache chains: the additional cost of a call in a chain, from the measurements of the chain and its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Annotated

from opcost.columns import ABOVE_0, COUNT_FROM_1, MOMENT, SIGNED, Column, Columns
from opcost.comparing.cache_chains import (
    BLOCKS,
    KINDS,
    SIDES,
    STREAM_ELEMENTS,
    Chain,
    chains_of,
    layer_chains,
    streams_of,
)
from opcost.estimates import Estimate, estimate_of, standard_error_of, sum_of_independent, value_of
from opcost.measuring.conditions import DEVICE_UUID, GRAPH, WARM, Conditions
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
from opcost.operators.tuples import FLOAT32
from opcost.summing.summation import common_basis


@dataclass(frozen=True)
class Excess:
    """Additional time in s and energy in J; the energy is None if unknown."""

    time_s: Estimate
    energy_j: Estimate | None

    def times(self, count: float) -> Excess:
        return Excess(self.time_s.times(count), None if self.energy_j is None else self.energy_j.times(count))


def pooled(excesses: Sequence[Excess], pool: Callable[[Sequence[Estimate]], Estimate]) -> Excess:
    """Pool times and energies; the energy is None if any is."""
    energies_j = [excess.energy_j for excess in excesses if excess.energy_j is not None]
    is_known = len(energies_j) == len(excesses)
    return Excess(pool([excess.time_s for excess in excesses]), pool(energies_j) if is_known else None)


@dataclass(frozen=True)
class ChainRow(Columns):
    """Additional cost of a call in a chain over a call in a loop of itself, for one kind and size of operator.

    If the time is empty, the measurement was refused; ``notes`` holds the reason.
    """

    kind: Annotated[str, Column("kind of operator")]
    memory_bytes: Annotated[int, Column("bytes that a call reads and writes, without weights", COUNT_FROM_1)]
    calls: Annotated[int, Column("calls of this kind in the chain", COUNT_FROM_1)]
    time_s: Annotated[float | None, Column("additional time of one call, may be below 0; empty if refused", SIGNED)]
    time_standard_error_s: Annotated[float | None, Column("standard error of the time", ABOVE_0)]
    energy_j: Annotated[
        float | None, Column("additional energy of one call, may be below 0; at 50 °C if all can be normalised", SIGNED)
    ]
    energy_standard_error_j: Annotated[float | None, Column("standard error of the energy", ABOVE_0)]
    measured_at: Annotated[str, Column("end of the chain's loop", MOMENT)]
    device_uuid: Annotated[str | None, DEVICE_UUID]
    notes: Annotated[str, Column("flags and notes of the chain's measurement, or the reason why it was refused")]
    design: Annotated[str, Column("version and number of blocks of the chains; a shorter stream; another dtype")]
    conditions: Conditions

    @property
    def excess(self) -> Excess | None:
        """Time and energy with their errors; None if refused."""
        time_s = estimate_of(self.time_s, self.time_standard_error_s)
        energy_j = estimate_of(self.energy_j, self.energy_standard_error_j)
        return None if time_s is None else Excess(time_s, energy_j)


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
    energy_j = whole_j.less(sum_of_independent(energies_j)).with_error(basis.coefficient_error_j(parts, whole))
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
    card = attrgetter("device_product", *versions, "mode", "execution")
    return [row for row in rows if card(row.conditions) == card(conditions)]
