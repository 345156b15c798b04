"""Rules that decide which remarks a comparison gets, with which figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from opcost.comparing.cache_chain_rows import is_corrected
from opcost.comparing.cache_chains import STREAM_BYTES
from opcost.comparing.comparison import Comparison
from opcost.comparing.kernel_times import KernelErrors
from opcost.comparing.remarks import Figure, Remark, RemarkKind
from opcost.estimates import total_if_known
from opcost.measuring.builds import are_different
from opcost.measuring.conditions import WARM, Circumstances, precision_dtype
from opcost.measuring.flags import CASTING_DOUBT, OTHER_WORK, Flag, Flags
from opcost.measuring.record import MeasurementRow, is_doubtful, names_of, quality_flags, ran_as_requested, time_of
from opcost.operators.cases import CAPTURED, LEAF
from opcost.operators.tuples import META
from opcost.summing.energy import EnergyBasis
from opcost.summing.index import Measurements
from opcost.summing.summation import ModelCost, Part

NOTICEABLE_RATIO = 0.001
"""The smallest share of the time that is remarked on. Throttling slows such a share by a few percent."""

PROTOCOL = ("warm_up_s", "loop_s", "relative_error")
"""Circumstances that are remarked on together as the protocol. The warm-up is not remarked on."""

KINDS_SHOWN = 4
"""The number of kinds of operators with the largest kernel errors in a remark."""


def remarks_on(found: Comparison, measurements: Measurements) -> tuple[Remark, ...]:
    """Return the remarks on a comparison.

    Args:
        found: the comparison.
        measurements: all rows of operators, including those that are not summed.
    """
    return (
        *_not_summed(found, measurements),
        *_values(found),
        *_chosen_runs(found),
        *_temperatures(found),
        *_circumstances(found),
        *_throttled(found),
        *_eager(found),
        *_whole(found),
        *flagged(found.full, found.cost),
        *_not_precise(found),
        *_cache_correction(found),
        *_unknown_flop(found),
        *_in_no_tuple(found),
    )


def remarks_on_kernels(errors: KernelErrors | None) -> tuple[Remark, ...]:
    """Return a remark on kernel times alone compared with those in the model, if they are known."""
    if errors is None:
        return ()
    figures: dict[str, Figure] = {
        "alone_ratio": 1 + errors.ratio,
        "absolute_ratio": errors.absolute_ratio,
        "kinds": errors.by_kind[:KINDS_SHOWN],
    }
    return (Remark(RemarkKind.KERNELS, figures),)


def _not_summed(found: Comparison, measurements: Measurements) -> Iterator[Remark]:
    """Remark on missing operators that have rows under other conditions or on other values."""
    missing: dict[tuple[str, ...], set[str]] = {}
    for count in found.cost.missing:
        for row in measurements.of_operator(count.operator.key):
            missing.setdefault(row.conditions.differences(found.conditions), set()).add(count.operator.key)
    for differences, keys in missing.items():
        if differences:
            yield Remark(RemarkKind.OTHER_CONDITIONS, {"operators": len(keys), "differences": differences})
        else:
            yield Remark(RemarkKind.ON_OTHER_VALUES_ONLY, {"operators": len(keys)})


def _values(found: Comparison) -> Iterator[Remark]:
    """Remark on operators that were measured on other values than the model's."""
    if found.cost.time_s is None:
        return
    if found.runs.input_data != CAPTURED:
        yield Remark(RemarkKind.NAMED_VALUES, {"input_data": found.runs.input_data})
    elif found.counts.device_type == META:
        yield Remark(RemarkKind.SHAPES_ONLY)
    elif time_ratio := _time_ratio(found.cost, lambda part: part.is_on_other_values):
        yield Remark(RemarkKind.OTHER_VALUES, {"time_ratio": time_ratio})


def _chosen_runs(found: Comparison) -> Iterator[Remark]:
    if found.cost.time_s is not None and found.runs.cache != WARM:
        yield Remark(RemarkKind.OTHER_CACHE, {"cache": found.runs.cache})
    if found.runs.counted == LEAF:
        yield Remark(RemarkKind.LEAF_MODULES)


