"""The shared arguments, and how scripts end: real scripts in real processes."""

import argparse
import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.__main__ import main
from opcost.command.option_types import MAXIMUM_S, device_name, positive_seconds, ratio
from opcost.command.options import (
    CACHE,
    DURATION,
    JSON,
    JSON_OR_CSV,
    METER,
    PIPELINE,
    OneOf,
    Option,
    Parser,
    add_options,
    did_you_mean,
)
from opcost.command.program import SUBCOMMANDS, Subcommand
from opcost.command.run import EXTRAS, complain
from opcost.errors import UserError
from opcost.invocation import command

ROOT = Path(__file__).parents[2]

PARSER = "parser = Parser()\nadd_options(parser, *PIPELINE)\n"
"""Part of a script's body: a parser of the options of all steps."""

SPACE_REMEDY = "while writing a file; free some space, or use folders on another disk"
LIMIT_REMEDY = "while writing a file; run 'ulimit -f unlimited', or use folders on another disk"

INTERRUPTS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
INTERRUPTED = "interrupted; run the same command again to continue\n"

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
    "such characters in an option": (
        r"Parser(prog='x').parse_args(['--\x1b[31m\n\u202e'])",
        "error: unrecognized arguments: --\\x1b[31m \\u202e; see x --help\n",
    ),
    "a wrong argument": (
        f"{PARSER}parser.parse_args(['--device', 'gpu'])",
        "error: argument --device: 'gpu' is not a device; use cpu, cuda, or cuda:N such as cuda:0; did you mean cuda?; "
        "see script.py --help\n",
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


@pytest.mark.parametrize("encoding", ["ascii", "ascii:strict", "ascii:surrogateescape", "latin-1", "utf-8"])
def test_characters_that_the_terminal_lacks_are_replaced_and_others_kept(tmp_path: Path, encoding: str) -> None:
    body = "print('3 \\u2248 3')\nprint('3 \\u2248 3', file=sys.stderr)\nraise UserError('\\u2248 3')"
    result = run_script(tmp_path, body, PYTHONIOENCODING=encoding)
    shown, written = ("≈", "≈") if encoding == "utf-8" else ("?", "\\u2248")
    assert (result.returncode, result.stdout) == (2, f"3 {shown} 3\n")
    assert result.stderr == f"3 {written} 3\nerror: {written} 3\n"


@pytest.mark.parametrize(("number", "status"), INTERRUPTS, ids=str)
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
    assert errors == INTERRUPTED


@pytest.mark.parametrize(("number", "status"), INTERRUPTS[:2], ids=str)
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
    assert result.stderr == INTERRUPTED


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
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


@pytest.mark.parametrize(("number", "status"), INTERRUPTS[:2], ids=str)
def test_a_signal_before_main_is_an_interrupt(tmp_path: Path, number: int, status: int) -> None:
    before = SIGNALLING.format(number=number) + "    sys.stdout = Signalling(sys.stdout, 'reconfigure')\n"
    command = write_script(tmp_path, "print('main runs')\nreturn 0", before)
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr == INTERRUPTED


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


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        *((option, "") for option in ("--zebra", "-x", "--gpu", "--reverse", "--model")),
        *(("--divice", "--device"), ("--jsn=1", "--json"), ("--dryrun", "--dry-run"), ("--data", "--database")),
        ("--dry", "--dry-run"),
        ("--divice --json", "--device"),
    ],
)
def test_an_unknown_option_is_reported_in_one_line_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str], option: str, meant: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        pipeline_parser().parse_args(option.split())
    assert caught.value.code == 2
    said, question = capsys.readouterr().err, f"; did you mean {meant}?" if meant else ""
    assert said.startswith(f"error: unrecognized arguments: {option.split(maxsplit=1)[0]}{question}; see ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(("choice", "question"), [("wram", "; did you mean warm?"), ("tepid", "")])
def test_an_unknown_choice_is_reported_in_one_line_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str], choice: str, question: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        pipeline_parser(CACHE).parse_args(["--cache", choice])
    problem = f"argument --cache: invalid choice: '{choice}'{question} (choose from warm, state); see "
    assert capsys.readouterr().err.startswith(f"error: {problem}")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *((word, "") for word in ("--format", "--output", "--time", "--limit", "--seconds")),
        *(("--sorted", "--sort"), ("--exec", "--execution"), ("--devise", "--device")),
    ],
)
def test_only_misspelled_options_get_a_suggestion(word: str, meant: str) -> None:
    options = ["--sort", "--top", "--device", "--execution", "--why", "--json", "--csv", "--home", "--database"]
    assert did_you_mean(word, options) == (f"; did you mean {meant}?" if meant else "")


