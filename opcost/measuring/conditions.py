"""Conditions of a measurement, which must be equal for figures that are summed or compared, and circumstances."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, lru_cache
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from opcost.columns import ABOVE_0, COUNT, COUNT_FROM_1, FROM_0, Column, Columns, one_of
from opcost.measuring.precisions import AUTOCAST_DTYPES, DTYPES, Precision
from opcost.operators.attention import ANY_BACKEND, SDPA
from opcost.operators.counts import COMPOSITES, Case
from opcost.operators.tuples import FLOAT32, Constant, OperatorTuple, TensorSpec, library_of, nested, short_hash
from opcost.units import short_uuid

_DEVICE_NAME = re.compile(r"cpu|cuda(:(0|[1-9][0-9]*))?")

EAGER = "eager"
GRAPH = "graph"
EXECUTIONS = (GRAPH, EAGER)
"""How operators and models are run: as CUDA graphs if they can be captured, or called from Python."""

MemoryFormat: TypeAlias = Literal["contiguous", "channels_last"]
"""The memory formats of inputs and weights that a config may ask for."""

CONTIGUOUS: Final = "contiguous"
CHANNELS_LAST: Final = "channels_last"

WARM = "warm"
COLD = "cold"
STATE = "state"
CACHES = (WARM, STATE)
"""Contents of the device's cache at each call of an operator: everything that the previous call used, or what its
case's ``state`` says, as in its model. Whole models are always ``warm``."""

FORMER_CACHES = (COLD, "chained")
"""The contents in rows of former versions: the inputs but not the weights; the outputs of a similar layer as inputs."""

REDUCTION_FIELDS = ("matmul_bf16_reduction", "matmul_fp16_accumulation", "matmul_fp16_reduction")
ADDED_FIELDS = frozenset({*REDUCTION_FIELDS, "other_switches"})
"""Fields of ``Conditions`` that former versions did not have. They are None at torch's default."""

FORMER_LINES = {"sdpa_math": "mode='inference'"}
"""Lines of the hashed text for fields of former versions, behind the line of a field: the phase of a case was one."""

PRECISION_FIELDS = ("precision", "matmul_tf32", "cudnn_tf32", *REDUCTION_FIELDS)
"""Fields of ``Conditions`` that a precision sets. The others are equal in two precisions that are compared."""

DEVICE_FIELDS = ("device_type", "device_product", "device_memory_bytes", "device_power_limit_w", "driver_version")
"""Fields of ``Conditions`` that belong to a device."""

ATTENTION_FIELDS = {
    "flash": "sdpa_flash",
    "efficient": "sdpa_memory_efficient",
    "cudnn": "sdpa_cudnn",
    "math": "sdpa_math",
}
"""The field of ``Conditions`` of each back end of attention."""

ATTENTION_SWITCHES = frozenset(ATTENTION_FIELDS.values())

DEFAULTED = "; empty for torch's default"

DEVICE_PRODUCT = Column("name of the device")
DEVICE_UUID = Column("beginning of the board's UUID", read=short_uuid)
DRIVER_VERSION = Column("version of the device's driver")
TORCH_VERSION = Column("version of torch")


