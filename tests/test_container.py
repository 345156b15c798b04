"""The container file is built where a builder and its base image are at hand, and its opcost shows the shipped rows."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from repository_copy import copy_repository

pytestmark = pytest.mark.container
BASE = os.environ.get("OPCOST_BASE_IMAGE", "docker.io/library/python:3.12-slim")
"""The base image: another one with pip where no registry of images can be reached."""


def run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=500, check=False)


@pytest.fixture(scope="module")
def builder() -> str:
    """The first builder that runs and has, or gets, the base image."""
    names = [name for name in ("docker", "podman") if shutil.which(name) and run(name, "info").returncode == 0]
    for name in names:
        if run(name, "image", "inspect", BASE).returncode == 0 or run(name, "pull", BASE).returncode == 0:
            return name
    pytest.skip(f"neither docker nor podman runs here and has {BASE}")


def test_a_container_without_torch_shows_the_shipped_rows(builder: str, tmp_path: Path) -> None:
    project, tag = copy_repository(tmp_path), "opcost-of-tests"
    made = run(
        *(builder, "build", "--file", "Containerfile", "--build-arg", f"BASE={BASE}", "--tag", tag, "."), cwd=project
    )
    assert made.returncode == 0, made.stdout + made.stderr
    try:
        shown = run(builder, "run", "--rm", "--network", "none", tag, "show", "resnet50", "swin_t", "--device", "H200")
        assert shown.returncode == 0, shown.stderr
        assert "mJ/sample" in shown.stdout
        counted = run(builder, "run", "--rm", "--network", "none", tag, "count", "resnet50")
        assert (counted.returncode, "torch is not installed" in counted.stderr) == (2, True)
    finally:
        run(builder, "rmi", "--force", tag)
