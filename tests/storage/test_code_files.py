"""Users' files and modules are found and read without being executed; each mistake is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcost.errors import UserError
from opcost.operators.model_names import ModelName
from opcost.operators.user_code import UserCode
from opcost.storage.code_files import find_code, lacks_parameter


def code_of(folder: Path, name: str) -> UserCode:
    return find_code(ModelName.of(name), folder)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("", "missing.py:build", "{folder}/missing.py: no such file; correct the path before the colon"),
        ("", "net.py:", "'' is no name of a function; write FILE:FUNCTION, such as net.py:build"),
        ("", "net.py:a-b", "'a-b' is no name of a function; write FILE:FUNCTION, such as net.py:build"),
        ("x = 1\ndef build(:\n", "net.py:build", "{folder}/net.py:2: invalid syntax; fix the file"),
        ("import layers\n", "net.py:build", "{folder}/layers.py:1: invalid syntax; fix the file"),
        ("x\0", "net.py:build", None),
        ("x = " + "-" * 100_000 + "1", "net.py:build", None),
        ("\xff", "net.py:build", None),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, text: str, name: str, expected: str | None) -> None:
    (tmp_path / "net.py").write_bytes(text.encode("latin-1"))
    (tmp_path / "layers.py").write_text("def f(:\n")
    with pytest.raises(UserError) as caught:
        code_of(tmp_path, name)
    (line,) = caught.value.lines
    assert len(line.splitlines()) == 1
    if expected is None:
        assert str(tmp_path / "net.py") in line
        assert ";" in line
    else:
        assert line == expected.format(folder=tmp_path)


def test_a_module_that_is_nowhere_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UserError,
        match=r"no module nowhere\.net in .*; correct it, run the command in the folder that has nowhere, or add it to",
    ):
        code_of(tmp_path, "nowhere.net:build")


def test_a_name_with_dots_is_looked_for_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "net.v2.py").write_text("")
    assert code_of(tmp_path, "net.v2.py:build").path == f"{tmp_path}/net.v2.py"


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("def build(): ...", True),
        ("def build(width, *, depth): ...", True),
        ("def build(size=8): ...", False),
        ("def build(*, size): ...", False),
        ("def build(**arguments): ...", False),
        ("from layers import build", False),
        ("if True:\n    def build(): ...", False),
        ("def build(): ...\ndef build(size): ...", False),
    ],
)
def test_a_missing_parameter_is_found_without_running_the_file(tmp_path: Path, text: str, lacks: bool) -> None:
    (tmp_path / "net.py").write_text(text)
    (tmp_path / "layers.py").write_text("raise AssertionError")
    assert lacks_parameter(code_of(tmp_path, "net.py:build"), "size") == lacks
