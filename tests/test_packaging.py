"""The project as a whole: its metadata agree, its scripts answer before anything is installed, its Makefile works."""

import ast
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import opcost
from opcost import invocation
from opcost.command.program import IN_VIEW, SUBCOMMANDS, subcommand
from opcost.command.run import DEPENDENCIES, EXTRAS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(ROOT.glob("*.py"))
NAMES = tuple(subcommand.name for subcommand in SUBCOMMANDS)
COMMANDS_OF = {
    "general_pipeline_block0.py": ["count"],
    "general_pipeline_block1.py": ["filter"],
    "general_pipeline_block2.py": ["measure"],
    "full_model_measurement.py": ["measure-models"],
    "compare_sum_vs_full.py": ["compare", "advise"],
    "power_logger.py": ["power", "qualify"],
}
"""The commands that do the same as a script."""

STAGES = tuple(COMMANDS_OF)[:-1]
INFO = "-m opcost info"
LOCK = "requirements-test.txt"
PIP = "-m pip install --disable-pip-version-check --progress-bar off"
MODULES_OF = {"nvidia-ml-py": "pynvml", "pyyaml": "yaml", "scikit-learn": "sklearn"}
"""Import names that differ from the project's name."""

HELP_OF_ALL = """
import contextlib, io, json, runpy, sys
root, commands, heavy = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
sys.path.insert(0, root)
found = {}
for command in commands:
    program, *subcommand = command.split()
    sys.argv = [program, *subcommand, "--help"]
    sys.modules.pop("opcost.__main__", None)
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            if program == "opcost":
                runpy.run_module(program, run_name="__main__")
            else:
                runpy.run_path(f"{root}/{program}", run_name="__main__")
        except SystemExit as ended:
            status = ended.code
    found[command] = [status, output.getvalue(), errors.getvalue(), sorted(set(heavy) & set(sys.modules))]
print(json.dumps(found))
"""
COMMANDS = (*(script.name for script in SCRIPTS), "opcost", *(f"opcost {name}" for name in NAMES))


def help_of_all(*flags: str) -> dict[str, list[Any]]:
    """Return each command's status, help, messages, and the libraries imported by then, asked in one process."""
    program = [sys.executable, *flags, "-c", HELP_OF_ALL, str(ROOT), json.dumps(COMMANDS), *DEPENDENCIES]
    result = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, list[Any]] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help of each command, where all libraries are installed but none is imported for it."""
    found = help_of_all("-I")
    assert {command: answer for command, answer in found.items() if answer[3]} == {}
    return {command: answer[1] for command, answer in found.items()}


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def environment() -> dict[str, Any]:
    content = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert isinstance(content, dict)
    return content


def third_party_imports(path: Path) -> set[str]:
    """Return the top-level names of what a file imports, standard library and the project itself left out."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"opcost"}


def described(help_text: str) -> str:
    """Return the description in a help text: its second paragraph."""
    return help_text.split("\n\n")[1]


def options_of(help_text: str) -> set[str]:
    return set(re.findall(r"^  (--[a-z-]+)", help_text, re.MULTILINE))


def test_the_version_has_one_source(pyproject: dict[str, Any]) -> None:
    assert pyproject["project"]["dynamic"] == ["version"]
    assert pyproject["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "opcost.version.__version__"}}


def test_the_citation_and_the_changelog_are_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation.keys() >= {"cff-version", "message", "title", "authors", "version", "license"}
    assert citation["version"] == opcost.__version__
    assert f"\n## {opcost.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_zenodo_says_what_the_citation_says() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert json.loads((ROOT / ".zenodo.json").read_text()) == {
        "upload_type": citation["type"],
        "description": citation["abstract"],
        "creators": citation["authors"],
        **{key: citation[key] for key in ("title", "version", "license", "keywords")},
    }


def test_conda_installs_the_same_python_and_the_project_itself_and_no_more(
    pyproject: dict[str, Any], environment: dict[str, Any]
) -> None:
    python_bound = pyproject["project"]["requires-python"]
    assert environment["dependencies"] == [f"python{python_bound}", "pip", {"pip": ["-e .[torch,advise,predict]"]}]
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    assert environment["name"] == pyproject["project"]["name"]


