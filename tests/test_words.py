"""The project keeps to the words of docs/glossary.md: none of its "not" column, no sentence that hides its subject."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"

TEXTS = ("opcost", "benchmarks", "tests", "docs", "measurements/operator_whitelist.yml", "Makefile", *ROOT.glob("*.py"))
PAGES = ("README.md", "DESIGN.md", "CHANGELOG.md", "CITATION.cff", "database/README.md")

QUOTING = {
    GLOSSARY,
    ROOT / "tests" / "test_words.py",
    # Phrases of version 0.2, which are replaced by flags.
    ROOT / "opcost" / "storage" / "table.py",
    ROOT / "tests" / "storage" / "test_former_tables.py",
}
"""Files that name such expressions because they are about them."""

ENDINGS = {".py", ".md", ".html", ".js", ".css", ".yml", ".toml", ".sh", ".svg", ".c", ".cff", ""}

HIDDEN_SUBJECT = re.compile(
    r"""(?:^|\A|"|[.!?]\s|\#\s|\|\s)(?:What|Who|Whatever|Whoever)\s # a sentence that begins so
    [^.?!|]*?(?:[.!|]\s|[.!|]?"|[.!]$) # and is no question""",
    re.MULTILINE | re.VERBOSE,
)


def banned() -> re.Pattern[str]:
    """Return what matches an expression of the "not" column; spaces match line breaks and underscores, too."""
    table = GLOSSARY.read_text(encoding="utf-8").split("## Not these words")[1]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    expressions = [expression for cell in cells for expression in re.findall(r"`([^`]+)`", cell)]
    assert len(expressions) > 30
    words = [r"[\s#_]+".join(re.escape(word) for word in expression.split()) for expression in expressions]
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(words)})(?![^\W_])", re.IGNORECASE)


def files() -> list[Path]:
    """Return the tracked and new files that people read."""
    named = [str(path) for path in (*TEXTS, *PAGES)]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *named]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    paths = [ROOT / name for name in listed]
    return [path for path in paths if path.suffix in ENDINGS and path not in QUOTING and path.is_file()]


def lines_of(pattern: re.Pattern[str], text: str) -> list[str]:
    return [f"{text.count(chr(10), 0, found.start()) + 1}: {found[0].strip()!r}" for found in pattern.finditer(text)]


def test_words_are_those_of_the_glossary_and_a_sentence_begins_with_its_subject() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files()}
    assert len(texts) > 500
    patterns = (banned(), HIDDEN_SUBJECT)
    found = [(name, line) for name, text in texts.items() for pattern in patterns for line in lines_of(pattern, text)]
    assert found == []


def test_expressions_are_found_in_names_and_across_lines() -> None:
    assert lines_of(banned(), "def test_clocks_held_down(untold):\n    is_told = 1") == ["1: 'held_down'", "2: 'told'"]
    assert lines_of(banned(), "# Clocks are held\n# down. It was told.") == ["1: 'held\\n# down'", "2: 'told'"]


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('"""What a row says."""', True),
        ("It ends. What is lost is counted.", True),
        ("# Who asks gets it.", True),
        ("What costs most? It is this.", False),
        ("## What costs most?", False),
        ('"What does it cost?"', False),
        ("It says what it is.", False),
    ],
)
def test_a_hidden_subject_is_found(text: str, is_found: bool) -> None:
    assert bool(HIDDEN_SUBJECT.search(text)) is is_found
