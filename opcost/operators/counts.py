"""Counts of a model's operator tuples (calls, FLOPs and bytes), those that a whitelist keeps, and the cases of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Annotated, Any, TypeAlias, TypeVar

from opcost.columns import COUNT, SHARE, Column, Columns, Values, grouped, one_of
from opcost.operators.input_roles import only_written, patterned_inputs, shown_inputs, shows_spread
from opcost.operators.reuse import FAR_BYTES, NearLimits, Reuse, state_of
from opcost.operators.texts import parse_value
from opcost.operators.tuples import (
    META,
    Count,
    OperatorTuple,
    Phase,
    PlainValue,
    distinct_specs,
    short_hash,
    value_text,
)
from opcost.operators.values import NORMAL, NORMAL_DATA, ZEROS_DATA, InputData, InputStatistics, Pattern, kind_of

SEPARATOR = "."


@dataclass(frozen=True)
class CalledModule:
    """A module of a model that calls operators, is one, or contains such modules.

    ``path`` is its name in ``named_modules``, such as ``layer1.0.conv1``; the model's own is empty. ``weights`` is the
    number of its parameters, those of its children included; each that is shared in it counts once. ``input_sizes`` and
    ``output_sizes`` are those of the tensors in its first call, as ``texts`` has them; None for a module that is
    an operator, whose tuple has them. ``saved_bytes`` is the memory that its own calls keep for the backward of a
    training step, without weights and the step's inputs; None for inference.
    """

    path: str
    class_name: str
    weights: Count
    input_sizes: str | None = None
    output_sizes: str | None = None
    saved_bytes: Count | None = None


def levels_of(path: str) -> int:
    """Return the number of names in a path: 0 for the model itself, 3 for ``layer1.0.conv1``."""
    return len(path.split(SEPARATOR)) if path else 0


def at_level(path: str, level: int) -> str:
    """Return the path of the module around a path that has so many names, or the path itself if it has no more."""
    return SEPARATOR.join(path.split(SEPARATOR)[:level])


COMPOSITES = ("MultiheadAttention", "TransformerEncoderLayer")
"""Classes of modules with children that are one operator each, because their own ``forward`` uses the children's
weights, in one kernel where possible. A config adds others with ``composites``."""

ValuesOfCall: TypeAlias = tuple[tuple[InputStatistics, ...], float, tuple[str, ...]]
"""The statistics of a call's inputs, the share of zeros in its weights, and the names of its patterns."""

PHASE = Column(
    "the part of a run: an inference pass, a whole training step, or its forward, backward or optimizer phase",
    one_of(*Phase),
    absent=Phase.INFERENCE,
)


@dataclass(frozen=True)
class CalledOperator:
    """An operator tuple with the number of its calls in one run of a model."""

    operator: OperatorTuple
    occurrences: Count


@dataclass(frozen=True)
class CountedCall:
    """The cost and the work of one call: fields of ``OperatorCount`` that are columns of the table, too.

    ``flop`` counts a multiply-add as two; it is None if operations without a formula ran, whose qualified names are in
    ``without_formula``. ``memory_bytes`` counts every distinct input and every output of each computing operation once,
    inputs as far as their values are asked for. ``outputs`` describes the result of the first call, ``operations`` its
    ATen operations, each with its number, ordered (none in counts of version 0.2).

    A field that is added has a default: older tables and pickles lack it.
    """

    flop: Annotated[
        int | None,
        Column(
            "floating-point operations of one call, empty if an operation without a formula runs in it; "
            "in the model's own row those of all other operations",
            COUNT,
            "FLOP",
        ),
    ]
    memory_bytes: Annotated[int, Column("bytes that one call reads and writes", COUNT)]
    outputs: Annotated[
        PlainValue, Column("description of the first call's output", read=parse_value, write=value_text)
    ] = None
    _: KW_ONLY
    without_formula: Annotated[
        tuple[str, ...],
        Column("operations without a formula for their FLOPs; in the model's own row with their calls and bytes"),
    ] = ()
    operations: Annotated[
        tuple[tuple[str, Count], ...],
        Column(
            "ATen operations of the first call that compute, each with its number, such as `clone 2`; "
            "empty if there are none or they are unknown, and in the model's own row",
            Values(
                "names and numbers",
                lambda found: all(re.fullmatch(r"\w+", name) and 0 < number < 1e9 for name, number in found),
            ),
        ),
    ] = ()
    phase: Annotated[Phase, PHASE] = Phase.INFERENCE
    weight_bytes: Annotated[
        int | None,
        Column("bytes of a module's own parameters and buffers; empty for functions, and if they are unknown", COUNT),
    ] = None


