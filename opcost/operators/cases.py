"""Cases: operator tuples on one kind of input data each, and the cases of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from opcost.columns import Column
from opcost.operators.counts import OperatorCount, OperatorCounts, without_single_calls
from opcost.operators.input_roles import shown_inputs
from opcost.operators.tuples import OperatorTuple, Phase, short_hash
from opcost.operators.values import NORMAL_DATA, ZEROS_DATA, InputData

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
class Counted:
    """The count of an operator tuple, without what is known of its single calls, and the type of its device."""

    count: OperatorCount
    device_type: str


@dataclass(frozen=True)
class Case:
    """An operator tuple on one kind of input data in a phase, and what was counted of it if that is to be compared.

    ``state`` is that of the caches at the call; empty: as the previous call of the same case leaves them.
    """

    operator: OperatorTuple
    input_data: InputData = NORMAL_DATA
    phase: Phase = Phase.INFERENCE
    state: str = ""
    counted: Counted | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> str:
        """The operator tuple's key and 16 hexadecimal digits of the hash of all else, joined by a hyphen.

        A phase and a state at their default are in no hash, so that rows from before they existed keep their keys.
        """
        phase = "" if self.phase is Phase.INFERENCE else f"\nphase={self.phase}"
        state = f"\nstate={self.state}" if self.state else ""
        return f"{self.operator.key}-{short_hash(f'{self.input_data}{phase}{state}')}"


def of_operators(operators: Iterable[OperatorTuple]) -> Callable[[str], bool]:
    """Return a test of row keys: true for rows of these operators, on any input data, under any conditions."""
    keys = {operator.key for operator in operators}
    return lambda key: tuple_key(key) in keys


def cases_of(counts: Iterable[OperatorCount], input_data: str) -> Counter[Case]:
    """Return the cases to measure, with the calls of each, on one of ``INPUT_DATA``; normal without statistics."""
    calls: Counter[Case] = Counter()
    for count in counts:
        for case, number in cases_of_count(count, input_data):
            calls[case] += number
    return calls


def cases_of_count(count: OperatorCount, input_data: str) -> list[tuple[Case, int]]:
    """Return the cases of one operator tuple with the number of calls of each, see ``cases_of``."""
    data: Mapping[InputData, int]
    if input_data == CAPTURED and count.statistics:
        data = count.captured_data
    else:
        is_zeros = input_data == "zeros" and any(shown_inputs(count.operator))
        data = {ZEROS_DATA if is_zeros else NORMAL_DATA: count.occurrences}
    return [(Case(count.operator, one, count.phase), number) for one, number in data.items()]


def as_counted(cases: Iterable[Case], counts: OperatorCounts) -> tuple[Case, ...]:
    """Return cases of a model, each with what was counted of its operator."""
    device = counts.device_type
    found = {(one.operator, one.phase): Counted(without_single_calls(one), device) for one in counts.counts}
    return tuple(replace(case, counted=found[case.operator, case.phase]) for case in cases)


SEPARATOR = "-"


def tuple_key(key: str) -> str:
    """Return the key of the operator tuple in the key of a row or of a case."""
    return key.partition(SEPARATOR)[0]


def case_key(key: str) -> str:
    """Return the key of the case, operator tuple and input data, in the key of a row."""
    return key.rpartition(SEPARATOR)[0]


def conditions_key(key: str) -> str:
    """Return the key of the conditions in the key of a row."""
    return key.rpartition(SEPARATOR)[2]
