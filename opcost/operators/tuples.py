"""The operator tuple: an operator, its parameters, and the shapes, dtypes and memory layouts of its inputs.

It is plain data, and its key is the same for all torch versions. Weights, values, names and object ids are no part.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cached_property
from typing import Annotated, TypeAlias

from opcost.columns import ANYTHING, COUNT, INTEGER_LIMIT
from opcost.operators.model_names import (
    FILE,
    GRID,
    OBJECT,
    SOURCES_OF_ANY_CASE,
    SOURCES_OF_TEXT,
    TORCHVISION,
    ModelName,
)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides in elements of a contiguous tensor of this shape."""
    return _dense_strides(shape, order=range(len(shape) - 1, -1, -1))


def channels_last_strides(shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides in elements of a channels-last tensor, None for a shape without spatial dimensions."""
    if len(shape) not in (4, 5):
        return None
    return _dense_strides(shape, order=[1, *range(len(shape) - 1, 1, -1), 0])


def _dense_strides(shape: Sequence[int], order: Iterable[int]) -> tuple[int, ...]:
    """Return strides for dimensions laid out densely, ``order`` naming them from the innermost to the outermost."""
    strides = [0] * len(shape)
    step = 1
    for dimension in order:
        strides[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(strides)


TORCHVISION_MODELS = "torchvision.models."
MODEL_PACKAGES = {
    TORCHVISION: TORCHVISION_MODELS,
    "timm": "timm.",
    "transformers": "transformers.",
    FILE: f"{FILE}.",
    OBJECT: f"{OBJECT}.",
    GRID: f"{GRID}.",
}
"""The prefix of whole models' names, by source (``model_names``)."""

LIBRARIES = ("timm", "transformers")
"""The packages of models whose versions run other operators for the same model; torchvision's goes with torch's."""

DEFAULT_SEED = 0

FLOAT32 = "float32"

AUTOCAST = "autocast"
ATTENTION = "attention"
"""The parameter of a whole model that names the dtype of autocast; a model without it runs without autocast."""

DTYPE = "dtype"
MEMORY_FORMAT = "memory_format"
"""Parameters that say how weights are stored, if not contiguous in float32. A whole model stores its weights like its
first floating-point input, and has a parameter only where they differ (``stored_as``)."""

REQUIRES_GRAD = "requires_grad"
"""The parameter of a product with the place of a matrix that requires gradients, where that changes what runs."""

ARGUMENTS = "arguments"
"""The parameter of a whole model with the keyword arguments of the function or class that builds it."""

VALUES = "values"
"""The parameter of a whole model with the values of its inputs (``model_inputs``), if any are not the usual ones."""

META = "meta"
"""torch's device for tensors without memory."""

ELLIPSIS = "..."
"""The name of the constant for ``Ellipsis`` in an index."""

Count: TypeAlias = Annotated[int, COUNT]

MOST_DIMENSIONS = 64
"""torch's own limit."""

SIZE_IN_NAME = re.compile(r"_\d+(x\d+)+(?![^\W_])")
"""The input size in a config's name, such as ``_32x3x224x224`` in ``resnet50_32x3x224x224_bf16``, but not ``_32x4d`` of
a ResNeXt."""

FLOATING_BITS = re.compile(r"b?float(\d+)")
BITS = re.compile(r"\d+")
"""Matches the number of bits in a dtype's name: ``bfloat16``."""


class Phase(str, Enum):
    """The part of a run that a call belongs to: an inference pass, a training step, or one of its parts."""

    INFERENCE = "inference"
    STEP = "step"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a training step, not a whole run."""
        return self not in (Phase.INFERENCE, Phase.STEP)

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class TensorSpec:
    """A tensor input without its values; ``strides`` (in elements) is None for a contiguous one.

    ``identity`` numbers the distinct tensors of one call in order of first appearance: two specs with equal identity
    are the same tensor, as in attention's (x, x, x).
    """

    shape: tuple[Count, ...]
    dtype: str
    strides: tuple[Count, ...] | None = None
    identity: Count = 0

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        if self.strides is None:
            return text
        if self.strides == channels_last_strides(self.shape):
            return f"{text}:channels_last"
        return f"{text}:strides({', '.join(map(str, self.strides))})"

    @property
    def mistake(self) -> str | None:
        has_strides = self.strides is None or len(self.strides) == len(self.shape)
        is_possible = has_strides and len(self.shape) <= MOST_DIMENSIONS and self.elements < INTEGER_LIMIT
        return None if is_possible else "its TensorSpec has an impossible layout"

    @property
    def is_floating(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def floating_bytes(self) -> int:
        """The bytes of all values, 0 if the dtype is not floating-point."""
        bits = FLOATING_BITS.match(self.dtype)
        return 0 if bits is None else self.elements * int(bits[1]) // 8

    @property
    def memory_bytes(self) -> int:
        """The bytes of all values in memory, expanded ones once; one for each of ``bool``, which names no bits."""
        strides = self.strides or (1,) * len(self.shape)
        return self._bytes(math.prod(size for size, one in zip(self.shape, strides, strict=True) if one or not size))

    @property
    def all_strides(self) -> tuple[int, ...]:
        return contiguous_strides(self.shape) if self.strides is None else self.strides

    @property
    def stored_elements(self) -> int:
        """The elements of memory that the tensor spans, with the gaps between its values."""
        reach = sum((size - 1) * stride for size, stride in zip(self.shape, self.all_strides, strict=True))
        return reach + 1 if self.elements else 0

    @property
    def stored_bytes(self) -> int:
        return self._bytes(self.stored_elements)

    def _bytes(self, elements: int) -> int:
        bits = BITS.search(self.dtype)
        return elements * (int(bits[0]) if bits else 8) // 8


@dataclass(frozen=True)
class Constant:
    """A value that is stored by name: ``torch.float32``, ``...``, or ``device``, which is where the tuple runs."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Structure:
    """A value of named parts; ``kind`` is ``dict``, ``slice``, or the qualified name of an object's class."""

    kind: str
    parts: tuple[tuple[str, PlainValue], ...]


Number: TypeAlias = Annotated[float, ANYTHING]
Text: TypeAlias = Annotated[str, ANYTHING]
PlainValue: TypeAlias = bool | int | Number | Text | TensorSpec | Constant | Structure | tuple["PlainValue", ...] | None
"""The values that parameters and inputs consist of. Lists are stored as tuples."""


@dataclass(frozen=True, eq=False)
class OperatorTuple:
    """One operator with its parameters and the shapes, dtypes and memory layouts of its inputs.

    ``operator`` is a qualified name: a module's class (``torch.nn.Conv2d``), a function (``torch.Tensor.add_``), or a
    whole model (``torchvision.models.resnet18``). ``parameters`` are the constructor's arguments by name without those
    that equal the default. Functions have none, except that a user's own operation has the hash of the user's code.
    ``mode`` is ``eval`` or ``train``, None for a function. Two tuples are equal if their one-line texts are equal, as
    in the database. 2, 2.0 and True are equal in Python but run different kernels.
    """

    operator: str
    parameters: tuple[tuple[str, PlainValue], ...] = ()
    inputs: tuple[PlainValue, ...] = ()
    keyword_inputs: tuple[tuple[str, PlainValue], ...] = ()
    mode: str | None = "eval"

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if self.is_function:
            parameters = f"({self.parameters_text})" if self.parameters else ""
            return f"{self.operator}{parameters} on ({self.inputs_text})"
        return f"{self.operator}({self.parameters_text}) on ({self.inputs_text}) {self.mode}"

    def __getstate__(self) -> dict[str, object]:
        """Return the contents of a pickle: the fields alone, without cached values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OperatorTuple) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def is_function(self) -> bool:
        return self.mode is None

    @property
    def is_model(self) -> bool:
        """Whether it is a whole model, by its name: models of torchvision are lower-case names in their package."""
        package, _, name = self.operator.rpartition(".")
        source = next((one for one, prefix in MODEL_PACKAGES.items() if prefix == f"{package}."), None)
        return source is not None and (name.islower() or source in SOURCES_OF_ANY_CASE)

    @property
    def is_grid(self) -> bool:
        """Whether the tuple stands for the operators of a grid, which has counts like a model's."""
        return self.operator.startswith(MODEL_PACKAGES[GRID])

    @property
    def arguments(self) -> tuple[PlainValue, ...]:
        return (*self.inputs, *(value for _, value in self.keyword_inputs))

    @cached_property
    def floating_inputs(self) -> tuple[TensorSpec, ...]:
        """The distinct floating-point tensors among the inputs, in order of first appearance."""
        return tuple(spec for spec in distinct_specs(self.arguments) if spec.is_floating)

    @property
    def short_name(self) -> str:
        """The last part of the name, as in whitelists; of a scripted module's operation without the overload."""
        name, _, operation = self.operator.partition("::")
        return operation.partition(".")[0] or name.rpartition(".")[2]

    @property
    def is_in_place(self) -> bool:
        """Whether it writes its result over its first input, by its name or by ``inplace=True``."""
        given = {**dict(self.parameters), **dict(self.keyword_inputs)}
        return is_name_in_place(self.short_name) or given.get("inplace") is True

    @property
    def parameters_text(self) -> str:
        """The parameters on one line: ``in_channels=3, out_channels=64, kernel_size=(7, 7)``."""
        return _keyword_text(self.parameters, shared=frozenset())

    @property
    def inputs_text(self) -> str:
        """The inputs on one line. A tensor that is passed more than once ends with its number: ``...#0``."""
        shared = _shared_identities(self.arguments)
        texts = [_value_text(value, shared) for value in self.inputs]
        if self.keyword_inputs:
            texts.append(_keyword_text(self.keyword_inputs, shared))
        return ", ".join(texts)

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits (64 bits) of the SHA-256 of the one-line text. Equal tuples have equal keys."""
        return short_hash(str(self))


def is_name_in_place(name: str) -> bool:
    """Return whether a function of a name writes into its first argument: ``add_``, ``__iadd__``."""
    if name.startswith("__"):
        return name.startswith("__i") and name != "__invert__"
    return name.endswith("_")


def model_operator(
    model_name: str,
    weights_name: str | None,
    input_size: Sequence[int],
    seed: int = DEFAULT_SEED,
    further: tuple[tuple[str, PlainValue], ...] = (),
) -> OperatorTuple:
    """Return the tuple that describes a whole model with its weights and its input, batch first.

    Weights of torchvision are named by the enum's member, with or without the enum: ``ResNet50_Weights.IMAGENET1K_V1``;
    those of other sources by the path of a local file or folder, random ones by None. One tensor describes the input,
    even if the model takes a list of images or two frames; two numbers are the batch and the length of a text. The
    ``seed`` is that of random weights and of the input's values; ``further`` are parameters.
    """
    named = ModelName.of(model_name)
    if weights_name is not None and named.source == TORCHVISION:
        weights_name = weights_name.rpartition(".")[2]
    weights = () if weights_name is None else (("weights", weights_name),)
    seeds = () if seed == DEFAULT_SEED else (("seed", seed),)
    dtype = "int64" if len(input_size) == 2 and named.source in SOURCES_OF_TEXT else "float32"
    inputs = (TensorSpec(tuple(input_size), dtype),) if input_size else ()
    package = MODEL_PACKAGES.get(named.source, f"{named.source}.")
    return OperatorTuple(package + named.name, weights + seeds + further, inputs)


def library_of(operator: str) -> str | None:
    """Return the one of ``LIBRARIES`` that a model comes from, by its name as an operator; None for others."""
    package = operator.partition(".")[0]
    return package if package in LIBRARIES else None


def stored_as(model: OperatorTuple, dtype: str, is_channels_last: bool) -> OperatorTuple:
    """Return a whole model whose weights and float32 inputs are stored in a dtype, channels last or contiguous.

    Parameters say how weights are stored if the first floating-point input does not.
    """

    def stored(spec: TensorSpec) -> TensorSpec:
        if not spec.is_floating:
            return spec
        strides = channels_last_strides(spec.shape) if is_channels_last else None
        return replace(spec, dtype=dtype if spec.dtype == FLOAT32 else spec.dtype, strides=strides)

    model = with_tensors(model, stored)
    shown_dtype, is_shown_channels_last = storage_form(model)
    form = {DTYPE: dtype} if shown_dtype != dtype else {}
    if is_shown_channels_last != is_channels_last:
        form[MEMORY_FORMAT] = "channels_last"
    return replace(model, parameters=(*model.parameters, *form.items()))


def storage_form(model: OperatorTuple) -> tuple[str, bool]:
    """Return the dtype of a whole model's weights, and whether they are stored channels last."""
    parameters = dict(model.parameters)
    first = next(iter(model.floating_inputs), TensorSpec((), FLOAT32))
    return str(parameters.get(DTYPE, first.dtype)), MEMORY_FORMAT in parameters or first.strides is not None


def with_tensors(operator: OperatorTuple, change: Callable[[TensorSpec], TensorSpec]) -> OperatorTuple:
    """Return a tuple with a change of each tensor among its inputs, nested ones included."""

    def changed(value: PlainValue) -> PlainValue:
        return mapped(value, lambda part: change(part) if isinstance(part, TensorSpec) else part)

    keyword_inputs = tuple((name, changed(value)) for name, value in operator.keyword_inputs)
    return replace(operator, inputs=tuple(map(changed, operator.inputs)), keyword_inputs=keyword_inputs)


def run_under(model: OperatorTuple, autocast_dtype: str | None) -> OperatorTuple:
    """Return a whole model that runs under autocast to a dtype, which changes dtypes inside; without if None."""
    if autocast_dtype is None:
        return model
    return replace(model, parameters=(*model.parameters, (AUTOCAST, autocast_dtype)))


def attending_by(model: OperatorTuple, backend: str | None) -> OperatorTuple:
    """Return a whole model whose attention runs in one back end alone, which has other operations; any if None."""
    return model if backend is None else replace(model, parameters=(*model.parameters, (ATTENTION, backend)))


def is_under_autocast(model: OperatorTuple) -> bool:
    """Return whether a whole model runs under autocast."""
    return AUTOCAST in dict(model.parameters)


def seed_of(model: OperatorTuple) -> int:
    """Return the seed of a whole model's random weights and input."""
    return int(str(dict(model.parameters).get("seed", DEFAULT_SEED)))


def short_hash(text: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def value_text(value: PlainValue) -> str:
    """Return a value as it is written in a tuple's text."""
    return _value_text(value, _shared_identities((value,)))


def _keyword_text(items: Iterable[tuple[str, PlainValue]], shared: frozenset[int]) -> str:
    return ", ".join(f"{name}={_value_text(value, shared)}" for name, value in items)


def _value_text(value: PlainValue, shared: frozenset[int]) -> str:
    if isinstance(value, TensorSpec):
        return f"{value}#{value.identity}" if value.identity in shared else str(value)
    if isinstance(value, Structure):
        return f"{value.kind.rpartition('.')[2]}({_keyword_text(value.parts, shared)})"
    if isinstance(value, tuple):
        inner = ", ".join(_value_text(item, shared) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return str(value) if isinstance(value, Constant) else repr(value)


def _shared_identities(values: Iterable[PlainValue]) -> frozenset[int]:
    identities = Counter(spec.identity for spec in tensor_specs(values))
    return frozenset(identity for identity, times in identities.items() if times > 1)


def tensor_specs(values: Iterable[PlainValue]) -> list[TensorSpec]:
    """Return all tensor specs among the values, nested ones included, in order."""
    return [value for value in nested(values) if isinstance(value, TensorSpec)]


def distinct_specs(values: Iterable[PlainValue]) -> tuple[TensorSpec, ...]:
    """Return each tensor among the values once, in order of first appearance."""
    return tuple({spec.identity: spec for spec in tensor_specs(values)}.values())


def nested(values: Iterable[PlainValue]) -> Iterator[PlainValue]:
    """Yield each value, followed by its parts and theirs."""
    for value in values:
        yield value
        if isinstance(value, tuple):
            yield from nested(value)
        elif isinstance(value, Structure):
            yield from nested(part for _, part in value.parts)


def mapped(value: PlainValue, change: Callable[[PlainValue], PlainValue]) -> PlainValue:
    """Return a value with a change of each of its parts that has no parts itself."""
    if isinstance(value, tuple):
        return tuple(mapped(item, change) for item in value)
    if isinstance(value, Structure):
        return replace(value, parts=tuple((name, mapped(part, change)) for name, part in value.parts))
    return change(value)
