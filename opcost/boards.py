"""Boards and MIG instances as tables have them: by the beginning of their UUIDs."""

from __future__ import annotations

import re

_UUID = re.compile(r"\b((?:GPU|MIG)-[0-9a-f]{8})(?:-[0-9a-f]{4,12})+", re.IGNORECASE)


def short_uuid(text: str) -> str:
    """Return a text in which UUIDs end after eight digits: enough to distinguish boards, and no identity elsewhere."""
    return _UUID.sub(r"\1", text)
