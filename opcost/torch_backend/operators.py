"""Conversion between operator tuples and torch's modules and functions."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from operator import attrgetter
from types import CodeType, MethodType
from typing import Any, cast

import numpy
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.overrides import get_ignored_functions, resolve_name
from torch.utils._python_dispatch import _disable_current_modes

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import CHANNELS_LAST
from opcost.operators.input_roles import INDEX_FUNCTIONS
from opcost.operators.model_names import FINGERPRINT
from opcost.operators.tuples import (
    DTYPE,
    FLOAT32,
    MEMORY_FORMAT,
    META,
    REQUIRES_GRAD,
    OperatorTuple,
    PlainValue,
    channels_last_strides,
    short_hash,
    tensor_specs,
)
from opcost.torch_backend.ready_model import (
    has_channels_last,
    has_strides_of_channels_last,
    store_weights,
    weight_dtype,
)
from opcost.torch_backend.values import Integers, is_dense, own_tensors, plain_value, public_name, unpacked

TRUSTED_PACKAGES = ("torch", "torchvision")
"""The only packages from which classes are imported by name, because importing runs code."""

FACTORIES = frozenset(
    [f"torch.{name}_window" for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")]
    + [
        f"torch.{name}"
        for name in "arange empty eye full linspace ones rand randint randn randperm tensor zeros".split()
    ]
    + [f"torch.{name}" for name in "empty_strided logspace range scalar_tensor tril_indices triu_indices".split()]
    + [f"torch.Tensor.new_{name}" for name in "empty full ones tensor zeros".split()]
)
"""Functions that create tensors. torch lists them among functions that cannot be overridden, beside ``torch.load``."""

OF_TENSORS = frozenset(f"torch.{name}" for name in ("linspace", "logspace", "tensor", "Tensor.new_tensor"))
"""Those whose tensors are values, not sizes."""

UNLISTED = frozenset(
    [f"torch.{name}" for name in "fill normal rand_like randint_like randn_like".split()]
    + [f"torch.nn.functional.{name}" for name in "grouped_mm hardsigmoid hardswish scaled_grouped_mm scaled_mm".split()]
)
"""Other functions on tensors that torch lists so."""

OF_LENGTHS = frozenset(
    "_pack_padded_sequence _pad_packed_sequence lstm gru rnn_tanh rnn_relu quantized_lstm quantized_gru".split()
)
"""Functions whose second argument may have the lengths of sequences, or the number of sequences at each step."""

SIZE_DTYPES = (torch.int64, torch.int32)

QUANTIZED = "quantized"
OPERATION_NAMESPACES = ("aten", "torchvision", QUANTIZED)
NAMESPACES_OF_TORCH = frozenset(
    "_c10d_functional _dtensor _inductor_test _native c10d_functional coor debug_mode_ops debugprims export flex_lib "
    "fsdp image inductor mempool onnx onnx_symbolic prim prims quantized rngprims streams symm_mem".split()
)
"""Other namespaces of operations that torch and torchvision register themselves. None is an operator of a model."""

SIZE_PARAMETERS = frozenset({"kernel_size", "stride", "padding", "dilation", "output_padding", "output_size"})
"""Parameters that modules keep as given, 3 or (3, 3). One size for all dimensions is stored as a number."""

UNKNOWN = "unknown"
"""The name of the parameter that stands for constructor arguments that the module does not keep."""

WITHOUT_EFFECT_IN_EVAL: Mapping[str, tuple[str, ...]] = {
    "momentum": ("BatchNorm", "InstanceNorm"),
    "dropout": ("MultiheadAttention",),
    **dict.fromkeys(("min_ratio", "max_ratio"), ("DefaultBoxGenerator",)),
}
"""Parameters without effect in eval mode, with the beginning of the class's name. They are omitted, so that modules
with the same kernels are one tuple. A box generator's ratios are contained in its scales."""

