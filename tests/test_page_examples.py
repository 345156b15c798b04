"""Programs in docs/ print what stands below them: a ``python`` block that a plain block follows is an example.

``pytest --renew-golden`` writes what they print into the pages.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = re.compile(r"```python\n([^`]+)```\n\n```\n([^`]*)```\n")


def examples() -> list[tuple[Path, str]]:
    pages = sorted(ROOT.glob("docs/*.md"))
    return [(page, found[1]) for page in pages for found in EXAMPLE.finditer(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("page", "program"), examples(), ids=lambda value: value.name if isinstance(value, Path) else ""
)
def test_a_program_prints_what_its_page_shows(page: Path, program: str, pytestconfig: pytest.Config) -> None:
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    printed = "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())
    text = page.read_text(encoding="utf-8")
    if pytestconfig.getoption("--renew-golden"):
        (shown,) = (found[2] for found in EXAMPLE.finditer(text) if found[1] == program)
        text = text.replace(f"{program}```\n\n```\n{shown}```", f"{program}```\n\n```\n{printed}```")
        page.write_text(text, encoding="utf-8")
    assert f"{program}```\n\n```\n{printed}```" in text, "meant? then: pytest --renew-golden"


def test_there_are_examples() -> None:
    assert len(examples()) > 2
