"""HTML as text, for notebooks and the report: tables and paragraphs, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that is HTML already."""


def prose(text: str) -> str:
    """Return escaped text without line breaks between a number and its %; markup as it is."""
    return text if isinstance(text, Markup) else escape(text).replace(" %", "\u00a0%")


def paragraph(text: str) -> str:
    return f"<p>{prose(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return a table in an area that scrolls; the first column is the header of each row."""
    titles = [escape(title) for title in head]
    columns = "".join(f'<th scope="col">{title}</th>' for title in titles)
    body = ""
    for first, *others in rows:
        # Each cell carries its column's name, which narrow screens show beside it.
        cells = zip(titles[1:], map(prose, others), strict=True)
        body += f'<tr><th scope="row">{prose(first)}</th>'
        body += "".join(f'<td data-label="{name}">{cell}</td>' for name, cell in cells) + "</tr>"
    above = f'<p class="caption">{prose(caption)}</p>' if caption else ""
    inside = f"<table><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"
    label = escape(caption or head[0])
    return f'{above}<div class="scroll" tabindex="0" role="region" aria-label="{label}">{inside}</div>'