# Readers of constructor arguments that the module does not keep in an attribute of the same name.
SPECIAL_READERS: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("MultiheadAttention", "bias"): lambda module: module.in_proj_bias is not None,
    ("MultiheadAttention", "add_bias_kv"): lambda module: module.bias_k is not None,
    ("MultiheadAttention", "kdim"): lambda module: None if module.kdim == module.embed_dim else module.kdim,
    ("MultiheadAttention", "vdim"): lambda module: None if module.vdim == module.embed_dim else module.vdim,
    ("TransformerEncoderLayer", "d_model"): lambda layer: layer.self_attn.embed_dim,
    ("TransformerEncoderLayer", "nhead"): lambda layer: layer.self_attn.num_heads,
    ("TransformerEncoderLayer", "dim_feedforward"): lambda layer: layer.linear1.out_features,
    ("TransformerEncoderLayer", "dropout"): lambda layer: layer.dropout.p,
    ("TransformerEncoderLayer", "activation"): lambda layer: (layer.activation, nn.functional.relu, "gelu")[
        layer.activation_relu_or_gelu
    ],
    ("TransformerEncoderLayer", "layer_norm_eps"): lambda layer: layer.norm1.eps,
    ("TransformerEncoderLayer", "batch_first"): lambda layer: layer.self_attn.batch_first,
    ("TransformerEncoderLayer", "bias"): lambda layer: layer.linear1.bias is not None,
    ("FrozenBatchNorm2d", "num_features"): lambda module: module.weight.shape[0],
    ("PositionalEncoding", "embed_size"): lambda module: module.class_token.shape[0],
    ("PositionalEncoding", "rel_pos_embed"): lambda module: module.spatial_pos is None,
}


