"""Marks of running code, through a file that may hold anything."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opcost import mark
from opcost.running.marks import LARGEST_BYTES, MARKS_FILE, MOST_MARKS, Mark, Marks


def test_marks_come_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    path.touch()
    for label in ("epoch 1", 'with "quotes",\nand lines', "epoch 2"):
        mark(label, {MARKS_FILE: str(path)})
    assert [found.label for found in Marks(path).read()] == ["epoch 1", 'with "quotes", and lines', "epoch 2"]


def test_without_a_follower_a_mark_does_nothing(tmp_path: Path) -> None:
    mark("epoch 1", {})
    mark("epoch 1", {MARKS_FILE: str(tmp_path / "missing")})
    assert Marks(tmp_path / "missing").read() == []
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
    assert Marks(path).read() == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(), st.text().map(str.encode))))
def test_lines_that_are_no_marks_are_left_out(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "marks"
    path.write_bytes(b"\n".join([json.dumps([1.5, "good"]).encode(), *lines]))
    assert Mark(1.5, "good") in Marks(path).read(has_ended=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 100), st.text())), st.data())
def test_a_file_that_grows_by_parts_of_lines_has_the_marks_of_the_whole(
    tmp_path: Path, given_marks: list[tuple[float, str]], data: st.DataObject
) -> None:
    content = "".join(json.dumps(mark) + "\n" for mark in given_marks).encode()
    places = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=5)))
    path = tmp_path / "marks"
    path.write_bytes(b"")
    marks = Marks(path)
    for begin, end in pairwise([0, *places, len(content)]):
        with path.open("ab") as file:
            file.write(content[begin:end])
        marks.read()
    assert marks.found == Marks(path).read()
    assert sorted(mark.epoch_s for mark in marks.found) == sorted(epoch_s for epoch_s, _ in given_marks)


def test_each_byte_is_read_once_and_a_file_that_begins_again_is_read_from_there(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    path.write_text('[1, "a"]\n[2, "b"]\n')
    marks = Marks(path)
    marks.read()
    # A changed byte that was read is not seen again.
    path.write_text('[9, "a"]\n[2, "b"]\n[3, "c"]\n')
    assert [mark.label for mark in marks.read()] == ["a", "b", "c"]
    path.write_text('[4, "d"]\n')
    assert marks.read() == [Mark(1, "a"), Mark(2, "b"), Mark(3, "c"), Mark(4, "d")]


@pytest.mark.parametrize("label", ["a", "x" * 100])
def test_marks_beyond_a_number_or_a_size_are_left_out_with_a_line(tmp_path: Path, label: str) -> None:
    path, said = tmp_path / "marks", list[str]()
    line = json.dumps([1.5, label]).encode() + b"\n"
    path.write_bytes(line * min(LARGEST_BYTES // len(line), MOST_MARKS))
    marks = Marks(path, said.append)
    full = len(marks.read())
    assert (full > 10_000, said) == (True, [])
    with path.open("ab") as file:
        file.write(line * 10)
    assert len(marks.read()) == full
    assert said == ["marks beyond the first 50,000 or 4 MB are left out"]
