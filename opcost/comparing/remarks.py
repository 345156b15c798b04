"""Remarks on comparisons: kinds with figures, and their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from opcost.units import megabytes, milliseconds, percent

Figure: TypeAlias = "str | int | float | tuple[str, ...] | tuple[tuple[str, float], ...] | None"


class RemarkKind(str, Enum):
    """The kinds of remarks on a comparison."""

    OTHER_CONDITIONS = "other-conditions"
    ON_OTHER_VALUES_ONLY = "on-other-values-only"
    NAMED_VALUES = "named-values"
    SHAPES_ONLY = "shapes-only"
    OTHER_VALUES = "other-values"
    OTHER_CACHE = "other-cache"
    LEAF_MODULES = "leaf-modules"
    WHOLE_NOT_NORMALISED = "whole-not-normalised"
    ROWS_NOT_NORMALISED = "rows-not-normalised"
    OTHER_CIRCUMSTANCE = "other-circumstance"
    THROTTLED = "throttled"
    LOWER_CLOCKS = "lower-clocks"
    LAUNCH_BOUND = "launch-bound"
    DEVICE_BOUND = "device-bound"
    ASSUMED_LAUNCHES = "assumed-launches"
    BUILDS_DIFFER = "builds-differ"
    EAGER_WHOLE = "eager-whole"
    WAITS = "waits"
    FLAGGED_WHOLE = "flagged-whole"
    FLAGGED_OPERATORS = "flagged-operators"
    OTHER_WORK = "other-work"
    NOT_PRECISE = "not-precise"
    UNCORRECTED_SMALL = "uncorrected-small"
    UNCORRECTED_UNKNOWN = "uncorrected-unknown"
    CORRECTED_BY_OTHER_DTYPE = "corrected-by-other-dtype"
    CORRECTED_BY_OTHER_KINDS = "corrected-by-other-kinds"
    UNKNOWN_FLOP = "unknown-flop"
    IN_NO_TUPLE = "in-no-tuple"
    KERNELS = "kernels"


@dataclass(frozen=True)
class Remark:
    """A remark: its kind and its figures by name.

    A name ends with the figure's unit: ``_ratio`` (a share), ``_s``, ``_bytes`` or ``_c``. ``time_ratio`` is the share
    of the summed time that the remark applies to. None is an unknown figure.
    """

    kind: RemarkKind
    figures: Mapping[str, Figure] = field(default_factory=dict)


_EAGER = "launches {launch_time_s}, device {device_time_s}; the longer time is {of_whole_ratio} of the whole model's"

TEXTS: Mapping[RemarkKind, str] = {
    RemarkKind.OTHER_CONDITIONS: (
        "missing operators that were measured under other conditions: {operators} ({differences})"
    ),
    RemarkKind.ON_OTHER_VALUES_ONLY: "missing operators that were measured on other values: {operators}",
    RemarkKind.NAMED_VALUES: "operators were measured on {input_data} values, the whole model on its own",
    RemarkKind.SHAPES_ONLY: "the model was counted on shapes only, so operators on normal values are summed",
    RemarkKind.OTHER_VALUES: (
        "{time_ratio} of the summed time is of operators measured on other values than the model's"
    ),
    RemarkKind.OTHER_CACHE: "operators were measured in the cache mode {cache}",
    RemarkKind.LEAF_MODULES: "the sum is of leaf modules only",
    RemarkKind.WHOLE_NOT_NORMALISED: "energies are not normalised to {reference_c}: the whole model's cannot be",
    RemarkKind.ROWS_NOT_NORMALISED: "energies are not normalised to {reference_c}: those of {rows} rows cannot be",
    RemarkKind.OTHER_CIRCUMSTANCE: (
        "{time_ratio} of the summed time was measured with another {name}: {of_sum} (whole model: {of_whole})"
    ),
    RemarkKind.THROTTLED: (
        "throttled by the power limit, as a share of the time: operators {time_ratio}, whole model {whole_time_ratio}"
    ),
    RemarkKind.LOWER_CLOCKS: "lower clocks make the whole model at most {longer_ratio} longer",
    RemarkKind.LAUNCH_BOUND: f"an eager run of the summed operators is launch-bound: {_EAGER}",
    RemarkKind.DEVICE_BOUND: f"an eager run of the summed operators is bound by the device: {_EAGER}",
    RemarkKind.ASSUMED_LAUNCHES: (
        "{launch_time_ratio} of the launch time is assumed: no loop of those kinds of operators is launch-bound"
    ),
    RemarkKind.BUILDS_DIFFER: "{builds} builds of the whole model differ by {range_ratio} in time; the median counts",
    RemarkKind.EAGER_WHOLE: (
        "the whole model ran eagerly, because a CUDA graph cannot capture it, so eager operators are summed "
        "(measured with --execution eager)"
    ),
    RemarkKind.WAITS: (
        "the whole model was captured in pieces, because it waits for the device {waits} times; the idle time is not "
        "in the sum"
    ),
    RemarkKind.FLAGGED_WHOLE: "the whole model's measurement is flagged: {flags}",
    RemarkKind.FLAGGED_OPERATORS: (
        "{time_ratio} of the summed time is of flagged measurements, such as {operator}: {flags}; the next "
        "measurement of the model repeats them"
    ),
    RemarkKind.OTHER_WORK: (
        "{time_ratio} of the summed time is of operators that do other work alone than in the model, such as "
        "{operator}: {flags}"
    ),
    RemarkKind.NOT_PRECISE: (
        "{time_ratio} of the summed time is of measurements that did not reach their target precision"
    ),
    RemarkKind.UNCORRECTED_SMALL: (
        "no cache correction: the model moves {moved_bytes}, and below {stream_bytes} it is not measured for this card "
        "and its software; the next measurement on this card adds it"
    ),
    RemarkKind.UNCORRECTED_UNKNOWN: (
        "no cache correction: not measured for this card and its software; the next measurement on this card adds it"
    ),
    RemarkKind.CORRECTED_BY_OTHER_DTYPE: "the cache correction is that of operators in {dtype}, not of {precision}",
    RemarkKind.CORRECTED_BY_OTHER_KINDS: (
        "{kinds} have the cache correction of other operators: their own is not measured for this card and its "
        "software; the next measurement on this card adds it"
    ),
    RemarkKind.UNKNOWN_FLOP: (
        "{reason}: shares of FLOPs are unknown, and {time_ratio} of the summed time has the cache correction of "
        "operators without products"
    ),
    RemarkKind.IN_NO_TUPLE: "the sum lacks {missing_ratio} of the model's FLOPs or bytes, in no tuple: {operations}",
    RemarkKind.KERNELS: (
        "kernel time of operators alone: {alone_ratio} of that in the model; sum of the differences' magnitudes: "
        "{absolute_ratio}; largest differences: {kinds}"
    ),
}
"""The text of each kind, with figures as ``_shown`` formats them."""

UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_ratio", percent),
    ("_s", milliseconds),
    ("_bytes", megabytes),
    ("_c", "{:g} °C".format),
)


def worded(remark: Remark) -> str:
    """Return a remark as a sentence for people."""
    return TEXTS[remark.kind].format(**shown_figures(remark))


def shown_figures(remark: Remark) -> dict[str, str]:
    """Return a remark's figures as texts with their units."""
    return shown_texts(remark.figures)


def shown_texts(figures: Mapping[str, Figure]) -> dict[str, str]:
    """Return figures by name as texts with their units."""
    return {name: _shown(name, figure) for name, figure in figures.items()}


def all_worded(remarks: Iterable[Remark]) -> str:
    """Return remarks as sentences on one line, for a cell of a table."""
    return " | ".join(map(worded, remarks))


def _shown(name: str, figure: Figure) -> str:
    if figure is None:
        return "unknown"
    if isinstance(figure, str):
        return figure
    if isinstance(figure, tuple):
        return ", ".join(one if isinstance(one, str) else f"{one[0]} {100 * one[1]:+.1f} %" for one in figure)
    shown: Callable[[float], str] = next((shown for unit, shown in UNITS if name.endswith(unit)), str)
    return shown(figure)
