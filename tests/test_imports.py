"""The import rule (``pyproject.toml``, held by import-linter), and what is imported before anything is installed."""

import ast
import pydoc
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import opcost

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(ROOT.glob("*.py"))
LINTER = Path(sys.executable).with_name("lint-imports")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "opcost").rglob("*.py"))
}

IDEAS = (
    "estimates",
    "grouping",
    "units",
    "progress",
    "errors",
    "columns",
    "operators",
    "power",
    "measuring",
    "summing",
    "prediction",
    "comparing",
)

# Parts of the standard library that touch the world; ideas only calculate.
TOUCHING = {
    "ctypes",
    "multiprocessing",
    "os",
    "pathlib",
    "shutil",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}


def imported(nodes):
    """Return the full names of all modules that statements import."""
    names = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [node.module, *(name for name in members if name in MODULES)]
    return names


def libraries(path):
    """Return the libraries that a file imports at any level."""
    return {name.partition(".")[0] for name in imported(ast.walk(parsed(path)))} - {"opcost"}


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def test_no_default_is_the_environment():
    """Signatures show defaults, in ``help()`` and in notebooks that people share, and variables hold secrets."""
    nodes = [node for path in MODULES.values() for node in ast.walk(parsed(path))]
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))]
    defaults = [one for node in functions for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None]
    assert defaults
    assert not [ast.unparse(one) for one in defaults if "environ" in ast.unparse(one)]


def test_help_shows_no_variable_of_the_environment(monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", "not-a-real-secret")
    assert "not-a-real-secret" not in pydoc.render_doc(opcost.mark) + pydoc.render_doc(opcost)


def test_ideas_import_what_calculates():
    ideas = [path for name, path in MODULES.items() if name.partition(".")[2].partition(".")[0] in IDEAS]
    assert len(ideas) > len(IDEAS)
    calculating = (sys.stdlib_module_names - TOUCHING) | {"numpy"}
    assert {str(path): touching for path in ideas if (touching := libraries(path) - calculating)} == {}


def test_imports_against_the_rule_are_found(tmp_path):
    planted = {
        "operators/tuples": "from opcost.measuring.record import Measurement",
        "meters/nvml": "import torch",
        "storage/table": "from opcost.meters.nvml import NvmlGpu",
        "storage/database": "from opcost.comparing.ranking import RankingRow",
        "torch_backend/operators": "from opcost.comparing.ranking import RankingRow",
        "summing/summation": "import pandas",
        "stages/count": "from opcost.reporting.progress_lines import print_table",
        "command/options": "import torch",
        "reporting/report": "from opcost.api import load",
    }
    shutil.copytree(ROOT / "opcost", tmp_path / "opcost", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, line in planted.items():
        with (tmp_path / "opcost" / f"{module}.py").open("a") as file:
            file.write(f"\n{line}\n")
    command = [str(LINTER), "--no-cache"]
    linted = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert linted.returncode == 1
    for module, line in planted.items():
        assert f"opcost.{module.replace('/', '.')} -> {line.split()[1]}" in linted.stdout


def test_no_modules_import_each_other_in_a_circle():
    """An import in a function hides a circle from Python, not from people who read one of its modules."""
    left = {name: {one for one in imported(executed(parsed(path))) if one in MODULES} for name, path in MODULES.items()}
    # A module that imports none of those left is in no circle; the others are, or lead to one.
    while first := {name for name, names in left.items() if not names & left.keys()}:
        left = {name: names for name, names in left.items() if name not in first}
    assert left == {}


def executed(node):
    """Yield the nodes below one at any level, except imports for types alone."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from executed(child)


def test_scripts_import_no_script_and_read_their_arguments_before_anything_need_be_installed():
    for path in SCRIPTS:
        assert libraries(path) & {script.stem for script in SCRIPTS} == set()
        assert libraries_at_start(path) <= sys.stdlib_module_names


@cache
def libraries_at_start(path):
    """Return the libraries that are imported as soon as a file is, by itself or by modules that it imports."""
    names = imported(parsed(path).body)
    libraries = {name.partition(".")[0] for name in names} - {"opcost"}
    return libraries.union(*(libraries_at_start(MODULES[name]) for name in names if name in MODULES))


def test_packages_that_others_use_alone_and_commands_need_torch_only_where_they_run_or_count():
    alone = tuple(f"opcost.{package}" for package in ("meters", "power", "storage"))
    names = [name for name in MODULES if name.startswith(alone)]
    names += [f"opcost.command.{group}" for group in ("read", "measure", "meters", "power_cap", "verify")]
    program = f"import sys\nfor name in {names}:\n    __import__(name)\n    assert 'torch' not in sys.modules, name"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_what_programs_import_into_their_loops_needs_no_packages_of_commands():
    needless = {"torch", "pandas", "pydantic", "rich", "scipy", "sklearn", "yaml"}
    program = (
        "import sys, opcost.compat; from opcost import EnergyMeter, LayerwiseEnergy, mark; "
        f"print(sorted({needless} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_one_module_knows_how_a_pass_is_run():
    names = {
        name
        for name, path in MODULES.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr == "inference_mode"
    }
    assert names == {"opcost.torch_backend.passes"}