def _temperatures(found: Comparison) -> Iterator[Remark]:
    """Remark on energies that are not normalised although some could be."""
    cost = found.cost
    normalised = EnergyBasis.NORMALISED
    known = [part.row for part in cost.parts if normalised.energy_of(part.row) is not None]
    if cost.basis is normalised or not known:
        return
    figures: dict[str, Figure] = {"reference_c": normalised.temperature_c}
    if normalised.energy_of(found.full) is None:
        yield Remark(RemarkKind.WHOLE_NOT_NORMALISED, figures)
    else:
        others = len({part.row.key for part in cost.parts}) - len({row.key for row in known})
        yield Remark(RemarkKind.ROWS_NOT_NORMALISED, {**figures, "rows": others})


def _circumstances(found: Comparison) -> Iterator[Remark]:
    """Remark on circumstances of summed rows that differ from the whole model's, with their shares of the time."""
    if found.cost.time_s is None:
        return
    shares: dict[tuple[str, Figure, Figure], float] = {}
    for part in found.cost.parts:
        ours, theirs = _circumstances_of(part.row), _circumstances_of(found.full)
        for name, value in ours.items():
            if value != theirs[name]:
                difference = (name, value, theirs[name])
                shares[difference] = shares.get(difference, 0.0) + part.time_s / found.cost.time_s.value
    for (name, of_sum, of_whole), share in shares.items():
        figures: dict[str, Figure] = {"name": name, "of_sum": of_sum, "of_whole": of_whole, "time_ratio": share}
        yield Remark(RemarkKind.OTHER_CIRCUMSTANCE, figures)


def _circumstances_of(row: MeasurementRow) -> dict[str, Figure]:
    values = {field.name: getattr(row.circumstances, field.name) for field in fields(Circumstances)}
    own = {name: value for name, value in values.items() if name not in PROTOCOL}
    measured = row.measurement
    return {**own, "protocol": row.circumstances.protocol, "meter": measured.meter, "executed_as": measured.executed_as}


def throttled(full: MeasurementRow | None, cost: ModelCost) -> Iterator[Remark]:
    """Remark on throttling by the power limit, with its shares of the summed time and of the whole model's."""
    ours = theirs = None
    if cost.time_s is not None:
        slowed_s = sum(part.time_s * (part.row.measurement.power_capped_ratio or 0.0) for part in cost.parts)
        ours = slowed_s / cost.time_s.value
    if full is not None:
        theirs = full.measurement.power_capped_ratio
    if max(ours or 0.0, theirs or 0.0) >= NOTICEABLE_RATIO:
        yield Remark(RemarkKind.THROTTLED, {"time_ratio": ours, "whole_time_ratio": theirs})


def _throttled(found: Comparison) -> Iterator[Remark]:
    """Remark on throttling, and on lower clocks of the whole that the power limit's part of the gap does not show."""
    if found.cost.time_s is None:
        return
    remarks = tuple(throttled(found.full, found.cost))
    yield from remarks
    limit = found.gap.power_limit
    is_explained = limit is not None and limit.time_s.value > 0
    is_whole_slowed = bool(remarks and found.full.measurement.power_capped_ratio)
    if is_whole_slowed and not is_explained and (longer := _longer_at_lower_clocks_ratio(found)):
        yield Remark(RemarkKind.LOWER_CLOCKS, {"longer_ratio": longer})


def _longer_at_lower_clocks_ratio(found: Comparison) -> float | None:
    """Return the share of the whole model's time that its lower clocks cost, if its time is inverse to clocks."""
    clock_hz = found.full.measurement.sm_clock_hz
    cycles = total_if_known(
        None if part.row.measurement.sm_clock_hz is None else part.time_s * part.row.measurement.sm_clock_hz
        for part in found.cost.parts
    )
    if clock_hz is None or not cycles or found.cost.time_s is None:
        return None
    return max(0.0, 1 - clock_hz * found.cost.time_s.value / cycles)


def _eager(found: Comparison) -> Iterator[Remark]:
    """Remark on whether an eager run of the summed operators is bound by launches or by the device."""
    eager = found.eager
    if eager is None:
        return
    figures: dict[str, Figure] = {
        "launch_time_s": eager.launch_time_s,
        "device_time_s": eager.device_time_s,
        "of_whole_ratio": eager.time_s / time_of(found.full).value,
    }
    yield Remark(RemarkKind.LAUNCH_BOUND if eager.is_launch_bound else RemarkKind.DEVICE_BOUND, figures)
    if eager.assumed_ratio:
        yield Remark(RemarkKind.ASSUMED_LAUNCHES, {"launch_time_ratio": eager.assumed_ratio})


