"""The GPUs that a program may use, by NVML and ``CUDA_VISIBLE_DEVICES``, without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from opcost.meters.nvml import NvmlError, gpu_products
from opcost.meters.opening import MIG_REASON


def shown(environment: Mapping[str, str] | None = None) -> str | None:
    """Return what ``CUDA_VISIBLE_DEVICES`` names, None where it is not set."""
    return (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")


def names_mig(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether the first device that CUDA shows is a MIG instance; CUDA shows no further one then."""
    return (shown(environment) or "").strip().startswith("MIG-")


def visible_gpus(environment: Mapping[str, str] | None = None) -> tuple[dict[str, str], NvmlError | None]:
    """Return the UUID of each GPU by its name ``cuda:N``, and why there are none.

    Without ``CUDA_VISIBLE_DEVICES`` N is NVML's order, that of the PCI bus. CUDA's own order differs from it where
    GPUs of several kinds are in one machine and ``CUDA_DEVICE_ORDER`` is not ``PCI_BUS_ID``.
    """
    try:
        uuids = list(gpu_products())
    except NvmlError as error:
        return {}, error
    if names_mig(environment):
        return {}, NvmlError(f"CUDA_VISIBLE_DEVICES names a MIG instance: {MIG_REASON}", hides_gpu=True)
    names = shown(environment)
    chosen = uuids if names is None else _chosen(names, uuids)
    if not chosen:
        return {}, NvmlError("no GPU is visible" if uuids else "NVML knows no GPU")
    return {f"cuda:{number}": uuid for number, uuid in enumerate(chosen)}, None


def _chosen(names: str, uuids: Sequence[str]) -> list[str]:
    """Return the UUIDs of the GPUs that a list names by index or the begin of the UUID, up to the first unknown one."""
    found: list[str] = []
    for name in (name.strip() for name in names.split(",")):
        known = [uuid for index, uuid in enumerate(uuids) if name and (name == str(index) or uuid.startswith(name))]
        if not known:
            break
        found.append(known[0])
    return found
