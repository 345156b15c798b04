"""Footnotes: each kind of remark once, with the comparisons that it holds for."""

from __future__ import annotations

from dataclasses import replace

from test_tables import COMPARED

from opcost.comparing.remarks import Remark, RemarkKind
from opcost.reporting.comparison_tables import Noted, all_in_words, footnote_lines, footnotes, numbers_of

WHOLE_SUM = replace(COMPARED, missing_operators=0, missing="", energy_missing_reason=None)
LEAVES = Remark(RemarkKind.LEAF_MODULES)
IMPRECISE = Remark(RemarkKind.NOT_PRECISE, {"time_ratio": 0.1})


def on_other_values(time_ratio: float) -> Remark:
    return Remark(RemarkKind.OTHER_VALUES, {"time_ratio": time_ratio})


def noted(*remarks_of_each: tuple[Remark, ...]) -> list[Noted]:
    return [Noted(f"model {number}", WHOLE_SUM, remarks) for number, remarks in enumerate(remarks_of_each)]


def lines(compared: list[Noted]) -> list[str]:
    return footnote_lines(footnotes(compared), [one.label for one in compared])


def test_a_remark_on_several_comparisons_is_one_footnote_with_their_figures() -> None:
    compared = noted((on_other_values(0.5), LEAVES), (LEAVES,), (on_other_values(0.2), LEAVES))
    values, leaves = lines(compared)
    assert values.endswith("other values than the model's: model 0 50.0 %; model 2 20.0 %")
    assert leaves == "[2] The sum is of leaf modules only (all)"
    found = footnotes(compared)
    assert [numbers_of(found, number) for number in range(3)] == ["[1,2]", "[2]", "[1,2]"]


def test_of_many_comparisons_a_few_are_named() -> None:
    (line,) = lines(noted(*[(on_other_values(0.5),)] * 9))
    assert line.count("50.0 %") == 6
    assert line.endswith("; 3 more")


def test_one_comparison_is_not_named() -> None:
    assert lines(noted((on_other_values(0.5),)))[0].endswith("than the model's: 50.0 %")


def test_a_remark_that_changes_no_conclusion_has_no_footnote() -> None:
    assert lines(noted((IMPRECISE,))) == []


def test_all_remarks_of_one_comparison_in_words() -> None:
    assert all_in_words(COMPARED, [LEAVES, IMPRECISE]) == [
        "missing: torch.nn.SiLU() on (float32[2]) eval",
        "missing: torch.nn.GELU() on (float32[2]) eval",
        str(LEAVES),
        str(IMPRECISE),
        "no energy: no meter",
    ]
