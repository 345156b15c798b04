"""Users' code runs with ``--allow-code`` only: a file that leaves a marker when it is imported proves it."""

import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
import warm_python
from pipeline_project import measure_here

from opcost.__main__ import main
from opcost.errors import UserError
from opcost.storage.database import Database

NET = """
open({marker!r}, "a").write("imported\\n")
import torch
from torch import nn
print("a word on stdout")
def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU()), torch.randn(2, 4)
def raises():
    raise ValueError("no good\\nat all")
"""

COMMANDS_THAT_RUN_MODELS = [
    ["count"],
    ["count", "--meta"],
    ["measure", "--whole", "--seconds", "0.1"],
    ["measure-models", "--seconds", "0.1"],
    ["verify", "kernels"],
]

COMMANDS_THAT_READ = [
    ["filter"],
    ["measure", "--dry-run"],
    ["compare", "--dry-run"],
    ["show", "net"],
    ["verify", "operators"],
    ["check"],
    ["report"],
    ["advise"],
]

DRY_RUNS = [["count"], ["count", "--meta"], ["measure", "--whole"], ["measure-models"]]


class Project:
    """A folder with a user's file and a config that names it."""

    def __init__(self, folder: Path, function: str = "build") -> None:
        self.folder, self.marker = folder, folder / "marker"
        folder.mkdir(exist_ok=True)
        (folder / "net.py").write_text(NET.format(marker=str(self.marker)))
        config = folder / "measurements" / "net" / "summary.yml"
        config.parent.mkdir(parents=True)
        config.write_text(f"model_name: ../../net.py:{function}\n")
        (folder / "measurements" / "operator_whitelist.yml").write_text('operators: ["*"]\n')

    def run(self, command: list[str], *options: str) -> int:
        folders = ["--measurements", str(self.folder / "measurements"), "--database", str(self.folder / "database")]
        device = ["--device", "cpu"] if command[0] not in ("filter", "check", "advise") else []
        with patch.object(sys, "argv", ["opcost", *command, *folders, *device, *options]):
            return main()

    @property
    def imports(self) -> int:
        return len(self.marker.read_text().splitlines()) if self.marker.exists() else 0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("command", COMMANDS_THAT_RUN_MODELS, ids=" ".join)
def test_a_command_refuses_a_users_file_with_the_option_that_runs_it(project: Project, command: list[str]) -> None:
    if command[0] == "measure":
        assert project.run(["count"], "--allow-code") == 0
        assert project.run(["filter"]) == 0
        project.marker.unlink()
    with pytest.raises(UserError) as caught:
        project.run(command)
    (line,) = caught.value.lines
    assert line.startswith(
        f"{project.folder}/measurements/net/summary.yml:1: model_name: ../../net.py:build is Python "
    )
    assert line.endswith("if you trust it, run the command again with --allow-code")
    assert project.imports == 0


@pytest.mark.parametrize("command", DRY_RUNS, ids=" ".join)
@pytest.mark.parametrize("options", [[], ["--allow-code"]], ids=" ".join)
def test_a_dry_run_needs_no_permission_and_runs_nothing(
    project: Project, command: list[str], options: list[str]
) -> None:
    if command[0] == "measure":
        project.run(["count"], "--allow-code")
        project.run(["filter"])
        project.marker.unlink()
    assert project.run(command, "--dry-run", *options) == 0
    assert project.imports == 0


def test_commands_that_read_never_import_it(project: Project) -> None:
    assert project.run(["count"], "--allow-code") == 0
    assert project.imports == 1
    project.marker.unlink()
    for command in COMMANDS_THAT_READ:
        options = ["--output", str(project.folder / "report.html")] if command[0] == "report" else []
        with suppress(UserError):
            project.run(command, *options)
        assert project.imports == 0, command


PRINTS = """
import ctypes, os, subprocess, sys
class Prints(nn.Linear):
    def forward(self, x):
        os.write(1, b"by a descriptor\\n")
        print("by the first stdout", file=sys.__stdout__)
        subprocess.run(["echo", "by a program"], check=True)
        ctypes.CDLL(None).puts(b"by C")
        return super().forward(x)
def prints():
    return Prints(4, 8), torch.randn(2, 4)
"""


def test_stdout_has_results_alone_also_beside_output_of_descriptors_programs_and_c(project: Project) -> None:
    with (project.folder / "net.py").open("a") as file:
        file.write(PRINTS)
    words = ["profile", "net.py:prints", "--allow-code", "--json", "--database", "rows", "--no-measure"]
    result = warm_python.run([sys.executable, "-m", "opcost", *words], project.folder)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["models"][0]["flop"] == 2 * 2 * 4 * 8
    for way in ("a descriptor", "the first stdout", "a program", "C"):
        assert f"by {way}\n" in result.stderr