def module_tuple(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OperatorTuple:
    """Return the operator tuple of a module that is called with these arguments."""
    identities: dict[int, int] = {}
    inputs = tuple(plain_value(value, identities) for value in args)
    parameters = list(module_parameters(module))
    laid_out = (spec for spec in tensor_specs(inputs) if spec.strides is not None)
    is_shown = has_channels_last(module) or any(spec.strides == channels_last_strides(spec.shape) for spec in laid_out)
    # Neither the weights' own order in memory nor that of an input shows their memory format.
    if has_strides_of_channels_last(module) and not is_shown:
        parameters.append((MEMORY_FORMAT, CHANNELS_LAST))
    return OperatorTuple(
        operator=public_name(_operator_class(module)),
        parameters=tuple(parameters),
        inputs=inputs,
        keyword_inputs=tuple((name, plain_value(value, identities)) for name, value in sorted(kwargs.items())),
        mode="train" if module.training else "eval",
    )


def _operator_class(module: nn.Module) -> Any:
    """Return the class of ``torch.nn`` whose ``forward`` a module runs, or its own class if there is none.

    A subclass with only another constructor (torchvision's Conv3DSimple) runs the same kernels as its base. One that
    overrides what the base's ``forward`` uses, such as ``_conv_forward`` or ``weight``, may run any.
    """
    cls: Any = type(module)
    return _class_of_torch(cls)


@functools.lru_cache(maxsize=1024)
def _class_of_torch(cls: Any) -> Any:
    bases = (base for base in cls.__mro__ if getattr(nn, base.__name__, None) is base and base is not nn.Module)
    return next((base for base in bases if all(_is_same(cls, base, name) for name in _names_in_forward(base))), cls)


def _is_same(cls: Any, base: Any, name: str) -> bool:
    return inspect.getattr_static(cls, name, None) is inspect.getattr_static(base, name, None)


@functools.lru_cache(maxsize=1024)
def _names_in_forward(cls: Any) -> frozenset[str]:
    """Return the names that the code of a class's ``forward`` uses, and that of the methods among them."""
    names: set[str] = set()
    pending = {"forward", "__getattr__", "__getattribute__"}
    while pending:
        names |= pending
        # Methods that all modules have are not followed: they use one another.
        own = (name for name in pending if name == "forward" or not _is_same(cls, nn.Module, name))
        methods = map(inspect.unwrap, filter(callable, (getattr(cls, name, None) for name in own)))
        pending = {name for method in methods for name in _names_in(getattr(method, "__code__", None))} - names
    return frozenset(names)


def _names_in(code: Any) -> Iterator[str]:
    """Yield the names that code uses, and the code of functions in it; a text may be a name for ``getattr``."""
    if isinstance(code, str):
        yield code
    elif isinstance(code, CodeType):
        yield from code.co_names
        for constant in code.co_consts:
            yield from _names_in(constant)


def can_be_rebuilt(module: nn.Module) -> bool:
    """Return whether a module's tuple gives the code that it runs and its weights, without importing other packages.

    It may for classes of ``TRUSTED_PACKAGES``, unless the class was made at run time or a method of the module was
    replaced. It does if the module that it builds has the same parts: other classes and weights are in no tuple.
    """
    cls: Any = _operator_class(module)
    is_named = getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls
    is_trusted = is_named and cls.__module__.partition(".")[0] in TRUSTED_PACKAGES
    # An encoder layer leaves its fast path if there are any.
    asks_for_hooks = "_forward_hooks" in _names_in_forward(cls)
    if not is_trusted or any(_is_changed(part, asks_for_hooks) for part in module.modules()):
        return False
    try:
        # A run that is being counted may look on.
        with _disable_current_modes():
            alone = _on_shapes(OperatorTuple(public_name(cls), tuple(module_parameters(module))))
            pairs = [(module.get_submodule(name), one) for name, one in alone.named_modules()]
            weights = (*alone.named_parameters(), *alone.named_buffers())
            of_both = [(attrgetter(name)(module), one) for name, one in weights]
            form = attrgetter("shape", "dtype", "__torch_dispatch__")
            return all(_operator_class(own) is _operator_class(one) for own, one in pairs) and all(
                is_lazy(own) or form(own) == form(one) for own, one in of_both
            )
    except Exception:
        # The tuple cannot be built, with any error of a constructor, or the module lacks a part, or has None for it.
        return False


def _is_changed(part: nn.Module, with_hooks: bool) -> bool:
    """Return whether a module has what its class does not say: methods of its own, weights in C++, or hooks."""
    cls: Any = type(part)
    own = vars(part)
    methods = ((own[name], getattr(cls, name, None)) for name in own.keys() & _names_in_forward(cls))
    # A copy of an observed module has its class's method as its own.
    is_replaced = any(inspect.isroutine(of_class) and mine != MethodType(of_class, part) for mine, of_class in methods)
    has_hooks = with_hooks and bool(part._forward_hooks or part._forward_pre_hooks)
    return is_replaced or has_hooks or any(isinstance(value, torch.ScriptObject) for value in own.values())


@functools.lru_cache(maxsize=4096)
def _on_shapes(operator: OperatorTuple) -> nn.Module:
    """Return the module of a tuple on shapes, where no random numbers are drawn: a user's program may draw some."""
    module = build_module(operator, META, draws=False)
    # A constructor uses the default dtype, which is the user's here.
    return module if DTYPE in dict(operator.parameters) else module.float()


def function_tuple(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], fingerprint: str | None = None
) -> OperatorTuple:
    """Return the operator tuple of a function that is called with these arguments.

    All arguments are inputs. Keywords that equal their default are omitted, because torch's Python functions pass on
    all keywords, and newer versions have more of them. A size in a tensor is a number, as sizes are part of a tuple.
    ``fingerprint`` is the hash of the user's code whose model calls it, None for models of libraries. It is a parameter
    of operations that are registered from Python: the code decides what they do.
    """
    name = function_name(function)
    args, kwargs = with_numbers(name, tuple(map(unpacked, args)), kwargs)
    identities: dict[int, int] = {}
    defaults = function_defaults(function)
    given = {
        name: value
        for name, value in sorted(kwargs.items())
        if not (name in defaults and type(value) is type(defaults[name]) and bool(value == defaults[name]))
    }
    is_of_user = fingerprint is not None and any(map(is_custom, _overloads(function)))
    return OperatorTuple(
        operator=name,
        parameters=(*(((FINGERPRINT, fingerprint),) if is_of_user else ()), *_folding_weight(name, args)),
        inputs=tuple(plain_value(value, identities) for value in args),
        keyword_inputs=tuple((name, plain_value(value, identities)) for name, value in given.items()),
        mode=None,
    )


def _folding_weight(function: str, args: tuple[Any, ...]) -> Iterator[tuple[str, int]]:
    """Yield the place of a matrix that requires gradients and therefore changes what ``torch.matmul`` runs.

    torch folds the batch of a product of three dimensions with such a matrix into one product, even in inference mode,
    and copies for it, where it would run a product for each sample (``should_fold`` in
    ``aten/src/ATen/native/LinearAlgebra.cpp``). Where it folds anyway, the tuple is that of any matrix.
    """
    is_product = function.rpartition(".")[2] in ("matmul", "__matmul__", "__rmatmul__") and len(args) > 1
    if not is_product or not all(isinstance(value, torch.Tensor) for value in args[:2]):
        return
    place = 0 if args[0].dim() < args[1].dim() else 1
    small, large = args[place], args[1].mT if place == 0 and args[1].dim() >= 2 else args[1 - place]
    if small.requires_grad and small.dim() <= 2 < large.dim():
        batch = range(large.dim() - 2)
        is_foldable = all(large.stride(i) == large.stride(i + 1) * large.shape[i + 1] for i in batch)
        if args[0].dim() == 2 or not is_foldable:
            yield REQUIRES_GRAD, place


