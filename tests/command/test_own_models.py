"""A user's model after its profile: in the user's home, beside the shipped models."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from opcost.__main__ import main
from opcost.errors import UserError
from opcost.measuring import procedure
from opcost.measuring.protocol import RETRIES
from opcost.running import planned_bench
from opcost.stages.wanted_model import Proposals
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database

NET = """
from torch import nn, randn
import layers
def build(channels=4):
    return nn.Sequential(nn.Linear(16, channels), layers.last()), randn(8, 16)
"""


MEASURED = ("--device", "cpu", "--seconds", "0.01")
"""The options of a profile that leaves a config and counts."""


class Home:
    """A folder with a user's file, a module beside it, and a home."""

    def __init__(self, folder: Path) -> None:
        self.home, self.net, self.layers = folder / "home", folder / "net.py", folder / "layers.py"
        self.net.write_text(NET)
        self.layers.write_text("from torch import nn\ndef last():\n    return nn.ReLU()\n")

    def run(self, *words: str) -> int:
        with patch.object(sys, "argv", ["opcost", *words, "--home", str(self.home)]):
            return main()

    def profile(self, *options: str) -> int:
        return self.run("profile", "net.py:build", "--allow-code", *(options or MEASURED))

    def paste(self, proposed: str, *options: str) -> int:
        """Run a command that a message proposes."""
        words = shlex.split(proposed)
        with patch.object(sys, "argv", ["opcost", *words[1:], *options]):
            return main()

    def proposals(self) -> Proposals:
        return Proposals.of(ModelFolders(self.home / "measurements").configs([]))

    def config(self, name: str) -> Path:
        """The config of a model, in a folder of its own."""
        path = self.home / "measurements" / name / "summary.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure in this process, once and with hardly any warm-up."""
    monkeypatch.setattr(planned_bench, "open_child_bench", planned_bench.open_local_bench)
    monkeypatch.setattr(procedure, "RETRIES", replace(RETRIES, at_once=1))
    monkeypatch.setattr("opcost.measuring.protocol.CPU_WARM_UP_S", 0.01)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.chdir(tmp_path)
    return Home(tmp_path)


@pytest.fixture
def changed(home: Home, capsys: pytest.CaptureFixture[str]) -> Home:
    """The home after a profile and an edit."""
    assert home.profile() == 0
    home.layers.write_text(f"{home.layers.read_text()}# edited\n")
    capsys.readouterr()
    return home


CHANGED = "net_build/operators.pkl: net.py or a file that it imports has changed since it was counted; run "


