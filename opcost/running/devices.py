"""The device that a user names, and its properties."""

from __future__ import annotations

import torch

from opcost.errors import UserError
from opcost.measuring.conditions import DeviceFacts, is_gpu
from opcost.meters.cpu_facts import cpu_product, host_memory_bytes
from opcost.meters.nvidia_smi import GpuFacts, NvidiaSmiError, gpu_facts


def choose_device(name: str | None) -> str:
    """Return the torch device that a user named: ``cpu`` or ``cuda:N``; for None, a GPU if there is one.

    Raises UserError: there is no such GPU.
    """
    gpus = torch.cuda.device_count()
    if name is None:
        return "cuda:0" if gpus else "cpu"
    if name == "cpu":
        return name
    index = int(name.partition(":")[2] or 0)
    if index >= gpus:
        found = f"torch sees {gpus} GPUs" if gpus else "torch sees no GPU"
        raise UserError(f"--device {name}: {found}; use --device cpu, or check `nvidia-smi` and CUDA_VISIBLE_DEVICES")
    return f"cuda:{index}"


def device_of_gpu(uuid_or_index: str) -> str:
    """Return the torch device of a GPU by its index or UUID in nvidia-smi.

    Raises UserError: nvidia-smi or torch does not know it.
    """
    try:
        uuid = gpu_facts(uuid_or_index).uuid
    except NvidiaSmiError as error:
        raise UserError(str(error)) from error
    for index in range(torch.cuda.device_count()):
        if f"GPU-{torch.cuda.get_device_properties(index).uuid}" == uuid:
            return f"cuda:{index}"
    raise UserError(f"GPU {uuid_or_index}: torch does not see it; check CUDA_VISIBLE_DEVICES")


def product_of(device: str) -> str:
    """Return a device's product name."""
    return str(torch.cuda.get_device_name(device)) if is_gpu(device) else cpu_product()


def facts_of(device: str) -> DeviceFacts:
    """Return the properties of a torch device. Raises NvidiaSmiError: nvidia-smi does not answer."""
    if is_gpu(device):
        return _gpu_facts(device)
    return DeviceFacts(None, cpu_product(), host_memory_bytes(), None, None)


def _gpu_facts(device: str) -> DeviceFacts:
    properties = torch.cuda.get_device_properties(device)
    facts: GpuFacts = gpu_facts(f"GPU-{properties.uuid}")
    return DeviceFacts(
        uuid=facts.uuid,
        product=facts.product,
        memory_bytes=facts.memory_bytes or properties.total_memory,
        power_limit_w=facts.power_limit_w,
        driver_version=facts.driver_version,
        is_mig=facts.is_mig,
    )
