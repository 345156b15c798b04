"""The roofline: the best of all rows is the roof, and each call has its side of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_machine import SIMULATED_CONDITIONS

from opcost.comparing.cache_chains import STREAM_BYTES
from opcost.comparing.roofline import COMPUTE, FP32, MEMORY, TF32, Roof, Roofline, Work, roofline_of
from opcost.comparing.tuple_costs import arithmetic_of
from opcost.operators.tuples import OperatorTuple, TensorSpec

BIG = 2 * STREAM_BYTES
COPY = Work(flop=0, memory_bytes=BIG, time_s=0.1, energy_j=50.0)
PRODUCT = Work(flop=10**12, memory_bytes=10**6, time_s=0.01, energy_j=5.0)


CACHED = Work(flop=0, memory_bytes=10**6, time_s=5e-8, energy_j=1e-5)
LARGE = Work(flop=0, memory_bytes=17 * 10**7, time_s=4e-5, energy_j=0.03)
# The last layer of a language model on an H200: 1.6 GB at 0.6 TB/s, because its products take longer.
HEAD = Work(flop=2 * 10**12, memory_bytes=16 * 10**8, time_s=2.7e-3, energy_j=2.7)


def test_the_best_rates_are_the_roof() -> None:
    roofline = roofline_of([COPY, PRODUCT])
    assert roofline == Roofline(Roof({FP32: 1e14}, BIG / 0.1), Roof({FP32: 2e11}, BIG / 50))


@pytest.mark.parametrize(
    ("works", "time_rate", "energy_rate"),
    [
        # What lies in a cache is no roof of the memory.
        ([COPY, PRODUCT, CACHED], BIG / 0.1, BIG / 50),
        # Small operators are the roof where there are no others.
        ([CACHED, PRODUCT], 2e13, 1e11),
        # In 16 bits a model's tensors are half as large: on an H200 a small one moved 20 TB/s, the largest 4.25 TB/s.
        ([CACHED, LARGE, replace(LARGE, time_s=2e-4, energy_j=1.0), PRODUCT], 4.25e12, 17 * 10**7 / 0.03),
        # A product that exceeds the caches is not alone the roof of the memory.
        ([HEAD, LARGE, CACHED], 4.25e12, 17 * 10**7 / 0.03),
    ],
)
def test_the_roof_of_the_memory_is_that_of_the_largest_operators_without_products(
    works: list[Work], time_rate: float, energy_rate: float
) -> None:
    roofline = roofline_of(works)
    assert (roofline.time.byte_rate, roofline.energy.byte_rate) == pytest.approx((time_rate, energy_rate))
    assert CACHED not in works or roofline.time.reached(CACHED, CACHED.time_s) >= 1
    assert HEAD not in works or roofline.time.side(HEAD) == COMPUTE


def test_what_is_faster_than_the_memory_is_from_caches() -> None:
    cached = Work(flop=0, memory_bytes=4 * 10**7, time_s=5e-6, energy_j=1e-9)
    slower = replace(cached, memory_bytes=3 * 10**7, time_s=1e-5, energy_j=1e-3)
    roofline = roofline_of([PRODUCT, cached, slower], memory_rate=4.8e12)
    assert (roofline.time.byte_rate, roofline.energy.byte_rate) == pytest.approx((3e12, 3e10))


def test_a_call_of_unknown_flop_has_no_place_under_the_roof_and_does_not_move_it() -> None:
    unknown = Work(flop=None, memory_bytes=10**8, time_s=1e-9, energy_j=1e-9)
    roofline = roofline_of([PRODUCT, Work(0, 10**8, 0.1, 50.0), unknown])
    assert roofline == roofline_of([PRODUCT, Work(0, 10**8, 0.1, 50.0)])
    assert (roofline.time.side(unknown), roofline.time.reached(unknown, 1.0)) == (None, None)


def test_sides_meet_at_the_ridge() -> None:
    roof = Roof({FP32: 100.0}, byte_rate=10.0)
    assert roof.ridge_flop_per_byte(FP32) == 10
    assert roof.side(Work(99, 10, 1.0, None)) == MEMORY
    assert roof.side(Work(100, 10, 1.0, None)) == COMPUTE
    assert roof.side(Work(100, 0, 1.0, None)) is None
    # Work that its card cannot do has no roof, and is in none.
    impossible = replace(PRODUCT, time_s=1e-9, is_possible=False)
    assert (roof.side(impossible), roof.reached(impossible, 1e-9)) == (None, None)
    assert roofline_of([COPY, PRODUCT, impossible]) == roofline_of([COPY, PRODUCT])


def test_each_arithmetic_has_a_roof_of_its_own() -> None:
    slow = Work(flop=10**12, memory_bytes=10**6, time_s=0.05, energy_j=20.0)
    fast = Work(flop=10**12, memory_bytes=10**6, time_s=0.01, energy_j=5.0, arithmetic=TF32)
    roofline = roofline_of([COPY, slow, fast])
    assert roofline.time.flop_rates == {FP32: pytest.approx(2e13), TF32: pytest.approx(1e14)}
    assert roofline.time.reached(slow, slow.time_s) == roofline.time.reached(fast, fast.time_s) == pytest.approx(1.0)
    assert roofline.time.ridge_flop_per_byte(TF32) == pytest.approx(5 * roofline.time.ridge_flop_per_byte(FP32))
    # No measurement shows bfloat16: it is compared with the highest.
    assert roofline.time.flop_rate("bfloat16") == roofline.time.flop_rate(TF32)


def test_without_energies_there_is_a_roof_of_time_only() -> None:
    assert roofline_of([Work(10**9, BIG, 1.0, None)]).energy is None


@pytest.mark.parametrize("works", [[], [COPY], [Work(10, 0, 1.0, 1.0)]])
def test_without_computing_or_moving_there_is_no_roofline(works: list[Work]) -> None:
    assert roofline_of(works) is None


def of(name: str, dtype: str = "float32") -> OperatorTuple:
    return OperatorTuple(name, (), (TensorSpec((2,), "int64"), TensorSpec((2, 2), dtype)))


@pytest.mark.parametrize(
    ("operator", "switches", "arithmetic"),
    [
        (of("torch.nn.Conv2d"), {"cudnn_tf32": True, "matmul_tf32": False}, TF32),
        (of("torch.nn.Conv2d"), {"cudnn_tf32": False, "matmul_tf32": True}, FP32),
        (of("torch.nn.functional.conv2d"), {"cudnn_tf32": True, "matmul_tf32": False}, TF32),
        (of("torch.nn.LSTM"), {"cudnn_tf32": True, "matmul_tf32": False}, TF32),
        (of("torch.gru"), {"cudnn_tf32": False, "matmul_tf32": True}, FP32),
        (of("torch.nn.LSTMCell"), {"cudnn_tf32": True, "matmul_tf32": False}, FP32),
        (of("torch.nn.Linear"), {"cudnn_tf32": True, "matmul_tf32": False}, FP32),
        (of("torch.matmul"), {"cudnn_tf32": False, "matmul_tf32": True}, TF32),
        (of("torch.nn.Conv2d", "bfloat16"), {"cudnn_tf32": True, "matmul_tf32": True}, "bfloat16"),
        (of("torch.nn.Embedding", "int64"), {"cudnn_tf32": False, "matmul_tf32": False}, FP32),
    ],
)
def test_torchs_switches_say_what_products_multiply_in(
    operator: OperatorTuple, switches: dict[str, bool], arithmetic: str
) -> None:
    conditions = replace(SIMULATED_CONDITIONS, **switches)  # type: ignore[arg-type]
    assert arithmetic_of(operator, conditions) == arithmetic
    on_cpu = arithmetic_of(operator, replace(conditions, device_type="cpu"))
    assert on_cpu == (FP32 if arithmetic == TF32 else arithmetic)
