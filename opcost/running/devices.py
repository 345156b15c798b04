"""The device that a user names, and its properties."""

from __future__ import annotations

from dataclasses import replace

import torch

from opcost.errors import UserError
from opcost.measuring.conditions import DeviceFacts, is_gpu
from opcost.meters import nvidia_smi
from opcost.meters.host import cpu_product, host_memory_bytes
from opcost.meters.nvidia_smi import NvidiaSmiError
from opcost.meters.nvml import NvmlError, NvmlGpu, driver_version


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
    """Return the torch device of a GPU by its index or UUID in nvidia-smi. Raises UserError: torch or it lacks it."""
    try:
        # Before torch: nvidia-smi has a deadline, so that a driver that hangs is named.
        uuid = nvidia_smi.gpu_facts(uuid_or_index).uuid
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
    """Return the properties of a torch device. Raises NvidiaSmiError: see ``gpu_facts``."""
    if not is_gpu(device):
        return DeviceFacts(None, cpu_product(), host_memory_bytes(), None, None)
    properties = torch.cuda.get_device_properties(device)
    facts = gpu_facts(f"GPU-{properties.uuid}")
    return replace(facts, memory_bytes=facts.memory_bytes or properties.total_memory)


def gpu_facts(uuid_or_index: str) -> DeviceFacts:
    """Return the properties of a GPU (an index is in the order of the PCI bus): by NVML, else by nvidia-smi.

    Both give the same figures, which are parts of the keys of rows: memory in whole MiB, and the power limit that was
    set. Raises NvidiaSmiError: there is no NVML, and nvidia-smi is missing too, hangs, or knows no such GPU.
    """
    try:
        gpu = NvmlGpu.open(uuid_or_index)
    except NvmlError:
        return nvidia_smi.gpu_facts(uuid_or_index)
    try:
        return DeviceFacts(
            uuid=gpu.ask("nvmlDeviceGetUUID"),
            product=gpu.ask("nvmlDeviceGetName"),
            memory_bytes=gpu.ask("nvmlDeviceGetMemoryInfo").total // 2**20 * 2**20,
            power_limit_w=round(gpu.ask("nvmlDeviceGetPowerManagementLimit") * 1e-3, 2),
            driver_version=driver_version(),
            is_mig=gpu.is_mig(),
        )
    except NvmlError:
        # Such as a board without a limit: nvidia-smi prints what there is.
        return nvidia_smi.gpu_facts(uuid_or_index)
    finally:
        gpu.close()
