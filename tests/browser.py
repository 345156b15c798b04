"""A Chromium that is installed here, driven by playwright, which brings none of its own to these tests."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
VARIABLE = "OPCOST_CHROMIUM"
"""Names a browser that is not on the PATH."""

MISSING = f"no Chromium on the PATH ({', '.join(NAMES)}), none named by {VARIABLE}"


def find_chromium() -> str | None:
    """Return the path of a Chromium, None if there is none."""
    named = os.environ.get(VARIABLE)
    return named or next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a headless Chromium; what it may load are the tests' own files, so that it needs no sandbox."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class OpenPage:
    """A page with what it asked for and complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Browser, path: Path, width: int = 1280, scheme: str = "light") -> Iterator[OpenPage]:
    """Open a file; its requests, and what it writes to the console, are kept."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    seen = OpenPage(context.new_page())
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.on("console", lambda message: seen.complaints.append(message.text))
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.goto(path.as_uri())
    yield seen
    context.close()