def test_without_arguments_everything_has_its_default_and_others_arrive_as_values() -> None:
    usual = vars(pipeline_parser().parse_args([]))
    assert usual == {
        "names": [],
        **dict.fromkeys(("device", "home", "measurements", "database", "execution", "scheduler", "scheduler_file")),
        "gpus": (),
        "cache": "state",
        "meter": "auto",
        **dict.fromkeys(("dry_run", "same_board", "allow_code", "json", "json_progress", "verbose"), False),
        **dict.fromkeys(("csv", "markdown", "quiet", "wait"), False),
        **dict.fromkeys(("carbon_intensity", "price")),
    }
    line = "resnet* vgg16 --device cuda:1 --measurements a/m --database /d --dry-run --json --verbose"
    assert vars(pipeline_parser().parse_args(line.split())) == usual | {
        "names": ["resnet*", "vgg16"],
        "device": "cuda:1",
        "measurements": Path("a/m"),
        "database": Path("/d"),
        "dry_run": True,
        "json": True,
        "verbose": True,
    }


@pytest.mark.parametrize("word", ["--dry-run", "json"])
def test_a_command_refuses_what_it_has_not_and_all_of_its_work_is_done(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = Parser()
    add_options(parser, JSON)
    arguments = parser.parse_args([])
    assert (arguments.dry_run, arguments.same_board) == (False, False)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args([word])
    said = capsys.readouterr().err
    assert word in said
    assert "did you mean" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("chek", "'chek'; did you mean check? (choose from "),
        ("verify coverage --mta", "error: unrecognized arguments: --mta; did you mean --meta?; see opcost verify cov"),
    ],
)
def test_a_mistyped_subcommand_or_option_of_one_gets_its_own_suggestion(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["opcost", *words.split()])
    with pytest.raises(SystemExit, match="2"):
        main()
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert said in printed.err.replace(command("verify"), "opcost verify")


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--meter NVML", "choose from auto, samples, counter, instant, average, rapl"),
        ("--relative-error 0.01 --seconds 3", "not allowed with argument --relative-error"),
    ],
)
def test_what_cannot_be_measured_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pipeline_parser(METER, DURATION).parse_args(words.split())
    assert said in capsys.readouterr().err


def test_other_texts_are_no_relative_errors() -> None:
    for text in ("0", "1", "-0.1", "1%", "nan", "inf", ""):
        with pytest.raises(argparse.ArgumentTypeError, match=r"use a number between 0 and 1, such as 0\.01"):
            ratio(text)


def test_devices_are_taken_as_they_stand_and_what_is_none_is_refused_with_the_right_forms() -> None:
    for text in ("cpu", "cuda", "cuda:0", "cuda:10"):
        assert device_name(text) == text
    for text in ("", "gpu", "CUDA", "cuda:", "cuda:01", "cuda:-1", "cuda:٣", "cpu:0", "cuda:0\n", " cpu"):
        with pytest.raises(argparse.ArgumentTypeError, match="cpu, cuda, or cuda:N"):
            device_name(text)


@given(st.floats(min_value=0, exclude_min=True, max_value=MAXIMUM_S) | st.just(86400.0))
def test_positive_numbers_up_to_a_day_are_seconds(time_s: float) -> None:
    assert positive_seconds(repr(time_s)) == time_s


@given(
    st.floats(max_value=0).map(repr)
    | st.floats(min_value=MAXIMUM_S, exclude_min=True).map(repr)
    | st.sampled_from(
        [repr(math.nextafter(MAXIMUM_S, math.inf)), "nan", "inf", "1e308", "1e999", "30s", "", "1,5", "half"]
    )
)
def test_what_is_no_positive_number_up_to_a_day_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"above 0 and up to 86400 \(one day\)"):
        positive_seconds(text)


# The form of results


def test_format_json_is_json_and_one_format_is_given_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser()
    add_options(parser, JSON_OR_CSV)
    arguments = parser.parse_args(["--format", "json"])
    assert (arguments.json, arguments.csv, arguments.markdown) == (True, False, False)
    assert parser.parse_args(["--format", "csv"]).csv
    with pytest.raises(SystemExit):
        parser.parse_args(["--csv", "--format", "json"])
    assert "not allowed with argument" in capsys.readouterr().err


def test_rates_are_refused_where_programs_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["opcost", "show", "resnet50", "--json", "--price", "0.3"])
    with pytest.raises(UserError, match="--price: they are of tables; multiply the energies"):
        main()


def test_errors_are_red_where_colour_is_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    complain("plain")
    monkeypatch.setenv("FORCE_COLOR", "1")
    complain("red")
    monkeypatch.setenv("NO_COLOR", "1")
    complain("plain again")
    assert capsys.readouterr().err == "error: plain\n\x1b[31merror: red\x1b[0m\nerror: plain again\n"


@pytest.mark.parametrize("words", [["predict", "resnet50"], ["show", "resnet50"]], ids=["predict", "show"])
def test_several_batches_are_a_sweep(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with patch.object(sys, "argv", ["opcost", *words, "--batch", "1,8"]), pytest.raises(SystemExit):
        main()
    assert "sweep: opcost sweep MODEL --no-measure --device H200 --batch 1,8;" in capsys.readouterr().err