@dataclass(frozen=True)
class Conditions(Columns):
    """Conditions that must be equal before two figures may be summed or compared.

    Those that do not apply to a device are None: a CPU has no driver, and costs on a GPU do not depend on CPU threads.
    """

    device_type: Annotated[str, Column("`cuda` or `cpu`")]
    device_product: Annotated[str, DEVICE_PRODUCT]
    device_memory_bytes: Annotated[int, Column("memory of the device", COUNT)]
    device_power_limit_w: Annotated[float | None, Column("power limit of the device", ABOVE_0)]
    driver_version: Annotated[str | None, DRIVER_VERSION]
    torch_version: Annotated[str, TORCH_VERSION]
    cuda_version: Annotated[str | None, Column("version of CUDA that torch was built with")]
    cudnn_version: Annotated[str | None, Column("version of cuDNN")]
    cpu_threads: Annotated[int | None, Column("threads of torch, on a CPU only", COUNT_FROM_1)]
    precision: Annotated[str, Column("requested precision", one_of(*get_args(Precision)))]
    matmul_tf32: Annotated[bool, Column("whether matrix products may use TF32")]
    cudnn_tf32: Annotated[bool, Column("whether cuDNN may use TF32")]
    cudnn_benchmark: Annotated[bool, Column("whether cuDNN chooses algorithms by timing them")]
    cudnn_deterministic: Annotated[bool, Column("whether cuDNN may use deterministic algorithms only")]
    deterministic_algorithms: Annotated[bool, Column("whether torch may use deterministic algorithms only")]
    sdpa_flash: Annotated[bool, Column("whether attention may use the flash kernel")]
    sdpa_memory_efficient: Annotated[bool, Column("whether attention may use the memory-efficient kernel")]
    sdpa_cudnn: Annotated[bool, Column("whether attention may use cuDNN's kernel")]
    sdpa_math: Annotated[bool, Column("whether attention may use plain matrix products")]
    execution: Annotated[str, Column("requested execution of operators and models", one_of(*EXECUTIONS))] = EAGER
    cache: Annotated[str, Column("contents of the device's cache at each call", one_of(*CACHES, *FORMER_CACHES))] = WARM
    matmul_bf16_reduction: Annotated[bool | None, Column(f"whether products in bf16 may reduce in bf16{DEFAULTED}")] = (
        None
    )
    matmul_fp16_reduction: Annotated[bool | None, Column(f"whether products in fp16 may reduce in fp16{DEFAULTED}")] = (
        None
    )
    matmul_fp16_accumulation: Annotated[
        bool | None, Column(f"whether products in fp16 may accumulate in fp16{DEFAULTED}")
    ] = None
    other_switches: Annotated[
        str | None,
        Column(
            "other switches of torch and variables of libraries that change kernels; empty if all are at their default"
        ),
    ] = None

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits of a hash, equal for equal conditions, and for rows of former versions what it was."""
        lines = []
        for name in _NAMES:
            value = getattr(self, name)
            if value is not None or name not in ADDED_FIELDS:
                lines.append(f"{name}={value!r}")
            if name in FORMER_LINES:
                lines.append(FORMER_LINES[name])
        return short_hash("\n".join(lines))

    @property
    def attention(self) -> str:
        """The back end of attention, if it is one alone."""
        allowed = [name for name, field in ATTENTION_FIELDS.items() if getattr(self, field)]
        return allowed[0] if len(allowed) == 1 else ANY_BACKEND

    def with_attention(self, backend: str) -> Conditions:
        """Return the same conditions with one back end of attention alone, or with all."""
        allowed: dict[str, Any] = {field: backend in (ANY_BACKEND, name) for name, field in ATTENTION_FIELDS.items()}
        return self if backend == self.attention else replace(self, **allowed)

    def differences(self, other: Conditions) -> tuple[str, ...]:
        """Return one text for each field that differs: ``torch_version: 2.11.0 / 2.12.0``."""
        names = differing_fields([self, other])
        return tuple(f"{name}: {getattr(self, name)} / {getattr(other, name)}" for name in names)


_NAMES = tuple(field.name for field in fields(Conditions))


def differ_only_in(one: Conditions, other: Conditions, names: Collection[str]) -> bool:
    """Return whether two sets of conditions are equal but for fields with these names, or equal."""
    return replace(other, **{name: getattr(one, name) for name in names}) == one


def differing_fields(conditions: Collection[Conditions]) -> tuple[str, ...]:
    """Return the names of the fields in which these conditions differ."""
    return tuple(name for name in _NAMES if len({getattr(one, name) for one in conditions}) > 1)


@dataclass(frozen=True)
class Circumstances(Columns):
    """Properties that may differ between figures that are summed, and are reported: board, host, versions, protocol."""

    device_uuid: Annotated[str | None, DEVICE_UUID]
    host_cpu: Annotated[str, Column("processor of the host")]
    python_version: Annotated[str, Column("version of Python")]
    opcost_version: Annotated[str, Column("version of opcost")]
    torchvision_version: Annotated[str | None, Column("version of torchvision")]
    warm_up_s: Annotated[float, Column("requested length of the warm-up", FROM_0)]
    loop_s: Annotated[float | None, Column("requested length of the loop; empty with a target precision", ABOVE_0)]
    relative_error: Annotated[float | None, Column("target precision; empty with a requested length", ABOVE_0)] = None
    timm_version: Annotated[str | None, Column("version of timm")] = None
    transformers_version: Annotated[str | None, Column("version of transformers")] = None

    def __post_init__(self) -> None:
        """Raise ValueError: a value is not allowed, or ``loop_s`` and ``relative_error`` are both None."""
        super().__post_init__()
        if self.loop_s is None and self.relative_error is None:
            raise ValueError("loop_s, relative_error: both are empty")

    def library_of(self, operator: str) -> str | None:
        """Return the library that a model comes from with its version: ``timm 1.0.9``; None if any is unknown."""
        name = library_of(operator)
        version = None if name is None else getattr(self, f"{name}_version")
        return None if version is None else f"{name} {version}"

    @property
    def protocol(self) -> str:
        """The length or the target precision of the loop, in words."""
        return (
            f"a loop of {self.loop_s:g} s" if self.loop_s is not None else f"a loop to within {self.relative_error:.2%}"
        )

    def suffices_for(self, loop_s: float, relative_error: float | None, full_loop_s: float) -> bool:
        """Return whether this protocol is as long or precise as another; a full loop is, for any target precision."""
        if self.loop_s is not None:
            return self.loop_s >= (loop_s if relative_error is None else full_loop_s)
        return relative_error is not None and self.relative_error is not None and self.relative_error <= relative_error


def measurement_key(case: Case, conditions: Conditions) -> str:
    """Return a row's key: the hashes of operator, input data and conditions, joined by hyphens."""
    return f"{case.key}-{conditions.key}"


