"""Characters that are not shown: what is printed in their place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.units import printable

ESCAPED = {"\x1b[31m": "\\x1b[31m", "\u202e": "\\u202e", "\udcff": "\\udcff", "\0": "\\x00", "\ufeff": "\\ufeff"}
SPACES = {"\t": " ", "\n": " ", "\u2028": " ", "\xa0": " "}
SHOWN = {text: text for text in ("", "a b", "µΩ→中🙂", "\\x1b")}


@pytest.mark.parametrize(("text", "shown"), [*ESCAPED.items(), *SPACES.items(), *SHOWN.items()])
def test_what_is_not_shown_is_a_space_or_an_escape(text: str, shown: str) -> None:
    assert printable(f"a{text}b") == f"a{shown}b"


@given(st.text())
def test_any_text_is_printed_on_one_line(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)


def test_line_breaks_stay_where_they_are_meant() -> None:
    assert printable("a\n\tb\x1b", kept="\n") == "a\n b\\x1b"
