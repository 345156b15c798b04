"""Conditions and devices that users ask for, and mistakes with their remedy."""

from dataclasses import replace

import pytest
from simulated_machine import SIMULATED_CONDITIONS

from opcost.errors import UserError
from opcost.measuring.setting import (
    ALL_CHOICES,
    ChosenConditions,
    device_mistake,
    is_meant,
    parse_conditions,
    refuse_unknown,
)
from opcost.operators.attention import ANY_BACKEND

H200 = replace(SIMULATED_CONDITIONS, device_type="cuda", device_product="NVIDIA H200")


@pytest.mark.parametrize(
    ("texts", "asked"),
    [
        (["precision=fp32"], {"precision": "fp32"}),
        (["precision=fp32,memory_format=contiguous"], {"precision": "fp32", "memory_format": "contiguous"}),
        (["precision = fp32", "memory_format=channels_last"], {"precision": "fp32", "memory_format": "channels_last"}),
        (["precision=bf16", "precision=bf16"], {"precision": "bf16"}),
        # A text has the back end of attention only if one is chosen.
        *(
            ([str(one)], {key: value for key, value in vars(one).items() if (key, value) != ("attention", ANY_BACKEND)})
            for one in ALL_CHOICES
        ),
    ],
)
def test_conditions_are_asked_for_with_commas_or_repeatedly(texts: list[str], asked: dict[str, str]) -> None:
    assert parse_conditions(texts) == asked


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["precison=fp32"], r"'precison' is no condition; use precision$"),
        (
            ["execution=eager"],
            r"'execution' is no condition; use precision or memory_format or .* or database$",
        ),
        (["precision=bf61"], r"precision has no value 'bf61'; use bf16$"),
        (["memory_format="], r"memory_format has no value ''; use contiguous or channels_last$"),
        (["precision"], r"precision has no value ''"),
        (["device="], r"device has no name"),
        ([""], r"'' is no condition"),
        (["precision=fp32,"], r"'' is no condition"),
        (["precision=fp32", "precision=bf16"], r"precision is fp32 as well; name one of both$"),
    ],
)
def test_a_mistake_names_the_text_and_the_remedy(texts: list[str], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_conditions(texts)


def test_labels_have_only_the_values_in_which_two_choices_differ() -> None:
    one, other = ChosenConditions("bf16", "channels_last"), ChosenConditions("fp32", "contiguous")
    assert (one.label(other), other.label(one)) == ("bf16 channels_last", "fp32 contiguous")
    assert one.label(ChosenConditions("fp32", "channels_last")) == "bf16"


@pytest.mark.parametrize("device", [None, "cuda", "cuda:1", "h200", "NVIDIA", "cpu", "H100", "H20"])
def test_a_device_is_meant_by_its_type_or_a_part_of_its_name(device: str | None) -> None:
    assert is_meant(device, H200) == (device not in ("cpu", "H100", "H20"))


MISSPELLED = {"gpu": "cuda?", "GPU:0": "cuda?", "cuda0": "cuda?", "CPU": "cpu?", "": "cuda:0", " ": "cuda:0"}


@pytest.mark.parametrize("text", [*MISSPELLED, "cpu", "cuda", "cuda:3", "H200", "A100", "AMD EPYC 7763"])
def test_a_misspelled_device_is_a_mistake_with_the_one_that_was_meant(text: str) -> None:
    mistake = device_mistake(text) or ""
    assert mistake.startswith(f"{text!r} is not a device; use cpu, cuda, or cuda:N") == (text in MISSPELLED)
    assert mistake.endswith(MISSPELLED.get(text, ""))


def test_a_product_without_rows_is_refused_with_those_that_have_rows() -> None:
    refuse_unknown("h200", ["NVIDIA H200"])
    with pytest.raises(UserError, match="^--device H100: no row of it; there are rows of NVIDIA A100, NVIDIA H200$"):
        refuse_unknown("H100", ["NVIDIA H200", "NVIDIA A100", "NVIDIA H200"])
    with pytest.raises(UserError, match="^--device H100: no row of it; there are no rows of any device$"):
        refuse_unknown("H100", [])
