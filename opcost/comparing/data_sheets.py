"""Data sheets of cards: rates of arithmetic and of the memory, by the product's name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

FP32, TF32 = "fp32", "TF32"


@dataclass(frozen=True)
class DataSheet:
    """A card's rates: FLOPs per second of dense products by arithmetic, bytes per second of the memory.

    ``cache_bytes`` is its L2 cache: what a call moves besides must come from the memory, even if the last call left
    its data in the cache.
    """

    flop_rates: Mapping[str, float]
    byte_rate: float
    cache_bytes: float
    source: str


def _tera(fp32: float, tf32: float, bits16: float) -> Mapping[str, float]:
    rates = {FP32: fp32, TF32: tf32, "bfloat16": bits16, "float16": bits16}
    return MappingProxyType({name: 1e12 * rate for name, rate in rates.items()})


_HOPPER = "NVIDIA H100 Tensor Core GPU architecture, white paper (2023)"

_AMPERE = "NVIDIA A100 Tensor Core GPU data sheet (2022); cache: A100 architecture, white paper (2020)"

_ADA = "NVIDIA Ada GPU architecture, white paper (2023), appendix A"

_A100_40, _A100_80, _A100_PCIE_80 = (
    DataSheet(_tera(19.5, 156, 312), byte_rate, 42e6, _AMPERE) for byte_rate in (1.555e12, 2.039e12, 1.935e12)
)

SHEETS: Mapping[str, DataSheet] = MappingProxyType(
    {
        "NVIDIA H100 80GB HBM3": DataSheet(_tera(66.9, 494.7, 989.4), 3.35e12, 52.5e6, _HOPPER),
        "NVIDIA H100 PCIe": DataSheet(_tera(51.2, 378, 756), 2.039e12, 52.5e6, _HOPPER),
        "NVIDIA H200": DataSheet(
            _tera(66.9, 494.7, 989.4), 4.8e12, 52.5e6, f"NVIDIA H200 data sheet (2024); cache: {_HOPPER}"
        ),
        "NVIDIA A100-SXM4-40GB": _A100_40,
        "NVIDIA A100-PCIE-40GB": _A100_40,
        "NVIDIA A100-SXM4-80GB": _A100_80,
        "NVIDIA A100 80GB PCIe": _A100_PCIE_80,
        "NVIDIA L40S": DataSheet(
            _tera(91.6, 183, 362), 0.864e12, 100.7e6, f"NVIDIA L40S data sheet (2023); cache of the full chip: {_ADA}"
        ),
        # In 16 bits the rate of fp16 with sums in fp16.
        "NVIDIA GeForce RTX 4090": DataSheet(_tera(82.6, 82.6, 330.3), 1.008e12, 75.5e6, _ADA),
        "NVIDIA B200": DataSheet(
            _tera(80, 1100, 2250), 8e12, 132.7e6, "NVIDIA Blackwell architecture brief (2024); cache: as CUDA gives it"
        ),
    }
)
"""Sheets by the product's name, as the driver gives it. Rates with sparsity are halved."""


def memory_rate(product: str) -> float:
    """Return the bytes per second of a card's memory, infinite if unknown."""
    return SHEETS[product].byte_rate if product in SHEETS else math.inf
