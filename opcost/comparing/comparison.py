"""The sum of the parts beside the measured whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from opcost.comparing.cache_chains import STREAM_BYTES, ChainRow, is_corrected
from opcost.comparing.cache_corrections import Corrections, corrections_under
from opcost.comparing.eager_regime import EagerCost, eager_cost
from opcost.comparing.gap import Constants, Gap, gap
from opcost.estimates import Estimate, total_if_known
from opcost.measuring.conditions import WARM, Circumstances, Conditions
from opcost.measuring.record import (
    IMPRECISE,
    SLOWED,
    MeasurementRow,
    doubts_of,
    energy_of,
    is_doubtful,
    joined_notes,
    slope_error_j,
    time_of,
)
from opcost.operators.counts import OperatorCount, OperatorCounts, is_leaf, memory_bytes_of
from opcost.operators.subjects import ALL, CAPTURED, LEAF
from opcost.operators.tuples import META
from opcost.prediction.rates import MINIMUM_KNOWN, CostModel, fitted, known_costs
from opcost.summing.index import Measurements
from opcost.summing.summation import ModelCost, sum_beside, sum_operators
from opcost.units import megabytes, milliseconds, percent, ratio

MOSTLY_KNOWN_RATIO = 0.5
"""Of the bytes that operators move: where less is measured, rates fitted to that tell nothing of the rest."""

NOTICEABLE_RATIO = 0.001
"""A share of the time below which nothing is said: a thousandth of it is slower by some percent."""


@dataclass(frozen=True)
class OperatorRuns:
    """Which runs of operators are summed: on which values, one of ``INPUT_DATA``, finding what in the cache.

    ``counted``, one of ``COUNTED``, says which of them: those of leaf modules are what hooks on modules see.
    """

    input_data: str = CAPTURED
    cache: str = WARM
    counted: str = ALL


USUAL_RUNS = OperatorRuns()


@dataclass(frozen=True)
class KindCost:
    """What all summed calls of one kind of operator cost in a model; energy as the sum's, None where one is unknown."""

    operator: str
    time_s: float
    energy_j: float | None


@dataclass(frozen=True)
class Comparison:
    """One model under one set of conditions: its summed operators, the measured whole, and their ratios.

    ``conditions`` are those of the operators: their ``cache`` may be another than the whole model's. ``gap`` names what
    makes the whole; ``eager`` is what an eager run of the summed operators should cost, None where that is not known.
    Ratios are sum / whole; their errors are one standard error. Both energies are those at the reference temperature
    where all measurements have them (``cost.is_at_reference``), else as measured. ``remarks`` says, one line each, what
    the reader must know: rows that exist but under other conditions, circumstances that differ and for what share of
    the summed time. ``left_out`` is the cost of what is not summed on purpose, None where that is not known.
    """

    conditions: Conditions
    full: MeasurementRow
    full_energy_j: Estimate | None
    cost: ModelCost
    gap: Gap
    eager: EagerCost | None
    time_ratio: Estimate | None
    energy_ratio: Estimate | None
    remarks: tuple[str, ...]
    left_out: ModelCost | None = None


def kinds_of(cost: ModelCost) -> tuple[KindCost, ...]:
    """Return what each kind of operator costs in a sum, the one that takes most time first."""
    kinds: dict[str, KindCost] = {}
    for part in cost.parts:
        name = part.subject.operator.short_name
        known = kinds.get(name, KindCost(name, 0.0, 0.0))
        energy_j = total_if_known([known.energy_j, part.energy_j(cost.is_at_reference)])
        kinds[name] = KindCost(name, known.time_s + part.time_s, energy_j)
    return tuple(sorted(kinds.values(), key=lambda kind: -kind.time_s))


