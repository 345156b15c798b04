"""A test that hangs fails at its time limit, and leaves no process behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

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
