"""The hook of MkDocs: pages stay where they are, in the order of docs/README.md, with the files that they link to."""

import os
import re
from pathlib import Path

from markdown import Extension, Markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Link, Navigation

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "README.md"
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[!.]*/README.md")})
LINKED_FILE = re.compile(r"\]\(([^)\s#:]+)")
REPORT = "report.html"
"""The report of the shipped database, which is beside the pages in the site."""


class TwoSpaces(Extension):
    """A list within a list is indented by two spaces, as forges read it; Python-Markdown wants four."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.tab_length = 2
        md.build_parser()


def in_site(page: Path, link: str) -> str:
    """Return where a page's link leads to, from the top of the repository, which is that of the site."""
    return os.path.relpath(page.parent / link, ROOT)


def on_config(config: MkDocsConfig) -> None:
    rows = re.findall(r"^\| \[(.*?)\]\((.*?)\)", INDEX.read_text(encoding="utf-8"), re.MULTILINE)
    config.nav = [{title: _with_pages_beside(in_site(INDEX, link))} for title, link in rows]
    config.markdown_extensions.insert(0, TwoSpaces())  # before those that add to the parser


def _with_pages_beside(page: str) -> str | list[str]:
    """Return an index with the pages of its folder, and any other page, or that of the repository, as it is."""
    folder, name = os.path.split(page)
    others = sorted(path.name for path in (ROOT / folder).glob("*.md") if path.name != name)
    return [page, *(f"{folder}/{other}" for other in others)] if folder and name == INDEX.name else page


def on_files(files: Files, config: MkDocsConfig) -> None:
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    linked = {in_site(page, link) for page in PAGES for link in LINKED_FILE.findall(page.read_text(encoding="utf-8"))}
    names = {str(page.relative_to(ROOT)) for page in PAGES} | {name for name in linked if (ROOT / name).is_file()}
    for name in sorted({*names, *map(str, config.extra_css)}):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    nav.items.append(Link("Report of the shipped rows", REPORT))
