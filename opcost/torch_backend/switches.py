"""torch's versions and switches that are part of the conditions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch

from opcost.errors import UserError
from opcost.measuring.conditions import AUTOCAST_DTYPES, device_type_of, is_gpu
from opcost.torch_backend.kept_switches import FP32_PRECISIONS, kept_switches, other_switches

TF32_SWITCHES = {"fp32": (False, False), "tf32": (True, True)}
"""The switches of a precision: whether TF32 is used in matrix products, and in cuDNN. Others have torch's defaults."""

DEFAULT_TF32_SWITCHES = (False, True)

OVERRIDES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
"""Environment variables that override torch's switches."""


@dataclass(frozen=True)
class TorchState:
    """The conditions that torch reports."""

    torch_version: str
    cuda_version: str | None
    cudnn_version: str | None
    cpu_threads: int | None
    matmul_tf32: bool
    cudnn_tf32: bool
    cudnn_benchmark: bool
    cudnn_deterministic: bool
    deterministic_algorithms: bool
    sdpa_flash: bool
    sdpa_memory_efficient: bool
    sdpa_cudnn: bool
    sdpa_math: bool
    matmul_bf16_reduction: bool | None
    matmul_fp16_reduction: bool | None
    matmul_fp16_accumulation: bool | None
    other_switches: str | None


def torch_state(device: str) -> TorchState:
    """Return torch's present versions and switches; those that do not affect the device are None."""
    on_gpu = is_gpu(device)
    cudnn = torch.backends.cudnn.version() if on_gpu else None
    matmul_tf32, cudnn_tf32 = tf32_switches()
    return TorchState(
        torch_version=str(torch.__version__),
        cuda_version=torch.version.cuda if on_gpu else None,
        cudnn_version=None if cudnn is None else str(cudnn),
        cpu_threads=None if on_gpu else torch.get_num_threads(),
        matmul_tf32=matmul_tf32,
        cudnn_tf32=cudnn_tf32,
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        cudnn_deterministic=torch.backends.cudnn.deterministic,
        deterministic_algorithms=torch.are_deterministic_algorithms_enabled(),
        sdpa_flash=torch.backends.cuda.flash_sdp_enabled(),
        sdpa_memory_efficient=torch.backends.cuda.mem_efficient_sdp_enabled(),
        sdpa_cudnn=torch.backends.cuda.cudnn_sdp_enabled(),
        sdpa_math=torch.backends.cuda.math_sdp_enabled(),
        matmul_bf16_reduction=_unless(True, torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
        matmul_fp16_reduction=_unless(True, torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        matmul_fp16_accumulation=_unless(False, getattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", False)),
        other_switches=other_switches(),
    )


def tf32_switches() -> tuple[bool, bool]:
    """Return whether TF32 is used in matrix products, and in convolutions of cuDNN.

    ``allow_tf32`` raises an error once ``fp32_precision`` of torch 2.9 has been set, which shows both.
    """
    matmul, cudnn = torch.backends.cuda.matmul, cast(Any, torch.backends.cudnn)
    if hasattr(matmul, "fp32_precision"):
        return matmul.fp32_precision == "tf32", cudnn.conv.fp32_precision == "tf32"
    return matmul.allow_tf32, cudnn.allow_tf32


def _unless(default: bool, value: bool) -> bool | None:
    return None if value == default else value


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Set the TF32 switches of a precision (see ``TF32_SWITCHES``), and put all switches back afterwards."""
    with kept_switches():
        for switch in FP32_PRECISIONS:
            switch.write("none")
        in_matmul, in_cudnn = TF32_SWITCHES.get(name, DEFAULT_TF32_SWITCHES)
        torch.backends.cuda.matmul.allow_tf32 = in_matmul
        torch.backends.cudnn.allow_tf32 = in_cudnn
        yield


def autocast(precision: str, device: str, keeps_casts: bool = True) -> AbstractContextManager[object]:
    """Return a new context of autocast as a precision uses it, or a context without effect.

    Autocast may keep casts of weights until its context ends (torch 2.14 does not in inference mode), so enter one for
    each run of a model. To enter it takes about 9 us on a CPU, so enter one that keeps no casts for a loop of calls of
    an operator.
    """
    if precision not in AUTOCAST_DTYPES:
        return nullcontext()
    dtype = getattr(torch, AUTOCAST_DTYPES[precision])
    return torch.autocast(device_type_of(device), dtype, cache_enabled=keeps_casts)


def autocast_dtypes() -> tuple[torch.dtype | None, ...]:
    """Return the dtype to which autocast casts now on a CPU and on a GPU, None where it is off."""
    return tuple(
        torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None for device in ("cpu", "cuda")
    )


def check_overrides(environment: Mapping[str, str] | None = None) -> None:
    """Refuse environment variables that change the precision without torch's switches showing it.

    Raises:
        UserError: with one line for each variable that is set.
    """
    found = [name for name in OVERRIDES if name in (os.environ if environment is None else environment)]
    if found:
        raise UserError(
            *(f"{name} is set: unset it, and write precision: tf32 or fp32 in summary.yml" for name in found)
        )
