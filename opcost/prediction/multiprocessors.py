"""The streaming multiprocessors of GPUs, from NVIDIA's data sheets of each product."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opcost.measuring.conditions import Conditions

OF_PRODUCTS: Mapping[str, int] = MappingProxyType(
    {
        "NVIDIA B200": 148,
        "NVIDIA H200": 132,
        "NVIDIA H100 80GB HBM3": 132,
        "NVIDIA H100 PCIe": 114,
        "NVIDIA A100-SXM4-80GB": 108,
        "NVIDIA A100-SXM4-40GB": 108,
        "NVIDIA A100-PCIE-40GB": 108,
        "NVIDIA A100 80GB PCIe": 108,
        "NVIDIA A30": 56,
        "NVIDIA A10": 72,
        "NVIDIA L40S": 142,
        "NVIDIA L4": 58,
        "NVIDIA GeForce RTX 4090": 128,
        "NVIDIA GeForce RTX 3090": 82,
        "NVIDIA RTX A6000": 84,
        "Tesla V100-SXM2-32GB": 80,
        "Tesla V100-SXM2-16GB": 80,
        "Tesla T4": 40,
    }
)

USUAL = 108
"""The number for a GPU that is not listed. Only the features of tiles and waves use it."""


def multiprocessors_of(conditions: Conditions) -> int:
    """Return the multiprocessors of a GPU, the threads of a CPU."""
    if conditions.device_type == "cpu":
        return conditions.cpu_threads or 1
    return OF_PRODUCTS.get(conditions.device_product, USUAL)
