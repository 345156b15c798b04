"""The log of a run: what is on stderr and what in a file, how a run ended, and what no log may contain."""

import fcntl
import getpass
import io
import logging
import os
import platform
import re
import signal
import subprocess
import sys
import textwrap
from datetime import datetime, timezone
from pathlib import Path

import pytest

from opcost.command.run import KEPT, RUN_LOGS, Names, log_run
from opcost.reporting.progress_lines import PlainProgress

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (INFO|WARNING) ([\w.]+): (.*)")


def run_script(
    folder: Path, body: str, verbose: bool = False, wait_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script with this body of ``main`` whose database is in a folder; interrupt it as soon as it prints."""
    script = folder / "script.py"
    script.write_text(
        f"import logging, resource, signal, sys, time\nfrom pathlib import Path\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from opcost.command.run import run\nfrom opcost.command.run import log_run\n"
        "from opcost.errors import UserError\n\n"
        f"def main():\n    log_run({verbose}, Path({str(folder / 'database')!r}))\n"
        f"{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n\nrun(main)\n"
    )
    command = [sys.executable, str(script), "--seconds", "3 s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        if wait_s is not None:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def logged(folder: Path) -> str:
    (path,) = (folder / "database" / RUN_LOGS).iterdir()
    return path.read_text()


def test_a_log_has_times_in_utc_the_command_all_messages_and_the_end(tmp_path: Path) -> None:
    begin = datetime.now(timezone.utc)
    body = "logging.getLogger('a.b').info('seen')\nlogging.getLogger('c').warning('careful')\nprint('done')\nreturn 1"
    result = run_script(tmp_path, body)
    assert (result.returncode, result.stdout, result.stderr) == (1, "done\n", "careful\n")
    lines = [LINE.fullmatch(line) for line in logged(tmp_path).splitlines()]
    assert [line and line.groups()[1:] for line in lines] == [
        ("INFO", "opcost.command.run", "begins: python script.py --seconds '3 s'"),
        ("INFO", "a.b", "seen"),
        ("WARNING", "c", "careful"),
        ("INFO", "opcost.command.run", "ended with status 1"),
    ]
    for line in lines:
        assert line is not None
        assert abs((datetime.fromisoformat(line[1].replace("Z", "+00:00")) - begin).total_seconds()) < 60
    (path,) = (tmp_path / "database" / RUN_LOGS).iterdir()
    assert re.fullmatch(r"\d{8}T\d{6}Z-script\.log", path.name)


@pytest.mark.parametrize("verbose", [False, True])
def test_a_users_mistake_is_one_line_and_the_traceback_is_in_the_log(tmp_path: Path, verbose: bool) -> None:
    result = run_script(tmp_path, "raise UserError('no such model')", verbose)
    assert result.returncode == 2
    assert "error: no such model\n" in result.stderr.splitlines(keepends=True)
    assert (result.stderr.count("\n") > 1) == ("Traceback" in result.stderr) == verbose
    assert "Traceback" in logged(tmp_path)
    assert logged(tmp_path).rstrip().endswith("ended with status 2")


def test_a_bug_shows_its_traceback_once_and_it_is_in_the_log(tmp_path: Path) -> None:
    result = run_script(tmp_path, "return 1 // 0", verbose=True)
    assert result.returncode == 1
    assert result.stderr.count("Traceback") == 1
    assert "ended by a bug" in logged(tmp_path)
    assert logged(tmp_path).rstrip().endswith("ZeroDivisionError: integer division or modulo by zero")


def test_messages_have_no_characters_that_change_the_terminal(tmp_path: Path) -> None:
    result = run_script(tmp_path, r"logging.getLogger('c').warning('a\x1b[31mb\u202e\n  c')")
    assert result.stderr == "a\\x1b[31mb\\u202e\n  c\n"
    assert "WARNING c: a\\x1b[31mb\\u202e\n  c\n" in logged(tmp_path)


def test_an_interrupt_is_reported_with_the_place_where_it_came(tmp_path: Path) -> None:
    result = run_script(tmp_path, "print('started', flush=True)\ntime.sleep(60)", wait_s=0.0)
    assert (result.returncode, result.stderr) == (130, "interrupted; run the same command again to continue\n")
    # Right behind the print, or in the sleep.
    assert "KeyboardInterrupt" in logged(tmp_path)
    assert 'script.py", line' in logged(tmp_path)
    assert logged(tmp_path).rstrip().endswith("ended with status 130")


def test_verbose_prints_on_stderr_what_is_not_shown_there_anyway(tmp_path: Path) -> None:
    body = """
        from opcost.reporting.progress_lines import progress_on_stderr
        progress = progress_on_stderr()
        progress.start(1)
        progress.begin("ReLU")
        progress.finish("1 ms")
        return 0
    """
    result = run_script(tmp_path, body, verbose=True)
    assert result.stderr.splitlines() == [
        "INFO opcost.command.run: begins: python script.py --seconds '3 s'",
        "INFO opcost.reporting.progress_lines: next: ReLU",
        "[1/1] ReLU: 1 ms",
        "INFO opcost.command.run: ended with status 0",
    ]
    assert "INFO opcost.reporting.progress_lines: ReLU: 1 ms\n" in logged(tmp_path)


def test_a_full_disk_costs_lines_of_the_log_only(tmp_path: Path) -> None:
    body = """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))
        for _ in range(100):
            logging.getLogger("a").info("a line that does not fit")
        return 0
    """
    result = run_script(tmp_path, body)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(logged(tmp_path)) == 300


def test_without_a_database_and_verbose_nothing_changes() -> None:
    root = logging.getLogger()
    before = list(root.handlers), root.level
    log_run(verbose=False)
    assert (root.handlers, root.level) == before


def test_the_last_logs_of_a_script_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["a/measure.py"])
    folder = tmp_path / RUN_LOGS
    folder.mkdir()
    for number in range(KEPT + 5):
        (folder / f"20250101T0000{number:02}Z-measure.log").write_text("old")
    others = ["20240101T000000Z-compare.log", "20240101T000000Z-re-measure.log", "notes.txt"]
    for name in others:
        (folder / name).write_text("of another script, or somebody's own")
    for _ in range(3):
        # In the same second, or nearly so.
        log_run(False, tmp_path)
    names = {path.name for path in folder.iterdir()}
    own = sorted(names - set(others))
    assert names >= set(others)
    assert len(own) == KEPT
    assert own[0] == "20250101T000008Z-measure.log"
    assert sum(not name.startswith("2025") for name in own) == 3
    assert len({name for name in own if "-measure-2.log" in name or "-measure-3.log" in name}) >= 1


HERE = Names("/home/ada", "ada", "gpu-box")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('File "/home/ada/opcost/x.py", line 3', 'File "~/opcost/x.py", line 3'),
        ("/home/ada: no such folder", "~: no such folder"),
        ("/home/adam/x", "/home/adam/x"),
        ("/scratch/ada/database", "/scratch/<user>/database"),
        ("/scratch/ada.csv", "/scratch/ada.csv"),
        ("from gpu-box.example.org: busy", "from <host>.example.org: busy"),
        ("gpu-boxes adagrad", "gpu-boxes adagrad"),
    ],
)
def test_no_log_names_host_or_user(text: str, expected: str) -> None:
    assert HERE.hidden_in(text) == expected
    assert Names("/", "", "").hidden_in(text) == text, "where nothing is known, nothing is hidden"


def test_names_are_those_of_this_program_if_it_has_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("LOGNAME", "ada")
    assert Names.here() == Names("/home/ada", "ada", platform.node())

    def no_user() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", no_user)
    assert Names.here().user == ""


def test_progress_is_logged_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    with caplog.at_level(logging.INFO):
        progress.start(2, [1.0, 1.0])
        for end in (progress.finish, progress.fail):
            progress.begin("ReLU")
            end("so")
        progress.end()
        progress.start(1, workers=2)
        progress.begin("ReLU", "cuda:1")
        progress.finish("so", "cuda:1")
    messages = [record.getMessage() for record in caplog.records]
    one_worker = ["next: ReLU", "ReLU: so", "next: ReLU", "ReLU: failed: so"]
    assert messages == [*one_worker, "next: cuda:1  ReLU", "cuda:1  ReLU: so"]
    assert len(stream.getvalue().splitlines()) == 3


# The first moments of each program


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
    assert done.stderr.startswith("error: MODEL: a b.py:build is Python code; ")
    assert done.stderr.count("\n") == 1
