"""Comparisons of a sum with its measured whole, as views of a result: the remarks on it, its kinds, and its row.

Each kind of remark has its words and figures, whether it is shown unasked, and the rules for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from opcost.columns import grouped
from opcost.comparing.corrections import Piece, is_corrected
from opcost.estimates import estimate_fields, total_if_known
from opcost.measuring.conditions import STATE, Circumstances, Conditions, differing_fields, precision_dtype
from opcost.measuring.flags import CASTING_DOUBT, OTHER_WORK, Flag
from opcost.measuring.record import (
    ComparisonRow,
    Excess,
    MeasurementRow,
    are_different,
    names_of,
    quality_flags,
    ran_as_requested,
    time_of,
)
from opcost.operators.counts import CAPTURED, LEAF
from opcost.operators.tuples import LIBRARIES, META
from opcost.summing.summation import EnergyBasis, ModelCost, Part
from opcost.units import megabytes, milliseconds, percent

if TYPE_CHECKING:
    from opcost.comparing.model_result import ModelResult

Figure: TypeAlias = "str | int | float | tuple[str, ...] | tuple[tuple[str, float], ...] | None"
Figures: TypeAlias = "Mapping[str, Figure]"

CIRCUMSTANCES: Mapping[str, str] = {
    "device_uuid": "on another board (in energy, boards of one card differ by up to 19 %)",
    "meter": "with another meter",
    "executed_as": "in another execution",
}
"""The circumstances that change figures. Others, such as the protocol, change their standard errors at most."""

PROTOCOL = ("warm_up_s", "loop_s", "relative_error")
"""Circumstances that are remarked on together as the protocol. The warm-up is not remarked on."""

OF_MODELS = tuple(f"{name}_version" for name in LIBRARIES)
"""Circumstances of whole models alone."""

SHARE_RATIO = 0.05
"""Smallest share of the summed time: if all of it were off by a fifth, the sum would be off by 1 %."""

FLAGGED_RATIO = 0.01
"""The same for flagged rows and those of other work, which can be off by any factor."""

NO_RESULT_RATIO = 0.05
"""Share of the summed time in flagged rows from which a sum is no result."""

LONGER_RATIO = 0.01
"""Smallest difference of a whole model's time: the target precision of most rows."""

NOTICEABLE_RATIO = 0.001
"""The smallest share of the time that is remarked on. Throttling slows such a share by a few percent."""

KINDS_SHOWN = 4
"""The number of kinds of operators with the largest kernel errors in a remark."""

UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_ratio", percent),
    ("_s", milliseconds),
    ("_bytes", megabytes),
    ("_c", "{:g} °C".format),
)

ROWS_ARE_THERE = "the rows that the sum needs seem to be there"
ON_VALUES = "energies depend on values"
BY_TEMPERATURE = "10 K of temperature are 2 % of energy"
BY_ANY_FACTOR = "a flagged row can be off by any factor"
BY_A_TENTH = "the sum may be off by 10 %"
BOARDS_DIFFER = "an operator's energy differs by up to 19 % between boards"
LAUNCHES = "launches {launch_time_s}, device {device_time_s}"
OF_WHOLE = "; the longer time is {of_whole_ratio} of the whole model's"


