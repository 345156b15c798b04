"""Calls that are faster than their card can be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from committed_tables import committed

from opcost.comparing.roofline import FP32, SHEETS, Roofline, Work, is_beyond_sheet, memory_rate
from opcost.comparing.tuple_costs import roofline_of_rows, work_of
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import tuple_key
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple
from opcost.running.shipped_counts import counts_in, counts_of_operators
from opcost.summing.energy import EnergyBasis

H200 = "NVIDIA H200"
CONVOLUTION, PRODUCT, RELU = (OperatorTuple(f"torch.nn.{name}") for name in ("Conv2d", "Linear", "ReLU"))


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
        (Work(10**12, 10**6, 10**12 / 70e12, None, FP32), PRODUCT, False),
        (Work(10**12, 10**6, 10**12 / 90e12, None, FP32), PRODUCT, True),
        (Work(10**12, 10**6, 10**12 / 990e12, None, "bfloat16"), PRODUCT, False),
        # Winograd's algorithm needs fewer products than are counted.
        (Work(10**12, 10**6, 10**12 / 150e12, None, FP32), CONVOLUTION, False),
        (Work(10**12, 10**6, 10**12 / 500e12, None, FP32), CONVOLUTION, True),
        (Work(None, 10**6, 1e-3, None), PRODUCT, False),
        (Work(10**15, 10**6, 1e-9, None, "int8"), PRODUCT, False),
    ],
)
def test_what_neither_clocks_nor_caches_explain_is_beyond_a_sheet(
    work: Work, operator: OperatorTuple, is_beyond: bool
) -> None:
    assert is_beyond_sheet(work, operator, H200) == is_beyond
    assert not is_beyond_sheet(work, operator, "an unknown card")


def test_a_sheet_says_where_its_figures_are_from_and_that_a_smaller_format_is_no_slower() -> None:
    for product, sheet in SHEETS.items():
        assert "NVIDIA" in sheet.source
        assert sheet.flop_rates[FP32] <= sheet.flop_rates["TF32"] <= sheet.flop_rates["bfloat16"]
        assert 1e11 < memory_rate(product) < 1e13 > 1e4 * sheet.cache_bytes


def calls_by_conditions() -> dict[Conditions, list[tuple[OperatorCount, MeasurementRow]]]:
    database = committed()
    counts = counts_of_operators(counts_in(database.model_operators))
    found: dict[Conditions, list[tuple[OperatorCount, MeasurementRow]]] = {}
    for row in database.operator_measurements.rows():
        count = counts.get(tuple_key(row.key))
        if count is not None:
            found.setdefault(row.conditions, []).append((count, row))
    return found


def roof_of(calls: list[tuple[OperatorCount, MeasurementRow]]) -> Roofline:
    roofline = roofline_of_rows((row for _, row in calls), {count.operator.key: count for count, _ in calls})
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