def with_numbers(
    function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return the arguments of a function with a number in place of each size that is given as a tensor.

    Sizes are the arguments of functions that create tensors, and those in a list with numbers or named as sizes. The
    lengths of packed sequences are a tensor with its values. A list as index is in a tuple: ``x[[0, 2]]`` is
    ``x[[0, 2],]``, and not ``x[0, 2]``.
    """
    short_name = function.rpartition(".")[2]
    if short_name in OF_LENGTHS:
        lengths = [
            Integers.of(one)
            for one in args[1:2]
            if isinstance(one, torch.Tensor) and one.dtype in SIZE_DTYPES and one.device.type == "cpu"
        ]
        return (*args[:1], *(lengths or args[1:2]), *args[2:]), kwargs
    if short_name in INDEX_FUNCTIONS:
        index = args[1] if len(args) > 1 else None
        # torch takes a list of up to 31 elements that holds more than numbers as a tuple (``treatSequenceAsTuple`` in
        # ``torch/csrc/autograd/python_variable_indexing.cpp``).
        if isinstance(index, list) and (
            len(index) > 31 or all(isinstance(item, (bool, int, numpy.generic)) for item in index)
        ):
            args = (args[0], (index,), *args[2:])
        return args, kwargs
    is_factory = function in FACTORIES and function not in OF_TENSORS
    numbers = {key: _number(value, is_factory or key in ("size", "output_size")) for key, value in kwargs.items()}
    return tuple(_number(value, is_factory) for value in args), numbers


def _number(value: Any, is_size: bool) -> Any:
    if isinstance(value, (list, tuple)):
        has_numbers = any(type(item) is int for item in value)
        is_changed = (is_size or has_numbers) and any(isinstance(item, torch.Tensor) for item in value)
        return [_number(item, True) for item in value] if is_changed else value
    is_integer = is_size and isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype in SIZE_DTYPES
    return value.item() if is_integer and not value.is_meta else value


def build_operator(operator: OperatorTuple, device: str) -> Callable[..., Any]:
    """Return a tuple's function, or a new module on a device; a CannotMeasureError if there is none here."""
    return find_function(operator.operator) if operator.is_function else build_module(operator, device)


def find_operator(name: str) -> Callable[..., Any]:
    """Return the function of a name, or the class of a module; a CannotMeasureError if there is none."""
    try:
        return find_function(name)
    except CannotMeasureError:
        return cast(Callable[..., Any], _resolve(name))


def find_function(name: str) -> Callable[..., Any]:
    """Return the function of a name (see ``function_name``); a CannotMeasureError if torch lists none of it."""
    found: Any = torch
    package, *path = name.split(".")
    if path[:2] == ["ops", "torchvision"]:
        # Importing torchvision registers these operators.
        importlib.import_module("torchvision")
    for part in path if package == "torch" else [""]:
        found = getattr(found, part, None)
    # A name may resolve to anything (torch.os.system), so only functions that torch lists for tensors are admitted.
    is_listed = name in FACTORIES | UNLISTED or (
        callable(found) and resolve_name(found) is not None and found not in get_ignored_functions()
    )
    is_admitted = takes_tensor(found) if _overloads(found) else is_listed
    if not is_admitted or function_name(found) != name:
        is_foreign = path[:1] == ["ops"] and {*path[1:2]}.isdisjoint({*OPERATION_NAMESPACES, *NAMESPACES_OF_TORCH})
        remedy = ", and none with tensors and numbers alone is registered by torch.library here" if is_foreign else ""
        raise CannotMeasureError(f"this version of torch has no function {name}{remedy}")
    return cast(Callable[..., Any], found)


def function_of(operation: Any) -> Any:
    """Return what a tuple calls for an operation: its packet, or torch's factory, as ``takes_tensor`` refuses those."""
    packet = operation.overloadpacket
    name = packet.__name__
    is_factory = f"torch.{name}" in FACTORIES and operation.namespace == "aten"
    return getattr(torch, name) if is_factory else packet


def takes_tensor(function: Any) -> bool:
    """Return whether a function is an operation of torch, torchvision or a user whose first argument is a tensor.

    Others may read and write files (``torch.ops.image.write_file``), as may a user's operation that takes a text.
    """
    overloads, harmless = _overloads(function), []
    for one in overloads:
        types = [str(argument.type) for argument in one._schema.arguments]
        takes_text = not {*types}.isdisjoint(("str", "Optional[str]", "List[str]"))
        is_admitted = one.namespace in OPERATION_NAMESPACES or (is_custom(one) and not takes_text)
        # Packed weights may come first, in a namespace where nothing takes a text.
        is_first = types[:1] in (["Tensor"], ["Optional[Tensor]"], ["List[Tensor]"])
        harmless.append(is_admitted and (is_first or (bool(types) and one.namespace == QUANTIZED)))
    # Arguments choose the overload, so each of a user's must be harmless.
    return all(harmless) if any(map(is_custom, overloads)) else any(harmless)


def _overloads(function: Any) -> list[Any]:
    """Return those of a registered operation, such as ``torch.ops.aten.add``; none of another function."""
    if isinstance(function, torch._ops.OpOverloadPacket):
        return [getattr(function, overload) for overload in function.overloads()]
    return [function] if isinstance(function, torch._ops.OpOverload) else []


def is_custom(operation: Any) -> bool:
    """Return whether an overload of an operation was registered from Python with ``torch.library`` by a user."""
    return operation.namespace not in NAMESPACES_OF_TORCH and operation.name() in torch.library._defs


def build_module(operator: OperatorTuple, device: str, draws: bool = True) -> nn.Module:
    """Return a new module of a tuple with fresh weights; a CannotMeasureError if this version cannot build it.

    ``draws`` says whether weights may be drawn on the CPU where the constructor does not run on shapes.
    """
    cls = _resolve(operator.operator)
    arguments = dict(operator.parameters)
    if UNKNOWN in arguments:
        raise CannotMeasureError(f"{operator.operator} cannot be rebuilt: it does not keep {arguments[UNKNOWN]}")
    dtype_name = str(arguments.pop(DTYPE, FLOAT32))
    dtype = getattr(torch, dtype_name, None)
    if not isinstance(dtype, torch.dtype):
        raise CannotMeasureError(f"this version of torch has no dtype {dtype_name}")
    is_channels_last = arguments.pop(MEMORY_FORMAT, None) == CHANNELS_LAST
    module: nn.Module | None = None
    try:
        if device == META:
            # On shapes weights are not drawn first: those of a large one take seconds. A constructor may need values,
            # or refuse the arguments: then the usual way says so.
            with suppress(RuntimeError, TypeError, ValueError) if draws else nullcontext(), torch.device(META):
                module = cls(**arguments)
        module = store_weights(cls(**arguments).to(device) if module is None else module, dtype, is_channels_last)
    except (TypeError, ValueError) as error:
        raise CannotMeasureError(f"{operator.operator}({operator.parameters_text}) cannot be built: {error}") from error
    return module.train(operator.mode == "train")


def module_parameters(module: nn.Module) -> Iterator[tuple[str, PlainValue]]:
    """Yield the constructor's arguments by name without those that equal their default.

    Those that the module does not keep are ``unknown``, with a hash of the shapes of its weights and of its children.
    """
    unknown = []
    has_weights = next(module.parameters(), None) is not None
    for name, parameter in _constructor_parameters(_operator_class(module)):
        # ``*args`` and ``**kwargs`` are unknown for modules with weights (LSTM), without effect for others (Identity).
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) and not has_weights
        if name in ("device", DTYPE) or name.startswith("_") or is_variadic or _is_without_effect(module, name):
            continue
        value = _argument(module, name)
        if value == UNKNOWN:
            unknown.append(name)
        elif parameter.default is parameter.empty or value != plain_parameter(name, parameter.default):
            yield name, value
    if not all(map(is_dense, own_tensors(module))):
        unknown.append("dense weights")
    if unknown:
        shapes = [(name, tuple(weight.shape)) for name, weight in module.named_parameters()]
        children = [
            (name, public_name(type(child)), tuple(module_parameters(child))) for name, child in module.named_children()
        ]
        yield UNKNOWN, f"{', '.join(unknown)}; contents {short_hash(f'{shapes} {children}')}"
    dtype = weight_dtype(module)
    if dtype != torch.float32:
        yield DTYPE, plain_parameter(DTYPE, dtype)
    if has_channels_last(module):
        yield MEMORY_FORMAT, CHANNELS_LAST