class RemarkKind(str, Enum):
    """The kinds of remarks on a comparison, or on one of two sides of it; the value is the name in JSON.

    Words may name a remark's figures. ``text`` holds for several comparisons at once. ``reason`` is why the remark
    changes what a reader concludes, if the figure named in ``least`` has at least the value there or is unknown: then
    it is shown unasked; it is empty for a remark that is shown on request only. ``figure`` is one comparison's, and
    ``more`` stands behind it where all remarks on one are asked for.
    """

    text: str
    reason: str
    figure: str
    least: tuple[str, float] | None
    more: str

    def __new__(  # noqa: PLR0913, PLR0917 (a row of the table)
        cls,
        value: str,
        text: str,
        reason: str = "",
        figure: str = "",
        least: tuple[str, float] | None = None,
        more: str = "",
    ) -> RemarkKind:
        one = str.__new__(cls, value)
        one._value_, one.text, one.reason, one.figure, one.least, one.more = value, text, reason, figure, least, more
        return one

    OTHER_CONDITIONS = (
        "other-conditions",
        "missing operators were measured under other conditions",
        ROWS_ARE_THERE,
        "{operators} ({differences})",
    )
    ON_OTHER_VALUES_ONLY = (
        "on-other-values-only",
        "missing operators were measured on other values only",
        ROWS_ARE_THERE,
        "{operators}",
    )
    NAMED_VALUES = (
        "named-values",
        "operators were measured on {input_data} values, whole models on their own",
        ON_VALUES,
    )
    SHAPES_ONLY = ("shapes-only", "counted on shapes only, so operators on normal values are summed", ON_VALUES)
    OTHER_VALUES = (
        "other-values",
        "a part of the summed time is of operators measured on other values than the model's",
        ON_VALUES,
        "{time_ratio}",
        ("time_ratio", SHARE_RATIO),
    )
    NOT_IN_STATE = (
        "not-in-state",
        "a part of the summed time is of warm rows, because no row has the state of its calls",
        "such a sum is up to 13 % too short",
        "{time_ratio}",
        ("time_ratio", SHARE_RATIO),
    )
    LEAF_MODULES = ("leaf-modules", "the sum is of leaf modules only", "such a sum misses up to half of a model's time")
    WHOLE_NOT_NORMALISED = (
        "whole-not-normalised",
        "energies are not normalised to {reference_c}: the whole model's cannot be",
        BY_TEMPERATURE,
    )
    ROWS_NOT_NORMALISED = (
        "rows-not-normalised",
        "energies are not normalised to {reference_c}: those of some rows cannot be",
        BY_TEMPERATURE,
        "{rows} rows",
    )
    OTHER_CIRCUMSTANCE = (
        "other-circumstance",
        "a part of the summed time was measured {circumstance}",
        "the whole model was not measured so",
        "{time_ratio}",
        ("time_ratio", SHARE_RATIO),
        ", {name} {of_sum} (whole model: {of_whole})",
    )
    THROTTLED = (
        "throttled",
        "throttled by the power limit, as shares of the time",
        "",
        "operators {time_ratio}, whole model {whole_time_ratio}",
    )
    LOWER_CLOCKS = (
        "lower-clocks",
        "the power limit makes the whole model longer, but not its operators",
        "the whole's time is not that at full clocks",
        "at most {longer_ratio}",
        ("longer_ratio", LONGER_RATIO),
    )
    LAUNCH_BOUND = (
        "launch-bound",
        "an eager run of the summed operators is launch-bound, so the sum is not the time of the whole",
        "the host, not the device, decides the time",
        LAUNCHES,
        None,
        OF_WHOLE,
    )
    DEVICE_BOUND = (
        "device-bound",
        "an eager run of the summed operators is bound by the device",
        "",
        LAUNCHES,
        None,
        OF_WHOLE,
    )
    ASSUMED_LAUNCHES = (
        "assumed-launches",
        "a part of the launch time is assumed: no loop of those kinds of operators is launch-bound",
        "",
        "{launch_time_ratio}",
    )
    BUILDS_DIFFER = (
        "builds-differ",
        "builds of the whole model differ in time, and the median counts",
        "another run of the whole may take another time",
        "{range_ratio}",
        None,
        " between {builds} builds",
    )
    EAGER_WHOLE = (
        "eager-whole",
        "the whole model ran eagerly, because a CUDA graph cannot capture it, so eager operators are summed; "
        "measure them with --execution eager",
        "sums of graphs have no launches",
    )
    WAITS = (
        "waits",
        "the whole model was captured in pieces, because it waits for the device",
        "the idle time in waits is in no sum",
        "{waits} waits",
    )
    FLAGGED_WHOLE = ("flagged-whole", "the whole model's measurement is flagged", BY_ANY_FACTOR, "{flags}")
    FLAGGED_OPERATORS = (
        "flagged-operators",
        "a part of the summed time is of flagged measurements; the next measurement of the model repeats them",
        BY_ANY_FACTOR,
        "{time_ratio} ({operator}: {flags})",
        ("time_ratio", FLAGGED_RATIO),
    )
    OTHER_WORK = (
        "other-work",
        "a part of the summed time is of operators that do other work alone than in the model",
        "their cost can be off by any factor",
        "{time_ratio} ({operator}: {flags})",
        ("time_ratio", FLAGGED_RATIO),
    )
    # Not shown by itself: the standard error has it.
    NOT_PRECISE = (
        "not-precise",
        "a part of the summed time is of measurements that did not reach their target precision",
        "",
        "{time_ratio}",
    )
    UNCORRECTED_UNKNOWN = (
        "uncorrected-unknown",
        "no cache correction: the states of its calls are not measured; count and measure the model again",
        BY_A_TENTH,
    )
    CORRECTED_BY_STATES = ("corrected-by-states", "the cache correction is that of calls in their states", "")
    CORRECTED_BY_OTHER_DTYPE = (
        "corrected-by-other-dtype",
        "the cache correction is that of operators in {dtype}, not of {precision}",
        "calls in another dtype find another share of their data in caches",
    )
    CORRECTED_BY_OTHER_KINDS = (
        "corrected-by-other-kinds",
        "{kinds} have the cache correction of other operators: their own is not measured for this "
        "card and its software; measure the model again: then its calls have their own",
        "the sum may be off by 2 %",
    )
    UNKNOWN_FLOP = (
        "unknown-flop",
        "operators of unknown FLOPs have the cache correction of operators without products; {reason}",
        "operators with products have another cache correction",
        "{time_ratio} of the summed time",
        ("time_ratio", SHARE_RATIO),
    )
    IN_NO_TUPLE = (
        "in-no-tuple",
        "operations are in no tuple: {operations}",
        "the sum lacks them",
        "{missing_ratio} of FLOPs or bytes",
    )
    KERNELS = (
        "kernels",
        "kernel time of operators alone, as a share of that in the model",
        "",
        "{alone_ratio} (magnitudes {absolute_ratio})",
        None,
        "; largest differences: {kinds}",
    )
    OTHER_LIBRARY = (
        "other-library",
        "the operators were counted with another version of the model's library than the whole ran with; "
        "count or measure the model again",
        "another version may run other operators",
        "{counted} and {measured}",
    )
    WHOLE_NOT_MEASURED = ("whole-not-measured", "the whole model is not measured", "only sums are compared")
    WHOLES_OF_TWO_BOARDS = (
        "wholes-of-two-boards",
        "whole models are of two boards, {board} and {other_board}",
        "boards differ",
        BOARDS_DIFFER,
    )
    OPERATORS_OF_TWO_BOARDS = (
        "operators-of-two-boards",
        "{time_ratio} of the time of operators in both conditions is of two boards",
        "boards differ",
        BOARDS_DIFFER,
    )
    TWO_EXECUTIONS = (
        "two-executions",
        "one whole model ran as a CUDA graph, the other eagerly, because a graph cannot capture it",
        "a graph has no launches",
    )
    NOT_MEASURED = (
        "not-measured",
        "{calls} calls of {operators} are not measured in one of both conditions, and are not in the sum",
        "the sum lacks them",
    )
    ABOVE_LIMIT = (
        "above-limit",
        "the sum draws more than the power limit: it has full clocks, and a run takes longer",
        "the sum is not the time of a run",
    )


