"""Users' files and modules are found and read without being executed; each mistake is one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opcost.errors import CannotBuildError, UserError
from opcost.operators.model_names import ModelName, UserCode
from opcost.storage.code_files import check_function, find_code, lacks_parameter


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


@pytest.mark.parametrize("name", ["~nobodyuser/x.py", "loop.py", "x" * 300 + ".py", "x/" * 1500 + "x.py"], ids=len)
def test_a_path_that_leads_nowhere_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    with pytest.raises(UserError, match=r"^[^\n]{3,500}: no such file; correct the path before the colon$"):
        code_of(tmp_path, f"{name}:build")


SPARSE = "a sparse file of 20 GB"


@pytest.mark.parametrize(
    "text",
    [
        SPARSE,
        "import " + "a." * 50_000 + "b\n",
        ("import " + "loop." * 290 + "b\n") * 200,
        "x=1\n" * 3_000_000,
        "x=1\n" * 39_000,
        "x\n" * 119_000,
        "x,\\\n" * 39_000,
        "".join(f"import m{number}\n" for number in range(59_000)),
        "from m import (" + ",".join(f"m{number}" for number in range(59_000)) + ")\n",
    ],
    ids=lambda text: f"{text[:12]!r}, {len(text)}",
)
def test_any_file_is_read_or_refused_within_five_seconds_and_300_mb(tmp_path: Path, text: str) -> None:
    """In a process of its own, whose memory is that of this file alone."""
    file = tmp_path / "net.py"
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "m").mkdir()
    file.write_text("" if text is SPARSE else text)
    if text is SPARSE:
        os.truncate(file, 20 * 2**30)
    program = f"""
import resource, sys, time
from pathlib import Path
from opcost.errors import CannotBuildError, UserError
from opcost.operators.model_names import ModelName
from opcost.storage.code_files import find_code
def used():
    return time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
begin_s, begin_mb = used()
try:
    find_code(ModelName.of("net.py:build"), Path({str(tmp_path)!r}))
except UserError as error:
    assert len(error.lines) == 1 and str(error).startswith({str(file)!r}), error
end_s, end_mb = used()
print(end_s - begin_s, end_mb - begin_mb)
assert end_s - begin_s < 5 and end_mb - begin_mb < 300
"""
    subprocess.run([sys.executable, "-c", program], check=True)


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


@pytest.mark.parametrize(
    ("text", "arguments", "mistake"),
    [
        ("def build(): ...", [], ""),
        ("def buld(): ...\ndef other(): ...", [], "build is not there; did you mean buld?"),
        ("def first(): ...\ndef other(): ...", [], "build is not there; the file has first, other"),
        ("x = 1", [], "build is not there; the file has no function"),
        # Names may come from these.
        *((text, [], "") for text in ("from layers import *", "globals()[name] = made", "def __getattr__(name): ...")),
        *((text, [], "") for text in ("setattr(here, 'b' + 'uild', f)", "if True:\n    build = partial(f, 3)")),
        *((text, [], "") for text in ("from layers import f as build", "for build in found: pass", "import build")),
        ("def build(width, depth=2): ...", ["depth"], ""),
        ("def build(width, **others): ...", ["height"], ""),
        (
            "def build(width, /, depth=[1, 'a']): ...",
            ["widht"],
            "unexpected keyword argument 'widht'; did you mean width?",
        ),
        ("def build(width, *, depth='a'): ...", ["size"], "argument 'size'; its arguments are width, depth='a'"),
        ("def build(): ...", ["size"], "got an unexpected keyword argument 'size'; its arguments are none"),
        # Python knows the arguments of these only when they run.
        ("@decorated\ndef build(): ...", ["size"], ""),
        ("class build:\n    def __init__(self): ...", ["size"], ""),
        ("build = other", ["size"], ""),
        ("def build(): ...\nbuild = decorated(build)", ["size"], ""),
        ("def build(width, width): ...", ["size"], ""),
    ],
)
def test_a_mistake_in_the_name_of_a_function_or_argument_is_found_in_the_text(
    tmp_path: Path, text: str, arguments: list[str], mistake: str
) -> None:
    (tmp_path / "net.py").write_text(text)
    (tmp_path / "layers.py").write_text("raise AssertionError")
    code = code_of(tmp_path, "net.py:build")
    if not mistake:
        check_function(code, arguments)
        return
    with pytest.raises(CannotBuildError) as found:
        check_function(code, arguments)
    assert mistake in str(found.value)
