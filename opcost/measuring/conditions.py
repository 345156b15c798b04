"""Under what a figure holds.

``Conditions`` must be equal for figures that are summed or compared; ``Circumstances`` may differ and are listed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal, TypeAlias

from opcost.operators.subjects import Subject
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


@dataclass(frozen=True)
class Conditions:
    """What must be equal before two figures may be summed or compared.

    What a device does not have is None: a CPU has no driver, a GPU figure does not depend on CPU threads.
    ``precision`` is ``torch-default``, ``fp32`` or ``tf32``; the switches behind it are recorded one by one.
    """

    device_type: str
    device_product: str
    device_memory_bytes: int
    device_power_limit_w: float | None
    driver_version: str | None
    torch_version: str
    cuda_version: str | None
    cudnn_version: str | None
    cpu_threads: int | None
    precision: str
    matmul_tf32: bool
    cudnn_tf32: bool
    cudnn_benchmark: bool
    cudnn_deterministic: bool
    deterministic_algorithms: bool
    sdpa_flash: bool
    sdpa_memory_efficient: bool
    sdpa_cudnn: bool
    sdpa_math: bool
    mode: str = "inference"
    execution: str = EAGER
    cache: str = WARM

    @property
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
class Circumstances:
    """What may differ between figures that are summed, and is listed instead: which board, which host, how long."""

    device_uuid: str | None
    host_cpu: str
    python_version: str
    opcost_version: str
    torchvision_version: str | None
    warm_up_s: float
    loop_s: float | None
    relative_error: float | None = None

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


def measurement_key(subject: Subject, conditions: Conditions) -> str:
    """Return a row's key: those of the operator, of its values and of the conditions, joined by hyphens."""
    return f"{subject.key}-{conditions.key}"


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