@dataclass(frozen=True)
class Remark:
    """A remark: its kind and its figures by name, None if unknown.

    A name ends with the figure's unit: ``_ratio`` (a share), ``_s``, ``_bytes`` or ``_c``. ``time_ratio`` is the share
    of the summed time that the remark applies to. ``conditions`` is the side of two that it is on.
    """

    kind: RemarkKind
    figures: Figures = field(default_factory=dict)

    @property
    def changes_conclusions(self) -> bool:
        """Whether a reader who does not know it would draw other conclusions, so that it is shown unasked."""
        name, least_ratio = self.kind.least or ("", 0.0)
        figure = self.figures.get(name)
        is_small = isinstance(figure, float) and figure < least_ratio
        return bool(self.kind.reason) and not is_small and self.figures.get("name", "meter") in CIRCUMSTANCES

    @property
    def words(self) -> tuple[str, str]:
        """The words for several comparisons, and those for this one; the latter may be empty."""
        text, figure, _ = self._formatted()
        return text, figure

    def __str__(self) -> str:
        text, figure, more = self._formatted()
        on = f"in {self.figures['conditions']}: " if "conditions" in self.figures else ""
        return on + ": ".join(filter(None, (text, figure))) + more

    def _formatted(self) -> list[str]:
        shown = {name: _shown(name, figure) for name, figure in self.figures.items()}
        name = shown.get("name", "")
        shown["circumstance"] = CIRCUMSTANCES.get(name, f"with another {name}")
        return [words.format(**shown) for words in (self.kind.text, self.kind.figure, self.kind.more)]


