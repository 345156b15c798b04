"""torch's versions and switches: what a figure holds under, read and set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

PRECISIONS = {"torch-default": None, "fp32": False, "tf32": True}
"""Whether TF32 is forced off or on; ``torch-default`` leaves what torch does unasked: on in cuDNN, off in matmul."""


@dataclass(frozen=True)
class TorchState:
    """The part of the conditions that torch knows."""

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


def torch_state(device: str) -> TorchState:
    """Return torch's versions and switches as they are now; what does not touch the device is None."""
    on_gpu = device.startswith("cuda")
    cudnn = torch.backends.cudnn.version() if on_gpu else None
    return TorchState(
        torch_version=str(torch.__version__),
        cuda_version=torch.version.cuda if on_gpu else None,
        cudnn_version=None if cudnn is None else str(cudnn),
        cpu_threads=None if on_gpu else torch.get_num_threads(),
        matmul_tf32=torch.backends.cuda.matmul.allow_tf32,
        cudnn_tf32=torch.backends.cudnn.allow_tf32,
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        cudnn_deterministic=torch.backends.cudnn.deterministic,
        deterministic_algorithms=torch.are_deterministic_algorithms_enabled(),
        sdpa_flash=torch.backends.cuda.flash_sdp_enabled(),
        sdpa_memory_efficient=torch.backends.cuda.mem_efficient_sdp_enabled(),
        sdpa_cudnn=torch.backends.cuda.cudnn_sdp_enabled(),
        sdpa_math=torch.backends.cuda.math_sdp_enabled(),
    )


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Set the TF32 switches of a precision (see ``PRECISIONS``), and set them back afterwards."""
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    forced = PRECISIONS[name]
    try:
        if forced is not None:
            _allow_tf32(forced, forced)
        yield
    finally:
        _allow_tf32(*before)


def _allow_tf32(in_matmul: bool, in_cudnn: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = in_matmul
    torch.backends.cudnn.allow_tf32 = in_cudnn
