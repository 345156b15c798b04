"""What is measured: an operator on a kind of values, and which of them a model's counts ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opcost.operators.counts import OperatorCount
from opcost.operators.input_roles import shown_inputs, shows_spread
from opcost.operators.tuples import OperatorTuple, short_hash
from opcost.operators.values import NORMAL, NORMAL_DATA, ZEROS_DATA, InputData, InputStatistics, kind_of

CAPTURED = "captured"
INPUT_DATA = (CAPTURED, "normal", "zeros")
"""What operators may be measured on: values such as they saw in their model, normal ones, or zeros."""

ALL, LEAF = COUNTED = ("all", "leaf")
"""Which operators of a model are summed: all, or those of modules without children."""


@dataclass(frozen=True)
class Case:
    """An operator on a kind of values."""

    operator: OperatorTuple
    input_data: InputData = NORMAL_DATA

    @property
    def key(self) -> str:
        """The operator's key and 16 hexadecimal digits for the kind of values, joined by a hyphen."""
        return f"{self.operator.key}-{short_hash(str(self.input_data))}"


def of_operators(operators: Iterable[OperatorTuple]) -> Callable[[str], bool]:
    """Return a test of row keys: is it a row of one of these operators, on any values, under any conditions?."""
    keys = {operator.key for operator in operators}
    return lambda key: key.partition("-")[0] in keys


def cases_of(counts: Iterable[OperatorCount], input_data: str) -> Counter[Case]:
    """Return what to measure for these counts, and how many calls each stands for.

    Args:
        counts: of operators.
        input_data: one of ``INPUT_DATA``. Calls that were not looked at are taken to be normal, and so are those of
            operators on whose values nothing depends.
    """
    calls: Counter[Case] = Counter()
    for count in counts:
        for data, number in _data_of(count, input_data).items():
            calls[Case(count.operator, data)] += number
    return calls


def _data_of(count: OperatorCount, input_data: str) -> Counter[InputData]:
    shown = shown_inputs(count.operator)
    if input_data == CAPTURED and count.statistics:
        return Counter(_data_of_call(call, shown, shows_spread(count.operator)) for call in count.statistics)
    is_zeros = input_data == "zeros" and any(shown)
    return Counter({ZEROS_DATA if is_zeros else NORMAL_DATA: count.occurrences})


def _data_of_call(call: Iterable[InputStatistics], shown: Iterable[bool], with_spread: bool) -> InputData:
    kinds = [kind_of(seen) if shows else NORMAL for seen, shows in zip(call, shown, strict=True)]
    return InputData.of(kinds if with_spread else [kind.without_spread() for kind in kinds])
