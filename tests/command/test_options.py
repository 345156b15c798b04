"""The shared arguments, and how scripts end: real scripts in real processes."""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.command.option_types import MAXIMUM_S, device_name, positive_seconds, ratio
from opcost.command.options import (
    CACHE,
    COVERAGE_TARGET,
    DURATION,
    JSON,
    METER,
    PIPELINE,
    OneOf,
    Option,
    Parser,
    add_options,
    did_you_mean,
)
from opcost.command.program import SUBCOMMANDS, Subcommand
from opcost.command.run import EXTRAS
from opcost.invocation import command
from opcost.measuring.conditions import CACHES
from opcost.measuring.protocol import FULL_LOOP_S

ROOT = Path(__file__).parents[2]

PARSER = "parser = Parser()\nadd_options(parser, *PIPELINE)\n"
"""Part of a script's body: a parser of the options of all steps."""

SPACE_REMEDY = "while writing a file; free some space, or use folders on another disk"
LIMIT_REMEDY = "while writing a file; run 'ulimit -f unlimited', or use folders on another disk"

FULL = "os.dup2(os.open('/dev/full', os.O_WRONLY), 3)\n"
LIMITED = "import resource, tempfile\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
"""Parts of a script's body: descriptor 3 is a full disk; no file may have a byte, as after ``ulimit -f 0``."""


def write_script(folder: Path, body: str, before: str = "") -> list[str]:
    """Write a script with this body of ``main``, and code before it; return the command that runs it."""
    script = folder / "script.py"
    script.write_text(
        f"import errno, os, subprocess, sys, time\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from opcost.command.options import PIPELINE, Parser, add_options\nfrom opcost.command.run import run\n"
        f"from opcost.errors import UserError\n\n{textwrap.dedent(before)}\n"
        f"def main():\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n\nrun(main)\n"
    )
    return [sys.executable, str(script)]


def pipeline_parser(*more: Option | OneOf) -> Parser:
    """Return a parser of the options of all steps, and more."""
    parser = Parser()
    add_options(parser, *PIPELINE, *more)
    return parser