@dataclass(frozen=True)
class OperatorCount(CountedCall, CalledOperator):
    """The calls of one operator tuple in one run of a model.

    The fields of its own have an item for each call in order, or none if it is unknown or usual: ``statistics`` of its
    distinct floating-point inputs; ``weight_zeros``, the share of weights that a grid sets to zero; ``patterns``, the
    names of those of its indices, masks and loads; ``positions``, its place among all calls of the run, from 0 up;
    ``callers``, the index in ``OperatorCounts.modules`` of the module that is the operator, or for a function the
    innermost whose ``forward`` calls it; and ``reuse``, how far back its data and its code were used. Pickles have
    them; the table has input data with the calls on each instead.
    """

    statistics: tuple[tuple[InputStatistics, ...], ...] = ()
    positions: tuple[Count, ...] = ()
    callers: tuple[Count, ...] = ()
    weight_zeros: tuple[Annotated[float, SHARE], ...] = ()
    patterns: tuple[tuple[Annotated[str, one_of(*(pattern.value for pattern in Pattern))], ...], ...] = ()
    reuse: tuple[Reuse, ...] = ()

    def __getstate__(self) -> dict[str, object]:
        """Return the contents of a pickle: the fields alone, without cached values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def mistake(self) -> str | None:
        try:
            # This fails for inputs that the operator cannot have.
            inputs, patterned = len(shown_inputs(self.operator)), len(patterned_inputs(self.operator))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return f"it has an impossible call of {self.operator.short_name}"
        if (self.flop is None) != bool(self.without_formula):
            return "its FLOPs do not match its operations without a formula"
        for name in names_of_single_calls():
            if len(getattr(self, name)) not in (0, self.occurrences):
                return f"its {name} do not match its calls"
        if (self.weight_zeros or self.patterns) and not self.statistics:
            return "its values do not match its calls"
        has_inputs = all(len(call) == inputs for call in self.statistics)
        has_patterned = all(len(call) in (0, patterned) for call in self.patterns)
        return None if has_inputs and has_patterned else "its values do not match its inputs"

    @cached_property
    def input_sizes(self) -> tuple[int, ...]:
        """The bytes of each distinct tensor among the arguments, 0 for one that a call only writes; then the weights'.

        Of a table a call may read a few rows.
        """
        unread, most = only_written(self.operator), self.memory_bytes - self.written_bytes
        specs = distinct_specs(self.operator.arguments)
        sizes = [0 if spec.identity in unread else spec.memory_bytes for spec in specs]
        return tuple(min(size, most) for size in (*sizes, self.weight_bytes or 0))

    @cached_property
    def input_bytes(self) -> int:
        """The bytes that one call reads of its inputs and weights, without what it writes and reads in between."""
        return min(sum(self.input_sizes), self.memory_bytes - self.written_bytes)

    @cached_property
    def touched_bytes(self) -> int:
        """The bytes of the distinct memory that one call reads or writes, without what it needs in between."""
        if self.operator.is_in_place and not only_written(self.operator):
            return max(self.input_bytes, self.written_bytes)
        return self.input_bytes + self.written_bytes

    def read_from_memory(self, reuse: Reuse, limits: NearLimits) -> float:
        """Return the bytes that a call with these reuse distances reads from memory, and not from a cache."""
        inputs = zip((*reuse.inputs, reuse.weights or 0), self.input_sizes, strict=True)
        return min(limits.missed_bytes(inputs, self.touched_bytes), self.input_bytes)

    @cached_property
    def captured_data(self) -> Mapping[InputData, int]:
        """The input data of the calls, with the number of calls on each; empty without statistics."""
        calls: Counter[InputData] = Counter()
        # Many calls have the same statistics.
        for call, number in Counter(self._kinds_of_calls).items():
            calls[self._data_of[call]] += number
        return calls

    @cached_property
    def captured_cases(self) -> tuple[tuple[Case, int], ...]:
        """The cases of the calls on captured data; sums beside the wholes of several boards ask for them each time."""
        return tuple((Case(self.operator, one, self.phase), number) for one, number in self.captured_data.items())

    @property
    def data_of_calls(self) -> tuple[InputData, ...]:
        return tuple(self._data_of[call] for call in self._kinds_of_calls)

    @property
    def _kinds_of_calls(self) -> Iterator[ValuesOfCall]:
        calls = len(self.statistics)
        return zip(self.statistics, self.weight_zeros or (0.0,) * calls, self.patterns or ((),) * calls, strict=True)

    @cached_property
    def _data_of(self) -> Mapping[ValuesOfCall, InputData]:
        shown, with_spread = shown_inputs(self.operator), shows_spread(self.operator)
        found = {}
        for statistics, zeros, patterns in dict.fromkeys(self._kinds_of_calls):
            kinds = [kind_of(seen) if shows else NORMAL for seen, shows in zip(statistics, shown, strict=True)]
            kinds = kinds if with_spread else [kind.without_spread() for kind in kinds]
            weights = kind_of(InputStatistics(zeros, None, None)).zeros_ratio
            found[statistics, zeros, patterns] = InputData.of(kinds, weights, tuple(map(Pattern, patterns)))
        return found

    @property
    def output_bytes(self) -> int:
        """The bytes of the distinct tensors among the outputs, 0 if they are unknown."""
        return sum(spec.memory_bytes for spec in distinct_specs([self.outputs]))

    @cached_property
    def written_bytes(self) -> int:
        return min(self.output_bytes, self.memory_bytes)

    @property
    def computes(self) -> bool:
        """Whether a call computes or moves anything. Dropout in eval mode does not."""
        return self.flop is None or bool(self.flop or self.memory_bytes)


CallT = TypeVar("CallT", bound=CountedCall)


def completed(one: CallT, other: CountedCall) -> CallT:
    """Return a count whose fields at their default are those of another; older tables lack columns."""
    lacked = [field.name for field in fields(CountedCall) if getattr(one, field.name) == field.default]
    return replace(one, **{name: getattr(other, name) for name in lacked})


@cache
def names_of_single_calls() -> tuple[str, ...]:
    """Return the fields of ``OperatorCount`` that have an item for each call."""
    others = {field.name for base in (CountedCall, CalledOperator) for field in fields(base)}
    return tuple(field.name for field in fields(OperatorCount) if field.name not in others)


def without_single_calls(count: OperatorCount) -> OperatorCount:
    """Return a count without what is known of its single calls."""
    unknown: dict[str, Any] = dict.fromkeys(names_of_single_calls(), ())
    return replace(count, **unknown)


def memory_bytes_of(counts: Iterable[OperatorCount]) -> int:
    """Return the bytes that all calls of these operators move."""
    return sum(count.occurrences * count.memory_bytes for count in counts)


@dataclass(frozen=True)
class OperationWithoutFormula:
    """An operation without a formula for its FLOPs, such as ``aten::linalg_inv_ex``, in one run."""

    operation: str
    calls: Count
    memory_bytes: Count


NOTICED_RATIO = 0.99
"""The smallest share of a run in operators of which nothing is said."""

FORMULA_REMEDY = "register one with torch.utils.flop_counter.register_flop_formula"


def flop_missing_reason(operations: Iterable[str]) -> str | None:
    """Return the reason why FLOPs are unknown, given the operations without a formula; None if there are none."""
    names = list(operations)
    return f"no formula for the FLOPs of {', '.join(names)}" if names else None


@dataclass(frozen=True)
class RunTotals:
    """A model that was run once, with the totals of all operations of the run."""

    model: OperatorTuple
    counts: tuple[OperatorCount, ...]
    total_flop: Count
    total_memory_bytes: Count
    parameters: Count


@dataclass(frozen=True)
class CountedRun:
    """Fields of ``OperatorCounts`` that are columns of the table, too; those with a default in the model's own row."""

    torch_version: Annotated[str, Column("version of torch that the model was counted with")]
    device_type: Annotated[
        str, Column("device that the model was counted on: `cpu`, `cuda` or `meta`", name="counted_on")
    ]
    _: KW_ONLY
    outside: Annotated[
        tuple[str, ...], Column("operations outside every operator tuple, in the model's own row only")
    ] = ()
    composites: Annotated[tuple[str, ...], Column("classes counted as one operator, in the model's own row only")] = ()
    library: Annotated[
        str | None, Column("library that the model comes from with its version, in the model's own row only")
    ] = None


