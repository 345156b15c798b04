"""A command in a Python that has imported libraries does what it does in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python

LIBRARIES = ("json",)

PROGRAM = """
import atexit, os, sys
from pathlib import Path
import beside
atexit.register(print, "at exit")
print(__name__, sys.argv, beside.__file__, Path.cwd(), os.environ.get("SEEN"), repr(sys.stdin.read()))
print("to stderr", file=sys.stderr)
"""
ENDS = ["", "sys.exit()", "sys.exit(3)", "sys.exit('why')", "raise ValueError('bug')", "os.kill(os.getpid(), 9)"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("start", ["script", "-m", "-c"])
def test_a_command_prints_and_ends_as_in_a_process_of_its_own(tmp_path: Path, start: str, end: str) -> None:
    folder, library = tmp_path / "folder", tmp_path / "library"
    for path in (folder, library):
        path.mkdir()
        (path / "beside.py").touch()
    (folder / "program.py").write_text(PROGRAM + end)
    words = {"script": ["folder/program.py"], "-m": ["program"], "-c": ["-c", PROGRAM + end]}[start]
    command = [sys.executable, *(["-m"] if start == "-m" else []), *words, "an argument", "--option"]
    cwd = folder if start == "-m" else tmp_path
    environment = {**os.environ, "PYTHONPATH": str(library), "SEEN": "yes"}
    alone = subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    found = warm_python.run(command, cwd, environment, libraries=LIBRARIES)
    assert (found.returncode, found.stdout) == (alone.returncode, alone.stdout)
    assert "beside.py" in found.stdout or end.startswith("os.kill")
    assert [found.stderr.splitlines()[place] for place in (0, -1)] == [
        alone.stderr.splitlines()[place] for place in (0, -1)
    ]


def test_a_command_leaves_nothing_to_the_next_one() -> None:
    change = "import os, sys; os.chdir('/'); os.environ['LEFT'] = 'x'; import wave; sys.path.append('left')"
    look = "import os, sys; print(os.getcwd(), 'LEFT' in os.environ, 'wave' in sys.modules, 'left' in sys.path)"
    for program in (change, look):
        found = warm_python.run([sys.executable, "-c", program], libraries=LIBRARIES)
    assert found.stdout == f"{Path.cwd()} False False False\n"


def test_a_command_that_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        warm_python.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=1, libraries=LIBRARIES)


def test_torch_is_imported_only_where_it_is_wanted() -> None:
    look = [sys.executable, "-c", "import sys; print('torch' in sys.modules, 'opcost' in sys.modules)"]
    assert warm_python.run(look, libraries=warm_python.WITHOUT_TORCH).stdout == "False False\n"
