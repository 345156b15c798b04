"""The site that `make site` makes: all pages in the order of the index, lists as forges read them, no broken link."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from repository_copy import copy_repository

pytest.importorskip("material", reason="mkdocs-material is not installed: pip install '.[site]'")


def build(project: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_repository(tmp_path_factory.mktemp("project"))


def test_the_site_has_all_pages_the_report_and_a_search(project: Path) -> None:
    result = build(project)
    assert result.returncode == 0, result.stderr
    site = project / "build" / "site"
    index = re.findall(r"^\| \[(.*?)\]", (project / "docs" / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    home = (site / "index.html").read_text(encoding="utf-8")
    entries = re.findall(r'md-nav__link[^>]*>\s*<span class="md-ellipsis">\s*(.*?)\s*<', home)
    named = [*index, "Report of the shipped rows"]
    assert [*dict.fromkeys(entry for entry in entries if entry in named)] == named
    for page in (project / "docs").rglob("*.md"):
        made = (
            page.relative_to(project).with_suffix("") if page.name != "README.md" else page.parent.relative_to(project)
        )
        assert (site / made / "index.html").is_file(), page
    assert "https://" not in "".join(re.findall(r"<(?:script|link)[^>]*>", home)), "a page asks no other host"
    usage = (site / "docs" / "usage" / "index.html").read_text(encoding="utf-8")
    assert re.search(r"<li><strong>show</strong>[^<]*<ul>\s*<li><code>NAME</code>", usage), (
        "options are below their command"
    )
    assert (site / "search" / "search_index.json").stat().st_size > 100_000


@pytest.mark.parametrize("link", ["nowhere.md", "usage.md#nowhere"])
def test_a_broken_link_is_an_error(project: Path, link: str) -> None:
    page = project / "docs" / "sweeps.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(f"{text}\n[broken]({link})\n", encoding="utf-8")
    result = build(project)
    page.write_text(text, encoding="utf-8")
    assert result.returncode == 1
    assert link.rpartition("#")[2] in result.stderr