@dataclass(frozen=True)
class OperatorCounts(CountedRun, RunTotals):
    """All operator tuples of one model run, with the totals of the run, operations ``outside`` of tuples included.

    ``device_type`` is that of the run: ``meta`` (shapes only), ``cpu`` or ``cuda``. ``composites`` are the classes of
    modules that were counted as one operator each, besides ``COMPOSITES``. With operations ``without_formula``,
    ``total_flop`` is that of the others, the least that the model has. ``modules`` are those that call operators, in
    the order of ``named_modules``; they are empty if unknown, as in counts before 0.3 and in the database's table.
    ``used_bytes`` are those of distinct memory that the whole run uses, also of a part of its counts; None if unknown.
    """

    _: KW_ONLY
    without_formula: tuple[OperationWithoutFormula, ...] = ()
    modules: tuple[CalledModule, ...] = ()
    used_bytes: Count | None = field(default=None, compare=False)

    @property
    def mistake(self) -> str | None:
        paths = {module.path for module in self.modules}
        if paths and not {"", *(at_level(path, levels_of(path) - 1) for path in paths if path)} <= paths:
            return "it has a module in an unknown one"
        for count in self.counts:
            if {len(count.positions), len(count.callers)} != {count.occurrences if self.modules else 0}:
                return "its modules do not match its calls"
            if any(caller >= len(self.modules) for caller in count.callers):
                return "it has a call of an unknown module"
        return None

    @property
    def flop_missing_reason(self) -> str | None:
        return flop_missing_reason(one.operation for one in self.without_formula)

    @property
    def has_values(self) -> bool:
        """Whether the values of the inputs are known: of those of a run, or of those that a grid names."""
        return self.device_type != META or any(count.statistics for count in self.counts)

    @property
    def operator_calls(self) -> int:
        return sum(count.occurrences for count in self.counts)

    @property
    def function_calls(self) -> int:
        return sum(count.occurrences for count in self.counts if count.operator.is_function)

    @property
    def flop(self) -> int | None:
        """Floating-point operations inside the counted operators; None if those of one are unknown."""
        known = [count.occurrences * count.flop for count in self.counts if count.flop is not None]
        return sum(known) if len(known) == len(self.counts) else None

    @property
    def memory_bytes(self) -> int:
        return memory_bytes_of(self.counts)

    @property
    def covered_ratio(self) -> float:
        """The share of the run that is inside the counted operators, the smaller of FLOPs, if known, and bytes."""
        pairs = ((self.flop, self.total_flop), (self.memory_bytes, self.total_memory_bytes))
        return min((part / whole for part, whole in pairs if whole and part is not None), default=1.0)

    @property
    def missing_ratio(self) -> float | None:
        return 1 - self.covered_ratio if self.covered_ratio < NOTICED_RATIO else None


