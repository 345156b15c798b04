"""HTML as text, for notebooks and the report: tables and paragraphs, in which every text is escaped."""

from __future__ import annotations

import re
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
    """Return a table in an area that scrolls; the first column is the header of each row.

    Columns of numbers are aligned at their decimal points.
    """
    titles = [escape(title) for title in head]
    # Each cell carries its column's name, which narrow screens show beside it.
    tags = [("th", ' scope="row"'), *(("td", f' data-label="{title}"') for title in titles[1:])]
    columns, body = list(map(_numbers, zip(*rows, strict=True))), ""
    kinds = [' class="number"' if numbers else "" for numbers, _ in columns] or [""] * len(titles)
    heads = "".join(f'<th scope="col"{kind}>{title}</th>' for title, kind in zip(titles, kinds, strict=True))
    for cells in zip(*(cells for _, cells in columns), strict=True):
        shown = zip(tags, kinds, cells, strict=True)
        body += f"<tr>{''.join(f'<{tag}{named}{kind}>{cell}</{tag}>' for (tag, named), kind, cell in shown)}</tr>"
    above = f'<p class="caption">{prose(caption)}</p>' if caption else ""
    inside = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    label = escape(caption or head[0])
    return f'{above}<div class="scroll" tabindex="0" role="region" aria-label="{label}">{inside}</div>'


# Such as 12,919, ~0.5492, -1.5 % (!) and 19.88 ms.
_NUMBER = re.compile(r"([~+-]?\d[\d,]*)(\.\d+)?((?: [^\W\d]+| %)?(?: \(!\))?)")
_UNKNOWN = "-"


def _numbers(cells: Sequence[str]) -> tuple[bool, list[str]]:
    """Return whether a column has numbers only, and its cells as markup.

    What a number lacks of the column's longest end is an attribute that a style sheet shows without ink.
    """
    found = [None if isinstance(cell, Markup) else _NUMBER.fullmatch(cell) for cell in cells]
    known = [one for one in found if one is not None]
    if not known or any(one is None and cell != _UNKNOWN for one, cell in zip(found, cells, strict=True)):
        return False, list(map(prose, cells))
    fraction, unit = (max((one[group] or "" for one in known), key=len) for group in (2, 3))
    texts = []
    for one, cell in zip(found, cells, strict=True):
        own, own_unit = ("", "") if one is None else (one[2] or "", one[3])
        rest = fraction[len(own) :] + ("" if own_unit else prose(unit))
        number = cell if one is None else f"{one[1]}{own}"
        texts.append(number + (f'<i data-lacks="{rest}"></i>' if rest else "") + prose(own_unit))
    return True, texts