def compare(  # noqa: PLR0913, PLR0917
    counts: OperatorCounts,
    full: MeasurementRow,
    measurements: Measurements,
    runs: OperatorRuns = USUAL_RUNS,
    dropped: OperatorCounts | None = None,
    chains: Iterable[ChainRow] = (),
) -> Comparison:
    """Compare a model's summed operators with the whole, under the conditions of the whole.

    Args:
        counts: its (filtered) operator counts.
        full: the measurement of the whole model.
        measurements: of operators, under any conditions; those of the whole's own board come first.
        runs: which runs of operators are summed; the whole always runs as it is.
        dropped: the operators that the whitelist does not keep, None where they are not known.
        chains: what the cache correction is known from.
    """
    measurements = measurements.preferring(full.circumstances.device_uuid)
    conditions = replace(full.conditions, cache=runs.cache)
    if runs.counted == LEAF:
        counts, dropped = _leaves_and_others(counts, dropped)
    cost = sum_beside(full, counts, measurements, conditions, runs.input_data)
    left_out = None
    if dropped is not None:
        left_out = sum_operators(dropped, measurements, conditions, runs.input_data, cost.is_at_reference)
    everything = [*counts.counts, *(dropped.counts if dropped else ())]
    energy_j = energy_of(full, cost.is_at_reference)
    eager = eager_cost(cost, measurements)
    corrections, uncorrected = _corrections(counts, chains, conditions)
    constants = Constants(
        rates=_rates(everything, [cost, *([left_out] if left_out else [])], measurements, conditions),
        corrections=corrections,
    )
    return Comparison(
        conditions=conditions,
        full=full,
        full_energy_j=energy_j,
        cost=cost,
        gap=gap(cost, left_out, full, energy_j, constants),
        eager=eager,
        time_ratio=cost.time_s.divided_by(time_of(full)) if cost.time_s else None,
        energy_ratio=_energy_ratio(cost, full, energy_j),
        remarks=(
            *_under_other_conditions(cost, conditions, measurements),
            *_other_values(cost, counts, runs.input_data),
            *_other_caches(cost, runs.cache),
            *_leaves_only(runs),
            *_temperatures(cost, full),
            *_circumstances(cost, full),
            *_slowed(cost, full),
            *_eager_regime(eager, cost, full),
            *_doubts(cost, full),
            *_imprecise(cost),
            *uncorrected,
        ),
        left_out=left_out,
    )


def _rates(
    counts: Sequence[OperatorCount], sums: Sequence[ModelCost], measurements: Measurements, conditions: Conditions
) -> CostModel | None:
    """Return rates fitted to operators, for those of them that these sums lack; None where they are not wanted, or too
    little is measured.
    """
    if not any(one.missing for one in sums):
        return None
    known = known_costs(counts, measurements, conditions, sums[0].is_at_reference)
    measured_bytes = sum(memory_bytes_of(one.summed) for one in sums)
    is_enough = len(known) >= MINIMUM_KNOWN and measured_bytes >= MOSTLY_KNOWN_RATIO * memory_bytes_of(counts)
    return fitted(known) if is_enough else None


def _corrections(
    counts: OperatorCounts, chains: Iterable[ChainRow], conditions: Conditions
) -> tuple[Corrections | None, tuple[str, ...]]:
    """Return what calls take longer in a model than alone, or None and why nothing is corrected.

    A model that moves less than the stream behind which that is measured may find in the caches what chains do not.
    """
    if not is_corrected(conditions):
        return None, ()
    if counts.total_memory_bytes <= STREAM_BYTES:
        moved, stream = megabytes(counts.total_memory_bytes), megabytes(STREAM_BYTES)
        return None, (f"not corrected for what caches hold: a run moves {moved}; below {stream} much may stay in them",)
    found = corrections_under(chains, conditions)
    unknown = "not corrected for what caches hold: not known of this card and its software; block 2 finds it out"
    return found, (unknown,) * (found is None)


def _leaves_and_others(
    counts: OperatorCounts, dropped: OperatorCounts | None
) -> tuple[OperatorCounts, OperatorCounts | None]:
    """Return what hooks on leaf modules would see, and all that is left out then."""
    leaves = [count for count in counts.counts if is_leaf(count.operator, counts.composites)]
    others = [count for count in counts.counts if count not in leaves]
    left_out = None if dropped is None else replace(dropped, counts=(*dropped.counts, *others))
    return replace(counts, counts=tuple(leaves)), left_out