def _shown(name: str, figure: Figure) -> str:
    if figure is None:
        return "unknown"
    if isinstance(figure, str):
        return figure
    if isinstance(figure, tuple):
        return ", ".join(one if isinstance(one, str) else f"{one[0]} {100 * one[1]:+.1f} %" for one in figure)
    shown: Callable[[float], str] = next((shown for unit, shown in UNITS if name.endswith(unit)), str)
    return shown(figure)


# Rules for a comparison of summed operators with the whole model


def remarks_on(found: ModelResult) -> tuple[Remark, ...]:
    is_summed = found.cost.time_s is not None
    return (
        *_missing(found),
        *(_other_rows(found) if is_summed else ()),
        *((Remark(RemarkKind.LEAF_MODULES),) if found.runs.counted == LEAF else ()),
        *_temperatures(found),
        *(_circumstances(found) if is_summed else ()),
        *(_throttled(found) if is_summed else ()),
        *_whole(found),
        *flagged(found),
        *_precision_and_caches(found),
        *_uncounted(found),
        *_kernels(found),
    )


def _missing(found: ModelResult) -> Iterator[Remark]:
    """Remark on missing operators that have rows under other conditions or on other values."""
    missing: dict[tuple[str, ...], set[str]] = {}
    for count in found.cost.missing:
        for row in found.measurements.of_operator(count):
            missing.setdefault(row.conditions.differences(found.conditions), set()).add(count.operator.key)
    for differences, keys in missing.items():
        if differences:
            yield Remark(RemarkKind.OTHER_CONDITIONS, {"operators": len(keys), "differences": differences})
        else:
            yield Remark(RemarkKind.ON_OTHER_VALUES_ONLY, {"operators": len(keys)})


def _other_rows(found: ModelResult) -> Iterator[Remark]:
    if found.runs.input_data != CAPTURED:
        yield Remark(RemarkKind.NAMED_VALUES, {"input_data": found.runs.input_data})
    elif found.counts.device_type == META:
        yield Remark(RemarkKind.SHAPES_ONLY)
    elif time_ratio := found.cost.time_ratio([part for part in found.cost.parts if part.is_on_other_values]):
        yield Remark(RemarkKind.OTHER_VALUES, {"time_ratio": time_ratio})
    if found.runs.cache == STATE and (warm_ratio := found.cost.warm_ratio):
        yield Remark(RemarkKind.NOT_IN_STATE, {"time_ratio": warm_ratio})