def is_leaf(operator: OperatorTuple, composites: Collection[str] = ()) -> bool:
    """Return whether an operator is a module without children, which a hook on leaf modules sees."""
    return not operator.is_function and operator.short_name not in (*COMPOSITES, *composites)


# The whitelist, and the share of a model that it keeps

EVERYTHING = "*"
"""Entry of a whitelist that keeps every operator that computes something."""


@dataclass(frozen=True)
class Share:
    """A part of a model; a share is None if the model's total is 0 or unknown (operations without a formula)."""

    calls: int
    calls_ratio: float | None
    flop_ratio: float | None
    memory_bytes_ratio: float | None


@dataclass(frozen=True)
class Selection:
    """A model's operator tuples, split into those that a whitelist keeps and those that it drops."""

    kept: OperatorCounts
    dropped: OperatorCounts


def names_kept(whitelist: Collection[str], counts: Iterable[OperatorCount]) -> tuple[str, ...]:
    """Return the names of a whitelist. If it keeps everything, names of all operators that compute are added."""
    names = [name for name in whitelist if name != EVERYTHING]
    present = {count.operator.short_name for count in counts if count.computes}
    return tuple(dict.fromkeys([*names, *(sorted(present) if EVERYTHING in whitelist else ())]))


def select(counts: OperatorCounts, whitelist: Collection[str]) -> Selection:
    """Split counts by a whitelist of operator names such as ``Conv2d``, matched to the name's last component."""
    names = frozenset(whitelist)
    kept: list[OperatorCount] = []
    dropped: list[OperatorCount] = []
    for count in counts.counts:
        # A whitelist has names of modules and functions. A backward and an optimiser run torch's operations.
        is_all = EVERYTHING in names or count.phase in (Phase.BACKWARD, Phase.OPTIMIZER)
        is_kept = count.operator.short_name in names or (is_all and count.computes)
        (kept if is_kept else dropped).append(count)
    of_run = used_bytes(counts)
    return Selection(*(replace(counts, counts=tuple(part), used_bytes=of_run) for part in (kept, dropped)))


