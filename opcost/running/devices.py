"""The device that a user names, and its properties."""

from __future__ import annotations

from dataclasses import replace

import torch

from opcost.errors import UserError
from opcost.measuring.conditions import is_gpu
from opcost.meters.gpus import gpu_facts, uuid_in_torch, uuid_named
from opcost.meters.host import cpu_product, host_memory_bytes
from opcost.power.ports import DeviceFacts, GpuError


def choose_device(name: str | None) -> str:
    """Return the torch device of a name, for None a GPU if there is one. Raises UserError: there is no such GPU."""
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
    """Return the torch device of a GPU by its UUID or its driver's index. Raises UserError: torch or it lacks it."""
    try:
        # Before torch, which a driver that hangs would block.
        uuid = uuid_named(uuid_or_index)
        for index in range(torch.cuda.device_count()):
            if uuid_in_torch(torch, index) == uuid:
                return f"cuda:{index}"
    except GpuError as error:
        raise UserError(str(error)) from error
    raise UserError(f"GPU {uuid_or_index}: torch does not see it; check CUDA_VISIBLE_DEVICES")


def product_of(device: str) -> str:
    return str(torch.cuda.get_device_name(device)) if is_gpu(device) else cpu_product()


def facts_of(device: str) -> DeviceFacts:
    """Return the properties of a torch device. Raises GpuError: its driver does not answer, or does not know it."""
    if not is_gpu(device):
        return DeviceFacts(None, cpu_product(), host_memory_bytes(), None, None)
    index = torch.device(device).index or 0
    facts = gpu_facts(uuid_in_torch(torch, index))
    return replace(facts, memory_bytes=facts.memory_bytes or torch.cuda.get_device_properties(index).total_memory)
