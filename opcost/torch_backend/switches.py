"""torch's switches that change what runs: how each is read, written and named, and those that are conditions.

A model is a program of its user's: importing, building or running it may set any of them, so a context puts all back.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, cast

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from opcost.errors import UserError
from opcost.measuring.conditions import device_type_of, is_gpu
from opcost.measuring.precisions import AUTOCAST_DTYPES
from opcost.operators.attention import ANY_BACKEND
from opcost.operators.tuples import Phase
from opcost.torch_backend.passes import present_phase

UNREADABLE = object()
"""The value of the older switches of TF32 after newer ones were set to something else."""


@dataclass(frozen=True)
class Switch:
    """A switch of torch.

    ``statement`` sets it in a program, with ``{}`` for the value. ``defaults`` are values that need no record: torch's
    own. They are empty if another column has the value, or if torch's default depends on its version or the device.
    """

    statement: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    defaults: tuple[Any, ...] = ()

    def set_to(self, value: object) -> str:
        """Return the statement that sets a value: ``torch.backends.cudnn.benchmark = True``."""
        return self.statement.format(value if isinstance(value, torch.dtype) else repr(value))

    @property
    def value(self) -> Any:
        """The present value; ``UNREADABLE`` if torch refuses, an AttributeError if there is no such switch."""
        try:
            return self.read()
        except RuntimeError:
            return UNREADABLE


def _attribute(path: str, *defaults: object) -> Switch:
    *parents, name = path.split(".")
    return Switch(
        f"torch.{path} = {{}}",
        lambda: getattr(reduce(getattr, parents, torch), name),
        lambda value: setattr(reduce(getattr, parents, torch), name, value),
        defaults,
    )


def _function(path: str, read: str, *defaults: object) -> Switch:
    """Return the switch that the function ``path`` sets and the function ``read`` reads, both below ``torch``."""

    def call(name: str, *values: object) -> Any:
        return reduce(getattr, name.split("."), torch)(*values)  # type: ignore[operator]

    return Switch(f"torch.{path}({{}})", partial(call, read), partial(call, path), defaults)


def _fp32_precision(path: str, backend: str, operation: str) -> Switch:
    """Return a switch of fp32 products. ``torch.backends.mkldnn.fp32_precision`` itself sets another one (2.14)."""
    return Switch(
        f"torch.backends.{path}fp32_precision = {{}}",
        lambda: torch._C._get_fp32_precision_getter(backend, operation),
        lambda value: torch._C._set_fp32_precision_setter(backend, operation, value),
    )


def _reduction(dtype: str) -> Switch:
    """Return the switch of reductions in a dtype; its value is that of the reduction, and of split-k if there is one.

    Both are written at once, because torch refuses some pairs. A value without split-k has a column of its own.
    """
    name = f"allow_{dtype}_reduced_precision_reduction"
    switch = _attribute(f"backends.cuda.matmul.{name}", True, False, (True, True), (False, True))

    def read() -> object:
        matmul = torch.backends.cuda.matmul
        allowed, has_split_k = getattr(matmul, name), hasattr(matmul, f"{name}_split_k")
        return (allowed, getattr(matmul, f"{name}_split_k")) if has_split_k else allowed

    return replace(switch, read=read)


def _known(*switches: Switch) -> tuple[Switch, ...]:
    known = []
    for switch in switches:
        with suppress(AttributeError):
            switch.value  # noqa: B018 (reading shows whether it is there)
            known.append(switch)
    return tuple(known)


def _library(path: str, *defaults: str) -> Switch:
    switch = _function(path, path, *defaults)
    return replace(switch, read=lambda: str(switch.read().name).lower())


FP32_PRECISIONS = _known(
    _fp32_precision("", "generic", "all"),
    _fp32_precision("cudnn.", "cuda", "all"),
    _fp32_precision("mkldnn.", "mkldnn", "all"),
    _fp32_precision("cuda.matmul.", "cuda", "matmul"),
    _fp32_precision("cudnn.conv.", "cuda", "conv"),
    _fp32_precision("cudnn.rnn.", "cuda", "rnn"),
    _fp32_precision("mkldnn.matmul.", "mkldnn", "matmul"),
    _fp32_precision("mkldnn.conv.", "mkldnn", "conv"),
    _fp32_precision("mkldnn.rnn.", "mkldnn", "rnn"),
)
"""The newer switches of TF32 (torch 2.9). One at ``none`` follows that of its library, and this the first."""

SWITCHES = _known(
    # Those of TF32 come first, because setting one changes later ones.
    *FP32_PRECISIONS[:3],
    _function("set_float32_matmul_precision", "get_float32_matmul_precision"),
    _attribute("backends.cuda.matmul.allow_tf32"),
    _attribute("backends.cudnn.allow_tf32"),
    *FP32_PRECISIONS[3:],
    _attribute("backends.cudnn.enabled", True),
    _attribute("backends.cudnn.benchmark"),
    _attribute("backends.cudnn.benchmark_limit", 10, None),
    _attribute("backends.cudnn.deterministic"),
    _attribute("backends.cudnn.depthwise_kernel", "auto"),
    _function("set_deterministic_debug_mode", "get_deterministic_debug_mode"),
    _attribute("utils.deterministic.fill_uninitialized_memory", True),
    _function("backends.cuda.enable_flash_sdp", "backends.cuda.flash_sdp_enabled"),
    _function("backends.cuda.enable_mem_efficient_sdp", "backends.cuda.mem_efficient_sdp_enabled"),
    _function("backends.cuda.enable_cudnn_sdp", "backends.cuda.cudnn_sdp_enabled"),
    _function("backends.cuda.enable_math_sdp", "backends.cuda.math_sdp_enabled"),
    _function(
        "backends.cuda.allow_fp16_bf16_reduction_math_sdp", "backends.cuda.fp16_bf16_reduction_math_sdp_allowed", False
    ),
    _reduction("bf16"),
    _reduction("fp16"),
    _attribute("backends.cuda.matmul.allow_fp16_accumulation"),
    _attribute("backends.cuda.matmul.prefer_cublaslt_grouped_gemm", False),
    # Without a preference, recent versions name cuBLAS.
    _library("backends.cuda.preferred_blas_library", "default", "cublas"),
    _library("backends.cuda.preferred_linalg_library", "default"),
    _function("backends.mha.set_fastpath_enabled", "backends.mha.get_fastpath_enabled", True),
    _attribute("backends.mkldnn.enabled", True),
    _attribute("backends.mkldnn.deterministic", False),
    _attribute("backends.opt_einsum.enabled"),
    _attribute("backends.opt_einsum.strategy"),
    *(
        Switch(
            f"torch.set_autocast_enabled({kind!r}, {{}})",
            partial(torch.is_autocast_enabled, kind),
            partial(torch.set_autocast_enabled, kind),
            (False,),
        )
        for kind in ("cpu", "cuda")
    ),
    _function("set_default_dtype", "get_default_dtype", torch.float32),
    # The CPU is torch's own choice; naming it would push a function mode.
    Switch(
        "torch.set_default_device({})",
        lambda: str(torch.get_default_device()),
        lambda value: torch.set_default_device(None if value == "cpu" else value),
        ("cpu",),
    ),
    _function("set_num_threads", "get_num_threads"),
)
"""All switches that this version of torch has, in the order in which they are put back."""

VARIABLES = ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "TORCH_CUDNN_USE_HEURISTIC_MODE_B")


@contextmanager
def kept_switches() -> Iterator[list[str]]:
    """Put all switches back; the list that is yielded has the statements of those changed, behind the context."""
    before = [(switch, value) for switch in SWITCHES if (value := switch.value) is not UNREADABLE]
    changes: list[str] = []
    try:
        yield changes
    finally:
        after = [(switch, switch.value) for switch, _ in before]
        changed = (one for one, (_, value) in zip(after, before, strict=True) if one[1] not in (value, UNREADABLE))
        changes += [switch.set_to(value) for switch, value in changed]
        for switch, value in before:
            if switch.value != value:
                switch.write(value)


@contextmanager
def reported_switches(user: str) -> Iterator[None]:
    """Put all switches back at the end of the context, and warn of those that ``user`` has changed."""
    changes: list[str] = []
    try:
        with kept_switches() as changes:
            yield
    finally:
        if changes:
            text = "%s sets switches of torch, which are put back: %s"
            logging.getLogger(__name__).warning(text, user, "; ".join(changes))


def other_switches() -> str | None:
    """Return statements and variables of switches without a column that are not at their default; None without any."""
    recorded = ((switch, switch.value) for switch in SWITCHES if switch.defaults)
    statements = [switch.set_to(value) for switch, value in recorded if value not in (*switch.defaults, UNREADABLE)]
    variables = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    return "; ".join([*statements, *variables]) or None


TF32_SWITCHES = {"fp32": (False, False), "tf32": (True, True)}
"""The switches of a precision: whether TF32 is used in matrix products, and in cuDNN. Others have torch's defaults."""

