"""A command in a Python that has imported libraries does what it does in a process of its own."""

import os
import re
import subprocess
import sys
import time
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


# ``--no-skips``: before a release nothing may be missing that a test needs, but a GPU


TESTS = Path(__file__).parent
NO_PROGRAM = 'def test_it():\n    pytest.skip("missing")\n'
NO_LIBRARY = 'pytest.importorskip("missing")\n'
NO_GPU = '@pytest.mark.gpu\n@pytest.mark.skip(reason="missing")\ndef test_it():\n    assert 0\n'


TESTS_BY_NAME = {"test_program": NO_PROGRAM, "test_library": NO_LIBRARY, "test_gpu": NO_GPU}


@pytest.mark.parametrize(
    ("options", "expected"), [([], {"skipped": 3}), (["--no-skips"], {"skipped": 1, "failed": 1, "error": 1})]
)
def test_what_is_missing_fails_its_test_before_a_release(
    tmp_path: Path, options: list[str], expected: dict[str, int]
) -> None:
    for name, body in TESTS_BY_NAME.items():
        (tmp_path / f"{name}.py").write_text(f"import pytest\n\n{body}")
    flags = ["-ra", "-p", "conftest", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    command = [sys.executable, "-m", "pytest", *flags, *options, str(tmp_path)]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    *_, outcomes = result.stdout.splitlines()
    found = re.findall(r"(\d+) (skipped|passed|failed|error)", outcomes)
    assert {kind: int(number) for number, kind in found} == expected, result.stdout


# A test that hangs fails at its time limit, and leaves no process behind


ROOT = Path(__file__).parents[1]
WAITS_FOR_A_CHILD = """
import subprocess, sys
from pathlib import Path

def test_it(tmp_path):
    program = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True)"
    with subprocess.Popen([sys.executable, "-c", f"{program}; time.sleep(1000)"], stdout=subprocess.PIPE) as child:
        Path("pid").write_bytes(child.stdout.readline())
"""


def test_a_test_that_waits_for_a_child_fails_and_leaves_none(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(WAITS_FOR_A_CHILD)
    options = ["-p", "conftest", "-p", "no:cacheprovider", "-c", f"{ROOT}/pyproject.toml", "-n1", "--timeout=5"]
    command = [sys.executable, "-m", "pytest", *options, "--max-worker-restart=0", str(test)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, "crashed while running '::test_it'" in result.stdout) == (1, True), result.stdout
    child = Path("/proc", (tmp_path / "pid").read_text().strip())
    deadline = time.monotonic() + 20
    while child.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not child.exists()