def run_script(folder: Path, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = write_script(folder, body)
    variables = os.environ | environment
    return subprocess.run(command, env=variables, check=False, capture_output=True, text=True, timeout=60)


def start_script(folder: Path, body: str) -> subprocess.Popen[str]:
    """Start a script, wait until its main has printed a line, and return it."""
    command = write_script(folder, body)
    # Tests that run under nohup would hand on that hangups are ignored.
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGHUP, hangup)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def run_before_closed_pipe(folder: Path, body: str, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script whose stdout is not read."""
    command = write_script(folder, "sys.stdin.readline()\n" + body)
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate("go on\n", timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, None, errors)


@pytest.mark.parametrize("status", [0, 1])
def test_a_script_exits_with_the_status_of_its_main(tmp_path: Path, status: int) -> None:
    result = run_script(tmp_path, f"print('done')\nreturn {status}")
    assert (result.returncode, result.stdout, result.stderr) == (status, "done\n", "")


MISTAKES = {
    "lines of its own": (
        "raise UserError('a.yml:3: first mistake', 'b.yml:1: second mistake')",
        "error: a.yml:3: first mistake\nerror: b.yml:1: second mistake\n",
    ),
    "characters that change the terminal": (
        r"raise UserError('\x1b[31ma\u202eb\udcff.yml:3: wrong\n  in line 4')",
        "error: \\x1b[31ma\\u202eb\\udcff.yml:3: wrong\n  in line 4\n",
    ),
    "a folder that cannot be written": (
        "open('FOLDER/file', 'w').close()\nopen('FOLDER/file/rows.csv', 'w')",
        "error: FOLDER/file/rows.csv: Not a directory; make it accessible, or choose another path\n",
    ),
    "a full disk at the end of a file": (
        f"{FULL}with open('/dev/full', 'w') as file: file.write('x')",
        f"error: no space left on device {SPACE_REMEDY}\n",
    ),
    "a full disk": (f"{FULL}os.write(3, b'x')", f"error: no space left on device {SPACE_REMEDY}\n"),
    "a disk on which no file can be made": (
        "raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'database/rows.csv')",
        f"error: no space left on device {SPACE_REMEDY}\n",
    ),
    "a used up quota": (
        "raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))",
        f"error: disk quota exceeded {SPACE_REMEDY}\n",
    ),
    "a file beyond the limit of sizes": (
        f"{LIMITED}with open('FOLDER/rows.csv', 'w') as file: file.write('x')",
        f"error: file too large {LIMIT_REMEDY}\n",
    ),
    "no folder for temporary files, as torch asks for it when it is imported": (
        f"{LIMITED}tempfile.gettempdir()",
        "error: no folder for temporary files can be written; make room in /tmp, or set TMPDIR to a folder with room\n",
    ),
}


@pytest.mark.parametrize(("body", "printed"), MISTAKES.values(), ids=MISTAKES)
def test_a_users_mistake_is_a_line_with_the_remedy_and_status_2(tmp_path: Path, body: str, printed: str) -> None:
    body, printed = (text.replace("FOLDER", str(tmp_path)) for text in (body, printed))
    result = run_script(tmp_path, body)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", printed)


def test_a_very_long_mistake_keeps_its_beginning_and_its_remedy(tmp_path: Path) -> None:
    result = run_script(tmp_path, "raise UserError('a.yml: ' + 10**6 * 'x' + '; write 1')")
    assert result.stderr.startswith("error: a.yml: xxx")
    assert result.stderr.endswith("xxx; write 1\n")
    assert len(result.stderr) < 1200


def test_a_wrong_option_is_printed_without_characters_that_change_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        Parser(prog="x").parse_args(["--\x1b[31m\n\u202e"])
    assert capsys.readouterr().err == "error: unrecognized arguments: --\\x1b[31m \\u202e; see x --help\n"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("return 1 // 0", "ZeroDivisionError"),
        ("open('no such file')", "FileNotFoundError"),
        ("import opcost.no_such_module", "ModuleNotFoundError"),
        ("import no_such_package", "ModuleNotFoundError"),
        ("reader, writer = os.pipe()\nos.close(reader)\nos.write(writer, b'x')", "BrokenPipeError"),
    ],
)
def test_a_bug_shows_its_traceback(tmp_path: Path, body: str, error: str) -> None:
    result = run_script(tmp_path, body)
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert error in result.stderr


@pytest.mark.parametrize(
    ("module", "requirement"),
    [("pydantic", "opcost"), *((name, f"'opcost[{extra}]'") for name, extra in EXTRAS.items())],
)
def test_a_missing_dependency_is_one_line_with_the_remedy(tmp_path: Path, module: str, requirement: str) -> None:
    result = run_script(tmp_path, f"sys.modules['{module}'] = None\nimport {module}")
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {module} is not installed for {sys.executable}; run ")
    assert result.stderr.endswith(f" -m pip install {requirement}\n")


def test_metadata_that_a_build_left_beside_the_script_do_not_hide_the_installed_package(tmp_path: Path) -> None:
    metadata = tmp_path / "opcost.egg-info"
    metadata.mkdir()
    (metadata / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: opcost\nVersion: 0.0.1\n")
    body = f"sys.path.insert(0, {str(tmp_path)!r})\nsys.modules['torch'] = None\nimport torch"
    result = run_script(tmp_path, body)
    assert result.stderr.endswith(" -m pip install 'opcost[torch]'\n")


def test_where_opcost_is_not_installed_the_remedy_is_make_install(tmp_path: Path) -> None:
    absent = "import importlib.metadata as metadata\nmetadata.MetadataPathFinder.find_distributions = lambda *_: []"
    result = run_script(tmp_path, f"{absent}\nsys.modules['torch'] = None\nimport torch")
    assert result.returncode == 2
    assert result.stderr.endswith("; run 'make install' and use .venv/bin/python\n")


@pytest.mark.parametrize("action", ["print('x')", "print('x', flush=True)", "print('x' * 1_000_000)", LIMITED])
def test_output_to_a_full_disk_or_beyond_the_limit_of_sizes_is_one_line(tmp_path: Path, action: str) -> None:
    command, is_limited = write_script(tmp_path, f"{action}\nprint('x')\nreturn 0"), action == LIMITED
    with open(tmp_path / "output" if is_limited else "/dev/full", "w") as output:
        result = subprocess.run(command, check=False, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60)
    problem = f"file too large {LIMIT_REMEDY}" if is_limited else f"no space left on device {SPACE_REMEDY}"
    assert (result.returncode, result.stderr) == (2, f"error: {problem}\n")


@pytest.mark.parametrize("encoding", ["ascii", "ascii:strict", "ascii:surrogateescape", "latin-1"])
def test_characters_that_the_terminal_lacks_are_replaced(tmp_path: Path, encoding: str) -> None:
    body = "print('3 \\u2248 3')\nprint('3 \\u2248 3', file=sys.stderr)\nraise UserError('\\u2248 3')"
    result = run_script(tmp_path, body, PYTHONIOENCODING=encoding)
    assert (result.returncode, result.stdout) == (2, "3 ? 3\n")
    assert result.stderr == "3 \\u2248 3\nerror: \\u2248 3\n"


def test_characters_that_the_terminal_has_are_kept(tmp_path: Path) -> None:
    body = "print('3 \\u00b1 1')\nraise UserError('3 \\u00b1 1')"
    result = run_script(tmp_path, body, PYTHONIOENCODING="utf-8")
    assert (result.stdout, result.stderr) == ("3 ± 1\n", "error: 3 ± 1\n")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_an_interrupted_script_cleans_up_and_says_how_to_go_on(tmp_path: Path, number: int, status: int) -> None:
    body = """
        try:
            print('started', flush=True)
            time.sleep(60)
        finally:
            print('cleaned up')
    """
    process = start_script(tmp_path, body)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (status, "cleaned up\n")
    assert errors == "interrupted; run the same command again to continue\n"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
@pytest.mark.parametrize(
    "module",
    [
        "weakref.finalize(Interrupted(), interrupt)",
        "class Owner:\n    field = Interrupted()",
        "try:\n    interrupt()\nexcept BaseException:\n    pass",
    ],
    ids=["a callback drops exceptions", "Python replaces exceptions", "a library drops exceptions"],
)
def test_no_interrupt_is_lost_in_an_import(tmp_path: Path, number: int, status: int, module: str) -> None:
    before = f"""
        import os, weakref

        def interrupt():
            os.kill(os.getpid(), {int(number)})

        class Interrupted:
            def __set_name__(self, owner, name):
                interrupt()
    """
    (tmp_path / "imported.py").write_text(f"{textwrap.dedent(before)}\n{module}\n")
    result = run_script(tmp_path, "import imported\nprint('main goes on')")
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr == "interrupted; run the same command again to continue\n"


SIGNALLING = """
    import atexit, io, logging, signal

    # A job in the background, or under nohup, inherits ignored signals.
    signal.signal({number}, signal.default_int_handler if {number} == signal.SIGINT else signal.SIG_DFL)

    class Signalling(io.TextIOWrapper):
        # Sends the program a signal whenever one of its methods is called.
        def __init__(self, stream, method):
            super().__init__(stream.buffer, errors="strict")
            def signalling(*arguments, **more):
                os.kill(os.getpid(), {number})
                return getattr(io.TextIOWrapper, method)(self, *arguments, **more)
            setattr(self, method, signalling)

    class SignallingHandler(logging.Handler):
        def emit(self, record):
            os.kill(os.getpid(), {number})
"""
"""Places from which a signal arrives at a known moment."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
@pytest.mark.parametrize(
    "body",
    [
        "sys.stdout = Signalling(sys.stdout, 'flush')",
        "logging.basicConfig(level=logging.INFO, handlers=[SignallingHandler()])",
        "atexit.register(os.kill, os.getpid(), {number})",
        "sys.stderr = Signalling(sys.stderr, 'write')\nraise UserError('a mistake')",
        "sys.stderr = Signalling(sys.stderr, 'write')\nos.kill(os.getpid(), {number})",
    ],
    ids=["while it flushes", "while it logs", "at exit", "while it prints an error", "while it prints of an interrupt"],
)
def test_a_signal_after_main_has_ended_ends_the_script_quietly(tmp_path: Path, number: int, body: str) -> None:
    command = write_script(tmp_path, f"{body.format(number=number)}\nreturn 0", SIGNALLING.format(number=number))
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (-number, "")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str)
def test_a_signal_before_main_is_an_interrupt(tmp_path: Path, number: int, status: int) -> None:
    before = SIGNALLING.format(number=number) + "    sys.stdout = Signalling(sys.stdout, 'reconfigure')\n"
    command = write_script(tmp_path, "print('main runs')\nreturn 0", before)
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr == "interrupted; run the same command again to continue\n"


