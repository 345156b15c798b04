"""A user's code is identified by the text of its file and of what it imports beside it. Nothing is executed."""

import pickle
import shutil
from pathlib import Path

import pytest

from opcost.operators.model_names import ModelName, UserCode, is_own
from opcost.storage.code_files import find_code

RAISES = "raise RuntimeError('this file was executed')\n"


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    """A file, a module and a package beside it, and files that it does not import."""
    folder = tmp_path / "nets"
    (folder / "package" / "inner").mkdir(parents=True)
    texts = {
        "net.py": "import torch, layers\nfrom package.inner import deep as d\ndef build():\n    import late\n",
        "layers.py": "import net\n",
        "late.py": "",
        "package/__init__.py": "from . import near\n",
        "package/near.py": "",
        "package/inner/__init__.py": "from ..sideways import x\n",
        "package/inner/deep.py": "",
        "package/sideways.py": "",
        "package/unused.py": "",
        "other.py": "",
    }
    for name, text in texts.items():
        (folder / name).write_text(text + RAISES)
    return folder


def code_of(folder: Path, name: str = "net.py:build") -> UserCode:
    return find_code(ModelName.of(name), folder)


def test_the_fingerprint_is_of_the_text_and_not_of_the_place(nets: Path) -> None:
    before = code_of(nets).parameters
    moved = Path(shutil.move(nets, nets.with_name("elsewhere")))
    assert code_of(moved).parameters == before
    assert dict(before)["code"] == "net.py"
    assert len(str(dict(before)["sha256"])) == 16


@pytest.mark.parametrize(
    "name",
    "net.py layers.py late.py package/__init__.py package/near.py package/inner/deep.py package/sideways.py".split(),
)
def test_the_fingerprint_changes_with_each_file_that_is_imported(nets: Path, name: str) -> None:
    before = code_of(nets).parameters
    (nets / name).write_text("x = 1\n" + (nets / name).read_text())
    assert code_of(nets).parameters != before


@pytest.mark.parametrize("name", ["other.py", "package/unused.py", "notes.txt"])
def test_the_fingerprint_does_not_change_with_other_files(nets: Path, name: str) -> None:
    before = code_of(nets).parameters
    (nets / name).write_text("x = 1\n")
    assert code_of(nets).parameters == before


def test_the_fingerprint_of_a_running_command_stays(nets: Path) -> None:
    code = code_of(nets)
    before = code.parameters
    (nets / "net.py").write_text("def build(): pass\n")
    assert code.parameters == pickle.loads(pickle.dumps(code)).parameters == before
    assert code_of(nets).parameters != before


def test_a_module_has_the_fingerprint_of_its_packages_too(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(nets)
    code = code_of(Path("/"), "package.inner.deep:build")
    before = code.parameters
    assert (code.path, code.root) == (f"{nets}/package/inner/deep.py", str(nets))
    assert dict(before)["code"] == "package.inner.deep"
    (nets / "package" / "__init__.py").write_text("")
    assert code_of(Path("/"), "package.inner.deep:build").parameters != before


def test_an_installed_package_is_its_own_code_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "site-packages"
    for name, text in (("mine/net.py", "import mine.layers, theirs"), ("mine/layers.py", ""), ("theirs.py", "")):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    monkeypatch.syspath_prepend(place)
    code = code_of(tmp_path, "mine.net:build")
    assert dict(code.modules()) == {"mine.layers": f"{place}/mine/layers.py"}
    assert not code.is_own(f"{place}/theirs.py")
    assert not is_own(f"{place}/theirs.py", str(tmp_path), f"{tmp_path}/net.py")