def _leaves_only(runs: OperatorRuns) -> tuple[str, ...]:
    return ("the sum is of leaf modules only, as hooks on modules see them",) * (runs.counted == LEAF)


def _under_other_conditions(cost: ModelCost, conditions: Conditions, measurements: Measurements) -> tuple[str, ...]:
    """Say of missing tuples which of their rows were not summed because a condition or the values differ."""
    differences: dict[str, set[str]] = {}
    for count in cost.missing:
        for row in measurements.of_operator(count.operator.key):
            text = "; ".join(row.conditions.differences(conditions)) or "on other values"
            differences.setdefault(text, set()).add(count.operator.key)
    return tuple(
        f"{len(keys)} missing operators are measured under other conditions and not summed ({text})"
        for text, keys in differences.items()
    )


def _other_values(cost: ModelCost, counts: OperatorCounts, input_data: str) -> tuple[str, ...]:
    """Say for what share of the summed time operators were measured on other values than those in the model."""
    if cost.time_s is None:
        return ()
    if input_data != CAPTURED:
        return (f"the sum is of operators on {input_data} values, the whole model ran on its own",)
    if counts.device_type == META:
        return ("counted on shapes only, so the sum is of operators on normal values",)
    share = sum(part.time_s for part in cost.parts if part.is_on_other_values) / cost.time_s.value
    return (f"{share:.1%} of the summed time is of operators measured on other values than the model's",) * (share > 0)


def _other_caches(cost: ModelCost, cache: str) -> tuple[str, ...]:
    """Say that operators found something else in the cache than in a plain loop."""
    is_other = cost.time_s is not None and cache != WARM
    return (f"the sum is of operators run {cache}, the whole model ran as it is",) * is_other


def _circumstances(cost: ModelCost, full: MeasurementRow) -> tuple[str, ...]:
    """Say which circumstances of the summed rows differ from the whole's, with their share of the summed time."""
    if cost.time_s is None:
        return ()
    shares: dict[str, float] = {}
    for part in cost.parts:
        share = part.time_s / cost.time_s.value
        for difference in _circumstance_differences(part.row, full):
            shares[difference] = shares.get(difference, 0.0) + share
    return tuple(f"{share:.1%} of the summed time under another {text}" for text, share in shares.items())


def _energy_ratio(cost: ModelCost, full: MeasurementRow, energy_j: Estimate | None) -> Estimate | None:
    """Return sum over whole; at the reference temperature its error holds what is not known of slopes."""
    if cost.energy_j is None or energy_j is None:
        return None
    sum_j = cost.energy_j
    if cost.is_at_reference:
        sum_j = sum_j.with_error(slope_error_j(((part.occurrences, part.row) for part in cost.parts), full))
    return sum_j.divided_by(energy_j)


def _temperatures(cost: ModelCost, full: MeasurementRow) -> tuple[str, ...]:
    """Say why energies are as measured where some are known at the reference temperature."""
    known = [part.row for part in cost.parts if energy_of(part.row, at_reference=True) is not None]
    if cost.is_at_reference or not known:
        return ()
    if energy_of(full, at_reference=True) is None:
        return ("energies are as measured, not at one temperature: that of the whole model is not known there",)
    lacking = len({part.row.key for part in cost.parts}) - len({row.key for row in known})
    return (f"energies are as measured, not at one temperature: {lacking} rows are not known there",)


def _doubts(cost: ModelCost, full: MeasurementRow) -> tuple[str, ...]:
    """Say of which measurements something is amiss: chunks of uneven length, meters that disagree."""
    doubtful = [part for part in cost.parts if is_doubtful(part.row.measurement)]
    remarks = []
    if is_doubtful(full.measurement):
        remarks.append(f"the whole model's measurement is doubtful: {joined_notes(*doubts_of(full.measurement))}")
    if doubtful and cost.time_s is not None:
        share = sum(part.time_s for part in doubtful) / cost.time_s.value
        first = doubtful[0].row
        remarks.append(
            f"{share:.1%} of the summed time is of doubtful measurements, such as {first.operator}: "
            f"{joined_notes(*doubts_of(first.measurement))}; a later run measures them again"
        )
    return tuple(remarks)