def _whole(found: Comparison) -> Iterator[Remark]:
    """Remark on builds of the whole that differ in time, and on one that a CUDA graph captures in pieces, or not."""
    whole = found.full.measurement
    if are_different(whole.builds_time_range_ratio):
        figures: dict[str, Figure] = {"builds": whole.builds, "range_ratio": whole.builds_time_range_ratio}
        yield Remark(RemarkKind.BUILDS_DIFFER, figures)
    if not ran_as_requested(found.full):
        yield Remark(RemarkKind.EAGER_WHOLE)
    if whole.waits is not None:
        yield Remark(RemarkKind.WAITS, {"waits": whole.waits})


def flagged(full: MeasurementRow | None, cost: ModelCost) -> Iterator[Remark]:
    """Remark on a flagged whole, and on operators that are flagged or do other work than the model's."""
    if full is not None and is_doubtful(full):
        yield Remark(RemarkKind.FLAGGED_WHOLE, {"flags": names_of(full, quality_flags(full.measurement))})
    for kind, names in (
        (RemarkKind.FLAGGED_OPERATORS, lambda row: names_of(row, _among(CASTING_DOUBT, row))),
        (RemarkKind.OTHER_WORK, lambda row: tuple(flag.value for flag in _among(OTHER_WORK, row))),
    ):
        yield from _with_names(cost, kind, names)


def _with_names(
    cost: ModelCost, kind: RemarkKind, names: Callable[[MeasurementRow], tuple[str, ...]]
) -> Iterator[Remark]:
    first = next((part.row for part in cost.parts if names(part.row)), None)
    if first is not None:
        time_ratio = _time_ratio(cost, lambda part: bool(names(part.row)))
        yield Remark(kind, {"time_ratio": time_ratio, "operator": first.operator, "flags": names(first)})


def _among(flags: frozenset[Flag], row: MeasurementRow) -> Flags:
    return tuple(flag for flag in row.measurement.flags if flag in flags)


def _not_precise(found: Comparison) -> Iterator[Remark]:
    """Remark on measurements that did not reach their target precision."""
    time_ratio = _time_ratio(found.cost, lambda part: Flag.IMPRECISE in part.row.measurement.flags)
    if time_ratio >= NOTICEABLE_RATIO:
        yield Remark(RemarkKind.NOT_PRECISE, {"time_ratio": time_ratio})


def _cache_correction(found: Comparison) -> Iterator[Remark]:
    """Remark on a missing cache correction, or on one that was measured in another dtype or on other kinds."""
    precision, dtype = found.conditions.precision, found.gap.correction_dtype
    moved_bytes = found.counts.total_memory_bytes
    if dtype is not None:
        if dtype != precision_dtype(precision):
            yield Remark(RemarkKind.CORRECTED_BY_OTHER_DTYPE, {"dtype": dtype, "precision": precision})
        if kinds := found.gap.missing_kinds:
            yield Remark(RemarkKind.CORRECTED_BY_OTHER_KINDS, {"kinds": ", ".join(kinds)})
    elif not is_corrected(found.conditions):
        return
    elif moved_bytes <= STREAM_BYTES:
        yield Remark(RemarkKind.UNCORRECTED_SMALL, {"moved_bytes": moved_bytes, "stream_bytes": STREAM_BYTES})
    else:
        yield Remark(RemarkKind.UNCORRECTED_UNKNOWN)


def _unknown_flop(found: Comparison) -> Iterator[Remark]:
    """Remark on operations without a formula, with the share of the summed time of operators of unknown FLOPs."""
    reason = found.cost.flop_missing_reason
    if reason is not None:
        unknown = {count.operator for count in found.cost.summed if count.flop is None}
        time_ratio = _time_ratio(found.cost, lambda part: part.case.operator in unknown)
        yield Remark(RemarkKind.UNKNOWN_FLOP, {"reason": reason, "time_ratio": time_ratio})


def _in_no_tuple(found: Comparison) -> Iterator[Remark]:
    """Remark on a share of the model that is in no operator, summed or left out."""
    counts = (*found.counts.counts, *found.left_out.summed, *found.left_out.missing)
    missing_ratio = replace(found.counts, counts=counts).missing_ratio
    if missing_ratio is not None and found.counts.outside:
        yield Remark(RemarkKind.IN_NO_TUPLE, {"missing_ratio": missing_ratio, "operations": found.counts.outside})


def _time_ratio(cost: ModelCost, is_meant: Callable[[Part], bool]) -> float:
    """Return the share of the summed time that some parts have; 0 if nothing is summed."""
    if cost.time_s is None:
        return 0.0
    return math.fsum(part.time_s for part in cost.parts if is_meant(part)) / cost.time_s.value
