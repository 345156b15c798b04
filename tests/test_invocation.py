"""Commands in messages: a user can paste them into the same shell."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from opcost.invocation import command, command_line, pip_install, program_name


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment in the current folder, not on the PATH, whose opcost is running."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "opcost"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setattr(sys, "argv", [str(programs / "opcost"), "show"])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return programs


def test_a_program_below_the_current_folder_has_its_relative_path(environment: Path) -> None:
    assert command("show", "resnet*") == ".venv/bin/opcost show 'resnet*'"
    assert pip_install("opcost[torch]") == ".venv/bin/python -m pip install 'opcost[torch]'"


@pytest.mark.parametrize("options", [["--database", "my rows", "--home=h"], ["--measurements", "m"]])
def test_a_command_has_the_folders_of_the_running_program(
    environment: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(environment / "opcost"), "show", *options, "--sort", "time"])
    assert command("measure", "swin_t") == f".venv/bin/opcost measure swin_t {shlex.join(options)}"
    assert ("--measurements" in command("qualify")) is False
    monkeypatch.setattr(sys, "argv", ["notebook.py", *options])
    assert command("measure", "swin_t") == ".venv/bin/opcost measure swin_t"


def test_a_program_has_its_name_if_the_shell_finds_it_and_its_whole_path_elsewhere(
    environment: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "opcost").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{other}:/usr/bin:/bin")
    assert command("show") == ".venv/bin/opcost show", "that of another environment is not taken for this one"
    (other / "opcost").unlink()
    (other / "opcost").symlink_to(environment / "opcost")
    assert command("show") == "opcost show", "pipx and uv link to it"
    monkeypatch.setenv("PATH", f"{environment}:/usr/bin:/bin")
    assert (command("show"), pip_install("x")) == ("opcost show", "python -m pip install x")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(other)
    assert command("show") == f"{environment}/opcost show"


def test_packages_are_installed_by_what_made_the_environment(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)  # as in the environments of uv and pipx
    assert pip_install("opcost[torch]") == "uv pip install --python .venv/bin/python 'opcost[torch]'"
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    (tmp_path / ".venv" / "pipx_metadata.json").touch()
    assert pip_install("x") == "pipx inject .venv x"


def test_without_the_program_python_runs_the_package(environment: Path) -> None:
    (environment / "opcost").unlink()
    assert command("show") == ".venv/bin/python -m opcost show"


def test_a_scripts_messages_name_commands_of_opcost(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["../general_pipeline_block1.py", "tiny", "--home", "h"])
    assert command("verify kernels", "tiny") == ".venv/bin/opcost verify kernels tiny --home h"
    assert (command_line(), program_name()) == (
        "python general_pipeline_block1.py tiny --home h",
        "general_pipeline_block1",
    )


@pytest.mark.parametrize("argv0", ["/x/bin/opcost", "/x/opcost/__main__.py"])
def test_people_read_the_command_without_paths(argv0: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [argv0, "show", "resnet*"])
    assert (command_line(), program_name()) == ("opcost show 'resnet*'", "opcost")


@pytest.mark.parametrize("name", ["x; touch PWNED #", "a b", "$(id)", "`id`", "it's", '"', "a&&b", "*", "~", "!!"])
def test_a_shell_takes_a_name_as_one_word(environment: Path, name: str) -> None:
    line = f"printf '%s\\n' {command('show', name)}"
    printed = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [".venv/bin/opcost", "show", name]
    assert not list(Path().glob("PWNED*"))


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\nb", "it's\t1", "\u202eb\\", "\udcffF", "é\xa0"])
def test_characters_that_are_not_shown_are_escapes_that_a_shell_reads(environment: Path, name: str) -> None:
    shown = command("show", name)
    assert shown.isprintable()
    printed = subprocess.run(["bash", "-c", f"printf '%s\\0' {shown}"], capture_output=True, check=True).stdout
    assert list(map(os.fsdecode, printed.split(b"\0"))) == [".venv/bin/opcost", "show", name, ""]


def test_a_command_that_runs_a_users_code_has_the_option_for_it() -> None:
    assert command("count", "net", has_code=True) == f"{command('count', 'net')} --allow-code"
    assert command("filter", "net", has_code=True) == command("filter", "net")
