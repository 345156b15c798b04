"""Under what a figure holds.

``Conditions`` must be equal for figures that are summed or compared; ``Circumstances`` may differ and are listed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Final, Literal, TypeAlias

from opcost.columns import ABOVE_0, COUNT, COUNT_FROM_1, FROM_0, Column, Columns, one_of
from opcost.operators.cases import Case
from opcost.operators.tuples import short_hash

EAGER = "eager"
GRAPH = "graph"
EXECUTIONS = (GRAPH, EAGER)
"""How operators and models are run: by Python's calls, or as CUDA graphs where they can be captured."""

Precision: TypeAlias = Literal["torch-default", "fp32", "tf32"]
"""What a config may ask for; ``torch_backend.switches`` sets it."""

TORCH_DEFAULT: Final = "torch-default"
"""The precision that torch has unasked: TF32 in cuDNN's convolutions, fp32 in matrix products."""

WARM = "warm"
COLD = "cold"
CHAINED = "chained"
CACHES = (WARM, COLD, CHAINED)
"""What an operator that runs again and again finds in the device's cache: all that the call before used, inputs but no
weights, or the output of a layer like itself as its input. Whole models run as they are, which is called warm.
"""


DEVICE_PRODUCT = Column("name of the device")
DEVICE_UUID = Column("which board of this name")
DRIVER_VERSION = Column("version of the device's driver")
TORCH_VERSION = Column("version of torch")


@dataclass(frozen=True)
class Conditions(Columns):
    """What must be equal before two figures may be summed or compared.

    What a device does not have is None: a CPU has no driver, a GPU figure does not depend on CPU threads.
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
    precision: Annotated[str, Column("precision that was asked for: `torch-default`, `fp32` or `tf32`")]
    matmul_tf32: Annotated[bool, Column("whether matrix products may use TF32")]
    cudnn_tf32: Annotated[bool, Column("whether cuDNN may use TF32")]
    cudnn_benchmark: Annotated[bool, Column("whether cuDNN chooses algorithms by timing them")]
    cudnn_deterministic: Annotated[bool, Column("whether cuDNN may use deterministic algorithms only")]
    deterministic_algorithms: Annotated[bool, Column("whether torch may use deterministic algorithms only")]
    sdpa_flash: Annotated[bool, Column("whether attention may use the flash kernel")]
    sdpa_memory_efficient: Annotated[bool, Column("whether attention may use the memory-efficient kernel")]
    sdpa_cudnn: Annotated[bool, Column("whether attention may use cuDNN's kernel")]
    sdpa_math: Annotated[bool, Column("whether attention may use plain matrix products")]
    mode: Annotated[str, Column("which pass ran: `inference`")] = "inference"
    execution: Annotated[str, Column("how operators are run where they can be", one_of(*EXECUTIONS))] = EAGER
    cache: Annotated[str, Column("what an operator finds in the device's cache", one_of(*CACHES))] = WARM

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits that are equal for equal conditions."""
        return short_hash("\n".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)))

    def differences(self, other: Conditions) -> tuple[str, ...]:
        """Return one text for each field that differs: ``torch_version: 2.11.0 / 2.12.0``."""
        return tuple(
            f"{field.name}: {getattr(self, field.name)} / {getattr(other, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        )


@dataclass(frozen=True)
class Circumstances(Columns):
    """What may differ between figures that are summed, and is listed instead: which board, which host, how long."""

    device_uuid: Annotated[str | None, DEVICE_UUID]
    host_cpu: Annotated[str, Column("the processor of the host")]
    python_version: Annotated[str, Column("version of Python")]
    opcost_version: Annotated[str, Column("version of opcost")]
    torchvision_version: Annotated[str | None, Column("version of torchvision")]
    warm_up_s: Annotated[float, Column("length of the warm-up that was asked for", FROM_0)]
    loop_s: Annotated[float | None, Column("length of the loop that was asked for; empty: a precision was", ABOVE_0)]
    relative_error: Annotated[float | None, Column("precision that was asked for; empty: a time was", ABOVE_0)] = None

    def __post_init__(self) -> None:
        """Check all values.

        Raises:
            ValueError: one cannot be, or neither a time nor a precision was asked for.
        """
        super().__post_init__()
        if self.loop_s is None and self.relative_error is None:
            raise ValueError("loop_s, relative_error: both are empty")

    @property
    def protocol(self) -> str:
        """How long or how precisely was measured after the warm-up, in words."""
        return (
            f"a loop of {self.loop_s:g} s" if self.loop_s is not None else f"a loop to within {self.relative_error:.2%}"
        )

    def is_as_good_as(self, loop_s: float, relative_error: float | None, full_loop_s: float) -> bool:
        """Return whether a measurement of this length or precision stands for one of another.

        One of the full length stands for any precision.
        """
        if self.loop_s is not None:
            return self.loop_s >= (loop_s if relative_error is None else full_loop_s)
        return relative_error is not None and self.relative_error is not None and self.relative_error <= relative_error


def measurement_key(case: Case, conditions: Conditions) -> str:
    """Return a row's key: those of the operator, of its values and of the conditions, joined by hyphens."""
    return f"{case.key}-{conditions.key}"


@dataclass(frozen=True)
class DeviceFacts:
    """What a device is, as the conditions record it; ``uuid`` tells boards of one product apart.

    ``is_mig`` says whether it is divided into instances, whose power it tells together only.
    """

    uuid: str | None
    product: str
    memory_bytes: int
    power_limit_w: float | None
    driver_version: str | None
    is_mig: bool = False


def device_type_of(device: str) -> str:
    """Return the type of a torch device: ``cpu``, ``cuda`` or ``meta``."""
    return device.partition(":")[0]


def is_gpu(device: str) -> bool:
    """Return whether a torch device is a GPU."""
    return device_type_of(device) == "cuda"
