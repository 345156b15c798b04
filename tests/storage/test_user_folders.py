"""The user's own folders beside the shipped ones: where they are, and what is read and written."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from opcost.__main__ import main
from opcost.errors import UserError
from opcost.measuring.record import FailureRow
from opcost.shipped import shipped_database, shipped_measurements
from opcost.storage.configs import WHITELIST, ModelFolders, load_whitelist, set_done
from opcost.storage.data_files import CITATION, DataFolder
from opcost.storage.database import Database
from opcost.storage.files import UserFolders, user_folders
from opcost.storage.table import CsvTable

MODEL = "resnet18_32x3x32x32"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def own(base: Path) -> UserFolders:
    return UserFolders(base / "measurements", base / "database", shipped_measurements(), shipped_database())


def test_without_any_name_the_home_is_in_the_users_data(environment: dict[str, str], tmp_path: Path) -> None:
    assert user_folders(environment=environment) == own(tmp_path / ".local/share/opcost")
    environment["XDG_DATA_HOME"] = f"{tmp_path}/data"
    assert user_folders(environment=environment) == own(tmp_path / "data/opcost")
    environment["XDG_DATA_HOME"] = "relative"
    assert user_folders(environment=environment) == own(tmp_path / ".local/share/opcost")


def test_the_option_comes_before_the_variable_and_the_variable_before_the_file(
    environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / ".config/opcost/home"
    file.parent.mkdir(parents=True)
    file.write_text(f"{tmp_path}/in_file\n")
    assert user_folders(environment=environment) == own(tmp_path / "in_file")
    environment["OPCOST_HOME"] = f"{tmp_path}/in_variable"
    assert user_folders(environment=environment) == own(tmp_path / "in_variable")
    assert user_folders(Path("named"), environment=environment) == own(Path("named"))
    environment["OPCOST_HOME"] = "~nobodyuser/opcost"
    with pytest.raises(UserError, match=r"^~nobodyuser/opcost: no home of ~nobodyuser is known"):
        user_folders(environment=environment)


@pytest.mark.parametrize("text", ["", "relative", "/a\n/b\n", "home: /a\n"])
def test_a_file_that_is_not_one_absolute_path_is_a_mistake(
    environment: dict[str, str], tmp_path: Path, text: str
) -> None:
    file = tmp_path / ".config/opcost/home"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(UserError, match=r"opcost/home: not one line with an absolute path; write the path"):
        user_folders(environment=environment)


def test_a_named_folder_is_the_only_one_of_its_kind(environment: dict[str, str], tmp_path: Path) -> None:
    found = user_folders(database=Path("mine"), environment=environment)
    assert (found.database, found.shipped_database) == (Path("mine"), None)
    assert found.shipped_measurements == shipped_measurements()
    found = user_folders(measurements=Path("mine"), environment=environment)
    assert (found.measurements, found.shipped_measurements) == (Path("mine"), None)


def test_the_repository_as_home_is_read_once(environment: dict[str, str]) -> None:
    found = user_folders(shipped_database().parent, environment=environment)
    assert (found.shipped_measurements, found.shipped_database) == (None, None)


def test_shipped_folders_that_are_not_there_are_not_read(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    shutil.copytree(shipped_measurements() / MODEL, home / "measurements" / "mine")
    shutil.copy(shipped_measurements() / WHITELIST, home / "measurements")
    (home / "database").mkdir()
    # As in a copy of the package alone, whose links lead nowhere.
    monkeypatch.setattr("opcost.shipped.__file__", str(tmp_path / "copy" / "opcost" / "shipped" / "__init__.py"))
    found = user_folders(home, environment=environment)
    assert found == UserFolders(home / "measurements", home / "database")
    assert [config.name for config in ModelFolders.of(found).configs([])] == ["mine"]
    monkeypatch.setattr("sys.argv", ["opcost", "check", "--home", str(home)])
    assert main() == 0
    exported = DataFolder(tmp_path / "data")
    exported.write([], [], "", "")
    assert not (exported.folder / CITATION).exists()


def test_own_configs_are_read_beside_the_shipped_ones_and_replace_them(tmp_path: Path) -> None:
    folders = ModelFolders(tmp_path / "measurements", shipped_measurements())
    shipped = folders.configs([])
    mine = tmp_path / "measurements" / "mine" / "summary.yml"
    mine.parent.mkdir(parents=True)
    shutil.copy(shipped_measurements() / MODEL / "summary.yml", mine)
    changed = folders.own_copy(folders.path_of(MODEL))
    changed.write_text(changed.read_text().replace("[32, 3, 32, 32]", "[16, 3, 32, 32]"))
    configs = {config.name: config for config in folders.configs([])}
    assert len(configs) == len(shipped) + 1
    assert (configs["mine"].path, configs[MODEL].input_size) == (mine, (16, 3, 32, 32))
    assert all(config.folder.is_relative_to(tmp_path / "measurements") for config in configs.values())


@pytest.mark.parametrize("name", [MODEL, f"{shipped_measurements()}/{MODEL}", f"{shipped_measurements()}/{MODEL}/"])
def test_a_shipped_config_is_found_by_name_and_by_path(name: str, tmp_path: Path) -> None:
    (config,) = ModelFolders(tmp_path / "none", shipped_measurements()).configs([name])
    assert config.name == MODEL


def test_a_file_that_the_user_has_written_meanwhile_is_kept(tmp_path: Path) -> None:
    folders = ModelFolders(tmp_path / "measurements", shipped_measurements())
    path = folders.path_of(MODEL)
    mine = folders.own / MODEL / "summary.yml"
    mine.parent.mkdir(parents=True)
    mine.write_text("model_name: resnet18\ninput_size: [32, 3, 32, 32]\nprecision: fp32\n")
    assert folders.own_copy(path) == mine
    assert "fp32" in mine.read_text()


def test_rows_that_are_shipped_later_count_once(tmp_path: Path) -> None:
    shipped, both = Database(shipped_database()), Database(tmp_path / "database", shipped_database())
    own = Database(tmp_path / "database")
    assert own.calls_in_chains.append_missing(shipped.calls_in_chains.rows()) > 0
    assert both.calls_in_chains.rows() == shipped.calls_in_chains.rows()


def test_a_link_to_a_shipped_table_is_not_written(tmp_path: Path) -> None:
    both = Database(tmp_path / "database", shipped_database())
    table, shipped = both.kernel_times, Database(shipped_database()).kernel_times
    table.path.parent.mkdir()
    table.path.symlink_to(shipped.path)
    size = shipped.path.stat().st_size
    with pytest.raises(UserError, match="a link to the shipped table, which is only read; delete the link"):
        table.append(shipped.rows()[0])
    assert shipped.path.stat().st_size == size


def test_setting_done_changes_a_copy_of_a_shipped_config(tmp_path: Path) -> None:
    folders = ModelFolders(tmp_path / "measurements", shipped_measurements())
    path = folders.path_of(MODEL)
    before = path.read_bytes()
    done = folders.own_copy(path)
    done.write_bytes(before.replace(b"done: true", b"done: false"))
    assert set_done(done, MODEL)
    (config,) = folders.configs([MODEL])
    assert (config.path, config.done, path.read_bytes()) == (done, True, before)


def test_an_own_whitelist_replaces_the_shipped_one(tmp_path: Path) -> None:
    folders = ModelFolders(tmp_path, shipped_measurements())
    assert folders.whitelist.parent == shipped_measurements()
    folders.own_copy(folders.whitelist).write_text("operators: [ReLU]\n")
    assert load_whitelist(folders.whitelist) == ("ReLU",)


def test_rows_are_read_from_both_and_written_to_the_users_own(tmp_path: Path) -> None:
    shipped, both = Database(shipped_database()), Database(tmp_path / "database", shipped_database())
    rows = shipped.full_model_measurements.rows()
    size = shipped.full_model_measurements.path.stat().st_size
    assert both.full_model_measurements.rows() == rows
    mine = replace(rows[0], measurement=replace(rows[0].measurement, time_s=1.0))
    both.full_model_measurements.append(mine)
    assert both.full_model_measurements.rows() == [*rows, mine]
    assert Database(tmp_path / "database").full_model_measurements.rows() == [mine]
    assert both.full_model_measurements.append_missing(rows) == 0
    compared = shipped.sum_vs_full.rows()
    both.sum_vs_full.replace_rows(lambda known: [*known, compared[0]])
    assert Database(tmp_path / "database").sum_vs_full.rows() == compared[:1]
    assert shipped.full_model_measurements.path.stat().st_size == size


def test_a_table_that_does_not_ship_takes_rows(tmp_path: Path) -> None:
    table = CsvTable(tmp_path / "own.csv", FailureRow, tmp_path / "missing.csv")
    for _ in range(2):
        table.prepare()
    assert table.rows() == []