def test_the_conda_recipe_is_of_the_same_project(pyproject: dict[str, Any]) -> None:
    def lines(requirements: list[str]) -> set[str]:
        return {f"{canonicalize_name(one.name)} {one.specifier}".strip() for one in map(Requirement, requirements)}

    project, recipe = pyproject["project"], yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
    python = f"python {project['requires-python']}"
    assert set(recipe["requirements"]["run"]) == {python, *lines(project["dependencies"])}
    assert set(recipe["requirements"]["host"]) == {python, "pip", *lines(pyproject["build-system"]["requires"])}
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {of}" for name, of in project["scripts"].items()]
    assert (recipe["package"]["name"], recipe["context"]["version"]) == (project["name"], opcost.__version__)
    assert recipe["about"] == {
        "summary": project["description"],
        "license": project["license"],
        "license_file": project["license-files"][0],
    }


def test_hooks_before_a_commit_run_what_make_runs() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    run = {hook["entry"].replace(".venv/bin/python", "$(venv_python)", 1) for hook in local["hooks"]}
    recipe = (ROOT / "Makefile").read_text().partition("define checks")[2].partition("endef")[0]
    assert run == set(re.findall(r"\$\(venv_python\) -m (?:ruff|mypy)(?: [a-z-]+)*", recipe))


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_an_issue_form_names_and_labels_all_that_it_asks_for(form: Path) -> None:
    content = yaml.safe_load(form.read_text())
    assert content.keys() == {"name", "description", "labels", "body"}
    fields = content["body"]
    assert {field["type"] for field in fields} <= {"input", "textarea", "checkboxes"}
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert set(re.findall(r"opcost (\w+)", form.read_text())) <= set(NAMES)


def test_declared_are_the_modules_that_a_missing_dependency_is_reported_for(pyproject: dict[str, Any]) -> None:
    projects = [re.split(r"[^\w-]", line)[0].lower() for line in pyproject["project"]["dependencies"]]
    assert {MODULES_OF.get(project, project) for project in projects} == DEPENDENCIES


def test_nothing_is_imported_that_is_not_declared() -> None:
    imported = {name for path in (*SCRIPTS, *ROOT.glob("opcost/**/*.py")) for name in third_party_imports(path)}
    declared = DEPENDENCIES | EXTRAS.keys()
    # pydantic brings these, and ROCm the last one; all else is declared.
    assert imported <= declared | {"pydantic_core", "typing_extensions", "amdsmi"}


def test_extras_install_what_not_everybody_needs_and_tests_have_it_all(pyproject: dict[str, Any]) -> None:
    extras = pyproject["project"]["optional-dependencies"]
    for module, extra in EXTRAS.items():
        names = [(line, re.split(r"[^\w-]", line)[0]) for line in extras[extra]]
        (line,) = (line for line, name in names if MODULES_OF.get(name, name) == module)
        assert line in extras["test"]


