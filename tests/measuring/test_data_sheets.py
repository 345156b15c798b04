"""Data sheets of cards: rates that agree with each other and with rows, and cards that are scaled by them."""

import pytest

from opcost.errors import UserError
from opcost.measuring.data_sheets import BF16, FP32, SHEETS, TF32, DataSheet
from opcost.prediction.samples import Card

CARD = Card(132, 3e14, 5e13, 4e12, 1e-6, 700.0)


@pytest.mark.parametrize("sheet", SHEETS.values(), ids=lambda one: one.product)
def test_a_sheet_has_rates_in_their_order_and_a_source(sheet: DataSheet) -> None:
    rates = list(sheet.flop_rates.values())
    assert rates == sorted(rates)
    assert 1e11 < sheet.byte_rate < 1e13 > 1e4 * sheet.cache_bytes
    # Products of large matrices are bound by arithmetic on each card.
    assert 5 < sheet.flop_rates[FP32] / sheet.byte_rate < 150
    assert 10e9 < sheet.memory_bytes < 200e9
    assert 50 < sheet.power_limit_w <= 1000
    assert sheet.source.startswith("NVIDIA ")


def test_cards_before_bf16_have_no_products_in_it_and_are_not_scaled_to_it() -> None:
    without = [product for product, sheet in SHEETS.items() if BF16 not in sheet.flop_rates]
    assert without == ["Tesla V100-SXM2-32GB", "Tesla V100-SXM2-16GB", "Tesla T4"]
    old, own = SHEETS["Tesla T4"], SHEETS["NVIDIA H200"]
    assert old.flop_rates[TF32] == old.flop_rates[FP32]
    assert CARD.scaled(own, "fp16", old, "fp16").product_rate == pytest.approx(5e13 * 65 / 989.4)
    with pytest.raises(UserError, match="^--precision amp-bf16: Tesla T4 has no products in it"):
        CARD.scaled(own, "bf16", old, "amp-bf16")


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
    own, other = SHEETS["NVIDIA H200"], SHEETS["NVIDIA A100-SXM4-80GB"]
    found = CARD.scaled(own, "torch-default", other, precision)
    assert found.convolution_rate == pytest.approx(3e14 * convolution)
    assert found.product_rate == pytest.approx(5e13 * product)
    assert found.byte_rate == pytest.approx(4e12 * 2.039 / 4.8)
    assert (found.multiprocessors, found.power_limit_w, found.launch_s) == (108, 400, CARD.launch_s)
    assert CARD.scaled(own, precision, own, precision) == CARD
