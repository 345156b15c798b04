"""Conversion between arguments or results of calls and plain values."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy
import torch
from torch._prims_common import suggest_memory_format
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import _disable_current_modes

from opcost.errors import CannotMeasureError
from opcost.operators.tuples import (
    ELLIPSIS,
    Constant,
    PlainValue,
    Structure,
    TensorSpec,
    channels_last_strides,
)

CONSTANTS = (torch.device, torch.dtype, torch.memory_format, torch.layout, type(Ellipsis))
"""Types of values that are stored by name, which is the same in every version of torch."""

IMAGE_LIST = "torchvision.models.detection.image_list.ImageList"

STRUCTURES: Mapping[str, tuple[str, ...]] = {
    "slice": ("start", "stop", "step"),
    IMAGE_LIST: ("tensors", "image_sizes"),
    "torch.nn.utils.rnn.PackedSequence": ("data", "batch_sizes", "sorted_indices", "unsorted_indices"),
}
"""Attributes of plain objects by the qualified name of their class, in the order of the constructor's arguments."""

NESTED = "torch.nested.nested_tensor"
"""The kind of a nested tensor, whose parts are its samples."""


@dataclass(frozen=True)
class Integers:
    """A tensor on the CPU whose values are part of a tuple, such as the lengths of sequences."""

    data: list[int]
    dtype: torch.dtype

    @staticmethod
    def of(tensor: torch.Tensor) -> Integers:
        return Integers(tensor.tolist(), tensor.dtype)


@dataclass(frozen=True)
class ByChannel:
    """A quantised tensor whose channels along an axis have scales of their own, by a scheme of torch."""

    values: torch.Tensor
    axis: int
    scheme: str


@dataclass(frozen=True)
class Packed:
    """Quantised weights in the form that a kernel reads, as an object of C++: its class, and what it pickles."""

    class_name: str
    state: list[Any]


CLASSES = "__torch__.torch.classes."
PACKED_CLASSES = ("quantized.", "rnn.")
"""The beginnings of the names of classes of packed weights among those of C++ (``CLASSES``)."""


def unpacked(value: Any) -> Any:
    """Return an argument of a call with its packed weights, nested ones included, as plain objects."""
    if not isinstance(value, torch.ScriptObject):
        is_changed = _is_sequence(value) and any(isinstance(item, torch.ScriptObject) for item in value)
        return [unpacked(item) for item in value] if is_changed else value
    weights: Any = value
    name = weights._type().qualified_name().removeprefix(CLASSES)
    # QNNPACK does not unpack three-dimensional filters. A run that is being counted may look on.
    with suppress(RuntimeError), _disable_current_modes():
        return Packed(name, _state(weights.__getstate__()[0])) if name.startswith(PACKED_CLASSES) else value
    return value


def _state(value: Any) -> Any:
    """Return a part of packed weights: sizes are integers in a tensor, matrices of 16 bits are pickled in float32."""
    if isinstance(value, (list, tuple)):
        return [_state(item) for item in value]
    if not isinstance(value, torch.Tensor) or value.is_quantized:
        return unpacked(value)
    if not value.is_floating_point():
        return Integers.of(value)
    return value.half() if value.dim() > 1 else value


SCALARS: tuple[type[bool | int | float | str], ...] = (bool, int, float, str)
DEVICE = "device"


def plain_value(value: Any, identities: dict[int, int]) -> PlainValue:
    """Return an argument of a call as plain data; ``identities`` numbers the tensors seen so far by their id.

    Of values that cannot be recreated there is a description: NumPy's numbers by value, all others by name.
    """
    if isinstance(value, torch.Tensor) or value is None:
        return None if value is None else _plain_tensor(value, identities)
    if _is_sequence(value):
        return tuple(plain_value(item, identities) for item in value)
    scalar = next((one for one in SCALARS if isinstance(value, one)), None)
    if scalar is not None:
        # Subclasses (NumPy's scalars, enumerations) have other texts and pickles.
        return scalar(value)
    if isinstance(value, CONSTANTS):
        name = ELLIPSIS if value is Ellipsis else str(value)
        return Constant(DEVICE if isinstance(value, torch.device) else name)
    parts = _parts(value)
    if parts is None:
        return _described(value)
    kind = "dict" if isinstance(value, Mapping) else public_name(type(value))
    return Structure(kind, tuple((str(name), plain_value(part, identities)) for name, part in parts.items()))


