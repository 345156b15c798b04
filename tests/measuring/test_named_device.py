"""Devices as users name them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_machine import SIMULATED_CONDITIONS

from opcost.errors import UserError
from opcost.measuring.setting import device_mistake, is_meant, refuse_unknown

H200 = replace(SIMULATED_CONDITIONS, device_type="cuda", device_product="NVIDIA H200")


@pytest.mark.parametrize(
    ("device", "meant"),
    [
        (None, True),
        ("cuda", True),
        ("cuda:1", True),
        ("h200", True),
        ("NVIDIA", True),
        ("cpu", False),
        ("H100", False),
        ("H20", False),
    ],
)
def test_a_device_is_meant_by_its_type_or_a_part_of_its_name(device: str | None, meant: bool) -> None:
    assert is_meant(device, H200) == meant


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("gpu", "did you mean cuda?"),
        ("GPU:0", "did you mean cuda?"),
        ("cuda0", "did you mean cuda?"),
        ("CPU", "did you mean cpu?"),
        ("", "such as cuda:0"),
        (" ", "such as cuda:0"),
    ],
)
def test_a_misspelled_device_is_a_mistake_with_the_one_that_was_meant(text: str, remedy: str) -> None:
    mistake = device_mistake(text)
    assert mistake is not None
    assert mistake.startswith(f"{text!r} is not a device; use cpu, cuda, or cuda:N")
    assert mistake.endswith(remedy)


@pytest.mark.parametrize("text", ["cpu", "cuda", "cuda:3", "H200", "A100", "AMD EPYC 7763"])
def test_a_device_or_a_product_is_no_mistake(text: str) -> None:
    assert device_mistake(text) is None


def test_a_product_without_rows_is_refused_with_those_that_have_rows() -> None:
    refuse_unknown("h200", ["NVIDIA H200"])
    with pytest.raises(UserError, match="^--device H100: no row of it; there are rows of NVIDIA A100, NVIDIA H200$"):
        refuse_unknown("H100", ["NVIDIA H200", "NVIDIA A100", "NVIDIA H200"])
    with pytest.raises(UserError, match="^--device H100: no row of it; there are no rows of any device$"):
        refuse_unknown("H100", [])
