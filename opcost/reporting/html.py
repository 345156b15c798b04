"""The report as one HTML file that makes no requests: markup, style, script and data.

It is made of ``report.html``, ``report.css``, ``figures.css`` and ``report.js`` beside this module. All text from data
is escaped here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from opcost.reporting.charts import Chart

_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")

SCRIPT = "report.js"
STYLES = ("figures.css", "report.css")
PAGE = "report.html"


@dataclass(frozen=True)
class Markup:
    """Text that is HTML already."""

    html: str


def page(parts: Mapping[str, str], data: Any) -> str:
    """Return the whole page: markup for each slot of the template, and the script's data, as for JSON.

    Its policy forbids all requests, and every script and style except its own, by their hashes.
    """
    script, style = _file(SCRIPT), "".join(map(_file, STYLES))
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; base-uri 'none'"
    )
    slots = {
        **parts,
        "policy": escape(f"{policy}; form-action 'none'"),
        "script": script,
        "style": style,
        "data": json_for_script(data),
    }
    # One pass: inserted text is not searched for slots.
    return _SLOT.sub(lambda slot: slots[slot[1]], _file(PAGE))


def json_for_script(data: Any) -> str:
    """Return data as JSON that cannot end the script element that holds it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def table(columns: Sequence[str], rows: Sequence[Sequence[str | Markup]], caption: str = "") -> str:
    """Return a table in an area that scrolls; the first column is the header of each row."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = ""
    for row in rows:
        first, *others = (cell.html if isinstance(cell, Markup) else _prose(cell) for cell in row)
        # Each cell carries its column's name, which narrow screens show beside it.
        named = zip(columns[1:], others, strict=True)
        cells = "".join(f'<td data-label="{escape(name)}">{cell}</td>' for name, cell in named)
        body += f'<tr><th scope="row">{first}</th>{cells}</tr>'
    above = f'<p class="caption">{_prose(caption)}</p>' if caption else ""
    inside = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    label = escape(caption or columns[0])
    return f'{above}<div class="scroll" tabindex="0" role="region" aria-label="{label}">{inside}</div>'


def figure(chart: Chart, caption: str) -> str:
    """Return drawings, side by side if there is room, with legend and caption."""
    items = "".join(f"<li>{entry}</li>" for entry in chart.legend)
    listed = f'<ul class="legend">{items}</ul>' if items else ""
    panels = "".join(f"<div>{drawing}</div>" for drawing in chart.drawings)
    return f'<figure><div class="panels">{panels}</div>{listed}<figcaption>{_prose(caption)}</figcaption></figure>'


def paragraph(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{_prose(text)}</p>"


def items(texts: Sequence[str]) -> str:
    """Return a list."""
    return f"<ul>{''.join(f'<li>{_prose(text)}</li>' for text in texts)}</ul>" if texts else ""


def folded(title: str, content: str) -> str:
    """Return markup that unfolds when its title is selected."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def code(text: str) -> Markup:
    """Return a command."""
    return Markup(f"<code>{escape(text)}</code>")


def _prose(text: str) -> str:
    """Return escaped text without line breaks between a number and its %."""
    return escape(text).replace(" %", "\u00a0%")


def _file(name: str) -> str:
    return files("opcost.reporting").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
