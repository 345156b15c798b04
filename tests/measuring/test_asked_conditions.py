"""Conditions that users ask for: pairs of key and value, and mistakes with their remedy."""

from __future__ import annotations

import pytest

from opcost.measuring.setting import ALL_CHOICES, ChosenConditions, parse_conditions


@pytest.mark.parametrize(
    ("texts", "asked"),
    [
        (["precision=fp32"], {"precision": "fp32"}),
        (["precision=fp32,memory_format=contiguous"], {"precision": "fp32", "memory_format": "contiguous"}),
        (["precision = fp32", "memory_format=channels_last"], {"precision": "fp32", "memory_format": "channels_last"}),
        (["precision=bf16", "precision=bf16"], {"precision": "bf16"}),
    ],
)
def test_conditions_are_asked_for_with_commas_or_repeatedly(texts: list[str], asked: dict[str, str]) -> None:
    assert parse_conditions(texts) == asked


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["precison=fp32"], r"'precison' is no condition; use precision$"),
        (["execution=eager"], r"'execution' is no condition; use precision or memory_format or device$"),
        (["precision=bf61"], r"precision has no value 'bf61'; use bf16$"),
        (["memory_format="], r"memory_format has no value ''; use contiguous or channels_last$"),
        (["precision"], r"precision has no value ''"),
        ([""], r"'' is no condition"),
        (["precision=fp32,"], r"'' is no condition"),
        (["precision=fp32", "precision=bf16"], r"precision is fp32 as well; name one of both$"),
    ],
)
def test_a_mistake_names_the_text_and_the_remedy(texts: list[str], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_conditions(texts)


def test_every_choice_can_be_asked_for_by_its_text() -> None:
    assert len(ALL_CHOICES) == len(set(ALL_CHOICES)) == 12
    for choice in ALL_CHOICES:
        assert ChosenConditions(**parse_conditions([str(choice)])) == choice


def test_labels_have_only_the_values_in_which_two_choices_differ() -> None:
    one, other = ChosenConditions("bf16", "channels_last"), ChosenConditions("fp32", "contiguous")
    assert (one.label(other), other.label(one)) == ("bf16 channels_last", "fp32 contiguous")
    assert one.label(ChosenConditions("fp32", "channels_last")) == "bf16"