DEFAULT_TF32_SWITCHES = (False, True)
OVERRIDES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
"""Environment variables that override torch's switches."""


def torch_state(device: str) -> dict[str, Any]:
    """Return the fields of ``Conditions`` that torch reports; those that do not affect the device are None."""
    on_gpu, cuda = is_gpu(device), torch.backends.cuda
    cudnn = torch.backends.cudnn.version() if on_gpu else None
    matmul_tf32, cudnn_tf32 = tf32_switches()
    # Reductions that are as torch has them need no record.
    bf16, fp16 = (getattr(cuda.matmul, f"allow_{kind}_reduced_precision_reduction") for kind in ("bf16", "fp16"))
    return {
        "torch_version": str(torch.__version__),
        "cuda_version": torch.version.cuda if on_gpu else None,
        "cudnn_version": None if cudnn is None else str(cudnn),
        "cpu_threads": None if on_gpu else torch.get_num_threads(),
        "matmul_tf32": matmul_tf32,
        "cudnn_tf32": cudnn_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "sdpa_flash": cuda.flash_sdp_enabled(),
        "sdpa_memory_efficient": cuda.mem_efficient_sdp_enabled(),
        "sdpa_cudnn": cuda.cudnn_sdp_enabled(),
        "sdpa_math": cuda.math_sdp_enabled(),
        "matmul_bf16_reduction": None if bf16 else False,
        "matmul_fp16_reduction": None if fp16 else False,
        "matmul_fp16_accumulation": getattr(cuda.matmul, "allow_fp16_accumulation", False) or None,
        "other_switches": other_switches(),
    }