@functools.lru_cache(maxsize=1024)
def _constructor_parameters(cls: Any) -> tuple[tuple[str, inspect.Parameter], ...]:
    # Recurrent modules hide them behind ``*args``.
    if not issubclass(cls, nn.RNNBase):
        return tuple(inspect.signature(cls).parameters.items())
    _, *named = inspect.signature(nn.RNNBase).parameters.items()
    nonlinearity = inspect.Parameter("nonlinearity", inspect.Parameter.KEYWORD_ONLY, default="tanh")
    return (*named, ("nonlinearity", nonlinearity)) if issubclass(cls, nn.RNN) else tuple(named)


def plain_parameter(name: str, value: Any) -> PlainValue:
    """Return a constructor's argument as plain data: a tensor as True, equal sizes as one number."""
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    plain = plain_value(value, {})
    if name in SIZE_PARAMETERS and isinstance(plain, tuple) and plain and all(size == plain[0] for size in plain):
        return plain[0]
    return plain


@functools.lru_cache(maxsize=1024)
def function_name(function: Callable[..., Any]) -> str:
    """Return the qualified name under which torch lists a function: ``torch.Tensor.add_``.

    Registered operations have their registered name: ``torch.ops.torchvision.nms``. The default overload of a user's
    operation has the name of the operation, by which it may be called, too. A function of torch that it does not list
    has the name of its operation: ``torch.ops.aten._grouped_mm``.
    """
    if isinstance(function, torch._ops.OpOverload) and is_custom(function):
        return f"torch.ops.{function}".removesuffix(".default")
    if _overloads(function):
        return f"torch.ops.{function}"
    listed: str | None = resolve_name(function)
    if listed is not None:
        # The better known name.
        return "torch.mm" if listed == "torch.spmm" else listed
    name = getattr(function, "__name__", "")
    is_own = any(getattr(namespace, name, None) is function for namespace in (torch, torch._C._nn))
    operation = getattr(torch.ops.aten, name, None) if is_own and inspect.isbuiltin(function) else None
    if takes_tensor(operation):
        return f"torch.ops.{operation}"
    return f"{getattr(function, '__module__', None)}.{name or repr(function)}"


