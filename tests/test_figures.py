"""The figures that commands give of the shipped database, value by value: the code shrinks and grows, they stay.

``pytest --renew-golden`` writes them again. Texts are left out: other tests have them.
"""

import json
import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_python

GOLDEN = Path(__file__).parent / "golden" / "figures"
SIZE = "32x3x224x224"
COMMANDS = {
    "show": "show --json",
    "show_operators": f"show resnet50_{SIZE} --json",
    "show_conditions": "show --conditions --json",
    "compare": "compare --json",
    "layers": f"layers resnet50_{SIZE} --json",
    "profile": "profile resnet50 --no-measure --json",
    "profile_vit": "profile vit_b_16 --no-measure --json",
    "predict": "predict resnet50 --device H200 --json",
    "report": f"report resnet18_{SIZE} vit_b_16_{SIZE} --output report.html",
}
LIBRARIES = (*warm_python.LIBRARIES, warm_python.SHIPPED_ROWS)
RELATIVE_TOLERANCE = 1e-9
"""The last digits of least-squares fits depend on numpy's build and on the processor."""


@pytest.mark.parametrize("name", COMMANDS)
def test_figures_of_the_shipped_database_are_the_same(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    environment = os.environ | {"OPCOST_HOME": str(tmp_path / "home")}
    if name != "predict":
        # Rankings and reports predict models if another test has learned before.
        environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    command = [sys.executable, "-m", "opcost", *COMMANDS[name].split()]
    done = warm_python.run(command, tmp_path, environment, libraries=LIBRARIES)
    assert done.returncode == 0, done.stderr
    report = tmp_path / "report.html"
    found = dict(cells_of(report.read_text()) if report.is_file() else numbers_of(json.loads(done.stdout)))
    golden = GOLDEN / f"{name}.txt"
    if pytestconfig.getoption("--renew-golden"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text("".join(f"{path}\t{json.dumps(value)}\n" for path, value in found.items()))
    lines = golden.read_text().splitlines()
    expected = {path: json.loads(value) for path, value in (line.split("\t") for line in lines)}
    assert len(found) > 20
    assert [path for path in expected.keys() | found.keys() if not are_same(expected.get(path), found.get(path))] == []


def numbers_of(value: Any, path: str = "") -> Iterator[tuple[str, float | None]]:
    """Yield each number, flag and unknown with its place. Items of a list with a name have that for a place."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from numbers_of(one, f"{path}.{key}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from numbers_of(one, f"{path}[{number}]")
    elif not isinstance(value, str):
        yield path, value


def cells_of(page: str) -> Iterator[tuple[str, str | float | None]]:
    """Yield the numbers of a report's data, and the cells of its tables that have one."""
    (data,) = re.findall(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    yield from numbers_of(json.loads(data), "data")
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page, re.DOTALL)
    texts = [re.sub(r"<[^>]*>|\s+", " ", cell).strip() for cell in cells]
    # Commands begin with the place of the program.
    figures = [text for text in texts if re.search(r"\d", text) and "/opcost " not in text]
    yield from ((f"cell {number}", text) for number, text in enumerate(figures))


def are_same(expected: Any, found: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-15)
    return bool(expected == found)