def test_a_script_under_nohup_outlives_the_terminal(tmp_path: Path) -> None:
    command = write_script(tmp_path, "print('started', flush=True)\nsys.stdin.readline()\nreturn 0")
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    process.communicate("go on\n", timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("output", "unbuffered"),
    [
        *(("print('late')", unbuffered) for unbuffered in ("", "1")),
        *((output, "") for output in ("print('x' * 1_000_000)", "print('late', flush=True)")),
        (f"{PARSER}parser.print_help()", ""),
    ],
)
def test_output_that_is_not_read_ends_the_script_quietly(tmp_path: Path, output: str, unbuffered: str) -> None:
    result = run_before_closed_pipe(tmp_path, f"{output}\nreturn 0", unbuffered)
    assert (result.returncode, result.stderr) == (141, "")


def test_a_users_mistake_is_reported_even_if_the_output_is_not_read(tmp_path: Path) -> None:
    result = run_before_closed_pipe(tmp_path, "print('late')\nraise UserError('a mistake')")
    assert (result.returncode, result.stderr) == (2, "error: a mistake\n")


def test_a_wrong_argument_exits_with_status_2(tmp_path: Path) -> None:
    result = run_script(tmp_path, f"{PARSER}parser.parse_args(['--device', 'gpu'])")
    assert result.returncode == 2
    problem = "argument --device: 'gpu' is not a device; use cpu, cuda, or cuda:N such as cuda:0; did you mean cuda?"
    assert result.stderr == f"error: {problem}; see script.py --help\n"


