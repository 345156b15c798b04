"""Tables and progress: a bar on a terminal, few plain lines elsewhere, and the time left."""

import io
import json
import re
import threading
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from opcost.progress import Progress
from opcost.reporting.progress_lines import (
    PLAIN_INTERVAL_S,
    BarProgress,
    JsonProgress,
    PlainProgress,
    TimeLeft,
    progress_on_stderr,
)
from opcost.reporting.tables import Column, print_commands, print_line, print_origin_line, print_table
from opcost.units import duration

SHOW_CURSOR = "\x1b[?25h"
HIDE_CURSOR = "\x1b[?25l"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


# Time left


@pytest.mark.parametrize(
    ("items", "expected_s", "finished", "elapsed_s", "left_s"),
    [
        # The expected time, until something has finished.
        (10, [33.0] * 10, 0, 5.0, 330.0),
        # Items count by their expected time.
        (3, [1.0, 1.0, 98.0], 2, 2.0, 98.0),
        # The time left follows the items so far.
        (1000, [1.0] * 1000, 500, 1000.0, 997.0),
        (1000, [1.0] * 1000, 1000, 2000.0, 0.0),
        # One slow item does not set the time of all others.
        (101, [1.0] * 101, 1, 10.0, 325.0),
        # Without expected times it is unknown until something has finished.
        (10, [], 0, 5.0, None),
        (10, [], 4, 8.0, 12.0),
    ],
)
def test_the_time_left_is_the_expected_one_scaled_by_the_items_so_far(
    items: int, expected_s: list[float], finished: int, elapsed_s: float, left_s: float | None, clock: Clock
) -> None:
    left = TimeLeft(items, expected_s, now=clock)
    clock.now_s += elapsed_s
    for _ in range(finished):
        left.finish()
    assert left.seconds() == (None if left_s is None else pytest.approx(left_s, rel=1e-3))
    assert left.text() == ("" if not left_s else f"{duration(left.seconds() or 0.0)} left")


@given(st.lists(st.floats(1e-3, 1e5), min_size=1), st.floats(0.1, 10), st.data())
def test_the_time_left_is_never_negative_and_right_where_all_items_are_slower_alike(
    expected_s: list[float], factor: float, data: st.DataObject
) -> None:
    clock = Clock()
    clock.now_s = 0.0
    left = TimeLeft(len(expected_s), expected_s, now=clock)
    finished = data.draw(st.integers(0, len(expected_s)))
    rest_s = sum(expected_s[finished:])
    clock.now_s = factor * sum(expected_s[:finished])
    for _ in range(finished):
        left.finish()
    seconds = left.seconds()
    assert seconds is not None
    # Between the expected time and the one that follows from the finished items, apart from rounding.
    least_s, most_s = sorted((rest_s, factor * rest_s))
    assert seconds >= 0
    assert least_s - 1e-6 * most_s <= seconds <= most_s * (1 + 1e-6)


def test_workers_share_the_time_left_and_the_rest_of_what_runs_belongs_to_it(clock: Clock) -> None:
    left = TimeLeft(5, [10.0, 30.0, 20.0, 20.0, 20.0], 2, clock)
    assert left.seconds() == 50.0
    left.begin("cuda:0")
    left.begin("cuda:1")
    clock.now_s += 10.0
    assert left.seconds() == 40.0
    # The second one to begin ends before the first, and the items have taken what was expected of them.
    clock.now_s += 20.0
    left.finish("cuda:1")
    assert left.seconds() == 30.0
    left.begin("cuda:1")
    # This one was lost: its worker begins again, with the same time.
    left.begin("cuda:0")
    clock.now_s += 5.0
    assert (left.finished, sorted(left.running.values())) == (1, [10.0, 20.0])


def test_the_time_left_is_at_least_that_of_the_longest_item_and_0_for_one_that_was_lost_with_its_worker(
    clock: Clock,
) -> None:
    left = TimeLeft(3, [10.0, 10.0, 100.0], 3, clock)
    for worker in ("cuda:0", "cuda:1", "cuda:2"):
        left.begin(worker)
    clock.now_s += 10.0
    left.finish("cuda:0")
    assert left.seconds() == 90.0
    # The item of cuda:1 begins again elsewhere, though all have begun.
    left.begin("cuda:0")
    clock.now_s += 90.0
    for worker in ("cuda:0", "cuda:2"):
        left.finish(worker)
    assert (left.finished, left.seconds()) == (3, 0.0)


# Plain lines


