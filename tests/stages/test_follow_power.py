"""opcost power -- COMMAND: a program is followed on a library that plays NVML, and on a machine without a meter."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nvml_stage
import pytest
from nvidia_smi_stage import NvidiaSmiStage

from opcost.running.marks import Mark
from opcost.stages.follow_power import Parts

ROOT = Path(__file__).parents[2]

TRAINING = """
import sys, time, opcost
for epoch in range(2):
    opcost.mark(f"epoch {epoch}")
    time.sleep(0.5)
sys.exit(7)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_stage.build(tmp_path_factory.mktemp("nvml") / "library", ())


def start(folder: Path, *arguments: str, library: Path | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(library or "")}
    command = [sys.executable, "-m", "opcost", "power", "--output", "run.csv", *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)  # type: ignore[call-overload, no-any-return]


def run(folder: Path, *arguments: str, library: Path | None = None) -> tuple[int, str, str]:
    with start(folder, *arguments, library=library) as process:
        output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def rows_in(folder: Path) -> list[dict[str, str]]:
    with (folder / "run.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_command_is_followed_with_its_marks_and_its_status(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = NvidiaSmiStage(tmp_path / "stage", monkeypatch)
    (tmp_path / "train.py").write_text(TRAINING)
    python = [sys.executable, "train.py"]
    status, output, errors = run(
        tmp_path, "--interval", "0.2", "--json", "--figure", "run.svg", "--", *python, library=library
    )
    assert status == 7, errors
    report = json.loads(output)
    assert (report["exit_status"], report["rows"]) == (7, len(rows_in(tmp_path)))
    assert [part["label"] for part in report["parts"]] == ["epoch 0", "epoch 1"]
    for window in (report["run"], *report["parts"]):
        (device,) = [device for device in window["devices"] if device["device"] == "cuda:0"]
        assert device["energy_j"] == pytest.approx(400.0 * window["duration_s"], rel=0.03)
    assert report["run"]["duration_s"] >= sum(part["duration_s"] for part in report["parts"])
    assert "epoch 0: " in errors
    rows = rows_in(tmp_path)
    assert {row["device"] for row in rows} == {"cuda:0"}
    assert {row["sm_clock_hz"] for row in rows} == {"1980000000"}
    assert {"epoch 0", "epoch 1"} <= {row["mark"] for row in rows}
    assert all(0 <= float(row["cpu_load_ratio"]) <= 1 for row in rows if row["cpu_load_ratio"])
    assert "epoch 1" in (tmp_path / "run.svg").read_text()
    assert stage.living() == [], "nvidia-smi was left behind"


def test_without_a_meter_the_program_runs_and_one_line_says_why(tmp_path: Path) -> None:
    if "no RAPL energy counter" not in run(tmp_path, "--", "true")[2]:
        pytest.skip("this CPU has a meter")
    (tmp_path / "run.csv").unlink()
    status, output, errors = run(tmp_path, "--", sys.executable, "-c", "print('trained')")
    assert (status, output) == (0, "trained\n")
    assert [line for line in errors.splitlines() if "no energy is metered: NVML: " in line]
    (row, *_) = rows_in(tmp_path)
    assert (row["device"], row["power_average_w"]) == ("cpu", "")
    assert int(row["host_memory_used_bytes"]) > 0


WORK = "sleep 1; echo trained; exit 7"
FUTURE = """python3 -c 'import time; print([time.time(), "a"]); print([9e9, "z"])' | tr "'" '"' >> $OPCOST_MARKS"""


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("""printf '[1%0400d, "x"]\\n' 0 >> $OPCOST_MARKS""", "a line of the marks is no mark"),
        ("""printf '%200000s' '' | tr ' ' '[' >> $OPCOST_MARKS""", "a line of the marks is no mark"),
        ("""echo '[-Infinity, "n"]' >> $OPCOST_MARKS""", "a line of the marks is no mark"),
        ("""echo '[1e300, "n"]' >> $OPCOST_MARKS""", "a line of the marks is no mark"),
        ("rm $OPCOST_MARKS; mkfifo $OPCOST_MARKS", "the file of marks was replaced by what is no file"),
        ("ln -sf /dev/zero $OPCOST_MARKS", "the file of marks was replaced by what is no file"),
        ("ln -sf /dev/tty $OPCOST_MARKS", ""),
        ("rm $OPCOST_MARKS; truncate -s 20G $OPCOST_MARKS", "marks beyond the first 50,000 or 4 MB are left out"),
        ("rm -r $(dirname $OPCOST_MARKS); touch $(dirname $OPCOST_MARKS)", ""),
        (FUTURE, ""),
    ],
)
def test_no_marks_end_the_program_or_its_following(tmp_path: Path, fault: str, line: str) -> None:
    status, output, errors = run(tmp_path, "--interval", "0.2", "--json", "--", "sh", "-c", f"{fault}; {WORK}")
    assert (status, output.splitlines()[0]) == (7, "trained"), errors
    parts = [part["label"] for part in json.loads(output.partition("\n")[2])["parts"]]
    # A mark of the future does not end the part before.
    assert parts == (["a"] if fault == FUTURE else [])
    assert "Traceback" not in errors
    assert errors.count("the program runs on") == bool(line)
    assert line in errors


