"""A trace in a terminal: its shape can be seen, and it is drawn when rows arrive, not more often than one can look."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from nvidia_smi_stage import NvidiaSmiStage
from rich.console import Console

from opcost.power.log_rows import PowerRow
from opcost.reporting.power_drawing import Readings, drawing_of
from opcost.reporting.terminal_power import BRAILLE, LiveTrace, trace_text

SCRIPT = Path(__file__).parents[2] / "power_logger.py"


def rows_of(text: str) -> list[str]:
    """Return what is drawn right of the axis, line by line."""
    return [line.partition("│")[2] for line in text.splitlines() if "│" in line]


def test_a_step_is_a_step() -> None:
    points = tuple((float(second), 100.0 if second < 10 else 400.0) for second in range(20))
    drawing = drawing_of([Readings("power", points, is_step=True)], marks=4)
    assert drawing is not None
    drawn = rows_of(trace_text(drawing, width=40, height=8))
    filled = [[character != chr(BRAILLE) for character in line] for line in drawn]
    assert len(drawn) == 8
    assert all(len(line) == 40 for line in drawn)
    assert all(any(line[column] for line in filled) for column in range(40))
    assert [row for row in range(8) if filled[row][2]] == [5]
    assert [row for row in range(8) if filled[row][35]] == [0]


def test_axes_have_marks_and_names() -> None:
    drawing = drawing_of([Readings("power", ((0.0, 100.0), (10.0, 400.0)))], marks=4)
    assert drawing is not None
    text = trace_text(drawing, width=40, height=8)
    assert "power (W)" in text
    assert "time (s)" in text
    assert all(mark in text for mark in ("400", "200", "  0 │", "10"))


def test_rows_are_drawn_twice_a_second_at_most() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=24)
    with LiveTrace(console) as live:
        for number in range(100):
            live.add([PowerRow(1.79e9 + 0.02 * number, power_instant_w=300.0 + number)])
            live.add([PowerRow(1.79e9 + 0.02 * number)])
    # The end draws it once more.
    assert 4 <= screen.getvalue().count("W now") <= 5
    assert "375.0 W now" in screen.getvalue()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvidiaSmiStage:
    return NvidiaSmiStage(tmp_path / "stage", monkeypatch)


def test_logging_on_a_terminal_shows_the_trace(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, str(SCRIPT), "--seconds", "1.2", "--output", "power.csv"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "PYTHONPATH": str(SCRIPT.parent)}
    with subprocess.Popen(command, cwd=tmp_path, stderr=theirs, stdout=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
    os.close(ours)
    assert process.returncode == 0
    text = shown.decode()
    assert "W now" in text
    assert "power (W)" in text
    assert "mean power 30" in text
    assert len((tmp_path / "power.csv").read_text().splitlines()) > 3
