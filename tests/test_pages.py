"""The pages: every link leads somewhere, every command runs, and samples of output are what the commands print.

Commands that measure or write the tables run with ``--dry-run``; ``--renew-golden`` writes the samples again. Commands
that the README proposes leave ``git status`` of a fresh clone clean.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from repository_copy import copy_repository

from opcost.command.program import SUBCOMMANDS

ROOT = Path(__file__).parents[1]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[!.]*/README.md")})
TRIED = [path for path in PAGES if path.parent.name != "log" and path.name != "CHANGELOG.md"]
"""Pages whose commands hold today; the log's held on their dates."""

PYTHON, OPCOST = ".venv/bin/python", ".venv/bin/opcost"
WIDTH = 100
"""Columns of the terminal that samples of output are from."""

MEASURING = ("general_pipeline_block", "full_model_measurement.py", "compare_sum_vs_full.py")
MEASURING_SUBCOMMANDS = set("profile count filter measure measure-models compare sweep power-cap".split())
ELSEWHERE = (
    "make",  # tests/test_packaging.py
    "conda",  # another package manager
    "tar",  # 10 MB
    f"{PYTHON} power_logger.py",  # runs until Ctrl-C, or needs a GPU: tests/stages/test_log_power.py
    f"{OPCOST} power",  # the same
    f"{OPCOST} qualify",  # the same
    f"{OPCOST} merge",  # needs measured rows: tests/stages/test_check_files.py
    f"{OPCOST} compare net_build --database now",  # needs older rows: tests/stages/test_compare_against.py
    f"{OPCOST} measure 'resnet*' --gpus all",  # needs GPUs: tests/running/test_several_gpus.py
    f"{PYTHON} -m pip",  # downloads
    f"{PYTHON} -m pytest",  # these tests
    f"PYTHONPATH=. {PYTHON} benchmarks/claims.py",  # tests/test_claims.py
    f"{PYTHON} general_pipeline_block0.py resnet50",  # the README's `opcost count`, and tests/test_pipeline.py
    f"{PYTHON} full_model_measurement.py resnet50",  # the README's `opcost measure-models`, and the same
    f"{PYTHON} general_pipeline_block2.py resnet50 --relative-error",  # the README's `opcost measure`, and the same
)
"""Commands that other tests try, or that this machine should not run."""

PREPARED = (
    f"{PYTHON} general_pipeline_block0.py --meta resnet50",
    f"{PYTHON} general_pipeline_block1.py",
    f"{OPCOST} count conv_grid --meta --measurements docs/data/grid/measurements",
)
"""Commands that others need the results of."""

LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^```python\n(.*?)^```$(?:\n\n```\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
"""A program, and the sample of its output that follows, if any."""
NAMED_FILE = re.compile(
    r"`((?:opcost|tests|docs|benchmarks|measurements|database)/[\w./*-]+\.(?:py|md|csv|yml|html|c))`"
)


def anchors(page: Path) -> set[str]:
    """Return the names by which a page's headings are linked to, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for page in PAGES:
        for target in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            linked = (page.parent / path).resolve() if path else page
            if not linked.is_file() or (anchor and anchor not in anchors(linked)):
                broken.append((name_of(page), target))
    assert broken == []


def test_every_file_that_is_named_is_there() -> None:
    named = {(name_of(page), name) for page in TRIED for name in NAMED_FILE.findall(page.read_text(encoding="utf-8"))}
    # Opcost writes it, and git does not hold it.
    missing = [(page, name) for page, name in sorted(named) if name != "database/failures.csv"]
    assert [(page, name) for page, name in missing if not any(ROOT.glob(name))] == []


def test_the_design_names_modules_and_what_is_in_them() -> None:
    text = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
    missing = []
    for module, name in sorted(set(re.findall(r"`([a-z_]+/[a-z_]+)\.([A-Za-z_]+)[`.]", text))):
        path = ROOT / "opcost" / f"{module}.py"
        source = path.read_text(encoding="utf-8") if path.is_file() else ""
        is_named = bool(source) if name == "py" else re.search(rf"\b{name}\b", source)
        if not is_named and not (ROOT / f"{module}.{name}").exists():
            missing.append(f"{module}.{name}")
    assert missing == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / target.partition("#")[0]).resolve() for target in LINK.findall(index)}
    assert {page for page in PAGES if page.parent == ROOT / "docs"} - linked - {ROOT / "docs" / "README.md"} == set()


def test_the_readme_and_the_design_are_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1800
    assert len((ROOT / "DESIGN.md").read_text(encoding="utf-8").splitlines()) <= 250


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the tracked and new files, in which commands may write."""
    folder = copy_repository(tmp_path_factory.mktemp("checkout"))
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for git in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "all"]):
        subprocess.run(["git", *git], cwd=folder, check=True, capture_output=True)
    (folder / "build").mkdir()
    for command in PREPARED:
        run(command, folder).check_returncode()
    return folder


def changes_in(clone: Path) -> str:
    command = ["git", "status", "--porcelain"]
    return subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout


def test_installing_and_counting_change_no_file_of_git(checkout: Path, tmp_path: Path) -> None:
    build = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    for words in (["-c", build, str(tmp_path)], ["-m", "opcost", "make-configs", "resnet*"]):
        warm_python.run([sys.executable, *words], checkout, environment).check_returncode()
    assert changes_in(checkout) == ""


def test_git_ignores_what_the_makefile_and_a_report_write(checkout: Path) -> None:
    for made in (".venv/pip.log", "build/demo/database/operator_measurements.csv", "report.html"):
        subprocess.run(["git", "check-ignore", "--quiet", made], cwd=checkout, check=True)
    assert "demo := build/demo" in (checkout / "Makefile").read_text()


def commands_of(page: Path) -> list[tuple[str, str]]:
    """Return a page's commands, and for each the sample of its output that follows, if any."""
    found = []
    for _, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        lines = block.splitlines(keepends=True)
        if lines and lines[0].startswith("$ "):
            found.append((lines[0].removeprefix("$ ").strip(), "".join(lines[1:])))
        else:
            are_commands = [line for line in lines if line.startswith((PYTHON, OPCOST, "make", "PYTHONPATH"))]
            commands = [line.partition("   #")[0].strip() for line in are_commands]
            found += [(command, "") for command in commands]
    return found


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    plain = command.removeprefix("PYTHONPATH=. ").replace(OPCOST, f"{PYTHON} -m opcost", 1)
    words = shlex.split(plain.replace(PYTHON, sys.executable, 1))
    is_measuring = any(word.startswith(MEASURING) for word in words) or not MEASURING_SUBCOMMANDS.isdisjoint(words[3:4])
    if command not in PREPARED and is_measuring and "--dry-run" not in words:
        words.append("--dry-run")
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": str(WIDTH), "CUDA_VISIBLE_DEVICES": ""}
    return warm_python.run(words, folder, environment, libraries=(*warm_python.LIBRARIES, warm_python.SHIPPED_ROWS))


FOUND = [(page, command, sample) for page in TRIED for command, sample in commands_of(page)]
SHOWN = {command for _, command, sample in FOUND if sample}
ONCE = {command: (page, command, sample) for page, command, sample in FOUND if sample or command not in SHOWN}
"""A command that several pages name is tried once, where its output is shown."""

TRIED_COMMANDS = [
    pytest.param(*found, id=f"{name_of(found[0])}: {command}")
    for command, found in ONCE.items()
    if not command.startswith(ELSEWHERE)
]


@pytest.mark.parametrize(("page", "command", "sample"), TRIED_COMMANDS)
def test_every_command_runs_and_prints_what_the_page_shows(
    page: Path, command: str, sample: str, checkout: Path, request: pytest.FixtureRequest
) -> None:
    result = run(command, checkout)
    assert result.returncode in (0, 1), result.stderr
    assert "Traceback" not in result.stderr
    if page == ROOT / "README.md":
        assert changes_in(checkout) == ""
    printed = "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())
    if sample and sample not in printed:
        if not request.config.getoption("--renew-golden"):
            pytest.fail(f"meant? then: pytest --renew-golden\n{printed}")
        first_table = printed.split("\n\n")[: sample.count("\n\n") + 1]
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(sample, "\n\n".join(first_table).rstrip("\n") + "\n"), encoding="utf-8")


PYTHON_EXAMPLES = [
    pytest.param(page, program, sample, id=f"{name_of(page)}: {number}")
    for page in TRIED
    for number, (program, sample) in enumerate(EXAMPLE.findall(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("page", "program", "sample"), PYTHON_EXAMPLES)
def test_every_example_in_python_runs_and_prints_what_the_page_shows(
    page: Path, program: str, sample: str, pytestconfig: pytest.Config
) -> None:
    command, environment = [sys.executable, "-c", program], {**os.environ, "COLUMNS": ""}
    result = warm_python.run(command, ROOT, environment)
    assert (result.returncode, result.stderr) == (0, "")
    printed = "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())
    assert printed
    if sample and pytestconfig.getoption("--renew-golden"):
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(sample, printed), encoding="utf-8")
    elif sample:
        assert sample == printed, "meant? then: pytest --renew-golden"


MADE = "<!-- Made from the parsers: pytest --renew-golden tests/test_pages.py -->\n"
OF_OTHERS = {"--qualify", "--version", "--help", "--file", "--epochs", "--shell"}
"""Options of scripts alone, of all programs, of ``opcost`` itself and of other programs."""


def described(option: argparse.Action) -> str:
    """Return an option with its values and its help, in one line."""
    values = "" if option.nargs == 0 else option.metavar or ",".join(map(str, option.choices or ()))
    name = " ".join(filter(None, (*option.option_strings[:1], str(values))))
    return f"`{name}`: {str(option.help).replace('%%', '%').replace('<', '&lt;')}."


def options_of_commands() -> str:
    """Return all commands with the options that each has alone, then the options of several with their commands."""
    users: dict[str, list[str]] = {}
    for command in SUBCOMMANDS:
        for option in command.parser()._actions:
            if option.help != argparse.SUPPRESS and option.dest != "help":
                users.setdefault(described(option), []).append(command.name)
    lines = ["", "Each command, with the options that it alone has:", ""]
    for command in SUBCOMMANDS:
        lines.append(f"- **{command.name}**: {command.does}.")
        lines += [f"  - {option}" for option, names in users.items() if names == [command.name]]
    lines += ["", "Options of several commands:", ""]
    shared = {option: names for option, names in users.items() if len(names) > 1}
    for option, names in sorted(shared.items(), key=lambda item: (-len(item[1]), item[0])):
        others = [command.name for command in SUBCOMMANDS if command.name not in names]
        which = ", ".join(names) if len(names) <= len(others) else f"all but {', '.join(others)}" if others else "all"
        lines.append(f"- {option[:-1]} ({which}).")
    return "\n".join([*lines, "", ""])


def test_usage_has_the_options_of_the_parsers_and_no_others(pytestconfig: pytest.Config) -> None:
    page = ROOT / "docs" / "usage.md"
    head, _, rest = page.read_text(encoding="utf-8").partition(MADE)
    made, heading, tail = rest.partition("## Your folder")
    if pytestconfig.getoption("--renew-golden"):
        made = options_of_commands()
        page.write_text("".join((head, MADE, made, heading, tail)), encoding="utf-8")
    assert made == options_of_commands(), "meant? then: pytest --renew-golden"
    assert options_in(head + tail) - options_in(made) - OF_OTHERS == set()


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