@pytest.mark.parametrize(
    ("option", "question"),
    [
        ("--divice", "; did you mean --device?"),
        ("--jsn=1", "; did you mean --json?"),
        ("--zebra", ""),
        ("-x", ""),
        ("--dryrun", "; did you mean --dry-run?"),
        ("--data", "; did you mean --database?"),
        ("--gpu", ""),
        ("--reverse", ""),
        ("--model", ""),
        ("--divice --json", "; did you mean --device?"),
    ],
)
def test_an_unknown_option_is_reported_in_one_line_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str], option: str, question: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        pipeline_parser().parse_args(option.split())
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: unrecognized arguments: {option.split(maxsplit=1)[0]}{question}; see ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(("choice", "question"), [("wram", "; did you mean warm?"), ("tepid", "")])
def test_an_unknown_choice_is_reported_in_one_line_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str], choice: str, question: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        pipeline_parser(CACHE).parse_args(["--cache", choice])
    problem = f"argument --cache: invalid choice: '{choice}'{question} (choose from warm, cold); see "
    assert capsys.readouterr().err.startswith(f"error: {problem}")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--format", ""),
        ("--output", ""),
        ("--time", ""),
        ("--limit", ""),
        ("--seconds", ""),
        ("--sorted", "--sort"),
        ("--exec", "--execution"),
        ("--devise", "--device"),
    ],
)
def test_only_misspelled_options_get_a_suggestion(word: str, meant: str) -> None:
    options = ["--sort", "--top", "--device", "--execution", "--why", "--json", "--csv", "--home", "--database"]
    assert did_you_mean(word, options) == (f"; did you mean {meant}?" if meant else "")


def test_a_mistyped_subcommand_gets_a_suggestion() -> None:
    command = [sys.executable, "-m", "opcost", "chek"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "'chek'; did you mean check? (choose from " in result.stderr


def test_a_positional_argument_too_many_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser()
    add_options(parser, JSON)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["json"])
    assert "did you mean" not in capsys.readouterr().err


def test_help_says_that_a_missed_coverage_target_is_an_exit_status() -> None:
    text = " ".join(pipeline_parser(COVERAGE_TARGET).format_help().split())
    assert "the exit status is 1 if a model misses the target" in text


def test_without_arguments_everything_has_its_default() -> None:
    arguments = pipeline_parser().parse_args([])
    assert vars(arguments) == {
        "names": [],
        "device": None,
        "home": None,
        "measurements": None,
        "database": None,
        "dry_run": False,
        "same_board": False,
        "allow_code": False,
        "json": False,
        "verbose": False,
    }


def test_arguments_arrive_as_values() -> None:
    line = "resnet* vgg16 --device cuda:1 --measurements a/m --database /d --dry-run --json --verbose"
    given = vars(pipeline_parser().parse_args(line.split()))
    assert given == vars(pipeline_parser().parse_args([])) | {
        "names": ["resnet*", "vgg16"],
        "device": "cuda:1",
        "measurements": Path("a/m"),
        "database": Path("/d"),
        "dry_run": True,
        "json": True,
        "verbose": True,
    }


def test_a_command_without_dry_run_refuses_it_and_all_of_its_work_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser()
    add_options(parser, JSON)
    arguments = parser.parse_args([])
    assert (arguments.dry_run, arguments.same_board) == (False, False)
    with pytest.raises(SystemExit):
        parser.parse_args(["--dry-run"])
    assert "--dry-run" in capsys.readouterr().err


def test_an_option_that_a_subcommand_lacks_is_reported_with_that_of_its_own_that_was_meant() -> None:
    words = [sys.executable, "-m", "opcost", "verify", "coverage", "--mta"]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    message = f"error: unrecognized arguments: --mta; did you mean --meta?; see {command('verify coverage')} --help\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", message)