def test_a_program_goes_on_where_its_log_has_no_room(tmp_path: Path) -> None:
    code = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY));"
        "sys.argv = ['opcost', *sys.argv[1:]]; runpy.run_module('opcost', run_name='__main__')"
    )
    arguments = ["power", "--output", "run.csv", "--interval", "0.05", "--json", "--figure", "run.svg"]
    program = [sys.executable, "-c", code, *arguments, "--", "sh", "-c", WORK]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 7, result.stderr
    assert "the log run.csv ends: File too large; the program runs on" in result.stderr
    assert json.loads(result.stdout.partition("\n")[2])["run"]["duration_s"] > 0.9
    assert "Traceback" not in result.stderr


ENDS_WITH_85 = "import signal; signal.signal(signal.SIGUSR1, lambda *_: (time.sleep(0.5), sys.exit(85)))"


@pytest.mark.parametrize(
    ("number", "setup", "status"),
    [(signal.SIGINT, "", 128 + signal.SIGINT), (signal.SIGUSR1, ENDS_WITH_85, 85)],
    ids=["Ctrl-C", "of a batch system"],
)
def test_a_signal_reaches_the_command_and_the_summary_comes(
    tmp_path: Path, number: signal.Signals, setup: str, status: int
) -> None:
    program = f"import sys, time\n{setup}\nprint('running', flush=True)\ntime.sleep(30)"
    with start(tmp_path, "--", sys.executable, "-c", program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == status
    assert "run.csv: " in errors


def test_options_after_the_dashes_are_the_commands_and_a_signal_that_ends_it_gives_a_shells_status(
    tmp_path: Path,
) -> None:
    program = "import os, sys; print(sys.argv[1:], flush=True); os.kill(os.getpid(), 9)"
    status, output, _ = run(tmp_path, "--", sys.executable, "-c", program, "--json", "-x", "--output", "y")
    assert (status, output) == (128 + signal.SIGKILL, "['--json', '-x', '--output', 'y']\n")


def test_a_process_is_followed_until_it_ends(tmp_path: Path) -> None:
    # Python starts before the process ends, on a busy machine, too.
    with subprocess.Popen(["sleep", "4"]) as sleeping:
        status, output, _ = run(tmp_path, "--interval", "0.2", "--json", "--pid", str(sleeping.pid))
    report = json.loads(output)
    assert (status, report["exit_status"]) == (0, None)
    assert report["run"]["duration_s"] < 6
    assert report["rows"] >= 2


def test_following_a_process_ends_with_ctrl_c_and_the_process_does_not(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "30"]) as sleeping:
        with start(tmp_path, "--interval", "0.1", "--pid", str(sleeping.pid)) as process:
            deadline_s = time.monotonic() + 20
            while not (tmp_path / "run.csv").exists() or len(rows_in(tmp_path)) < 2:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20)
        assert (process.returncode, sleeping.poll()) == (0, None)
        sleeping.kill()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--", "no-such-command"), "no-such-command: no such program"),
        (("--pid", "999999999"), "--pid 999999999: there is no such process"),
        (("--pid", "1", "--", "true"), "one program is followed"),
        (("--seconds", "3", "--", "true"), "leave --seconds"),
        (("--figure", "run.gif", "--", "true"), "--figure run.gif"),
        (("--figure", "run.png"), "add -- COMMAND"),
        (("--device", "cuda:0", "--", "true"), "no device cuda:0"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    status, _, errors = run(tmp_path, *arguments)
    assert status == 2
    (line,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert problem in line
    assert not (tmp_path / "run.csv").exists()


def test_parts_are_those_between_marks_whenever_these_come() -> None:
    first, second, third = Mark(1.0, "a"), Mark(2.0, "b"), Mark(2.0, "c")
    parts = Parts(())
    parts.settle([first, second, third], 2.5)
    # One of before comes late; one of the future begins no part.
    parts.settle([first, Mark(1.5, "late"), second, third], 2.5)
    later = [first, Mark(1.5, "late"), second, third, Mark(4.0, "d")]
    parts.settle([*later, Mark(5.0, "")], 5.0)
    assert [(part.label, part.begin_s, part.duration_s) for part in parts.results] == [
        *[("a", 1.0, 1.0), ("b", 2.0, 0.0)],
        *[("c", 2.0, 2.0), ("d", 4.0, 1.0)],
    ]