def used_bytes(counts: OperatorCounts) -> int:
    """Return the bytes of distinct memory that a run uses: those of weights and between two uses of them.

    Without weights they are the longest distance of all, of unknown ones ``FAR_BYTES``.
    """
    if counts.used_bytes is not None:
        return counts.used_bytes
    calls = [(count, one) for count in counts.counts if count.computes for one in count.reuse]
    weights = [one.weights + (count.weight_bytes or 0) for count, one in calls if one.weights is not None]
    others = (far for _, one in calls for far in (*one.inputs, one.code_bytes or 0))
    return max(weights or others, default=FAR_BYTES)


def of_phase(selection: Selection, phase: Phase) -> Selection:
    """Return a selection reduced to the operators of one phase, as if these were all; of a whole run as it is."""
    if not phase.is_part:
        return selection
    kept, dropped = (
        tuple(count for count in part.counts if count.phase is phase) for part in (selection.kept, selection.dropped)
    )
    every = replace(selection.kept, counts=(*kept, *dropped), outside=())
    if every.flop is not None:
        every = replace(every, without_formula=())
    flop = sum(count.occurrences * (count.flop or 0) for count in every.counts)
    every = replace(every, total_flop=flop, total_memory_bytes=every.memory_bytes)
    return Selection(replace(every, counts=kept), replace(every, counts=dropped))


def _ratio(part: float | None, whole: float) -> float | None:
    # That of ``estimates`` imports numpy, and ``--help`` answers before anything is installed.
    return None if part is None or not whole else part / whole


def share(part: Iterable[OperatorCount], whole: OperatorCounts) -> Share:
    """Return the share of a model that some of its tuples have."""
    chosen = replace(whole, counts=tuple(part))
    return Share(
        calls=chosen.operator_calls,
        calls_ratio=_ratio(chosen.operator_calls, whole.operator_calls),
        flop_ratio=None if whole.without_formula else _ratio(chosen.flop, whole.total_flop),
        memory_bytes_ratio=_ratio(chosen.memory_bytes, whole.total_memory_bytes),
    )


