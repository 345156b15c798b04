"""Which remarks become footnotes of a table, and their words for several comparisons."""

from __future__ import annotations

from string import Formatter

import pytest

from opcost.comparing.footnotes import WORDINGS, changes_conclusions, footnote_of
from opcost.comparing.remarks import TEXTS, Remark, RemarkKind
from opcost.comparing.tuple_costs import TupleFlag


def figures_in(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("kind", RemarkKind)
def test_each_kind_has_words_of_its_own_figures(kind: RemarkKind) -> None:
    named = figures_in(WORDINGS[kind].text) | figures_in(WORDINGS[kind].figure)
    assert named <= figures_in(TEXTS[kind]) | {"circumstance"}


@pytest.mark.parametrize(
    ("kind", "figures", "is_shown"),
    [
        (RemarkKind.FLAGGED_OPERATORS, {"time_ratio": 0.02}, True),
        (RemarkKind.FLAGGED_OPERATORS, {"time_ratio": 0.002}, False),
        (RemarkKind.OTHER_WORK, {"time_ratio": 0.02}, True),
        (RemarkKind.OTHER_WORK, {"time_ratio": 0.002}, False),
        (RemarkKind.OTHER_CIRCUMSTANCE, {"name": "protocol", "time_ratio": 1.0}, False),
        (RemarkKind.OTHER_CIRCUMSTANCE, {"name": "device_uuid", "time_ratio": 0.5}, True),
        (RemarkKind.OTHER_CIRCUMSTANCE, {"name": "device_uuid", "time_ratio": 0.01}, False),
        (RemarkKind.LOWER_CLOCKS, {"longer_ratio": None}, True),
        (RemarkKind.LEAF_MODULES, {}, True),
        (RemarkKind.NOT_PRECISE, {"time_ratio": 1.0}, False),
    ],
)
def test_a_remark_is_shown_if_it_changes_what_a_reader_concludes(
    kind: RemarkKind, figures: dict[str, float | str | None], is_shown: bool
) -> None:
    assert changes_conclusions(Remark(kind, figures)) is is_shown


def test_words_for_all_comparisons_are_apart_from_one_figure() -> None:
    remark = Remark(RemarkKind.OTHER_CIRCUMSTANCE, {"name": "meter", "of_sum": "a", "of_whole": "b", "time_ratio": 0.3})
    assert footnote_of(remark) == ("a part of the summed time was measured with another meter", "30.0 %")
    protocol = Remark(remark.kind, {**remark.figures, "name": "protocol"})
    assert footnote_of(protocol)[0].endswith("measured with another protocol")


def test_no_text_names_a_block() -> None:
    """Users of ``opcost profile`` and ``opcost show`` see them, and know no blocks."""
    texts = [*(one.text for one in WORDINGS.values()), *TEXTS.values(), *(flag.meaning for flag in TupleFlag)]
    assert [text for text in texts if "block" in text] == []
