"""Without torch, which is an extra: each command works, or says in one line how to install torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python

from opcost.command.program import SUBCOMMANDS

ROOT = Path(__file__).parents[1]

WITHOUT_TORCH = """
import runpy, sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
sys.argv = sys.argv[1:]
sys.path.insert(0, ".")
runpy.run_module("opcost", run_name="__main__")
"""

MODEL = "resnet18_32x3x32x32"

WORKING = {
    "opcost advise": (MODEL,),
    "opcost check": (),
    "opcost verify columns": (),
    "opcost compare": (MODEL, "--dry-run"),
    "opcost export": ("--to", "{folder}/export"),
    "opcost info": (),
    "opcost demo": (),
    "opcost merge": ("{folder}", "docs/data/resnet50"),
    "opcost power": ("--plot", "tests/recordings/nvidia_smi_580_h200.csv", "--output", "{folder}/power.svg"),
    "opcost report": (MODEL, "--output", "{folder}/report.html"),
    "opcost show": (),
    "opcost show --conditions": (),
    "opcost show resnet18": (),
}
"""Commands that work without torch, with arguments that write at most into ``{folder}``."""

NEEDING_TORCH = {
    "opcost verify operators": (),
    "opcost verify kernels": (),
    "opcost verify strangers": (MODEL, "--host", MODEL),
    "opcost count": (MODEL, "--dry-run"),
    "opcost verify coverage": ("--output", "{folder}/page.md"),
    "opcost layers": ("resnet18",),
    "opcost make-configs": ("--dry-run",),
    "opcost measure-models": (MODEL, "--dry-run"),
    "opcost power-cap": ("resnet18", "--dry-run", "--device", "H200"),
    "opcost predict": ("resnet18", "--batch", "5"),
    "opcost profile": ("resnet18", "--dry-run"),
    "opcost qualify": ("--database", "{folder}"),
    "opcost sample-operators": ("drawn", "--dry-run"),
    "opcost tokens": ("llama-3.2-1b", "--batch", "1", "--context", "16"),
    "opcost sweep": ("resnet18", "--size", "32", "--dry-run"),
}

ELSEWHERE = {"filter", "forget", "measure", "worker"}
"""Subcommands that first read what a checkout does not have, such as pickles, or wait for a scheduler."""


def run_without_torch(command: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [word.format(folder=folder) for word in (*command.split(), *arguments)]
    program = [sys.executable, "-c", WITHOUT_TORCH, *words]
    libraries = (*warm_python.WITHOUT_TORCH, warm_python.SHIPPED_ROWS)
    return warm_python.run(program, ROOT, libraries=libraries)


@pytest.mark.parametrize("command", WORKING)
def test_a_command_that_only_reads_works_without_torch(command: str, tmp_path: Path) -> None:
    result = run_without_torch(command, tmp_path, *WORKING[command])
    assert (result.returncode in (0, 1), "error:" in result.stderr) == (True, False), result.stderr


@pytest.mark.parametrize("command", NEEDING_TORCH)
def test_a_command_that_needs_torch_says_how_to_install_it(command: str, tmp_path: Path) -> None:
    result = run_without_torch(command, tmp_path, *NEEDING_TORCH[command])
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert line.endswith("-m pip install 'opcost[torch]'")


TYPOS = {
    "net.py:biuld": "MODEL: {folder}/net.py:biuld: biuld is not there; did you mean build?",
    "net.py:build --argument widht=3": "--argument: {folder}/net.py:build: got an unexpected keyword argument 'widht'; "
    "did you mean width?",
    "wrong.py:build": "MODEL: {folder}/wrong.py:1: invalid syntax; fix the file",
    "none.py:build": "MODEL: {folder}/none.py: no such file; correct the path before the colon",
}


@pytest.mark.parametrize("command", ["layers", "predict", "profile", "sweep --size 8"])
@pytest.mark.parametrize("typed", TYPOS)
def test_a_typo_is_found_before_torch_is_imported(command: str, typed: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\ndef build(width=4): ...\n")
    (tmp_path / "wrong.py").write_text("def build(:\n")
    result = run_without_torch(
        "opcost", tmp_path, *command.split(), f"{tmp_path}/{typed}".split()[0], *typed.split()[1:], "--allow-code"
    )
    assert (result.returncode, result.stderr) == (2, f"error: {TYPOS[typed].format(folder=tmp_path)}\n")


@pytest.mark.parametrize("command", ["count", "measure-models"])
def test_a_typo_in_a_config_is_found_before_torch_is_imported(command: str, tmp_path: Path) -> None:
    config = tmp_path / "net" / "summary.yml"
    config.parent.mkdir()
    config.write_text("model_name: net.py:build\narguments: {widht: 3}\n")
    (tmp_path / "net" / "net.py").write_text("import torch\ndef build(width=4): ...\n")
    result = run_without_torch("opcost", tmp_path, command, "net", "--allow-code", "--measurements", str(tmp_path))
    mistake = "got an unexpected keyword argument 'widht'; did you mean width?"
    assert result.stderr == f"error: {config}:2: arguments: net.py:build: {mistake}\n"


def test_every_subcommand_is_in_one_of_the_lists() -> None:
    listed = {command.removeprefix("opcost ") for command in (*WORKING, *NEEDING_TORCH)}
    assert {subcommand.name for subcommand in SUBCOMMANDS} <= listed | ELSEWHERE


def test_a_plan_without_torch_expects_the_same_times_of_models_that_are_not_counted(tmp_path: Path) -> None:
    models = ("vit_h_14_32x3x518x518", "regnet_y_128gf_32x3x384x384", "raft_large_2x3x512x512")
    arguments = ("measure-models", *models, "--dry-run", "--device", "NVIDIA H200", "--json")
    with_torch = warm_python.run([sys.executable, "-m", "opcost", *arguments], ROOT)
    without_torch = run_without_torch("opcost", tmp_path, *arguments)
    expected_s = [[plan["expected_s"] for plan in json.loads(run.stdout)] for run in (with_torch, without_torch)]
    assert expected_s[0] == expected_s[1]
    assert len(set(expected_s[0])) == len(models)