@functools.lru_cache(maxsize=1024)
def function_defaults(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the defaults of a function's arguments if Python knows its signature, else none."""
    try:
        parameters = inspect.signature(function).parameters.items() if inspect.isfunction(function) else ()
    except ValueError:
        # Some Python functions wrap one without a signature: ``x ** 2``.
        return {}
    return {name: parameter.default for name, parameter in parameters if parameter.default is not parameter.empty}


def _is_without_effect(module: nn.Module, name: str) -> bool:
    if name == "bias" and getattr(module, "affine", True) is False:
        # Norms without weights have no bias, and older versions of torch lack this argument.
        return True
    return not module.training and type(module).__name__.startswith(WITHOUT_EFFECT_IN_EVAL.get(name, ()))


def _argument(module: nn.Module, name: str) -> PlainValue:
    reader = SPECIAL_READERS.get((_operator_class(module).__name__, name))
    if reader is not None:
        return plain_parameter(name, reader(module))
    if name == "bias" and getattr(module, "bias", 0) is None:
        return False
    kept = next((attribute for attribute in (name, f"_{name}") if hasattr(module, attribute)), None)
    return UNKNOWN if kept is None else plain_parameter(name, getattr(module, kept))


def _resolve(operator: str) -> Any:
    package, _, name = operator.rpartition(".")
    if package.partition(".")[0] not in TRUSTED_PACKAGES:
        raise CannotMeasureError(f"{operator} is not an operator of {' or '.join(TRUSTED_PACKAGES)}")
    try:
        cls = getattr(importlib.import_module(package), name, None)
    except ImportError as error:
        raise CannotMeasureError(f"{operator} is not in this version of {package.partition('.')[0]}") from error
    # The name may be an alias of something else, so the resolved object is checked.
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        raise CannotMeasureError(f"{operator} is no module class in this version of {package.partition('.')[0]}")
    return cls
