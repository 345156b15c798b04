"""Completion in shells by argcomplete's protocol, and that it needs neither torch nor pandas."""

import os
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from opcost.command import completion
from opcost.shipped import shipped_database

FOLDERS = {"home": None, "measurements": None, "database": None}


def test_models_are_those_of_folders_and_published_ones(tmp_path: Path) -> None:
    (tmp_path / "mine_8x3x32x32").mkdir()
    (tmp_path / "operator_whitelist.yml").touch()
    found = completion.models(Namespace(**{**FOLDERS, "measurements": tmp_path}))
    assert {"mine_8x3x32x32", "mine", "resnet50", "llama-3.2-1b"} <= {*found}
    assert not {"operator_whitelist.yml", "resnet50_32x3x224x224"} & {*found}
    assert "resnet50_32x3x224x224" in completion.models(Namespace(**FOLDERS))


def test_devices_are_those_with_a_whole_and_a_damaged_table_has_none(tmp_path: Path) -> None:
    shutil.copy(shipped_database() / completion.WHOLES, tmp_path)
    arguments = Namespace(**{**FOLDERS, "database": tmp_path})
    assert {"cpu", "cuda", "NVIDIA H200", "NVIDIA H100 80GB HBM3"} <= {*completion.devices(arguments)}
    (tmp_path / completion.WHOLES).write_bytes(b"\xff\n")
    assert completion.devices(arguments) == ["cpu", "cuda"]
    (tmp_path / completion.WHOLES).unlink()
    assert completion.devices(arguments) == ["cpu", "cuda"]


def completed(line: str) -> list[str]:
    """Return what a shell is offered at the end of a line, as it asks for it: on descriptor 8."""
    text = "import sys; from opcost.command.program import main; sys.argv = ['opcost']; main()"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    read, write = os.pipe()
    # argcomplete writes to descriptor 8.
    shell = f"exec 8>&{write} 9>/dev/null; exec '{sys.executable}' -c \"$0\""
    subprocess.run(["bash", "-c", shell, text], env=os.environ | asked, pass_fds=[write], check=False)
    os.close(write)
    with open(read, encoding="utf-8") as answer:
        return answer.read().split("\n")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("opcost sho", "show "),
        ("opcost show resnet50_32x3x224x224_b", "resnet50_32x3x224x224_bf16"),
        ("opcost predict vit_b_16 --device c", "cuda"),
        ("opcost show --format m", "markdown "),
    ],
)
def test_a_shell_is_offered_commands_models_devices_and_choices(line: str, offered: str) -> None:
    pytest.importorskip("argcomplete")
    assert offered in completed(line)


def test_nothing_heavy_is_imported_for_an_answer() -> None:
    script = (
        "import sys; from argparse import Namespace; from opcost.command import completion, program\n"
        "empty = Namespace(home=None, measurements=None, database=None)\n"
        "completion.models(empty), completion.devices(empty)\n"
        "print({'torch', 'pandas', 'numpy', 'rich', 'pydantic'} & {*sys.modules})"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "set()\n"
    )
