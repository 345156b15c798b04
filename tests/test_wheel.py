"""The wheel, by way of the source archive: an installed opcost finds the shipped rows and configs from any folder."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from repository_copy import ROOT, copy_repository

from opcost.shipped import shipped_database, shipped_measurements

BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
SHIPPED = "opcost/shipped/"
NETWORKS = ROOT / "measurements" / "networks.py"
"""The models of some configs."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source archive of a fresh clone."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(built("build_sdist", copy_repository(folder / "clone"), folder)) as archive:
        archive.extractall(folder, filter="data")
    return next(path.parent for path in folder.glob("*/PKG-INFO"))


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that pip makes of the source archive."""
    return zipfile.ZipFile(built("build_wheel", source, tmp_path_factory.mktemp("wheel")))


def built(build: str, source: Path, folder: Path) -> Path:
    command = [sys.executable, "-c", BUILD, build, str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    (path,) = (path for path in folder.iterdir() if path.is_file())
    return path


def test_the_source_archive_has_no_tests_because_they_need_the_repository(source: Path) -> None:
    assert not (source / "tests").exists()


def test_in_a_checkout_the_shipped_folders_are_the_repositorys() -> None:
    assert (shipped_database(), shipped_measurements()) == (ROOT / "database", ROOT / "measurements")


def test_the_wheel_has_all_tables_configs_whitelist_and_citation_and_no_logs_or_pages(wheel: zipfile.ZipFile) -> None:
    measurements = ROOT / "measurements"
    shipped = [
        *(ROOT / "database").glob("*.csv"),
        *(ROOT / "database").glob("*.xz"),
        *measurements.glob("*/summary.yml"),
    ]
    shipped += [measurements / "operator_whitelist.yml", NETWORKS]
    packed = {name for name in wheel.namelist() if name.startswith(SHIPPED)} - {f"{SHIPPED}__init__.py"}
    shipped += [ROOT / "CITATION.cff"]
    assert packed == {SHIPPED + str(path.relative_to(ROOT)) for path in shipped}
    assert all(wheel.read(SHIPPED + str(path.relative_to(ROOT))) == path.read_bytes() for path in shipped)


def test_the_wheel_has_every_module_of_the_package_and_nothing_else_at_the_top_level(wheel: zipfile.ZipFile) -> None:
    modules = {str(path.relative_to(ROOT)) for path in ROOT.glob("opcost/**/*.py")}
    modules.add(SHIPPED + str(NETWORKS.relative_to(ROOT)))
    assert {name for name in wheel.namelist() if name.endswith(".py")} == modules
    assert {name.partition("/")[0].partition("-")[0] for name in wheel.namelist()} == {"opcost"}


def test_an_unpacked_wheel_finds_its_own_shipped_folders(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    program = "from opcost.shipped import *; print(shipped_database(), shipped_measurements())"
    command = [sys.executable, "-c", program]
    environment = {"PYTHONPATH": str(tmp_path)}
    found = subprocess.run(command, cwd="/", env=environment, check=True, capture_output=True, text=True).stdout
    assert found.split() == [str(tmp_path / SHIPPED / name) for name in ("database", "measurements")]
