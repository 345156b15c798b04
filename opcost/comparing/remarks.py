"""Remarks on comparisons: each kind with its words, its figures, and whether it is shown unasked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from opcost.units import megabytes, milliseconds, percent

Figure: TypeAlias = "str | int | float | tuple[str, ...] | tuple[tuple[str, float], ...] | None"
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

    Words may name a remark's figures. ``text`` holds for several comparisons at once, ``figure`` is one comparison's,
    and ``more`` stands behind it where all remarks on one are asked for. ``reason`` is why the remark changes what a
    reader concludes, if the figure named in ``least`` has at least the value there or is unknown: then it is shown
    unasked. It is empty for a remark that is shown on request only.
    """

    text: str
    figure: str
    reason: str
    least: tuple[str, float] | None
    more: str

    def __new__(  # noqa: PLR0913, PLR0917 (a row of the table)
        cls,
        value: str,
        text: str,
        figure: str = "",
        reason: str = "",
        least: tuple[str, float] | None = None,
        more: str = "",
    ) -> RemarkKind:
        """Return a member with its words."""
        one = str.__new__(cls, value)
        one._value_, one.text, one.figure, one.reason, one.least, one.more = value, text, figure, reason, least, more
        return one

    OTHER_CONDITIONS = (
        "other-conditions",
        "missing operators were measured under other conditions",
        "{operators} ({differences})",
        ROWS_ARE_THERE,
    )
    ON_OTHER_VALUES_ONLY = (
        "on-other-values-only",
        "missing operators were measured on other values only",
        "{operators}",
        ROWS_ARE_THERE,
    )
    NAMED_VALUES = (
        "named-values",
        "operators were measured on {input_data} values, whole models on their own",
        "",
        ON_VALUES,
    )
    SHAPES_ONLY = ("shapes-only", "counted on shapes only, so operators on normal values are summed", "", ON_VALUES)
    OTHER_VALUES = (
        "other-values",
        "a part of the summed time is of operators measured on other values than the model's",
        "{time_ratio}",
        ON_VALUES,
        ("time_ratio", SHARE_RATIO),
    )
    OTHER_CACHE = (
        "other-cache",
        "operators were measured in the cache mode {cache}",
        "",
        "sums are 7 % to 13 % larger on cold caches",
    )
    LEAF_MODULES = (
        "leaf-modules",
        "the sum is of leaf modules only",
        "",
        "such a sum misses up to half of a model's time",
    )
    WHOLE_NOT_NORMALISED = (
        "whole-not-normalised",
        "energies are not normalised to {reference_c}: the whole model's cannot be",
        "",
        BY_TEMPERATURE,
    )
    ROWS_NOT_NORMALISED = (
        "rows-not-normalised",
        "energies are not normalised to {reference_c}: those of some rows cannot be",
        "{rows} rows",
        BY_TEMPERATURE,
    )
    OTHER_CIRCUMSTANCE = (
        "other-circumstance",
        "a part of the summed time was measured {circumstance}",
        "{time_ratio}",
        "the whole model was not measured so",
        ("time_ratio", SHARE_RATIO),
        ", {name} {of_sum} (whole model: {of_whole})",
    )
    THROTTLED = (
        "throttled",
        "throttled by the power limit, as shares of the time",
        "operators {time_ratio}, whole model {whole_time_ratio}",
    )
    LOWER_CLOCKS = (
        "lower-clocks",
        "the power limit makes the whole model longer, but not its operators",
        "at most {longer_ratio}",
        "the whole's time is not that at full clocks",
        ("longer_ratio", LONGER_RATIO),
    )
    LAUNCH_BOUND = (
        "launch-bound",
        "an eager run of the summed operators is launch-bound, so the sum is not the time of the whole",
        LAUNCHES,
        "the host, not the device, decides the time",
        None,
        OF_WHOLE,
    )
    DEVICE_BOUND = (
        "device-bound",
        "an eager run of the summed operators is bound by the device",
        LAUNCHES,
        "",
        None,
        OF_WHOLE,
    )
    ASSUMED_LAUNCHES = (
        "assumed-launches",
        "a part of the launch time is assumed: no loop of those kinds of operators is launch-bound",
        "{launch_time_ratio}",
    )
    BUILDS_DIFFER = (
        "builds-differ",
        "builds of the whole model differ in time, and the median counts",
        "{range_ratio}",
        "another run of the whole may take another time",
        None,
        " between {builds} builds",
    )
    EAGER_WHOLE = (
        "eager-whole",
        "the whole model ran eagerly, because a CUDA graph cannot capture it, so eager operators are summed; "
        "measure them with --execution eager",
        "",
        "sums of graphs have no launches",
    )
    WAITS = (
        "waits",
        "the whole model was captured in pieces, because it waits for the device",
        "{waits} waits",
        "the idle time in waits is in no sum",
    )
    FLAGGED_WHOLE = ("flagged-whole", "the whole model's measurement is flagged", "{flags}", BY_ANY_FACTOR)
    FLAGGED_OPERATORS = (
        "flagged-operators",
        "a part of the summed time is of flagged measurements; the next measurement of the model repeats them",
        "{time_ratio} ({operator}: {flags})",
        BY_ANY_FACTOR,
        ("time_ratio", FLAGGED_RATIO),
    )
    OTHER_WORK = (
        "other-work",
        "a part of the summed time is of operators that do other work alone than in the model",
        "{time_ratio} ({operator}: {flags})",
        "their cost can be off by any factor",
        ("time_ratio", FLAGGED_RATIO),
    )
    # Not shown by itself: the standard error has it.
    NOT_PRECISE = (
        "not-precise",
        "a part of the summed time is of measurements that did not reach their target precision",
        "{time_ratio}",
    )
    UNCORRECTED_SMALL = (
        "uncorrected-small",
        "no cache correction: that of models that move less than {stream_bytes} is not measured "
        "for this card and its software; the next measurement on this card adds it",
        "{moved_bytes}",
        BY_A_TENTH,
    )
    UNCORRECTED_UNKNOWN = (
        "uncorrected-unknown",
        "no cache correction: not measured for this card and its software; the next measurement on this card adds it",
        "",
        BY_A_TENTH,
    )
    CORRECTED_BY_OTHER_DTYPE = (
        "corrected-by-other-dtype",
        "the cache correction is that of operators in {dtype}, not of {precision}",
        "",
        "calls in another dtype find another share of their data in caches",
    )
    CORRECTED_BY_OTHER_KINDS = (
        "corrected-by-other-kinds",
        "{kinds} have the cache correction of other operators: their own is not measured for this "
        "card and its software; the next measurement on this card adds it",
        "",
        "the sum may be off by 2 %",
    )
    UNKNOWN_FLOP = (
        "unknown-flop",
        "operators of unknown FLOPs have the cache correction of operators without products; {reason}",
        "{time_ratio} of the summed time",
        "operators with products have another cache correction",
        ("time_ratio", SHARE_RATIO),
    )
    IN_NO_TUPLE = (
        "in-no-tuple",
        "operations are in no tuple: {operations}",
        "{missing_ratio} of FLOPs or bytes",
        "the sum lacks them",
    )
    KERNELS = (
        "kernels",
        "kernel time of operators alone, as a share of that in the model",
        "{alone_ratio} (magnitudes {absolute_ratio})",
        "",
        None,
        "; largest differences: {kinds}",
    )
    WHOLE_NOT_MEASURED = ("whole-not-measured", "the whole model is not measured", "", "only sums are compared")
    WHOLES_OF_TWO_BOARDS = (
        "wholes-of-two-boards",
        "whole models are of two boards, {board} and {other_board}",
        BOARDS_DIFFER,
        "boards differ",
    )
    OPERATORS_OF_TWO_BOARDS = (
        "operators-of-two-boards",
        "{time_ratio} of the time of operators in both conditions is of two boards",
        BOARDS_DIFFER,
        "boards differ",
    )
    TWO_EXECUTIONS = (
        "two-executions",
        "one whole model ran as a CUDA graph, the other eagerly, because a graph cannot capture it",
        "",
        "a graph has no launches",
    )
    NOT_MEASURED = (
        "not-measured",
        "{calls} calls of {operators} are not measured in one of both conditions, and are not in the sum",
        "",
        "the sum lacks them",
    )
    ABOVE_LIMIT = (
        "above-limit",
        "the sum draws more than the power limit: it has full clocks, and a run takes longer",
        "",
        "the sum is not the time of a run",
    )


@dataclass(frozen=True)
class Remark:
    """A remark: its kind and its figures by name.

    A name ends with the figure's unit: ``_ratio`` (a share), ``_s``, ``_bytes`` or ``_c``. ``time_ratio`` is the share
    of the summed time that the remark applies to. ``conditions`` is the side of two that it is on. None is an unknown
    figure.
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


def all_worded(remarks: Iterable[Remark]) -> str:
    """Return remarks as sentences on one line, for a cell of a table."""
    return " | ".join(map(str, remarks))


def _shown(name: str, figure: Figure) -> str:
    if figure is None:
        return "unknown"
    if isinstance(figure, str):
        return figure
    if isinstance(figure, tuple):
        return ", ".join(one if isinstance(one, str) else f"{one[0]} {100 * one[1]:+.1f} %" for one in figure)
    shown: Callable[[float], str] = next((shown for unit, shown in UNITS if name.endswith(unit)), str)
    return shown(figure)
