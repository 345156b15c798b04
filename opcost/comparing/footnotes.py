"""Words of remarks for several comparisons at once, and which of them change what a reader concludes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from opcost.comparing.remarks import Figure, Remark, RemarkKind, shown_figures

Figures: TypeAlias = "Mapping[str, Figure]"

CIRCUMSTANCES: Mapping[str, str] = {
    "device_uuid": "on another board (in energy, boards of one card differ by up to 19 %)",
    "meter": "with another meter",
    "executed_as": "in another execution",
}
"""The circumstances that change figures. Others, such as the protocol, change their standard errors at most."""

SHARE_RATIO = 0.05
"""Smallest share of the summed time: if all of it were off by a fifth, the sum would be off by 1 %."""

FLAGGED_RATIO = 0.01
"""The same for flagged rows and those of other work, which can be off by any factor."""

LONGER_RATIO = 0.01
"""Smallest difference of a whole model's time: the target precision of most rows."""


def _always(_: Figures) -> bool:
    return True


def _from(name: str, least_ratio: float) -> Callable[[Figures], bool]:
    """Return a test whether a figure has at least this value, or is unknown."""

    def is_large(figures: Figures) -> bool:
        figure = figures.get(name)
        return not isinstance(figure, float) or figure >= least_ratio

    return is_large


def _changes_figures(figures: Figures) -> bool:
    return figures["name"] in CIRCUMSTANCES and _from("time_ratio", SHARE_RATIO)(figures)


@dataclass(frozen=True)
class Wording:
    """The words of a kind of remark for several comparisons at once.

    ``text`` holds for all of them, ``figure`` is one comparison's; both may name the remark's figures. ``reason`` is
    why the remark changes what a reader concludes if ``matters`` holds for its figures. It is empty for a remark that
    is printed on request only.
    """

    text: str
    figure: str = ""
    reason: str = ""
    matters: Callable[[Figures], bool] = _always