def _temperatures(found: ModelResult) -> Iterator[Remark]:
    cost, normalised = found.cost, EnergyBasis.NORMALISED
    known = {part.row.key for part in cost.parts if normalised.energy_of(part.row) is not None}
    if cost.basis is normalised or not known:
        return
    if normalised.energy_of(found.full) is None:
        yield Remark(RemarkKind.WHOLE_NOT_NORMALISED, {"reference_c": normalised.temperature_c})
    else:
        others = len({part.row.key for part in cost.parts} - known)
        yield Remark(RemarkKind.ROWS_NOT_NORMALISED, {"reference_c": normalised.temperature_c, "rows": others})


def _circumstances(found: ModelResult) -> Iterator[Remark]:
    """Remark on circumstances of summed rows that differ from the whole model's, with their shares of the time."""

    def circumstances_of(row: MeasurementRow) -> dict[str, Figure]:
        own = (one.name for one in fields(Circumstances) if one.name not in (*PROTOCOL, *OF_MODELS))
        return {
            **{name: getattr(row.circumstances, name) for name in own},
            "protocol": row.circumstances.protocol,
            "meter": row.measurement.meter,
            "executed_as": row.measurement.executed_as,
        }

    theirs = circumstances_of(found.full)
    parts: dict[tuple[str, Figure, Figure], list[Part]] = {}
    for part in found.cost.parts:
        for name, value in circumstances_of(part.row).items():
            if value != theirs[name]:
                parts.setdefault((name, value, theirs[name]), []).append(part)
    for (name, of_sum, of_whole), own in parts.items():
        time_ratio = sum(part.time_s / found.cost.time_s.value for part in own) if found.cost.time_s else 0.0
        figures = {"name": name, "of_sum": of_sum, "of_whole": of_whole}
        yield Remark(RemarkKind.OTHER_CIRCUMSTANCE, {**figures, "time_ratio": time_ratio})


def throttled(found: ModelResult) -> Iterator[Remark]:
    """Remark on throttling by the power limit, with its shares of the summed time and of the whole model's."""
    cost, ours, theirs = found.cost, None, None
    if cost.time_s is not None:
        slowed_s = sum(part.time_s * (part.row.measurement.power_capped_ratio or 0.0) for part in cost.parts)
        ours = slowed_s / cost.time_s.value
    if found.whole is not None:
        theirs = found.whole.measurement.power_capped_ratio
    if max(ours or 0.0, theirs or 0.0) >= NOTICEABLE_RATIO:
        yield Remark(RemarkKind.THROTTLED, {"time_ratio": ours, "whole_time_ratio": theirs})


def _throttled(found: ModelResult) -> Iterator[Remark]:
    """Remark on throttling, and on lower clocks of the whole that the power limit's part of the gap does not show.

    These cost the whole model a share of its time, if its time is inverse to its clocks.
    """
    remarks = tuple(throttled(found))
    yield from remarks
    limit, whole, time_s = found.gap.power_limit, found.full.measurement, found.cost.time_s
    if not remarks or not whole.power_capped_ratio or (limit is not None and limit.time_s.value > 0):
        return
    cycles = total_if_known(
        None if part.row.measurement.sm_clock_hz is None else part.time_s * part.row.measurement.sm_clock_hz
        for part in found.cost.parts
    )
    if whole.sm_clock_hz is not None and cycles and time_s is not None:
        longer_ratio = max(0.0, 1 - whole.sm_clock_hz * time_s.value / cycles)
        if longer_ratio:
            yield Remark(RemarkKind.LOWER_CLOCKS, {"longer_ratio": longer_ratio})


def _whole(found: ModelResult) -> Iterator[Remark]:
    """Remark on what bounds an eager run, on builds that differ in time, and on a graph in pieces, or none."""
    eager, whole = found.eager, found.full.measurement
    if eager is not None:
        times_s = {"launch_time_s": eager.launch_time_s, "device_time_s": eager.device_time_s}
        kind = RemarkKind.LAUNCH_BOUND if eager.is_launch_bound else RemarkKind.DEVICE_BOUND
        yield Remark(kind, {**times_s, "of_whole_ratio": eager.time_s / time_of(found.full).value})
        if eager.assumed_ratio:
            yield Remark(RemarkKind.ASSUMED_LAUNCHES, {"launch_time_ratio": eager.assumed_ratio})
    if are_different(whole.builds_time_range_ratio):
        yield Remark(RemarkKind.BUILDS_DIFFER, {"builds": whole.builds, "range_ratio": whole.builds_time_range_ratio})
    if not ran_as_requested(found.full):
        yield Remark(RemarkKind.EAGER_WHOLE)
    yield from two_versions(found)
    if whole.waits is not None:
        yield Remark(RemarkKind.WAITS, {"waits": whole.waits})


