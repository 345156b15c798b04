"""Some hundred malformed inputs (``malformed_files.py`` runs any number), and whether what goes wrong is seen."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import malformed_files
import pytest
from malformed_files import Kind, Reader, complaint, results, users_kinds
from seeds import some_of

from opcost.errors import UserError

INPUTS = some_of(205, 100)
SCRIPT_EVERY = some_of(25, 12)
USERS_INPUTS = some_of(200, 40)


def test_malformed_inputs_end_in_a_reading_or_clear_lines(tmp_path: Path) -> None:
    found = list(results(INPUTS, seed=1, folder=tmp_path, script_every=SCRIPT_EVERY))
    assert [result for result in found if result.is_bug] == []
    # All of them in one way would say little.
    assert {result.found for result in found} >= {"read", "refused"}
    assert sum("script" in result.found for result in found) >= 3
    # Right checksums let changed cells through to those who read them.
    # More than half of the kinds are such; a third of 100 drawn inputs is four standard deviations below.
    assert 3 * sum(result.is_signed for result in found) > INPUTS
    assert {result.found for result in found if result.is_signed} == {"read", "refused"}


def test_what_users_write_ends_in_a_reading_or_clear_lines(tmp_path: Path) -> None:
    found = list(results(USERS_INPUTS, seed=1, folder=tmp_path, get_kinds=users_kinds))
    assert [result for result in found if result.is_bug] == []
    assert {result.found for result in found} == {"read", "refused"}
    assert {Path(result.file).name for result in found} == {kind.file for kind in users_kinds()}


# The harness


def unchanged(path: Path) -> None:
    assert path.exists()


def refuse(path: Path) -> None:
    raise UserError(f"{path}:1: not understood; fix the line")


def fail(path: Path) -> None:
    raise KeyError(path.name)


def end_the_process(path: Path) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def count_without_end(path: Path) -> None:
    while True:
        pass


def wait_without_end(path: Path) -> None:
    time.sleep(3600)


def take_memory(path: Path) -> None:
    assert b"x" * (malformed_files.MEMORY_MB * 2**20 + 2**24)


READINGS = [unchanged, refuse, fail, end_the_process, count_without_end, wait_without_end, take_memory, unchanged]
EXPECTED = ["read", "refused", "KeyError: ", "ended with -11", "over 2 s", "waits without end", "it took 3", "read"]


def staged() -> list[Kind]:
    return [Kind("x", (b"",), lambda content, _: content, read) for read in READINGS]


@pytest.fixture
def reader() -> Iterator[Reader]:
    # Imports again and again would take half a minute.
    reader = Reader(staged, is_forked=True)
    yield reader
    reader.end()


def test_what_goes_wrong_is_seen_and_the_next_input_is_read(
    tmp_path: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    for number, expected in enumerate(EXPECTED):
        is_waiting = READINGS[number] is wait_without_end
        monkeypatch.setattr(malformed_files, "WAITING_S", 0.5 if is_waiting else 60)
        assert expected in reader.read(number, path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{path}:1: wrong; fix it", None),
        ("{path}:1: wrong", "it has no remedy"),
        ("wrong; fix it", "it does not begin with the file"),
        ("{path}: wrong\n  in a frame; fix it", "not one line"),
        ("{path}: \x1b" + "x" * 2000 + "\n; fix it", None),
    ],
)
def test_lines_that_are_not_clear_are_reported(tmp_path: Path, line: str, expected: str | None) -> None:
    path = tmp_path / "x.yml"
    found = complaint(UserError(line.format(path=path)), str(path))
    assert found is None if expected is None else found is not None and found.startswith(expected)


@pytest.mark.parametrize("lines", [0, malformed_files.MOST_LINES + 1])
def test_too_many_lines_are_reported(tmp_path: Path, lines: int) -> None:
    error = UserError(*(f"{tmp_path}:{number}: wrong; fix it" for number in range(lines)))
    assert complaint(error, str(tmp_path)) == f"{lines} lines"
