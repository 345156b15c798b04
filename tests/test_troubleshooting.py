"""Messages that docs/troubleshooting.md explains are those that opcost has; ``…`` stands for their variable parts."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")

OF_OTHERS = {
    "RuntimeError: operator torchvision::nms does not exist",
    "The NVIDIA driver on your system is too old",
    "OutOfMemoryError: CUDA out of memory",
}
"""Messages of torch and torchvision."""

BLOCKS = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CELLS = re.findall(r"^\| `([^`]+)`", PAGE, re.MULTILINE)
MESSAGES = sorted({*"".join(BLOCKS).splitlines(), *CELLS} - OF_OTHERS)


def text_of(node: ast.AST) -> str:
    """Return the text of a string in a program, with ``…`` for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[sd]|%\.\d[fg]|%g|\{\w+\}", "…", node.value)
    return "…"


def test_messages_are_those_of_opcost() -> None:
    """Their parts are, since problem and remedy may come from two places."""
    programs = [*ROOT.glob("opcost/**/*.py"), *ROOT.glob("*.py")]
    nodes = (node for path in programs for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    texts = "\n".join(text_of(node) for node in nodes if isinstance(node, ast.JoinedStr | ast.Constant))
    parts = {part.strip(" ();:,.?'") for message in MESSAGES for part in message.split("…")}
    assert sorted(part for part in parts if part not in texts) == []
    assert all(message in PAGE for message in OF_OTHERS)
    assert len(MESSAGES) > 40
