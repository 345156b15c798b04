"""Marks of running code, through a file that may hold anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opcost import mark
from opcost.running.marks import MARKS_FILE, Mark, marks_in


def test_marks_come_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    path.touch()
    for label in ("epoch 1", 'with "quotes",\nand lines', "epoch 2"):
        mark(label, {MARKS_FILE: str(path)})
    assert [found.label for found in marks_in(path)] == ["epoch 1", 'with "quotes", and lines', "epoch 2"]


def test_without_a_follower_a_mark_does_nothing(tmp_path: Path) -> None:
    mark("epoch 1", {})
    mark("epoch 1", {MARKS_FILE: str(tmp_path / "missing")})
    assert marks_in(tmp_path / "missing") == []
    assert list(tmp_path.iterdir()) == []


def test_no_label_and_no_file_raise_or_block(tmp_path: Path) -> None:
    class Nameless:
        def __str__(self) -> str:
            raise ZeroDivisionError

    path = tmp_path / "marks"
    path.touch()
    mark(Nameless(), {MARKS_FILE: str(path)})  # type: ignore[arg-type]
    mark("epoch 1", {MARKS_FILE: "a\0b"})
    path.unlink()
    os.mkfifo(path)
    mark("epoch 1", {MARKS_FILE: str(path)})
    assert marks_in(path) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(), st.text().map(str.encode))))
def test_lines_that_are_no_marks_are_left_out(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "marks"
    path.write_bytes(b"\n".join([json.dumps([1.5, "good"]).encode(), *lines]))
    assert Mark(1.5, "good") in marks_in(path)
