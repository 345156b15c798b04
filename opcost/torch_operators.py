"""Operator tuple <-> torch module or function, both ways."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import resolve_name

from opcost.errors import CannotMeasureError
from opcost.operators import Constant, OperatorTuple, PlainValue, Structure, TensorSpec, channels_last_strides

TRUSTED_PACKAGES = ("torch", "torchvision")
"""A class is imported by name only from these: importing is running code."""

SIZE_PARAMETERS = frozenset({"kernel_size", "stride", "padding", "dilation", "output_padding", "output_size"})
"""Modules keep these as given, 3 or (3, 3), for the same kernel: one size for all dimensions is stored as a number."""

UNKNOWN = "unknown: the module does not keep this argument"

WITHOUT_EFFECT_IN_EVAL = frozenset(
    {("BatchNorm", "momentum"), ("InstanceNorm", "momentum"), ("MultiheadAttention", "dropout")}
)
"""Parameters that change nothing in eval mode, by the beginning of the class's name: left out, so that modules that
run the same kernels are one tuple."""

CONSTANTS = (torch.device, torch.dtype, torch.memory_format, torch.layout, type(Ellipsis))
"""Kinds of values that go by their name, which is the same in every version of torch."""

STRUCTURES: Mapping[str, tuple[str, ...]] = {
    "slice": ("start", "stop", "step"),
    "ImageList": ("tensors", "image_sizes"),
}
"""Classes, by name, whose objects are no more than these attributes: ``ImageList`` is torchvision's, for detection."""

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
"""``*args`` and ``**kwargs``: of a module with weights they are unknown (LSTM), else of no account (Identity)."""


# What a constructor's argument was, where the attribute of that name does not say it.
SPECIAL_READERS: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("MultiheadAttention", "bias"): lambda module: module.in_proj_bias is not None,
    ("MultiheadAttention", "add_bias_kv"): lambda module: module.bias_k is not None,
    ("MultiheadAttention", "kdim"): lambda module: None if module.kdim == module.embed_dim else module.kdim,
    ("MultiheadAttention", "vdim"): lambda module: None if module.vdim == module.embed_dim else module.vdim,
    ("FrozenBatchNorm2d", "num_features"): lambda module: module.weight.shape[0],
}