def test_a_shortened_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        pipeline_parser().parse_args(["--dry"])
    assert "--dry" in capsys.readouterr().err


def test_help_ends_with_the_examples_as_they_can_be_pasted() -> None:
    shown = Subcommand("filter", "keep 100 % of it", "a 'b*'", "measure.filter", (JSON,), before=(("count", "a"),))
    text = shown.parser().format_help()
    assert "Keep 100 % of it." in text
    assert text.endswith(f"example:\n  {command('count')} a\n  {command('filter')} a 'b*'\n")


@pytest.mark.parametrize("option", ["--measurements", "--database"])
def test_a_file_is_no_folder(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "table.csv"
    file.write_text("")
    with pytest.raises(SystemExit, match="2"):
        pipeline_parser().parse_args([option, str(file)])
    assert f"{file} is a file; name a folder" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        pipeline_parser().parse_args([option, ""])
    assert "'' is not the name of a folder" in capsys.readouterr().err
    assert pipeline_parser().parse_args([option, str(tmp_path / "new")])


@pytest.mark.parametrize("subcommand", SUBCOMMANDS, ids=lambda subcommand: subcommand.name)
def test_a_tilde_is_the_home_in_all_options_that_are_paths(
    subcommand: Subcommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for action in subcommand.parser()._actions:
        if action.metavar in ("FILE", "DIR", "FILE.html", "INTO", "DATABASE"):
            assert callable(action.type)
            assert action.type("~/new.html") == tmp_path / "new.html"
            with pytest.raises(argparse.ArgumentTypeError, match="no home of ~nobodyuser is known"):
                action.type("~nobodyuser/new.html")


def test_a_meter_goes_by_its_short_name(capsys: pytest.CaptureFixture[str]) -> None:
    parser = pipeline_parser(METER)
    assert parser.parse_args([]).meter == "auto"
    assert parser.parse_args(["--meter", "counter"]).meter == "counter"
    with pytest.raises(SystemExit):
        parser.parse_args(["--meter", "NVML"])
    error = capsys.readouterr().err
    assert all(name in error for name in ("auto", "samples", "counter", "instant", "average", "rapl"))


def test_the_default_loop_is_that_of_the_full_protocol() -> None:
    parser = pipeline_parser(DURATION)
    assert parser.parse_args([]).seconds == FULL_LOOP_S
    assert parser.parse_args(["--seconds", "3"]).seconds == 3.0
    assert parser.parse_args([]).relative_error is None
    assert parser.parse_args(["--relative-error", "0.01"]).relative_error == 0.01
    with pytest.raises(SystemExit):
        parser.parse_args(["--relative-error", "0.01", "--seconds", "3"])


def test_operators_are_warm_unless_another_cache_is_named() -> None:
    parser = pipeline_parser(CACHE)
    assert parser.parse_args([]).cache == "warm"
    assert [parser.parse_args(["--cache", mode]).cache for mode in CACHES] == ["warm", "cold"]


@pytest.mark.parametrize("text", ["0", "1", "-0.1", "1%", "nan", "inf", ""])
def test_other_texts_are_no_relative_errors(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"use a number between 0 and 1, such as 0\.01"):
        ratio(text)


@pytest.mark.parametrize("text", ["cpu", "cuda", "cuda:0", "cuda:10"])
def test_devices_are_taken_as_they_stand(text: str) -> None:
    assert device_name(text) == text


@pytest.mark.parametrize(
    "text", ["", "gpu", "CUDA", "cuda:", "cuda:01", "cuda:-1", "cuda:٣", "cpu:0", "cuda:0\n", " cpu"]
)
def test_what_is_no_device_is_refused_with_the_right_forms(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="cpu, cuda, or cuda:N"):
        device_name(text)


@given(st.floats(min_value=0, exclude_min=True, max_value=MAXIMUM_S))
def test_positive_numbers_up_to_a_day_are_seconds(time_s: float) -> None:
    assert positive_seconds(repr(time_s)) == time_s


@given(
    st.floats(max_value=0).map(repr)
    | st.floats(min_value=MAXIMUM_S, exclude_min=True).map(repr)
    | st.sampled_from(["nan", "inf", "1e308", "1e999", "30s", "", "1,5", "half"])
)
def test_what_is_no_positive_number_up_to_a_day_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"above 0 and up to 86400 \(one day\)"):
        positive_seconds(text)


def test_a_day_is_the_longest_time() -> None:
    assert positive_seconds("86400") == MAXIMUM_S
    with pytest.raises(argparse.ArgumentTypeError):
        positive_seconds(repr(math.nextafter(86400, math.inf)))