def two_versions(found: ModelResult) -> Iterator[Remark]:
    """Remark on a whole that is known to be of another version of the model's library than its operators."""
    counted, measured = found.counted_with, found.measured_with
    if counted != measured and None not in {counted, measured}:
        yield Remark(RemarkKind.OTHER_LIBRARY, {"counted": counted, "measured": measured})


def flagged(found: ModelResult) -> Iterator[Remark]:
    """Remark on a flagged whole, and on operators that are flagged or do other work than the model's."""
    if found.whole is not None and found.is_whole_flagged:
        flags = names_of(found.whole, quality_flags(found.whole.measurement))
        yield Remark(RemarkKind.FLAGGED_WHOLE, {"flags": flags})

    def doubts(row: MeasurementRow) -> tuple[str, ...]:
        return names_of(row, tuple(flag for flag in row.measurement.flags if flag in CASTING_DOUBT))

    def other_work(row: MeasurementRow) -> tuple[str, ...]:
        return tuple(flag.value for flag in row.measurement.flags if flag in OTHER_WORK)

    for kind, names in ((RemarkKind.FLAGGED_OPERATORS, doubts), (RemarkKind.OTHER_WORK, other_work)):
        if own := [part for part in found.cost.parts if names(part.row)]:
            first, time_ratio = own[0].row, found.cost.time_ratio(own)
            yield Remark(kind, {"time_ratio": time_ratio, "operator": first.operator, "flags": names(first)})


def _precision_and_caches(found: ModelResult) -> Iterator[Remark]:
    """Remark on imprecise rows, and on a cache correction that is missing, or of another dtype or other kinds."""
    imprecise = [part for part in found.cost.parts if Flag.IMPRECISE in part.row.measurement.flags]
    if (time_ratio := found.cost.time_ratio(imprecise)) >= NOTICEABLE_RATIO:
        yield Remark(RemarkKind.NOT_PRECISE, {"time_ratio": time_ratio})
    precision, dtype = found.conditions.precision, found.gap.correction_dtype
    if found.in_state is not None and is_corrected(found.conditions):
        yield Remark(RemarkKind.CORRECTED_BY_STATES, {})
    elif dtype is not None:
        if dtype != precision_dtype(precision):
            yield Remark(RemarkKind.CORRECTED_BY_OTHER_DTYPE, {"dtype": dtype, "precision": precision})
        if kinds := found.gap.missing_kinds:
            yield Remark(RemarkKind.CORRECTED_BY_OTHER_KINDS, {"kinds": ", ".join(kinds)})
    elif is_corrected(found.conditions):
        yield Remark(RemarkKind.UNCORRECTED_UNKNOWN)


def _uncounted(found: ModelResult) -> Iterator[Remark]:
    """Remark on operations without a formula, and on a share of the model that is in no operator, summed or not."""
    reason = found.cost.flop_missing_reason
    if reason is not None:
        time_ratio = found.cost.time_ratio(part for part in found.cost.parts if part.count.flop is None)
        yield Remark(RemarkKind.UNKNOWN_FLOP, {"reason": reason, "time_ratio": time_ratio})
    counts = (*found.counts.counts, *found.left_out.summed, *found.left_out.missing)
    missing_ratio = replace(found.counts, counts=counts).missing_ratio
    if missing_ratio is not None and found.counts.outside:
        yield Remark(RemarkKind.IN_NO_TUPLE, {"missing_ratio": missing_ratio, "operations": found.counts.outside})