@pytest.mark.parametrize(
    "act",
    [
        *("sys.stdout.close()", "sys.stderr.close()", "sys.__stdout__.close()"),
        *("os.dup2(os.open(os.devnull, os.O_WRONLY), 1)", "sys.stdout = sys.stderr = None"),
        *("sys.argv.clear()", "sys.argv = ['net.py']"),
    ],
)
def test_results_and_mistakes_are_printed_whatever_the_code_does_to_streams_and_arguments(
    project: Project, act: str
) -> None:
    net = project.folder / "net.py"
    net.write_text(NET.format(marker=str(project.marker)) + f"import os, sys\n{act}\n")
    words = ["-m", "opcost", "profile", "net.py:build", "--allow-code", "--json", "--database", "rows", "--no-measure"]
    result = warm_python.run([sys.executable, *words], project.folder)
    assert (result.returncode, "Traceback" in result.stderr) == (0, False), result.stderr
    assert json.loads(result.stdout)["models"]
    net.write_text(f"{net.read_text()}raise ValueError\n")
    result = warm_python.run([sys.executable, *words], project.folder)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "net.py:build raised ValueError: no message; " in line


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (
            "import torch\nclass Net(torch.nn.Linear):\n    runs = 0\n    def forward(self, x):\n"
            "        self.runs += 1\n        return super().forward(x) if self.runs < 2 else {}['later']\n"
            "def build(): return Net(4, 4), torch.zeros(2, 4)\n",
            [
                "net.py:build raised KeyError: 'later'; correct the model or its inputs",
                "in forward: return super().forward(x) if self.runs < 2 else {}['later']",
            ],
        ),
        (
            "import torch\nclass Net(torch.nn.Linear):\n    parameters = lambda self: {}['none']\n"
            "def build(): return Net(4, 4), torch.zeros(2, 4)\n",
            ["net.py:build raised KeyError: 'none'; correct the model or its inputs"],
        ),
        (
            NET.replace("{marker!r}", "'marker'") + "import os\nos.closerange(3, 100)\n",
            ["has closed files of the program, such as that of the results; leave out what closes files that it has "],
        ),
    ],
    ids=["in a later run", "in its parameters", "closes files"],
)
def test_what_a_users_code_does_wrong_is_a_line_with_its_remedy(project: Project, code: str, lines: list[str]) -> None:
    (project.folder / "net.py").write_text(code)
    words = ["profile", "net.py:build", "--allow-code", "--json", "--database", "rows", "--no-measure"]
    result = warm_python.run([sys.executable, "-m", "opcost", *words], project.folder)
    assert (result.returncode, result.stdout, "Traceback" in result.stderr) == (2, "", False)
    assert sum(line.startswith("error: ") for line in result.stderr.splitlines()) == 1
    assert all(line in result.stderr for line in lines)


def test_rows_go_where_the_command_says_though_the_code_changes_the_folder(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = project.folder / "other"
    other.mkdir()
    with (project.folder / "net.py").open("a") as file:
        file.write(f"import os\nos.chdir({str(other)!r})\n")
    monkeypatch.chdir(project.folder)
    words = ["profile", "net.py:build", "--allow-code", "--home", "home", "--device", "cpu", "--seconds", "0.02"]
    with patch.object(sys, "argv", ["opcost", *words]):
        assert main() == 0
    monkeypatch.chdir(project.folder)
    assert list(other.iterdir()) == []
    assert Database(project.folder / "home" / "database").full_model_measurements.rows()


@pytest.mark.parametrize(
    ("key", "asked", "function"),
    [
        *(("precision", "precision: fp32", "half"), ("precision", "", "half")),
        ("memory_format", "memory_format: channels_last", "build"),
    ],
)
def test_a_form_that_the_model_does_not_have_is_a_line_with_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, asked: str, function: str
) -> None:
    project = Project(tmp_path, function)
    with (tmp_path / "net.py").open("a") as file:
        file.write("def half():\n    return nn.Linear(4, 8).half(), torch.randn(2, 4).half()\n")
    config = tmp_path / "measurements" / "net" / "summary.yml"
    config.write_text(f"{config.read_text()}{asked}\n")
    assert project.run(["count"], "--allow-code") == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "summary.yml" in line]
    assert f"{config}:{2 if asked else 1}: {key}: ../../net.py:{function} has " in line


# In the place of an … stands what depends on the machine and the folder.
MISTAKES = [
    ("nat.py:build", "MODEL: {folder}/nat.py: no such file; correct the path before the colon"),
    ("net.py:Linear", "--argument: {folder}/net.py:Linear: missing a required argument: 'x'; its arguments are x"),
    ("net.py", "MODEL: no source has a model 'net.py'; name a function in it, as in net.py:build (…)"),
    (
        "net.py:wrong",
        "MODEL: {folder}/net.py:wrong raised RuntimeError: … (in 1.0: Linear); correct the model or its inputs",
    ),
    (
        "meta-llama/Llama-3.1-8B",
        "MODEL: meta-llama/Llama-3.1-8B is known as a language model only; … tokens llama-3.1-8b …",
    ),
    ("pkg.net:build", "MODEL: no module pkg.net in {folder} or where Python looks; correct it, run the command in …"),
    (
        "net.py:half",
        "--precision: {folder}/net.py:half has weights in bfloat16 and none in float32; give --precision bf16, or "
        "return a model in float32",
    ),
    (
        "net.py:build --memory-format channels_last",
        "--memory-format: {folder}/net.py:build has no weights and no inputs of 4 or 5 dimensions, which channels_last "
        "is for; leave --memory-format out",
    ),
    (
        "alexnet --precision bf16 --input-size 1x3x8x8",
        "--precision: alexnet does not run with --precision bf16 on [1, 3, 8, 8] on …; leave out --precision, or "
        "choose a size that it accepts and that fits into memory",
    ),
]


