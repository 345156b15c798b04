"""Notebooks: ``%%energy`` in IPython, and the tutorial, whose outputs are those that its cells give.

A cell with the tag ``varies`` is run and not compared: its outputs are times of this machine. Of one with the tag
``learned`` the words are compared: its figures follow from random forests. ``--renew-golden`` writes the outputs again.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import opcost
from opcost.metering.window_energy import WindowResult
from opcost.running import energy_meter

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.ipynb"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    made: InteractiveShell = InteractiveShell()
    # Tracebacks as a notebook without colours has them.
    made.run_line_magic("colors", "nocolor")
    yield made
    made.history_manager.end_session()


def run(shell: InteractiveShell, cell: str) -> tuple[Any, str]:
    """Run a cell; return its output and what it prints."""
    with capture_output() as captured:
        ran = shell.run_cell(cell, store_history=True)
    return ran.result if ran.success else ran.error_in_exec, captured.stdout


def test_a_cell_is_metered_and_leaves_what_it_names(shell: InteractiveShell) -> None:
    assert run(shell, "%load_ext opcost")[0] is None
    result, _ = run(shell, "%%energy\nnumber = 6 * 7\nimport time; time.sleep(0.01)")
    assert isinstance(result, WindowResult)
    assert result.duration_s >= 0.01
    assert shell.user_ns["number"] == 42
    assert run(shell, "_.duration_s")[0] == result.duration_s
    assert "<table>" in result._repr_html_()


def test_devices_are_those_that_the_line_names(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    def open_sources(names: object) -> list[object]:
        opened.append(names)
        return []

    monkeypatch.setattr(energy_meter, "open_sources", open_sources)
    run(shell, "%load_ext opcost")
    for line in ("%%energy", "%%energy cuda:1 cpu"):
        run(shell, f"{line}\n1")
    assert opened == [None, ("cuda:1", "cpu")]


def test_a_mistake_is_one_line_and_an_error_of_the_cell_ends_it(shell: InteractiveShell) -> None:
    run(shell, "%load_ext opcost")
    error, printed = run(shell, "%%energy gpu\n1")
    assert isinstance(error, opcost.UserError)
    assert printed.strip() == f"error: {error}"
    error, printed = run(shell, "%%energy\n1 / 0")
    assert isinstance(error, ZeroDivisionError)
    assert "division by zero" in printed


def outputs_of(shell: InteractiveShell, cell: str) -> list[dict[str, Any]]:
    """Run a cell, and return its outputs in the format of notebooks."""
    with capture_output() as captured:
        ran = shell.run_cell(cell, store_history=True)
    ran.raise_error()
    found: list[dict[str, Any]] = []
    if captured.stdout and ran.result is None:
        found.append({"name": "stdout", "output_type": "stream", "text": captured.stdout.splitlines(keepends=True)})
    if ran.result is not None:
        data, _ = shell.display_formatter.format(ran.result, include=["text/plain", "text/html"])
        content = {kind: text.splitlines(keepends=True) for kind, text in sorted(data.items())}
        number = shell.execution_count - 1
        found.append({"data": content, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return found


def test_the_tutorial_has_the_outputs_that_its_cells_give(
    shell: InteractiveShell, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    monkeypatch.setenv("OPCOST_HOME", str(home))
    page = json.loads(TUTORIAL.read_text(encoding="utf-8"))
    cells = [cell for cell in page["cells"] if cell["cell_type"] == "code"]
    assert 10 <= len(page["cells"]) <= 15
    before = [cell["outputs"] for cell in cells]
    for number, cell in enumerate(cells, start=1):
        found = outputs_of(shell, "".join(cell["source"]))
        is_kept = "varies" in cell["metadata"].get("tags", ()) and cell["outputs"]
        cell |= {"outputs": cell["outputs"] if is_kept else found, "execution_count": number}
    if pytestconfig.getoption("--renew-golden"):
        TUTORIAL.write_text(json.dumps(page, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    for cell, known in zip(cells, before, strict=True):
        is_learned = "learned" in cell["metadata"].get("tags", ())
        texts = [json.dumps(outputs, ensure_ascii=False) for outputs in (known, cell["outputs"])]
        words, found_words = (re.sub(r"base64,[\w+/=]+|[\d.]+", "", text) if is_learned else text for text in texts)
        assert words == found_words, "meant? then: pytest --renew-golden"
    # It looks, and leaves nothing.
    assert list(tmp_path.iterdir()) == []
    assert not home.exists()
