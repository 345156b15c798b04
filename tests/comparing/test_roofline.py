"""The roofline: the best of all rows is the roof, and each call has its side of it."""

from dataclasses import replace

import pytest
from committed_tables import committed
from simulated_machine import SIMULATED_CONDITIONS

from opcost.comparing.roofline import (
    COMPUTE,
    MEMORY,
    Roof,
    Roofline,
    Work,
    arithmetic_of,
    is_beyond_sheet,
    memory_rate,
    roofline_of,
    roofline_of_rows,
    work_of,
)
from opcost.measuring.conditions import Conditions
from opcost.measuring.data_sheets import FP32, SHEETS, TF32
from opcost.measuring.record import MeasurementRow
from opcost.operators.cache_chains import STREAM_BYTES
from opcost.operators.counts import OperatorCount, tuple_key
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.running.shipped_counts import counts_in, counts_of_operators
from opcost.summing.summation import EnergyBasis

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
        # A call within a cache is no roof of the memory.
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


# Calls that are faster than their card can be


H200 = "NVIDIA H200"
CONVOLUTION, LINEAR, RELU = (OperatorTuple(f"torch.nn.{name}") for name in ("Conv2d", "Linear", "ReLU"))


def moved(memory_bytes: float, time_s: float) -> Work:
    return Work(0, int(memory_bytes), time_s, None)


@pytest.mark.parametrize(
    ("work", "operator", "is_beyond"),
    [
        # All of 1 GB in 7 us, as of an embedding's table of which some rows are read.
        (moved(1.07e9, 7e-6), RELU, True),
        (moved(1e9, 1e9 / 4.7e12), RELU, False),
        # 40 MB stay in the cache, at any rate; of 300 MB only 52.5 MB do.
        (moved(4e7, 4e7 / 2e13), RELU, False),
        (moved(3e8, 3e8 / 5.5e12), RELU, False),
        (moved(3e8, 3e8 / 7e12), RELU, True),
        (Work(10**12, 10**6, 10**12 / 70e12, None, FP32), LINEAR, False),
        (Work(10**12, 10**6, 10**12 / 90e12, None, FP32), LINEAR, True),
        (Work(10**12, 10**6, 10**12 / 990e12, None, "bfloat16"), LINEAR, False),
        # Winograd's algorithm needs fewer products than are counted.
        (Work(10**12, 10**6, 10**12 / 150e12, None, FP32), CONVOLUTION, False),
        (Work(10**12, 10**6, 10**12 / 500e12, None, FP32), CONVOLUTION, True),
        (Work(None, 10**6, 1e-3, None), LINEAR, False),
        (Work(10**15, 10**6, 1e-9, None, "int8"), LINEAR, False),
    ],
)
def test_what_neither_clocks_nor_caches_explain_is_beyond_a_sheet(
    work: Work, operator: OperatorTuple, is_beyond: bool
) -> None:
    assert is_beyond_sheet(work, operator, H200) == is_beyond
    assert not is_beyond_sheet(work, operator, "an unknown card")


def calls_by_conditions() -> dict[Conditions, list[tuple[OperatorCount, MeasurementRow]]]:
    database = committed()
    counts = counts_of_operators(counts_in(database.model_operators))
    found: dict[Conditions, list[tuple[OperatorCount, MeasurementRow]]] = {}
    for row in database.operator_measurements.rows():
        count = counts.get((tuple_key(row.key), row.phase))
        if count is not None:
            found.setdefault(row.conditions, []).append((count, row))
    return found


def roof_of(calls: list[tuple[OperatorCount, MeasurementRow]]) -> Roofline:
    roofline = roofline_of_rows(
        (row for _, row in calls), {(count.operator.key, count.phase): count for count, _ in calls}
    )
    assert roofline is not None
    return roofline


@pytest.mark.second_tier
def test_no_call_is_beyond_its_sheet_and_roofs_are_those_of_the_cards() -> None:
    found = calls_by_conditions()
    for conditions, calls in found.items():
        product, roofline = conditions.device_product, roof_of(calls)
        works = [(count.operator.short_name, work_of(count, row, EnergyBasis.MEASURED)) for count, row in calls]
        assert [name for name, work in works if not work.is_possible] == []
        assert roofline.time.byte_rate <= memory_rate(product)
        assert all(rate <= 1.1 * SHEETS[product].flop_rates[name] for name, rate in roofline.time.flop_rates.items())
    in_graphs = {
        (one.device_product, one.precision): roof_of(calls).time.byte_rate
        for one, calls in found.items()
        if (one.execution, one.cache) == ("graph", "warm")
    }
    assert in_graphs["NVIDIA H200", "bf16"] == pytest.approx(4.25e12, rel=0.01)
    assert in_graphs["NVIDIA H100 80GB HBM3", "bf16"] == pytest.approx(3.0e12, rel=0.01)


def test_a_table_that_counts_as_read_whole_is_beyond_its_sheet_and_in_no_roof() -> None:
    (conditions,) = (one for one in calls_by_conditions() if (one.device_product, one.precision) == (H200, "bf16"))
    calls = calls_by_conditions()[conditions]
    table = next(pair for pair in calls if pair[0].operator.short_name == "Embedding")
    old = (replace(table[0], memory_bytes=1_260_000_000), table[1])
    assert not work_of(*old, EnergyBasis.MEASURED).is_possible
    with_old = [old if pair is table else pair for pair in calls]
    assert roof_of(with_old).time == roof_of(calls).time
