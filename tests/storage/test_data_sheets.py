"""Data sheets of cards: rates that agree with each other and with rows, and cards that are scaled by them."""

import pytest

from opcost.prediction.samples import Card
from opcost.storage.data_sheets import data_sheets

CARD = Card(132, 3e14, 5e13, 4e12, 1e-6, 700.0)


@pytest.mark.parametrize("sheet", data_sheets().values(), ids=lambda one: one.product)
def test_a_sheet_has_rates_in_their_order_and_a_source(sheet: object) -> None:
    assert sheet.fp32_rate <= sheet.tf32_rate < sheet.half_rate
    assert 1e11 < sheet.byte_rate < 1e13
    # Products of large matrices are bound by arithmetic on each card.
    assert 5 < sheet.fp32_rate / sheet.byte_rate < 150
    assert 10e9 < sheet.memory_bytes < 200e9
    assert 50 < sheet.power_limit_w < 1000
    assert sheet.source.startswith("NVIDIA ")


@pytest.mark.parametrize(
    ("precision", "convolution", "product"),
    [
        ("torch-default", 156 / 494.7, 19.5 / 66.9),
        ("fp32", 19.5 / 494.7, 19.5 / 66.9),
        ("bf16", 312 / 494.7, 312 / 66.9),
    ],
)
def test_rates_are_to_those_of_another_card_as_the_sheets_are(
    precision: str, convolution: float, product: float
) -> None:
    sheets = data_sheets()
    own, other = sheets["NVIDIA H200"], sheets["NVIDIA A100-SXM4-80GB"]
    found = CARD.scaled(own, "torch-default", other, precision)
    assert found.convolution_rate == pytest.approx(3e14 * convolution)
    assert found.product_rate == pytest.approx(5e13 * product)
    assert found.byte_rate == pytest.approx(4e12 * 2.04 / 4.8)
    assert (found.multiprocessors, found.power_limit_w, found.launch_s) == (108, 400, CARD.launch_s)
    assert CARD.scaled(own, precision, own, precision) == CARD
