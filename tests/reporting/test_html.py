"""The report's page: one file that sends no request, and in which data stays data."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

from opcost.html_text import Markup, paragraph
from opcost.reporting.markup import (
    Chart,
    Entry,
    drawing,
    figure,
    folded,
    items,
    json_for_script,
    page,
    table,
)
from opcost.reporting.tables import of_texts

PARTS = (
    "about summary ranking sweeps verdicts parity errors meters drift flags kinds layers rooflines gaps kernels "
    "remarks steps patterns"
).split()
NASTY = "</script><script>alert(1)</script><!-- {{data}} \u2028 \\"


class Tags(HTMLParser):
    """Collects elements, and what stands in those of one name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


def whole_page(**parts: str) -> str:
    return page({**dict.fromkeys(PARTS, ""), **parts}, {"name": NASTY})


def test_data_cannot_leave_its_element() -> None:
    text = json_for_script({"name": NASTY})
    assert json.loads(text) == {"name": NASTY}
    assert "<" not in text
    scripts = [settings for tag, settings in Tags(whole_page()).found if tag == "script"]
    assert [settings.get("type") for settings in scripts] == ["application/json", None]


def test_the_policy_knows_the_page_s_own_script_and_style_and_nothing_else() -> None:
    text = whole_page()
    (policy,) = (
        settings["content"] or ""
        for tag, settings in Tags(text).found
        if settings.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    script, style = (re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL) for tag in ("script", "style"))
    for rule, (content,) in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"


def test_nothing_refers_to_the_outside() -> None:
    found = Tags(whole_page()).found
    for tag, settings in found:
        assert tag not in {"iframe", "img", "object", "embed", "base"}
        for name in ("src", "href", "action", "srcset", "style", "onclick"):
            assert (settings.get(name) or "#").startswith(("#", "data:,")), (tag, settings)
    text = whole_page().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|url\((?!#)|@import|fetch\(|XMLHttp|WebSocket|sendBeacon|import\(|eval\(", text)


def test_texts_are_escaped_everywhere_and_markup_stays_markup() -> None:
    made = [
        paragraph(NASTY),
        items([NASTY]),
        folded(NASTY, ""),
        figure(Chart([drawing(NASTY, 10.0)], [Entry.of_mark(0, NASTY)]), NASTY),
        table(of_texts(NASTY), [[NASTY]], NASTY),
        table(of_texts("a", NASTY), [["x", NASTY]]),
    ]
    for text in made:
        assert "<script>" not in text
        assert "alert(1)" in text
    assert "<code>x</code>" in table(of_texts("a", "b"), [["x", Markup("<code>x</code>")]])
    # A name with the place of another part.
    assert whole_page(summary=paragraph("a model {{script}}")).count("a model {{script}}") == 1


def test_numbers_of_a_column_stand_at_their_decimal_points() -> None:
    """A number has the rest of the longest end without ink, so that right-aligned points are in one line."""
    titles, rows = (
        ("model", "mJ", "share", "kind"),
        [
            ["a", "0.5492", "4.1 %", "Conv2d 56 %"],
            ["b", "~117.3 (!)", "-", "Linear 9 %"],
            ["c", "12,919", "10 %", "-"],
        ],
    )
    made = table(of_texts(*titles), rows)
    columns = {title: re.findall(rf'<td data-label="{title}"([^>]*)>(.*?)</td>', made) for title in titles[1:]}
    assert [cell for _, cell in columns["mJ"]] == [
        '0.5492<i data-lacks=" (!)"></i>',
        '~117.3<i data-lacks="492"></i> (!)',
        '12,919<i data-lacks=".5492 (!)"></i>',
    ]
    assert [cell for _, cell in columns["share"]][1:] == [
        '-<i data-lacks=".1\u00a0%"></i>',
        '10<i data-lacks=".1"></i>\u00a0%',
    ]
    are_numbers = {title: {kind for kind, _ in cells} for title, cells in columns.items()}
    assert are_numbers == {"mJ": {' class="number"'}, "share": {' class="number"'}, "kind": {""}}
    assert 'class="number"' not in table(of_texts("a", "b"), [["x", "-"], ["y", "8 to 32"], ["z", "3x224x224"]])


def test_headings_follow_the_questions_in_order() -> None:
    heads = re.findall(r"<h2[^>]*>(.*?)</h2>", whole_page())
    asked = ["Which model costs least?", "What costs most?", "Can I trust it?", "Where is the sum wrong, and why?"]
    assert heads[:4] == asked


def test_every_part_of_the_page_has_a_name_in_english() -> None:
    found = Tags(whole_page()).found
    assert ("html", {"lang": "en"}) in found
    labelled = {settings["for"] for tag, settings in found if tag == "label" and "for" in settings}
    assert not labelled, "labels hold their inputs"
    assert all(
        "aria-label" in s or "aria-labelledby" in s
        for tag, s in found
        if tag in {"nav", "section", "dialog", "form"} and s.get("method") != "dialog"
    )