@pytest.mark.parametrize(("words", "line"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_typical_mistake_is_a_line_with_its_remedy_that_names_the_option(
    words: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn, ones\n"
        "def Linear(x): return nn.Linear(4, 2), ones(x)\n"
        "def build(): return nn.Linear(4, 2), ones(1, 4)\n"
        "def wrong(): return nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(3, 2))), ones(1, 4)\n"
        "def half(): return nn.Linear(4, 2).bfloat16(), ones(1, 4).bfloat16()\n"
    )
    monkeypatch.chdir(tmp_path)
    home = ["--allow-code", "--no-measure", "--home", str(tmp_path / "home")]
    with patch.object(sys, "argv", ["opcost", "profile", *words.split(), *home]), pytest.raises(UserError) as caught:
        main()
    (found,) = caught.value.lines
    assert re.fullmatch(re.escape(line.format(folder=tmp_path)).replace("…", ".*"), found)


def test_the_measuring_process_runs_it_and_a_failure_is_one_row(project: Project) -> None:
    config = project.folder / "measurements" / "failing" / "summary.yml"
    config.parent.mkdir()
    config.write_text("model_name: ../../net.py:raises\n")
    assert project.run(["measure-models"], "--allow-code", "--seconds", "0.05") == 1
    assert project.imports > 0
    database = Database(project.folder / "database")
    (row,) = database.full_model_measurements.rows()
    (failure,) = database.failures.rows()
    assert (row.operator, failure.operator) == ("file.build", "file.raises")
    assert failure.reason.startswith("../../net.py:raises raised ValueError: no good ...; ")
    assert f"{project.folder}/net.py:9 in raises" in failure.reason
    assert len(failure.reason.splitlines()) == 1


CHANGED = "net: its code has changed since it was done; count and measure it again"


def test_a_model_whose_code_has_changed_is_not_done(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_here(monkeypatch)
    config, net = project.folder / "measurements" / "net" / "summary.yml", project.folder / "net.py"
    measure = ["measure", "--seconds", "0.05", "--allow-code"]
    for command in (["count", "--allow-code"], ["filter"], measure):
        project.run(command)
    done = f"{config.read_text()}done: true\n"
    config.write_text(done)
    project.marker.unlink()
    assert project.run(["count", "--allow-code"]) == 0
    assert (project.imports, CHANGED in capsys.readouterr().err) == (0, False)
    net.write_text(net.read_text().replace("nn.Linear(4, 8)", "nn.Linear(4, 16)"))
    assert project.run(["count", "--dry-run"]) == 0
    assert capsys.readouterr().err.count(CHANGED) == 1
    with pytest.raises(UserError, match=r"net\.py has changed since it was counted; run "):
        project.run(["filter", "net"])
    # Without a pickle, the counts in the database are compared.
    (config.parent / "operators.pkl").unlink()
    assert project.run(["count", "--dry-run"]) == 0
    assert capsys.readouterr().err.count(CHANGED) == 1
    assert config.read_text() == done
    assert project.run(["count", "--allow-code"]) == 0
    assert config.read_text() == done.replace("true", "false")
    assert project.run(["filter"]) == 0
    # A load of other processes makes a row doubtful, and the exit status another.
    project.run(measure)
    rows = Database(project.folder / "database").operator_measurements.rows()
    assert {row.inputs for row in rows if row.operator.endswith("ReLU")} == {"float32[2, 8]", "float32[2, 16]"}


WITH_AN_OPERATION = """
import torch
from torch import nn
@torch.library.custom_op("net_of_{number}::project", mutates_args=())
def project(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@project.register_fake
def _(x):
    return torch.empty_like(x)
class Net(nn.Module):
    def forward(self, x):
        return project(x)
def build():
    return Net(), torch.randn(2, 4)
"""


def test_an_operation_of_a_users_file_is_measured_where_the_file_may_run(project: Project) -> None:
    (project.folder / "net.py").write_text(WITH_AN_OPERATION.replace("{number}", project.folder.name))
    assert project.run(["count"], "--allow-code") == 0
    assert project.run(["filter"]) == 0
    measure = ["measure", "--seconds", "0.05"]
    database = Database(project.folder / "database")
    assert project.run(measure) == 1
    (failure,) = database.failures.rows()
    assert "is registered by torch.library here" in failure.reason
    assert project.run(measure, "--allow-code") == 0
    (row,) = database.operator_measurements.rows()
    assert row.operator == f"torch.ops.net_of_{project.folder.name}.project"