def outside(whole: OperatorCounts) -> Share:
    """Return the share of a model's operations outside every counted operator; these have no calls."""
    return Share(
        calls=0,
        calls_ratio=None,
        flop_ratio=None if whole.without_formula else _ratio(whole.total_flop - (whole.flop or 0), whole.total_flop),
        memory_bytes_ratio=_ratio(whole.total_memory_bytes - whole.memory_bytes, whole.total_memory_bytes),
    )


CountsByPhase: TypeAlias = Mapping[tuple[str, Phase], OperatorCount]
"""Counts by the operator's key and the phase: a call in a training step may run other operations than at inference."""


def by_operator(counts: OperatorCounts) -> dict[str, tuple[OperatorCount, ...]]:
    """Return the counts by operator name, in descending order of the bytes that all calls of a name move."""
    groups = grouped(counts.counts, lambda count: count.operator.short_name)
    ordered = sorted(groups.items(), key=lambda item: (-memory_bytes_of(item[1]), item[0]))
    return {name: tuple(group) for name, group in ordered}


# Cases: operator tuples on one kind of input data each, and the cases of a model


MODEL = Column("the model's folder in measurements/, or the case of its config")
OPERATOR = Column("the operator tuple's name, such as `torch.nn.Conv2d`; a whole model is stored as an operator, too")
PARAMETERS = Column("the operator tuple's parameters")
INPUTS = Column("the operator tuple's inputs")
TRAINING_MODE = Column("`eval` or `train`; empty for functions")
INPUT_VALUES = Column(
    "the values of the inputs: `normal` (standard normal), `zeros`, or as captured in a model, one kind for each "
    "floating-point input, the last for the rest: `captured: 0.5 zeros, normal`; patterns of indices and masks follow: "
    "`captured: normal; patterns zipf`; zeros that a grid sets in weights "
    "come last: `captured: normal; weights 0.9 zeros`"
)

CAPTURED = "captured"
INPUT_DATA = (CAPTURED, "normal", "zeros")
"""The choices of input data: the statistics captured in the model, standard normal values, or zeros."""

ALL, LEAF = COUNTED = ("all", "leaf")
"""The choices of operators to sum: all, or modules without children only."""


@dataclass(frozen=True)
class Case:
    """An operator tuple on one kind of input data in a phase, and what was counted of it, on which type of device.

    ``state`` is that of the caches at the call; empty: as the previous call of the same case leaves them.
    ``read_bytes`` is what its calls in a run read from memory in the mean (None: all that they read), and
    ``written_ratio`` the share of their results that goes to memory before it is written over; ``far_launches_ratio``
    is the share of their launches that come from memory.
    """

    operator: OperatorTuple
    input_data: InputData = NORMAL_DATA
    phase: Phase = Phase.INFERENCE
    state: str = ""
    read_bytes: float | None = field(default=None, compare=False, repr=False)
    written_ratio: float = field(default=1.0, compare=False, repr=False)
    far_launches_ratio: float = field(default=1.0, compare=False, repr=False)
    counted: OperatorCount | None = field(default=None, compare=False, repr=False)
    counted_on: str = field(default="", compare=False, repr=False)

    @cached_property
    def key(self) -> str:
        """The tuple's key and the hash of all else; a default phase or state is in no hash, so that older keys stay."""
        phase = "" if self.phase is Phase.INFERENCE else f"\nphase={self.phase}"
        state = f"\nstate={self.state}" if self.state else ""
        return f"{self.operator.key}-{short_hash(f'{self.input_data}{phase}{state}')}"


STATE = Column(
    "what each call finds near or far, of its inputs in order, its weights and its code: `inputs near far, code far`; "
    "empty: what the previous call of the same case left in caches"
)


@dataclass(frozen=True, kw_only=True)
class CaseColumns(Columns):
    """The columns of rows that describe their case."""

    operator: Annotated[str, OPERATOR]
    parameters: Annotated[str, PARAMETERS]
    inputs: Annotated[str, INPUTS]
    training_mode: Annotated[str | None, TRAINING_MODE]
    input_data: Annotated[str, INPUT_VALUES]
    phase: Annotated[Phase, PHASE]
    state: Annotated[str | None, STATE] = None


