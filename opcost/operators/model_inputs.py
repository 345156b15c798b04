"""Inputs of whole models as a config describes them (trees of tensors, numbers and texts), and units of their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod

from opcost.operators.tuples import VALUES, OperatorTuple, PlainValue, TensorSpec, tensor_specs

NORMAL, ZEROS, ONES, CAUSAL = "normal", "zeros", "ones", "causal"
NAMED_VALUES = (NORMAL, ZEROS, ONES, CAUSAL)
"""Values of a tensor by name. ``causal`` is a mask of attention: 1 on and below the diagonal of the last two
dimensions, 0 above; in floating point 0 and minus infinity, to be added to the scores."""

POSITIVE_DEFINITE = "positive definite"
"""Values that only operators need: matrices that have a Cholesky factor."""

LENGTHS, BOUNDARIES = "lengths", "boundaries"
"""The first item of values that only operators need, before 0 and the end of a range: the lengths of segments
of about one size that take it up, or their boundaries, both ends included; along the last dimension."""

IN_WINDOWS = "in windows"
"""The first item of values that only operators need: of each place of a pooled tensor, that of an element of its window
in the plane that was pooled. A step's numerator and denominator with an offset of each dimension follow, then the
sizes."""

INTEGERS, UNIFORM = "integers", "uniform"
"""The first item of values in a range, before its ends: uniformly distributed from the first to below the second."""

USUAL_BOUND = 2
"""The upper bound of integers if none is given: they are valid indices into every dimension of at least this size."""


class Unit(str, Enum):
    """The unit that the costs of a run are divided by. A sample is an image, a text, a clip, or a pair of frames."""

    SAMPLE = "sample"
    TOKEN = "token"
    PIXEL = "pixel"

    def __str__(self) -> str:
        return self.value

    def number_in(self, input_size: Sequence[int]) -> int | None:
        """Return the units in an input, batch first: samples, tokens of sequences, or pixels; None of too few sizes."""
        # The length stands behind the batch, height and width at the end.
        sides = {Unit.SAMPLE: slice(0), Unit.TOKEN: slice(1, 2), Unit.PIXEL: slice(-2, None)}[self]
        needed = {Unit.SAMPLE: 1, Unit.TOKEN: 2, Unit.PIXEL: 3}[self]
        return input_size[0] * prod(input_size[sides]) if len(input_size) >= needed else None


@dataclass(frozen=True)
class Units:
    """The number of units that one run computes."""

    number: int
    unit: Unit = Unit.SAMPLE


@dataclass(frozen=True)
class DescribedInputs:
    """A model's inputs, and each tensor's values: of ``NAMED_VALUES``, or (``INTEGERS`` or ``UNIFORM``, first, end)."""

    positional: tuple[PlainValue, ...] = ()
    keyword: tuple[tuple[str, PlainValue], ...] = ()
    values: tuple[PlainValue, ...] = ()

    def given_to(self, model: OperatorTuple) -> OperatorTuple:
        parameters = (*model.parameters, *(((VALUES, self.values),) if self.values else ()))
        return replace(model, parameters=parameters, inputs=self.positional, keyword_inputs=self.keyword)

    @property
    def is_one_tensor(self) -> bool:
        return not self.keyword and len(self.positional) == 1 and isinstance(self.positional[0], TensorSpec)

    @property
    def shape(self) -> tuple[int, ...]:
        specs = tensor_specs([*self.positional, *(value for _, value in self.keyword)])
        return specs[0].shape if specs else ()


def values_of(model: OperatorTuple) -> Mapping[int, PlainValue]:
    """Return the described values of a whole model's tensors by their identities; the others have the usual ones."""
    values = dict(model.parameters).get(VALUES, ())
    return dict(enumerate(values)) if isinstance(values, tuple) else {}
