"""The most that cards can do by their data sheets, and calls that seem to do more.

A call cannot be faster than its card, so one that seems to be has wrong FLOPs, bytes or time. An unknown card has no
sheet, and nothing of it is beyond one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from opcost.comparing.roofline import FP32, TF32, Work
from opcost.operators.tuples import OperatorTuple

FASTER_CLOCK_RATIO = 1.15
"""Highest clock over that of a data sheet's rates: an H200 runs products at up to 1.98 GHz, 1.08 times the 1.83 GHz of
its sheet, and boards of GeForce cards may be faster. Memory has the clock of the sheet."""

FASTER_MEMORY_RATIO = 1.05
"""Share of the memory's rate that is allowed, for sizes of caches and units that data sheets round."""

WINOGRAD_RATIO = 4.0
"""Products of a direct convolution, of which FLOPs are counted, over those of Winograd's algorithm with tiles of 4 by 4
(Lavin and Gray, CVPR 2016, 4013-4021), the largest that cuDNN has."""


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


def is_beyond_sheet(work: Work, operator: OperatorTuple, product: str) -> bool:
    """Return whether a call seems to compute or move more than its card can.

    Args:
        work: of one call.
        operator: that is called; FLOPs of convolutions are those of the direct algorithm.
        product: name of the device.
    """
    sheet = SHEETS.get(product)
    if sheet is None:
        return False
    from_memory = (work.memory_bytes - sheet.cache_bytes) / work.time_s
    most = FASTER_CLOCK_RATIO * sheet.flop_rates.get(work.arithmetic, math.inf)
    if "conv" in operator.short_name.lower():
        most *= WINOGRAD_RATIO
    return from_memory > FASTER_MEMORY_RATIO * sheet.byte_rate or (work.flop or 0) / work.time_s > most