def _described(value: Any) -> PlainValue:
    if isinstance(value, numpy.generic):
        return plain_value(value.item(), {})
    is_named = isinstance(value, type) or hasattr(value, "__qualname__")
    return f"<{value.__module__}.{value.__qualname__}>" if is_named else f"<{type(value).__qualname__}>"


def tensors_within(value: Any) -> Iterator[torch.Tensor]:
    """Yield the dense tensors in an argument of a call, in the order of ``plain_value``; the samples of nested ones."""
    if isinstance(value, torch.Tensor):
        yield from value.unbind() if is_nested(value) else [value] if is_dense(value) else []
        return
    value = unpacked(value)
    for part in value if _is_sequence(value) else (_parts(value) or {}).values():
        yield from tensors_within(part)


def own_tensors(function: Any) -> list[torch.Tensor]:
    """Return the parameters and buffers of a module, none for a function."""
    return [*function.parameters(), *function.buffers()] if isinstance(function, torch.nn.Module) else []


def distinct_tensors(args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return the different tensors of a call in the order of its tuple's ``distinct_specs``."""
    values = [*args, *(value for _, value in sorted(kwargs.items()))]
    return list({id(tensor): tensor for tensor in tensors_within(values)}.values())


def arguments_by_name(operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operation by their names in its schema, with the defaults of those not given."""
    arguments = operation._schema.arguments
    defaults = {one.name: one.default_value for one in arguments if one.has_default_value()}
    return {**defaults, **dict(zip((one.name for one in arguments), args, strict=False)), **kwargs}


def packed_tensors(weights: torch.ScriptObject) -> list[torch.Tensor]:
    """Return the tensors of packed weights, each once; those of a recurrent cell name its biases twice."""
    return list({(tensor.data_ptr(), tensor.shape): tensor for tensor in tensors_within(weights)}.values())


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and not isinstance(value, PackedSequence)


def _parts(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    names = STRUCTURES.get(public_name(type(value)), ())
    if is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in fields(value))
    parts = {name: getattr(value, name) for name in names}
    if isinstance(value, PackedSequence):
        parts["batch_sizes"] = Integers.of(value.batch_sizes)
    return parts or None


def real_value(plain: PlainValue, device: str, tensor: Callable[[TensorSpec], torch.Tensor]) -> Any:
    """Return the argument of a plain value on a device, sequences as lists; a CannotMeasureError if there is none."""
    if isinstance(plain, TensorSpec):
        return tensor(plain)
    if isinstance(plain, tuple):
        return [real_value(item, device, tensor) for item in plain]
    if isinstance(plain, Constant):
        if plain.name in (DEVICE, ELLIPSIS):
            return torch.device(device) if plain.name == DEVICE else ...
        value = getattr(torch, plain.name.removeprefix("torch."), None)
        if not isinstance(value, CONSTANTS):
            raise CannotMeasureError(f"this version of torch has no constant {plain.name}")
        return value
    if isinstance(plain, Structure):
        parts = {name: real_value(part, device, tensor) for name, part in plain.parts}
        if plain.kind not in BUILDERS:
            raise CannotMeasureError(f"an argument of type {plain.kind} cannot be recreated")
        return BUILDERS[plain.kind](**parts)
    if isinstance(plain, str) and plain.startswith("<"):
        raise CannotMeasureError(f"an argument of type {plain} cannot be recreated")
    return plain


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is laid out by strides, and neither sparse, nested nor in a library's own layout."""
    return not tensor.is_nested and tensor.layout == torch.strided


def is_nested(tensor: torch.Tensor) -> bool:
    """Return whether a tensor consists of strided samples of several sizes. Jagged ones call operations themselves."""
    return tensor.is_nested and tensor.layout == torch.strided


def stored_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the dense tensors that a sparse tensor is stored in, the values last; any other is its own part."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


def _tensor_spec(tensor: torch.Tensor, identity: int) -> TensorSpec:
    """Return a tensor's shape, dtype and layout; equivalent strides are stored in one form.

    Strides of one image may be channels last by their order, and contiguous by torch's choice of kernels and results.
    """
    shape = tuple(tensor.shape)
    strides: tuple[int, ...] | None = tuple(tensor.stride())
    if tensor.is_contiguous():
        strides = None
    elif tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        strides = channels_last_strides(shape) if suggest_memory_format(tensor) == torch.channels_last else strides
    return TensorSpec(shape, str(tensor.dtype).removeprefix("torch."), strides, identity)


def public_name(cls: type) -> str:
    """Return the shortest dotted name of a class: ``torch.nn.Conv2d``."""
    if cls.__module__ == "builtins":
        return cls.__qualname__
    parts = cls.__module__.split(".")
    for length in range(1, len(parts)):
        package = ".".join(parts[:length])
        if getattr(sys.modules.get(package), cls.__qualname__, None) is cls:
            return f"{package}.{cls.__qualname__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def _plain_tensor(tensor: torch.Tensor, identities: dict[int, int]) -> PlainValue:
    if not (is_nested(tensor) or is_dense(tensor)):
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.is_nested:
            return f"<nested {dtype} of {tensor.numel()} values>"
        stored = stored_parts(tensor)[-1].numel()
        return f"<{tensor.layout} {dtype}[{', '.join(map(str, tensor.shape))}] of {stored} values>"
    identity = identities.setdefault(id(tensor), len(identities))
    if is_nested(tensor):
        # The samples are new views at each call, so that the tensor identifies them.
        keys = [identities.setdefault(hash((identity, place)), len(identities)) for place in range(tensor.size(0))]
        samples = zip(keys, tensor.unbind(), strict=True)
        return Structure(NESTED, tuple((str(key), _tensor_spec(sample, key)) for key, sample in samples))
    spec = _tensor_spec(tensor, identity)
    with _disable_current_modes() if tensor.is_quantized else nullcontext():
        schemes = (torch.per_channel_affine, torch.per_channel_affine_float_qparams)
        if not tensor.is_quantized or tensor.qscheme() not in schemes:
            return spec
        parts = ("values", spec), ("axis", tensor.q_per_channel_axis()), ("scheme", str(tensor.qscheme()))
    return Structure(public_name(ByChannel), parts)


def _packed_sequence(data: torch.Tensor, batch_sizes: torch.Tensor, **indices: torch.Tensor | None) -> PackedSequence:
    """Return a packed sequence whose sequences, if they have indices, are in order."""
    size = int(batch_sizes[0])
    order = (None if one is None else torch.arange(size, device=data.device) for one in indices.values())
    return PackedSequence(data, batch_sizes, *order)


def _quantised_by_channel(values: torch.Tensor, axis: int, scheme: str) -> torch.Tensor:
    channels = values.shape[axis]
    dtype = torch.float32 if scheme == str(torch.per_channel_affine_float_qparams) else torch.int64
    return torch.quantize_per_channel(
        values.dequantize(), torch.ones(channels), torch.zeros(channels, dtype=dtype), axis, values.dtype
    )


def _packed_weights(class_name: str, state: list[Any]) -> Any:
    if not class_name.startswith(PACKED_CLASSES):
        raise CannotMeasureError(f"an argument of type {class_name} cannot be recreated")
    weights: Any = torch.ScriptObject.__new__(torch.ScriptObject)
    parts = (one.float() if isinstance(one, torch.Tensor) and one.dtype == torch.float16 else one for one in state)
    weights.__setstate__((tuple(parts), CLASSES + class_name))
    return weights


BUILDERS: Mapping[str, Callable[..., Any]] = {
    "dict": dict,
    NESTED: lambda **samples: torch.nested.nested_tensor(list(samples.values())),
    "slice": lambda **parts: slice(*parts.values()),
    IMAGE_LIST: lambda **parts: importlib.import_module("torchvision.models.detection.image_list").ImageList(**parts),
    public_name(Integers): torch.tensor,
    public_name(PackedSequence): _packed_sequence,
    public_name(ByChannel): _quantised_by_channel,
    public_name(Packed): _packed_weights,
}
"""Functions that make an object of its parts, by the qualified name of its class."""
