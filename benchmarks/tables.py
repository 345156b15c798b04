"""Markdown tables, for what benchmarks print"""

from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], alignment: str = "--:") -> str:
    """Return a table: the first column to the left, the others by default to the right."""
    lines = [header, ["---", *[alignment] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