def plain(clock: Clock, items: int, item_s: float, expected_item_s: float = 2.0) -> list[str]:
    stream = io.StringIO()
    progress = PlainProgress(stream, clock)
    progress.start(items, [expected_item_s] * items)
    for item in range(items):
        progress.begin(f"Conv2d {item}")
        clock.now_s += item_s
        progress.finish("1.5 ms")
    progress.end()
    return stream.getvalue().splitlines()


def test_fast_items_do_not_flood_a_log(clock: Clock) -> None:
    assert plain(clock, items=0, item_s=1) == []
    lines = plain(clock, items=1000, item_s=0.1)
    assert lines[0].startswith("[1/1000] ")
    assert lines[-1].startswith("[1000/1000] ")
    assert len(lines) <= 2 + 100 / PLAIN_INTERVAL_S


def test_a_failure_is_always_a_line_and_a_second_piece_of_work_counts_again(clock: Clock) -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream, clock)
    for _ in range(2):
        progress.start(4)
        progress.begin("Conv2d")
        progress.finish("1.5 ms")
        progress.fail("out of memory")
        progress.finish("1.5 ms")
    assert stream.getvalue() == "[1/4] Conv2d: 1.5 ms\n[2/4] Conv2d: failed: out of memory\n" * 2


def test_progress_in_a_log_file_is_plain() -> None:
    assert isinstance(progress_on_stderr(), PlainProgress)


def two_workers(progress: Progress, clock: Clock) -> None:
    """Report four items of two workers: the second one ends first, and the first is lost and begins again."""
    progress.start(4, [10.0] * 4, workers=2)
    progress.begin("Conv2d", "cuda:0")
    progress.begin("ReLU", "node7 cuda:3")
    clock.now_s += 10
    progress.finish("1.5 ms", "node7 cuda:3")
    progress.begin("Conv2d", "cuda:0")
    progress.begin("Softmax", "node7 cuda:3")
    clock.now_s += 10
    progress.fail("out of memory", "node7 cuda:3")
    clock.now_s += 1
    progress.finish("2.5 ms", "cuda:0")


def test_a_plain_line_names_the_worker_if_there_are_several(clock: Clock) -> None:
    stream = io.StringIO()
    two_workers(PlainProgress(stream, clock), clock)
    assert stream.getvalue().splitlines() == [
        "[1/4] node7 cuda:3  ReLU: 1.5 ms  10 s left",
        "[2/4] node7 cuda:3  Softmax: failed: out of memory  12 s left",
        "[3/4] cuda:0  Conv2d: 2.5 ms  12 s left",
    ]


def test_json_has_a_line_for_each_event(clock: Clock) -> None:
    stream = io.StringIO()
    progress = JsonProgress(stream, clock)
    two_workers(progress, clock)
    progress.end()
    started, *events, ended = map(json.loads, stream.getvalue().splitlines())
    state = {"done": 0, "items": 4, "left_s": 20.0, "elapsed_s": 0.0}
    assert started == {"event": "started", "workers": 2, "expected_s": 20.0, **state}
    assert [(one["event"], one["worker"], one["item"], one.get("result"), one["done"]) for one in events] == [
        ("begun", "cuda:0", "Conv2d", None, 0),
        ("begun", "node7 cuda:3", "ReLU", None, 0),
        ("finished", "node7 cuda:3", "ReLU", "1.5 ms", 1),
        ("begun", "cuda:0", "Conv2d", None, 1),
        ("begun", "node7 cuda:3", "Softmax", None, 1),
        ("failed", "node7 cuda:3", "Softmax", "out of memory", 2),
        ("finished", "cuda:0", "Conv2d", "2.5 ms", 3),
    ]
    assert ended.keys() == {"event", *state}
    assert (ended["done"], ended["elapsed_s"]) == (3, 21.0)
    progress.start(1)
    assert json.loads(stream.getvalue().splitlines()[-1])["left_s"] is None


# The bar


