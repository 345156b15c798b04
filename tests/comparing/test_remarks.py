"""The words of remarks, and which of them are shown unasked."""

from __future__ import annotations

import pytest

from opcost.comparing.remarks import Remark, RemarkKind
from opcost.comparing.tuple_costs import TupleFlag


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
    assert Remark(kind, figures).changes_conclusions is is_shown


def test_words_for_all_comparisons_are_apart_from_one_figure() -> None:
    remark = Remark(RemarkKind.OTHER_CIRCUMSTANCE, {"name": "meter", "of_sum": "a", "of_whole": "b", "time_ratio": 0.3})
    assert remark.words == ("a part of the summed time was measured with another meter", "30.0 %")
    assert str(remark) == "a part of the summed time was measured with another meter: 30.0 %, meter a (whole model: b)"
    protocol = Remark(remark.kind, {**remark.figures, "name": "protocol"})
    assert protocol.words[0].endswith("measured with another protocol")


def test_no_text_names_a_block() -> None:
    """Users of ``opcost profile`` and ``opcost show`` see them, and know no blocks."""
    texts = [*(f"{one.text} {one.figure} {one.more}" for one in RemarkKind), *(flag.meaning for flag in TupleFlag)]
    assert [text for text in texts if "block" in text] == []
