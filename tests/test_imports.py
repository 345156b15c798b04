"""The import rule: ideas import ideas; technologies ideas, their library, their family; joining modules anything."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted(ROOT.glob("*.py"))
MODULES = {path.stem: path for path in sorted((ROOT / "opcost").glob("*.py"))}

IDEAS = {
    "calls",
    "advice",
    "axes",
    "census",
    "calls_in_chains",
    "compared_models",
    "comparison",
    "conditions",
    "corrections",
    "csv_rows",
    "duty_cycle",
    "eager_regime",
    "evaluation",
    "errors",
    "estimation",
    "gap",
    "input_roles",
    "input_values",
    "kernel_times",
    "measurement",
    "measuring_loop",
    "joined_meter",
    "meter_names",
    "model_operators",
    "operator_texts",
    "meter_qualification",
    "next_steps",
    "operators",
    "overhead",
    "ports",
    "power",
    "power_drawing",
    "power_log",
    "procedure",
    "progress",
    "roofline",
    "selection",
    "statistics",
    "subjects",
    "summation",
    "tuple_costs",
    "units",
}
JOINED = (
    "__init__ __main__ apparatus bench campaign coverage_page devices measuring_child meters models report_content "
    "reports request sentinel shipped_counts".split()
)
JOINING = {*JOINED, *(name for name in MODULES if name.startswith("stage_"))}
TECHNOLOGIES = sorted(MODULES.keys() - IDEAS - JOINING)

# A file is replaced as a whole in one way, whatever it holds.
SHARED_BY_TECHNOLOGIES = {"atomic_file"}

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
            names += [f"opcost.{alias.name}" for alias in node.names] if node.module == "opcost" else [node.module]
    return names


def imports_at_any_level(path):
    return imported(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def own_modules(path):
    names = {name.partition(".")[2] for name in imports_at_any_level(path) if name.startswith("opcost.")}
    return names & MODULES.keys()


def libraries(path):
    return {name.partition(".")[0] for name in imports_at_any_level(path)} - {"opcost"}


def test_every_idea_exists():
    assert MODULES.keys() >= IDEAS


@pytest.mark.parametrize("name", sorted(IDEAS))
def test_ideas_import_ideas_numpy_and_what_calculates(name):
    assert own_modules(MODULES[name]) <= IDEAS
    assert libraries(MODULES[name]) <= (sys.stdlib_module_names - TOUCHING) | {"numpy"}


@pytest.mark.parametrize("name", TECHNOLOGIES)
def test_technologies_import_ideas_and_their_family(name):
    family = {other for other in MODULES if other.partition("_")[0] == name.partition("_")[0]}
    assert own_modules(MODULES[name]) <= IDEAS | family | SHARED_BY_TECHNOLOGIES


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_import_no_script(path):
    assert libraries(path) & {script.stem for script in SCRIPTS} == set()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_read_their_arguments_before_anything_need_be_installed(path):
    assert libraries_at_start(path) <= sys.stdlib_module_names


def libraries_at_start(path):
    """Return the libraries that are imported as soon as a file is, by itself or by modules that it imports."""
    names = imported(ast.parse(path.read_text(encoding="utf-8")).body)
    libraries = {name.partition(".")[0] for name in names} - {"opcost"}
    own = {name.partition(".")[2] for name in names if name.startswith("opcost.")} & MODULES.keys()
    return libraries.union(*(libraries_at_start(MODULES[name]) for name in own))
