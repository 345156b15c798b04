"""Power over time: written logs of every kind are drawn as they were read; any other file is reported in one line."""

import os
import pty
import subprocess
import sys
import tracemalloc
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvidia_smi_stage import NvidiaSmiStage

from opcost.errors import UserError
from opcost.power.log_rows import COLUMNS, PowerRow, csv_line
from opcost.reporting.power_traces import (
    AVERAGE,
    COUNTER,
    INSTANT,
    SAMPLES,
    Readings,
    plot_log,
    readings_of_log,
    shown,
    trace_of,
)

SCRIPT = Path(__file__).parents[2] / "power_logger.py"
OWN = (
    "\n".join([",".join(COLUMNS), *(csv_line(PowerRow(1.79e9 + 0.1 * i, 300.0 + i, 290.0)) for i in range(20))]) + "\n"
)
SMI = """\
timestamp, power.draw.instant [W], power.draw.average [W]
2026/11/22 08:32:56.238, 524.73, 403.03
2026/11/22 08:32:56.258, 524.73, [N/A]
2026/11/22 08:32:56.279, 420.60, 371.92
"""


def test_a_log_of_the_logger_has_both_powers(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_text(OWN)
    instant, average = readings_of_log(path)
    assert (instant.name, average.name) == (INSTANT, AVERAGE)
    assert instant.points[3] == (pytest.approx(1.79e9 + 0.3, abs=1e-3), 303.0)
    assert len(average.points) == 20


def test_logs_kept_beside_a_measurement_are_drawn_with_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(SMI)
    (tmp_path / "a-samples.csv").write_text("epoch_s,power_w\n1795336376.26,369.9\n1795336376.28,423.9\n")
    (tmp_path / "a-counter.csv").write_text("epoch_s,energy_j\n1795336376.0,1000.0\n1795336376.5,1200.0\n")
    found = {one.name: one for one in readings_of_log(path)}
    assert list(found) == [SAMPLES, COUNTER, INSTANT, AVERAGE]
    assert found[COUNTER].points == [(1795336376.5, 400.0)]
    assert [power_w for _, power_w in found[AVERAGE].points] == [403.03, 371.92]


def test_a_drawing_is_beside_its_log_and_whole_xml(tmp_path: Path) -> None:
    path = tmp_path / "<b>&.csv"
    path.write_text(OWN)
    drawn = plot_log(path)
    assert drawn == tmp_path / "<b>&.svg"
    root = ET.parse(drawn).getroot()
    assert root.get("aria-label") == "Power of <b>&"
    assert "http" not in drawn.read_text().replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "this is not a power log"),
        ("a,b\n1,2\n", "this is not a power log"),
        (",".join(COLUMNS) + "\n", "the log has no power readings"),
        ("epoch_s,power_w\n1,2\nx,3\n", "a line cannot be read"),
    ],
)
def test_what_is_no_log_is_reported_in_one_line(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "power.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=problem) as raised:
        plot_log(path)
    assert str(raised.value).startswith(f"--plot {path}: ")
    assert not path.with_suffix(".svg").exists()


@pytest.mark.parametrize("before", ["", OWN, SMI, "epoch_s,power_w\n"])
def test_a_line_longer_than_any_row_is_reported_in_little_memory(tmp_path: Path, before: str) -> None:
    path = tmp_path / "power.csv"
    path.write_text(before)
    os.truncate(path, 600_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"a line cannot be read \(longer than any row\); fix or delete it"):
            plot_log(path)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_a_pipe_is_no_log_and_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    os.mkfifo(path)
    with pytest.raises(UserError, match="there is no such file; name a log"):
        plot_log(path)
    path.unlink()
    path.write_text(OWN)
    os.mkfifo(tmp_path / "power-samples.csv")
    assert [one.name for one in readings_of_log(path)] == [INSTANT, AVERAGE]


def test_the_log_itself_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    with pytest.raises(UserError, match="there is no such file"):
        plot_log(path)
    path.write_text(OWN)
    with pytest.raises(UserError, match=r"ends in \.svg"):
        plot_log(path, path)
    assert path.read_text() == OWN


@pytest.mark.parametrize("options", [(), ("--qualify",), ("--seconds", "1"), ("--gpu", "0")])
def test_the_script_draws_with_nothing_installed_and_logs_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "power.csv").write_text(OWN)
    command = [sys.executable, "-S", str(SCRIPT), "--plot", "power.csv", *options]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    drawn = "power.svg: the trace of power.csv\n"
    assert result.stderr.startswith("error: --plot draws a log; leave" if options else drawn)
    assert (result.returncode, (tmp_path / "power.svg").exists()) == ((2, False) if options else (0, True))


