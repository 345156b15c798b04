"""The operator tuple and its counts: the values that flow through the pipeline.

An operator tuple is what the cost of a call depends on: the operator, its parameters, and the shapes, dtypes and
memory layouts of its inputs. It is plain data, so that it can be pickled, printed on one line, hashed into a key that
does not change from one torch version to the next, and run again in another process. Weights, values, names and
object ids are no part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

PlainValue: TypeAlias = Union[bool, int, float, str, "TensorSpec", tuple["PlainValue", ...], None]
"""What parameters and inputs are made of. Lists are stored as tuples."""

TORCHVISION_MODELS = "torchvision.models."


@dataclass(frozen=True)
class TensorSpec:
    """A tensor input without its values.

    ``strides`` (in elements) is None for a contiguous tensor. ``identity`` numbers the distinct tensors of one call
    in order of first appearance: two specs with equal identity are the same tensor, as in attention's (x, x, x).
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    identity: int = 0

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{self._layout()}"

    def _layout(self) -> str:
        if self.strides is None:
            return ""
        if self.strides == channels_last_strides(self.shape):
            return ":channels_last"
        return f":strides({', '.join(map(str, self.strides))})"


@dataclass(frozen=True)
class OperatorTuple:
    """One operator with its parameters and the sizes of its inputs.

    ``operator`` is a qualified name (``torch.nn.Conv2d``; ``torchvision.models.resnet18`` for a whole model).
    ``parameters`` are the constructor's arguments by name, those equal to the default left out.
    ``mode`` is ``eval`` or ``train``.
    """

    operator: str
    parameters: tuple[tuple[str, PlainValue], ...] = ()
    inputs: tuple[PlainValue, ...] = ()
    keyword_inputs: tuple[tuple[str, PlainValue], ...] = ()
    mode: str = "eval"

    def __str__(self) -> str:
        return f"{self.operator}({self.parameters_text}) on ({self.inputs_text}) {self.mode}"

    @property
    def short_name(self) -> str:
        """The last component of the operator's name, as whitelists spell it: ``Conv2d``."""
        return self.operator.rpartition(".")[2]

    @property
    def parameters_text(self) -> str:
        """The parameters on one line: ``in_channels=3, out_channels=64, kernel_size=(7, 7)``."""
        return _keyword_text(self.parameters, shared=frozenset())

    @property
    def inputs_text(self) -> str:
        """The inputs on one line; a tensor that is passed more than once carries its number: ``...#0``."""
        shared = _shared_identities([*self.inputs, *(value for _, value in self.keyword_inputs)])
        texts = [_value_text(value, shared) for value in self.inputs]
        if self.keyword_inputs:
            texts.append(_keyword_text(self.keyword_inputs, shared))
        return ", ".join(texts)

    @property
    def key(self) -> str:
        """16 hexadecimal digits (64 bits of SHA-256) of the one-line text: equal for equal tuples, everywhere."""
        return short_hash(str(self))


@dataclass(frozen=True)
class OperatorCount:
    """How often a model calls one operator tuple in one run, and what one call computes and moves.

    ``flop`` counts a multiply-add as two operations; ``memory_bytes`` counts every distinct input of each computing
    operation once and every output once.
    """

    operator: OperatorTuple
    occurrences: int
    flop: int
    memory_bytes: int


@dataclass(frozen=True)
class OperatorCounts:
    """All operator tuples of one model run, with the totals of the whole run.

    ``model`` describes the whole model as an operator tuple. The totals include what runs outside every counted
    operator, so shares of them are shares of the model.
    """

    model: OperatorTuple
    counts: tuple[OperatorCount, ...]
    total_flop: int
    total_memory_bytes: int
    parameters: int
    torch_version: str

    @property
    def operator_calls(self) -> int:
        """The number of calls, each occurrence counted."""
        return sum(count.occurrences for count in self.counts)

    @property
    def flop(self) -> int:
        """Floating-point operations inside the counted operators."""
        return sum(count.occurrences * count.flop for count in self.counts)

    @property
    def memory_bytes(self) -> int:
        """Bytes moved inside the counted operators."""
        return sum(count.occurrences * count.memory_bytes for count in self.counts)


def model_operator(model_name: str, weights_name: str | None, input_size: Sequence[int]) -> OperatorTuple:
    """Return the tuple that describes a whole torchvision model with its weights and its input, batch first.

    Weights go by their member's name, with or without that of the enum: ``ResNet50_Weights.IMAGENET1K_V1``.
    """
    parameters = () if weights_name is None else (("weights", weights_name.rpartition(".")[2]),)
    return OperatorTuple(TORCHVISION_MODELS + model_name, parameters, (TensorSpec(tuple(input_size), "float32"),))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides in elements of a contiguous tensor of this shape."""
    return _dense_strides(shape, order=range(len(shape) - 1, -1, -1))


def channels_last_strides(shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides in elements of a channels-last tensor, None for a shape without spatial dimensions."""
    if len(shape) not in (4, 5):
        return None
    return _dense_strides(shape, order=[1, *range(len(shape) - 1, 1, -1), 0])


def short_hash(text: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _dense_strides(shape: Sequence[int], order: Iterable[int]) -> tuple[int, ...]:
    """Return strides for dimensions laid out densely, ``order`` naming them from the innermost to the outermost."""
    strides = [0] * len(shape)
    step = 1
    for dimension in order:
        strides[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(strides)


def _keyword_text(items: Iterable[tuple[str, PlainValue]], shared: frozenset[int]) -> str:
    return ", ".join(f"{name}={_value_text(value, shared)}" for name, value in items)


def _value_text(value: PlainValue, shared: frozenset[int]) -> str:
    if isinstance(value, TensorSpec):
        return f"{value}#{value.identity}" if value.identity in shared else str(value)
    if isinstance(value, tuple):
        inner = ", ".join(_value_text(item, shared) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _shared_identities(values: Iterable[PlainValue]) -> frozenset[int]:
    identities = [spec.identity for spec in tensor_specs(values)]
    return frozenset(identity for identity in identities if identities.count(identity) > 1)


def tensor_specs(values: Iterable[PlainValue]) -> list[TensorSpec]:
    """Return all tensor specs among the values, nested ones included, in order."""
    specs: list[TensorSpec] = []
    for value in values:
        if isinstance(value, TensorSpec):
            specs.append(value)
        elif isinstance(value, tuple):
            specs.extend(tensor_specs(value))
    return specs