def terminal(width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def on_bar(name: str = "", end: str = "finish", result: str = "", items: int = 1, width: int = 100) -> str:
    """Return what a bar shows of items of which one begins, and ends if it has a result."""
    console = terminal(width)
    bar = BarProgress(console)
    bar.start(items, [100.0] * items)
    if name:
        bar.begin(name)
    if result:
        getattr(bar, end)(result)
    bar.end()
    return shown(console)


def test_a_second_piece_of_work_has_a_bar_without_the_first() -> None:
    console = terminal()
    bar = BarProgress(console)
    for name in ("operators", "chains"):
        drawn_before = len(shown(console))
        bar.start(1, [60.0])
        bar.begin(name)
        bar.end()
    second = shown(console)[drawn_before:]
    assert ("chains" in second, "operators" in second) == (True, False)


def test_several_workers_have_a_line_each_below_the_bar(clock: Clock) -> None:
    console = terminal()
    two_workers(BarProgress(console, clock), clock)
    # Each time the cursor goes back to the first line.
    *_, running, result, ended = shown(console).split("\r")
    drawn = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", one).splitlines() for one in (running, result, ended)]
    assert drawn[0][1:] == ["cuda:0  Conv2d", "node7 cuda:3"]
    assert drawn[1][0] == "cuda:0  Conv2d: 2.5 ms"
    assert drawn[2][0].startswith("3/4 ")
    assert drawn[2][1:] == ["cuda:0", "node7 cuda:3"]


LONG = "Conv2d(64, 64, kernel_size=(3, 3), padding=(1, 1), bias=False) on float32[32, 64, 56, 56] (3 of 10 zeros)"


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_counter_time_left_and_result_stay_at_any_width(width: int) -> None:
    text = on_bar(LONG, "finish", "0.1234 ms  12.34 mJ", items=120, width=width)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", text).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.startswith("Conv2d") and line.endswith(": 0.1234 ms  12.34 mJ") for line in lines)
    assert any(re.match(r" *0/120 .* 3 h 20 min left", line) for line in lines)


def test_a_long_reason_is_whole_and_signs_of_markup_are_shown_as_they_are() -> None:
    assert on_bar(LONG, "fail", "out of memory " * 20).count("memory") == 20
    assert "[bold]x[/bold] [/]: [red]failed" in on_bar("[bold]x[/bold] [/]", "finish", "[red]failed")


@pytest.mark.parametrize(("columns", "longest"), [("", 160), ("80", 80)])
def test_a_plain_line_shortens_the_name(
    columns: str, longest: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.StringIO()
    progress = PlainProgress(stream, clock)
    progress.start(2)
    progress.begin(LONG * 2)
    clock.now_s += 40
    progress.finish("1.5 ms")
    line = stream.getvalue().rstrip("\n")
    assert len(line) == longest
    assert line.startswith("[1/2] Conv2d(")
    assert line.endswith(" zeros): 1.5 ms  40 s left")


def test_the_bar_gives_the_cursor_back_and_starts_no_thread() -> None:
    console, before = terminal(), threading.active_count()
    bar = BarProgress(console)
    bar.start(2)
    assert shown(console).count(HIDE_CURSOR) == 1
    # One would take time from what is measured.
    assert threading.active_count() == before
    bar.end()
    assert shown(console).count(SHOW_CURSOR) == 1
    assert on_bar(items=0).strip() == ""


# Tables and lines


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("80", "  opcost show       # rank models\n  opcost measure a  # measure a small model\n"),
        ("40", "  # rank models\n  opcost show\n  # measure a small model\n  opcost measure a\n"),
    ],
)
def test_commands_stay_whole(
    columns: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_commands([("opcost show", "rank models"), ("opcost measure a", "measure a small model")])
    assert capsys.readouterr().out.replace("   #", "  #") == expected


def test_a_line_is_wrapped_at_words_if_the_width_is_known_but_not_within_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "float32[2, 3] [red]x[/red] " * 20
    print_line(text)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setenv("COLUMNS", "40")
    print_line("CPU      an EPYC processor; its energy is 12.5 mJ", hanging=9)
    assert capsys.readouterr().out == "CPU      an EPYC processor; its energy\n         is 12.5 mJ\n"
    line = "resnet18: the whole model is not measured; run opcost measure-models resnet18"
    print_line(line, command="opcost measure-models resnet18")
    assert "  opcost measure-models resnet18" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", ["", "40", "80"])
def test_no_line_of_a_table_ends_in_spaces(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    columns = [Column("operator", itemgetter(0), "left", wraps=10), Column("flags", itemgetter(1), "left")]
    print_table("Costs", columns, [["Conv2d 64→64, kernel 3", "uneven"], ["ReLU", ""]])
    assert all(line == line.rstrip() for line in capsys.readouterr().out.splitlines())


def test_the_command_that_made_a_table_is_wrapped_and_not_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_origin_line("opcost measure-models vit_b_16_32x3x224x224 vit_h_14_32x3x518x518", "NVIDIA H200")
    assert capsys.readouterr().out.splitlines() == [
        "opcost measure-models",
        "  vit_b_16_32x3x224x224",
        "  vit_h_14_32x3x518x518",
        "NVIDIA H200",
    ]
