"""The report of the committed database in a browser: sorted, searched, filtered, chosen from; it sends no request."""

import csv
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm_python
from browser import MISSING, OpenPage, chromium, find_chromium, opened
from playwright.sync_api import Browser, Page

from opcost.units import millijoules, milliseconds

ROOT = Path(__file__).parents[2]
NAMES = ("alexnet_32x3x224x224", "resnet50_32x3x224x224", "squeezenet1_0_32x3x224x224")
LOGGED = "torch.nn.Linear"

pytestmark = [pytest.mark.browser, pytest.mark.skipif(find_chromium() is None, reason=MISSING)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report of models that are counted on shapes only, with the committed rows and one power log."""
    folder = tmp_path_factory.mktemp("report")
    measurements, database = folder / "measurements", folder / "database"
    for name in NAMES:
        (measurements / name).mkdir(parents=True)
        shutil.copy(ROOT / "measurements" / name / "summary.yml", measurements / name)
    (measurements / "operator_whitelist.yml").write_text('operators:\n  - "*"\n')
    shutil.copytree(ROOT / "database", database, ignore=shutil.ignore_patterns("power_logs*"))
    make_log(database)
    folders = ("--measurements", str(measurements), "--database", str(database))
    run("general_pipeline_block0.py", "--meta", *folders)
    run("general_pipeline_block1.py", *folders)
    run("compare_sum_vs_full.py", *folders, "--report", str(folder / "report.html"))
    return folder / "report.html"


def run(script: str, *arguments: str) -> None:
    libraries = (*warm_python.LIBRARIES, warm_python.SHIPPED_ROWS)
    command = [sys.executable, str(ROOT / script), *arguments]
    warm_python.run(command, timeout=120, libraries=libraries).check_returncode()


def make_log(database: Path) -> None:
    """Write a power log for each row of one kind of operator: the committed ones are packed."""
    (database / "power_logs").mkdir()
    for row in rows_of(database / "operator_measurements.csv"):
        if row["operator"] == LOGGED:
            day, _, time = row["started_at"].partition("T")
            moment = f"{day.replace('-', '/')} {time.partition('+')[0]}"
            lines = [f"{moment}, {row['power_w']}", f"{moment[:-4]}.999, {row['power_w']}"]
            text = "\n".join(["timestamp, power.draw.instant [W]", *lines]) + "\n"
            (database / "power_logs" / row["power_log"]).write_text(text)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def seen(browser: Browser, report: Path) -> Iterator[OpenPage]:
    """Open the report; at the end it has sent no request and reported no error."""
    with opened(browser, report) as seen:
        yield seen
        assert seen.requests == [report.as_uri()]
        assert seen.complaints == []


@pytest.fixture
def page(seen: OpenPage) -> Page:
    return seen.page


def column(page: Page, number: int) -> list[str]:
    return page.locator(f"#rows tr > :nth-child({number})").all_inner_texts()


def figures(texts: list[str]) -> list[float]:
    return [float(text.split()[0]) for text in texts if text != "-"]


def count(page: Page) -> int:
    return int(page.locator("#count").inner_text().split()[0])


def test_what_costs_most_comes_first(page: Page) -> None:
    shares = figures(column(page, 8))
    assert shares == sorted(shares, reverse=True)
    assert page.locator("th[aria-sort=descending]").inner_text() == "share of time"
    assert len(shares) == 50


def test_the_ranking_comes_first(page: Page) -> None:
    first = page.locator("main table").first
    models = first.locator("tbody th").all_inner_texts()
    assert sorted(models) == ["alexnet", "resnet50", "squeezenet1_0"]
    energies = [float(text) for text in first.locator("td[data-label='mJ/sample']").all_inner_texts()]
    assert energies == sorted(energies)
    assert page.locator("h2").first.inner_text() == "Which model costs least?"


def test_the_ranking_is_sorted_by_its_heads_and_filtered(page: Page) -> None:
    table = page.locator(".sortable table").first

    def models() -> list[str]:
        return table.locator("tbody th:visible").all_inner_texts()

    by_energy = models()
    head = table.get_by_role("button", name="mJ/sample", exact=True)
    head.click()
    assert models() == by_energy
    head.click()
    assert models() == by_energy[::-1]
    assert table.locator("th[aria-sort=descending]").inner_text() == "mJ/sample"
    table.get_by_role("button", name="model").click()
    assert models() == sorted(by_energy)
    page.locator(".filter input").first.fill("NET 50")
    assert models() == ["resnet50"]
    page.locator(".filter input").first.fill("")
    assert models() == sorted(by_energy)


def test_points_of_numbers_are_in_one_line(page: Page) -> None:
    """A digit and what a number lacks have the same width."""
    ends = """[...document.querySelector(".sortable").querySelectorAll("[data-label='mJ/sample']")].map(cell => {
        const range = document.createRange(), text = cell.firstChild;
        range.setStart(text, text.data.indexOf("."));
        range.setEnd(text, text.data.indexOf(".") + 1);
        return range.getBoundingClientRect().right;
    })"""
    places = page.evaluate(ends)
    assert len(places) == len(NAMES)
    assert max(places) - min(places) < 1


def test_without_a_script_the_ranking_is_readable(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator(".sortable").first.locator("tbody tr").count() == len(NAMES)
    assert page.locator(".sortable button, .filter").count() == 0
    context.close()


def test_calls_are_those_of_the_chosen_model_and_of_all_each_counts_once(page: Page) -> None:
    page.fill("#query", "torch.nn.relu")
    everywhere = sum(figures(column(page, 7)))
    calls = {}
    for label in page.locator("#model option").all_inner_texts()[1:]:
        page.select_option("#model", label=label)
        calls[label] = sum(figures(column(page, 7)))
    # ResNet-50 calls ReLU once in its stem and three times in each of 16 blocks, in a graph as well as eagerly.
    assert {number for label, number in calls.items() if label.startswith("resnet50")} == {49}
    assert everywhere == sum(number for label, number in calls.items() if "eager" not in label)


def test_a_column_is_sorted_by_its_head_and_back(page: Page) -> None:
    head = page.get_by_role("button", name="time (ms)", exact=True)
    head.click()
    times = figures(column(page, 2))
    assert times == sorted(times, reverse=True)
    head.click()
    times = figures(column(page, 2))
    assert times == sorted(times)
    assert page.locator("th[aria-sort=ascending]").inner_text() == "time (ms)"


def test_unknown_values_come_last_either_way(page: Page) -> None:
    page.select_option("#sort", "energy")
    for is_first in (False, True):
        page.set_checked("#descending", is_first)
        assert "-" not in column(page, 4)[:10]


def test_a_search_finds_all_words_in_any_order(page: Page) -> None:
    everything = count(page)
    page.fill("#query", "KERNEL_SIZE=3 conv2d [32, 64,")
    found = column(page, 1)
    assert 0 < count(page) < everything
    assert all(word in text.lower() for text in found for word in ("kernel_size=3", "conv2d", "[32,", "64,"))
    page.fill("#query", "no such operator")
    assert count(page) == 0
    page.fill("#query", "")
    assert count(page) == everything


def test_filters_hold_together(page: Page) -> None:
    page.select_option("#model", label="squeezenet1_0")
    of_model = count(page)
    page.select_option("#kind", "Conv2d")
    convolutions = count(page)
    page.select_option("#side", "memory")
    assert 0 < count(page) < convolutions < of_model
    page.click("#rows tr:first-child button")
    assert "squeezenet1_0" in page.locator("#tuple table").inner_text()


def test_a_flag_that_is_chosen_is_on_all_rows(page: Page) -> None:
    page.select_option("#flag", "imprecise")
    assert count(page) > 0
    assert all("imprecise" in text for text in column(page, 13))


def test_pages_show_every_tuple_once(page: Page) -> None:
    page.select_option("#model", label="squeezenet1_0")
    seen = column(page, 1)
    while page.locator("#following").is_enabled():
        page.click("#following")
        seen += column(page, 1)
    assert len(seen) == count(page)


def test_a_chosen_tuple_has_the_figures_of_the_database(page: Page) -> None:
    rows = rows_of(ROOT / "database" / "operator_measurements.csv")
    for number in (1, 4, 9):
        page.click(f"#rows tr:nth-child({number}) button")
        shown = dict(
            zip(page.locator("#tuple dt").all_inner_texts(), page.locator("#tuple dd").all_inner_texts(), strict=True)
        )
        (row,) = (row for row in rows if row["key"] == shown["key"] and row["started_at"] == shown["started_at"])
        assert shown["time of one call"].startswith(f"{milliseconds(float(row['time_s']))} ± ")
        assert shown["energy of one call"].startswith(f"{millijoules(float(row['energy_j']))} ± ")
        assert shown["power"] == f"{float(row['power_w']):.1f} W"
        assert shown["iterations"] == row["iterations"]
        assert shown["driver_version"] == row["driver_version"]
        assert shown["device_uuid"] == row["device_uuid"].removeprefix("GPU-")[:4]
        title = page.locator("#tuple-title").inner_text()
        assert title == f"{row['operator']}({row['parameters']}) on ({row['inputs']})"
        assert (
            page.locator(f"#rows tr:nth-child({number}) td").first.inner_text() == shown["time of one call"].split()[0]
        )
        page.click("#close")


def test_a_trace_is_drawn_where_its_log_is_there_and_named_where_not(page: Page) -> None:
    page.select_option("#kind", "Linear")
    page.click("#rows tr:first-child button")
    assert page.locator("#tuple .trace .window").count() == 1
    assert page.locator("#tuple .trace .line0").count() == 2
    page.keyboard.press("Escape")
    page.select_option("#kind", "Conv2d")
    page.click("#rows tr:first-child button")
    assert "No power trace: the log" in page.locator("#tuple").inner_text()


def test_the_keyboard_reaches_and_opens_a_tuple(page: Page) -> None:
    page.focus("#descending")
    for _ in range(14):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("#tuple").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#tuple").is_visible()
    assert page.evaluate("document.activeElement.closest('#rows') !== null")


def test_a_mark_of_the_roofline_opens_its_tuple_and_is_ringed(page: Page) -> None:
    page.select_option("#kind", "Conv2d")
    page.click("#rows tr:first-child button")
    page.click("#close")
    ring = page.locator(".chosen").first
    ring.scroll_into_view_if_needed()
    place = ring.bounding_box()
    assert place is not None
    page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    assert page.locator("#tuple").is_visible()


@pytest.mark.parametrize("width", [1400, 1280, 768, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_at_any_width(browser: Browser, report: Path, width: int, scheme: str) -> None:
    with opened(browser, report, width, scheme) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        scrolled = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth).length"
        assert width == 768 or seen.page.evaluate(scrolled) == 0
        cut = """[...document.querySelectorAll('svg.figure:not(.swatch):not(.definitions)')].flatMap(figure => {
            const field = figure.getBoundingClientRect();
            return [...figure.querySelectorAll('text')].filter(text => {
                const one = text.getBoundingClientRect();
                return one.left < field.left - 1 || one.right > field.right + 1 || one.bottom > field.bottom + 1;
            }).map(text => text.textContent);
        })"""
        assert seen.page.evaluate(cut) == []
        seen.page.click("#rows tr:first-child button")
        assert seen.page.evaluate(
            "(() => { const d = document.getElementById('tuple'); return d.scrollWidth <= d.clientWidth; })()"
        )
        assert seen.complaints == []


def test_texts_of_one_figure_do_not_cover_each_other(page: Page) -> None:
    covering = """[...document.querySelectorAll('svg.figure')].flatMap(figure => {
        const texts = [...figure.querySelectorAll('text')];
        const fields = texts.map(text => [text.textContent, text.getBoundingClientRect()]);
        return fields.flatMap(([name, one], place) => fields.slice(place + 1)
            .filter(([, other]) => one.left < other.right - 1 && other.left < one.right - 1
                && one.top < other.bottom - 3 && other.top < one.bottom - 3)
            .map(([other]) => `${name} | ${other}`));
    })"""
    assert page.evaluate(covering) == []


def test_on_paper_there_are_no_controls_and_nothing_is_folded(page: Page) -> None:
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert not page.locator("#filters").is_visible()
    assert page.locator("details:not([open])").count() == 0
    assert page.locator("#tuples").is_visible()


def test_requests_are_forbidden_to_the_page_itself(browser: Browser, report: Path) -> None:
    with opened(browser, report) as seen:
        refused = seen.page.evaluate("fetch('https://example.org/').then(() => false, () => true)")
        assert refused
        assert any("Content Security Policy" in complaint for complaint in seen.complaints)
        assert seen.requests == [report.as_uri()]
        assert urllib.request.pathname2url(str(report)) in seen.requests[0]
