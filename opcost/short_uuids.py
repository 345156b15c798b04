"""Boards and MIG instances as tables and reports have them: by the beginning of their UUIDs."""

from __future__ import annotations

import re

_UUID = re.compile(r"\b(GPU|MIG)-([0-9a-f]{4})([0-9a-f]{4})(?:-[0-9a-f]{4,12})*", re.IGNORECASE)


def short_uuid(text: str) -> str:
    """Return a text in which UUIDs end after eight digits: enough to distinguish boards, and no identity elsewhere."""
    return _UUID.sub(r"\1-\2\3", text)


def with_named_boards(text: str) -> str:
    """Return a text in which boards have the name that a report gives them: ``GPU 1234`` for a UUID."""
    return _UUID.sub(r"\1 \2", text)