def _kernels(found: ModelResult) -> Iterator[Remark]:
    if (errors := found.kernels) is not None:
        ratios = {"alone_ratio": 1 + errors.ratio, "absolute_ratio": errors.absolute_ratio}
        yield Remark(RemarkKind.KERNELS, {**ratios, "kinds": errors.by_kind[:KINDS_SHOWN]})


CONDITIONS_SHOWN = ("device_product", "execution", "cache", "precision", "torch_version", "driver_version")
"""Conditions that distinguish the comparisons of one model in labels."""


# Kinds and labels


@dataclass(frozen=True)
class KindCost:
    """The cost of all summed calls of one kind of operator in a model; the energy is None if one is unknown."""

    operator: str
    time_s: float
    energy_j: float | None


def kinds_of(cost: ModelCost) -> tuple[KindCost, ...]:
    """Return the cost of each kind of operator in a sum, in descending order of time."""
    kinds = [
        KindCost(name, sum(part.time_s for part in own), total_if_known(part.energy_j for part in own))
        for name, own in grouped(cost.parts, lambda part: part.case.operator.short_name).items()
    ]
    return tuple(sorted(kinds, key=lambda kind: -kind.time_s))


def differing(conditions: Sequence[Conditions]) -> list[list[str]]:
    """Return, for each set of conditions, the values of those that differ."""
    found = differing_fields(conditions)
    names = [name for name in CONDITIONS_SHOWN if name in found]
    return [[str(getattr(one, name)) for name in names] for one in conditions]


# Rows of ``sum_vs_full.csv``


def comparison_row(found: ModelResult, compared_at: str) -> ComparisonRow:
    def excess(name: str, part: Excess | None) -> dict[str, Any]:
        time_s, energy_j = (None, None) if part is None else (part.time_s, part.energy_j)
        return estimate_fields(f"{name}_time", "s", time_s) | estimate_fields(f"{name}_energy", "j", energy_j)

    def piece(name: str, part: Piece) -> dict[str, Any]:
        return {f"{name}_time_s": part.time_s, f"{name}_energy_j": part.energy_j}

    full, cost, gap, eager, kernels = found.full, found.cost, found.gap, found.eager, found.kernels
    return ComparisonRow(
        key=full.key,
        operator=full.operator,
        name=found.name,
        input_data=found.runs.input_data,
        counted=found.runs.counted,
        **estimate_fields("time", "s", cost.time_s),
        **estimate_fields("energy", "j", cost.energy_j),
        **estimate_fields("full_time", "s", time_of(full)),
        **estimate_fields("full_energy", "j", found.full_energy_j),
        reference_temperature_c=cost.basis.temperature_c,
        **estimate_fields("time", "ratio", found.time_ratio),
        **estimate_fields("energy", "ratio", found.energy_ratio),
        **piece("function", gap.functions),
        **excess("correction", gap.correction),
        **excess("power_limit", gap.power_limit),
        **piece("dropped", gap.dropped),
        **piece("unmeasured", gap.unmeasured),
        **piece("unexplained", gap.unexplained),
        eager_device_time_s=None if eager is None else eager.device_time_s,
        eager_launch_time_s=None if eager is None else eager.launch_time_s,
        eager_energy_j=None if eager is None else eager.energy_j,
        kernel_error_ratio=None if kernels is None else kernels.ratio,
        absolute_kernel_error_ratio=None if kernels is None else kernels.absolute_ratio,
        energy_missing_reason=cost.energy_missing_reason or full.measurement.energy_missing_reason,
        flop_ratio=cost.flop_ratio,
        memory_bytes_ratio=cost.memory_bytes_ratio,
        flop_missing_reason=cost.flop_missing_reason,
        summed_operators=len(cost.summed),
        missing_operators=len(cost.missing),
        missing=" | ".join(str(count.operator) for count in cost.missing),
        remarks=" | ".join(map(str, found.remarks)),
        compared_at=compared_at,
        conditions=found.conditions,
        phase=full.phase,
    )