def precision_dtype(precision: str) -> str:
    """Return the dtype of a precision's weights and inputs; under autocast, that of its products."""
    return DTYPES.get(precision) or AUTOCAST_DTYPES.get(precision, FLOAT32)


def usual_execution(device_type: str) -> str:
    """Return the execution on a type of device if none is asked for: ``graph`` on a GPU, ``eager`` on a CPU."""
    return EAGER if device_type == "cpu" else GRAPH


def device_type_of(device: str) -> str:
    """Return the type of a torch device: ``cpu``, ``cuda`` or ``meta``."""
    return device.partition(":")[0]


def is_device_name(text: str) -> bool:
    """Return whether a text is ``cpu``, ``cuda`` or ``cuda:N``."""
    return _DEVICE_NAME.fullmatch(text) is not None


def is_gpu(device: str) -> bool:
    """Return whether a torch device is a GPU."""
    return device_type_of(device) == "cuda"


# Rows of an operator that stand for each other: a condition that cannot touch its dtypes does not part them.
# This holds for look-up only. Keys have all conditions. Only what follows from the dtypes is claimed: TF32 is a way to
# multiply float32, and reductions in bf16 or fp16 are of products in these dtypes. Products take operands of one dtype.

LookupKey: TypeAlias = tuple[object, ...]
"""Values that are equal if rows of one operator on the same input data stand for each other."""

TF32_FIELDS = frozenset({"precision", "matmul_tf32", "cudnn_tf32"})
"""The conditions that choose between TF32 and fp32. Without autocast, a precision means dtypes and these switches."""

FIELDS_OF_DTYPE = {
    "bfloat16": frozenset({"matmul_bf16_reduction"}),
    "float16": frozenset({"matmul_fp16_reduction", "matmul_fp16_accumulation"}),
}
"""The conditions that touch products in a dtype only."""

WITHOUT_TF32 = frozenset({*FIELDS_OF_DTYPE, "bool", "int16", "int32", "int64"})
"""Dtypes that TF32 does not touch. Those of 8 bits are left out, because libraries multiply them in other ways."""

CALCULATING_IN_OTHER_DTYPES = frozenset({*COMPOSITES, SDPA, "multi_head_attention_forward", "TransformerDecoderLayer"})
"""Operators that may multiply in another dtype than that of their tensors: plain attention in 16 bits uses float32."""

_OF_TORCH: Final = "torch."

_DTYPE = re.compile(rf"{re.escape(_OF_TORCH)}(bool|(?:b?float|complex|u?int)\d\w*)")


def lookup_key(operator: OperatorTuple, conditions: Conditions) -> LookupKey:
    """Return a key that is equal for conditions under which rows of an operator stand for each other."""
    is_cast = conditions.precision in AUTOCAST_DTYPES
    without = frozenset[str]() if operator.is_model else irrelevant_fields(operator, is_cast)
    return _getter_of_others(without)(conditions)


@cache
def _getter_of_others(without: frozenset[str]) -> Callable[[Conditions], LookupKey]:
    # Sums ask for thousands of keys.
    return attrgetter(*(name for name in _NAMES if name not in without))


@lru_cache(2**16)
def irrelevant_fields(operator: OperatorTuple, is_cast: bool = False) -> frozenset[str]:
    """Return the names of the conditions that cannot change how an operator runs, with or without autocast."""
    dtypes, attention = dtypes_of(operator), frozenset[str]() if may_attend(operator) else ATTENTION_SWITCHES
    if is_cast or not dtypes:
        return attention
    others = (names for dtype, names in FIELDS_OF_DTYPE.items() if dtype not in dtypes)
    return attention.union(*others, TF32_FIELDS if dtypes <= WITHOUT_TF32 else ())


def may_attend(operator: OperatorTuple) -> bool:
    """Return whether an operator is attention, or may have it inside, as those of users may."""
    is_of_torch = operator.operator.startswith(_OF_TORCH) and not operator.operator.startswith("torch.ops.")
    name = operator.short_name.lower()
    return not is_of_torch or "attention" in name or "transformer" in name


def dtypes_of(operator: OperatorTuple) -> frozenset[str]:
    """Return the dtypes of an operator's tensors: ``bfloat16``; none if it may use others inside, or has no tensor."""
    if not operator.operator.startswith(_OF_TORCH) or operator.short_name in CALCULATING_IN_OTHER_DTYPES:
        return frozenset()
    parameters = dict(operator.parameters)
    values = [*operator.inputs, *(value for _, value in operator.keyword_inputs), *parameters.values()]
    found = set[str]()
    for value in nested(values):
        if isinstance(value, TensorSpec):
            found.add(value.dtype)
        elif isinstance(value, Constant):
            found.update(_DTYPE.findall(value.name))
    weights = parameters.get("dtype")
    if isinstance(weights, str):
        found.add(weights)
    elif not operator.is_function and not operator.floating_inputs:
        # Weights in float32 are not named.
        found.add(FLOAT32)
    return frozenset(found)