def test_a_model_whose_code_has_changed_is_left_out_and_the_others_are_shown(
    changed: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert changed.run("show", "--top", "1") == 0
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith(f"left out: {changed.home}/measurements/{CHANGED}")
    assert "NVIDIA H200" in printed.out
    with pytest.raises(UserError) as caught:
        changed.run("show", "net_build")
    (line,) = caught.value.lines
    assert line.startswith(f"{changed.home}/measurements/{CHANGED}")


def test_a_report_names_each_model_that_is_left_out_once(changed: Home, capsys: pytest.CaptureFixture[str]) -> None:
    broken = changed.config("broken")
    broken.write_text("model_name: [\n")
    report = changed.net.with_name("z.html")
    assert changed.run("report", "--output", str(report)) == 0
    assert report.exists()
    code, config = sorted(capsys.readouterr().err.splitlines(), key=lambda line: "summary.yml" in line)
    assert code.startswith(f"left out: {changed.home}/measurements/{CHANGED}")
    assert config.startswith(f"left out: {broken}:")


@pytest.mark.parametrize(("name", "added"), [("net.py", "# edited\n"), ("summary.yml", "seed: 1\n")])
def test_a_file_that_has_changed_is_named_alone(name: str, added: str, home: Home) -> None:
    home.net.write_text(NET.replace("import layers", "").replace("layers.last()", "nn.ReLU()"))
    assert home.profile() == 0
    path = home.net if name == "net.py" else home.config("net_build")
    path.write_text(f"{path.read_text()}{added}")
    with pytest.raises(UserError, match=rf"operators\.pkl: {name} has changed since it was counted; run "):
        home.run("show", "net_build")


# The config of a profile


def test_a_dry_run_names_the_config_that_the_profile_then_has(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    def name(*options: str) -> str:
        capsys.readouterr()
        assert home.profile(*MEASURED, "--json", *options) == 0
        (model,) = json.loads(capsys.readouterr().out)["models"]
        return str(model["name"])

    empty = home.config("net_build_2").parent
    for argument, expected in [("channels=4", "net_build"), ("channels=8", "net_build_3"), ("channels=4", "net_build")]:
        planned = name("--argument", argument, "--dry-run")
        assert (planned, name("--argument", argument)) == (expected, expected)
    assert list(empty.iterdir()) == []
    with pytest.raises(UserError, match=r"^MODEL: .*/nat\.py: no such file; "):
        home.run("profile", "nat.py:build", "--allow-code", "--no-measure", "--dry-run")


# Beside other models, all that are not done


def test_a_count_of_all_leaves_users_code_out_and_names_the_command_that_counts_it(
    home: Home, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for name, model in [("a", "../../../net.py:build"), ("b", "squeezenet1_1"), ("c", "../../../net.py:build")]:
        home.config(name).write_text(f"model_name: {model}\ninput_size: [1, 3, 32, 32]\n")
    folders = ["--measurements", str(home.home / "measurements"), "--database", str(home.home / "database")]
    with patch.object(sys, "argv", ["opcost", "count", "--meta", "--device", "cpu", *folders]):
        assert main() == 2
    assert "b " in capsys.readouterr().out
    (line,) = [line for line in caplog.messages if "left out" in line]
    assert line.startswith("left out: a, c: Python code of yours; if you trust it, run ")
    assert f"opcost count a c --allow-code {shlex.join(folders)}" in line
    with patch.object(sys, "argv", ["opcost", "count", "--meta", "--json", "--device", "cpu", *folders]):
        assert main() == 2
    reports = json.loads(capsys.readouterr().out)
    assert {report["name"]: "reason" in report for report in reports} == {"a": True, "b": False, "c": True}
    with patch.object(sys, "argv", ["opcost", "count", "a", "b", *folders]), pytest.raises(UserError) as caught:
        main()
    assert len(caught.value.lines) == 1


# Commands that messages propose run when they are pasted


def test_a_proposed_count_may_run_the_code(changed: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError) as caught:
        changed.run("show", "net_build")
    proposed = str(caught.value).partition("; run ")[2]
    assert proposed.endswith(f"opcost count net_build --allow-code --home {changed.home}")
    assert changed.paste(proposed, "--device", "cpu") == 0
    assert changed.run("compare", "net_build", "--dry-run") == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert f"opcost measure-models net_build --allow-code --home {changed.home}" in printed


def test_a_model_without_counts_is_counted_with_the_option(home: Home) -> None:
    assert home.profile() == 0
    (home.config("net_build").parent / "operators.pkl").unlink()
    (home.home / "database" / "model_operators.csv").unlink()
    with pytest.raises(
        UserError, match=r"run .*opcost count net_build --allow-code --home .* and .*opcost filter net_"
    ):
        home.run("measure", "net_build", "--device", "cpu")


@pytest.fixture
def running(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The home of the program that is running, as in ``opcost show --home``."""
    monkeypatch.setattr(sys, "argv", ["opcost", "show", "--home", str(home.home)])
    return home


@pytest.mark.parametrize("options", [(), ("channels=8",)], ids=str)
def test_a_model_of_a_profile_is_measured_by_the_same_profile(
    running: Home, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word for option in options for word in ("--argument", option)]
    assert running.profile(*MEASURED, *given) == 0
    proposed = running.proposals().measuring(["net_build"], "--device", "cpu", "--seconds", "1", "--same-board")
    words = [*given, "--allow-code", "--device", "cpu", "--seconds", "1", "--home", str(running.home)]
    assert proposed.endswith(f"opcost profile {shlex.join(['net.py:build', *words])}")
    capsys.readouterr()
    assert running.paste(proposed, "--dry-run") == 0
    assert "net_build" in capsys.readouterr().out
    assert running.proposals().measuring(["net_build"]).count(" --seconds 30 ") == 1


def test_a_model_that_block_1_knows_is_measured_by_block_2(running: Home) -> None:
    assert running.profile() == 0
    assert running.run("filter", "net_build") == 0
    proposed = running.proposals().measuring(["net_build"], "--device", "cpu")
    assert proposed.endswith(f"opcost measure net_build --device cpu --allow-code --home {running.home}")
    assert " profile " not in proposed
    assert running.paste(proposed, "--dry-run") == 0


def test_a_counted_model_that_no_profile_describes_is_filtered_first(running: Home) -> None:
    path = running.config("own")
    path.write_text(f"model_name: {running.net}:build\nseed: 3\n")
    assert running.run("count", "own", "--allow-code", "--device", "cpu") == 0
    first, second = running.proposals().measuring(["own"], "--device", "cpu").split(" && ")
    assert running.paste(first) == 0
    assert running.paste(second, "--dry-run") == 0


# A user's folders have any names


@pytest.mark.parametrize("folder", ["My Project", "a\tb: c #d '\"e\\", "x" * 100 + "/" + "y" * 150], ids=len)
def test_a_model_in_a_folder_of_any_name_is_profiled(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / folder)
    home = Home(tmp_path / folder)
    assert home.profile() == 0
    assert home.profile(*MEASURED, "--dry-run") == 0
    assert [path.name for path in (home.home / "measurements").iterdir()] == ["net_build"]


def test_a_folder_whose_name_cannot_be_shown_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new\nline").mkdir()
    monkeypatch.chdir(tmp_path / "new\nline")
    home = Home(tmp_path / "new\nline")
    with pytest.raises(UserError, match=r"^MODEL: '.*new\\nline/net.py' has characters that cannot be shown; rename "):
        home.profile()
    assert not (home.home / "measurements").exists()


def test_a_config_that_could_not_be_read_is_not_left_behind(home: Home) -> None:
    home.net.write_text(NET.replace("channels=4", "channels=4, depth=1"))
    with pytest.raises(UserError, match=r"^not written, because it could not be read: .*larger than 64 kB"):
        # Each can be read, both together cannot.
        home.profile(*MEASURED, *(f"--argument={name}='{'x' * 40_000}'" for name in ("channels", "depth")))
    assert not (home.home / "measurements" / "net_build").exists()


# Looking leaves nothing behind, and what a profile leaves can be forgotten


def test_looking_leaves_the_home_as_it_was(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    def looked() -> None:
        assert home.profile("--no-measure") == 0
        assert home.run("profile", "squeezenet1_1", "1x3x64x64", "--no-measure") == 0
        assert home.run("layers", "net.py:build", "--allow-code") == 0
        assert home.run("show", "squeezenet1_1") == 0
        assert home.run("predict", "squeezenet1_1", "--batch", "32", "--device", "H200") == 0

    looked()
    assert "Nothing was measured." in capsys.readouterr().out
    assert not home.home.exists()
    assert home.profile() == 0

    def times_ns() -> dict[Path, int]:
        # The log of the profile goes on in its process.
        return {path: path.stat().st_mtime_ns for path in home.home.rglob("*") if path.suffix != ".log"}

    before = times_ns()
    looked()
    assert times_ns() == before


def test_a_profile_that_does_not_measure_writes_the_report_that_is_named(home: Home) -> None:
    report = home.net.with_name("named.html")
    assert home.run("profile", "squeezenet1_1", "--no-measure", "--report", str(report)) == 0
    assert report.exists()
    assert not home.home.exists()


def test_a_model_is_forgotten_with_what_its_profile_left(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert home.profile() == 0
    folder = home.config("net_build").parent
    (folder / "notes.txt").write_text("mine")
    other = home.config("other")
    other.write_text("model_name: resnet18\ninput_size: [1, 3, 32, 32]\n")
    files, rows = sorted(folder.iterdir()), Database(home.home / "database")
    wholes, operators = rows.full_model_measurements.rows(), rows.operator_measurements.rows()
    assert (len(wholes), len(operators)) == (1, 2)
    capsys.readouterr()
    assert home.run("forget", "net_build", "--dry-run") == 0
    printed = capsys.readouterr().out
    assert all(f"{path}" in printed for path in files)
    assert "would remove" in printed
    assert "--rows removes them, too" in printed
    assert sorted(folder.iterdir()) == files
    # Without the option no row is lost.
    assert home.run("forget", "net_build") == 0
    assert list(folder.iterdir()) == [folder / "notes.txt"]
    assert rows.full_model_measurements.rows() == wholes
    # The same model finds its rows again.
    (folder / "notes.txt").unlink()
    folder.rmdir()
    assert home.profile() == 0
    # A disturbed run is measured again.
    assert rows.full_model_measurements.rows()[: len(wholes)] == wholes
    assert home.run("forget", "net_build", "--rows") == 0
    assert not folder.exists()
    assert other.exists()
    for table in (rows.full_model_measurements, rows.model_operators, rows.sum_vs_full):
        assert table.rows() == []
    assert rows.operator_measurements.rows()[: len(operators)] == operators
    with pytest.raises(UserError, match="no folder matches 'net_build'"):
        home.run("forget", "net_build")


def test_only_what_a_profile_writes_is_forgotten(home: Home) -> None:
    by_hand, listed = home.config("by_hand"), home.config("listed")
    by_hand.write_text("model_name: resnet18\ninput_size: [1, 3, 32, 32]\nseed: 3\n")
    listed.write_text("model_name: resnet18\ninput_size: [[1, 3, 32, 32], [2, 3, 32, 32]]\n")
    plain = home.config("plain")
    plain.write_text("model_name: resnet18\ninput_size: [1, 3, 32, 32]\n")
    with pytest.raises(UserError) as caught:
        home.run("forget", "plain", "by_hand", "listed")
    assert {line.partition(":")[0] for line in caught.value.lines} == {str(by_hand), str(listed)}
    assert plain.exists()
    # Shipped models are no part of the home.
    with pytest.raises(UserError, match="no folder matches 'swin_t'"):
        home.run("forget", "swin_t")