def _imprecise(cost: ModelCost) -> tuple[str, ...]:
    """Say for what share of the summed time loops ended before they were as precise as asked."""
    if cost.time_s is None:
        return ()
    share = sum(part.time_s for part in cost.parts if IMPRECISE in part.row.measurement.notes) / cost.time_s.value
    if share < NOTICEABLE_RATIO:
        return ()
    return (f"{share:.1%} of the summed time is less precise than it was asked for",)


def _slowed(cost: ModelCost, full: MeasurementRow) -> tuple[str, ...]:
    """Say for what shares of the summed time and of the whole clocks were held down by the power limit."""
    if cost.time_s is None:
        return ()
    slowed_s = sum(part.time_s * (part.row.measurement.power_capped_ratio or 0.0) for part in cost.parts)
    ours, theirs = slowed_s / cost.time_s.value, full.measurement.power_capped_ratio
    if max(ours, theirs or 0.0) < NOTICEABLE_RATIO:
        return ()
    whole = "unknown for the whole model" if theirs is None else f"the whole model for {theirs:.1%} of its own"
    longer = _longer_at_lower_clocks_ratio(cost, full) if theirs else None
    at_most = "" if not longer else f", and at its lower clocks it is at most {percent(longer)} longer"
    return (f"{SLOWED}: operators for {ours:.1%} of the summed time, {whole}{at_most}",)


def _longer_at_lower_clocks_ratio(cost: ModelCost, full: MeasurementRow) -> float | None:
    """Return by what share of itself a whole is longer than at its operators' clocks, if all of it follows clocks."""
    clock_hz = full.measurement.sm_clock_hz
    cycles = total_if_known(
        None if part.row.measurement.sm_clock_hz is None else part.time_s * part.row.measurement.sm_clock_hz
        for part in cost.parts
    )
    if clock_hz is None or not cycles or cost.time_s is None:
        return None
    return max(0.0, 1 - clock_hz * cost.time_s.value / cycles)


def _eager_regime(eager: EagerCost | None, cost: ModelCost, full: MeasurementRow) -> tuple[str, ...]:
    """Say whether the device or the host decides how long an eager run of the summed operators takes."""
    if eager is None:
        return ()
    who = "the host, which launches" if eager.is_launch_bound else "the device"
    assumed = f", {percent(eager.assumed_ratio)} of them assumed" if eager.assumed_ratio else ""
    without = f", {len(cost.missing)} operators missing" if cost.missing else ""
    return (
        f"an eager run of the summed operators waits for {who}: {milliseconds(eager.device_time_s)} on the device, "
        f"{milliseconds(eager.launch_time_s)} of launches{assumed}; the longer is "
        f"{ratio(eager.time_s / time_of(full).value)} of the whole{without}",
    )


def _circumstance_differences(row: MeasurementRow, full: MeasurementRow) -> list[str]:
    pairs = {
        field.name: (getattr(row.circumstances, field.name), getattr(full.circumstances, field.name))
        for field in fields(Circumstances)
        if field.name not in ("warm_up_s", "loop_s", "relative_error")
    }
    pairs["protocol"] = (row.circumstances.protocol, full.circumstances.protocol)
    pairs["meter"] = (row.measurement.meter, full.measurement.meter)
    pairs["executed_as"] = (row.measurement.executed_as, full.measurement.executed_as)
    return [f"{name}: {ours} (whole model: {theirs})" for name, (ours, theirs) in pairs.items() if ours != theirs]


CONDITIONS_TOLD = ("device_product", "execution", "cache", "precision", "mode", "torch_version", "driver_version")
"""By which comparisons of one model are told apart."""


def labels_of(name: str, conditions: Sequence[Conditions]) -> list[str]:
    """Return a model's name for each set of conditions that it was compared under, with those that differ."""
    differing = [field for field in CONDITIONS_TOLD if len({getattr(one, field) for one in conditions}) > 1]
    told = (", ".join(str(getattr(one, field)) for field in differing) for one in conditions)
    return [f"{name} ({text})" if text else name for text in told]