def tf32_switches() -> tuple[bool, bool]:
    """Return whether TF32 is used in products, and in cuDNN; ``allow_tf32`` raises after ``fp32_precision`` was set."""
    matmul, cudnn = torch.backends.cuda.matmul, cast(Any, torch.backends.cudnn)
    if hasattr(matmul, "fp32_precision"):
        return matmul.fp32_precision == "tf32", cudnn.conv.fp32_precision == "tf32"
    return matmul.allow_tf32, cudnn.allow_tf32


BACKENDS_OF_ATTENTION = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def attending(backend: str) -> AbstractContextManager[object]:
    """Return a context in which attention runs in one back end alone, without effect for torch's own choice."""
    return nullcontext() if backend == ANY_BACKEND else sdpa_kernel(BACKENDS_OF_ATTENTION[backend])


@contextmanager
def switched(precision: str, attention: str = ANY_BACKEND) -> Iterator[None]:
    """Set the TF32 switches of a precision (see ``TF32_SWITCHES``) and the back end of attention.

    All switches are put back afterwards.
    """
    with kept_switches(), attending(attention):
        for switch in FP32_PRECISIONS:
            switch.write("none")
        in_matmul, in_cudnn = TF32_SWITCHES.get(precision, DEFAULT_TF32_SWITCHES)
        torch.backends.cuda.matmul.allow_tf32 = in_matmul
        torch.backends.cudnn.allow_tf32 = in_cudnn
        yield


def autocast(precision: str, device: str, keeps_casts: bool = True) -> AbstractContextManager[object]:
    """Return a new context of autocast as a precision uses it in the present phase, or a context without effect.

    Of a training step only the forward uses it, which enters a context of its own in each step.
    Autocast may keep casts of weights until its context ends (torch 2.14 does not in inference mode), so enter one for
    each run of a model. To enter it takes about 9 us on a CPU, so enter one that keeps no casts for a loop of calls of
    an operator.
    """
    if precision not in AUTOCAST_DTYPES or present_phase() not in (Phase.INFERENCE, Phase.FORWARD):
        return nullcontext()
    dtype = getattr(torch, AUTOCAST_DTYPES[precision])
    return torch.autocast(device_type_of(device), dtype, cache_enabled=keeps_casts)


def autocast_dtypes() -> tuple[torch.dtype | None, ...]:
    """Return the dtype to which autocast casts now on a CPU and on a GPU, None where it is off."""
    is_on, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    return tuple(dtype(device) if is_on(device) else None for device in ("cpu", "cuda"))


def check_overrides() -> None:
    """Refuse environment variables that change the precision without torch's switches showing it; a line for each."""
    found = [name for name in OVERRIDES if name in os.environ]
    if found:
        raise UserError(*(f"{one} is set: unset it, and write precision: tf32 or fp32 in summary.yml" for one in found))