def module_tuple(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OperatorTuple:
    """Return the operator tuple of a module that is called with these arguments."""
    identities: dict[int, int] = {}
    return OperatorTuple(
        operator=public_name(type(module)),
        parameters=tuple(module_parameters(module)),
        inputs=tuple(plain_value(value, identities) for value in args),
        keyword_inputs=tuple((name, plain_value(value, identities)) for name, value in sorted(kwargs.items())),
        mode="train" if module.training else "eval",
    )


def function_tuple(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OperatorTuple:
    """Return the operator tuple of a function that is called with these arguments.

    All of them are inputs; keywords that equal their default are left out: torch's functions in Python pass on all that
    they have, and get more from one version to the next.
    """
    identities: dict[int, int] = {}
    defaults = function_defaults(function)
    given = {name: value for name, value in sorted(kwargs.items()) if not _is_default(value, name, defaults)}
    return OperatorTuple(
        operator=function_name(function),
        inputs=tuple(plain_value(value, identities) for value in args),
        keyword_inputs=tuple((name, plain_value(value, identities)) for name, value in given.items()),
        mode=None,
    )


def build_module(operator: OperatorTuple, device: str) -> nn.Module:
    """Return a new module as the tuple describes it, with fresh weights, on a device.

    Raises:
        CannotMeasureError: the class is not one of torch or torchvision, an argument of its constructor is unknown, or
            this version's constructor does not take the arguments.
    """
    cls = _resolve(operator.operator)
    arguments = dict(operator.parameters)
    unknown = [name for name, value in arguments.items() if isinstance(value, str) and value.startswith(UNKNOWN)]
    if unknown:
        raise CannotMeasureError(
            f"{operator.operator} does not keep its argument {unknown[0]}, so it cannot be rebuilt"
        )
    if "dtype" in arguments:
        arguments["dtype"] = getattr(torch, str(arguments["dtype"]))
    try:
        module: nn.Module = cls(**arguments)
    except (TypeError, ValueError) as error:
        raise CannotMeasureError(f"{operator.operator}({operator.parameters_text}) cannot be built: {error}") from error
    return module.to(device).train(operator.mode == "train")


def module_parameters(module: nn.Module) -> Iterable[tuple[str, PlainValue]]:
    """Yield the constructor's arguments by name, those equal to their default left out."""
    cls: Any = type(module)
    for name, parameter in constructor_parameters(cls):
        if (
            name == "device"
            or _is_without_effect(module, name)
            or (parameter.kind in VARIADIC and next(module.parameters(), None) is None)
        ):
            continue
        value = _argument(module, name)
        default = parameter.default
        if default is parameter.empty or value != plain_parameter(name, default):
            yield name, value


@functools.lru_cache(maxsize=1024)
def constructor_parameters(cls: Any) -> tuple[tuple[str, inspect.Parameter], ...]:
    """Return the names and parameters of a class's constructor."""
    return tuple(inspect.signature(cls).parameters.items())


def plain_value(value: Any, identities: dict[int, int]) -> PlainValue:
    """Return an argument of a call as plain data; ``identities`` numbers the tensors seen so far by their id."""
    if isinstance(value, torch.Tensor):
        return tensor_spec(value, identities.setdefault(id(value), len(identities)))
    if isinstance(value, (list, tuple)):
        return tuple(plain_value(item, identities) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, CONSTANTS):
        return Constant(_constant_name(value))
    parts = _parts(value)
    if parts is None:
        return f"<{type(value).__qualname__}>"
    named = tuple((str(name), plain_value(part, identities)) for name, part in parts.items())
    return Structure("dict" if isinstance(value, Mapping) else public_name(type(value)), named)


def _is_default(value: Any, name: str, defaults: Mapping[str, Any]) -> bool:
    return name in defaults and type(value) is type(defaults[name]) and bool(value == defaults[name])


def _constant_name(value: Any) -> str:
    if isinstance(value, torch.device):
        return "device"
    return "..." if value is Ellipsis else str(value)


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a value that is no more than its parts, None for any other."""
    if isinstance(value, Mapping):
        return value
    names = STRUCTURES.get(type(value).__name__)
    return None if names is None else {name: getattr(value, name) for name in names}


def plain_parameter(name: str, value: Any) -> PlainValue:
    """Return a constructor's argument as plain data: tensors as whether they are there, equal sizes as one number."""
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    plain = plain_value(value, {})
    if name in SIZE_PARAMETERS and isinstance(plain, tuple) and plain and all(size == plain[0] for size in plain):
        return plain[0]
    return plain


def tensor_spec(tensor: torch.Tensor, identity: int) -> TensorSpec:
    """Return a tensor's shape, dtype and layout; strides that say the same thing are stored in one way."""
    shape = tuple(tensor.shape)
    strides: tuple[int, ...] | None = tuple(tensor.stride())
    if tensor.is_contiguous():
        strides = None
    elif tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        strides = channels_last_strides(shape)
    return TensorSpec(shape, str(tensor.dtype).removeprefix("torch."), strides, identity)


@functools.lru_cache(maxsize=1024)
def function_name(function: Callable[..., Any]) -> str:
    """Return the qualified name under which torch lists a function: ``torch.Tensor.add_``.

    Operators that are called by their registered name go by it: ``torch.ops.torchvision.nms``.
    """
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{function}"
    name = resolve_name(function)
    return name or f"{getattr(function, '__module__', None)}.{getattr(function, '__name__', repr(function))}"


@functools.lru_cache(maxsize=1024)
def function_defaults(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the defaults of a function's arguments, as far as Python knows its signature."""
    if not inspect.isfunction(function):
        return {}
    parameters = inspect.signature(function).parameters.items()
    return {name: parameter.default for name, parameter in parameters if parameter.default is not parameter.empty}


def is_property(function: Callable[..., Any]) -> bool:
    """Return whether a function that torch overrides is the reading of a property, such as ``shape``."""
    return getattr(function, "__name__", "") == "__get__"


def public_name(cls: type) -> str:
    """Return the shortest dotted name under which a class can be reached: ``torch.nn.Conv2d``."""
    if cls.__module__ == "builtins":
        return cls.__qualname__
    parts = cls.__module__.split(".")
    for length in range(1, len(parts)):
        package = ".".join(parts[:length])
        if getattr(sys.modules.get(package), cls.__qualname__, None) is cls:
            return f"{package}.{cls.__qualname__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_without_effect(module: nn.Module, name: str) -> bool:
    class_name = type(module).__name__
    if name == "bias" and getattr(module, "affine", True) is False:
        # Norms without weights have no bias either; older versions of torch have no such argument.
        return True
    return not module.training and any(
        name == parameter and class_name.startswith(begin) for begin, parameter in WITHOUT_EFFECT_IN_EVAL
    )


def _argument(module: nn.Module, name: str) -> PlainValue:
    reader = SPECIAL_READERS.get((type(module).__name__, name))
    if reader is not None:
        return plain_parameter(name, reader(module))
    if name == "dtype":
        return _dtype(module)
    if name == "bias" and getattr(module, "bias", 0) is None:
        return False
    if not hasattr(module, name):
        # The shapes of its weights keep modules apart that differ in what is unknown.
        return f"{UNKNOWN} (weights {[tuple(weight.shape) for weight in module.parameters()]})"
    return plain_parameter(name, getattr(module, name))


def _dtype(module: nn.Module) -> PlainValue:
    """The dtype of a module's weights; None, the constructor's default, for float32 or no weights."""
    dtype = next((weight.dtype for weight in module.parameters()), torch.float32)
    return None if dtype == torch.float32 else plain_parameter("dtype", dtype)


def _resolve(operator: str) -> Any:
    package, _, name = operator.rpartition(".")
    if package.partition(".")[0] not in TRUSTED_PACKAGES:
        raise CannotMeasureError(f"{operator} is not an operator of {' or '.join(TRUSTED_PACKAGES)}")
    try:
        cls = getattr(importlib.import_module(package), name, None)
    except ImportError as error:
        raise CannotMeasureError(f"{operator} is not in this version of {package.partition('.')[0]}") from error
    # The name may be an alias of something else: what counts is what it resolves to.
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        raise CannotMeasureError(f"{operator} is no module class in this version of {package.partition('.')[0]}")
    return cls