WORDINGS: Mapping[RemarkKind, Wording] = {
    RemarkKind.OTHER_CONDITIONS: Wording(
        "missing operators were measured under other conditions",
        "{operators} ({differences})",
        "the rows that the sum needs seem to be there",
    ),
    RemarkKind.ON_OTHER_VALUES_ONLY: Wording(
        "missing operators were measured on other values only",
        "{operators}",
        "the rows that the sum needs seem to be there",
    ),
    RemarkKind.NAMED_VALUES: Wording(
        "operators were measured on {input_data} values, whole models on their own",
        reason="energies depend on values",
    ),
    RemarkKind.SHAPES_ONLY: Wording(
        "counted on shapes only, so operators on normal values are summed", reason="energies depend on values"
    ),
    RemarkKind.OTHER_VALUES: Wording(
        "a part of the summed time is of operators measured on other values than the model's",
        "{time_ratio}",
        "energies depend on values",
        _from("time_ratio", SHARE_RATIO),
    ),
    RemarkKind.OTHER_CACHE: Wording(
        "operators were measured in the cache mode {cache}", reason="sums are 7 % to 13 % larger on cold caches"
    ),
    RemarkKind.LEAF_MODULES: Wording(
        "the sum is of leaf modules only", reason="such a sum misses up to half of a model's time"
    ),
    RemarkKind.WHOLE_NOT_NORMALISED: Wording(
        "energies are not normalised to {reference_c}: the whole model's cannot be",
        reason="10 K of temperature are 2 % of energy",
    ),
    RemarkKind.ROWS_NOT_NORMALISED: Wording(
        "energies are not normalised to {reference_c}: those of some rows cannot be",
        "{rows} rows",
        "10 K of temperature are 2 % of energy",
    ),
    RemarkKind.OTHER_CIRCUMSTANCE: Wording(
        "a part of the summed time was measured {circumstance}",
        "{time_ratio}",
        "the whole model was not measured so",
        _changes_figures,
    ),
    RemarkKind.THROTTLED: Wording(
        "throttled by the power limit, as shares of the time", "operators {time_ratio}, whole model {whole_time_ratio}"
    ),
    RemarkKind.LOWER_CLOCKS: Wording(
        "the power limit makes the whole model longer, but not its operators",
        "at most {longer_ratio}",
        "the whole's time is not that at full clocks",
        _from("longer_ratio", LONGER_RATIO),
    ),
    RemarkKind.LAUNCH_BOUND: Wording(
        "an eager run of the summed operators is launch-bound, so the sum is not the time of the whole",
        "launches {launch_time_s}, device {device_time_s}",
        "the host, not the device, decides the time",
    ),
    RemarkKind.DEVICE_BOUND: Wording(
        "an eager run of the summed operators is bound by the device",
        "launches {launch_time_s}, device {device_time_s}",
    ),
    RemarkKind.ASSUMED_LAUNCHES: Wording(
        "a part of the launch time is assumed: no loop of those kinds of operators is launch-bound",
        "{launch_time_ratio}",
    ),
    RemarkKind.BUILDS_DIFFER: Wording(
        "builds of the whole model differ in time, and the median counts",
        "{range_ratio}",
        "another run of the whole may take another time",
    ),
    RemarkKind.EAGER_WHOLE: Wording(
        "the whole model ran eagerly, because a CUDA graph cannot capture it, so eager operators are summed; measure "
        "them with --execution eager",
        reason="sums of graphs have no launches",
    ),
    RemarkKind.WAITS: Wording(
        "the whole model was captured in pieces, because it waits for the device",
        "{waits} waits",
        "the idle time in waits is in no sum",
    ),
    RemarkKind.FLAGGED_WHOLE: Wording(
        "the whole model's measurement is flagged", "{flags}", "a flagged row can be off by any factor"
    ),
    RemarkKind.FLAGGED_OPERATORS: Wording(
        "a part of the summed time is of flagged measurements; the next measurement of the model repeats them",
        "{time_ratio} ({operator}: {flags})",
        "a flagged row can be off by any factor",
        _from("time_ratio", FLAGGED_RATIO),
    ),
    RemarkKind.OTHER_WORK: Wording(
        "a part of the summed time is of operators that do other work alone than in the model",
        "{time_ratio} ({operator}: {flags})",
        "their cost can be off by any factor",
        _from("time_ratio", FLAGGED_RATIO),
    ),
    RemarkKind.NOT_PRECISE: Wording(
        # Not shown by itself: the standard error has it.
        "a part of the summed time is of measurements that did not reach their target precision",
        "{time_ratio}",
    ),
    RemarkKind.UNCORRECTED_SMALL: Wording(
        "no cache correction: that of models that move less than {stream_bytes} is not measured for this card and its "
        "software; the next measurement on this card adds it",
        "{moved_bytes}",
        "the sum may be off by 10 %",
    ),
    RemarkKind.UNCORRECTED_UNKNOWN: Wording(
        "no cache correction: not measured for this card and its software; the next measurement on this card adds it",
        reason="the sum may be off by 10 %",
    ),
    RemarkKind.CORRECTED_BY_OTHER_DTYPE: Wording(
        "the cache correction is that of operators in {dtype}, not of {precision}",
        reason="calls in another dtype find another share of their data in caches",
    ),
    RemarkKind.CORRECTED_BY_OTHER_KINDS: Wording(
        "{kinds} have the cache correction of other operators: their own is not measured for this card and its "
        "software; the next measurement on this card adds it",
        reason="the sum may be off by 2 %",
    ),
    RemarkKind.UNKNOWN_FLOP: Wording(
        "operators of unknown FLOPs have the cache correction of operators without products; {reason}",
        "{time_ratio} of the summed time",
        "operators with products have another cache correction",
        _from("time_ratio", SHARE_RATIO),
    ),
    RemarkKind.IN_NO_TUPLE: Wording(
        "operations are in no tuple: {operations}", "{missing_ratio} of FLOPs or bytes", "the sum lacks them"
    ),
    RemarkKind.KERNELS: Wording(
        "kernel time of operators alone, as a share of that in the model", "{alone_ratio} (magnitudes {absolute_ratio})"
    ),
}
"""The words of each kind."""


def changes_conclusions(remark: Remark) -> bool:
    """Return whether a reader who does not know a remark would draw other conclusions from the figures."""
    wording = WORDINGS[remark.kind]
    return bool(wording.reason) and wording.matters(remark.figures)


def footnote_of(remark: Remark) -> tuple[str, str]:
    """Return a remark's words for several comparisons, and those for one; the latter may be empty."""
    figures = shown_figures(remark)
    name, wording = figures.get("name", ""), WORDINGS[remark.kind]
    figures["circumstance"] = CIRCUMSTANCES.get(name, f"with another {name}")
    return wording.text.format(**figures), wording.figure.format(**figures)