def case_columns(case: Case) -> dict[str, Any]:
    """Return the values of ``CaseColumns``."""
    operator = case.operator
    return {
        "operator": operator.operator,
        "parameters": operator.parameters_text,
        "inputs": operator.inputs_text,
        "training_mode": operator.mode,
        "input_data": str(case.input_data),
        "phase": case.phase,
        "state": case.state or None,
    }


def of_operators(operators: Iterable[OperatorTuple]) -> Callable[[str], bool]:
    """Return a test of row keys: true for rows of these operators, on any input data, under any conditions."""
    keys = {operator.key for operator in operators}
    return lambda key: tuple_key(key) in keys


def cases_of(counts: Iterable[OperatorCount], input_data: str, limits: NearLimits | None = None) -> Counter[Case]:
    """Return the cases to measure, with the calls of each, on one of ``INPUT_DATA``; normal without statistics.

    With a card's ``limits``, calls that compute are in their states, as far as their reuse distances are known.
    """
    calls: Counter[Case] = Counter()
    for count in counts:
        for case, number in cases_of_count(count, input_data, limits):
            calls[case] += number
    return calls


def cases_of_count(
    count: OperatorCount, input_data: str, limits: NearLimits | None = None
) -> Sequence[tuple[Case, int]]:
    """Return the cases of one operator tuple with the number of calls of each, see ``cases_of``."""
    data: Mapping[InputData, int]
    is_captured = input_data == CAPTURED and bool(count.statistics)
    if is_captured and limits is None:
        return count.captured_cases
    if is_captured:
        data = count.captured_data
    else:
        is_zeros = input_data == "zeros" and any(shown_inputs(count.operator))
        data = {ZEROS_DATA if is_zeros else NORMAL_DATA: count.occurrences}
    if limits is None or not count.reuse or not count.computes:
        return [(Case(count.operator, one, count.phase), number) for one, number in data.items()]
    of_calls = count.data_of_calls if is_captured else tuple(data) * count.occurrences
    found: dict[Case, list[Reuse]] = {}
    for one, reuse in zip(of_calls, count.reuse, strict=True):
        state = state_of(count.operator, reuse, limits)
        case = Case(count.operator, one, count.phase, "" if state is None else str(state))
        found.setdefault(case, []).append(reuse)
    return [(_with_traffic(case, count, reuses, limits), len(reuses)) for case, reuses in found.items()]


def _with_traffic(case: Case, count: OperatorCount, reuses: Sequence[Reuse], limits: NearLimits) -> Case:
    """Return a case in a state with the bytes that its calls read from memory and write to it."""
    if not case.state:
        return case
    read_bytes = written = 0.0
    for one, calls in Counter(reuses).items():
        read_bytes += calls * count.read_from_memory(one, limits)
        written += calls * (1.0 if one.outputs is None else limits.missed_ratio(one.outputs + count.written_bytes))
    return replace(case, read_bytes=read_bytes / len(reuses), written_ratio=written / len(reuses))


def as_counted(cases: Iterable[Case], counts: OperatorCounts) -> tuple[Case, ...]:
    """Return cases of a model, each with what was counted of its operator."""
    found = {(one.operator, one.phase): without_single_calls(one) for one in counts.counts}
    device = counts.device_type
    return tuple(replace(case, counted=found[case.operator, case.phase], counted_on=device) for case in cases)


KEY_SEPARATOR = "-"


def tuple_key(key: str) -> str:
    """Return the key of the operator tuple in the key of a row or of a case."""
    return key.partition(KEY_SEPARATOR)[0]


def case_key(key: str) -> str:
    """Return the key of the case, operator tuple and input data, in the key of a row."""
    return key.rpartition(KEY_SEPARATOR)[0]


def conditions_key(key: str) -> str:
    """Return the key of the conditions in the key of a row."""
    return key.rpartition(KEY_SEPARATOR)[2]