def test_the_lock_has_what_the_tests_need_with_hashes_and_names_no_other_registry(pyproject: dict[str, Any]) -> None:
    text = (ROOT / LOCK).read_text()
    versions: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=[^ #])", text.partition("\n")[2]):
        if not entry.startswith("#"):
            name, _, version = entry.split()[0].partition("==")
            versions.setdefault(name, []).append(version)
            assert "--hash=sha256:" in entry
    needed = map(
        Requirement, [*pyproject["project"]["dependencies"], *pyproject["project"]["optional-dependencies"]["test"]]
    )
    for requirement in needed:
        found = versions[canonicalize_name(requirement.name)]
        assert all(version in requirement.specifier for version in found), f"{requirement}: run `make lock`"
    assert "://" not in text


def test_all_checks_hold_for_the_oldest_python_supported(pyproject: dict[str, Any]) -> None:
    oldest = pyproject["tool"]["mypy"]["python_version"]
    assert pyproject["project"]["requires-python"] == f">={oldest}"
    assert pyproject["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    assert f"sys.version_info < ({oldest.replace('.', ', ')})" in (ROOT / "Makefile").read_text()


def test_the_six_scripts_stand_at_the_top_level_and_nothing_else_that_is_run() -> None:
    assert {script.name for script in SCRIPTS} == COMMANDS_OF.keys() == {f"{name}.py" for name in invocation.SCRIPTS}


def test_help_answers_before_anything_is_installed() -> None:
    for command, (status, shown, errors, _) in help_of_all("-I", "-S").items():
        assert (status, errors) == (0, ""), command
        if command != "opcost":
            assert "--verbose" in shown
            assert COMMANDS_OF.get(command, [command.removeprefix("opcost ")])[0] in shown.splitlines()[-1], command


def test_a_script_and_its_subcommand_have_the_same_help(helps: dict[str, str]) -> None:
    own = {"--coverage-target", "--write-whitelist", "--qualify", "--home", "--database"}
    for script in SCRIPTS:
        of_script, of_subcommand = helps[script.name], helps[f"opcost {COMMANDS_OF[script.name][0]}"]
        assert described(of_script) == described(of_subcommand)
        assert options_of(of_subcommand) <= options_of(of_script) <= options_of(of_subcommand) | own


def test_examples_of_the_help_run_in_a_fresh_clone(helps: dict[str, str]) -> None:
    lasts = {name.rpartition(" ")[2] for name in NAMES}
    for command, before in {
        "general_pipeline_block0.py": [],
        "general_pipeline_block1.py": ["count"],
        "general_pipeline_block2.py": ["count", "filter"],
        "full_model_measurement.py": [],
        "compare_sum_vs_full.py": [],
        "opcost verify operators": ["count"],
        "opcost measure": ["count", "filter"],
        "opcost verify kernels": [],
    }.items():
        shown = helps[command].partition("example:\n")[2].splitlines()
        examples = [shlex.split(line) for line in shown if line.startswith("  ")]
        steps = [next(word for word in words if word in lasts) for words in examples]
        assert steps[:-1] == before
        for words, step in zip(examples, steps, strict=True):
            assert list(ROOT.glob(f"measurements/{words[words.index(step) + 1]}/summary.yml"))


def test_the_programs_help_lists_at_most_15_commands_in_groups_and_all_if_asked(helps: dict[str, str]) -> None:
    listed = re.compile(r"^  (?!-)(\S+(?: \S+)?)(?:  |$)", re.MULTILINE)
    in_view = listed.findall(helps["opcost"].partition("options:")[2])
    assert in_view == [*(one.name for group in IN_VIEW.values() for one in group), "verify"]
    assert len(in_view) <= 15
    everything = subprocess.run(
        [sys.executable, "-m", "opcost", "--help-all"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.partition("options:")[2]
    assert set(listed.findall(everything)) == {*NAMES, "verify"}


def test_a_command_is_a_function_that_exists() -> None:
    for module, _, function in (subcommand(name).function.partition(".") for name in NAMES):
        assert callable(getattr(import_module(f"opcost.command.{module}"), function))


def test_a_script_is_short_imports_no_other_and_begins_with_what_it_is_and_an_example() -> None:
    for script in SCRIPTS:
        text = script.read_text()
        module = ast.parse(text)
        docstring = ast.get_docstring(module) or ""
        assert module.body[0].lineno <= 2
        assert re.search(rf"Example: .*python {re.escape(script.name)}", docstring)
        assert re.findall(r"opcost ([a-z-]+)", docstring.partition("The same as:")[2]) == COMMANDS_OF[script.name]
        assert len(text.splitlines()) < 100
        assert not third_party_imports(script) & {other.stem for other in SCRIPTS}


def test_the_shipped_database_holds_no_simulated_rows() -> None:
    for name in ("operator_measurements.csv", "full_model_measurements.csv", "sum_vs_full.csv"):
        with (ROOT / "database" / name).open(newline="") as file:
            assert not [row for row in csv.reader(file) for cell in row if "simulat" in cell.lower()]


class Checkout:
    """A copy of what the Makefile needs, with stand-ins for Pythons that log what they are asked to do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "log"
        for name in ("Makefile", "pyproject.toml", LOCK):
            shutil.copyfile(ROOT / name, folder / name)
        for name in ("operator_whitelist.yml", "resnet18_32x3x32x32/summary.yml"):
            (folder / "measurements" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / "measurements" / name, folder / "measurements" / name)

    def pretend_python(self, path: Path, before: str = "") -> str:
        """Write a Python that runs ``before`` before the code of ``-c``, but lints nothing, and logs all else."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            '#!/bin/sh\ncase "$2" in *importlinter*) exit 0;; esac\n'
            f'[ "$1" = -c ] && exec {sys.executable} -I -c "import sys; {before or "pass"}; $2"\n'
            f'echo "$*" >> {self._log}\n'
        )
        path.chmod(0o755)
        return str(path)

    def pretend_to_be_installed(self, *stamps: str) -> None:
        self.pretend_python(self.folder / ".venv/bin/python")
        for stamp in ("made", *stamps):
            (self.folder / ".venv" / stamp).touch()

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "-s", "--no-print-directory", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False)

    def commands(self) -> list[str]:
        """Return what the pretended Pythons were asked to do since the last call."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    if shutil.which("make") is None:
        pytest.skip("make is not there")
    # These tests are themselves run by make, whose variables would reach the make within.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEFILES", "PYTHON"):
        monkeypatch.delenv(name, raising=False)
    return Checkout(tmp_path)


def test_make_lists_every_target(checkout: Checkout) -> None:
    result = checkout.make()
    targets = re.findall(r"^make ([\w-]+) +\S", result.stdout, re.MULTILINE)
    expected = "help install pipeline configs coverage zoo test check test-newest lock test-all fuzz mutation "
    expected += "release-check site clean"
    assert targets == expected.split()
    assert len(result.stdout.splitlines()) == len(targets)


@pytest.mark.parametrize(
    ("before", "problem"),
    [
        ("sys.version_info = (3, 8, 18)", "is too old: opcost needs Python 3.10 or newer"),
        ("sys.modules['ensurepip'] = None", "has no venv or ensurepip"),
        ("sys.modules['venv'] = None", "has no venv or ensurepip"),
        ("sys.exit(1)", "does not run"),
    ],
)
@pytest.mark.parametrize("target", ["install", "test"])
def test_a_python_that_will_not_do_is_one_line_with_the_remedy(
    checkout: Checkout, before: str, problem: str, target: str
) -> None:
    python = checkout.pretend_python(checkout.folder / "bin/python", before)
    result = checkout.make(f"PYTHON={python}", target)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert f"{python} {problem}" in result.stderr
    assert f'"make PYTHON=python3.12 {target}"' in result.stderr
    assert not (checkout.folder / ".venv").exists()


def test_a_first_install_makes_the_environment_and_warns_of_the_download(checkout: Checkout) -> None:
    python = checkout.pretend_python(checkout.folder / "bin/python")
    (checkout.folder / ".venv").mkdir()
    result = checkout.make(f"PYTHON={python}", "install")
    assert "5 GB" in result.stdout
    assert checkout.commands()[0] == "-m venv --clear .venv"


def test_what_is_installed_is_installed_again_only_for_a_changed_pyproject(checkout: Checkout) -> None:
    checkout.pretend_to_be_installed("installed")
    checkout.make("install")
    assert checkout.commands() == [INFO]
    made = (checkout.folder / ".venv/installed").stat().st_mtime
    os.utime(checkout.folder / "pyproject.toml", (made + 10, made + 10))
    checkout.make("install")
    assert checkout.commands() == [f"{PIP} --editable .[torch,advise,predict]", INFO]


def test_pips_output_is_shown_if_it_fails_and_only_then(checkout: Checkout) -> None:
    checkout.pretend_to_be_installed()
    python = checkout.folder / ".venv/bin/python"
    works = python.read_text() + "echo noise; echo warning >&2\n"
    python.write_text(works + 'case "$2" in pip) exit 7;; esac\n')
    result = checkout.make("install")
    assert (result.returncode, "noise" in result.stdout) == (2, False)
    assert result.stderr.startswith("noise\nwarning\n")
    assert not (checkout.folder / ".venv/installed").exists()
    python.write_text(works)
    result = checkout.make("install")
    assert (result.returncode, result.stderr.count("warning")) == (0, 1)
    assert result.stdout.count("noise") == 1, "opcost info is run by the same stand-in"


def test_the_tests_tools_include_what_the_pipeline_needs(checkout: Checkout) -> None:
    def commands() -> list[str]:
        # Types are checked beside the tests.
        return sorted(checkout.commands(), key=lambda command: ("-m mypy" in command, "-m pytest" in command))

    checkout.pretend_to_be_installed()
    checkout.make("test")
    locked, opcost_itself, *checks = commands()
    assert locked == f"{PIP} --require-hashes --requirement {LOCK}"
    assert opcost_itself == f"{PIP} --no-deps --no-build-isolation --editable ."
    assert checks == [
        "-m ruff check",
        "-m ruff format --check",
        "-m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --quick",
        "-m mypy",
    ]
    # The pretended Python logs no -c.
    assert "lint_imports_command()" in (ROOT / "Makefile").read_text()
    checkout.make("install")
    assert commands() == [INFO]
    checkout.make("check")
    checks[2] = checks[2].removesuffix(" --quick")
    assert commands() == checks
    checkout.make("test-all")
    assert commands() == [f"{checks[2]} --all-seeds"]
    checkout.make("test-newest")
    assert commands() == [f"{PIP} --upgrade --upgrade-strategy eager --editable .[test]", *checks]
    checkout.make("check")
    assert commands() == [locked, opcost_itself, *checks], "those of the lock are put back"


def test_the_check_before_a_release_runs_all_that_the_tests_leave_out(checkout: Checkout) -> None:
    checkout.pretend_to_be_installed("installed", "installed-test", "installed-site")
    result = checkout.make("release-check")
    assert (result.returncode, result.stderr) == (0, "")
    commands = checkout.commands()
    assert commands[0].endswith(" --all-seeds --no-skips")
    programs = [re.sub(r"^-m | --?\w.*", "", command) for command in commands]
    assert programs == [
        "pytest",
        "benchmarks/operators_of_torch.py",
        "benchmarks/kills.py",
        "benchmarks/architectures.py",
        "tests/malformed_files.py",
        "tests/malformed_files.py",
        "general_pipeline_block0.py *",
        "opcost verify operators *",
        "opcost verify coverage",
        "tests/planted_faults.py",
    ]


@pytest.mark.parametrize(("is_root", "packages"), [(True, ["gcc libc6-dev", "chromium"]), (False, [])])
def test_continuous_integration_gets_a_compiler_and_a_browser_where_it_may(
    tmp_path: Path, is_root: bool, packages: list[str]
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "timeout"):
        (programs / name).symlink_to(str(shutil.which(name)))
    stand_ins = {
        "id": f"echo {0 if is_root else 1000}",
        "apt-get": f'echo "$0 $*" >> {tmp_path}/log',
        "make": "echo $*",
    }
    for name, body in stand_ins.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    result = subprocess.run([ROOT / ".ci/run"], env={"PATH": str(programs)}, capture_output=True, text=True, check=True)
    assert result.stdout == "-s check\n"
    log = (tmp_path / "log").read_text() if packages else ""
    assert re.findall(r"--no-install-recommends (.*)", log) == packages


def test_an_environment_whose_python_has_gone_is_made_again(checkout: Checkout) -> None:
    checkout.pretend_to_be_installed("installed")
    (checkout.folder / ".venv/bin/python").unlink()
    checkout.make(f"PYTHON={checkout.pretend_python(checkout.folder / 'bin/python')}", "install")
    assert checkout.commands()[0] == "-m venv --clear .venv"


def test_the_pipeline_runs_all_stages_in_order_on_a_copy_of_its_own(checkout: Checkout) -> None:
    checkout.pretend_to_be_installed("installed")
    config = checkout.folder / "measurements/resnet18_32x3x32x32/summary.yml"
    config.write_text(re.sub(r"done: \w+", "done: true", config.read_text()))
    for _ in range(2):
        result = checkout.make("pipeline")
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        commands = [command.split() for command in checkout.commands()]
        assert tuple(words[0] for words in commands) == STAGES
        folders = ["--measurements", "build/demo/measurements", "--database", "build/demo/database"]
        assert all(words[1:6] == ["resnet18_32x3x32x32", *folders] for words in commands)
        assert [words[6:] for words in commands] == [[], [], ["--seconds", "1"], ["--seconds", "1"], []]
    demo = checkout.folder / "build/demo/measurements"
    assert yaml.safe_load((demo / config.parent.name / config.name).read_text())["done"] is False
    assert (demo / "operator_whitelist.yml").exists()
    assert "done: true" in config.read_text()


def test_a_stage_that_fails_ends_the_pipeline(checkout: Checkout) -> None:
    checkout.pretend_to_be_installed("installed")
    python = checkout.folder / ".venv/bin/python"
    python.write_text(python.read_text() + 'case "$1" in *block1.py) exit 2;; esac\n')
    assert checkout.make("pipeline").returncode == 2
    assert [command.split()[0] for command in checkout.commands()] == list(STAGES[:2])


def test_clean_leaves_what_was_measured_and_installed(checkout: Checkout) -> None:
    checkout.pretend_to_be_installed("installed")
    for name in ("build/demo/x", "database/x", ".mypy_cache/x"):
        (checkout.folder / name).parent.mkdir(parents=True)
        (checkout.folder / name).touch()
    checkout.make("clean")
    left = {path.name for path in checkout.folder.iterdir()}
    assert left == {".venv", "Makefile", "database", "measurements", "pyproject.toml", LOCK}


def test_importing_the_package_imports_nothing_heavy_and_its_names_are_there_when_asked_for() -> None:
    program = (
        "import sys, opcost\nassert not {'numpy', 'torch'} & set(sys.modules)\nfrom opcost import *\n"
        "assert all(name in globals() for name in opcost.__all__)\nassert 'torch' not in sys.modules\n"
        "assert not hasattr(opcost, 'no_such_name')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
