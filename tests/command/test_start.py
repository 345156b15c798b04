"""The first moments of each program."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = [["-m", "opcost", "verify", "columns"], *([path.name, "--help"] for path in sorted(ROOT.glob("*.py")))]
SMALLEST_PIPE = 4096
FIRST, LAST = "opcost.errors", "opcost.command.options"
"""Modules that all programs import early, and late."""


def importing(program: list[str], module: str) -> subprocess.Popen[bytes]:
    """Start a program, and return when it has imported a module, which Python reports."""
    command = [sys.executable, "-X", "importtime", *program]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert process.stderr is not None
    # Python waits until its report is read, so that it does not end meanwhile.
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
    for line in process.stderr:
        if line.rpartition(b"|")[2].strip() == module.encode():
            return process
    raise AssertionError(f"{module} is not imported")


@pytest.mark.parametrize("program", PROGRAMS, ids=" ".join)
@pytest.mark.parametrize("module", [FIRST, LAST])
def test_an_interrupt_while_a_program_is_imported_shows_no_traceback(program: list[str], module: str) -> None:
    process = importing(program, module)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in {-signal.SIGINT, 128 + signal.SIGINT}, "a shell sees the same status for both"
    assert b"Traceback" not in errors


def test_a_program_in_the_background_is_not_interrupted() -> None:
    """A shell starts it with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = importing(PROGRAMS[0], FIRST)
    finally:
        signal.signal(signal.SIGINT, before)
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"time_s" in output


@pytest.mark.parametrize("words", ["show --top 1", "count resnet18 --meta --json", "profile net.py:build --allow-code"])
def test_a_working_folder_that_was_removed_is_one_line(words: str, tmp_path: Path) -> None:
    program = f"cd {tmp_path}; mkdir gone; cd gone; rmdir ../gone; exec {sys.executable} -m opcost {words}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPCOST_HOME": str(tmp_path)}
    done = subprocess.run(["sh", "-c", program], check=False, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == "error: the working folder has been removed; change to another one and run the command again\n"
    )


def test_a_name_of_two_lines_is_a_mistake_of_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "opcost", "sweep", "a\nb.py:build"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: a b.py:build: nothing to sweep over; ")
    assert done.stderr.count("\n") == 1
