"""The data sheets of cards, as their makers have published them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from opcost.measuring.precisions import AUTOCAST_DTYPES, DTYPES

FP32, TF32, BF16, FP16 = "fp32", "TF32", "bfloat16", "float16"
"""Arithmetics of products."""


@dataclass(frozen=True)
class DataSheet:
    """The figures of a card: FLOP/s of dense products by arithmetic, B/s of the memory, and sizes.

    ``cache_bytes`` is its L2 cache: what a call moves besides must come from the memory, even if the last call left
    its data in the cache. ``source`` names the text. A card without TF32 has the rate of fp32, one without bf16 none.
    """

    product: str
    multiprocessors: int
    memory_bytes: int
    cache_bytes: float
    byte_rate: float
    flop_rates: Mapping[str, float]
    power_limit_w: float
    source: str

    def rates_in(self, precision: str) -> tuple[float, float, float] | None:
        """Return the rates of convolutions and of other products in a ``Precision``, and that of the memory.

        None if the card has no products in it.
        """
        rates, dtype = self.flop_rates, DTYPES.get(precision) or AUTOCAST_DTYPES.get(precision)
        if dtype in (BF16, FP16):
            # With sums in fp32, as torch makes them: GeForce cards are twice as fast with sums in fp16.
            rate = rates.get(BF16, rates[FP16] if dtype == FP16 else None)
            return None if rate is None else (rate, rate, self.byte_rate)
        in_convolutions = rates[FP32] if precision == "fp32" else rates[TF32]
        return in_convolutions, rates[TF32] if precision == "tf32" else rates[FP32], self.byte_rate


def _sheets(
    *rows: tuple[str, int, float, float, float, tuple[float, float, float | None, float], float, str],
) -> Mapping[str, DataSheet]:
    """Return sheets of rows with GB of memory, MB of cache, GB/s, and TFLOP/s in fp32, TF32, bf16 and fp16."""
    found = {}
    for product, multiprocessors, memory, cache, memory_rate, tera, power_limit_w, source in rows:
        rates = zip((FP32, TF32, BF16, FP16), tera, strict=True)
        flop_rates = {name: 1e12 * rate for name, rate in rates if rate is not None}
        sizes = int(1e9 * memory), 1e6 * cache, 1e9 * memory_rate
        found[product] = DataSheet(
            product, multiprocessors, *sizes, MappingProxyType(flop_rates), power_limit_w, f"NVIDIA {source}"
        )
    return MappingProxyType(found)


_HOPPER = "H100 Tensor Core GPU architecture, white paper (2023)"
_A100 = "A100 Tensor Core GPU data sheet (2022); cache: A100 architecture, white paper (2020)"
_AMPERE = "Ampere GA102 GPU architecture, white paper (2021)"
_ADA = "Ada GPU architecture, white paper (2023), appendix A"
_VOLTA = "Tesla V100 GPU architecture, white paper (2017)"
_H100, _OF_A100, _V100 = (66.9, 494.7, 989.4, 989.4), (19.5, 156, 312, 312), (15.7, 15.7, None, 125)

SHEETS = _sheets(
    ("NVIDIA H200", 132, 150, 52.5, 4800, _H100, 700, f"H200 data sheet (2024); cache: {_HOPPER}"),
    ("NVIDIA H100 80GB HBM3", 132, 85, 52.5, 3350, _H100, 700, _HOPPER),
    ("NVIDIA H100 PCIe", 114, 85, 52.5, 2039, (51.2, 378, 756, 756), 350, _HOPPER),
    (
        "NVIDIA B200",
        148,
        192,
        132.7,
        8000,
        (80, 1100, 2250, 2250),
        1000,
        "Blackwell architecture brief (2024); cache: CUDA",
    ),
    ("NVIDIA A100-SXM4-80GB", 108, 85, 42, 2039, _OF_A100, 400, _A100),
    ("NVIDIA A100-SXM4-40GB", 108, 42, 42, 1555, _OF_A100, 400, _A100),
    ("NVIDIA A100 80GB PCIe", 108, 85, 42, 1935, _OF_A100, 300, _A100),
    ("NVIDIA A100-PCIE-40GB", 108, 42, 42, 1555, _OF_A100, 250, _A100),
    ("NVIDIA A30", 56, 25, 25.2, 933, (10.3, 82, 165, 165), 165, "A30 Tensor Core GPU data sheet"),
    ("NVIDIA A10", 72, 24, 6.3, 600, (31.2, 62.5, 125, 125), 150, "A10 Tensor Core GPU data sheet"),
    (
        "NVIDIA L40S",
        142,
        48,
        100.7,
        864,
        (91.6, 183, 362, 362),
        350,
        f"L40S data sheet (2023); cache of the full chip: {_ADA}",
    ),
    ("NVIDIA L4", 58, 24, 50.3, 300, (30.3, 60, 121, 121), 72, "L4 Tensor Core GPU data sheet"),
    ("NVIDIA GeForce RTX 4090", 128, 25, 75.5, 1008, (82.6, 82.6, 165.2, 330.3), 450, _ADA),
    ("NVIDIA GeForce RTX 3090", 82, 25, 6.3, 936, (35.6, 35.6, 71, 142), 350, _AMPERE),
    ("NVIDIA RTX A6000", 84, 51, 6.3, 768, (38.7, 77.4, 154.8, 154.8), 300, _AMPERE),
    ("Tesla V100-SXM2-32GB", 80, 34, 6.3, 900, _V100, 300, _VOLTA),
    ("Tesla V100-SXM2-16GB", 80, 17, 6.3, 900, _V100, 300, _VOLTA),
    ("Tesla T4", 40, 16, 4.2, 320, (8.1, 8.1, None, 65), 70, "T4 Tensor Core GPU data sheet"),
)
"""Sheets by the product's name, as the driver gives it. Rates with sparsity are halved."""