# What is drawn


BEGIN_S = 1_790_000_000.0
STEADY = Readings("samples", tuple((BEGIN_S + 0.1 * i, 400.0 + i) for i in range(11)))


@pytest.mark.parametrize(
    ("window", "expected"),
    [(None, None), ((0.25, 7.0), (pytest.approx(0.25), pytest.approx(1.0))), ((-9.0, -8.0), None)],
)
def test_time_counts_from_the_first_reading_power_from_zero_and_the_window_is_within_the_log(
    window: tuple[float, float] | None, expected: object
) -> None:
    trace = trace_of([STEADY], None if window is None else (BEGIN_S + window[0], BEGIN_S + window[1]))
    assert trace is not None
    assert (trace.time.low, trace.time.high) == (0.0, pytest.approx(1.0))
    assert trace.power.low == 0
    (line,) = trace.lines
    assert (line.points[0], line.points[-1]) == ((0.0, 400.0), (pytest.approx(1.0), 410.0))
    assert trace.window == expected


def test_meters_share_both_axes() -> None:
    later = Readings("other", ((BEGIN_S + 2.0, 900.0),))
    trace = trace_of([STEADY, Readings("silent", ()), later])
    assert trace is not None
    assert [line.name for line in trace.lines] == ["samples", "other"]
    assert list(trace.lines[1].points) == [(2.0, 900.0)]
    assert trace_of([]) == trace_of([Readings("silent", ())]) is None


def test_a_log_that_repeats_values_is_drawn_as_stairs() -> None:
    points = tuple((BEGIN_S + i, 100.0 if i < 3 else 200.0) for i in range(6))
    trace = trace_of([Readings("smi", points, is_step=True)])
    assert trace is not None
    assert list(trace.lines[0].points) == [(0.0, 100.0), (3.0, 100.0), (3.0, 200.0), (5.0, 200.0), (5.0, 200.0)]


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=400), st.booleans())
def test_long_traces_keep_their_extremes_and_few_points(powers_w: list[float], is_step: bool) -> None:
    points = tuple((BEGIN_S + 0.02 * i, power_w) for i, power_w in enumerate(powers_w))
    trace = trace_of([Readings("x", points, is_step)], most_points=40)
    assert trace is not None
    places = trace.lines[0].points
    assert len(places) <= 44
    heights = [y for _, y in places]
    assert max(heights) == pytest.approx(max(powers_w))
    assert min(heights) == pytest.approx(min(powers_w))
    assert [x for x, _ in places] == sorted(x for x, _ in places)


# On a terminal


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvidiaSmiStage:
    return NvidiaSmiStage(tmp_path / "stage", monkeypatch)


def test_logging_on_a_terminal_shows_the_power(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, str(SCRIPT), "--seconds", "1.2", "--output", "power.csv"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "PYTHONPATH": str(SCRIPT.parent)}
    with subprocess.Popen(command, cwd=tmp_path, stderr=theirs, stdout=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
    os.close(ours)
    assert process.returncode == 0
    text = shown.decode()
    assert "W now" in text
    assert "mean power 30" in text
    assert len((tmp_path / "power.csv").read_text().splitlines()) > 3


def test_the_power_is_shown_twice_a_second_at_most(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    rows = [(PowerRow(1.79e9 + 0.02 * number, power_instant_w=300.0 + number), PowerRow(0.0)) for number in range(100)]
    assert list(shown(rows)) == rows
    found = capsys.readouterr().err
    assert found.count("W now") == 4
    assert "375.0 W now" in found
