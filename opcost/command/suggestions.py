"""Suggestions for misspelled options, choices and subcommands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SIMILAR_RATIO = 0.75
"""Similarity of a misspelled name, without hyphens in front: ``meta`` is 0.86 from ``mta``, but ``sort`` 0.6 from
``format``."""

SHORTEST_BEGINNING = 3
"""Letters of a name's beginning that stand for the name in a suggestion."""


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """Return a question with the name that is similar to a text; empty if none is."""
    of_word = {name.lstrip("-"): name for name in names}
    word = text.lstrip("-")
    begun = [known for known in of_word if len(word) >= SHORTEST_BEGINNING and known.startswith(word)]
    close = begun or difflib.get_close_matches(word, of_word, n=1, cutoff=SIMILAR_RATIO)
    return f"; did you mean {of_word[close[0]]}?" if close else ""
